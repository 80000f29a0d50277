"""Providers for records that Kafka has and no row carries: filtered, if their micro-batch says so, else lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from recon.judge.account.fold import Classified, OpenOffsets, Provider, Told
from recon.judge.row_counts import Counted, Piece
from recon.judge.rows.exploded_rows import filtered_by_transform, lost_by_fingerprints, read_others
from recon.judge.rows.reasons import awaited
from recon.judge.rows.sink_rows import SinkRows
from recon.model import Code, EntryHead
from recon.model.account import HowKnown, OffsetClass
from recon.text import plural


class _OfEntry(NamedTuple):
    """The records without a row of one micro-batch."""

    entry: int
    head: EntryHead
    counted: Counted
    pieces: Sequence[Piece]

    def are(self, offset_class: OffsetClass, how: HowKnown, told: Told | None = None) -> Iterator[Classified]:
        return (Classified(piece, offset_class, how, told) for piece in self.pieces)

    def not_known(self, told: Told | None = None) -> Iterator[Classified]:
        return self.are(OffsetClass.NOT_KNOWN, HowKnown.NOTHING, told)


def _each(sink: SinkRows, left: OpenOffsets, *, counted: bool) -> Iterator[_OfEntry]:
    """The micro-batches that say how many rows their transform dropped, or those that do not."""
    for entry, pieces in left.by_entry.items():
        of_entry = sink.counts.counted[entry]
        if (of_entry.dropped is not None) is counted:
            yield _OfEntry(entry, sink.ledger.heads[entry], of_entry, pieces)


class AwaitsProgress:
    """Spark's progress will say how many rows the micro-batch dropped; it is not recorded yet."""

    def classify(self, sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
        """The records of these micro-batches; one finding tells of all."""
        waits = set(awaited(left.by_entry, sink.counts, sink.witnesses, sink.findings))
        for one in _each(sink, left, counted=False):
            if one.entry in waits:
                yield from one.not_known()


class InState:
    """The query keeps state, and nothing recorded how many rows its stateful operators dropped."""

    def classify(self, sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
        """The records of these micro-batches."""
        for one in _each(sink, left, counted=False):
            if sink.counts.operators.keeps_state(one.head):
                yield from one.not_known(_IN_STATE)


class FilteredOfSeveral:
    """The transform makes several rows of a record; fingerprints show that it dropped exactly these records."""

    def classify(self, sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
        """The records of these micro-batches."""
        for one in _each(sink, left, counted=False):
            if one.counted.explodes and filtered_by_transform(sink, one.entry, one.pieces):
                yield from one.are(OffsetClass.FILTERED, HowKnown.COUNTED)


class Unsaid:
    """The transform may drop records, and the micro-batch does not say how many it dropped."""

    def classify(self, sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
        """The records of these micro-batches."""
        for one in _each(sink, left, counted=False):
            drops = sink.counts.transforms or sink.counts.only_rebuilt or one.head.is_observed
            if one.counted.explodes or drops:
                yield from one.not_known(_unsaid(sink))


class FilteredByCount:
    """Their micro-batch dropped at least as many rows, and read these records and no others."""

    def classify(self, sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
        """The records of these micro-batches."""
        for one in _each(sink, left, counted=True):
            enough = left.of_entry[one.entry] <= (one.counted.dropped or 0)
            if enough and not read_others(sink, one.entry, one.pieces):
                yield from one.are(OffsetClass.FILTERED, HowKnown.COUNTED)


class FilteredAndLost:
    """Their micro-batch dropped some, and others are lost; fingerprints may show which."""

    def classify(self, sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
        """The records of these micro-batches."""
        for one in _each(sink, left, counted=True):
            if one.counted.dropped:
                yield from self._of(sink, one, left.of_entry[one.entry])

    def _of(self, sink: SinkRows, one: _OfEntry, size: int) -> Iterator[Classified]:
        dropped, lost = one.counted.dropped or 0, lost_by_fingerprints(sink, one.entry, one.pieces)
        said = f"{plural(size, 'offset')} of the micro-batch without a row"
        missing = f", {dropped:,} filtered, {size - dropped:,} missing"
        said += missing if size > dropped else ", and others than were read"
        if not lost:
            which = "which of them, neither counts nor fingerprints tell"
            told = Told(Code.GAP, f"{_NO_ROW} ({said}: {which}); {_READ_AGAIN}", entry=one.entry)
            yield from one.not_known(told)
            return
        told = Told(Code.GAP, f"{_NO_ROW} ({said}); {_READ_AGAIN}", records=True, entry=one.entry)
        of_lost = [Classified(piece, OffsetClass.LOST, HowKnown.KAFKA, told) for piece in lost]
        yield from of_lost
        for piece in OpenOffsets(one.pieces).without(of_lost).pieces:
            yield Classified(piece, OffsetClass.FILTERED, HowKnown.COUNTED)


class Lost:
    """Nothing explains that they have no row."""

    def classify(self, sink: SinkRows, left: OpenOffsets) -> Iterable[Classified]:
        """All that is left."""
        dropped_by = " nor does the micro-batch say it dropped them"
        if sink.witnesses.declared.filters is False:
            dropped_by = ", and recon.yml says that the transform filters none"
        told = Told(Code.GAP, f"{_NO_ROW}{dropped_by}; {_READ_AGAIN}", records=True)
        return [Classified(piece, OffsetClass.LOST, HowKnown.KAFKA, told) for piece in left.pieces]


_NO_ROW = "are in Kafka and were read past, and no row carries them"
_READ_AGAIN = "read exactly this range once more (`recon repair plan`)"
_IN_STATE = Told(
    Code.INCONCLUSIVE,
    "are in no row and in Kafka: the query keeps state, and nothing recorded how many rows its stateful operators "
    "dropped; add recon.ProgressListener to the session",
    undecidable=True,
)


def _unsaid(sink: SinkRows) -> Told:
    unsaid = "the micro-batch does not say how many it filtered"
    if sink.witnesses.observed:
        unsaid = "whether the query filters rows is not known: where it does not, say so (rows: {filters: false})"
        if sink.witnesses.declared.filters:
            unsaid = "the query filters rows, and nothing says which"
    return Told(Code.INCONCLUSIVE, f"are in no row and in Kafka, and {unsaid}")


RECORDS: Sequence[Provider] = (
    AwaitsProgress(),
    InState(),
    FilteredOfSeveral(),
    Unsaid(),
    FilteredByCount(),
    FilteredAndLost(),
    Lost(),
)
