"""The count identity: do rows and offsets of each micro-batch add up, from the ledger alone?

`end - start = rows + transaction markers + aborted + compacted + expired + unexplained`: where rows (written, filtered
and quarantined) are as many as offsets, nothing is left to explain and no row need be read. A lost and a doubled row
leave the counts as they are; the fingerprints of the offsets, taken during the write, show them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

from recon.judge.coverage import AllReaders, Coverage, FirstReaders, Key, Stretch, coverage, widths
from recon.judge.second_calls import filtered_for_sure
from recon.judge.stateful_operators import Operators
from recon.lazy import np
from recon.model import CountedRows, EntryHead, LedgerSlice
from recon.model.fingerprint import of_entries
from recon.model.offsets import Span, Spans
from recon.model.once import Derived, once


class Counted(NamedTuple):
    """One entry's counts.

    `deficit`: offsets that no counted row accounts for; None when counts cannot say. `dropped`: rows recorded as
    filtered within the entry's own ranges; None when unknown (also where trimming dropped rows of other entries).
    `explodes`: the transform made more rows than it read, so counts prove nothing. `surplus`: more rows than offsets,
    and no transform to make them. `quarantined`: rows written to quarantine. `dropped_by_state`: rows that the query's
    stateful operators dropped, which are part of `dropped`. `missing_at_read`: offsets that had no record when they
    were read; None when Spark did not count. `lost`: rows that the sink was given and does not have, negative for rows
    that it has in addition. `doubted`: fingerprints show other offsets than the counts let expect. `uncounted`: the
    number of rows that were written is all that is known, since the entry was made of its commit and no replay
    counted.
    """

    deficit: int | None
    dropped: int | None
    explodes: bool
    surplus: int
    quarantined: int = 0
    dropped_by_state: int = 0
    missing_at_read: int | None = None
    lost: int = 0
    doubted: bool = False
    uncounted: bool = False

    @property
    def proved(self) -> bool:
        """Whether counts and fingerprints alone prove that every offset is accounted for."""
        return self.deficit == 0 and not (self.explodes or self.surplus or self.doubted or self.lost)


class Piece(NamedTuple):
    """Offsets [start, end) of one entry in one topic partition.

    `leads`: the entry's range begins with them. What Kafka deletes while a micro-batch reads is always a beginning.
    """

    entry: int
    key: Key
    start: int
    end: int
    leads: bool

    @property
    def size(self) -> int:
        """How many offsets it holds."""
        return self.end - self.start

    @property
    def where(self) -> tuple[str, int]:
        """Its topic and partition, whichever source read them."""
        return self.key.topic, self.key.partition


@dataclass(frozen=True)
class Counts:
    """The judged entries of a slice with their counts.

    Args:
        covered: where they lie.
        counted: counts per judged entry, in reading order, replays left out.
        transforms: whether the writer filters or makes rows, as far as entries show.
        operators: what is known of state between source and sink.
        width: offsets per entry of the slice; the rows of its ranges where the source counts these itself.
        given: rows given to a sink that reduces them itself, per (epoch, batch_id).
        uncountable: entries of whose ranges the source does not say how many rows they have.
        derived: what checks found out of it and of other witnesses (`once`).
    """

    covered: Coverage
    counted: Mapping[int, Counted]
    transforms: bool
    operators: Operators = field(default_factory=Operators)
    width: Sequence[int] = ()
    given: Mapping[tuple[int, int], int] = field(default_factory=dict)
    uncountable: frozenset[int] = frozenset()
    derived: Derived = field(default_factory=dict, init=False, compare=False)

    @cached_property
    def open(self) -> list[int]:
        """Entries that counts alone do not prove."""
        return [entry for entry, counts in self.counted.items() if not counts.proved]

    @cached_property
    def only_rebuilt(self) -> bool:
        """Whether no entry was written by the stream itself, so that none can show that nothing is filtered."""
        heads, later = self.covered.slice.heads, self.covered.slice.transforms_later
        return later is None and not any(h.status == "committed" and h.rows_read is not None for h in heads)

    @cached_property
    def judged(self) -> Mapping[tuple[str, int], ReadStretches]:
        """The stretches of the period by (topic, partition)."""
        return stretches_of(self.covered)

    @cached_property
    def overlaps(self) -> Mapping[Key, Spans]:
        """Offsets that an entry of the period read though another entry holds them."""
        twice: dict[Key, list[Span]] = {}
        for key, incarnations in self.covered.incarnations.items():
            for incarnation in incarnations:
                for stretch, spans in incarnation.walked.overlaps if len(incarnation.stretches) > 1 else ():
                    if self.covered.judged(stretch.first):
                        twice.setdefault(key, []).extend(spans)
        return {key: Spans.of(spans) for key, spans in twice.items()}


class ReadStretches:
    """What the entries of the period read of one topic partition, by stretch in reading order."""

    def __init__(self, covered: Coverage, stretches: Sequence[tuple[Key, Stretch]]) -> None:
        self.covered = covered
        self.stretches = stretches
        self.keys = {key for key, _ in stretches}
        self.incarnations = max((len(covered.incarnations[key]) for key in self.keys), default=1)

    @cached_property
    def ranges(self) -> Spans:
        """All offsets that they read."""
        return Spans.of((stretch.start, stretch.end) for _, stretch in self.stretches)

    @cached_property
    def _readers(self) -> FirstReaders:
        return FirstReaders([stretch for _, stretch in self.stretches])

    @cached_property
    def _all_readers(self) -> AllReaders:
        return AllReaders([stretch for _, stretch in self.stretches])

    def pieces(self, wanted: Spans) -> Iterator[Piece]:
        """`wanted` cut up by the entries that read it; offsets that two entries read go to the first."""
        for place, span in self._readers.cut(wanted):
            yield from cut(self.covered, *self.stretches[place], span)

    def readings(self, wanted: Spans) -> Iterator[Piece]:
        """`wanted` cut up by the entries that read it, once for each stretch that holds it."""
        for place, span in self._all_readers.cut(wanted):
            yield from cut(self.covered, *self.stretches[place], span)


def cut(covered: Coverage, key: Key, stretch: Stretch, span: Span) -> Iterator[Piece]:
    """A range of a stretch, cut up by the entries that read it."""
    low, high = stretch.rows
    start, end = span
    row = low + int(np.searchsorted(covered.ends[low:high], start, side="right"))
    begin = int(covered.ends[row - 1]) if row > low else stretch.start
    while start < end:
        upto = min(end, int(covered.ends[row]))
        if upto > start:
            yield Piece(int(covered.entries[row]), key, start, upto, start == begin)
        start = begin = upto
        row += 1


def stretches_of(covered: Coverage) -> Mapping[tuple[str, int], ReadStretches]:
    """The judged stretches by (topic, partition); several sources of one topic fall together."""
    stretches: dict[tuple[str, int], list[tuple[Key, Stretch]]] = {}
    for key, incarnations in covered.incarnations.items():
        for incarnation in incarnations:
            for stretch in incarnation.stretches:
                if covered.judged(stretch.first) and stretch.end > stretch.start:
                    stretches.setdefault((key.topic, key.partition), []).append((key, stretch))
    return {where: ReadStretches(covered, mine) for where, mine in stretches.items()}


def counted_entries(
    ledger: LedgerSlice,
    operators: Operators | None = None,
    given: Mapping[tuple[int, int], int] | None = None,
    in_files: Mapping[tuple[int | None, int, int], int] | None = None,
    *,
    reduces: bool = False,
    filters: bool | None = None,
    explodes: bool | None = None,
    filtered_before: bool = False,
    records: Sequence[int | None] | None = None,
) -> Counts:
    """Counts the entries of a slice.

    `given` are the rows given to a sink that reduces them itself, per (epoch, batch_id): it, and not the transform,
    made fewer of them. `in_files` are those in the files of `TableHistory.appends`. `reduces` is whether the sink may
    leave out rows that it was given.
    `filters` is whether recon.yml says that the transform drops rows; where it must not, dropped rows are missing, and
    where it may, entries that show none prove nothing of one without counts. So it is where it is known that it
    `filtered_before` the slice.
    `explodes` is whether recon.yml says that it makes several rows of one record; counts of rows then say nothing of
    offsets, but for micro-batches in which it returned the rows that it read.
    `records` are the rows that the source has in each entry's ranges, where it counts them itself, None for a number
    that it does not know. Without them, as for Kafka, an offset stands for a record, or for none.
    """
    given = given or {}
    operators = operators or Operators()
    covered = coverage(ledger)
    width = widths(ledger) if records is None else [rows or 0 for rows in records]
    uncountable = frozenset(entry for entry, rows in enumerate(records or ()) if rows is None)
    heads = _completed(covered, in_files or {})
    returned = [_returned(head, given) for head in heads]
    # Only offsets can be recognised as already there.
    trimmed = [records is None and _trimmed(head, width[i]) for i, head in enumerate(heads)]
    transforms = any(
        head.rows_read not in (None, returned[i]) and not trimmed[i] for i, head in enumerate(heads) if head.reads
    )
    transforms = transforms or bool(ledger.transforms_later) or filters is True or filtered_before
    expected = _fingerprints(ledger) if records is None else None
    counted, sure = {}, filtered_for_sure(covered)
    for entry in covered.judged_entries():
        head, size = heads[entry], width[entry]
        if filters is False and (head.rows_filtered or head.is_observed):
            head = replace(head, rows_filtered=0)
        elif entry in sure:
            head = replace(head, rows_filtered=sure[entry])
        counts = _count(head, size, returned[entry], transforms=transforms, operators=operators, trimmed=trimmed[entry])
        if explodes and not operators.keeps_state(head) and not _left_as_read(head):
            counts = Counted(None, 0 if filters is False else None, True, 0, counts.quarantined)
        if entry in uncountable:
            counts = Counted(None, head.rows_filtered, False, 0, head.rows_quarantined or 0)
        counted[entry] = counts._replace(
            missing_at_read=_missing_at_read(head, size, operators),
            lost=0 if reduces else _lost(head),
            uncounted=head.is_uncounted and head.read is None and head.returned is None,
            doubted=not counts.explodes
            and _doubted(head, None if expected is None else CountedRows(size, expected[entry]), operators),
        )
    return Counts(covered, counted, transforms, operators, width, given, uncountable)


def _completed(covered: Coverage, in_files: Mapping[tuple[int | None, int, int], int]) -> Sequence[EntryHead]:
    """The entries; counts that a restored one does not know, the replay of its micro-batch may."""
    heads = [as_in_files(head, in_files) for head in covered.slice.heads]
    for again, first in covered.replays.items():
        head, replay = heads[first], heads[again]
        if head.rows_quarantined is None:
            head = replace(head, rows_quarantined=replay.rows_quarantined)
        if head.rows_read is None and head.status == "rebuilt" and replay.rows_read is not None:
            head = replace(head, rows_read=replay.rows_read, rows_filtered=replay.rows_filtered)
        heads[first] = head
    return heads


def as_in_files(head: EntryHead, in_files: Mapping[tuple[int | None, int, int], int]) -> EntryHead:
    """The entry with the rows that the files of its commit have, where the log says how many these are."""
    rows = in_files.get((head.sink_version, head.epoch, head.batch_id))
    return head if rows in (None, head.rows_written) else replace(head, rows_written=rows)


def _stored(head: EntryHead) -> int | None:
    """Rows that were written and quarantined."""
    return None if head.rows_written is None else head.rows_written + (head.rows_quarantined or 0)


def _returned(head: EntryHead, given: Mapping[tuple[int, int], int]) -> int | None:
    """Rows that the transform returned; not counted there, those written and quarantined by a sink that keeps all."""
    rows = given.get((head.epoch, head.batch_id))
    if rows is not None:
        return rows + (head.rows_quarantined or 0)
    return _stored(head) if head.returned is None else head.returned.rows


def _trimmed(head: EntryHead, width: int) -> bool:
    """Whether more rows were read than the entry's ranges hold: the rest was dropped as already there."""
    return head.rows_read is not None and head.rows_read > width and head.rows_read != _stored(head)


def _fingerprints(ledger: LedgerSlice) -> Sequence[int] | None:
    """The fingerprint that follows from each entry's ranges; None where no entry has one to compare it with."""
    return once(ledger, _fingerprints, lambda: _expected(ledger))


def _expected(ledger: LedgerSlice) -> Sequence[int] | None:
    has_any = any(head.fingerprint_given is not None for head in ledger.heads)
    return of_entries(ledger.ranges, len(ledger.heads)).tolist() if has_any else None


def _missing_at_read(head: EntryHead, width: int, operators: Operators) -> int | None:
    """Offsets of the entry's ranges that had no record when Spark read them; None where the reader did not count."""
    if head.read is None or head.read.fingerprint is None or operators.keeps_state(head) or head.read.rows > width:
        return None
    return width - head.read.rows


def _lost(head: EntryHead) -> int:
    """Rows that the sink was given and does not have; 0 where they were not counted."""
    return 0 if head.given is None or head.rows_written is None else head.given.rows - head.rows_written


def _left_as_read(head: EntryHead) -> bool:
    """Whether fingerprints show that the transform returned the rows that it read."""
    return head.read is not None and head.read.fingerprint is not None and head.read == head.returned


def _doubted(head: EntryHead, expected: CountedRows | None, operators: Operators) -> bool:
    """Whether rows were lost and others doubled between two points where as many rows were counted.

    `expected` is what follows from the ranges, None where nothing does.
    """
    points = [head.read, head.returned]
    if expected is not None and not operators.keeps_state(head):
        points.insert(0, expected)
    if head.rows_quarantined == 0:
        points.append(head.given)
    known = [point for point in points if point is not None and point.fingerprint is not None]
    return any(one.rows == other.rows and one.fingerprint != other.fingerprint for one, other in combinations(known, 2))


def _count(
    head: EntryHead, width: int, returned: int | None, *, transforms: bool, operators: Operators, trimmed: bool
) -> Counted:
    stored, read = _stored(head), head.rows_read
    quarantined = head.rows_quarantined or 0
    dropped = None if trimmed else head.rows_filtered
    dropped_by_state = 0
    if operators.keeps_state(head):
        # foreachBatch receives the rows that stateful operators return, and `rows_read` counts those.
        of_state = operators.dropped(head, returned if read is None else read)
        if of_state is None:
            return Counted(None, None, operators.makes_rows(head), 0, quarantined)
        dropped_by_state = of_state
        if dropped is not None or not transforms:
            dropped = (dropped or 0) + dropped_by_state
    if stored is None:
        return Counted(None, dropped, False, 0, quarantined, dropped_by_state)
    total = stored + (dropped or 0)
    transformed = transforms if read is None else read != returned
    if total > width:
        surplus = 0 if transformed else total - width
        return Counted(None if transformed else 0, dropped, transformed, surplus, quarantined, dropped_by_state)
    # Without a count of what the transform returned, every row more than were read is taken for one of its own.
    made = (returned or 0) if head.returned is not None else max(total - dropped_by_state, returned or 0)
    explodes = read is not None and not trimmed and made > read
    return Counted(None if explodes else width - total, dropped, explodes, 0, quarantined, dropped_by_state)
