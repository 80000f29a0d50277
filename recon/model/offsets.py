"""Range algebra on Kafka offsets: half-open ranges [start, end) of one topic partition.

Pure integers in, pure integers out; every other room speaks in these ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from recon.errors import EvidenceError


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

    `source` is the line of the source in the checkpoint's offsets file, 0 for a query with one source;
    `topic_id` is Kafka's UUID of the topic (KIP-516), None when no broker could be asked.
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
        return any(r.start <= offset < r.end for r in self.ranges) if isinstance(offset, int) else False

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
        """Offsets in both sets."""
        found: list[Span] = []
        mine, theirs = list(self.ranges), list(other.ranges)
        i = j = 0
        while i < len(mine) and j < len(theirs):
            start, end = max(mine[i].start, theirs[j].start), min(mine[i].end, theirs[j].end)
            if start < end:
                found.append(Span(start, end))
            if mine[i].end <= theirs[j].end:
                i += 1
            else:
                j += 1
        return Spans(tuple(found))

    def minus(self, other: Spans) -> Spans:
        """Offsets of this set that `other` does not hold.

        >>> Spans.of([(5, 9)]).minus(Spans.of([(5, 7), (8, 9)]))
        Spans(((7, 8),))
        """
        left: list[Span] = []
        theirs = other.ranges
        j = 0
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
