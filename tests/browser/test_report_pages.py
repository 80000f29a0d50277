"""The reports in a real browser: no errors, no requests, filters that filter, phones and dark screens."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from recon.reports import compliance, html, sample
from tests.browser.axe import serious_faults
from tests.support import sample_run
from tests.support.marks import long

pytestmark = pytest.mark.browser


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return {
        "report": html.write(sample_run.sample_run(), folder / "report.html"),
        "hostile": html.write(sample_run.hostile_run(), folder / "hostile.html"),
        "large": html.write(sample_run.large_run(120, 1200), folder / "large.html"),
        "several": html.write(sample_run.large_run(24, 120, failing=0.1), folder / "several.html"),
        "big": html.write(sample_run.big_run(), folder / "big.html"),
        "sample": sample.write(sample_run.sample_of_records(), folder / "sample.html"),
        "hostile sample": sample.write(sample_run.sample_of_records(sample_run.HOSTILE), folder / "bad_sample.html"),
        "compliance": compliance.write(sample_run.sample_compliance(), folder / "compliance.html"),
    }


def visible(browser, selector):
    """The elements that are shown and have a size, in one call: a page has thousands."""
    shown = "e => e.checkVisibility({visibilityProperty: true, opacityProperty: true}) && e.offsetWidth !== 0"
    return browser.execute_script(f"return [...document.querySelectorAll(arguments[0])].filter({shown})", selector)


def findings(browser):
    return visible(browser, "#findings-table tbody tr")


def test_answer_and_findings_are_seen(open_page, pages):
    browser = open_page(pages["report"])
    assert browser.find_element(By.TAG_NAME, "h1").text == "1 of 3 pipelines is not complete, 1 could not be proved"
    cards = [card.text.splitlines()[:2] for card in visible(browser, ".card")]
    assert cards == [["payments", "not complete"], ["clicks", "could not be proved"], ["orders", "complete"]]
    assert len(findings(browser)) == 23
    assert findings(browser)[0].text.startswith("fail")
    heights = [e.size["height"] for e in visible(browser, "#coverage svg[role=img]")]
    assert len(heights) == 3
    assert min(heights) > 60


def test_filters_filter(open_page, pages):
    browser = open_page(pages["report"])
    box = browser.find_element(By.ID, "f-text")
    box.send_keys("payments-1 GAP")
    assert [row.find_elements(By.TAG_NAME, "td")[1].text for row in findings(browser)] == ["GAP"]
    assert browser.find_element(By.ID, "f-shown").text == "1 of 23 match"
    box.send_keys(" nothing like this")
    assert findings(browser) == []
    assert visible(browser, "#f-none")
    box.clear()
    box.send_keys(" ")
    assert len(findings(browser)) == 23

    Select(browser.find_element(By.ID, "f-code")).select_by_value("LOSS_RETENTION")
    assert len(findings(browser)) == 12
    Select(browser.find_element(By.ID, "f-code")).select_by_value("")
    Select(browser.find_element(By.ID, "f-pipeline")).select_by_value("orders")
    assert len(findings(browser)) == 3
    Select(browser.find_element(By.ID, "f-pipeline")).select_by_value("")

    browser.find_element(By.CSS_SELECTOR, "input[name=f-level][value=fail]").click()
    assert len(findings(browser)) == 8
    assert not any(row.text.startswith("fail") for row in findings(browser))


def test_columns_sort_numbers_as_numbers(open_page, pages):
    browser = open_page(pages["report"])

    def batches():
        return [row.find_elements(By.TAG_NAME, "td")[5].text for row in findings(browser)]

    button = browser.find_elements(By.CSS_SELECTOR, "#findings-table th button")[5]
    button.click()
    rising = [int(b) for b in batches() if b]
    assert rising == sorted(rising)
    assert batches()[-1] == ""
    button.click()
    falling = [int(b) for b in batches() if b]
    assert falling == sorted(falling, reverse=True)
    assert falling[0] == 144


def test_checks_open_and_filter(open_page, pages):
    browser = open_page(pages["report"])
    assert len(visible(browser, ".check")) == 19
    for status in ("pass", "warn", "error", "skipped"):
        browser.find_element(By.CSS_SELECTOR, f"input[name=c-status][value={status}]").click()
    shown = visible(browser, ".check")
    assert [s.find_element(By.CSS_SELECTOR, "summary .badge").text for s in shown] == ["fail"] * 4
    assert "P-1003" not in browser.find_element(By.ID, "checks").text
    for check in shown:
        check.find_element(By.TAG_NAME, "summary").click()
    assert "P-1003" in browser.find_element(By.ID, "checks").text


def test_a_tap_on_the_picture_tells_the_range(open_page, pages):
    browser = open_page(pages["report"])
    cell = browser.find_element(By.CSS_SELECTOR, "#coverage .chart-grid rect.s-lost")
    browser.execute_script("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", cell)
    (title,) = [p.text for p in visible(browser, "#coverage .picked")]
    assert title.startswith("payments-2: lost, [")


@pytest.mark.parametrize("page", ["report", "compliance"])
def test_dark_by_the_system_and_by_the_button(open_page, pages, page):
    browser = open_page(pages[page], theme="dark")

    def luminance(selector, which):
        colour = browser.find_element(By.CSS_SELECTOR, selector).value_of_css_property(which)
        red, green, blue = (int(float(c)) for c in colour[colour.index("(") + 1 : -1].split(",")[:3])
        return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255

    assert luminance("body", "background-color") < 0.15
    assert luminance("h1", "color") > 0.8
    browser.find_element(By.ID, "theme").click()
    assert luminance("body", "background-color") > 0.85
    assert luminance("h1", "color") < 0.2


@pytest.mark.parametrize("page", ["report", "hostile", "big", "large", "compliance", "sample", "hostile sample"])
def test_a_phone_does_not_scroll_sideways(open_page, pages, page):
    browser = open_page(pages[page], width=390)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert browser.execute_script("return innerWidth") == 390
    assert browser.execute_script("return document.documentElement.scrollWidth") == 390


def test_data_does_not_run(open_page, pages):
    browser = open_page(pages["hostile"])
    browser.find_element(By.ID, "f-text").send_keys("alert('x')")
    assert len(findings(browser)) > 0
    assert browser.find_elements(By.CSS_SELECTOR, "main script") == []
    browser = open_page(pages["hostile sample"])
    assert "<script>alert" in browser.find_element(By.TAG_NAME, "main").text
    assert browser.find_elements(By.CSS_SELECTOR, "main script") == []


def test_all_partitions_on_demand(open_page, pages):
    browser = open_page(pages["big"])
    assert len(visible(browser, "#coverage svg[role=img]")) == 2
    (more,) = [e for e in visible(browser, "#coverage summary") if e.text == "Show all 200 partitions"]
    more.click()
    assert len(visible(browser, "#coverage svg[role=img]")) == 3
    tall = max(e.size["height"] for e in visible(browser, "#coverage svg[role=img]"))
    assert tall == 200 * 15


def test_a_pipeline_is_found_among_many(open_page, pages):
    browser = open_page(pages["large"])
    assert len(visible(browser, "#pipelines-table tbody tr")) == 50
    browser.find_element(By.ID, "p-more").click()
    assert len(visible(browser, "#pipelines-table tbody tr")) == 120
    browser.find_element(By.ID, "p-text").send_keys("0077")
    (row,) = visible(browser, "#pipelines-table tbody tr")
    assert row.text.startswith("pipeline_0077\n")
    assert browser.find_element(By.ID, "p-shown").text == "1 of 120 match"


def test_checks_without_details_are_filtered_and_found(open_page, pages):
    browser = open_page(pages["large"])
    assert len(visible(browser, ".checks > *")) == 1200
    browser.find_element(By.CSS_SELECTOR, "input[name=c-status][value=pass]").click()
    shown = visible(browser, ".checks > *")
    assert 0 < len(shown) < 100 and not any(one.text.startswith("pass") for one in shown)
    browser.find_element(By.CSS_SELECTOR, "input[name=c-status][value=pass]").click()
    browser.find_element(By.ID, "c-text").send_keys("pipeline_0099 not_null")
    found = [one.text.split("\n")[:2] for one in visible(browser, ".checks > *")]
    assert found and all(status == "pass" and "pipeline_0099" in name for status, name in found), found


def test_findings_sort_back_and_filter_by_the_pipeline_of_another_sink(open_page, pages):
    browser = open_page(pages["report"])
    before = [row.text for row in findings(browser)]
    level, offsets = (browser.find_elements(By.CSS_SELECTOR, "#findings-table th button")[n] for n in (0, 4))
    offsets.click()
    begins = [
        int(t[1:].split(",")[0]) for row in findings(browser) if (t := row.find_elements(By.TAG_NAME, "td")[4].text)
    ]
    assert begins == sorted(begins) and len(begins) > 5
    level.click()
    assert [row.text for row in findings(browser)] == before


def test_every_badge_has_a_shape(open_page, pages):
    browser = open_page(pages["report"])
    shape = "b => [b.textContent, getComputedStyle(b, '::before').maskImage]"
    shape = f"return [...document.querySelectorAll('.badge')].map({shape})"
    shapes = dict(browser.execute_script(shape))
    assert all(url.startswith('url("data:image/svg+xml,') for url in shapes.values()), shapes
    drawn = (
        "Promise.all(arguments[0].map(url => { const i = new Image(); i.src = url; return i.decode().then(() => 1); }))"
    )
    urls = [url.removeprefix('url("').removesuffix('")') for url in shapes.values()]
    told = browser.execute_async_script(f"{drawn}.then(arguments[1], e => arguments[1](String(e)))", urls)
    assert told == [1] * len(urls), "a shape cannot be drawn"
    assert len({shapes[word] for word in ("pass", "fail", "warn", "info", "skipped", "error")}) == 6


def test_an_incident_has_a_link_of_its_own_and_commands_to_copy(open_page, pages):
    browser = open_page(pages["report"])
    incidents = visible(browser, ".incident")
    assert len(incidents) == 3
    link = incidents[1].find_element(By.CSS_SELECTOR, "h3 a")
    link.click()
    assert browser.current_url.endswith("#" + incidents[1].get_attribute("id"))
    button = incidents[1].find_element(By.CSS_SELECTOR, ".copy")
    button.click()
    WebDriverWait(browser, 10, poll_frequency=0.05).until(lambda _: button.text in ("Copied", "Selected"))


@pytest.mark.parametrize(
    ("page", "theme", "width"),
    [
        ("report", "light", 1280),
        ("report", "dark", 390),
        *long(("report", "dark", 1280), ("report", "light", 390)),
        ("several", "light", 1280),
        ("compliance", "light", 1280),
        ("compliance", "dark", 390),
        ("sample", "light", 1280),
        ("sample", "dark", 390),
    ],
)
def test_axe_finds_no_serious_fault(open_page, pages, page, theme, width):
    browser = open_page(pages[page], theme=theme, width=width)
    assert serious_faults(browser, pages[page]) == []


def focused(browser):
    return browser.switch_to.active_element


def press(browser, *keys):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def test_the_first_key_leads_past_the_contents(open_page, pages):
    browser = open_page(pages["report"])
    press(browser, Keys.TAB)
    skip = focused(browser)
    assert (skip.text, skip.is_displayed()) == ("Skip to the answer", True)
    assert skip.rect["y"] >= 0, "it is seen while it has the focus"
    press(browser, Keys.ENTER)
    assert focused(browser).get_attribute("id") == "main"


@pytest.mark.parametrize("width", [390, 1440])
def test_the_focus_goes_through_the_page_is_seen_and_is_never_held(open_page, pages, width):
    browser = open_page(pages["report"], width=width)
    seen = []
    style = "const s = getComputedStyle(arguments[0]), n = arguments[0].nextElementSibling; return [s.outlineStyle,"
    style += " n && getComputedStyle(n).outlineStyle, arguments[0].tagName, arguments[0].type || '']"
    for _ in range(400):
        press(browser, Keys.TAB)
        at = focused(browser)
        if at.tag_name == "body" or at.id in {one.id for one in seen[:1]}:
            break
        seen.append(at)
        own, following, tag, kind = browser.execute_script(style, at)
        assert own != "none" or (kind == "checkbox" and following != "none"), (tag, at.text)
    wanted = "main a[href], main button, main input, main select, main summary, main [tabindex='0']"
    reachable = [e for e in visible(browser, wanted) if e.is_enabled()]
    missed = {e.id: e for e in reachable}.keys() - {e.id for e in seen}
    assert missed == set(), [e.get_attribute("outerHTML")[:80] for e in reachable if e.id in missed]


def test_what_a_pointer_does_the_keyboard_does(open_page, pages):
    browser = open_page(pages["report"])
    chart = browser.find_element(By.CSS_SELECTOR, "#trends [role=img]")
    browser.execute_script("arguments[0].focus()", chart)
    press(browser, Keys.END)
    (told,) = [p.text for p in visible(browser, "#trends .picked")]
    assert told.startswith("All pipelines: 2026-03-14 to 2026-03-18: not complete, 5 audits (")
    press(browser, Keys.ARROW_LEFT)
    assert visible(browser, "#trends .picked")[0].text.startswith("All pipelines: 2026-03-12 to 2026-03-13: complete")
    sort = browser.find_elements(By.CSS_SELECTOR, "#findings-table th button")[5]
    browser.execute_script("arguments[0].focus()", sort)
    press(browser, Keys.SPACE)
    assert browser.find_element(By.CSS_SELECTOR, "#findings-table th[aria-sort]").text == "Batch"
    level = browser.find_element(By.CSS_SELECTOR, "input[name=f-level][value=fail]")
    browser.execute_script("arguments[0].focus()", level)
    press(browser, Keys.SPACE)
    assert len(findings(browser)) == 8
    summary = browser.find_element(By.CSS_SELECTOR, "#trends summary")
    browser.execute_script("arguments[0].focus()", summary)
    press(browser, Keys.ENTER)
    assert "2026-03-14 to 2026-03-18" in browser.find_element(By.CSS_SELECTOR, "#trends details[open] table").text
    copy = browser.find_element(By.CSS_SELECTOR, ".copy")
    browser.execute_script("arguments[0].focus()", copy)
    press(browser, Keys.ENTER)
    WebDriverWait(browser, 10, poll_frequency=0.05).until(lambda _: copy.text in ("Copied", "Selected"))


def test_checks_are_found_by_their_names_and_have_links_of_their_own(open_page, pages):
    browser = open_page(pages["report"])
    browser.find_element(By.ID, "c-text").send_keys("unique payments")
    names = [e.text for e in visible(browser, ".check .name")]
    assert names == ["unique_payments_payment_id"]
    assert browser.find_element(By.ID, "c-shown").text == "1 of 19 match"
    anchor = "check-test.lake.offset_continuity_orders"
    browser.execute_script(f"location.hash = '#{anchor}'")
    WebDriverWait(browser, 10, poll_frequency=0.05).until(
        lambda _: browser.find_element(By.ID, anchor).get_attribute("open") and visible(browser, f"[id='{anchor}']")
    )


def test_on_paper_the_record_is_whole_and_nothing_is_a_button(open_page, pages):
    browser = open_page(pages["large"], width=720)
    browser.find_element(By.ID, "p-text").send_keys("0077")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert len(visible(browser, "#pipelines-table tbody tr")) == 120
        assert visible(browser, "button.plain-button, .tools, .contents, .skip") == []
        cut = "return [...document.querySelectorAll('table')].filter(t => t.scrollWidth > innerWidth)"
        assert [table.get_attribute("outerHTML")[:300] for table in browser.execute_script(cut)] == []
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_the_trends_can_be_read_without_javascript(open_page, pages, chromium):
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser = open_page(pages["report"])
        assert len(visible(browser, "#trends .strip")) == 6
        assert "not complete on 5 days" in browser.find_element(By.ID, "trends").text
        browser.find_element(By.CSS_SELECTOR, "#trends summary").click()
        assert "2026-03-14 to 2026-03-18" in browser.find_element(By.CSS_SELECTOR, "#trends details[open] table").text
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_compliance_can_be_read_and_printed(open_page, pages):
    browser = open_page(pages["compliance"])
    conclusion = browser.find_element(By.ID, "conclusion").text
    assert conclusion.startswith("not complete\nOf 11,628 micro-batches")
    assert len(visible(browser, ".exceptions tbody tr")) == 3
    assert [e.text.split("\n")[0] for e in visible(browser, ".signatures .line")] == ["Prepared by", "Reviewed by"]
    import base64

    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert pdf.startswith(b"%PDF-")


def test_a_code_leads_to_its_runbook(open_page, pages):
    browser = open_page(pages["report"])
    link = browser.find_element(By.CSS_SELECTOR, ".incident a[href='#runbook-GAP']")
    page = browser.find_element(By.ID, "runbook-GAP")
    assert not page.is_displayed()
    browser.execute_script("arguments[0].click()", link)
    WebDriverWait(browser, 10).until(lambda _: page.is_displayed())
    assert "What can still be saved" in page.text
