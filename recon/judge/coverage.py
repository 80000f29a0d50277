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
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from typing_extensions import override

from recon.lazy import np
from recon.model import Code, LedgerSlice, SourceFiles, SourceLog, Unavailable, Witnesses, known, why_unknown
from recon.model.delta_offsets import is_delta, offset_of
from recon.model.ledger import sortable
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.offsets import GrowingSpans, OffsetSpan, Span, Spans
from recon.model.once import once
from recon.model.positions import contents, is_kafka, partition_name, place
from recon.model.proof import OF_UNREAD_RANGES

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.integer[Any]]
    Bools = npt.NDArray[np.bool_]

ASKED = 10_000  # offsets of a range that no micro-batch read, about which Kafka is asked first
_MOST_WITHOUT_RECORD = 1_000  # ranges of a topic partition that are remembered; audits judge the newest entries again
NO_RECORD = "hold no record for the stream"
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
        # A log that got shorter resets the position. Between two resets, what is read late fills only earlier holes.
        parts: list[tuple[list[Hole], list[Span]]] = [([], [])]
        overlaps: list[tuple[Stretch, Spans]] = []
        for stretch in self.stretches:
            start, end = stretch.start, stretch.end
            if end < start:
                frontier = end
                parts.append(([], []))
            elif stretch.first < self.anchors or before is None:
                begin = frontier if stretch.first < self.anchors else start
                covered.add(min(begin, start), end)
                frontier = max(frontier, end)
                if stretch.first < self.anchors:
                    parts[-1][1].append(Span(min(known_to, start), end))
                    known_to = max(known_to, end)
            elif start >= frontier:
                if start > frontier:
                    parts[-1][0].append(Hole(frontier, start, stretch, before))
                covered.add(start, end)
                frontier = end
            elif end > start:
                new = Spans(tuple(covered.add(start, end)))
                twice = Spans((Span(start, end),)).minus(new)
                if twice:
                    overlaps.append((stretch, twice))
                parts[-1][1].append(Span(start, end))
                frontier = max(frontier, end)
            before = stretch
        return Walked(_unfilled(parts), overlaps, covered.spans, frontier)


def _unfilled(parts: Sequence[tuple[Sequence[Hole], Sequence[Span]]]) -> list[Hole]:
    """What is left of each part's holes, without the ranges that this part or a later one read late."""
    filled = GrowingSpans()
    left: list[list[Hole]] = []
    for holes, late in reversed(parts):
        for start, end in late:
            filled.add(start, end)
        spans = filled.spans
        left.append([rest for hole in holes for rest in hole.without(spans)])
    return [hole for holes in reversed(left) for hole in holes]


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


class FirstReaders:
    """Which of some stretches read each offset first, found by bisection."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        known = GrowingSpans()
        self._parts = sorted(
            (*part, place) for place, stretch in enumerate(stretches) for part in known.add(stretch.start, stretch.end)
        )
        self._ends = [end for _, end, _ in self._parts]

    def cut(self, wanted: Spans) -> list[tuple[int, Span]]:
        """`wanted` cut up by the stretches: (place of the stretch, range), in the order of the stretches."""
        cuts: list[tuple[int, Span]] = []
        for start, end in wanted:
            for i in range(bisect_right(self._ends, start), len(self._parts)):
                low, high, place = self._parts[i]
                if low >= end:
                    break
                cuts.append((place, Span(max(low, start), min(high, end))))
        return sorted(cuts)


class AllReaders:
    """Which of some stretches read an offset, however often: bisection over the furthest end so far."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._parts = sorted((stretch.start, stretch.end, place) for place, stretch in enumerate(stretches))
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
        return next((one for one in earlier if self.slice.heads[one].is_micro_batch), None)

    @cached_property
    def micro_batches(self) -> Sequence[int]:
        """The entries of micro-batches in reading order, repairs left out."""
        return [entry for entry in self.order if self.slice.heads[entry].is_micro_batch]

    @cached_property
    def removals(self) -> Mapping[tuple[str, int], Sequence[tuple[int, Span]]]:
        """By topic partition the offsets that repairs looked at to remove doubled rows, with their entries."""
        looked_at: dict[tuple[str, int], list[tuple[int, Span]]] = {}
        for entry, head in enumerate(self.slice.heads):
            for read in self.slice.ranges.of(entry) if head.is_removal else ():
                looked_at.setdefault((read.topic, read.partition), []).append((entry, read.span))
        return looked_at

    def place(self, entry: int) -> int:
        """Where an entry stands in reading order."""
        return self._places[entry]

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


def coverage(slice_: LedgerSlice) -> Coverage:
    """Walks a slice of the ledger; 1.7 million ranges take about a tenth of a second.

    Computed once per slice, for all checks that need it.
    """
    return once(slice_, coverage, lambda: _walk(slice_))


def _walk(slice_: LedgerSlice) -> Coverage:
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
    left_out = set(range(len(heads))).difference(ranked).union(replays)
    if left_out:
        rows = rows.take(~np.isin(rows.entry, np.fromiter(left_out, np.int64, len(left_out))))
    if ranked != list(range(len(heads))):
        rank = np.zeros(len(heads), np.int64)
        rank[ranked] = np.arange(len(ranked))
        rows = rows.take(np.argsort(rank[rows.entry], kind="stable"))
    rows = rows.take(np.argsort(rows.code, kind="stable"))
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
        if not mine or (None not in (mine[-1].topic_id, topic_id) and mine[-1].topic_id != topic_id):
            mine.append(TopicIncarnation(topic_id, anchors=0 if slice_.complete else slice_.anchors))
        mine[-1].add(Stretch(start, end, first, last, (low, high)), topic_id)
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
    spans: dict[Key, list[tuple[int, int]]] = {}
    for source, topic, partition, start, end in ranges:
        spans.setdefault(Key(source, topic, partition), []).append((start, max(start, end)))
    return {key: Spans.of(mine) for key, mine in spans.items()}


def by_partition(ranges: Iterable[OffsetSpan]) -> dict[tuple[str, int], Spans]:
    """Ranges per topic and partition, of whichever source; one that runs backward reads nothing."""
    read: dict[tuple[str, int], list[Span]] = {}
    for one in ranges:
        read.setdefault((one.topic, one.partition), []).append(one.span)
    return {where: Spans.of(span for span in spans if span.size > 0) for where, spans in read.items()}


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


def log_start_of(witnesses: Witnesses, key: Key, topic_id: str | None) -> tuple[int | None, str]:
    """(log start of the topic partition the ledger speaks of, why it is not known)."""
    if not is_kafka(key.topic):
        return _log_start_of(witnesses.source_log, key.topic)
    topics = known(witnesses.kafka)
    if topics is None:
        return None, f"whether Kafka still holds them is unknown ({why_unknown(witnesses.kafka)})"
    topic = topics.topics.get(key.topic)
    if topic is None:
        return None, "no broker was read to see whether Kafka still holds them"
    if not topic.exists or key.partition not in topic.partitions:
        return None, "Kafka holds this topic partition no longer"
    if topic_id is not None and topic.topic_id is not None and topic_id != topic.topic_id:
        return None, "the topic was re-created since, so Kafka holds them no longer"
    return topic.partitions[key.partition].log_start, ""


def _log_start_of(source: SourceLog | Unavailable | None, topic: str) -> tuple[int | None, str]:
    """The oldest offset that the log of what is read still has: of a table, that of the oldest version's commit."""
    if source is None or isinstance(source, Unavailable):
        return None, f"whether its log still has them is unknown ({why_unknown(source, 'it was not read')})"
    if other := source.why_other(topic):
        return None, other
    if isinstance(source, SourceFiles):
        return 0, ""  # Spark keeps the whole log
    if source.first_retained is None:
        return None, f"there is no Delta table at {source.location} any more"
    return offset_of(source.first_retained, 0), ""


def is_compacted(topic: str, witnesses: Witnesses) -> bool:
    """Whether Kafka compacts the topic, so that a missing record may be no loss."""
    described = witnesses.topic(topic)
    return described is not None and "compact" in described.cleanup_policy


def judged_holes(covered: Coverage) -> Iterator[tuple[Key, TopicIncarnation, Hole]]:
    """The holes at which reading went on in the period."""
    for key, incarnations in covered.incarnations.items():
        for incarnation in incarnations:
            for hole in incarnation.walked.holes if len(incarnation.stretches) > 1 else ():
                if covered.judged(hole.at.first):
                    yield key, incarnation, hole


def is_same_topic(key: Key, incarnation: TopicIncarnation, witnesses: Witnesses) -> bool:
    """Whether Kafka's topic is known to be the incarnation that was read: another one has other records there."""
    return _is_topic(witnesses, key.topic, incarnation.topic_id)


def _is_topic(witnesses: Witnesses, name: str, topic_id: str | None) -> bool:
    topic = witnesses.topic(name)
    return topic is not None and topic_id is not None and topic.topic_id == topic_id


class Missed(NamedTuple):
    """Offsets that no micro-batch read, and what the source says of them.

    `code` is EXPLAINED where the source has no record there for the stream; `step` says why it is so, or what to do.
    `topic_id` is that of the topic which has them: a later one of the name has other offsets. `said` is whether the
    source could be asked.
    """

    code: Code
    span: Span
    step: str
    topic_id: str | None = None
    said: bool = True

    def says(self, key: Key, reason: str) -> str:
        """The message of a finding; `reason` says of a loss how it came about: "are missing: ..."."""
        where = f"{key}: {key.offsets(*self.span)}"
        return f"{where} {self.step}" if self.code is Code.EXPLAINED else f"{where} {reason}; {self.step}"


def missed(
    witnesses: Witnesses, key: Key, topic_id: str | None, unread: tuple[int, int], unknown: Code = Code.GAP
) -> Iterator[Missed]:
    """Offsets that were never read, split by what the source says of them.

    An audit that saw no record there, before Kafka deleted them, is believed. `unknown` is the code where the source
    does not say.
    """
    empty = without_record(witnesses, key, topic_id).intersect(Spans.of([unread]))
    for span in empty:
        yield Missed(Code.EXPLAINED, span, NO_RECORD, topic_id)
    for span in Spans.of([unread]).minus(empty):
        yield from (one._replace(topic_id=topic_id) for one in _missed(witnesses, key, topic_id, span, unknown))


def _missed(witnesses: Witnesses, key: Key, topic_id: str | None, unread: Span, unknown: Code) -> Iterator[Missed]:
    log_start, why = log_start_of(witnesses, key, topic_id)
    start, end = unread
    if log_start is None:
        yield Missed(unknown, unread, why, said=False)
        return
    cut = min(max(log_start, start), end)
    if cut > start:
        what = "these records cannot be read any more" if is_kafka(key.topic) else "a stream cannot read them any more"
        yield Missed(Code.LOSS_RETENTION, Span(start, cut), f"{key.log_starts_at(log_start)}, so {what}")
    if cut == end:
        return
    kept = Span(cut, end)
    if _holds_none(witnesses, key, topic_id, kept):
        yield Missed(Code.EXPLAINED, kept, NO_RECORD)
    elif is_kafka(key.topic):
        yield Missed(Code.GAP, kept, _still_held(witnesses, key, kept, log_start))
    else:
        what = "versions" if is_delta(key.topic) else "files"
        yield Missed(Code.GAP, kept, f"the log still has them: read exactly these {what} once more")


def _still_held(witnesses: Witnesses, key: Key, span: Span, log_start: int) -> str:
    """The next step for offsets that Kafka still has; records that were aborted are no loss for most streams."""
    answer = witnesses.probes.get((key.topic, key.partition))
    if answer is not None and answer.tells(span) and not Spans.of([span]).intersect(answer.committed):
        return (
            "Kafka has records of aborted transactions alone there: if the query reads committed records, say "
            "`isolation_level: read_committed` under source in recon.yml, else read exactly this range once more "
            "(`recon repair plan`)"
        )
    return f"Kafka still holds them (log start {log_start}): read exactly this range once more (`recon repair plan`)"


@dataclass(frozen=True, kw_only=True)
class OffsetsWithoutRecord:
    """Offsets of one topic partition that no entry holds, and that have no record for the stream, as an audit saw.

    They have transaction markers or aborted records. Kafka deletes these, too, and then no witness tells. The ranges
    are half-open and ascending. `isolation_level` is the stream's as recon.yml had it then: where that was corrected
    since, aborted records are records.
    """

    topic: str
    topic_id: str | None
    partition: int
    isolation_level: str
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class WithoutRecord(SinkMemory):
    """Ranges that no micro-batch with an entry read, and that have no record: the newest of each topic partition."""

    name: ClassVar[str] = "without_record"
    of_any_audit: ClassVar[bool] = True
    offsets: tuple[OffsetsWithoutRecord, ...]

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        known_empty, level = before.offsets if before is not None else (), audit.witnesses.isolation_level
        ranges = {(o.topic, o.topic_id, o.partition, o.isolation_level): list(o.ranges) for o in known_empty}
        for found in (f for r in audit.results if r.check in OF_UNREAD_RANGES for f in r.findings):
            if found.code is Code.EXPLAINED and found.span and found.topic is not None and found.partition is not None:
                ranges.setdefault((found.topic, found.topic_id, found.partition, level), []).append(found.span)
        offsets = tuple(
            OffsetsWithoutRecord(
                topic=topic,
                topic_id=topic_id,
                partition=partition,
                isolation_level=of_level,
                ranges=tuple((start, end) for start, end in Spans.of(spans))[-_MOST_WITHOUT_RECORD:],
            )
            for (topic, topic_id, partition, of_level), spans in sorted(
                ranges.items(), key=lambda item: (item[0][0], item[0][2])
            )
        )
        return cls(offsets=offsets) if offsets else None


def without_record(witnesses: Witnesses, key: Key, topic_id: str | None) -> Spans:
    """The offsets that no entry holds and of which an earlier audit saw that they have no record for the stream.

    What has no record for a reader of all records has none for one of committed records.
    """
    known_empty = witnesses.memory(WithoutRecord)
    of_place = (
        empty
        for empty in (known_empty.offsets if known_empty is not None else ())
        if (empty.topic, empty.topic_id, empty.partition) == (key.topic, topic_id, key.partition)
        and empty.isolation_level in (witnesses.isolation_level, "read_uncommitted")
    )
    return Spans.of(span for empty in of_place for span in empty.ranges)


def _holds_none(witnesses: Witnesses, key: Key, topic_id: str | None, span: Span) -> bool:
    """Whether the source has no record for the stream in a range: in Kafka transaction markers, or aborted records."""
    if not is_kafka(key.topic):
        source = known(witnesses.source_log)
        return source is not None and source.topic == key.topic and source.records(*span) == 0
    answer = witnesses.probes.get((key.topic, key.partition))
    if answer is None or not answer.tells(span) or not _is_topic(witnesses, key.topic, topic_id):
        return False
    committed_only = witnesses.isolation_level == "read_committed"
    return not Spans.of([span]).intersect(answer.committed if committed_only else answer.uncommitted)


def to_ask(witnesses: Witnesses, key: Key, topic_id: str | None, unread: tuple[int, int]) -> Spans:
    """What Kafka is asked about offsets that no micro-batch read, before they are called missing.

    Whether it has a record there. Most ranges that are missing begin with one: a first part is asked about, and ten
    times as much when that has none. Compaction leaves no record of what was lost, so that it is not asked there.
    """
    if not is_kafka(key.topic) or is_compacted(key.topic, witnesses) or not _is_topic(witnesses, key.topic, topic_id):
        return Spans()
    held = (one.span for one in missed(witnesses, key, topic_id, unread) if one.code is Code.GAP)
    return Spans.of(_begin(witnesses, key, topic_id, span) for span in held)


def _begin(witnesses: Witnesses, key: Key, topic_id: str | None, span: Span) -> Span:
    size = ASKED
    while size < span.size and _holds_none(witnesses, key, topic_id, Span(span.start, span.start + size)):
        size *= 10
    return Span(span.start, min(span.start + size, span.end))
