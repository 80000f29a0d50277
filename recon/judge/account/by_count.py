"""What numbers say of a micro-batch: how many of its offsets are of each class, where nothing says which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recon.judge.row_counts import Counted
from recon.judge.rows.reasons import is_attested
from recon.judge.rows.rewriting import MicroBatch, SourceCounts, may_have_dropped
from recon.model.account import HowKnown, OffsetClass
from recon.model.offsets import Spans


class Share(NamedTuple):
    """So many offsets of a micro-batch are of a class."""

    offset_class: OffsetClass
    how: HowKnown
    offsets: int


def shares(against: SourceCounts, entry: int, size: int, *, rewrites: bool) -> Iterator[Share]:
    """The classes of an entry's offsets; their numbers add up to `size`.

    `size` are the offsets that it was the first to read. Where these are not all of its ranges, or where rows do not
    answer to offsets, its counts say nothing of them.
    """
    counts, counted = against.counts, against.counts.counted[entry]
    whole = size == counts.width[entry]
    if whole and is_attested(counts, entry, rewrites=rewrites):
        yield Share(OffsetClass.IN_A_ROW, HowKnown.SPARK, size)
    elif not whole or not _tells(counted) or _without_row(counted) > size:
        yield Share(OffsetClass.NOT_KNOWN, HowKnown.NOTHING, size)
    else:
        yield from _counted(counted, size)
        if counted.deficit and not counted.lost:
            yield from _explained(MicroBatch(against, entry))


def _counted(counted: Counted, size: int) -> Iterator[Share]:
    of_class = (
        (OffsetClass.IN_A_ROW, size - _without_row(counted)),
        (OffsetClass.QUARANTINED, counted.quarantined),
        (OffsetClass.FILTERED, counted.dropped or 0),
        (OffsetClass.LOST, counted.lost),
    )
    return (Share(of, HowKnown.COUNTED, offsets) for of, offsets in of_class if offsets)


def _without_row(counted: Counted) -> int:
    """How many offsets have no row of the sink."""
    return (counted.deficit or 0) + (counted.dropped or 0) + counted.quarantined


def _tells(counted: Counted) -> bool:
    """Whether counts say how many of an entry's offsets have a row, each no more than one."""
    several = counted.explodes or counted.surplus or counted.doubted
    return counted.deficit is not None and not several and counted.lost in (0, counted.deficit)


def _explained(batch: MicroBatch) -> Iterator[Share]:
    """The offsets that no counted row accounts for: those without a record, as Kafka says, and the rest."""
    left, said = batch.counted.deficit or 0, _said_by_kafka(batch)
    if said is None or sum(share.offsets for share in said) > left:
        yield Share(OffsetClass.NOT_KNOWN, HowKnown.NOTHING, left)
        return
    yield from (share for share in said if share.offsets)
    yield from _records(batch, left - sum(share.offsets for share in said))


def _records(batch: MicroBatch, left: int) -> Iterator[Share]:
    """Records of an entry that no counted row accounts for: read again by a repair, filtered or lost."""
    again = min(left, _read_again(batch))
    if again:
        yield Share(OffsetClass.IN_A_ROW, HowKnown.COUNTED, again)
    if left > again:
        unsure = may_have_dropped(batch.head, batch.counts, batch.counted.dropped)
        known = (OffsetClass.NOT_KNOWN, HowKnown.NOTHING) if unsure else (OffsetClass.LOST, HowKnown.KAFKA)
        yield Share(*known, left - again)


def _said_by_kafka(batch: MicroBatch) -> Sequence[Share] | None:
    """How many offsets of an entry have no record for its query; None where Kafka does not show all of them."""
    if not batch.source.answers or not batch.ranges or batch.unread:
        return None
    aborted = 0 if batch.reads_uncommitted else batch.held("aborted")  # else their records were read as well
    compacts = all(batch.source.is_compacted(read.topic) for read in batch.ranges)
    kind = OffsetClass.COMPACTED if compacts else OffsetClass.MARKER
    return Share(kind, HowKnown.KAFKA, batch.held("absent")), Share(OffsetClass.ABORTED, HowKnown.KAFKA, aborted)


def _read_again(batch: MicroBatch) -> int:
    """How many offsets of a micro-batch repairs read once more, and have a row of each."""
    again, repaired = 0, batch.counts.repaired
    for read in batch.ranges if repaired else ():
        again += Spans.of([read.span]).intersect(repaired.get((read.topic, read.partition), Spans())).size
    return again
