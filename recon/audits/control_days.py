"""Controls and statements with their days, and in words what no audit showed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from recon.audits.controls.catalog import Statement
from recon.audits.controls.days import Against, Day, SinkDays, place_of, places
from recon.audits.exceptions import Sightings
from recon.audits.stored_audits import StoredAudit
from recon.base.lazy import np
from recon.base.text import plural
from recon.model import NOT_ANCHORED, RUNNING, Code, Finding, LedgerSlice
from recon.model.compliance import ComplianceReport, SinkCompliance
from recon.model.controls import Control, ControlDays, ControlRecord, DayState, contradicts, control_of_test

# About the instant of the audit, whatever offsets they name.
_OF_THE_INSTANT = (Code.LAG, Code.STALLED, Code.LOSS_AHEAD)
# Controls that no proof covers where micro-batches before the ledger's first entry are not known.
_OF_WITNESSES: frozenset[Control] = frozenset({"completeness", "uniqueness", "accuracy"})
_Controls = tuple[Control, ...]
_Groups = tuple[tuple[str, ...], ...]
_EVER, _NEVER = (moment.replace(tzinfo=UTC) for moment in (datetime.min, datetime.max))


def begin_of(ledger: LedgerSlice, audits: Iterable[StoredAudit]) -> datetime:
    """When a sink's ledger begins: before that there is nothing to show.

    `_EVER` where the slice does not have the chain's first entry, or audits judged entries that are gone. `_NEVER`
    where the sink wrote nothing yet.
    """
    if not ledger.heads:
        judged = any(True for audit in audits for _ in audit.judged(ledger.sink))
        return _EVER if judged or not ledger.complete else _NEVER
    if ledger.anchors or ledger.heads[0].sequence != 1:
        return _EVER
    return min(head.committed_at for head in ledger.heads)


class ControlDaysOf:
    """The days of controls, over all sinks of a report."""

    def __init__(
        self,
        days: Sequence[Day],
        sinks: Sequence[SinkCompliance],
        slices: Mapping[tuple[str, str], LedgerSlice],
        audits: Mapping[str, Sequence[StoredAudit]],
        exceptions: Sequence[Sightings],
        begins: Mapping[tuple[str, str], datetime],
    ) -> None:
        """`slices` and `begins`, as of `begin_of`, are by pipeline and sink, `audits` by pipeline."""
        of_pipeline: dict[str | None, list[Sightings]] = defaultdict(list)
        for sightings in exceptions:
            of_pipeline[sightings.record.finding.pipeline].append(sightings)
        self._sinks = [
            _OfSink(
                days,
                sink,
                slices[sink.pipeline, sink.sink],
                audits[sink.pipeline],
                [
                    sightings
                    for sightings in of_pipeline[sink.pipeline] + of_pipeline[None]
                    if sightings.record.finding.sink in (None, sink.sink)
                ],
                begins[sink.pipeline, sink.sink],
            )
            for sink in sinks
        ]
        self._known: dict[tuple[_Controls, _Groups], tuple[ControlDays, ...]] = {}

    def record(self, statement: Statement) -> ControlRecord:
        """What audits showed of a control, or of a statement of a framework."""
        key = (statement.control, statement.checks)
        if key not in self._known:
            self._known[key] = tuple(sink.days_of(*key) for sink in self._sinks)
        return ControlRecord(
            id=statement.id,
            title=statement.title,
            controls=statement.control,
            checks=statement.checks,
            shown=statement.shown,
            limits=statement.limits,
            sinks=self._known[key],
        )


class _OfSink:
    """The days of one sink."""

    def __init__(
        self,
        days: Sequence[Day],
        sink: SinkCompliance,
        ledger: LedgerSlice,
        audits: Sequence[StoredAudit],
        exceptions: Sequence[Sightings],
        begin: datetime,
    ) -> None:
        self._days, self._sink, self._ledger, self._exceptions = days, sink, ledger, exceptions
        self._there = sum(day.end <= begin for day in days)  # the place of the first day that has something to show
        answered = {sightings.record.finding.subject for sightings in exceptions if sightings.answered}
        runs = sorted((audit.ran(sink.sink, answered) for audit in audits), key=lambda run: run.end)
        found = [
            (place, head.sequence)
            for head in ledger.heads[ledger.anchors :]
            if (place := place_of(days, head.date)) is not None
        ]
        at, sequences = (np.array([pair[side] for pair in found], np.int64) for side in (0, 1))
        self._known = SinkDays(days, runs, (at, sequences), begin)

    def days_of(self, controls: _Controls, groups: _Groups) -> ControlDays:
        """The days of a control, or of several, which rest on these checks."""
        names = {name for group in groups for name in group}
        against = []
        for sightings, about in zip(self._exceptions, self._about, strict=True):
            told = _state_of(sightings, controls, names)
            if sightings.record.finding.code is Code.UNWITNESSED and _OF_WITNESSES.intersection(controls):
                days = self._unwitnessed
                against.append(Against(code=Code.UNWITNESSED, state="not shown", how="", days=days))
            elif told is not None:
                against.append(Against(code=str(sightings.record.finding.code), state=told[0], how=told[1], days=about))
        whole, chain = "", self._sink.chain
        if chain.verified is False:
            whole = "the ledger's hash chain is broken"
            if "audit trail" in controls:
                every = [(0, len(self._days))]
                against.append(Against(code=whole, state="refuted", how="", days=every))
        elif "audit trail" in controls and chain.verified is None:
            whole = chain.reason or "the ledger's hash chain was not verified"
        return ControlDays(
            pipeline=self._sink.pipeline,
            sink=self._sink.sink,
            stretches=self._known.stretches(groups, controls, against, whole),
        )

    @cached_property
    def _about(self) -> list[Sequence[tuple[int, int]]]:
        """The days that each exception is about."""
        return [self._days_of(sightings) for sightings in self._exceptions]

    def _days_of(self, sightings: Sightings) -> Sequence[tuple[int, int]]:
        """The days on which what it names was written; where it names nothing, all that its audits looked at.

        Days before the first ledger entry are among them only where its audits looked at no other one.
        """
        finding = sightings.record.finding
        if finding.code in _OF_THE_INSTANT:
            at = (place_of(self._days, audit.generated_at.date()) for audit in sightings.audits)
        else:
            at = (place_of(self._days, self._ledger.heads[entry].date) for entry in self._index.entries(finding))
        named = sorted({place for place in at if place is not None})
        if named:
            return [(place, place + 1) for place in named]
        if not sightings.audits:
            return [(0, len(self._days))]
        looked = places(self._days, [(audit.period_from, audit.period_to) for audit in sightings.audits])
        return [(max(first, self._there), end) for first, end in looked if end > self._there] or looked

    @property
    def _unwitnessed(self) -> Sequence[tuple[int, int]]:
        """The days up to that of the ledger's first entry, where it begins in the period."""
        if self._ledger.anchors:
            return []
        first = place_of(self._days, self._ledger.heads[0].date) if self._ledger.heads else None
        return [(0, len(self._days) if first is None else first + 1)]

    @cached_property
    def _index(self) -> _Index:
        return _Index(self._ledger)


class _Index:
    """Which entries of a slice a finding is about."""

    def __init__(self, ledger: LedgerSlice) -> None:
        self._by_batch: dict[tuple[int, int], list[int]] = defaultdict(list)
        for place in range(ledger.anchors, len(ledger.heads)):
            head = ledger.heads[place]
            self._by_batch[head.epoch, head.batch_id].append(place)
        ranges = ledger.ranges
        order = np.lexsort((ranges.start, ranges.partition, ranges.topic))
        order = order[ranges.entry[order] >= ledger.anchors]
        self._ranges: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
        breaks = np.flatnonzero((np.diff(ranges.topic[order]) != 0) | (np.diff(ranges.partition[order]) != 0))
        for part in np.split(order, breaks + 1):
            if len(part):
                _, name, topic_id = ranges.topics[int(ranges.topic[part[0]])]
                reach = np.maximum.accumulate(ranges.end[part])
                columns = (ranges.start[part], ranges.end[part], reach, ranges.entry[part])
                self._ranges[name, int(ranges.partition[part[0]])].append((*columns, topic_id))

    def entries(self, finding: Finding) -> Iterator[int]:
        """The places of these entries."""
        if finding.epoch is not None and finding.batch_id is not None:
            found = self._by_batch.get((finding.epoch, finding.batch_id), ())
            yield from found
            if found:
                return
        if finding.span is None:
            return
        behind: list[int] = []
        for starts, ends, reach, entries, topic_id in self._ranges.get((finding.topic, finding.partition), ()):
            if finding.topic_id is not None and topic_id is not None and finding.topic_id != topic_id:
                continue
            low = int(np.searchsorted(reach, finding.span.start, side="right"))
            high = int(np.searchsorted(starts, finding.span.end))
            touched = entries[low:high][ends[low:high] > finding.span.start]
            if len(touched):
                yield from np.unique(touched).tolist()
                return
            if high < len(entries):  # a gap: the micro-batch that left it out
                behind.append(int(entries[high]))
        yield from behind[:1]


def _state_of(sightings: Sightings, controls: _Controls, names: set[str]) -> tuple[DayState, str] | None:
    """What an exception makes of the days it is about, and how it ended; None where it concerns no such control."""
    record = sightings.record
    code, placed = record.finding.code, record.finding.span is not None or record.finding.batch_id is not None
    if code is Code.INCONCLUSIVE:
        if not names.intersection(record.checks) and not _leaves_open(sightings, controls):
            return None
        if record.open:
            return "not shown", "open"
        if placed and not sightings.answered:
            return "not shown", "not looked at again"
        return ("answered", "accepted") if record.accepted else None
    if code is Code.VIOLATION_WARN:  # refutes nothing, but what rests on this test is not shown by it
        return ("not shown", "open") if record.open and names.intersection(record.checks) else None
    if code is Code.VIOLATION:
        concerns = any(name in names or control_of_test(name) in controls for name in record.checks)
    else:
        concerns = contradicts(code, controls)
    if not concerns:
        return None
    if record.open:
        return "refuted", ""
    return "answered", "accepted" if record.accepted else "closed"


def _leaves_open(sightings: Sightings, controls: _Controls) -> bool:
    """Whether a question that no check of a control's own asks leaves it open all the same.

    Completeness is in question with whatever is read; how old unread records are is not about what was read.
    """
    checks = set(sightings.record.checks)
    tests = {row["check"] for audit in sightings.audits for row in audit.rows if row["kind"] == "data"} & checks
    if any(control_of_test(name) in controls for name in tests):
        return True
    of_unread = checks <= {"kafka_end_offsets"} and (
        sightings.record.finding.partition is None or sightings.record.finding.span is not None
    )
    return "completeness" in controls and not of_unread and bool(checks - tests - set(RUNNING))


def unproved(
    report: ComplianceReport,
    left_out: Sequence[tuple[str, str]] = (),
    begins: Mapping[tuple[str, str], datetime] | None = None,
) -> Iterator[str]:
    """What could not be proved, and what nobody ever witnessed, as sentences.

    `left_out` are (pipeline, sink) that have ledger entries of the period and are not in recon.yml, `begins` as of
    `begin_of`.
    """
    several = len(report.sinks) > 1

    def of(pipeline: str, sink: str) -> str:
        return f" of pipeline {pipeline}, sink {sink}," if several else ""

    for of_sink in report.sinks:
        if of_sink.batches_unproved or of_sink.ranges_unproved:
            batches = plural(of_sink.batches_unproved, "micro-batch", "micro-batches")
            ranges, where = plural(of_sink.ranges_unproved, "range"), of(of_sink.pipeline, of_sink.sink)
            yield f"{batches} and {ranges}{where} could not be proved."
    reasons: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    counts: dict[tuple[str, str, str], int] = defaultdict(int)
    for control in report.controls:
        for days in control.sinks:
            of_reason: dict[str, int] = defaultdict(int)
            for stretch in days.stretches:
                if stretch.state == "not shown":
                    of_reason[stretch.because] += stretch.days
            for because, count in of_reason.items():
                reasons[days.pipeline, days.sink, because].append(control.title)
                counts[days.pipeline, days.sink, because] = max(counts[days.pipeline, days.sink, because], count)
    for (pipeline, sink, because), titles in reasons.items():
        on = plural(counts[pipeline, sink, because], "day")
        yield f"{', '.join(titles)}{of(pipeline, sink)} not shown on {on}: {because}."
    for of_sink in report.sinks:
        if of_sink.days_without_audit:
            missed = plural(len(of_sink.days_without_audit), "day")
            what = f"No audit looked at {missed}{of(of_sink.pipeline, of_sink.sink)} so"
            yield f"{what} nothing is known of what Kafka held then."
        if of_sink.days_partly_audited:
            missed = plural(len(of_sink.days_partly_audited), "day")
            what = f"Audits looked at a part of {missed}{of(of_sink.pipeline, of_sink.sink)} so"
            yield f"{what} nothing is known of what Kafka held in the rest."
    for (pipeline, sink), first in (begins or {}).items():
        before = (min(first, report.generated_at).date() - report.period_from.date()).days
        if first == _NEVER:
            yield f"No ledger entry{of(pipeline, sink)} is of the period or before it: nothing is said of any day."
        elif first > report.period_from and before > 0:
            yield (
                f"The first ledger entry{of(pipeline, sink)} is of {first:%Y-%m-%d %H:%M} UTC: nothing was recorded on "
                f"{plural(before, 'day')} of the period before that, and nothing is said of them."
            )
    for pipeline, sink in left_out:
        what = f"The ledger has entries of pipeline {pipeline}, sink {sink},"
        yield f"{what} which is not in recon.yml: nothing is said of it here."
    seen = [e.finding.message for e in report.exceptions if e.finding.code is Code.UNWITNESSED]
    yield from (f"Never witnessed: {message}." for message in dict.fromkeys(seen))
    if any(not audit.by for audit in report.audits):
        count = sum(not audit.by for audit in report.audits)
        yield f"Who ran {plural(count, 'audit')}, with which recon.yml and options, was not stored."
    unnamed = sum(not action.by and action.kind != "restored" for action in report.actions)
    if unnamed:
        yield (
            f"Who made {plural(unnamed, 'release, repair or removal', 'releases, repairs or removals')}, and why, is "
            "not recorded: an older version of recon made them, or their ledger entries were restored from a record "
            "that does not say."
        )
    alone = [of_sink for of_sink in report.sinks if of_sink.chain.signed == NOT_ANCHORED]
    if alone:
        yield (
            f"The ledgers of {plural(len(alone), 'sink')} are not anchored outside: one who can write a whole ledger "
            "could have written it anew."
        )


__all__ = ["ControlDaysOf", "unproved"]
