"""Size of report.html, time to render it, and to the first paint in Chromium, from 100 to 50,000 results.

`python -m bench.report_scale` prints a table; `--no-browser` leaves the last two columns out.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recon.reports import html
from tests.support import sample_run

SIZES = ((3, 100), (60, 1_000), (120, 1_200), (120, 10_000), (120, 50_000))  # pipelines, results


@contextmanager
def chromium(folder: Path) -> Iterator[Any]:
    """A headless browser."""
    import shutil

    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    from tests.browser.conftest import FLAGS

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield browser
    finally:
        browser.quit()


def painted(browser: Any, page: Path) -> tuple[float, float]:
    """Seconds to the first paint and to the end of loading, medians of three."""
    times = []
    for _ in range(3):
        browser.get(page.as_uri())
        time.sleep(0.5)
        paint = browser.execute_script(
            "return [performance.getEntriesByName('first-contentful-paint').map(e => e.startTime)[0] || 0,"
            " performance.getEntriesByType('navigation')[0].loadEventEnd]"
        )
        times.append(paint)
    first, loaded = zip(*times, strict=True)
    return statistics.median(first) / 1000, statistics.median(loaded) / 1000


def main() -> None:
    """Prints a row per size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-browser", action="store_true")
    without = parser.parse_args().no_browser
    html.render(sample_run.sample_run())  # compiles the templates
    print("| pipelines | results | size | rendered in | first paint | loaded |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        pages = []
        for pipelines, checks in SIZES:
            run = sample_run.large_run(pipelines, checks)
            started = time.perf_counter()
            page = html.write(run, Path(folder) / f"{checks}.html")
            took = time.perf_counter() - started
            pages.append((pipelines, checks, page, f"{page.stat().st_size / 1000:,.0f} kB | {took:.2f} s"))
        if without:
            for pipelines, checks, _, cells in pages:
                print(f"| {pipelines} | {checks:,} | {cells} | | |")
            return
        with chromium(Path(folder) / "profile") as browser:
            for pipelines, checks, page, cells in pages:
                first, loaded = painted(browser, page)
                print(f"| {pipelines} | {checks:,} | {cells} | {first:.2f} s | {loaded:.2f} s |")


if __name__ == "__main__":
    main()
