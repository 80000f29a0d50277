"""Providers that need no answer of Kafka's: what the quarantine, the ledger's counts and the rows tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from recon.judge.account.fold import Classified, OpenOffsets, Provider, Told, folded, inside
from recon.judge.row_counts import Piece
from recon.judge.rows.quarantine import waiting
from recon.judge.rows.sink_rows import SinkRows, TopicPartition, by_partition
from recon.judge.rows.spot_check import contradictions
from recon.model import Code, RowGroup
from recon.model.account import HowKnown, OffsetClass
from recon.model.offsets import GrowingSpans, Span, Spans
from recon.model.once import once


class InQuarantine:
    """Their rows wait in the quarantine table."""

    def classify(self, sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
        """The offsets of these rows."""
        groups = by_partition(group for group in sink.rows.quarantined if group.release is None)
        for where, pieces in left.by_partition.items():
            absent = Spans.of((piece.start, piece.end) for piece in pieces)
            there = waiting(sink.counts.judged[where], absent, groups.get(where, ()), sink.ledger.heads)
            for piece in inside(pieces, there):
                yield Classified(piece, OffsetClass.QUARANTINED, HowKnown.ROWS)


class TakenByRelease:
    """A release took their rows from quarantine: it dropped them, or the sink lacks them."""

    def classify(self, sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
        """The offsets of each release."""
        heads = {head.batch_id: head for head in sink.ledger.heads if head.is_release}
        for number, pieces in sorted(self._taken(sink, left).items()):
            head, count, by = heads.get(number), sum(piece.size for piece in pieces), f"release {number}"
            known, how, told = OffsetClass.NOT_KNOWN, HowKnown.NOTHING, None
            if head is None:
                what = f"were claimed by {by}, of which the period has no ledger entry"
                told = Told(Code.INCONCLUSIVE, what)
            elif head.rows_filtered is None:
                what = f"were released by {by}, which does not say what it dropped"
                told = Told(Code.INCONCLUSIVE, what, undecidable=True)
            elif count <= head.rows_filtered:
                known, how = OffsetClass.RELEASED, HowKnown.COUNTED
            else:
                known, how = OffsetClass.LOST, HowKnown.ROWS
                told = Told(Code.GAP, f"were released by {by}, and no row of the sink carries them")
            for piece in pieces:
                yield Classified(piece, known, how, told)

    def _taken(self, sink: SinkRows, left: OpenOffsets) -> Mapping[int, Sequence[Piece]]:
        """The offsets by the number of the release that took their rows first."""
        groups: Mapping[TopicPartition, Sequence[RowGroup]] = by_partition(
            group for group in sink.rows.quarantined if group.release is not None
        )
        taken: dict[int, list[Piece]] = {}
        for where, pieces in left.by_partition.items():
            seen = GrowingSpans()
            for group in groups.get(where, ()):
                new = Spans(tuple(part for span in group.present for part in seen.add(*span)))
                taken.setdefault(group.batch_id, []).extend(inside(pieces, new))
        return {number: pieces for number, pieces in taken.items() if pieces}


class DroppedAgain:
    """A repair read them once more, and the transform dropped as many again.

    They say what became of a micro-batch that has no other offset without a row. Of others, its own count tells: how
    many its transform dropped in all.
    """

    def classify(self, sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
        """The offsets of these micro-batches."""
        again = self._dropped(sink)
        for pieces in left.by_entry.values() if again else ():
            if all(not Spans.of([(p.start, p.end)]).minus(again.get(p.where, Spans())) for p in pieces):
                for piece in pieces:
                    yield Classified(piece, OffsetClass.FILTERED, HowKnown.COUNTED)

    def _dropped(self, sink: SinkRows) -> Mapping[TopicPartition, Spans]:
        """The offsets without a row that repairs read, where as many were dropped."""
        dropped: dict[TopicPartition, list[Span]] = {}
        for entry in sink.counts.counted:
            absent = self._absent(sink, entry) if self._drops(sink, entry) else []
            if sum(spans.size for _, spans in absent) == sink.counts.counted[entry].dropped:
                for where, spans in absent:
                    dropped.setdefault(where, []).extend(spans)
        return {where: Spans.of(spans) for where, spans in dropped.items()}

    def _drops(self, sink: SinkRows, entry: int) -> bool:
        """Whether an entry is a repair whose rows were looked for, and whose counts say that it dropped some."""
        head, counted = sink.ledger.heads[entry], sink.counts.counted[entry]
        was_read = sink.rows.of is None or (head.epoch, head.batch_id) in sink.rows.of
        return head.is_repair and was_read and bool(counted.dropped) and not (counted.explodes or counted.doubted)

    def _absent(self, sink: SinkRows, entry: int) -> list[tuple[TopicPartition, Spans]]:
        read = [((one.topic, one.partition), one.span) for one in sink.ledger.ranges.of(entry)]
        return [(where, Spans.of([span]).minus(sink.present.get(where, Spans()))) for where, span in read]


class HadARow:
    """Their commit wrote a row for every offset, whatever Kafka may still know of them."""

    def classify(self, sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
        """The offsets of these micro-batches.

        How many rows the sink wrote is known, and not which: where rows of a micro-batch are doubled, it may have left
        others out.
        """
        had = [entry for entry in left.by_entry if self._had(sink, entry)]
        quarantined = any(sink.counts.counted[entry].quarantined for entry in had if not sink.doubles(entry))
        removed = Told(Code.GAP, _REMOVED + (_OR_QUARANTINE if quarantined else ""), records=True, removed=True)
        for entry in had:
            twice = sink.doubles(entry)
            for piece in left.by_entry[entry]:
                known, told = (OffsetClass.LOST, LEFT_OUT) if twice else (OffsetClass.REMOVED, removed)
                yield Classified(piece, known, HowKnown.ROWS, told)

    def _had(self, sink: SinkRows, entry: int) -> bool:
        counted = sink.counts.counted[entry]
        contradicted = entry in contradictions(sink.counts, sink.witnesses)
        unsure = contradicted or (counted.uncounted and sink.doubles(entry))
        return counted.proved and not counted.dropped and (counted.missing_at_read == 0 or not unsure)


_REMOVED = "had a row each when they were written, and no row carries them now: they were removed from the sink"
_OR_QUARANTINE = " or from its quarantine"
LEFT_OUT = Told(
    Code.GAP,
    "have no row, while rows of the same micro-batch are doubled: the numbers of rows agree, so the sink left these "
    "out, or they were removed since",
    records=True,
)


class Filtered:
    """Their micro-batch dropped as many rows as it has offsets without one."""

    def classify(self, sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
        """The offsets of these micro-batches."""
        for entry, pieces in left.by_entry.items():
            counted = sink.counts.counted[entry]
            if counted.dropped == left.of_entry[entry] and not (counted.explodes or counted.doubted):
                for piece in pieces:
                    yield Classified(piece, OffsetClass.FILTERED, HowKnown.COUNTED)


RECORDED: Sequence[Provider] = (InQuarantine(), TakenByRelease(), DroppedAgain(), HadARow(), Filtered())


def recorded(sink: SinkRows) -> tuple[Sequence[Classified], OpenOffsets]:
    """What is known of the sink's offsets without a row before Kafka is asked, and those about which Kafka is asked."""
    return once(sink.counts, recorded, lambda: folded(sink, _absent(sink), RECORDED), sink.rows)


def _absent(sink: SinkRows) -> Iterator[Piece]:
    """The offsets without a row, cut up by the entries that read them.

    Rows from before recon wrote the table have no source columns of recon's: none of them can be looked for.
    """
    for where, stretches in sink.counts.judged.items():
        absent = looked_for(sink, where).minus(sink.present.get(where, Spans()))
        for piece in stretches.pieces(absent):
            if sink.witnesses.observed or not sink.ledger.heads[piece.entry].is_observed:
                yield piece


def looked_for(sink: SinkRows, where: TopicPartition) -> Spans:
    """The offsets of a topic partition whose rows were looked for: all, or those of some micro-batches."""
    if sink.rows.of is None:
        return sink.counts.judged[where].ranges
    of_some = once(sink.counts, looked_for, lambda: _ranges_of_some(sink), sink.rows)
    return of_some.get(where, Spans())


def _ranges_of_some(sink: SinkRows) -> Mapping[TopicPartition, Spans]:
    """What those micro-batches read whose rows alone were read."""
    spans: dict[TopicPartition, list[Span]] = {}
    for entry, head in enumerate(sink.ledger.heads):
        if (head.epoch, head.batch_id) in (sink.rows.of or ()):
            for read in sink.ledger.ranges.of(entry):
                spans.setdefault((read.topic, read.partition), []).append(read.span)
    return {where: Spans.of(mine) for where, mine in spans.items()}
