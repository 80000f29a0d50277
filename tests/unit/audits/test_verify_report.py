"""recon compliance verify: a report as recon wrote it is the same; edits and changes of the ledger are found."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from recon.audits.compliance import compliance
from recon.audits.verify_report import verify
from recon.base.errors import ConfigError
from recon.model.compliance import ComplianceReport
from recon.project import Project
from recon.reports import compliance as reports
from recon.reports import document, pdf
from recon.write.ledger import open_ledger
from tests.support.ledger_entries import entry, project
from tests.unit.audits.test_compliance_period import FIRST, HOUR, audited, gap

OCTOBER = (datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC))


@pytest.fixture
def lake(tmp_path: Path) -> Project:
    one = project(tmp_path)
    ledger = open_ledger(one)
    ledger.append(entry(0, at=FIRST, rows_written=17))
    audited(tmp_path, FIRST + HOUR, gap(0), judged=1)
    return one


@pytest.fixture
def report(lake: Project) -> ComplianceReport:
    return compliance(lake, *OCTOBER)


@pytest.fixture
def written(report: ComplianceReport, tmp_path: Path) -> Callable[..., Path]:
    def write(format: Any) -> Path:
        return reports.write(report, tmp_path / f"c.{format}", format)

    return write


def edited(file: Path, old: str, new: str) -> Path:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    return file


def forged(document_text: str, old: str, new: str) -> str:
    """A document with another value, and the hash that belongs to it."""
    assert old in document_text
    made = json.loads(document_text.replace(old, new, 1))
    return json.dumps({**made, "sha256": document.hash_of(made["report"])}, ensure_ascii=False)


@pytest.mark.parametrize("format", ["html", "json", "pdf"])
def test_what_recon_wrote_is_the_same(lake: Project, written: Callable[..., Path], format: str) -> None:
    if format == "pdf":
        pytest.importorskip("weasyprint", exc_type=ImportError)
    result = verify(lake, written(format))
    assert (result.is_same, result.differences, result.unread, result.kind) == (True, (), "", format)
    assert result.values > 40


def test_a_ledger_that_says_something_else_now(lake: Project, written: Callable[..., Path]) -> None:
    page = written("html")
    open_ledger(lake).append(entry(1, at=FIRST + HOUR / 2, rows_written=3))
    differences = {one.path: (one.document, one.now) for one in verify(lake, page).differences}
    assert differences["sinks[orders.orders].batches"] == (1, 2)
    assert differences["sinks[orders.orders].rows_written"] == (17, 20)
    assert not {"generated_at", "recon_version"} & set(differences)


def test_an_audit_that_was_removed_from_the_report(lake: Project, report: ComplianceReport, tmp_path: Path) -> None:
    page = reports.write(dataclasses.replace(report, audits=()), tmp_path / "c.html")
    (one,) = verify(lake, page).differences
    assert one.path.startswith("audits[") and one.document == "nothing"


def test_an_edited_number_in_json(lake: Project, written: Callable[..., Path]) -> None:
    file = edited(written("json"), '"rows_written": 17', '"rows_written": 18')
    with pytest.raises(ConfigError, match="was edited"):
        verify(lake, file)


def test_an_edited_number_with_a_new_hash_in_json(lake: Project, written: Callable[..., Path]) -> None:
    file = written("json")
    file.write_text(forged(file.read_text(), '"rows_written": 17', '"rows_written": 18'))
    (one,) = verify(lake, file).differences
    assert (one.path, one.document, one.now) == ("sinks[orders.orders].rows_written", 18, 17)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"rows_written": 17', '"rows_written": 18, "rows_written": 17'),
        ('"report": {', '"report": {"rows_written": 18}, "report": {'),
        ('"format":', '"answer": "complete", "format":'),
    ],
)
def test_json_that_shows_a_reader_what_verify_does_not_read(
    lake: Project, written: Callable[..., Path], old: str, new: str
) -> None:
    with pytest.raises(ConfigError, match="was edited"):
        verify(lake, edited(written("json"), old, new))


@pytest.mark.parametrize("one", ["true", "1.0"])
def test_another_spelling_of_a_number_with_a_new_hash(lake: Project, written: Callable[..., Path], one: str) -> None:
    file = written("json")
    file.write_text(forged(file.read_text(), '"batches": 1,', f'"batches": {one},'))
    with pytest.raises(ConfigError, match="would not write"):
        verify(lake, file)


def test_an_edited_number_in_html(lake: Project, written: Callable[..., Path]) -> None:
    file = edited(written("html"), 'Rows written</dt><dd class="num">17<', 'Rows written</dt><dd class="num">18<')
    with pytest.raises(ConfigError, match="it shows '18' where its data give '17'"):
        verify(lake, file)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("</style>", ".hash::after { content: '1' }</style>"),
        ("</main>", "</main><script>0</script>"),
        ("not complete</b>", "complete</b>"),
    ],
)
def test_an_edited_page(lake: Project, written: Callable[..., Path], old: str, new: str) -> None:
    with pytest.raises(ConfigError, match="was edited"):
        verify(lake, edited(written("html"), old, new))


def test_an_edited_document_in_html_with_a_page_that_agrees(
    lake: Project, report: ComplianceReport, tmp_path: Path
) -> None:
    """Whoever can write recon's pages can forge one; the ledger says otherwise."""
    sink = dataclasses.replace(report.sinks[0], rows_written=18)
    page = reports.write(dataclasses.replace(report, sinks=(sink,)), tmp_path / "c.html")
    assert [one.path for one in verify(lake, page).differences] == ["sinks[orders.orders].rows_written"]


def test_line_ends_of_a_mail_are_no_edit(lake: Project, written: Callable[..., Path]) -> None:
    file = written("html")
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert verify(lake, file).is_same


def test_a_page_of_another_version_is_not_said_to_be_the_same(
    lake: Project, report: ComplianceReport, tmp_path: Path
) -> None:
    page = reports.write(dataclasses.replace(report, recon_version="0.0.9"), tmp_path / "c.html")
    result = verify(lake, page)
    assert not result.is_same and result.differences == () and "recon 0.0.9 laid it out" in result.unread


def test_a_page_of_the_users_templates(lake: Project, report: ComplianceReport, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "compliance.html.j2").write_text(
        '{% extends "recon/compliance.html.j2" %}{% block brand %}<p>ACME</p>{{ super() }}{% endblock %}'
    )
    page = reports.write(report, tmp_path / "c.html", templates=own)
    assert verify(lake, page, templates=own).is_same
    with pytest.raises(ConfigError, match="ACME"):
        verify(lake, page)


# -- PDF -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pypdf() -> Any:
    pytest.importorskip("weasyprint", exc_type=ImportError)
    return pytest.importorskip("pypdf")


def test_an_edited_page_of_a_pdf(lake: Project, report: ComplianceReport, tmp_path: Path, pypdf: Any) -> None:
    """A PDF whose pages are of other numbers than its attachment."""
    sink = dataclasses.replace(report.sinks[0], rows_written=18)
    other = dataclasses.replace(report, sinks=(sink,))
    content = pdf.make(
        reports.render_html(other),
        path="x",
        header=reports.running_header(report),
        footer=reports.running_footer(report),
        data=reports.render_json(report),
        at=report.generated_at,
    )
    (tmp_path / "c.pdf").write_bytes(content)
    with pytest.raises(ConfigError, match=r"c\.pdf was edited after recon wrote it: it shows"):
        verify(lake, tmp_path / "c.pdf")


def test_digits_of_a_pdf_that_moved_to_the_next_column(
    lake: Project, report: ComplianceReport, tmp_path: Path, pypdf: Any
) -> None:
    """4 passed and 1 failed becomes 41 passed: the same characters in the same order."""
    (audit,) = report.audits
    counts = re.compile(rf'(<td class="num right">{audit.passed})</td>(<td class="num right">)({audit.warned})</td>')
    page, count = counts.subn(r"\g<1>\3</td>\2</td>", reports.render_html(report))
    assert count == 1
    content = pdf.make(
        page,
        path="x",
        header=reports.running_header(report),
        footer=reports.running_footer(report),
        data=reports.render_json(report),
        at=report.generated_at,
    )
    (tmp_path / "c.pdf").write_bytes(content)
    with pytest.raises(ConfigError, match="was edited"):
        verify(lake, tmp_path / "c.pdf")


def test_an_edited_attachment_of_a_pdf(lake: Project, report: ComplianceReport, tmp_path: Path, pypdf: Any) -> None:
    for data, message in (
        (reports.render_json(report).replace('"rows_written": 17', '"rows_written": 18'), "was edited"),
        (forged(reports.render_json(report), '"rows_written": 17', '"rows_written": 18'), "was edited"),
    ):
        content = pdf.make(
            reports.render_html(report),
            path="x",
            header=reports.running_header(report),
            footer=reports.running_footer(report),
            data=data,
            at=report.generated_at,
        )
        (tmp_path / "c.pdf").write_bytes(content)
        with pytest.raises(ConfigError, match=message):
            verify(lake, tmp_path / "c.pdf")


def test_where_pages_and_lines_break_does_not_matter(
    report: ComplianceReport, monkeypatch: pytest.MonkeyPatch, pypdf: Any
) -> None:
    page = reports.render_html(report)
    apart = [re.sub("<[^>]*>", " ", one) for one in re.findall(r"<thead>(.*?)</thead>", page, re.DOTALL)]
    apart += [reports.running_header(report), reports.running_footer(report)]
    first = reports.render_pdf(report)
    style = pdf.STYLE + "@page { size: A5 } .sheet { font-size: 12pt }"
    monkeypatch.setattr(pdf, "STYLE", style)
    second = reports.render_pdf(report)
    pages = [len(pypdf.PdfReader(io.BytesIO(one)).pages) for one in (first, second)]
    assert pages[0] < pages[1] and pdf.words_of(first, "a", apart) == pdf.words_of(second, "b", apart)


def test_a_hyphen_of_a_line_break_is_no_word(pypdf: Any) -> None:
    weasyprint = pytest.importorskip("weasyprint")
    style, text = "hyphens: auto; width: {}px", "Quaran&shy;tined incomprehensibilities, micro-batch"
    page = f'<html lang="en"><body><p style="{style}">{text}</p>'
    narrow, wide = (weasyprint.HTML(string=page.format(width)).write_pdf() for width in (60, 600))
    shown = pypdf.PdfReader(io.BytesIO(narrow)).pages[0].extract_text()
    assert shown.count("\u2010") >= 2, "WeasyPrint inserts them"
    assert (
        pdf.words_of(narrow, "a", ()) == pdf.words_of(wide, "b", ()) == "Quarantinedincomprehensibilities,micro-batch"
    )


def test_nothing_hyphenates_on_paper(report: ComplianceReport, tmp_path: Path, pypdf: Any) -> None:
    """Whatever the user's templates ask for."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "compliance.html.j2").write_text(
        '{% extends "recon/compliance.html.j2" %}'
        "{% block style %}<style>.narrow { width: 60px; hyphens: auto }</style>{% endblock %}"
        "{% block brand %}<p class='narrow'>Incomprehensi&shy;bilities of electroencephalographists</p>{% endblock %}"
    )
    pages = pypdf.PdfReader(io.BytesIO(reports.render_pdf(report, templates=own))).pages
    assert not {"\u2010", "\u00ad"} & set("".join(page.extract_text() for page in pages))


def test_the_fonts_of_the_machine_do_not_matter(lake: Project, tmp_path: Path, pypdf: Any) -> None:
    """A PDF made where there is no font at all; a character that only some fonts have is its number there."""
    lake = lake.model_copy(update={"name": "дом 店"})
    report = compliance(lake, *OCTOBER)
    (tmp_path / "c.json").write_text(reports.render_json(report))
    code = (
        "from pathlib import Path; from recon.reports import compliance, document\n"
        "report = document.parse(Path('c.json').read_text(), 'c.json')\n"
        "compliance.write(report, Path('c.pdf'), 'pdf')"
    )
    bare = tmp_path / "fonts.conf"
    (tmp_path / "fonts").mkdir()
    bare.write_text(f"<fontconfig><dir>{tmp_path}/fonts</dir><cachedir>{tmp_path}/fonts</cachedir></fontconfig>")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "FONTCONFIG_FILE": str(bare), "PYTHONPATH": str(Path(pdf.__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert verify(lake, tmp_path / "c.pdf").is_same
    bare_text, here = (
        [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(content)).pages]
        for content in ((tmp_path / "c.pdf").read_bytes(), reports.render_pdf(report))
    )
    assert "U+0434U+043EU+043C U+5E97" in bare_text[0]
    assert bare_text[1:] == here[1:], "line by line"


def test_no_text_of_controls_and_statements_reaches_over_the_margin(report: ComplianceReport, pypdf: Any) -> None:
    weasyprint = pytest.importorskip("weasyprint")
    page = pdf.for_paper(reports.render_html(report), "header", "footer", report.generated_at)
    assert "<h2" in page and "Statements of frameworks" in page
    for laid_out in weasyprint.HTML(string=page).render(font_config=pdf.fonts()).pages:
        box = laid_out._page_box  # noqa: SLF001 - where WeasyPrint laid out what
        of_margins = {b for margin in box.children[1:] for b in margin.descendants()}
        texts = [b for b in box.descendants() if type(b).__name__ == "TextBox" and b not in of_margins]
        texts = [b for b in texts if b.element_tag != "@page"]
        right = box.content_box_x() + box.width
        assert [b.text for b in texts if b.position_x + b.width > right + 0.5] == []


def test_an_annotation_over_a_page(lake: Project, written: Callable[..., Path], pypdf: Any) -> None:
    from pypdf.annotations import FreeText

    file = written("pdf")
    writer = pypdf.PdfWriter(clone_from=file)
    writer.add_annotation(page_number=0, annotation=FreeText(text="complete", rect=(50, 550, 200, 650)))
    writer.write(file)
    with pytest.raises(ConfigError, match="/FreeText"):
        verify(lake, file)


def test_a_printed_or_truncated_pdf(lake: Project, written: Callable[..., Path], pypdf: Any) -> None:
    file = written("pdf")
    content = file.read_bytes()
    writer = pypdf.PdfWriter()
    writer.add_blank_page(100, 100)
    writer.write(file)
    with pytest.raises(ConfigError, match="holds no numbers"):
        verify(lake, file)
    file.write_bytes(content[: len(content) // 3])
    with pytest.raises(ConfigError):
        verify(lake, file)


# -- files that are none ---------------------------------------------------------------------------------------------


def test_files_that_are_no_report(lake: Project, written: Callable[..., Path], tmp_path: Path) -> None:
    file = tmp_path / "x"
    whole, page = written("json").read_text(), written("html").read_text()
    newer = whole.replace('"version": 1', '"version": 2', 1)
    bomb = base64.b64encode(gzip.compress(b"[" * 200_000)).decode()
    inside = re.sub(r'(id="document">)[^<]*', lambda m: m[1] + bomb, page)
    cut = (whole[:-100], page[:5000], page[:-3000])
    others = ("", "hello", "{}", '{"format": "recon-compliance"}', "<!doctype html><p>another</p>", "[" * 100_000)
    for content in (*cut, *others, newer, inside, written("md").read_text()):
        file.write_text(content)
        with pytest.raises(ConfigError):
            verify(lake, file)
    with pytest.raises(ConfigError, match="version 2 of the format"):
        file.write_text(newer)
        verify(lake, file)
    with pytest.raises(ConfigError):
        verify(lake, tmp_path / "nothing.html")


def test_another_value_than_recon_would_write_is_refused(lake: Project, written: Callable[..., Path]) -> None:
    file = written("json")
    file.write_text(forged(file.read_text(), '"rows_written": 17', '"rows_written": "17"'))
    with pytest.raises(ConfigError, match="would not write"):
        verify(lake, file)
