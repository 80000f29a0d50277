"""The compliance report as PDF/A: what can be held against the standard without a validator, and how pages break."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from recon.model.compliance import ComplianceReport
from recon.reports import compliance, document, pdf
from tests.support.sample_run import sample_compliance

pytest.importorskip("weasyprint", exc_type=ImportError)
pypdf = pytest.importorskip("pypdf")


@pytest.fixture(scope="module")
def report() -> ComplianceReport:
    return sample_compliance()


@pytest.fixture(scope="module")
def reader(report: ComplianceReport) -> Any:
    return pypdf.PdfReader(io.BytesIO(compliance.render_pdf(report)))


def objects(reader: Any) -> Iterator[Any]:
    for number in range(1, int(reader.trailer["/Size"])):
        found = reader.get_object(number)
        if found is not None:
            yield found


def test_it_says_that_it_is_pdf_a_3a(reader: Any) -> None:
    xmp = reader.trailer["/Root"]["/Metadata"].get_data().decode()
    assert re.search(r"pdfaid:part(=\"|>)3", xmp) and re.search(r"pdfaid:conformance(=\"|>)A", xmp)
    assert "/ID" in reader.trailer and reader.pdf_header == "%PDF-1.7"
    assert "Compliance report · lake · 2026-03-01 to 2026-03-31" in xmp and reader.metadata.title is not None


def test_it_is_tagged_and_its_colours_are_defined(reader: Any) -> None:
    root = reader.trailer["/Root"]
    assert root["/MarkInfo"]["/Marked"] and root["/Lang"] == "en"
    kinds = {str(one.get("/S")) for one in objects(reader) if isinstance(one, dict) and "/S" in one and "/P" in one}
    assert {"/H1", "/H2", "/Table", "/TR", "/TH", "/TD", "/P"} <= kinds
    assert "/Figure" not in kinds, "a figure needs a text for those who do not see it"
    (intent,) = root["/OutputIntents"]
    assert intent["/S"] == "/GTS_PDFA1" and intent["/DestOutputProfile"].get_data()


def test_nothing_in_it_runs_and_all_fonts_are_inside(reader: Any) -> None:
    root = reader.trailer["/Root"]
    assert not {"/OpenAction", "/AA", "/AcroForm"} & set(root) and "/JavaScript" not in root.get("/Names", {})
    fonts = [one for one in objects(reader) if isinstance(one, dict) and one.get("/Type") == "/FontDescriptor"]
    assert all({"/FontFile2", "/FontFile3"} & set(font) for font in fonts)
    names = {re.sub(r"^/\w+\+|-Bold|-Oblique", "", font["/FontName"]) for font in fonts}
    assert names == {"recon-sans", "recon-mono"}, "the package's own, on every machine"
    used = [one for one in objects(reader) if isinstance(one, dict) and one.get("/Subtype") == "/Type0"]
    assert used and all("/ToUnicode" in font for font in used), "text can be copied, as level u asks"
    for one in objects(reader):
        assert not (isinstance(one, dict) and one.get("/S") in ("/JavaScript", "/Launch", "/URI"))


def test_the_numbers_are_attached(reader: Any, report: ComplianceReport) -> None:
    (attached,) = reader.attachments[pdf.ATTACHMENT]
    assert document.parse(attached.decode(), "it") == report
    (number,) = {one.idnum for one in reader.trailer["/Root"]["/AF"]}
    spec = reader.get_object(number)
    assert spec["/AFRelationship"] == "/Data"
    assert spec["/EF"]["/F"]["/Subtype"] == "/application/json" and "/ModDate" in spec["/EF"]["/F"]["/Params"]


def test_the_contents_name_the_pages_of_the_headings(reader: Any) -> None:
    pages = [page.extract_text() for page in reader.pages]
    contents = dict(re.findall(r"^(Results|Exceptions|Audits|Method|Limits|Signatures)[ .]+(\d+)$", pages[0], re.M))
    assert len(contents) == 6
    for heading, number in contents.items():
        found = [n for n, page in enumerate(pages[1:], 2) if re.search(rf"^\d+\. ?{heading}$", page, re.M)]
        assert found == [int(number)], heading
    assert "Signatures" in str(reader.outline) and "payments" in str(reader.outline), "bookmarks"


def test_each_page_has_its_number_and_the_documents_hash(reader: Any, report: ComplianceReport) -> None:
    for n, page in enumerate(reader.pages, 1):
        text = page.extract_text()
        assert f"Page {n} of {len(reader.pages)}" in text
        assert f"Document SHA-256 {document.document_hash(report)}" in text


@pytest.mark.parametrize("audits", (3, 19))
def test_signatures_never_stand_alone(report: ComplianceReport, audits: int) -> None:
    one = dataclasses.replace(report, audits=report.audits[:audits])
    pages = pypdf.PdfReader(io.BytesIO(compliance.render_pdf(one))).pages
    last = pages[-1].extract_text()
    assert "Prepared by" in last and "Signatures" in last and "configured" in last


def test_text_from_data_is_inert(report: ComplianceReport) -> None:
    bad = '</style><script>alert(1)</script>"; } @page { content: url(http://x.example/)'
    one = dataclasses.replace(report, project=bad)
    made = pypdf.PdfReader(io.BytesIO(compliance.render_pdf(one)))
    assert "<script>alert(1)</script>" in made.pages[0].extract_text().replace("\n", "")


def test_paper_gets_neither_scripts_nor_the_numbers_twice(report: ComplianceReport) -> None:
    page = compliance.render_html(report)
    paper = pdf.for_paper(page, "header", "footer", report.generated_at)
    assert "<script" in page and "<script" not in paper
    assert paper.rstrip().endswith("</html>") and document.packed(report) not in paper


def test_the_hash_is_that_of_the_canonical_json(report: ComplianceReport) -> None:
    made = json.loads(compliance.render_json(report))
    assert made["sha256"] == document.hash_of(made["report"]) == document.document_hash(report)
    for text in (compliance.render_html(report), compliance.render_markdown(report)):
        assert f"SHA-256 {made['sha256']}" in text
    other = dataclasses.replace(report, days_to_come=1)
    assert document.document_hash(other) != made["sha256"]
