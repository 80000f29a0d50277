"""The count identity: do rows and offsets of each micro-batch add up, from the ledger alone?

`end - start = rows + transaction markers + aborted + compacted + expired + unexplained`: where rows (written, filtered
and quarantined) are as many as offsets, nothing is left to explain and no row need be read. A lost and a doubled row
leave the counts as they are; the fingerprints of the offsets, taken during the write, show them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import ClassVar, NamedTuple, Self

from typing_extensions import override

from recon.base.lazy import np
from recon.judge.coverage import AllReaders, Coverage, FirstReaders, Key, Stretch, by_partition, coverage, widths
from recon.judge.second_calls import filtered_for_sure
from recon.judge.stateful_operators import Operators
from recon.model import CountedRows, EntryHead, LedgerSlice
from recon.model.fingerprint import of_entries
from recon.model.grouping import grouped
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.model.once import kept


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
    explodes: bool = False
    surplus: int = 0
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

    def part(self, start: int, end: int) -> Piece:
        """The piece of a range within it."""
        return self._replace(start=start, end=end, leads=self.leads and start == self.start)

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
    """

    covered: Coverage
    counted: Mapping[int, Counted]
    transforms: bool
    operators: Operators = field(default_factory=Operators)
    width: Sequence[int] = ()
    given: Mapping[tuple[int, int], int] = field(default_factory=dict)

    @property
    def ledger(self) -> LedgerSlice:
        """The slice."""
        return self.covered.slice

    def ranges_of(self, entry: int) -> list[OffsetSpan]:
        """What an entry read; under the topic id that earlier and later entries tell, where it has none itself."""
        read = [read for read in self.ledger.ranges.of(entry) if read.span.size > 0]
        return [self._named(entry, of) if of.topic_id is None else of for of in read]

    def _named(self, entry: int, read: OffsetSpan) -> OffsetSpan:
        key = Key(read.source, read.topic, read.partition)
        incarnation = self.covered.incarnation_of(key, entry, read.start_offset)
        return read._replace(topic_id=incarnation.topic_id) if incarnation is not None else read

    @cached_property
    def open(self) -> list[int]:
        """Entries that counts alone do not prove."""
        return [entry for entry, counts in self.counted.items() if not counts.proved]

    def is_whole(self, entry: int) -> bool:
        """Whether counts prove that an entry wrote a row of each of its offsets."""
        counted = self.counted[entry]
        return counted.proved and not (counted.dropped or counted.quarantined)

    @cached_property
    def only_rebuilt(self) -> bool:
        """Whether no entry was written by the stream itself, so that none can show that nothing is filtered."""
        heads, later = self.ledger.heads, self.ledger.transforms_later
        return later is None and not any(h.status == "committed" and h.rows_read is not None for h in heads)

    @cached_property
    def repaired(self) -> Mapping[tuple[str, int], Spans]:
        """The offsets that repairs read, each with a row."""
        heads = self.ledger.heads
        return by_partition(
            read
            for entry in self.counted
            if heads[entry].is_repair and self.is_whole(entry)
            for read in self.ranges_of(entry)
        )

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
    def by_topic(self) -> Sequence[ReadStretches]:
        """The same for each topic of the name: an offset of one is another record than that of another."""
        if self.incarnations == 1:
            return [self]
        found = grouped((self._topic_id(key, stretch), (key, stretch)) for key, stretch in self.stretches)
        return [ReadStretches(self.covered, mine) for mine in found.values()]

    def readings_of(self, topic_id: str | None, wanted: Spans) -> Iterator[Piece]:
        """`readings` of the topic with this id, and of those without one; of all where it is None."""
        for of_topic in self.by_topic:
            ids = {self._topic_id(*read) for read in of_topic.stretches}
            if topic_id is None or not ids.isdisjoint((topic_id, None)):
                yield from of_topic.readings(wanted)

    def _topic_id(self, key: Key, stretch: Stretch) -> str | None:
        incarnation = self.covered.incarnation_of(key, stretch.first, stretch.start)
        return incarnation.topic_id if incarnation is not None else None

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


def spans_of(pieces: Iterable[Piece]) -> Mapping[tuple[str, int], Spans]:
    """The offsets of some pieces by (topic, partition)."""
    found: defaultdict[tuple[str, int], list[Span]] = defaultdict(list)
    for piece in pieces:
        found[piece.where].append(Span(piece.start, piece.end))
    return {where: Spans.of(spans) for where, spans in found.items()}


def inside(pieces: Iterable[Piece], spans: Spans) -> Iterator[Piece]:
    """The parts of the pieces that lie in `spans`."""
    if not spans:
        return
    for piece in pieces:
        for start, end in Spans.of([(piece.start, piece.end)]).intersect(spans):
            yield piece.part(start, end)


def outside(pieces: Iterable[Piece], spans: Spans) -> Iterator[Piece]:
    """The parts of the pieces that lie in none of `spans`."""
    for piece in pieces:
        if not spans:
            yield piece
            continue
        for start, end in Spans.of([(piece.start, piece.end)]).minus(spans):
            yield piece.part(start, end)


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


@dataclass(frozen=True, kw_only=True)
class Filtered(SinkMemory):
    """That the transform dropped rows of a micro-batch that was judged."""

    name: ClassVar[str] = "filtered"

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        return before or (cls() if any(head.rows_filtered for head in audit.settled) else None)


class Processing(NamedTuple):
    """What is known of what happens to rows between source and sink, beside what entries show.

    Args:
        operators: what is known of state between source and sink.
        given: rows given to a sink that reduces them itself, per (epoch, batch_id): it, and not the transform, made
            fewer of them.
        in_files: rows in the files of `TableHistory.appends`.
        reduces: whether the sink may leave out rows that it was given.
        filters: whether recon.yml says that the transform drops rows; where it must not, dropped rows are missing, and
            where it may, entries that show none prove nothing of one without counts.
        explodes: whether recon.yml says that it makes several rows of one record; counts of rows then say nothing of
            offsets, but for micro-batches in which it returned the rows that it read.
        filtered_before: whether it is known that it dropped rows before the slice; what follows is that of `filters`.
        records: the rows that the source has in each entry's ranges, where it counts them itself, None for a number
            that it does not know. Without them, as for Kafka, an offset stands for a record, or for none.
    """

    operators: Operators = Operators()
    given: Mapping[tuple[int, int], int] = {}
    in_files: Mapping[tuple[int | None, int, int], int] = {}
    reduces: bool = False
    filters: bool | None = None
    explodes: bool | None = None
    filtered_before: bool = False
    records: Sequence[int | None] | None = None


_NOTHING_KNOWN = Processing()


@kept
def counted_entries(ledger: LedgerSlice, how: Processing = _NOTHING_KNOWN) -> Counts:
    """Counts the entries of a slice."""
    covered = coverage(ledger)
    entries = _entries(covered, how)
    shown = (entry.is_transformed for entry in entries)
    transforms = any((how.filters, how.filtered_before, ledger.transforms_later, *shown))
    counted = {place: entries[place].counted(transforms) for place in covered.judged_entries()}
    width = [entry.width or 0 for entry in entries]
    return Counts(covered, counted, transforms, how.operators, width, how.given)


def _entries(covered: Coverage, processing: Processing) -> Sequence[_Entry]:
    """The entries of a slice, with what their counts are held against."""
    heads, ledger = _completed(covered, processing), covered.slice
    if processing.records is not None:
        return [_Entry(*each, None, processing) for each in zip(heads, processing.records, strict=True)]
    expected = _fingerprints(ledger)
    return [_Entry(*each, processing) for each in zip(heads, widths(ledger), expected, strict=True)]


def _completed(covered: Coverage, processing: Processing) -> Sequence[EntryHead]:
    """The entries with the counts that others tell of them."""
    heads = [as_in_files(head, processing.in_files) for head in covered.slice.heads]
    for again, first in covered.replays.items():
        heads[first] = _with_replay(heads[first], heads[again])
    dropped: dict[int, int | None] = {**filtered_for_sure(covered)}
    if processing.filters is False:
        dropped |= {place: 0 for place, head in enumerate(heads) if head.rows_filtered or head.is_observed}
    for place, rows in dropped.items():
        heads[place] = replace(heads[place], rows_filtered=rows)
    return heads


def _with_replay(head: EntryHead, replay: EntryHead) -> EntryHead:
    """The entry; counts that a restored one does not know, the replay of its micro-batch may."""
    if head.rows_quarantined is None:
        head = replace(head, rows_quarantined=replay.rows_quarantined)
    if head.rows_read is None and head.status == "rebuilt" and replay.rows_read is not None:
        head = replace(head, rows_read=replay.rows_read, rows_filtered=replay.rows_filtered)
    return head


def as_in_files(head: EntryHead, in_files: Mapping[tuple[int | None, int, int], int]) -> EntryHead:
    """The entry with the rows that the files of its commit have, where the log says how many these are."""
    rows = in_files.get((head.sink_version, head.epoch, head.batch_id))
    return head if rows in (None, head.rows_written) else replace(head, rows_written=rows)


@kept
def _fingerprints(ledger: LedgerSlice) -> Sequence[int | None]:
    """The fingerprint that follows from each entry's ranges; None where no entry has one to compare it with."""
    has_any = any(head.fingerprint_given is not None for head in ledger.heads)
    return of_entries(ledger.ranges, len(ledger.heads)).tolist() if has_any else [None] * len(ledger.heads)


@dataclass(frozen=True)
class _Entry:
    """An entry as it is counted.

    `width` is as in `Counts`, None where the source does not say it; `expected` is the fingerprint that follows from
    its ranges, None where nothing does.
    """

    head: EntryHead
    width: int | None
    expected: int | None
    processing: Processing

    def counted(self, transforms: bool) -> Counted:
        """Its counts, where `transforms` is whether the writer filters or makes rows, as far as entries show."""
        head, counts = self.head, self._added_up(transforms)
        given, written = head.given, head.rows_written
        return counts._replace(
            quarantined=head.rows_quarantined or 0,
            missing_at_read=self._missing_at_read,
            lost=0 if given is None or written is None or self.processing.reduces else given.rows - written,
            doubted=not counts.explodes and self._is_doubted,
            uncounted=head.is_uncounted and head.read is None and head.returned is None,
        )

    def _added_up(self, transforms: bool) -> Counted:
        """Rows and offsets against each other; the first that applies."""
        if self.width is None:
            return Counted(None, self.head.rows_filtered)
        if self._may_explode:
            return Counted(None, 0 if self.processing.filters is False else None, explodes=True)
        # foreachBatch receives the rows that stateful operators return, and `rows_read` counts those.
        read = self.head.rows_read
        by_state = self.processing.operators.dropped(self.head, self._returned if read is None else read)
        if by_state is None:
            return Counted(None, None, explodes=self.processing.operators.makes_rows(self.head))
        dropped = self._dropped(by_state, transforms)
        if self._stored is None:
            return Counted(None, dropped, dropped_by_state=by_state)
        total = self._stored + (dropped or 0)
        made = self._makes_rows(total, total - by_state, transforms)
        over = 0 if made else total - self.width
        return Counted(None if made else max(-over, 0), dropped, made, max(over, 0), dropped_by_state=by_state)

    @cached_property
    def is_transformed(self) -> bool:
        """Whether its counts show that the transform drops or makes rows."""
        return self.head.reads and not self._is_trimmed and self.head.rows_read not in (None, self._returned)

    @cached_property
    def _keeps_state(self) -> bool:
        return self.processing.operators.keeps_state(self.head)

    @cached_property
    def _stored(self) -> int | None:
        """Rows that were written and quarantined."""
        return None if self.head.rows_written is None else self.head.rows_written + (self.head.rows_quarantined or 0)

    @cached_property
    def _returned(self) -> int | None:
        """Rows that the transform returned; not counted there, those that were stored by a sink that keeps all."""
        rows = self.processing.given.get((self.head.epoch, self.head.batch_id))
        if rows is not None:
            return rows + (self.head.rows_quarantined or 0)
        return self._stored if self.head.returned is None else self.head.returned.rows

    @property
    def _returned_nothing(self) -> bool:
        """Whether Spark saw from the transform alone that it returns no row, as of `where("1 = 0")`, and read nothing.

        Spark reports all counts of a write at once: the rows read are not counted only where its plan lacks the read.
        """
        returned = self.head.returned
        is_empty = returned is not None and returned.rows == 0 and self._stored == 0
        return is_empty and self.head.rows_read is None and self.processing.filters is not False

    @cached_property
    def _is_trimmed(self) -> bool:
        """Whether more rows were read than its ranges hold: the rest was dropped as already there, as offsets tell."""
        read = self.head.rows_read or 0
        return self.processing.records is None and read > (self.width or 0) and read != self._stored

    def _dropped(self, by_state: int, transforms: bool) -> int | None:
        """Rows that the transform and stateful operators dropped."""
        dropped = self.width if self._returned_nothing else None if self._is_trimmed else self.head.rows_filtered
        if not self._keeps_state or (dropped is None and transforms):
            return dropped
        return (dropped or 0) + by_state

    def _makes_rows(self, total: int, accounted: int, transforms: bool) -> bool:
        """Whether more rows came out of the transform than went in."""
        read, returned = self.head.rows_read, self._returned
        if total > (self.width or 0):
            return transforms if read is None else read != returned
        # Without a count of what the transform returned, every row more than were read is taken for one of its own.
        made = max(returned or 0, 0 if self.head.returned else accounted)
        return read is not None and not self._is_trimmed and made > read

    @property
    def _missing_at_read(self) -> int | None:
        """Offsets of its ranges that had no record when Spark read them; None where the reader did not count."""
        read, width = self.head.read, self.width or 0
        if read is None or read.fingerprint is None or self._keeps_state or read.rows > width:
            return None
        return width - read.rows

    @property
    def _may_explode(self) -> bool:
        """Whether several rows were made of a record, for all that is known: no fingerprint shows that none were."""
        read = self.head.read
        is_left_as_read = read is not None and read.fingerprint is not None and read == self.head.returned
        return bool(self.processing.explodes) and not self._keeps_state and not is_left_as_read

    @property
    def _is_doubted(self) -> bool:
        """Whether rows were lost and others doubled between two points where as many rows were counted."""
        points = [self.head.read, self.head.returned]
        if self.expected is not None and not self._keeps_state:
            points.insert(0, CountedRows(self.width or 0, self.expected))
        if self.head.rows_quarantined == 0:
            points.append(self.head.given)
        known = [point for point in points if point is not None and point.fingerprint is not None]
        return any(a.rows == b.rows and a.fingerprint != b.fingerprint for a, b in combinations(known, 2))
