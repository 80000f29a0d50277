"""Rows that another program added to a table with history, of records that the query may write later.

While the log shows the commit that added them, each audit compares their offsets with the whole table. The query may
read these offsets once the log is cleaned up: so the proof remembers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import ClassVar, Self

from typing_extensions import override

from recon.judge.history.database_counts import may_repeat
from recon.judge.history.entries import entries_with_unrecorded_commits
from recon.judge.history.row_balance import compared
from recon.judge.history.table_history import TableVersion, history_of
from recon.lazy import np
from recon.model import WITHOUT_NUMBER, EntryHead, LedgerSlice, RowSearch, Witnesses
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.offsets import Span, Spans

MOST_RANGES = 1_000  # that are remembered: some 20 kB

ByPartition = dict[tuple[str, int], Spans]


@dataclass(frozen=True, kw_only=True)
class OffsetsOfOthers:
    """Offsets of one topic partition of which an audit saw rows that another program had added to the sink.

    The ranges are half-open and ascending, and may hold other offsets besides.
    """

    topic: str
    partition: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class ForeignRows(SinkMemory):
    """The offsets of rows of others that the query may write, or write again, later.

    When it does, the sink has them twice, and its log need not show the commits of the others any more.
    """

    name: ClassVar[str] = "foreign_rows"
    offsets: tuple[OffsetsOfOthers, ...]

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        left = bounded(_left(_by_partition(before), audit), MOST_RANGES)
        offsets = tuple(
            OffsetsOfOthers(topic=topic, partition=partition, ranges=tuple((a, b) for a, b in spans))
            for (topic, partition), spans in sorted(left.items())
            if spans
        )
        return cls(offsets=offsets) if offsets else None


def search(witnesses: Witnesses) -> RowSearch:
    """Which rows of the judged sink are to be looked for in the whole of it; none in a sink without history."""
    ledger = entries_with_unrecorded_commits(witnesses)
    history = history_of(witnesses, ledger)
    if history is None or ledger is None:
        return RowSearch()
    rows = compared(witnesses, history)
    versions = [commit.version for commit in history.others if commit.rows_added != 0]
    versions += sorted(history.log.commits.keys() & {head.sink_version for head in releases(witnesses)})
    return RowSearch(
        versions=versions,
        offsets=_joined(read_of_others(witnesses), _said_to_be_doubled(witnesses)),
        # Where recon only observes, no row has a number.
        unnumbered=rows is not None and bool(rows.doubt) and not witnesses.observed,
    )


def releases(witnesses: Witnesses) -> Sequence[EntryHead]:
    """The judged releases from quarantine, whose rows the sink may have had already; none where rows share offsets.

    A release has no offsets: that it doubled a row shows in the rows alone, which may be of any earlier micro-batch.
    """
    ledger = entries_with_unrecorded_commits(witnesses)
    if ledger is None or witnesses.table_log is None:
        return []
    judged = [head for head in ledger.heads[ledger.anchors :] if head.is_release and head.rows_written != 0]
    return [] if judged and may_repeat(witnesses) else judged


def read_of_others(witnesses: Witnesses) -> ByPartition:
    """The offsets that the judged entries read, and of which an earlier audit saw rows of others."""
    history = history_of(witnesses, witnesses.ledger)
    if history is None or history.is_another:
        return {}
    return _as_read(_by_partition(witnesses.memory(ForeignRows)), witnesses)


def _said_to_be_doubled(witnesses: Witnesses) -> ByPartition:
    """The offsets of open findings of doubled rows that the judged entries read.

    One of the rows may be none of the micro-batches whose rows are read; that it is gone, the whole table tells.
    """
    proof, found = witnesses.proof, ByPartition()
    for one in proof.open if proof is not None else ():
        topic, partition = one.finding.topic, one.finding.partition
        if one.check == "source_rows" and one.accepted is None and one.is_doubling and topic and partition is not None:
            found = _joined(found, {(topic, partition): one.spans})
    return _as_read(found, witnesses)


def _as_read(offsets: ByPartition, witnesses: Witnesses) -> ByPartition:
    """Those that the judged entries read."""
    ledger = entries_with_unrecorded_commits(witnesses)
    if ledger is None:
        return {}
    both = {where: spans.intersect(_read(ledger, *where)) for where, spans in offsets.items()}
    return {where: spans for where, spans in both.items() if spans}


def _joined(one: ByPartition, other: ByPartition) -> ByPartition:
    return {where: one.get(where, Spans()).union(other.get(where, Spans())) for where in (*one, *other)}


def _read(ledger: LedgerSlice, topic: str, partition: int) -> Spans:
    """What the judged entries read of a topic partition."""
    ranges = ledger.ranges
    topics = [i for i, (_, name, _) in enumerate(ranges.topics) if name == topic]
    mine = (ranges.entry >= ledger.anchors) & (ranges.partition == partition) & np.isin(ranges.topic, topics)
    spans = zip(ranges.start[mine].tolist(), ranges.end[mine].tolist(), strict=True)
    return Spans.of((start, end) for start, end in spans if start < end)


def _by_partition(known: ForeignRows | None) -> ByPartition:
    offsets = known.offsets if known is not None else ()
    return {(of.topic, of.partition): Spans.of(of.ranges) for of in offsets}


def _left(known: ByPartition, audit: SinkAudit) -> ByPartition:
    """The offsets that the next audits have to know.

    Of the rows that this audit looked for, these are: those that are there several times; those that no entry accounts
    for; and those without a number, which stand for no row of the query, so that a repair may write one yet.
    """
    witnesses, before = audit.witnesses, audit.before
    left = {} if _is_replaced(witnesses) else known
    found = witnesses.of_others.get(witnesses.sink or "")
    if found is None:
        return left
    asked, accounted = read_of_others(witnesses), ByPartition()
    of_finding = _without(_said_to_be_doubled(witnesses), asked)
    left = _without(left, asked)
    # Released rows were looked for as well, and the entries that read their offsets may be those of any period.
    earlier = before.coverage if before is not None and releases(witnesses) else ()
    for covered in (*audit.coverage, *earlier):
        accounted = _joined(accounted, {(covered.topic, covered.partition): Spans.of(covered.ranges)})
    for group in found:
        where, may_be_its_own = (group.topic, group.partition), group.batch_id != WITHOUT_NUMBER
        once = may_be_its_own and group.rows == group.present.size
        new = group.present.minus(accounted.get(where, Spans())) if once else group.present
        left = _joined(left, {where: new.minus(of_finding.get(where, Spans()))})
    return left


def _without(offsets: ByPartition, others: ByPartition) -> ByPartition:
    return {where: spans.minus(others.get(where, Spans())) for where, spans in offsets.items()}


def _is_replaced(witnesses: Witnesses) -> bool:
    """Whether the sink's table is another one than the newest audit judged."""
    judged, table = witnesses.memory(TableVersion), witnesses.table_log
    ids = {seen.table_id for seen in (judged, table) if seen is not None} - {None}
    return len(ids) > 1


def bounded(offsets: Mapping[tuple[str, int], Spans], most: int) -> ByPartition:
    """At most so many ranges, or one per topic partition: those with the fewest offsets between them are joined.

    >>> bounded({("orders", 0): Spans.of([(0, 1), (9, 10), (11, 12)])}, 2)
    {('orders', 0): Spans(((0, 1), (9, 12)))}
    """
    too_many = sum(len(spans.ranges) for spans in offsets.values()) - most
    gaps = (
        (after.start - before.end, where, Span(before.end, after.start))
        for where, spans in offsets.items()
        for before, after in zip(spans.ranges, spans.ranges[1:], strict=False)
    )
    joined: dict[tuple[str, int], list[Span]] = {where: [*spans] for where, spans in offsets.items()}
    for _, where, gap in nsmallest(max(too_many, 0), gaps):
        joined[where].append(gap)
    return {where: Spans.of(spans) for where, spans in joined.items()}
