"""The site of docs/: every page is in its navigation, every link leads somewhere, nothing comes from elsewhere."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

from recon.model import Code
from recon.model.controls import DAY_STATES
from scripts import docs_site
from tests.support.sample_month import month

TEMPLATES = Path(docs_site.ROOT, "recon", "reports", "templates")
MADE = {"changelog.md", *(f"reference/{module}.md" for module in docs_site.MODULES)}
WRITTEN = {str(page.relative_to(docs_site.DOCS)) for page in docs_site.DOCS.rglob("*.md")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    work = tmp_path_factory.mktemp("docs")
    assert docs_site.build(work) == []
    return work / "site"


def test_every_page_is_in_the_navigation_once() -> None:
    pages = docs_site.pages_in(docs_site.navigation(WRITTEN | MADE))
    assert sorted(pages) == sorted(WRITTEN | MADE), "name the page in docs/nav.yml"


def test_the_navigation_goes_from_write_to_tell() -> None:
    tabs = [title for section in docs_site.navigation(WRITTEN) for title in section]
    assert tabs[0] == "Start"
    steps = ["Write", "Witness", "Judge", "Tell"]
    assert [tab for tab in tabs if tab in steps] == steps


def test_a_pattern_names_what_no_other_line_names(tmp_path: Path) -> None:
    nav = tmp_path / "nav.yml"
    nav.write_text("- Judge:\n    - a.md\n    - codes/first.md\n    - codes/*.md\n")
    pages = ["a.md", "codes/z.md", "codes/first.md", "codes/b.md"]
    (section,) = docs_site.navigation(pages, nav)
    assert section == {"Judge": ["a.md", "codes/first.md", "codes/b.md", "codes/z.md"]}


def test_the_configuration_loads_nothing_from_elsewhere() -> None:
    project = tomllib.loads(docs_site.config(docs_site.navigation(WRITTEN)))["project"]
    assert project["theme"]["font"] is False
    assert set(project["plugins"]) == {"search", "mkdocstrings"}  # "offline" would load a script from a CDN
    assert list(project["nav"][0]) == ["Start"]
    assert "http" not in docs_site.CONFIG.read_text()


def test_the_site_has_the_pages_and_what_is_made_for_them(site: Path) -> None:
    pages = {name.replace(".md", ".html") for name in WRITTEN | MADE}
    samples = {f"samples/{name}.html" for name in ("report", "complete", "compliance", "sample", "pack", "markdown")}
    sources = {"source/tests/cases/test_cases.py.html", "source/examples/verify_heads.py.html"}
    built = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    assert pages | samples | sources <= built
    assert "1 of 3 pipelines" in (site / "samples" / "report.html").read_text()


@pytest.mark.parametrize(
    ("sample", "templates"),
    [
        ("report", ("report", "trends")),
        ("compliance", ("compliance", "compliance_controls", "compliance_records")),
        ("sample", ("sample",)),
    ],
)
def test_a_sample_has_every_section_that_its_report_may_have(site: Path, sample: str, templates: Sequence[str]) -> None:
    wanted = [heading for name in templates for heading in headings((TEMPLATES / f"{name}.html.j2").read_text())]
    assert len(wanted) >= 3
    assert [
        heading for heading in wanted if heading not in headings((site / "samples" / f"{sample}.html").read_text())
    ] == []


def headings(markup: str) -> list[str]:
    """The headings that are the same in every report."""
    return re.findall(r"<h[2-4][^>]*>([^<{]+)</h[2-4]>", markup)


def test_the_compliance_sample_was_found_by_recon_and_tells_what_auditors_ask_for(tmp_path: Path) -> None:
    report = month(tmp_path)
    assert report.answer == "not complete" and all(sink.chain.verified for sink in report.sinks)
    assert all("signed 2026-04-01" in sink.chain.signed for sink in report.sinks)
    assert {state for one in report.controls for state in DAY_STATES if one.count(state)} == set(DAY_STATES)
    assert [one.state for one in report.incidents[:3]] == ["open", "open", "accepted"]
    assert {one.owner for one in report.incidents} == {"Grace Hopper", ""}
    assert {one.kind for one in report.actions} == {"accepted", "released", "repaired"}
    assert [one.audits for one in report.config_versions] == [11, 19]
    assert [audit.by for audit in report.audits if audit.partial] == ["ada on laptop-7"]
    assert report.days_without_audit and report.changes and report.unproved
    assert not [finding for finding in report.exceptions if finding.finding.code is Code.TAMPERED]


@pytest.mark.parametrize("module", docs_site.MODULES)
def test_the_reference_has_every_public_name_and_its_docstring(site: Path, module: str) -> None:
    page = (site / "reference" / f"{module}.html").read_text()
    names = set(import_module(module).__all__) - set(docs_site.NOT_SHOWN.get(module, ()))
    assert names <= set(re.findall(rf'id="{re.escape(module)}\.(\w+)"', page))
    assert ":::" not in page


def test_pages_can_be_searched_and_sources_are_not(site: Path) -> None:
    items = json.loads((site / "search.json").read_text())["items"]
    found = {item["location"].partition("#")[0] for item in items if "LOSS_RETENTION" in item["text"]}
    assert "verdicts.html" in found
    assert not [item for item in items if item["location"].startswith("source/")]


@pytest.mark.parametrize(
    ("markup", "fault"),
    [
        ('<a href="b.html#there">', None),
        ('<a href="https://example.org/">', None),
        ('<a href="#here"><p id="here">', None),
        ('<a href="c.html">', "a.html: c.html leads nowhere"),
        ('<a href="b.html#gone">', "a.html: b.html#gone leads nowhere"),
        ('<a href="#gone">', "a.html: #gone leads nowhere"),
        ('<img src="images/gone.png">', "a.html: images/gone.png leads nowhere"),
        ('<script src="https://cdn.example/x.js">', "a.html: https://cdn.example/x.js is loaded from elsewhere"),
        ('<link rel="stylesheet" href="//x.example/x.css">', "a.html: //x.example/x.css is loaded from elsewhere"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, markup: str, fault: str | None) -> None:
    (tmp_path / "a.html").write_text(markup)
    (tmp_path / "b.html").write_text('<h2 id="there">')
    assert docs_site.faults(tmp_path) == ([] if fault is None else [fault])
