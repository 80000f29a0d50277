"""The audits of a period as the results table has them: what was edited is named, and proves nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from recon.audits import summary
from recon.audits.controls.days import Ran
from recon.audits.extent import Extent, Where
from recon.model import RUNNING, Code, Finding, Level
from recon.model.proof import SinkProof
from recon.write.ledger import Ledger
from recon.write.ledger.results import RUN, Parameters, findings_of, record_of, stored_rows, typed_row
from recon.write.ledger.sealed_results import changed, states_gone
from recon.write.ledger.store import Filter

JUDGED = ("pass", "warn", "fail")
_WITHIN: tuple[Where | None, ...] = ("within",)
# A test of rows that only warns refutes nothing, as in an audit, which exits with 0.
_OF_TESTS = {"fail": Code.VIOLATION, "warn": Code.VIOLATION_WARN, "error": Code.INCONCLUSIVE}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class StoredAudit:
    """One audit's results for one pipeline, as rows of the results table, with the period that it covered there."""

    invocation_id: str
    generated_at: datetime
    period_from: datetime | None
    period_to: datetime
    rows: tuple[Row, ...]
    parameters: Parameters

    @cached_property
    def judged_checks(self) -> frozenset[str]:
        """The unique_ids of the checks that gave a verdict."""
        return frozenset(row["unique_id"] for row in self.rows if row["status"] in JUDGED)

    @cached_property
    def partial(self) -> str:
        """Why it is a partial audit, in words; "" where it is none, or where that is not stored."""
        record, args = self.parameters.record, self.parameters.args
        if record is None:
            return ""
        of, ran = sum(record.checks.values()), sum(self.parameters.selected.values())
        chosen = [f"--{name} {' '.join(map(str, args[name]))}" for name in ("select", "exclude") if args.get(name)]
        period = [f"--{name} {args[name]}" for name in ("from", "to") if args.get(name)]
        options = ", ".join((*chosen, *period))
        if record.stopped:
            return "--fail-fast stopped it"
        if ran < of:
            return f"{ran} of {of} checks" + (f": {options}" if options else "")
        if period:
            return f"of a period that was asked for: {options}"
        return f"of what was selected: {options}" if options else ""

    def judged(self, sink: str) -> Iterable[tuple[int, int]]:
        """The sequences of the sink's entries that it judged: a clock that jumped says nothing."""
        for row in self.rows:
            if row["sink"] == sink and row["check"] == "ledger_integrity" and row["evidence"].get("judged"):
                first, last = row["evidence"]["judged"]
                yield first, last + 1

    def is_behind(self, to: datetime) -> bool:
        """Whether its period begins behind one that ends at `to`."""
        return self.period_from is not None and self.period_from >= to

    def of_period(self, to: datetime, extents: Mapping[str, Extent]) -> StoredAudit | None:
        """The audit with what it found about a period that ends at `to`; None of one that says nothing about it.

        What it found during the period belongs there, whatever it is about.
        """
        if self.generated_at < to:
            return self
        if all(extent.is_empty for extent in extents.values()):
            return None
        rows = tuple({**row, "findings": [f for f in row["findings"] if _is_of(f, extents)]} for row in self.rows)
        return replace(self, rows=rows)

    def within(self, extents: Mapping[str, Extent]) -> StoredAudit | None:
        """An audit of a later period, with the findings alone that name micro-batches or offsets of this one."""
        rows = [
            {**row, "findings": [f for f in row["findings"] if _is_of(f, extents, _WITHIN)]}
            for row in self.rows
            if row["kind"] == "evidence"
        ]
        found = tuple(row for row in rows if row["findings"])
        return replace(self, rows=found) if found else None

    @cached_property
    def sinks(self) -> frozenset[str]:
        """The sinks that it has results of."""
        return frozenset(row["sink"] for row in self.rows if row["sink"])

    def proves(self, sink: str, answered: Collection[object] = ()) -> bool:
        """Whether every check that a proof rests on could be evaluated for this sink.

        `answered` are the identities of findings that were accepted or repaired since.
        """
        rows = [row for row in self.rows if row["sink"] == sink]
        return summary.proved_by({row["check"]: _evaluated(row, answered) for row in rows})

    def proves_each(self) -> bool:
        """Whether it proves each sink that it has results of, and has some."""
        return bool(self.sinks) and all(self.proves(sink) for sink in self.sinks)

    def ran(self, sink: str, answered: Collection[object] = ()) -> Ran:
        """What it ran of one sink; of tests of rows that have one name, a partial audit may have left some out.

        `answered` is as for `proves`.
        """
        checks: dict[str, tuple[bool, str]] = {}
        limited = False
        partial = bool(self.partial) or self.parameters.record is None
        for row in self.rows:
            if row["sink"] not in (None, sink):
                continue
            whole = _evaluated(row, answered)
            why = "" if whole else _why_not_whole(row)
            if row["kind"] == "data" and partial:
                whole, why = False, "which of these tests recon.yml had is not known, as not all checks were selected"
            before = checks.get(row["check"], (True, ""))
            checks[row["check"]] = (before[0] and whole, before[1] or why)
            limited |= row["check"] == "kafka_end_offsets" and any((row["evidence"].get("limits") or {}).values())
        return Ran(
            begin=self.period_from,
            end=self.period_to,
            checks=checks,
            judged=tuple(self.judged(sink)),
            partial=bool(self.partial),
            limited=limited,
        )

    def findings(self) -> Iterator[tuple[Finding, Row]]:
        """What it found, and by which check; a test of rows that failed is a finding, too."""
        for row in self.rows:
            yield from ((f, row) for f in row["findings"] if f.level is not Level.INFO)
            if row["kind"] == "data" and row["status"] in _OF_TESTS:
                finding = Finding(
                    code=_OF_TESTS[row["status"]],
                    message=f"{row['name']}: {row['message']}",
                    pipeline=row["pipeline"],
                    sink=row["sink"],
                )
                yield finding, row


def _evaluated(row: Row, answered: Collection[object]) -> bool:
    """Whether a check was evaluated whole; one that only left questions was, once they are answered.

    `answered` are the identities of findings.
    """
    if summary.evaluated(row["status"], row["evidence"]):
        return True
    asked = [finding for finding in row["findings"] if finding.level is Level.UNPROVED]
    looked = row["status"] == "error" and not row["evidence"].keys() & {"unread", "probe"}
    return looked and bool(asked) and all(finding.subject in answered for finding in asked)


def _why_not_whole(row: Row) -> str:
    """Why a check was not evaluated whole: its message, or what it could not read."""
    if row["status"] in ("error", "skipped"):
        return row["message"] or ""
    unread = row["evidence"].get("unread") or row["evidence"].get("probe")
    return f"in part only: {unread}" if isinstance(unread, str) else "in part only: some of what it needs was not read"


def _is_of(finding: Finding, extents: Mapping[str, Extent], where: Collection[Where | None] = ("within", None)) -> bool:
    """Whether a finding may be about a period: in one of the sinks it is about, no other one has its place."""
    return any(extent.where(finding) in where for sink, extent in extents.items() if finding.sink in (None, sink))


@dataclass(frozen=True)
class Audited:
    """A pipeline's audits whose period overlaps the report's, oldest first, and what was edited in stored results.

    `later` are those of later periods, which may have found what became of this one's rows since. `states` are the
    states of proofs that audits, and who accepted findings, left, oldest first.
    """

    audits: Sequence[StoredAudit]
    later: Sequence[StoredAudit]
    edited: Sequence[Finding]
    states: Sequence[tuple[str, SinkProof]]


def audited(ledger: Ledger, pipelines: Sequence[str], from_: datetime, to: datetime) -> dict[str, Audited]:
    """What is stored of audits since the begin of a period, by pipeline.

    Some ran after the period, as its last day is audited then. Audits whose results were edited prove nothing.

    Raises:
        LedgerError: the results cannot be read.
    """
    by_pipeline: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in stored_rows(ledger.results.read(Filter.of(from_=from_))):
        by_pipeline[row["pipeline"]].append(row)
    states, damaged = ledger.proofs.since(pipelines, from_)
    for name in pipelines:
        if name not in damaged and (gone := states_gone(by_pipeline[name], partial(ledger.proofs.length, name))):
            damaged[name] = gone
    return {
        name: _of_pipeline(name, by_pipeline[name], states.get(name, ()), damaged.get(name), from_, to)
        for name in pipelines
    }


def _of_pipeline(
    pipeline: str,
    rows: Sequence[dict[str, Any]],
    states: Sequence[tuple[str, SinkProof]],
    damaged: str | None,
    from_: datetime,
    to: datetime,
) -> Audited:
    by_audit: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_audit[row["invocation_id"]].append(row)
    edited = list(changed(by_audit, states))
    if damaged is not None:
        edited.append(("", damaged))
    untrusted = {invocation_id for invocation_id, _ in edited}
    audits = [
        audit
        for name, of_audit in by_audit.items()
        if name not in untrusted and (audit := _audit(name, of_audit, from_)) is not None
    ]
    audits.sort(key=lambda audit: audit.generated_at)
    return Audited(
        audits=[audit for audit in audits if not audit.is_behind(to)],
        later=[audit for audit in audits if audit.is_behind(to)],
        edited=[Finding(code=Code.TAMPERED, pipeline=pipeline, message=sentence) for _, sentence in edited],
        states=states,
    )


def _audit(name: str, rows: Sequence[dict[str, Any]], from_: datetime) -> StoredAudit | None:
    """An audit whose period ends behind this begin; how fast a stream ran proves nothing about its data."""
    parameters = record_of(rows)
    typed = [typed_row(row, sealed=True) for row in rows if row["check"] not in RUNNING and row["kind"] != RUN]
    kept = [row for row in typed if row["period_to"] > from_]
    if not kept:
        return None
    for row in kept:
        row["findings"] = [finding.as_said for finding in findings_of(row)]  # the report says itself since when
    first = kept[0]
    return StoredAudit(name, first["generated_at"], first["period_from"], first["period_to"], tuple(kept), parameters)
