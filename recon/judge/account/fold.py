"""Offsets without a row, classified by one provider after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

from recon.judge.row_counts import Piece, outside
from recon.judge.rows.sink_rows import SinkRows, TopicPartition
from recon.model import Code
from recon.model.account import HowKnown, OffsetClass
from recon.model.grouping import grouped, spans_by
from recon.model.offsets import Spans


class Told(NamedTuple):
    """A finding about classified offsets: `what` goes behind the range in its message.

    `records`: each of the offsets is known to be that of a record. `removed`: the finding names the commits that may
    have taken the rows away; where `by` names these, it is these. `entry`: the only one that it speaks of; ranges of
    several entries are one finding otherwise. `undecidable` is as in `Finding`.
    """

    code: Code
    what: str
    records: bool = False
    removed: bool = False
    entry: int | None = None
    undecidable: bool = False
    by: tuple[int, ...] = ()


class Classified(NamedTuple):
    """Offsets of one class, how that is known, and what is reported of them; None where they are explained."""

    piece: Piece
    offset_class: OffsetClass
    how: HowKnown
    told: Told | None = None

    @property
    def is_removed(self) -> bool:
        """Whether their rows were taken away, and not as recon.yml declares."""
        return self.offset_class is OffsetClass.REMOVED and self.how is not HowKnown.DECLARED

    @classmethod
    def for_good_unknown(cls, piece: Piece, what: str, *, entry: int | None = None) -> Self:
        """Offsets of which no witness is left, so that later audits say the same."""
        told = Told(Code.INCONCLUSIVE, what, entry=entry, undecidable=True)
        return cls(piece, OffsetClass.NOT_KNOWN, HowKnown.NOTHING, told)


def classified(
    pieces: Iterable[Piece], offset_class: OffsetClass, how: HowKnown, told: Told | None = None
) -> Iterator[Classified]:
    """Offsets of one class."""
    return (Classified(piece, offset_class, how, told) for piece in pieces)


@dataclass(frozen=True)
class OpenOffsets:
    """The offsets without a row that no provider before has classified, cut up by the entries that read them."""

    pieces: Sequence[Piece]

    @cached_property
    def of_entry(self) -> Counter[int]:
        """How many there are of each entry."""
        return Counter({entry: sum(piece.size for piece in pieces) for entry, pieces in self.by_entry.items()})

    @cached_property
    def by_partition(self) -> dict[TopicPartition, list[Piece]]:
        """The same by topic partition."""
        return grouped((piece.where, piece) for piece in self.pieces)

    @cached_property
    def by_entry(self) -> dict[int, list[Piece]]:
        """The same by entry."""
        return grouped((piece.entry, piece) for piece in self.pieces)

    def without(self, found: Sequence[Classified]) -> OpenOffsets:
        """What is left of them."""
        if not found:
            return self
        pieces = (classified.piece for classified in found)
        gone = spans_by(((piece.entry, piece.where), (piece.start, piece.end)) for piece in pieces)
        return OpenOffsets(
            [part for piece in self.pieces for part in outside((piece,), gone.get((piece.entry, piece.where), Spans()))]
        )


# Classifies the offsets without a row that one kind of knowledge tells of, none of them twice. Pure.
Provider = Callable[[SinkRows, OpenOffsets], Iterable[Classified]]


def folded(
    sink: SinkRows, pieces: Iterable[Piece], providers: Sequence[Provider]
) -> tuple[list[Classified], OpenOffsets]:
    """What the providers know of the offsets, each given what those before it left; and what none of them knows."""
    left, found = OpenOffsets(list(pieces)), list[Classified]()
    for provider in providers:
        known = list(provider(sink, left))
        found += known
        left = left.without(known)
    return found, left
