"""Offsets without a row, classified by one provider after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, Self

from recon.judge.row_counts import Piece
from recon.judge.rows.sink_rows import SinkRows, TopicPartition
from recon.model import Code
from recon.model.account import HowKnown, OffsetClass
from recon.model.offsets import Spans


class Told(NamedTuple):
    """A finding about classified offsets: `what` goes behind the range in its message.

    `records`: each of the offsets is known to be that of a record. `removed`: the finding names the commits that may
    have taken the rows away. `entry`: the only one that it speaks of; ranges of several entries are one finding
    otherwise. `undecidable` is as in `Finding`.
    """

    code: Code
    what: str
    records: bool = False
    removed: bool = False
    entry: int | None = None
    undecidable: bool = False


class Classified(NamedTuple):
    """Offsets of one class, how that is known, and what is reported of them; None where they are explained."""

    piece: Piece
    offset_class: OffsetClass
    how: HowKnown
    told: Told | None = None

    @classmethod
    def for_good_unknown(cls, piece: Piece, what: str, *, entry: int | None = None) -> Self:
        """Offsets of which no witness is left, so that later audits say the same."""
        told = Told(Code.INCONCLUSIVE, what, entry=entry, undecidable=True)
        return cls(piece, OffsetClass.NOT_KNOWN, HowKnown.NOTHING, told)


@dataclass(frozen=True)
class OpenOffsets:
    """The offsets without a row that no provider before has classified, cut up by the entries that read them."""

    pieces: Sequence[Piece]

    @cached_property
    def of_entry(self) -> Counter[int]:
        """How many there are of each entry."""
        found: Counter[int] = Counter()
        for piece in self.pieces:
            found[piece.entry] += piece.size
        return found

    @cached_property
    def by_partition(self) -> dict[TopicPartition, list[Piece]]:
        """The same by topic partition."""
        found: dict[TopicPartition, list[Piece]] = {}
        for piece in self.pieces:
            found.setdefault(piece.where, []).append(piece)
        return found

    @cached_property
    def by_entry(self) -> dict[int, list[Piece]]:
        """The same by entry."""
        found: dict[int, list[Piece]] = {}
        for piece in self.pieces:
            found.setdefault(piece.entry, []).append(piece)
        return found

    def without(self, found: Sequence[Classified]) -> OpenOffsets:
        """What is left of them."""
        if not found:
            return self
        spans: dict[tuple[int, TopicPartition], list[tuple[int, int]]] = {}
        for one in found:
            spans.setdefault((one.piece.entry, one.piece.where), []).append((one.piece.start, one.piece.end))
        gone = {where: Spans.of(mine) for where, mine in spans.items()}
        return OpenOffsets(
            [part for piece in self.pieces for part in outside((piece,), gone.get((piece.entry, piece.where), Spans()))]
        )


class Provider(Protocol):
    """Classifies offsets without a row, by one kind of knowledge. Pure."""

    def classify(self, sink: SinkRows, left: OpenOffsets) -> Iterable[Classified]:
        """The offsets of `left` that it knows; none of them twice."""


def folded(
    sink: SinkRows, pieces: Iterable[Piece], providers: Sequence[Provider]
) -> tuple[list[Classified], OpenOffsets]:
    """What the providers know of the offsets, each given what those before it left; and what none of them knows."""
    left, found = OpenOffsets(list(pieces)), list[Classified]()
    for provider in providers:
        known = list(provider.classify(sink, left))
        found += known
        left = left.without(known)
    return found, left


def inside(pieces: Iterable[Piece], spans: Spans) -> Iterator[Piece]:
    """The parts of the pieces that lie in `spans`."""
    if not spans:
        return
    for piece in pieces:
        for start, end in Spans.of([(piece.start, piece.end)]).intersect(spans):
            yield piece._replace(start=start, end=end, leads=piece.leads and start == piece.start)


def outside(pieces: Iterable[Piece], spans: Spans) -> Iterator[Piece]:
    """The parts of the pieces that lie in none of `spans`."""
    for piece in pieces:
        if not spans:
            yield piece
            continue
        for start, end in Spans.of([(piece.start, piece.end)]).minus(spans):
            yield piece._replace(start=start, end=end, leads=piece.leads and start == piece.start)
