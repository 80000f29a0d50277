"""The compliance PDF is what it says that it is: PDF/A-3a, by veraPDF, the validator of the PDF Association."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recon.base.errors import ConfigError
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


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole sample report, of a project with a name that no page should trust."""
    report = replace(sample_compliance(), project='<b>дом</b> \u202e 🛒 & "x"')
    return compliance.write(report, tmp_path_factory.mktemp("pdf") / "hostile.pdf", "pdf")


def test_a_compliance_report_is_pdf_a(faults: Any, hostile: Path, tmp_path: Path) -> None:
    report = sample_compliance()
    empty = replace(report, sinks=(), exceptions=(), audits=(), controls=(), frameworks=(), incidents=(), actions=())
    assert faults(hostile) == []
    assert faults(compliance.write(empty, tmp_path / "empty.pdf", "pdf")) == []
    text = "".join(page.extract_text() for page in pypdf.PdfReader(hostile).pages)
    assert "дом" in text and ("🛒" in text or "U+1F6D2" in text), "a font has it, or it is named"


def test_the_validator_notices_what_is_missing(faults: Any, hostile: Path, tmp_path: Path) -> None:
    writer = pypdf.PdfWriter(clone_from=hostile)
    root = writer.root_object
    del root["/OutputIntents"], root["/MarkInfo"]
    writer.write(tmp_path / "edited.pdf")
    assert len({clause for clause, *_ in faults(tmp_path / "edited.pdf")}) > 1
