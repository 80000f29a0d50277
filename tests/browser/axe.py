"""axe-core in the browser: what keeps people from using a page."""

from __future__ import annotations

import os
from pathlib import Path


def serious_faults(browser, file):
    """What axe-core calls serious or critical on the page that a file is.

    With the axe-core of a package, or with a newer one that RECON_AXE names: `npm pack axe-core`.
    """
    import axe_core_python

    packed = Path(axe_core_python.__file__).with_name("axe.min.js")
    source = Path(os.environ.get("RECON_AXE", packed))
    browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    browser.get(file.as_uri())
    browser.execute_script(source.read_text(encoding="utf-8"))
    browser.set_script_timeout(200)
    found = browser.execute_async_script("axe.run(document, {resultTypes: ['violations']}).then(arguments[0])")
    browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": False})
    serious = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
    return [(v["id"], v["help"], v["nodes"][0]["html"][:200], v["nodes"][0]["failureSummary"]) for v in serious]
