"""One headless Chromium for the folder. The pages are opened as files; there is no server."""

from __future__ import annotations

import shutil

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A driver; its `log` holds the console and the network of the page."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no Chromium here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    yield browser
    browser.quit()


@pytest.fixture
def open_page(chromium):
    """Opens a file at a width and in a colour scheme, and holds the page to what every page must keep."""
    import json

    def show(path, *, width=1280, theme="light"):
        chromium.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        )
        chromium.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        chromium.get_log("browser"), chromium.get_log("performance")
        chromium.get(path.as_uri())
        return chromium

    yield show
    assert chromium.get_log("browser") == []
    urls = [
        message["params"]["request"]["url"]
        for entry in chromium.get_log("performance")
        if (message := json.loads(entry["message"])["message"])["method"] == "Network.requestWillBeSent"
    ]
    assert urls, "the log of requests is empty, so it proves nothing"
    assert all(url.startswith(("file:", "data:")) for url in urls), urls
