"""An auditor's pack in a real browser: no edit of the file changes what it vouches for."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from recon.audits.pack import pack
from recon.audits.packs import read, unedited
from recon.audits.verify_pack import verify
from recon.base.errors import ConfigError
from recon.reports import pack as packs
from recon.write.ledger import open_ledger
from recon.write.ledger.heads.signing import key_of
from tests.browser.axe import serious_faults
from tests.support import pack_edits
from tests.support.heads import NOW, OTHER_SEED, grow, publish_heads, signing_project
from tests.support.ledger_entries import AT, entry
from tests.support.pack_edits import with_data

pytestmark = pytest.mark.browser

PERIOD = ("2026-11-20", "2026-11-20")
RIGHT = "Right: 2 signed heads, 13 entries and 9 numbers of 2 sinks of example.org/lake; 1 number is not known."
HARNESS = Path(__file__).with_name("pack_harness.js").read_text()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A period in the middle of two chains; the project."""
    folder = tmp_path_factory.mktemp("pack")
    project = signing_project(folder, "orders", "copy")
    ledger = open_ledger(project)
    for sink, counts, filtered in (("orders", (3, 9, 4), 2), ("copy", (0, 4, 0), None)):
        for day, count in enumerate(counts):
            for number in range(count):
                at = AT + timedelta(days=day - 1, seconds=number)
                ledger.append(entry(100 * day + number, sink=sink, at=at, rows_filtered=filtered))
    publish_heads(project, NOW)
    return project


@pytest.fixture(scope="module")
def page(made):
    return packs.render(pack(made, *PERIOD))


@pytest.fixture(scope="module")
def key(made):
    return str(key_of(made).public)


def states(browser):
    WebDriverWait(browser, 20).until(
        lambda driver: driver.execute_script("return document.documentElement.dataset.verified || ''") != ""
    )
    cells = browser.find_elements(By.CSS_SELECTOR, "#checks td")
    return [cell.get_attribute("data-state") for cell in cells], browser.find_element(By.ID, "answer").text


def shown(open_page, tmp_path, page, **how):
    file = tmp_path / "pack.html"
    file.write_text(page)
    return open_page(file, **how)


def enter(browser, key):
    browser.execute_script("document.documentElement.dataset.verified = ''")
    box = browser.find_element(By.ID, "key")
    box.clear()
    box.send_keys(str(key))
    browser.execute_script("arguments[0].blur()", box)
    return states(browser)


def numbers(browser):
    return [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "[data-figure]")]


def test_everything_is_right_once_the_reader_gives_the_key(open_page, tmp_path, page, key):
    browser = shown(open_page, tmp_path, page)
    found, answer = states(browser)
    assert found == ["compare"] * 6 and "Enter the public key that you were given" in answer
    assert enter(browser, key) == (["right"] * 6, RIGHT)
    row = browser.find_element(By.CSS_SELECTOR, "#checks tr").text
    assert "right: 4 to 12" in row and "the one before 2026-11-19" in row and "the one after 2026-11-21" in row
    assert numbers(browser) == ["9", "180", "180", "18", "0", "4", "80", "80", "not known", "0"]
    named = browser.find_element(By.ID, "named").text
    assert "Not known: rows filtered of orders → copy (4 of 4 entries did not count them)." in named
    assert "Not checked: whether the ledger has other sinks" in named
    said = browser.find_elements(By.CSS_SELECTOR, "#said dd")
    assert {one.get_attribute("data-state") for one in said} == {"unchecked"}
    assert "could not be proved" in [one.text for one in said]


def test_a_key_that_is_not_the_signers(open_page, tmp_path, page):
    browser = shown(open_page, tmp_path, page)
    states(browser)
    other = key_of(signing_project(tmp_path, key=OTHER_SEED)).public
    found, answer = enter(browser, other)
    assert found[0] == "wrong" and answer.startswith("Nothing is proved: the key that you entered did not sign")
    cells = browser.find_elements(By.CSS_SELECTOR, "[data-figure]")
    assert {cell.get_attribute("data-state") for cell in cells} == {"unproved"}
    _, answer = enter(browser, "nonsense")
    assert answer == "The key that you entered: this is no public key."
    assert browser.find_element(By.ID, "answer").get_attribute("data-state") == "unproved"


def test_the_key_that_the_reader_enters_is_the_one_that_is_used(open_page, tmp_path, page, made, key):
    without = with_data(page, lambda data: data.update(keys=[]))
    browser = shown(open_page, tmp_path, without)
    found, answer = states(browser)
    assert (found[0], answer) == ("unproved", "Not everything could be proved.")
    assert enter(browser, key) == (["right"] * 6, RIGHT)
    assert published(browser, made) == [
        "example.org/lake/orders/orders: the head of 16 entries is the same",
        "example.org/lake/orders/copy: the head of 4 entries is the same",
    ]


# -- edits of the data -------------------------------------------------------------------------------------------------


def _rows(chain):
    chain["texts"][4] = chain["texts"][4].replace('"rows_written":20', '"rows_written":21')


def _rows_and_links(chain):
    _rows(chain)
    pack_edits.seal(chain["texts"], 4)


def _removed(chain):
    del chain["texts"][4]


def _cut_off(chain):
    del chain["texts"][-1]


def _shorter(chain):
    chain["after"] = chain["texts"].pop()


def _moved(chain):
    chain["begin"] += 1


def _path(chain):
    chain["path"].reverse()


def _size(chain):
    chain["note"] = chain["note"].replace("\n16\n", "\n17\n")


def _another_name(chain):
    chain["sink"] = "copied"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (_rows, {"entries": "wrong"}),
        (_rows_and_links, {"entries": "wrong"}),
        (_removed, {"entries": "wrong"}),
        (_cut_off, {"entries": "wrong"}),
        (_shorter, {"entries": "wrong"}),
        (_moved, {"entries": "wrong"}),
        (_path, {"entries": "wrong"}),
        (_size, {"signature": "wrong"}),
        (_another_name, {"signature": "wrong", "entries": "wrong"}),
    ],
)
def test_an_edited_pack_is_found(open_page, tmp_path, page, key, change, where):
    browser = shown(open_page, tmp_path, with_data(page, lambda data: change(data["chains"][0])))
    states(browser)
    found, answer = enter(browser, key)
    wrong = {
        name: state
        for name, state in zip(("signature", "entries", "period"), found[:3], strict=True)
        if state == "wrong"
    }
    assert wrong == where and found[3:] == ["right"] * 3
    assert answer == "Something is wrong: this pack is not what was signed."


def test_sinks_that_change_places_are_named_by_what_was_signed(open_page, tmp_path, page, key):
    def swapped(data):
        one, other = data["chains"]
        one["sink"], other["sink"] = other["sink"], one["sink"]

    browser = shown(open_page, tmp_path, with_data(page, swapped))
    states(browser)
    assert enter(browser, key)[1].startswith("Something is wrong")


@pytest.mark.parametrize("days", [-19, 1])
def test_another_period_is_not_proved(open_page, tmp_path, page, key, days):
    def moved(data):
        data["period"][days > 0] += days * 86_400_000_000

    browser = shown(open_page, tmp_path, with_data(page, moved))
    states(browser)
    found, answer = enter(browser, key)
    assert found[2] == "unproved" and answer == "Not everything could be proved."


def test_heads_of_another_sink_and_entries_that_came_later(open_page, tmp_path):
    project = signing_project(tmp_path)
    grow(project, 3)
    publish_heads(project)
    grow(project, 2)
    browser = shown(open_page, tmp_path, packs.render(pack(project, *PERIOD)))
    states(browser)
    found, _ = enter(browser, key_of(project).public)
    assert found == ["right", "unproved", "unproved"]
    assert "2 of 5 entries came after the head was signed" in browser.find_element(By.ID, "checks").text


# -- edits of the page -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rows written 180&#10;", "rows written 999&#10;"),
        ("rows written 180&#10;", "rows written not known&#10;"),
        ("orders → copy", "orders"),
        ("2026-11-20 00:00:00", "2026-11-01 00:00:00"),
        ("</pre>", "&#10;orders → more&#10;  rows written 999</pre>"),
        ("could not be proved", "complete"),
        ("</pre>", '</pre><table><tr><th>orders</th><td data-state="right">999</td></tr></table>'),
        ('<p id="answer"', '<p id="answer">Right: 999.</p><p hidden'),
        ("</body>", '<form name="querySelectorAll"></form><p>Right: 999</p></body>'),
    ],
)
def test_what_the_page_shows_is_written_by_its_script_alone(open_page, tmp_path, page, key, old, new):
    assert old in page
    browser = shown(open_page, tmp_path, page.replace(old, new))
    states(browser)
    assert enter(browser, key) == (["right"] * 6, RIGHT)
    assert numbers(browser) == ["9", "180", "180", "18", "0", "4", "80", "80", "not known", "0"]
    assert "999" not in browser.find_element(By.TAG_NAME, "html").text
    with pytest.raises(ConfigError, match="was edited"):
        unedited(read(tmp_path / "pack.html"), "pack.html")


def test_without_javascript_the_page_can_be_read_and_says_that_nothing_was_checked(open_page, tmp_path, page, chromium):
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser = shown(open_page, tmp_path, page)
        text = browser.find_element(By.TAG_NAME, "body").text
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "Not checked yet. Without JavaScript, nothing is checked." in text
    assert "rows written 180" in text and "Right" not in text


def run(browser, page, edits, key):
    browser.set_script_timeout(110)
    return browser.execute_async_script(HARNESS, page, [list(splice) for _, splice in edits], key)


def _mutations(chromium, tmp_path, page, key, every):
    """Opens the page with each edit, and holds what it shows to what it shows without."""
    harness = tmp_path / "harness.html"
    harness.write_text("<!doctype html><html><body></body></html>")
    chromium.get(harness.as_uri())
    ((state, rest, whole, original),) = run(chromium, page, [("none", (0, 0, ""))], key)
    assert (state, whole, original["said"]) == ("right", True, RIGHT)
    edits = [*pack_edits.of_data(page), *pack_edits.of_page(page)][::every]
    seen: Counter[str] = Counter()
    faults = []
    file = tmp_path / "edited.html"
    for begin in range(0, len(edits), 200):
        chunk = edits[begin : begin + 200]
        for (name, splice), shows in zip(chunk, run(chromium, page, chunk, key), strict=True):
            found, text, whole, facts = shows
            seen[found] += 1
            if found == "not run":
                bad = "Not checked yet" not in text and text.strip() != "" and "Right" in text
            elif found == "right":
                fewer = [row for row in facts["rows"] if row in original["rows"]] == facts["rows"]
                same = sorted(facts["rows"]) == sorted(original["rows"]) and facts["said"] == RIGHT
                # Who takes a sink out of the file leaves nothing of it: the answer counts the others.
                bad = not (whole and text == rest and fewer and (same or "of 1 sink" in facts["said"]))
            else:
                bad = found not in ("wrong", "unproved")
            if not bad and found != "not run" and splice[:2] == pack_edits.slot_of(page):
                file.write_text(pack_edits.spliced(page, splice))
                bad = _in_python(file, key) != found
            if bad:
                faults.append((name, found, facts, text[:200]))
    # What was edited in may ask for addresses, and is refused by the policy: that is in the logs.
    chromium.get_log("browser"), chromium.get_log("performance")
    assert faults == [], f"{len(faults)} of {len(edits)}"
    return seen


def _in_python(file, key):
    """What `recon compliance verify` says of the same data; the text for readers without JavaScript is left alone."""
    from recon.write.ledger.heads.keys import PublicKey

    try:
        found = read(file)
    except ConfigError:
        return "wrong"
    return verify(found.pack, [PublicKey.parse(key)], given=True).state


def test_no_edit_changes_what_is_vouched_for(chromium, tmp_path, page, key):
    seen = _mutations(chromium, tmp_path, page, key, every=9)
    print(seen)
    assert sum(seen.values()) > 350 and seen["wrong"] > 100


@pytest.mark.long
def test_no_edit_of_all_changes_what_is_vouched_for(chromium, tmp_path, page, key):
    seen = _mutations(chromium, tmp_path, page, key, every=1)
    print(seen)
    assert sum(seen.values()) > 3000 and seen["wrong"] > 1000


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_without_a_signature_nothing_is_said_to_be_right(open_page, tmp_path):
    project = signing_project(tmp_path, key=None)
    grow(project, 3)
    browser = shown(open_page, tmp_path, packs.render(pack(project, *PERIOD)), width=390, theme="dark")
    found, answer = states(browser)
    assert found == ["unproved"] * 3
    assert answer == "Not everything could be proved."
    text = browser.find_element(By.TAG_NAME, "main").text
    assert "there is no signed head" in text and "no signed head leads to them" in text
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390


def published(browser, made):
    (document,) = (made.project_dir / "outside").iterdir()
    browser.find_element(By.ID, "published").send_keys(str(document))
    said = WebDriverWait(browser, 10).until(lambda driver: driver.find_element(By.ID, "compared").text)
    return said.splitlines()


def test_published_heads_are_compared(open_page, tmp_path, page, made, key):
    browser = shown(open_page, tmp_path, with_data(page, lambda data: data["chains"].pop()))
    states(browser)
    enter(browser, key)
    assert published(browser, made) == [
        "example.org/lake/orders/orders: the head of 16 entries is the same",
        "example.org/lake/orders/copy: the head of 4 entries is of a sink that is not in this pack",
    ]


def test_a_published_head_of_another_history_makes_the_answer_wrong(open_page, tmp_path, page, key):
    fork = signing_project(tmp_path / "fork")
    ledger = open_ledger(fork)
    for number in range(16):
        ledger.append(entry(number, rows_written=7))
    publish_heads(fork)
    browser = shown(open_page, tmp_path, page)
    states(browser)
    enter(browser, key)
    assert published(browser, fork) == ["example.org/lake/orders/orders: the head of 16 entries is ANOTHER (a fork)"]
    assert states(browser)[1] == "Something is wrong: another head of as many entries is published."


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_no_serious_fault(open_page, tmp_path, page, key, theme, width):
    browser = shown(open_page, tmp_path, page, width=width, theme=theme)
    states(browser)
    enter(browser, key)
    assert serious_faults(browser, tmp_path / "pack.html") == []
