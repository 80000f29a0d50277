"""What one audit leaves for the next: where to go on, and what to compare with."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from recon.ledger import open_ledger
from recon.ledger.results import append_run, findings_of, previous_audit
from recon.ledger.store import Store
from recon.model import CheckResult, Code, Finding, Level, PreviousAudit, RunResult, Status
from recon.model.result import PipelineFacts
from tests.support.ledger_entries import project

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


BACK = NOW - timedelta(days=30)


def left(store: Store, pipeline: str = "orders") -> PreviousAudit | None:
    return previous_audit(store, pipeline, BACK)


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def whole(at: datetime, **changes: Status) -> RunResult:
    return run(at, **{"ledger_integrity": "pass", "source_rows": "fail", **changes})


def test_nothing_was_audited(tmp_path: Path) -> None:
    assert left(open_ledger(project(tmp_path)).results) is None


def test_an_audit_of_one_check_or_of_the_past_takes_no_memory_away(tmp_path: Path) -> None:
    store = open_ledger(project(tmp_path)).results
    append_run(store, whole(ago(1)))
    append_run(store, run(NOW, source_rows="pass"))
    late = whole(ago(5))
    append_run(store, replace(late, invocation_id="late", generated_at=NOW))
    found = left(store)
    assert found is not None and found.chain_heads == {"orders": "head-19"} and found.ledger_version == 19
    assert found.generated_at == ago(1)


def test_stored_findings_have_their_codes_level() -> None:
    finding = Finding(code=Code.GAP, message="offsets are missing", topic="orders", partition=3)
    stored = {"findings": json.dumps([finding.as_dict()])}
    assert findings_of(stored) == [finding]
    assert findings_of(stored)[0].level is Level.FAIL
    assert findings_of({"findings": None}) == []
