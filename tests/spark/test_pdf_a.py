"""The compliance PDF is what it says that it is: PDF/A-3a, by veraPDF, the validator of the PDF Association."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recon.errors import ConfigError
from recon.reports import compliance
from tests.support.sample_run import sample_compliance
from tests.support.verapdf import jars, validator

pytest.importorskip("weasyprint", exc_type=ImportError)
pypdf = pytest.importorskip("pypdf")


@pytest.fixture(scope="module")
def faults() -> Iterator[Any]:
    try:
        jars()
    except ConfigError as error:
        pytest.skip(f"veraPDF is not here: {error}")
    with validator() as found:
        yield found


def test_a_compliance_report_is_pdf_a(faults: Any, tmp_path: Path) -> None:
    report = sample_compliance()
    hostile = replace(report, project='<b>дом</b> \u202e 🛒 & "x"')
    empty = replace(report, sinks=(), exceptions=(), audits=(), controls=(), frameworks=(), incidents=(), actions=())
    for name, one in (("whole", report), ("hostile", hostile), ("empty", empty)):
        file = compliance.write(one, tmp_path / f"{name}.pdf", "pdf")
        assert faults(file) == [], name
    text = "".join(page.extract_text() for page in pypdf.PdfReader(tmp_path / "hostile.pdf").pages)
    assert "дом" in text and ("🛒" in text or "U+1F6D2" in text), "a font has it, or it is named"


def test_the_validator_notices_what_is_missing(faults: Any, tmp_path: Path) -> None:
    file = compliance.write(sample_compliance(), tmp_path / "report.pdf", "pdf")
    writer = pypdf.PdfWriter(clone_from=file)
    root = writer.root_object
    del root["/OutputIntents"], root["/MarkInfo"]
    writer.write(tmp_path / "edited.pdf")
    assert len({clause for clause, *_ in faults(tmp_path / "edited.pdf")}) > 1
