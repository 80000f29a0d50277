"""What one audit leaves for the next: where to go on, and what to compare with."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recon.base.errors import LedgerError
from recon.model import ChainEnd, CheckResult, Code, Finding, KnownTable, Level, PreviousAudit, RunResult, Status
from recon.model.result import PipelineFacts
from recon.write.ledger import arrow, open_ledger
from recon.write.ledger.results import RESULTS, append_run, findings_of, is_sealed, previous_audit, rows_of, stored_rows
from recon.write.ledger.store import Store
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
            evidence={"chain_head": f"head-{at:%d}", "chain_position": at.day, "ledger_version": at.day}
            if check == "ledger_integrity"
            else {},
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
    assert (
        found is not None
        and found.chain_ends == {"orders": ChainEnd(19, "head-19", ago(1))}
        and found.ledger_version == 19
    )
    assert found.generated_at == ago(1)


def table_read(at: datetime, table_id: str, version: int, count: int | None, **statuses: Status) -> RunResult:
    """An audit whose delta_history read the sink's table."""
    made = run(at, **{"delta_history": "pass", "source_rows": "pass", **statuses})
    history = replace(made.results[0], evidence={"table_id": table_id, "table_version": version, "table_rows": count})
    return replace(made, results=(history, *made.results[1:]))


def test_the_table_as_it_was_read_last(tmp_path: Path) -> None:
    store = open_ledger(project(tmp_path)).results
    append_run(store, table_read(ago(5), "t-0", 9, 90))
    append_run(store, table_read(ago(4), "t-1", 3, 30))
    # An audit that could not judge the rows accounts for none; one without a count keeps what is known.
    append_run(store, table_read(ago(3), "t-1", 5, 40, source_rows="skipped"))
    append_run(store, table_read(ago(2), "t-1", 7, None))
    append_run(store, run(ago(1), delta_history="error"))
    found = left(store)
    assert found is not None
    table = KnownTable(table_id="t-1", version=7, read_at=ago(2), counted=(3, 30))
    assert found.tables == {"orders": table}
    append_run(store, table_read(NOW, "t-2", 0, None))
    found = left(store)
    assert found is not None and found.tables == {"orders": KnownTable(table_id="t-2", version=0, read_at=NOW)}


def test_stored_findings_have_their_codes_level() -> None:
    finding = Finding(code=Code.GAP, message="offsets are missing", topic="orders", partition=3)
    stored = {"findings": json.dumps([finding.as_dict()])}
    assert findings_of(stored) == [finding]
    assert findings_of(stored)[0].level is Level.FAIL
    assert findings_of({"findings": None}) == []


@pytest.mark.parametrize("versions", [None, (), (3, 7)])
def test_what_changed_the_rows_comes_back_as_it_was_stored(versions: tuple[int, ...] | None) -> None:
    finding = Finding(code=Code.GAP, message="rows are gone", rows=5, changed_by=versions)
    assert findings_of({"findings": json.dumps([finding.as_dict()])}) == [finding]


@pytest.mark.parametrize("edited", [["3"], "3", 3, [1.5], [True]])
def test_what_changed_the_rows_is_held_against_its_type(edited: Any) -> None:
    stored = {**Finding(code=Code.GAP, message="rows are gone").as_dict(), "changed_by": edited}
    with pytest.raises(LedgerError):
        findings_of({"findings": json.dumps([stored])})


def test_a_finding_that_an_older_version_stored_lacks_the_newer_keys() -> None:
    finding = Finding(code=Code.GAP, message="offsets are missing", topic="orders", partition=3)
    newer = ("topic_id", "rows", "changed_by")
    stored = {name: value for name, value in finding.as_dict().items() if name not in newer}
    assert findings_of({"findings": json.dumps([stored])}) == [finding]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"message": 'a "quoted" \\ line\nbreak, żółć\u2028'},
        {"failures": None, "sink": None},
        {"execution_time": -0.0},
        {"execution_time": float("nan")},
        {"period_from": NOW},
        {"status": "pass", "severity": "warn"},
        {"row_hash": "0" * 64},
        {"row_hash": None},
    ],
)
def test_rows_that_are_read_at_once_are_as_sealed_as_each_alone(changes: dict[str, Any]) -> None:
    rows = [{**row, "date": NOW.date()} for row in rows_of(whole(NOW, unique="pass"))]
    rows[1] |= changes
    table = arrow.table(rows, RESULTS.schema)
    read = stored_rows(table)
    assert [row["is_sealed"] for row in read] == [is_sealed(row) for row in rows] == [True, not changes, True]
    alone = [{name: value for name, value in row.items() if name != "is_sealed"} for row in read]
    assert repr(alone) == repr(arrow.rows(table))


def test_no_rows_are_read() -> None:
    assert stored_rows(RESULTS.schema.empty_table()) == []
