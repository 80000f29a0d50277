"""The expected results of the demo's audits: every check's status, every failing finding with its offsets.

All of it is computed from the records that were sent and deleted (`recon.local.demo.events`), not from measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from recon.local.demo import events
from recon.model import Code, Level, RunResult, Status

_STATUSES: dict[tuple[str, str], Status] = {
    **dict.fromkeys(
        (
            ("orders", "offset_continuity"),
            ("orders", "kafka_end_offsets"),
            ("orders", "checkpoint_commits"),
            ("orders", "delta_history"),
            ("orders", "ledger_integrity"),
            ("orders", "source_rows"),
            ("orders", "unique_combination_of_columns"),
            ("orders", "not_null order_id"),
            ("orders", "not_null status"),
            ("orders", "accepted_values status"),
            ("payments", "offset_continuity"),
            ("payments", "kafka_end_offsets"),
            ("payments", "checkpoint_commits"),
            ("payments", "ledger_integrity"),
            ("payments", "not_null payment_id"),
        ),
        "pass",
    ),
    ("payments", "delta_history"): "fail",
    ("payments", "source_rows"): "fail",
    ("payments", "unique payment_id"): "fail",
}
_ANSWERS = {"orders": "complete", "payments": "not complete"}
_REPAIRED: dict[tuple[str, str], Status] = {
    (pipeline, check): "fail" if check.startswith("unique") else "pass"
    for pipeline, check in _STATUSES
    if pipeline == "payments"
}
_REPAIRED_ANSWERS = {"payments": "complete, but for 3 accepted findings"}


class Refuted(NamedTuple):
    """A failing finding, with the parts that the demo knows beforehand; a mutation has no partition."""

    pipeline: str
    check: str
    code: str
    partition: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None

    def __str__(self) -> str:
        at = "" if self.partition is None else f" partition {self.partition} [{self.start_offset}, {self.end_offset})"
        return f"{self.code} by {self.check} of {self.pipeline}{at}"


def refuted() -> set[Refuted]:
    """The expected failing findings."""
    return {
        Refuted("payments", "delta_history", Code.MUTATED),
        Refuted("payments", "delta_history", Code.GAP),
        Refuted("payments", "source_rows", Code.LOSS_RETENTION, events.EXPIRED_PARTITION, *events.expired_offsets()),
        *(
            Refuted("payments", "source_rows", Code.GAP, partition, start, end)
            for partition, (start, end) in events.deleted_offsets().items()
        ),
    }


def differences(run: RunResult, *, repaired: bool = False) -> list[str]:
    """One sentence for each difference between an audit and the expected result.

    Args:
        run: the audit of both pipelines; with `repaired`, that of payments after its repair.
        repaired: whether it is the latter.
    """
    if repaired:
        found = [*_statuses(run, _REPAIRED), *_findings(run, set()), *_twice(run), *_read_again(run)]
        return [*found, *_answers(run, _REPAIRED_ANSWERS)]
    return [
        *_statuses(run, _STATUSES),
        *_findings(run, refuted()),
        *_twice(run),
        *_crash(run),
        *_answers(run, _ANSWERS),
    ]


def _statuses(run: RunResult, expected: Mapping[tuple[str, str], Status]) -> list[str]:
    statuses: dict[tuple[str, str], Status] = {
        (r.pipeline or "", f"{r.check} {r.column}" if r.column else r.check): r.status for r in run.results
    }
    return [
        f"{check} of {pipeline}: expected {expected.get((pipeline, check), 'no such check')}, "
        f"found {statuses.get((pipeline, check), 'no result')}"
        for pipeline, check in sorted(expected.keys() | statuses.keys())
        if expected.get((pipeline, check)) != statuses.get((pipeline, check))
    ]


def _findings(run: RunResult, expected: set[Refuted]) -> list[str]:
    failing = {
        Refuted(r.pipeline or "", r.check, str(f.code), f.partition, f.start_offset, f.end_offset)
        for r in run.results
        for f in r.findings
        if f.level is not Level.INFO
    }
    missing = [f"{finding} was expected and not found" for finding in sorted(expected - failing, key=str)]
    return missing + [f"{finding} was found and not expected" for finding in sorted(failing - expected, key=str)]


def _twice(run: RunResult) -> list[str]:
    """Compares the number of duplicate keys."""
    twice = [r.failures for r in run.results if (r.pipeline, r.check) == ("payments", "unique")]
    if twice == [events.SENT_TWICE]:
        return []
    return [f"unique of payments: expected {events.SENT_TWICE} duplicate keys, found {twice}"]


def _crash(run: RunResult) -> list[str]:
    """Compares the findings about the killed process."""
    found = {
        f.code for r in run.results for f in r.findings if f.pipeline == "orders" and f.batch_id == events.CRASH_AT
    }
    return [
        f"{code} was expected for micro-batch {events.CRASH_AT} of orders and not found"
        for code in (Code.REBUILT, Code.REPLAYED)
        if code not in found
    ]


def _read_again(run: RunResult) -> list[str]:
    """Compares the offsets that the audit calls repaired."""
    found = {
        (f.partition, f.start_offset, f.end_offset)
        for r in run.results
        for f in r.findings
        if (r.pipeline, r.check, f.code) == ("payments", "source_rows", Code.REPAIRED)
    }
    expected = {(partition, *span) for partition, span in events.deleted_offsets().items()}
    if found == expected:
        return []
    return [f"REPAIRED was expected for (partition, start, end) {sorted(expected)}, found {sorted(found, key=str)}"]


def _answers(run: RunResult, expected: Mapping[str, str]) -> list[str]:
    answers = {pipeline.name: pipeline.says.partition(" (")[0] for pipeline in run.pipelines}
    return [
        f"pipeline {name}: expected '{answer}', found '{answers.get(name, 'no answer')}'"
        for name, answer in expected.items()
        if answers.get(name) != answer
    ]
