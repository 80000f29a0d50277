"""What numbers say of a micro-batch: how many of its offsets are of each class, where nothing says which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from recon.judge.coverage import by_partition, is_compacted
from recon.judge.row_counts import Counted, Counts
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


def shares(counts: Counts, witnesses: Witnesses, entry: int, size: int) -> Iterator[Share]:
    """The classes of an entry's offsets; their numbers add up to `size`.

    `size` are the offsets that it was the first to read. Where these are not all of its ranges, or where rows do not
    answer to offsets, its counts say nothing of them.
    """
    counted, whole = counts.counted[entry], size == counts.width[entry]
    if whole and is_attested(counts, witnesses, entry):
        yield Share(OffsetClass.IN_A_ROW, HowKnown.SPARK, size)
    elif not whole or not _tells(counted) or _without_row(counted) > size:
        yield Share(OffsetClass.NOT_KNOWN, HowKnown.NOTHING, size)
    else:
        yield from _counted(counted, size)
        if counted.deficit and not counted.lost:
            yield from _explained(counts, counted, witnesses, entry)


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


def _explained(counts: Counts, counted: Counted, witnesses: Witnesses, entry: int) -> Iterator[Share]:
    """The offsets that no counted row accounts for: those without a record, as Kafka says, and the rest."""
    left, said = counted.deficit or 0, _said_by_kafka(counts, witnesses, entry)
    if said is None or sum(share.offsets for share in said) > left:
        yield Share(OffsetClass.NOT_KNOWN, HowKnown.NOTHING, left)
        return
    yield from (share for share in said if share.offsets)
    yield from _records(counts, counted, entry, left - sum(share.offsets for share in said))


def _records(counts: Counts, counted: Counted, entry: int, left: int) -> Iterator[Share]:
    """Records of an entry that no counted row accounts for: read again by a repair, filtered or lost."""
    again = min(left, _read_again(counts, entry))
    if again:
        yield Share(OffsetClass.IN_A_ROW, HowKnown.COUNTED, again)
    if left > again:
        unsure = may_have_dropped(counts.covered.slice.heads[entry], counts, counted.dropped)
        known = (OffsetClass.NOT_KNOWN, HowKnown.NOTHING) if unsure else (OffsetClass.LOST, HowKnown.KAFKA)
        yield Share(*known, left - again)


def _said_by_kafka(counts: Counts, witnesses: Witnesses, entry: int) -> Sequence[Share] | None:
    """How many offsets of an entry have no record for its query; None where Kafka does not show all of them."""
    held: Counter[str] = Counter()
    read = ranges_read(counts, entry) if witnesses.probes else []
    for one in read:
        answer = held_in_kafka(one, witnesses)
        if isinstance(answer, str):
            return None
        held.update(answer)
    if not read:
        return None
    absent, aborted = held["absent"], held["aborted"]
    if (counts.covered.slice.heads[entry].isolation_level or witnesses.isolation_level) == "read_uncommitted":
        aborted = 0  # their records were read as well
    compacts = all(is_compacted(one.topic, witnesses) for one in read)
    kind = OffsetClass.COMPACTED if compacts else OffsetClass.MARKER
    return Share(kind, HowKnown.KAFKA, absent), Share(OffsetClass.ABORTED, HowKnown.KAFKA, aborted)


def _read_again(counts: Counts, entry: int) -> int:
    """How many offsets of an entry repairs read once more, and have a row of each."""
    again, repaired = 0, once(counts, _repaired, lambda: _repaired(counts))
    for read in ranges_read(counts, entry) if repaired else ():
        again += Spans.of([read.span]).intersect(repaired.get((read.topic, read.partition), Spans())).size
    return again


def _repaired(counts: Counts) -> Mapping[tuple[str, int], Spans]:
    """The offsets that repairs read, each with a row."""
    heads = counts.covered.slice.heads
    return by_partition(
        read
        for entry, counted in counts.counted.items()
        if heads[entry].is_repair and counted.proved and not (counted.dropped or counted.quarantined)
        for read in ranges_read(counts, entry)
    )
