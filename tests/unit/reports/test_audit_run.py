"""A run as `recon.run_audit` returns it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import recon
from recon.model import RunResult
from recon.reports import run_results
from recon.reports.audit_run import AuditRun
from tests.support.sample_run import healthy_run, hostile_run, sample_run
from tests.unit.cli.test_cli import project  # noqa: F401


def test_the_same_run_in_other_forms(tmp_path: Path) -> None:
    run = AuditRun.of(sample_run())
    assert run.to_dict() == run_results.as_dict(sample_run())
    folder = run.write(tmp_path / "new")
    assert json.loads((folder / "run_results.json").read_text()) == run.to_dict()
    assert "payments" in (folder / "report.html").read_text()


def test_findings_in_pandas() -> None:
    frame = AuditRun.of(sample_run()).to_pandas()
    gap = frame[frame.code == "GAP"].iloc[0]
    assert (gap.partition, gap.start_offset, gap.end_offset) == (1, 15340, 15962)
    assert str(frame.dtypes["start_offset"]) == "Int64" and frame.start_offset.isna().any()


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (
            sample_run(),
            "<AuditRun lake: orders: complete; payments: not complete; clicks: could not be proved; 19 checks: "
            "10 pass, 2 warn, 4 fail, 2 error, 1 skipped>",
        ),
        (healthy_run(), "<AuditRun lake: orders: complete; "),
    ],
)
def test_it_says_what_it_is(run: RunResult, told: str) -> None:
    assert repr(AuditRun.of(run)).startswith(told)


def test_a_notebook_shows_the_answers_and_what_failed() -> None:
    page = AuditRun.of(sample_run())._repr_html_()
    assert page.count("<tr>") == 2 + 3 + 8 and "<td>not complete</td>" in page
    assert "<script" not in AuditRun.of(hostile_run())._repr_html_()


def test_recon_audit_is_run_audit(project: Path) -> None:  # noqa: F811
    run = recon.audit(project, no_spark=True, keep=False)
    assert isinstance(run, recon.AuditRun) and run.project == recon.load_project(project).name
