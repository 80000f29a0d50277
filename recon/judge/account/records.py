"""Providers for records that Kafka has and no row carries: filtered, if their micro-batch says so, else lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from recon.base.text import plural
from recon.judge.account.fold import Classified, OpenOffsets, Provider, Told, classified
from recon.judge.account.recorded import perhaps_deleted, recorded
from recon.judge.row_counts import Counted, Piece
from recon.judge.rows.exploded_rows import filtered_by_transform, lost_by_fingerprints, read_others
from recon.judge.rows.reasons import awaited
from recon.judge.rows.sink_rows import SinkRows
from recon.model import Code, EntryHead
from recon.model.account import HowKnown, OffsetClass


class _OfEntry(NamedTuple):
    """The records without a row of one micro-batch."""

    entry: int
    head: EntryHead
    counted: Counted
    pieces: Sequence[Piece]

    def are(self, offset_class: OffsetClass, how: HowKnown, told: Told | None = None) -> Iterator[Classified]:
        return classified(self.pieces, offset_class, how, told)

    def not_known(self, told: Told | None = None) -> Iterator[Classified]:
        return self.are(OffsetClass.NOT_KNOWN, HowKnown.NOTHING, told)


def _each(sink: SinkRows, left: OpenOffsets, *, counted: bool) -> Iterator[_OfEntry]:
    """The micro-batches that say how many rows their transform dropped, or those that do not."""
    for entry, pieces in left.by_entry.items():
        of_entry = sink.counts.counted[entry]
        if (of_entry.dropped is not None) is counted:
            yield _OfEntry(entry, sink.ledger.heads[entry], of_entry, pieces)


def awaits_progress(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """Spark's progress will say how many rows the micro-batch dropped; it is not recorded yet."""
    waits = set(awaited(left.by_entry, sink.counts, sink.time, sink.findings))
    for batch in _each(sink, left, counted=False):
        if batch.entry in waits:
            yield from batch.not_known()


def in_state(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """The query keeps state, and nothing recorded how many rows its stateful operators dropped."""
    for batch in _each(sink, left, counted=False):
        if sink.counts.operators.keeps_state(batch.head):
            yield from batch.not_known(_IN_STATE)


def filtered_of_several(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """The transform makes several rows of a record; fingerprints show that it dropped exactly these records."""
    for batch in _each(sink, left, counted=False):
        if batch.counted.explodes and filtered_by_transform(sink, batch.entry, batch.pieces):
            yield from batch.are(OffsetClass.FILTERED, HowKnown.COUNTED)


def unsaid(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """The transform may drop records, and the micro-batch does not say how many it dropped."""
    for batch in _each(sink, left, counted=False):
        drops = sink.counts.transforms or sink.counts.only_rebuilt or batch.head.is_observed
        if batch.counted.explodes or drops:
            yield from batch.not_known(_unsaid(sink))


def filtered_by_count(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """Their micro-batch dropped at least as many rows, and read these records and no others."""
    for batch in _each(sink, left, counted=True):
        enough = left.of_entry[batch.entry] <= (batch.counted.dropped or 0)
        if enough and not read_others(sink, batch.entry, batch.pieces):
            yield from batch.are(OffsetClass.FILTERED, HowKnown.COUNTED)


def perhaps_deleted_since(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """A declared deletion may have taken their rows, and which rows it took is not known."""
    found, _ = recorded(sink)
    besides = sum(of.piece.size for of in found if of.told is not None and of.told.by)
    yield from perhaps_deleted(sink, left.pieces, besides)


def filtered_and_lost(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """Their micro-batch dropped some, and others are lost; fingerprints may show which."""
    for batch in _each(sink, left, counted=True):
        if batch.counted.dropped:
            yield from _of(sink, batch, left.of_entry[batch.entry])


def _of(sink: SinkRows, batch: _OfEntry, size: int) -> Iterator[Classified]:
    dropped, lost = batch.counted.dropped or 0, lost_by_fingerprints(sink, batch.entry, batch.pieces)
    said = f"{plural(size, 'offset')} of the micro-batch without a row"
    missing = f", {dropped:,} filtered, {size - dropped:,} missing"
    said += missing if size > dropped else ", and others than were read"
    if not lost:
        which = "which of them, neither counts nor fingerprints tell"
        told = Told(Code.GAP, f"{_NO_ROW} ({said}: {which}); {_READ_AGAIN}", entry=batch.entry)
        yield from batch.not_known(told)
        return
    told = Told(Code.GAP, f"{_NO_ROW} ({said}); {_READ_AGAIN}", records=True, entry=batch.entry)
    of_lost = [Classified(piece, OffsetClass.LOST, HowKnown.KAFKA, told) for piece in lost]
    yield from of_lost
    yield from classified(OpenOffsets(batch.pieces).without(of_lost).pieces, OffsetClass.FILTERED, HowKnown.COUNTED)


def lost(sink: SinkRows, left: OpenOffsets) -> Iterable[Classified]:
    """Nothing explains that they have no row."""
    dropped_by = " nor does the micro-batch say it dropped them"
    if sink.writing.declared.filters is False:
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
    if sink.writing.observed:
        unsaid = "whether the query filters rows is not known: where it does not, say so (rows: {filters: false})"
        if sink.writing.declared.filters:
            unsaid = "the query filters rows, and nothing says which"
    return Told(Code.INCONCLUSIVE, f"are in no row and in Kafka, and {unsaid}")


RECORDS: Sequence[Provider] = (
    awaits_progress,
    in_state,
    filtered_of_several,
    unsaid,
    filtered_by_count,
    perhaps_deleted_since,
    filtered_and_lost,
    lost,
)
