"""An auditor's pack in a real browser: what is right is said to be, and every edit of the file is found."""

from __future__ import annotations

import base64
import gzip
import json
import re
from datetime import timedelta

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from recon.audits.pack import pack
from recon.reports import pack as packs
from recon.write.ledger import open_ledger
from recon.write.ledger.heads.signing import key_of
from tests.browser.axe import serious_faults
from tests.support.heads import NOW, OTHER_SEED, grow, publish_heads, signing_project
from tests.support.ledger_entries import AT, entry

pytestmark = pytest.mark.browser

PERIOD = ("2026-11-20", "2026-11-20")
CHECKS = ("signature", "hashes", "inclusion", "numbers")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A period in the middle of two chains; the project."""
    folder = tmp_path_factory.mktemp("pack")
    project = signing_project(folder, "orders", "copy")
    ledger = open_ledger(project)
    for sink, counts in (("orders", (3, 9, 4)), ("copy", (0, 4, 0))):
        for day, count in enumerate(counts):
            for number in range(count):
                ledger.append(entry(100 * day + number, sink=sink, at=AT + timedelta(days=day - 1, seconds=number)))
    publish_heads(project, NOW)
    return project


@pytest.fixture(scope="module")
def page(made):
    return packs.render(pack(made, *PERIOD))


def states(browser):
    WebDriverWait(browser, 20).until(
        lambda driver: driver.execute_script("return document.body.dataset.verified || ''") != ""
    )
    cells = browser.find_elements(By.CSS_SELECTOR, "[data-check]")
    return [cell.get_attribute("data-state") for cell in cells], browser.find_element(By.ID, "answer").text


def shown(open_page, tmp_path, page, **how):
    file = tmp_path / "pack.html"
    file.write_text(page)
    return open_page(file, **how)


def enter(browser, key):
    browser.execute_script("document.body.dataset.verified = ''")
    box = browser.find_element(By.ID, "key")
    box.clear()
    box.send_keys(str(key) + "\n")
    return states(browser)


def test_everything_is_right_once_the_reader_gives_the_key(open_page, tmp_path, page, made):
    browser = shown(open_page, tmp_path, page)
    found, answer = states(browser)
    assert found == ["compare", "right", "right", "right"] * 2
    assert "Enter the public key that you were given" in answer
    found, answer = enter(browser, key_of(made).public)
    assert (found, answer) == (["right"] * 8, "Every signature, proof, hash and number is right.")
    assert "entries 4 to 12 of 16" in browser.find_element(By.ID, "chain-0").text


def test_a_key_that_is_not_the_signers(open_page, tmp_path, page):
    browser = shown(open_page, tmp_path, page)
    states(browser)
    other = key_of(signing_project(tmp_path, key=OTHER_SEED)).public
    found, answer = enter(browser, other)
    assert found[0] == "wrong" and "Something is wrong" in answer
    found, answer = enter(browser, "nonsense")
    assert "this is no public key" in answer


def edited(page, change):
    packed = re.search(r'id="data">([^<]*)<', page)
    data = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    change(data["chains"][0])
    text = base64.b64encode(gzip.compress(json.dumps(data).encode())).decode()
    return page[: packed.start(1)] + text + page[packed.end(1) :]


def _rows(chain):
    chain["texts"][4] = chain["texts"][4].replace('"rows_written":20', '"rows_written":21')


def _rows_and_hash(chain):
    import hashlib

    _rows(chain)
    chain["hashes"][4] = hashlib.sha256(chain["texts"][4].encode()).hexdigest()


def _removed(chain):
    del chain["texts"][4], chain["hashes"][4]


def _cut_off(chain):
    del chain["texts"][-1], chain["hashes"][-1]


def _moved(chain):
    chain["begin"] += 1


def _path(chain):
    chain["path"].reverse()


def _size(chain):
    chain["note"] = chain["note"].replace("\n16\n", "\n17\n")


def _behind(chain):
    chain["behind"] = 1


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (_rows, {"hashes", "numbers"}),
        (_rows_and_hash, {"hashes", "inclusion", "numbers"}),
        (_removed, {"hashes", "inclusion", "numbers"}),
        (_cut_off, {"inclusion", "numbers"}),
        (_moved, {"inclusion"}),
        (_path, {"inclusion"}),
        (_size, {"signature"}),
        (_behind, {"inclusion"}),
    ],
)
def test_an_edited_pack_is_found(open_page, tmp_path, page, change, where):
    browser = shown(open_page, tmp_path, edited(page, change))
    found, answer = states(browser)
    assert {name for name, state in zip(CHECKS, found[:4], strict=True) if state == "wrong"} == where
    assert found[4:] == ["compare", "right", "right", "right"]
    assert "Something is wrong" in answer


def test_a_number_that_was_edited_in_the_page_is_found(open_page, tmp_path, page):
    other = page.replace('data-figure="rows_written">180<', 'data-figure="rows_written">181<')
    assert other != page
    browser = shown(open_page, tmp_path, other)
    found, _ = states(browser)
    assert found[3] == "wrong"
    assert "rows_written is 180, and the page says 181" in browser.find_element(By.ID, "chain-0").text


def test_without_a_signature_nothing_is_said_to_be_right(open_page, tmp_path):
    project = signing_project(tmp_path, key=None)
    grow(project, 3)
    browser = shown(open_page, tmp_path, packs.render(pack(project, *PERIOD)), width=390, theme="dark")
    found, answer = states(browser)
    assert found == ["unproved", "right", "unproved", "right"]
    assert answer == "Not everything could be proved."
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390


def test_published_heads_are_compared(open_page, tmp_path, page, made):
    browser = shown(open_page, tmp_path, page)
    states(browser)
    (document,) = (made.project_dir / "outside").iterdir()
    browser.find_element(By.ID, "published").send_keys(str(document))
    said = WebDriverWait(browser, 10).until(lambda driver: driver.find_element(By.ID, "compared").text)
    assert said.splitlines() == [
        "example.org/lake/orders/orders: the same head",
        "example.org/lake/orders/copy: the same head",
    ]


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_no_serious_fault(open_page, tmp_path, page, theme, width):
    browser = shown(open_page, tmp_path, page, width=width, theme=theme)
    assert serious_faults(browser, tmp_path / "pack.html") == []
