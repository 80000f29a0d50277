"""A run as a table of findings, JUnit XML, Markdown and annotations, each read back by somebody else's reader."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from junitparser import Error, Failure, JUnitXml, Skipped
from markdown_it import MarkdownIt

from recon.base.errors import ConfigError
from recon.model import RunResult
from recon.reports.forms import FORMS, text, write
from tests.support.messages import same_message
from tests.support.sample_run import hostile_run, sample_run


def table(run: RunResult) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text(run, "csv"))))


def test_a_row_per_finding() -> None:
    run = sample_run()
    rows = table(run)
    told = [finding for result in run.results for finding in result.findings]
    assert [row["code"] for row in rows if row["code"]] == [str(finding.code) for finding in told]
    gap = next(row for row in rows if row["code"] == "GAP")
    assert (gap["topic"], gap["partition"], gap["start_offset"], gap["end_offset"]) == (
        "payments",
        "1",
        "15340",
        "15962",
    )
    assert (gap["level"], gap["status"], gap["pipeline"]) == ("fail", "fail", "payments")
    # A data test that fails has rows, and no finding.
    (unique,) = (row for row in rows if row["check"] == "unique" and row["status"] == "fail")
    assert (unique["code"], unique["failures"]) == ("", "7")


def test_parquet_has_the_same_rows_with_their_types(tmp_path: Path) -> None:
    run = sample_run()
    file = write(run, "parquet", tmp_path / "new" / "findings.parquet")
    arrow = pq.read_table(file)
    assert [str(arrow.schema.field(name).type) for name in ("partition", "at", "code")] == [
        "int64",
        "timestamp[us, tz=UTC]",
        "string",
    ]
    assert [row["message"] for row in arrow.to_pylist()] == [row["message"] for row in table(run)]
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("begins", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1"])
def test_no_cell_is_a_formula(begins: str) -> None:
    run = sample_run()
    run = replace(run, results=tuple(replace(r, message=begins, findings=()) for r in run.results))
    assert {row["message"] for row in table(run)} == {f"'{begins}"}


def test_junit() -> None:
    run = sample_run()
    suites = JUnitXml.fromstring(text(run, "junit").encode())
    assert (suites.tests, suites.failures, suites.errors, suites.skipped) == (19, 4, 2, 1)
    by_name = {suite.name: suite for suite in suites}
    assert set(by_name) == {"orders", "payments", "clicks"}
    assert {p.name: p.value for p in by_name["payments"].properties()}["answer"] == "not complete"
    kinds = {case.name: [type(result) for result in case.result] for suite in suites for case in suite if case.result}
    wanted = {"fail": Failure, "error": Error, "skipped": Skipped}
    assert kinds == {r.name: [wanted[r.status]] for r in run.results if r.status in wanted}
    gap = next(case for case in by_name["payments"] if case.name.startswith("offset_continuity"))
    assert gap.result[0].type == "GAP" and "payments-1 [15340, 15962)" in gap.result[0].text


def test_markdown() -> None:
    run = sample_run()
    page = MarkdownIt("commonmark").enable("table").render(text(run, "markdown"))
    for name, answer in (("orders", "complete"), ("payments", "not complete"), ("clicks", "could not be proved")):
        assert f"{answer}</td>\n<td>{name}</td>" in page
    assert "19 checks: 10 pass, 2 warn, 4 fail, 2 error, 1 skipped" in page
    assert "unique_payments_payment_id" in page, "what Markdown takes for emphasis is text"


def test_many_findings_are_cut_short() -> None:
    run = sample_run()
    (many,) = (r for r in run.results if r.check == "kafka_end_offsets" and r.status == "fail")
    run = replace(run, results=(replace(many, findings=many.findings * 100),))
    assert f"and {len(many.findings) * 100 - 20:,} more" in text(run, "markdown")


def test_annotations() -> None:
    run = replace(sample_run(), results=tuple(replace(r, message="50%\nlost") for r in sample_run().results))
    lines = text(run, "github").splitlines()
    what_to_do = "; what to do about it: recon runbook GAP; recon runbook OVERLAP"
    assert len(lines) == 8
    assert lines[0] == f"::error title=recon%3A offset_continuity_payments::50%25 lost{what_to_do}"
    assert "::error title=recon%3A unique_payments_payment_id::50%25 lost" in lines, "a check of rows has no code"
    assert text(run, "azure").splitlines()[2].startswith("##vso[task.logissue type=warning]recon: checkpoint_commits")


@pytest.mark.parametrize("form", sorted(FORMS))
def test_what_comes_from_data_is_inert(form: str, tmp_path: Path) -> None:
    run = hostile_run()
    names = "ping @everyone, see http://evil.example and www.evil.example, #1 ##vso[task.complete] ::error::x"
    run = replace(run, results=tuple(replace(r, message=f"{r.message} {names}\n::error::y") for r in run.results))
    file = write(run, form, tmp_path / FORMS[form])
    content = file.read_bytes().decode(errors="replace")
    if form == "junit":
        assert len(JUnitXml.fromstring(content.encode())) == 3 and "\x1b" not in content
    elif form == "markdown":
        page = MarkdownIt("commonmark").enable("table").render(content)
        assert "<script>" not in content and "<script>" not in page and "@everyone" not in content
        assert "://evil" not in content and "www.evil" not in content
    elif form in ("github", "azure"):
        begin = {"github": "::", "azure": "##vso["}[form]
        assert all(line.startswith(begin) for line in content.splitlines()) and "\x1b" not in content


def test_an_unknown_form() -> None:
    for form in ("junt", "parquet"):
        with pytest.raises(ConfigError) as told:
            text(sample_run(), form)
        assert same_message(str(told.value))
