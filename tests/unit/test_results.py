"""What one audit leaves for the next: where to go on, and what to compare with."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from recon.ledger import open_ledger
from recon.ledger.results import append_run, previous_audit
from recon.model import CheckResult, RunResult, Status
from recon.model.verdict import PipelineFacts
from tests.unit.ledger_entries import project

NOW = datetime(2026, 11, 20, 6, tzinfo=UTC)


def run(at: datetime, **statuses: Status) -> RunResult:
    results = tuple(
        CheckResult(
            unique_id=f"test.lake.{check}",
            name=check,
            check=check,
            kind="evidence",
            status=status,
            failures=0,
            message="",
            pipeline="orders",
            sink="orders",
            evidence={"chain_head": f"head-{at:%d}", "ledger_version": at.day} if check == "ledger_integrity" else {},
        )
        for check, status in statuses.items()
    )
    facts = PipelineFacts(
        name="orders", answer="complete", because="", query_id=None, checkpoint="", topics=(), isolation_level=""
    )
    return RunResult(
        invocation_id=f"run-{at:%d-%H}",
        project="lake",
        recon_version="0.1.0",
        generated_at=at,
        period_from=None,
        period_to=at,
        elapsed_time=0,
        results=results,
        pipelines=(replace(facts, period_from=at - timedelta(days=1)),),
    )


def test_nothing_was_audited(tmp_path: Path) -> None:
    assert previous_audit(open_ledger(project(tmp_path)).results, "orders", NOW) is None


def test_the_newest_audit_is_remembered_and_the_newest_whole_one_is_gone_on_from(tmp_path: Path) -> None:
    store = open_ledger(project(tmp_path)).results
    append_run(store, run(NOW - timedelta(days=3), ledger_integrity="pass", offset_continuity="fail"))
    append_run(store, run(NOW - timedelta(days=2), ledger_integrity="pass", offset_continuity="error"))
    append_run(store, run(NOW - timedelta(days=1), ledger_integrity="pass", source_rows="skipped"))
    append_run(store, run(NOW, offset_continuity="pass"))
    left = previous_audit(store, "orders", NOW - timedelta(days=30))
    assert left is not None and left.generated_at == NOW
    assert left.audited_to == NOW - timedelta(days=3), "errors, skips and selections leave questions open"
    assert previous_audit(store, "payments", NOW) is None


def test_the_chain_head_is_the_newest_days(tmp_path: Path) -> None:
    store = open_ledger(project(tmp_path)).results
    append_run(store, run(NOW - timedelta(days=1), ledger_integrity="pass"))
    append_run(store, run(NOW, ledger_integrity="pass"))
    left = previous_audit(store, "orders", NOW - timedelta(days=30))
    assert left is not None and left.chain_heads == {"orders": "head-20"} and left.ledger_version == 20


def test_it_does_not_look_back_for_ever(tmp_path: Path) -> None:
    store = open_ledger(project(tmp_path)).results
    append_run(store, run(NOW - timedelta(days=40), ledger_integrity="pass"))
    for days in (35, 3):
        append_run(store, run(NOW - timedelta(days=days), ledger_integrity="error"))
    left = previous_audit(store, "orders", NOW - timedelta(days=30))
    assert left is not None and left.audited_to is None
