"""What the ledger covers of every topic partition, and where it breaks: vectorised, pure.

Entries are walked in reading order, (epoch, batch_id, place in the chain): an entry that was restored
from the Delta log stands later in the chain than it was read. Per topic partition the ranges of consecutive
micro-batches are joined into *stretches* as long as each starts where the one before it ended, so that Python only
looks at deviations. A re-created topic (another topic id) starts a new *incarnation* of its partitions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from recon.base.lazy import np
from recon.model import LedgerSlice
from recon.model.grouping import grouped, spans_by
from recon.model.ledger import sortable
from recon.model.offsets import GrowingSpans, OffsetSpan, Span, Spans
from recon.model.once import kept
from recon.model.positions import contents, is_kafka, partition_name, place

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.integer[Any]]
    Bools = npt.NDArray[np.bool_]

Ranges = tuple[tuple[int, str, int, int, int], ...]  # (source, topic, partition, start, end)


class Key(NamedTuple):
    """A topic partition as one source of the query reads it."""

    source: int
    topic: str
    partition: int

    def __str__(self) -> str:
        return partition_name(self.topic, self.partition)

    def offsets(self, start: int, end: int) -> str:
        """A range in a sentence: of a Delta table its versions, of a file source entries of its log.

        >>> Key(0, "orders", 0).offsets(3, 9), Key(0, "delta:0b9e7c1a", 0).offsets(3_000_000_000, 9_000_000_000)
        ('offsets [3, 9)', 'the rows of versions 3 to 8')
        """
        return contents(self.topic, start, end)

    def place(self, offset: int) -> str:
        """An offset in a sentence: of a Delta table its version, of a file source an entry of its log."""
        return place(self.topic, offset)

    def log_starts_at(self, log_start: int) -> str:
        """Where the log of the source begins, in a clause."""
        if is_kafka(self.topic):
            return f"Kafka's log now starts at {log_start}"
        return f"the log of the source now begins at {self.place(log_start)}"


class Stretch(NamedTuple):
    """What consecutive micro-batches read of one topic partition without a break: [start, end).

    `first` and `last` index the slice's heads; `rows` are the ranges' places in `Coverage.ends`. All of its
    micro-batches are anchors, or none is. `end` < `start` stands alone: so Spark plans a topic that got shorter.
    """

    start: int
    end: int
    first: int
    last: int
    rows: tuple[int, int]


@dataclass
class TopicIncarnation:
    """One topic partition under one topic id, stretches in reading order.

    Stretches of entries before `anchors` stand for all that was read up to there: the slice begins somewhere in the
    chain with the furthest micro-batch of each epoch, and those before it are the business of earlier audits.
    `unnamed` are stretches read before the topic's id was known, `unnamed_since` those read after it was known last:
    where it is the same before and after, it was so in between.
    """

    topic_id: str | None
    stretches: list[Stretch] = field(default_factory=list)
    anchors: int = 0
    unnamed: list[Stretch] = field(default_factory=list)
    unnamed_since: list[Stretch] = field(default_factory=list)

    def add(self, stretch: Stretch, topic_id: str | None) -> None:
        """Adds what was read next, under this topic id or under none that is known."""
        self.stretches.append(stretch)
        if topic_id is not None:
            self.topic_id, self.unnamed_since = topic_id, []
        elif stretch.end > stretch.start:
            (self.unnamed if self.topic_id is None else self.unnamed_since).append(stretch)

    @cached_property
    def walked(self) -> Walked:
        """Holes, overlaps and coverage of this incarnation; computed once, when all stretches are there.

        A hole that a later micro-batch reads after all is none; offsets that two micro-batches read overlap.
        """
        covered, frontier, before = GrowingSpans(), 0, None
        known_to = 0  # the furthest anchor: what is below it is the business of earlier audits, also restored entries'
        events: list[Hole | Span] = []  # holes, and what was read late
        overlaps: list[tuple[Stretch, Spans]] = []
        for stretch in self.stretches:
            start, end = stretch.start, stretch.end
            if end < start:
                frontier = end  # the log got shorter
            elif stretch.first < self.anchors:
                covered.add(min(frontier, start), end)
                events.append(Span(min(known_to, start), end))
                known_to, frontier = max(known_to, end), max(frontier, end)
            elif before is None or start >= frontier:
                if before is not None and start > frontier:
                    events.append(Hole(frontier, start, stretch, before))
                covered.add(start, end)
                frontier = end
            elif end > start:
                new = Spans(tuple(covered.add(start, end)))
                twice = Spans((Span(start, end),)).minus(new)
                if twice:
                    overlaps.append((stretch, twice))
                events.append(Span(start, end))
                frontier = max(frontier, end)
            before = stretch
        return Walked(_unfilled(events), overlaps, covered.spans, frontier)


def _unfilled(events: Sequence[Hole | Span]) -> list[Hole]:
    """What is left of the holes, without what was read late behind them."""
    filled, left = GrowingSpans(), list[Hole]()
    for event in reversed(events):
        if isinstance(event, Hole):
            left += reversed(list(event.without(filled.spans)))
        else:
            filled.add(*event)
    return left[::-1]


class Hole(NamedTuple):
    """Offsets [start, end) that no micro-batch read; `at` is where reading went on, `before` where it stopped."""

    start: int
    end: int
    at: Stretch
    before: Stretch

    def without(self, spans: Spans) -> Iterator[Hole]:
        """What is left of the hole when `spans` are read after all."""
        for start, end in Spans.of([(self.start, self.end)]).minus(spans):
            yield self._replace(start=start, end=end)


class Walked(NamedTuple):
    """What `TopicIncarnation.walked` holds; `frontier` is the position reading has come to."""

    holes: list[Hole]
    overlaps: list[tuple[Stretch, Spans]]
    covered: Spans
    frontier: int


class AllReaders:
    """Which of some stretches read an offset, however often: bisection over the furthest end so far."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._index((stretch.start, stretch.end, place) for place, stretch in enumerate(stretches))

    def _index(self, parts: Iterable[tuple[int, int, int]]) -> None:
        self._parts = sorted(parts)
        self._ends = list(accumulate((end for _, end, _ in self._parts), max))

    def cut(self, wanted: Spans) -> list[tuple[int, Span]]:
        """`wanted` cut up by each stretch that holds it: (place of the stretch, range), in their order."""
        cuts: list[tuple[int, Span]] = []
        for start, end in wanted:
            for i in range(bisect_right(self._ends, start), len(self._parts)):
                low, high, place = self._parts[i]
                if low >= end:
                    break
                if high > start:
                    cuts.append((place, Span(max(low, start), min(high, end))))
        return sorted(cuts)


class FirstReaders(AllReaders):
    """Which of some stretches read each offset first."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        known = GrowingSpans()
        self._index(
            (*part, at) for at, stretch in enumerate(stretches) for part in known.add(stretch.start, stretch.end)
        )


@dataclass(frozen=True)
class Coverage:
    """The ledger's ranges, ready to be judged.

    Args:
        slice: where they come from.
        order: indices of the heads in reading order; left out are replays, and what read nothing: releases, removals.
        replays: entry → the earlier entry whose write it repeats (same epoch, batch_id and ranges, one commit).
        incarnations: per topic partition its incarnations, oldest first.
        ends: end offsets of all ranges, sorted by topic partition and reading order.
        entries: the entry of each of those ranges.
    """

    slice: LedgerSlice
    order: Sequence[int]
    replays: Mapping[int, int]
    incarnations: Mapping[Key, Sequence[TopicIncarnation]]
    ends: Ints
    entries: Ints

    def before(self, entry: int) -> int | None:
        """The micro-batch read just before this entry; None for the first."""
        earlier = reversed(self.order[: self._places[entry]])
        return next((read for read in earlier if self.slice.heads[read].is_micro_batch), None)

    @cached_property
    def micro_batches(self) -> Sequence[int]:
        """The entries of micro-batches in reading order, repairs left out."""
        return [entry for entry in self.order if self.slice.heads[entry].is_micro_batch]

    @cached_property
    def removals(self) -> Mapping[tuple[str, int], Sequence[tuple[int, Span]]]:
        """By topic partition the offsets that repairs looked at to remove doubled rows, with their entries."""
        heads, ranges = self.slice.heads, self.slice.ranges
        removals = (entry for entry, head in enumerate(heads) if head.is_removal)
        return grouped(((r.topic, r.partition), (entry, r.span)) for entry in removals for r in ranges.of(entry))

    @cached_property
    def last_anchor(self) -> int | None:
        """The last micro-batch that was read before the audited period; None where the slice has none."""
        return next((entry for entry in reversed(self.order) if not self.judged(entry)), None)

    def newest(self, key: Key) -> TopicIncarnation | None:
        """The topic under whose id a topic partition was read last; None where it was not read."""
        read = self.incarnations.get(key, ())
        return max(read, key=lambda of: self._places[of.stretches[-1].last], default=None)

    def incarnation_of(self, key: Key, entry: int, offset: int) -> TopicIncarnation | None:
        """The topic of which an entry read an offset, as far as ids of earlier and later entries tell."""
        for incarnation in self.incarnations.get(key, ()):
            of_offset = (stretch for stretch in incarnation.stretches if stretch.start <= offset < stretch.end)
            if any(self.entry_at(stretch, offset) == entry for stretch in of_offset):
                return incarnation
        return None

    def topic_changes(self, key: Key) -> Iterator[tuple[TopicIncarnation, TopicIncarnation, int]]:
        """Where reading went on in another topic of the name: the one before, that one, and its entry."""
        stretches = [(self._places[s.first], s, of) for of in self.incarnations[key] for s in of.stretches]
        for (_, _, old), (_, stretch, new) in pairwise(sorted(stretches, key=lambda read: read[0])):
            if old is not new:
                yield old, new, stretch.first

    def last_read(self, incarnation: TopicIncarnation) -> int | None:
        """The micro-batch that read a topic partition last; None where a repair alone did."""
        reading = (stretch.last for stretch in reversed(incarnation.stretches))
        return next((entry for entry in reading if self.slice.heads[entry].is_micro_batch), None)

    @cached_property
    def _places(self) -> Mapping[int, int]:
        return {entry: place for place, entry in enumerate(self.order)}

    def judged(self, entry: int) -> bool:
        """Whether an entry belongs to the audited period."""
        return entry >= self.slice.anchors

    def judged_entries(self) -> list[int]:
        """Entries of the period in reading order, replays left out."""
        return [entry for entry in self.order if entry >= self.slice.anchors]

    def entry_at(self, stretch: Stretch, offset: int) -> int:
        """The entry of a stretch whose range holds the offset."""
        low, high = stretch.rows
        row = low + int(np.searchsorted(self.ends[low:high], offset, side="right"))
        return int(self.entries[min(row, high - 1)])


@kept
def coverage(slice_: LedgerSlice) -> Coverage:
    """Walks a slice of the ledger, once for all checks; 1.7 million ranges take about a tenth of a second."""
    heads = slice_.heads
    ranked = _ranked(slice_)
    replays = _replays(slice_, ranked)
    order = [entry for entry in ranked if entry not in replays]

    table = slice_.ranges
    names: dict[tuple[int, str], int] = {}
    name_of = np.array([names.setdefault((s, t), len(names)) for s, t, _ in table.topics] or [0], np.int64)
    width = int(table.partition.max()) + 1 if len(table) else 1
    code = sortable(name_of[table.topic] * width + table.partition)
    rows = _Rows(code, table.entry, table.topic, table.start, table.end)
    rows = rows.of_entries(order, len(heads))
    alone = np.array([head.is_repair for head in heads], np.bool_)
    changes = rows.changes(slice_.anchors)
    empty = rows.start == rows.end
    if empty.any():
        # An idle partition says nothing, but where a stretch of reading begins and where it ends.
        last = np.append(changes[1:], True)[: len(changes)]
        rows = rows.take(~empty | changes | last)
        changes = rows.changes(slice_.anchors)
    low = np.flatnonzero(rows.breaks(changes, alone))
    high = np.append(low[1:], len(rows.code))[: len(low)]
    fields = (low, high, rows.code[low], rows.topic[low], rows.start[low], rows.end[high - 1])
    columns = [column.tolist() for column in (*fields, rows.entry[low], rows.entry[high - 1])]
    incarnations = _incarnations(slice_, list(names), width, zip(*columns, strict=True))
    return Coverage(slice_, order, replays, incarnations, rows.end, rows.entry)


class _Rows(NamedTuple):
    """Ranges in columns; `code` stands for (source, topic, partition)."""

    code: Ints
    entry: Ints
    topic: Ints
    start: Ints
    end: Ints

    def take(self, which: Ints | Bools) -> _Rows:
        """Some of the ranges, by mask or by index."""
        return _Rows(*(column[which] for column in self))

    def of_entries(self, order: Sequence[int], heads: int) -> _Rows:
        """The ranges of some entries, by topic partition, and of each in the order of these entries."""
        rank = np.full(heads, -1, np.int64)
        rank[order] = np.arange(len(order))
        rows, places = self, rank[self.entry]
        if (places < 0).any():
            rows, places = rows.take(places >= 0), places[places >= 0]
        if (places[1:] < places[:-1]).any():
            rows = rows.take(np.argsort(places, kind="stable"))
        return rows.take(np.argsort(rows.code, kind="stable"))

    def changes(self, anchors: int) -> Bools:
        """Where another topic partition, another topic id or the audited period begins."""
        found = np.ones(len(self.code), np.bool_)
        judged = self.entry >= anchors
        found[1:] = _differ(self.code) | _differ(self.topic) | _differ(judged)
        return found

    def breaks(self, changes: Bools, alone: Bools) -> Bools:
        """Where a stretch begins: at a change, where a range does not continue, around one that runs backward.

        The ranges of entries that stand `alone` are stretches of their own.
        """
        found = changes.copy()
        if alone.any():
            of_one = alone[self.entry]
            found |= of_one
            found[1:] |= of_one[:-1]
        found[1:] |= self.start[1:] != self.end[:-1]
        backward = self.end < self.start
        found |= backward
        found[1:] |= backward[:-1]
        return found


def _ranked(slice_: LedgerSlice) -> list[int]:
    """The entries that read offsets, in reading order: a repair stands behind the micro-batches that came before it.

    What read nothing is left out: a release (its offsets were accounted for when they were quarantined) and a removal.
    So is a repair before the period: the coverage of the anchors has everything before them.
    """
    heads, front = slice_.heads, (-1, -1)
    places: dict[int, tuple[int, int, int]] = {}
    for i, head in enumerate(heads):
        if head.is_micro_batch:
            front = max(front, (head.epoch, head.batch_id))
            places[i] = (head.epoch, head.batch_id, i)
        elif head.is_repair and i >= slice_.anchors:
            places[i] = (*front, i)
    return sorted(places, key=lambda i: places[i])


def _differ(column: Ints | Bools) -> Bools:
    found: Bools = column[1:] != column[:-1]
    return found


def _incarnations(
    slice_: LedgerSlice, names: Sequence[tuple[int, str]], width: int, rows: Iterator[tuple[int, ...]]
) -> dict[Key, list[TopicIncarnation]]:
    incarnations: dict[Key, list[TopicIncarnation]] = {}
    for low, high, code, topic, start, end, first, last in rows:
        key = Key(*names[code // width], code % width)
        topic_id = slice_.ranges.topics[topic][2]
        mine = incarnations.setdefault(key, [])
        # Another query may still have read the topic that was deleted: its epoch comes later.
        which = next((of for of in reversed(mine) if topic_id is None or of.topic_id in (None, topic_id)), None)
        if which is None:
            which = TopicIncarnation(topic_id, anchors=0 if slice_.complete else slice_.anchors)
            mine.append(which)
        which.add(Stretch(start, end, first, last, (low, high)), topic_id)
    return incarnations


def _replays(slice_: LedgerSlice, ranked: Sequence[int]) -> dict[int, int]:
    """Entries that repeat the write of an earlier one: same epoch, batch_id and ranges, and one data commit."""
    first: dict[tuple[int, int], int] = {}
    found: dict[int, int] = {}
    for i in ranked:
        head = slice_.heads[i]
        known = first.setdefault((head.epoch, head.batch_id), i)
        if known == i:
            continue
        other = slice_.heads[known]
        one_commit = head.sink_version == other.sink_version or None in (head.sink_version, other.sink_version)
        if one_commit and ranges_of(slice_, i) == ranges_of(slice_, known):
            found[i] = known
    return found


def cleaned(slice_: LedgerSlice, topic: str | None, partition: int | None, *, after: int = -1) -> Spans:
    """The offsets of a topic partition whose doubled rows were removed, by entries behind a place in the slice."""
    removals = [i for i, head in enumerate(slice_.heads) if head.is_removal and i > after]
    spans = (s for i in removals for s in slice_.ranges.of(i) if (s.topic, s.partition) == (topic, partition))
    return Spans.of(s.span for s in spans)


def ranges_of(slice_: LedgerSlice, entry: int) -> Ranges:
    """An entry's ranges without topic ids (a replay may meet a broker that the first attempt did not)."""
    return bare(slice_.ranges.of(entry))


def bare(spans: Iterable[OffsetSpan]) -> Ranges:
    """Ranges without topic ids, sorted."""
    return tuple(sorted([(s.source, s.topic, s.partition, s.start_offset, s.end_offset) for s in spans]))


def by_key(ranges: Iterable[tuple[int, str, int, int, int]]) -> dict[Key, Spans]:
    """Ranges per topic partition; one that runs backward reads nothing."""
    return spans_by((Key(source, topic, partition), (start, end)) for source, topic, partition, start, end in ranges)


def by_partition(ranges: Iterable[OffsetSpan]) -> dict[tuple[str, int], Spans]:
    """Ranges per topic and partition, of whichever source; one that runs backward reads nothing."""
    return spans_by(((read.topic, read.partition), read.span) for read in ranges)


def widths(slice_: LedgerSlice) -> list[int]:
    """How many offsets each entry's ranges hold."""
    table = slice_.ranges
    found = np.zeros(len(slice_.heads), np.int64)
    if len(table):
        # Sums in integers: bincount's weights are floats and lose offsets beyond 2^53.
        low = np.flatnonzero(np.append(True, table.entry[1:] != table.entry[:-1]))
        np.add.at(found, table.entry[low], np.add.reduceat(np.maximum(table.end - table.start, 0), low))
    return [int(width) for width in found.tolist()]


def read_last(ledger: LedgerSlice) -> Iterator[Key]:
    """The topic partitions that micro-batches read, newest first."""
    for entry in reversed(coverage(ledger).micro_batches):
        yield from (Key(read.source, read.topic, read.partition) for read in ledger.ranges.of(entry))


def judged_holes(covered: Coverage) -> Iterator[tuple[Key, TopicIncarnation, Hole]]:
    """The holes at which reading went on in the period."""
    for key, incarnations in covered.incarnations.items():
        for incarnation in incarnations:
            for hole in incarnation.walked.holes if len(incarnation.stretches) > 1 else ():
                if covered.judged(hole.at.first):
                    yield key, incarnation, hole
