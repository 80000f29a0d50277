"""Reports of earlier audits, from the results that are stored beside the ledger."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from recon.audits.stored_report import newest_run, stored_run
from recon.base.errors import ConfigError, LedgerError
from recon.model import CheckResult, Code, Finding, RunResult
from recon.reports import html
from recon.write.ledger import open_ledger
from recon.write.ledger.results import append_run, rows_of
from tests.support.ledger_entries import AT, project
from tests.support.messages import raises

GAP = Finding(
    code=Code.GAP, message="offsets are missing", pipeline="orders", sink="orders",
    topic="orders", partition=0, start_offset=3, end_offset=5,
)  # fmt: skip
CHECKS = ("ledger_integrity", "offset_continuity", "checkpoint_commits", "delta_history", "source_rows")


def run(name: str, day: int, *findings: Finding) -> RunResult:
    results = tuple(
        CheckResult(
            unique_id=f"test.lake.{check}", name=check, check=check, kind="evidence",
            status="fail" if findings and check == "offset_continuity" else "pass", failures=len(findings),
            message="", pipeline="orders", sink="orders", execution_time=0.5,
            findings=findings if check == "offset_continuity" else (), evidence={"batches": day},
        )
        for check in CHECKS
    )  # fmt: skip
    at = AT + timedelta(days=day)
    return RunResult(
        invocation_id=name, project="lake", recon_version="0", generated_at=at, period_from=None, period_to=at,
        elapsed_time=1.0, results=results,
    )  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    store = open_ledger(project(tmp_path)).results
    append_run(store, run("aaaa-1", 0))
    append_run(store, run("aabb-2", 1, GAP))
    append_run(store, run("cccc-3", 2))
    return tmp_path


def test_an_audit_comes_back_as_it_was_stored(lake: Path) -> None:
    found = stored_run(project(lake), "aabb")
    expected = run("aabb-2", 1, GAP)
    assert found.results == expected.results
    assert found.past is not None
    assert [day.state for day in found.past.project] == ["complete", "not complete"], "what came later is not in it"
    assert (found.invocation_id, found.generated_at, found.period_to) == (
        "aabb-2",
        AT + timedelta(days=1),
        found.period_to,
    )
    (pipeline,) = found.pipelines
    assert (pipeline.name, pipeline.answer) == ("orders", "not complete")
    (incident,) = pipeline.incidents
    assert (incident.codes, incident.counts[0].offsets) == (("GAP",), 2)
    assert [step.command for step in incident.steps] == ["recon findings --pipeline orders"]
    assert "offsets are missing" in html.render(found)
    assert any("not stored" in note for note in found.notes), "the page says what it lacks"
    assert "anchored" not in found.heads and "not stored" in found.heads, "nobody knows whether heads were published"


def test_the_newest_audit_of_a_time_is_drawn_with_all_of_the_time(lake: Path) -> None:
    newest = newest_run(project(lake), AT + timedelta(hours=1))
    assert newest.invocation_id == "cccc-3"
    assert newest.past is not None
    assert [(one.invocation_id, one.answers) for one in newest.past.recent] == [
        ("cccc-3", {"complete": 1}),
        ("aabb-2", {"not complete": 1}),
    ]
    page = html.render(newest)
    assert '<a href="#trends">' in page
    part = page[page.index('id="audits"') :]
    part = part[: part.index("</details>")]
    assert part.index("cccc-3") < part.index("aabb-2")
    assert '<td class="break">offset_continuity</td>' in part


def test_no_audit_in_the_time_that_was_asked_for(lake: Path) -> None:
    with raises(ConfigError):
        newest_run(project(lake), AT + timedelta(days=9))


def test_an_id_that_is_not_there_or_not_one_audits(lake: Path) -> None:
    for name in ("zzzz", "aa", ""):
        with raises(ConfigError):
            stored_run(project(lake), name)


def test_no_report_is_made_of_results_that_were_edited(lake: Path) -> None:
    (row, *_) = rows_of(run("dddd-4", 3, GAP))
    open_ledger(project(lake)).results.append_rows([{**row, "status": "pass", "failures": 7}])
    with pytest.raises(LedgerError, match="was edited"):
        stored_run(project(lake), "dddd")


def test_without_a_table_of_results(tmp_path: Path) -> None:
    with pytest.raises(LedgerError):
        newest_run(project(tmp_path), AT)


def test_a_pipeline_that_the_project_no_longer_has_is_left_out(lake: Path) -> None:
    fewer = project(lake).model_copy(update={"pipelines": ()})
    assert stored_run(fewer, "aabb").pipelines == ()
    assert replace(stored_run(fewer, "aabb"), pipelines=()).results
