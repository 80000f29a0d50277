"""The expected result of the demo's audit: every check's status, every failing finding with its offsets.

All of it is computed from the records that were sent and deleted (`recon.demo.events`), not from measurements.
"""

from __future__ import annotations

from typing import NamedTuple

from recon.demo import events
from recon.model import Answer, Code, Level, RunResult, Status

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
_ANSWERS: dict[str, Answer] = {"orders": "complete", "payments": "not complete"}


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


def differences(run: RunResult) -> list[str]:
    """One sentence for each difference between the audit and the expected result."""
    return [*_statuses(run), *_findings(run), *_figures(run), *_answers(run)]


def _statuses(run: RunResult) -> list[str]:
    statuses: dict[tuple[str, str], Status] = {
        (r.pipeline or "", f"{r.check} {r.column}" if r.column else r.check): r.status for r in run.results
    }
    return [
        f"{check} of {pipeline}: expected {_STATUSES.get((pipeline, check), 'no such check')}, "
        f"found {statuses.get((pipeline, check), 'no result')}"
        for pipeline, check in sorted(_STATUSES.keys() | statuses.keys())
        if _STATUSES.get((pipeline, check)) != statuses.get((pipeline, check))
    ]


def _findings(run: RunResult) -> list[str]:
    expected = refuted()
    failing = {
        Refuted(r.pipeline or "", r.check, str(f.code), f.partition, f.start_offset, f.end_offset)
        for r in run.results
        for f in r.findings
        if f.level is not Level.INFO
    }
    missing = [f"{one} was expected and not found" for one in sorted(expected - failing, key=str)]
    return missing + [f"{one} was found and not expected" for one in sorted(failing - expected, key=str)]


def _figures(run: RunResult) -> list[str]:
    """Compares the number of duplicate keys, and the findings about the repaired crash."""
    errors = []
    twice = [r.failures for r in run.results if (r.pipeline, r.check) == ("payments", "unique")]
    if twice != [events.SENT_TWICE]:
        errors.append(f"unique of payments: expected {events.SENT_TWICE} duplicate keys, found {twice}")
    repaired = {
        f.code for r in run.results for f in r.findings if f.pipeline == "orders" and f.batch_id == events.CRASH_AT
    }
    for code in (Code.REBUILT, Code.REPLAYED):
        if code not in repaired:
            errors.append(f"{code} was expected for micro-batch {events.CRASH_AT} of orders and not found")
    return errors


def _answers(run: RunResult) -> list[str]:
    answers = {pipeline.name: pipeline.answer for pipeline in run.pipelines}
    return [
        f"pipeline {name}: expected '{answer}', found '{answers.get(name, 'no answer')}'"
        for name, answer in _ANSWERS.items()
        if answers.get(name) != answer
    ]
