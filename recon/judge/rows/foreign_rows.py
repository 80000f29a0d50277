"""Rows that another program added to a table with history, of records that the query may write later.

While the log shows the commit that added them, each audit compares their offsets with the whole table. The query may
read these offsets once the log is cleaned up: so the proof remembers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from typing_extensions import override

from recon.base.lazy import np
from recon.judge.case import SinkCase
from recon.model import WITHOUT_NUMBER, EntryHead, LedgerSlice, RowSearch
from recon.model.grouping import spans_by, united
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.offsets import Spans
from recon.model.proof import memory_of

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


def search(case: SinkCase) -> RowSearch:
    """Which rows of the sink are to be looked for in the whole of it; none in a sink without history."""
    table = case.table
    if table is None:
        return RowSearch()
    rows = case.balance.rows if case.balance is not None else None
    versions = [commit.version for commit in table.others if commit.rows_added != 0]
    versions += sorted(table.log.commits.keys() & {head.sink_version for head in releases(case)})
    return RowSearch(
        versions=versions,
        offsets=united(read_of_others(case), _said_to_be_doubled(case)),
        # Where recon only observes, no row has a number.
        unnumbered=rows is not None and bool(rows.doubt) and not case.observed,
    )


def releases(case: SinkCase) -> Sequence[EntryHead]:
    """The judged releases from quarantine, whose rows the sink may have had already; none where rows share offsets.

    A release has no offsets: that it doubled a row shows in the rows alone, which may be of any earlier micro-batch.
    """
    if case.table is None:
        return []
    judged = case.ledger.heads[case.ledger.anchors :]
    released = [head for head in judged if head.is_release and head.rows_written != 0]
    return [] if released and case.may_repeat else released


def read_of_others(case: SinkCase) -> ByPartition:
    """The offsets that the judged entries read, and of which an earlier audit saw rows of others."""
    if case.table is None or case.table.is_another:
        return {}
    return _as_read(_by_partition(memory_of(case.proof, ForeignRows)), case.ledger)


def _said_to_be_doubled(case: SinkCase) -> ByPartition:
    """The offsets of open findings of doubled rows that the judged entries read.

    One of the rows may be none of the micro-batches whose rows are read; that it is gone, the whole table tells.
    """
    found = ByPartition()
    for of in case.proof.open if case.proof is not None else ():
        topic, partition = of.finding.topic, of.finding.partition
        if of.check == "source_rows" and of.accepted is None and of.is_doubling and topic and partition is not None:
            found = united(found, {(topic, partition): of.spans})
    return _as_read(found, case.ledger)


def _as_read(offsets: ByPartition, ledger: LedgerSlice) -> ByPartition:
    """Those that the judged entries read."""
    both = {where: spans.intersect(_read(ledger, *where)) for where, spans in offsets.items()}
    return {where: spans for where, spans in both.items() if spans}


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
    case, before = SinkCase(audit.witnesses), audit.before
    left = {} if case.table is not None and case.table.is_another else known
    found = audit.witnesses.of_others.get(case.sink)
    if found is None:
        return left
    asked = read_of_others(case)
    of_finding = _without(_said_to_be_doubled(case), asked)
    left = _without(left, asked)
    # Released rows were looked for as well, and the entries that read their offsets may be those of any period.
    earlier = before.coverage if before is not None and releases(case) else ()
    covered = (*audit.coverage, *earlier)
    accounted = spans_by(((of.topic, of.partition), span) for of in covered for span in of.ranges)
    for group in found:
        where, may_be_its_own = (group.topic, group.partition), group.batch_id != WITHOUT_NUMBER
        once = may_be_its_own and group.rows == group.present.size
        new = group.present.minus(accounted.get(where, Spans())) if once else group.present
        left = united(left, {where: new.minus(of_finding.get(where, Spans()))})
    return left


def _without(offsets: ByPartition, others: ByPartition) -> ByPartition:
    return {where: spans.minus(others.get(where, Spans())) for where, spans in offsets.items()}


def bounded(offsets: Mapping[tuple[str, int], Spans], most: int) -> ByPartition:
    """At most so many ranges; where there are more, one per topic partition, which holds other offsets besides.

    >>> bounded({("orders", 0): Spans.of([(0, 1), (9, 10), (11, 12)])}, 2)
    {('orders', 0): Spans(((0, 12),))}
    """
    if sum(len(spans.ranges) for spans in offsets.values()) <= most:
        return dict(offsets)
    return {where: Spans.of([hull]) for where, spans in offsets.items() if (hull := spans.hull)}
