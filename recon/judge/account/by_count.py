"""What numbers say of a micro-batch: how many of its offsets are of each class, where nothing says which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from recon.judge.coverage import by_partition, is_compacted
from recon.judge.row_accounting import Account, Counted
from recon.judge.rows.reasons import is_attested
from recon.judge.rows.rewriting import held_in_kafka, may_have_dropped, ranges_read
from recon.model import Witnesses
from recon.model.account import HowKnown, OffsetClass
from recon.model.offsets import Spans
from recon.model.once import once

if TYPE_CHECKING:
    pass


class Share(NamedTuple):
    """So many offsets of a micro-batch are of a class."""

    offset_class: OffsetClass
    how: HowKnown
    offsets: int


def shares(counts: Account, witnesses: Witnesses, entry: int, size: int) -> Iterator[Share]:
    """The classes of an entry's offsets; their numbers add up to `size`.

    `size` are the offsets that it was the first to read. Where these are not all of its ranges, or where rows do not
    answer to offsets, its counts say nothing of them.
    """
    counted = counts.counted[entry]
    if size == counts.width[entry] and is_attested(counts, witnesses, entry):
        yield Share(OffsetClass.IN_A_ROW, HowKnown.SPARK, size)
        return
    short = (counted.deficit or 0) + (counted.dropped or 0) + counted.quarantined
    if size != counts.width[entry] or short > size or not _tells(counted):
        yield Share(OffsetClass.NOT_KNOWN, HowKnown.NOTHING, size)
        return
    of_class = (
        (OffsetClass.IN_A_ROW, size - short),
        (OffsetClass.QUARANTINED, counted.quarantined),
        (OffsetClass.FILTERED, counted.dropped or 0),
        (OffsetClass.LOST, counted.lost),
    )
    for offset_class, offsets in of_class:
        if offsets:
            yield Share(offset_class, HowKnown.COUNTED, offsets)
    if counted.deficit and not counted.lost:
        yield from _without_a_row(counts, counted, witnesses, entry)


def _tells(counted: Counted) -> bool:
    """Whether counts say how many of an entry's offsets have a row, each no more than one."""
    several = counted.explodes or counted.surplus or counted.doubted
    return counted.deficit is not None and not several and counted.lost in (0, counted.deficit)


def _without_a_row(counts: Account, counted: Counted, witnesses: Witnesses, entry: int) -> Iterator[Share]:
    """The offsets that no counted row accounts for: those without a record, as Kafka says, and the rest."""
    head, left = counts.covered.slice.heads[entry], counted.deficit or 0
    if not (witnesses.probes or witnesses.source_log):  # Kafka was not asked
        yield Share(OffsetClass.NOT_KNOWN, HowKnown.NOTHING, left)
        return
    absent = aborted = 0
    for read in ranges_read(counts, entry):
        answer = held_in_kafka(read, witnesses)
        if isinstance(answer, str):
            yield Share(OffsetClass.NOT_KNOWN, HowKnown.NOTHING, left)
            return
        absent, aborted = absent + answer["absent"], aborted + answer["aborted"]
    if (head.isolation_level or witnesses.isolation_level) == "read_uncommitted":
        aborted = 0  # their records were read as well
    if absent + aborted > left:
        yield Share(OffsetClass.NOT_KNOWN, HowKnown.NOTHING, left)
        return
    compacts = all(is_compacted(read.topic, witnesses) for read in ranges_read(counts, entry))
    for offset_class, offsets in (
        (OffsetClass.COMPACTED if compacts else OffsetClass.MARKER, absent),
        (OffsetClass.ABORTED, aborted),
    ):
        if offsets:
            yield Share(offset_class, HowKnown.KAFKA, offsets)
    left -= absent + aborted
    again = min(left, _read_again(counts, entry))
    if again:
        yield Share(OffsetClass.IN_A_ROW, HowKnown.COUNTED, again)
    if left > again:
        unsure = may_have_dropped(head, counts, counted.dropped)
        known = (OffsetClass.NOT_KNOWN, HowKnown.NOTHING) if unsure else (OffsetClass.LOST, HowKnown.KAFKA)
        yield Share(*known, left - again)


def _read_again(counts: Account, entry: int) -> int:
    """How many offsets of an entry repairs read once more, and have a row of each."""
    again, repaired = 0, once(counts, _repaired, lambda: _repaired(counts))
    for read in ranges_read(counts, entry) if repaired else ():
        again += Spans.of([read.span]).intersect(repaired.get((read.topic, read.partition), Spans())).size
    return again


def _repaired(counts: Account) -> Mapping[tuple[str, int], Spans]:
    """The offsets that repairs read, each with a row."""
    heads = counts.covered.slice.heads
    return by_partition(
        read
        for entry, counted in counts.counted.items()
        if heads[entry].is_repair and counted.proved and not (counted.dropped or counted.quarantined)
        for read in ranges_read(counts, entry)
    )
