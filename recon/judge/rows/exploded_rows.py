"""Rows that a transform makes: where a record may have several, its offset does not show whether all of them are there.

What the sink was given was counted during the write, with a fingerprint of the rows' source offsets. What it holds of
the micro-batch must be as many rows, of the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recon.base.text import plural
from recon.judge.row_counts import Piece, spans_of
from recon.judge.rows.sink_rows import SinkRows
from recon.model import Code, CommitRows, CountedRows
from recon.model.fingerprint import PRIME, of_offsets, of_ranges
from recon.model.ledger import named
from recon.model.offsets import OffsetSpan, Spans


def judge_made(sink: SinkRows) -> None:
    """Adds findings for micro-batches of which the sink holds other rows than it was given."""
    counted = sink.counts.counted.items() if sink.writing.declared.explodes else ()
    for entry in (entry for entry, counts in counted if counts.explodes or counts.lost):
        head = sink.ledger.heads[entry]
        if sink.counts.operators.keeps_state(head):
            continue
        _judge_read(sink, entry)
        if head.given is not None:
            _judge_held(sink, entry, head.given)
        elif head.is_uncounted:
            unknown = "how many rows the sink was given is not known; compare them with the source, then accept it"
            made = f"the ledger entry of {named(head)} was made from the sink's own record"
            sink.findings.add(Code.INCONCLUSIVE, f"{made}: {unknown}", head=head)


def _judge_held(sink: SinkRows, entry: int, given: CountedRows) -> None:
    """The rows that the sink holds of a micro-batch, against those that it was given."""
    head = sink.ledger.heads[entry]
    held = sink.held_of(head.batch_id)
    if held is None:
        # Its rows cannot be told from others': its commit's, or their number.
        added = None if head.sink_version is None else sink.spot.commit_rows.get(head.sink_version)
        counted = CountedRows(given.rows - sink.counts.counted[entry].lost, None)
        held = added.held if isinstance(added, CommitRows) else counted
    has = f"the sink was given {plural(given.rows, 'row')} of {named(head)}, and has {held.rows:,}"
    lost = given.rows - held.rows
    if lost > 0:
        sink.findings.add(Code.GAP, f"{has}: {plural(lost, 'row')} lost", head=head)
    elif lost < 0:
        sink.findings.add(sink.doubled, f"{has}: {plural(-lost, 'row')} doubled", head=head)
    elif _difference(given, held):
        sink.findings.add(Code.GAP, f"{has}, of other offsets: some are lost, and others doubled", head=head)


def _judge_read(sink: SinkRows, entry: int) -> None:
    """More records read than there are: rows that a transform makes of a record which was read twice look like one's.

    In the epochs after the first one a sink that trims drops what it holds already, and that was read, too.
    """
    head, most = sink.ledger.heads[entry], sink.counts.width[entry] - _without_a_record(sink, entry)
    if head.read is None or head.read.rows <= most:
        return
    message = f"{plural(head.read.rows, 'row')} of {plural(most, 'record')} of {named(head)} came before the transform"
    if head.read.rows > sink.counts.width[entry] and head.epoch <= 0:
        sink.findings.add(sink.doubled, f"{message}: some were read twice", head=head)
    else:
        perhaps = "some were read twice, or dropped as already there, or compaction removed records since"
        sink.findings.add(Code.INCONCLUSIVE, f"{message}: {perhaps}", head=head)


def _without_a_record(sink: SinkRows, entry: int) -> int:
    """How many offsets of an entry have no row, and no record either, as Kafka says."""
    absent = 0
    for read in sink.ledger.ranges.of(entry):
        where = (read.topic, read.partition)
        answer = sink.source.answers.get(where)
        if answer is not None and answer.truncated is None and not sink.source.is_compacted(read.topic):
            shown = Spans.of([read.span]).intersect(answer.shown)
            absent += shown.minus(answer.uncommitted).minus(sink.present.get(where, Spans())).size
    return absent


def filtered_by_transform(sink: SinkRows, entry: int, without_row: Iterable[Piece]) -> bool:
    """Whether the records of an entry that have no row were read and the transform dropped them.

    It did where the sink holds all that it was given, and where these records, with those that have rows, are the
    records that were read.
    """
    head = sink.ledger.heads[entry]
    held = sink.held_of(head.batch_id)
    if head.read is None or head.given is None or held is None:
        return False
    known = None not in (held.fingerprint, head.given.fingerprint, head.read.fingerprint)
    return known and held == head.given and _records(sink, entry, without_row) == head.read


def lost_by_fingerprints(sink: SinkRows, entry: int, without_row: Sequence[Piece]) -> list[Piece]:
    """Which of an entry's records without a row were lost, where its transform filtered the others; [] if unknown.

    A record that the reader lost, and one that the sink lost or that was removed from it, each leaves the difference of
    two fingerprints: of the records that Kafka has and those that were read, of the rows that the sink was given and
    those that it holds. One record alone has that fingerprint.
    """
    head, dropped = sink.ledger.heads[entry], sink.counts.counted[entry].dropped
    if head.read is None or head.given is None or dropped is None:
        return []
    lost, missing = set[Piece](), sum(piece.size for piece in without_row) - dropped
    for before, after in ((_records(sink, entry, without_row), head.read), (head.given, _records(sink, entry, ()))):
        found = _lost_between(before, after, without_row)
        if found is None:
            return []
        missing -= len(found)
        lost.update(found)
    return [] if missing or len(lost) != sum(piece.size for piece in without_row) - dropped else sorted(lost)


def _lost_between(before: CountedRows, after: CountedRows, pieces: Iterable[Piece]) -> list[Piece] | None:
    """The offset of some pieces that alone was lost between two counts, none where none was; None where unknown."""
    difference, missing = _difference(before, after), before.rows - after.rows
    if missing not in (0, 1) or difference is None:
        return None
    if not missing:
        return None if difference else []
    offsets = (piece.part(at, at + 1) for piece in pieces for at in range(piece.start, piece.end))
    found = [piece for piece in offsets if of_offsets(*piece.where, (piece.start,)) == difference]
    return found if len(found) == 1 else None


def read_others(sink: SinkRows, entry: int, without_row: Iterable[Piece]) -> bool:
    """Whether as many records were read as an entry's ranges have, and others: some were lost, and others doubled.

    The records are those that have rows, and those that Kafka has and no row carries.
    """
    read, records = sink.ledger.heads[entry].read, _records(sink, entry, without_row)
    return read is not None and read.rows == records.rows and bool(_difference(read, records))


def _records(sink: SinkRows, entry: int, without_row: Iterable[Piece]) -> CountedRows:
    """The records of an entry that have rows, together with some that have none, each counted once."""
    missing, records = spans_of(without_row), list[OffsetSpan]()
    for read in sink.ledger.ranges.of(entry):
        where = (read.topic, read.partition)
        each = (Spans.of([read.span]).intersect(of.get(where, Spans())) for of in (sink.present, missing))
        known = Spans.of(span for spans in each for span in spans)
        records += [OffsetSpan(read.topic, None, read.partition, *span) for span in known]
    return CountedRows(sum(record.span.size for record in records), of_ranges(records))


def _difference(some: CountedRows, others: CountedRows) -> int | None:
    """By what two fingerprints differ; None where one is unknown."""
    if some.fingerprint is None or others.fingerprint is None:
        return None
    return (some.fingerprint - others.fingerprint) % PRIME
