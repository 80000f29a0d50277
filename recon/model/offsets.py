"""Range algebra on Kafka offsets: half-open ranges [start, end) of one topic partition.

Pure integers in, pure integers out; every other room speaks in these ranges.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from recon.base.errors import EvidenceError

_end = attrgetter("end")


class Span(NamedTuple):
    """A half-open range of offsets, `start` included and `end` excluded."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets the span covers; this is *not* a number of records."""
        return self.end - self.start


class OffsetSpan(NamedTuple):
    """What one micro-batch read of one topic partition: [start_offset, end_offset).

    `source` is the line of the source in the checkpoint's offsets file, 0 for a query with one source. `topic_id` is
    Kafka's UUID of the topic (KIP-516), None when no broker could be reached.
    """

    topic: str
    topic_id: str | None
    partition: int
    start_offset: int
    end_offset: int
    source: int = 0

    @property
    def span(self) -> Span:
        """The bare range."""
        return Span(self.start_offset, self.end_offset)


@dataclass(frozen=True)
class Spans:
    """A set of offsets of one topic partition, as disjoint ascending half-open ranges.

    >>> Spans.of([(5, 7), (0, 2), (6, 9)])
    Spans(((0, 2), (5, 9)))
    """

    ranges: tuple[Span, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> Spans:
        """The union of `ranges`, which may touch, overlap, be empty and come in any order.

        Raises:
            EvidenceError: a range ends before it starts.
        """
        merged: list[Span] = []
        for start, end in sorted(ranges):
            if end < start:
                raise EvidenceError(f"offset range [{start}, {end}) ends before it starts")
            if start == end:
                continue
            if merged and start <= merged[-1].end:
                merged[-1] = Span(merged[-1].start, max(merged[-1].end, end))
            else:
                merged.append(Span(start, end))
        return cls(tuple(merged))

    @classmethod
    def of_offsets(cls, offsets: Iterable[int]) -> Spans:
        """The smallest set of ranges that holds exactly these offsets."""
        return cls.of((o, o + 1) for o in offsets)

    def __iter__(self) -> Iterator[Span]:
        return iter(self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, offset: object) -> bool:
        if not isinstance(offset, int):
            return False
        at = bisect_right(self.ranges, offset, key=_end)
        return at < len(self.ranges) and self.ranges[at].start <= offset

    def __repr__(self) -> str:
        return f"Spans({tuple((r.start, r.end) for r in self.ranges)})"

    @property
    def size(self) -> int:
        """How many offsets the set holds."""
        return sum(r.size for r in self.ranges)

    @property
    def hull(self) -> Span | None:
        """The smallest single range that holds the set; None when it is empty."""
        return Span(self.ranges[0].start, self.ranges[-1].end) if self.ranges else None

    def union(self, other: Spans) -> Spans:
        """Offsets in either set."""
        return Spans.of((*self.ranges, *other.ranges))

    def intersect(self, other: Spans) -> Spans:
        """Offsets in both sets; a small set with a large one takes the logarithm of the large one's ranges."""
        common: list[Span] = []
        mine, theirs = self.ranges, other.ranges
        if not mine or not theirs:
            return Spans()
        i = bisect_right(mine, theirs[0].start, key=_end)
        j = bisect_right(theirs, mine[0].start, key=_end)
        while i < len(mine) and j < len(theirs):
            start, end = max(mine[i].start, theirs[j].start), min(mine[i].end, theirs[j].end)
            if start < end:
                common.append(Span(start, end))
            if mine[i].end <= theirs[j].end:
                i += 1
            else:
                j += 1
        return Spans(tuple(common))

    def minus(self, other: Spans) -> Spans:
        """Offsets of this set that `other` does not hold; `other` may be large, see `intersect`.

        >>> Spans.of([(5, 9)]).minus(Spans.of([(5, 7), (8, 9)]))
        Spans(((7, 8),))
        """
        left: list[Span] = []
        theirs = other.ranges
        j = bisect_right(theirs, self.ranges[0].start, key=_end) if self.ranges else 0
        for start, end in self.ranges:
            at = start
            while j < len(theirs) and theirs[j].end <= at:
                j += 1
            k = j
            while k < len(theirs) and theirs[k].start < end:
                if theirs[k].start > at:
                    left.append(Span(at, theirs[k].start))
                at = max(at, theirs[k].end)
                k += 1
            if at < end:
                left.append(Span(at, end))
        return Spans(tuple(left))


def depths(ranges: Iterable[Span]) -> Iterator[tuple[Span, int]]:
    """How many of some ranges hold each offset, where any does."""
    steps: Counter[int] = Counter()
    for start, end in ranges:
        steps[start] += 1
        steps[end] -= 1
    depth, before = 0, 0
    for at in sorted(steps):
        if depth:
            yield Span(before, at), depth
        depth, before = depth + steps[at], at


def held_by(times: int, ranges: Iterable[Span]) -> Spans:
    """The offsets that so many of some ranges or more hold.

    >>> held_by(2, [Span(0, 5), Span(3, 8)])
    Spans(((3, 5),))
    """
    return Spans.of(span for span, depth in depths(ranges) if depth >= times)


class GrowingSpans:
    """A set of offsets to which ranges are added, and which tells what of each range is new.

    >>> growing = GrowingSpans()
    >>> growing.add(0, 5), growing.add(3, 8)
    ([Span(start=0, end=5)], [Span(start=5, end=8)])
    >>> growing.spans
    Spans(((0, 8),))
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> list[Span]:
        """Adds a range and returns its parts that were not in the set yet, ascending."""
        if start >= end:
            return []
        first, beyond = bisect_left(self._ends, start), bisect_right(self._starts, end)
        new, at = [], start
        for i in range(first, beyond):
            if self._starts[i] > at:
                new.append(Span(at, self._starts[i]))
            at = max(at, self._ends[i])
        if at < end:
            new.append(Span(at, end))
        if first < beyond:
            start, end = min(start, self._starts[first]), max(end, self._ends[beyond - 1])
        self._starts[first:beyond], self._ends[first:beyond] = [start], [end]
        return new

    @property
    def spans(self) -> Spans:
        """The set as it is now."""
        return Spans(tuple(map(Span, self._starts, self._ends)))
