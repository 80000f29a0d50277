"""Providers that need no answer of Kafka's: what the quarantine, the ledger's counts and the rows tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from recon.judge.account.fold import Classified, OpenOffsets, Provider, Told, classified, folded
from recon.judge.history.table_history import rows_lost
from recon.judge.row_counts import Piece, inside
from recon.judge.rows.quarantine import waiting
from recon.judge.rows.sink_rows import SinkRows, TopicPartition, by_partition
from recon.model import Code, RowGroup
from recon.model.account import HowKnown, OffsetClass
from recon.model.deletion import Deletion
from recon.model.grouping import spans_by
from recon.model.offsets import GrowingSpans, Spans
from recon.model.once import kept


def in_quarantine(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """Their rows wait in the quarantine table."""
    groups = by_partition(group for group in sink.rows.quarantined if group.release is None)
    for where, pieces in left.by_partition.items():
        absent = Spans.of((piece.start, piece.end) for piece in pieces)
        there = waiting(sink.counts.judged[where], absent, groups.get(where, ()), sink.ledger.heads)
        yield from classified(inside(pieces, there), OffsetClass.QUARANTINED, HowKnown.ROWS)


def taken_by_release(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """A release took their rows from quarantine: it dropped them, or the sink lacks them."""
    heads = {head.batch_id: head for head in sink.ledger.heads if head.is_release}
    for number, pieces in sorted(_taken(sink, left).items()):
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
        yield from classified(pieces, known, how, told)


def _taken(sink: SinkRows, left: OpenOffsets) -> Mapping[int, Sequence[Piece]]:
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


def dropped_again(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """A repair read them once more, and the transform dropped as many again.

    They say what became of a micro-batch that has no other offset without a row. Of others, its own count tells: how
    many its transform dropped in all.
    """
    again = _dropped(sink)
    for pieces in left.by_entry.values() if again else ():
        if all(not Spans.of([(p.start, p.end)]).minus(again.get(p.where, Spans())) for p in pieces):
            yield from classified(pieces, OffsetClass.FILTERED, HowKnown.COUNTED)


def _dropped(sink: SinkRows) -> Mapping[TopicPartition, Spans]:
    """The offsets without a row that repairs read, where as many were dropped."""
    absent = {entry: _lacking(sink, entry) for entry in sink.counts.counted if _drops(sink, entry)}
    dropped = {entry: sum(spans.size for _, spans in of_entry) for entry, of_entry in absent.items()}
    as_many = (absent[entry] for entry, size in dropped.items() if size == sink.counts.counted[entry].dropped)
    return spans_by((where, span) for of_entry in as_many for where, spans in of_entry for span in spans)


def _drops(sink: SinkRows, entry: int) -> bool:
    """Whether an entry is a repair whose rows were looked for, and whose counts say that it dropped some."""
    head, counted = sink.ledger.heads[entry], sink.counts.counted[entry]
    was_read = sink.rows.of is None or (head.epoch, head.batch_id) in sink.rows.of
    return head.is_repair and was_read and bool(counted.dropped) and not (counted.explodes or counted.doubted)


def _lacking(sink: SinkRows, entry: int) -> list[tuple[TopicPartition, Spans]]:
    read = [((read.topic, read.partition), read.span) for read in sink.ledger.ranges.of(entry)]
    return [(where, Spans.of([span]).minus(sink.present.get(where, Spans()))) for where, span in read]


def had_a_row(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """Their commit wrote a row for every offset, whatever Kafka may still know of them.

    How many rows the sink wrote is known, and not which: where rows of a micro-batch are doubled, it may have left
    others out.
    """
    had = [entry for entry in left.by_entry if _had(sink, entry)]
    quarantined = any(sink.counts.counted[entry].quarantined for entry in had if not sink.doubles(entry))
    removed = Told(Code.GAP, _REMOVED + (_OR_QUARANTINE if quarantined else ""), records=True, removed=True)
    for entry in had:
        twice = sink.doubles(entry)
        for piece in left.by_entry[entry]:
            known, told = (OffsetClass.LOST, LEFT_OUT) if twice else (OffsetClass.REMOVED, removed)
            yield Classified(piece, known, HowKnown.ROWS, told)


def _had(sink: SinkRows, entry: int) -> bool:
    counted = sink.counts.counted[entry]
    unsure = entry in sink.spot.contradictions or (counted.uncounted and sink.doubles(entry))
    return counted.proved and not counted.dropped and (counted.missing_at_read == 0 or not unsure)


_REMOVED = "had a row each when they were written, and no row carries them now: they were removed from the sink"
_OR_QUARANTINE = " or from its quarantine"
LEFT_OUT = Told(
    Code.GAP,
    "have no row, while rows of the same micro-batch are doubled: the numbers of rows agree, so the sink left these "
    "out, or they were removed since",
    records=True,
)


def filtered(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """Their micro-batch dropped as many rows as it has offsets without one."""
    for entry, pieces in left.by_entry.items():
        counted = sink.counts.counted[entry]
        if counted.dropped == left.of_entry[entry] and not (counted.explodes or counted.doubted):
            yield from classified(pieces, OffsetClass.FILTERED, HowKnown.COUNTED)


def deleted_as_declared(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """A commit took their rows that recon.yml declares, and they were old enough, or somebody may delete any."""
    offsets = _rows_tell_topic(sink, sink.table.as_declared) if sink.table is not None else {}
    for where, spans in offsets.items():
        deleted = inside(left.by_partition.get(where, ()), spans)
        yield from classified(deleted, OffsetClass.REMOVED, HowKnown.DECLARED)


def deleted_otherwise(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """Such a commit took their rows, and they were younger than declared, or nobody knows their age."""
    for deletion in sink.table.deletions.values() if sink.table is not None else ():
        found = list(_outside(sink, deletion, left))
        yield from found
        left = left.without(found)


def _outside(sink: SinkRows, deletion: Deletion, left: OpenOffsets) -> Iterator[Classified]:
    """The offsets whose rows one commit took, and not as declared."""
    if sink.table is None:
        return
    young, ageless = (_rows_tell_topic(sink, of) for of in sink.table.outside_of(deletion))
    by, taken = (deletion.version,), f"had a row each, which version {deletion.version} deleted"
    younger = Told(Code.GAP, f"{taken}: they were younger than declared ({deletion.label})", records=True, by=by)
    unknown = Told(Code.INCONCLUSIVE, f"{taken} as declared ({deletion.label}), but their age is not known", by=by)
    for where, spans in young.items():
        gone = inside(left.by_partition.get(where, ()), spans)
        yield from classified(gone, OffsetClass.REMOVED, HowKnown.FILES, younger)
    for where, spans in ageless.items():
        gone = inside(left.by_partition.get(where, ()), spans)
        yield from classified(gone, OffsetClass.NOT_KNOWN, HowKnown.NOTHING, unknown)


def _rows_tell_topic(sink: SinkRows, offsets: Mapping[TopicPartition, Spans]) -> Mapping[TopicPartition, Spans]:
    """Offsets of topic partitions of which one topic was read: rows do not say which of several they are of."""
    judged = sink.counts.judged
    return {where: of for where, of in offsets.items() if where in judged and judged[where].incarnations == 1}


def perhaps_deleted_as_declared(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """They had a row; a declared deletion may have taken it, and which rows it took is not known."""
    had = [piece for entry in left.by_entry if _had(sink, entry) for piece in left.by_entry[entry]]
    yield from perhaps_deleted(sink, had)


def perhaps_deleted(sink: SinkRows, pieces: Sequence[Piece], besides: int = 0) -> Iterator[Classified]:
    """Offsets whose rows a declared deletion may have taken, of which it is not known which rows it took.

    Where more rows are gone than such commits took, with `besides` others, it tells nothing of any.
    """
    unknown = _unknown_deletions(sink)
    newest = max(unknown, default=-1)
    gone = [piece for piece in pieces if (sink.ledger.heads[piece.entry].sink_version or 0) < newest]
    if not gone or besides + sum(piece.size for piece in gone) > _taken_by(sink, unknown):
        return
    deletion = unknown[newest]
    what = (
        f"are in no row; version {deletion.version} deleted rows as declared ({deletion.label}), and whether these "
        f"were among them, and their age, is not known: {deletion.unknown}"
    )
    told = Told(Code.INCONCLUSIVE, what, by=tuple(unknown))
    yield from classified(gone, OffsetClass.NOT_KNOWN, HowKnown.NOTHING, told)


def _unknown_deletions(sink: SinkRows) -> Mapping[int, Deletion]:
    """The declared deletions of which it is not known which rows they took, by version."""
    known = sink.table.deletions if sink.table is not None else {}
    return {version: deletion for version, deletion in known.items() if deletion.unknown}


def _taken_by(sink: SinkRows, versions: Iterable[int]) -> int:
    """How many rows some versions took; 0 where one of them does not say it."""
    commits = sink.table.log.commits if sink.table is not None else {}
    taken = [rows_lost(commits[version]) for version in versions]
    known = [rows for rows in taken if rows is not None]
    return sum(known) if len(known) == len(taken) else 0


RECORDED: Sequence[Provider] = (
    deleted_as_declared,
    deleted_otherwise,
    in_quarantine,
    taken_by_release,
    dropped_again,
    perhaps_deleted_as_declared,
    had_a_row,
    filtered,
)


@kept
def recorded(sink: SinkRows) -> tuple[Sequence[Classified], OpenOffsets]:
    """What is known of the sink's offsets without a row before Kafka is asked, and those about which Kafka is asked."""
    return folded(sink, _absent(sink), RECORDED)


def _absent(sink: SinkRows) -> Iterator[Piece]:
    """The offsets without a row, cut up by the entries that read them.

    Rows from before recon wrote the table have no source columns of recon's: none of them can be looked for.
    """
    for where, stretches in sink.counts.judged.items():
        absent = looked_for(sink, where).minus(sink.present.get(where, Spans()))
        for piece in (piece for of_topic in stretches.by_topic for piece in of_topic.pieces(absent)):
            if sink.writing.observed or not sink.ledger.heads[piece.entry].is_observed:
                yield piece


def looked_for(sink: SinkRows, where: TopicPartition) -> Spans:
    """The offsets of a topic partition whose rows were looked for: all, or those of some micro-batches."""
    if sink.rows.of is None:
        return sink.counts.judged[where].ranges
    return _ranges_of_some(sink).get(where, Spans())


@kept
def _ranges_of_some(sink: SinkRows) -> Mapping[TopicPartition, Spans]:
    """What those micro-batches read whose rows alone were read."""
    ledger, of = sink.ledger, sink.rows.of or ()
    entries = (entry for entry, head in enumerate(ledger.heads) if (head.epoch, head.batch_id) in of)
    return spans_by(((read.topic, read.partition), read.span) for entry in entries for read in ledger.ranges.of(entry))
