"""Rows that a transform makes: where a record may have several, its offset does not show whether all of them are there.

What the sink was given was counted during the write, with a fingerprint of the rows' source offsets. What it holds of
the micro-batch must be as many rows, of the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

from recon.checks.evidence.own_writes import doubled, own_commits
from recon.checks.evidence.row_accounting import Piece
from recon.checks.evidence.source_rows.rows import SinkRows, rows_are_no_newer
from recon.model import Code, CountedRows, EntryHead
from recon.model.fingerprint import PRIME, of_ranges
from recon.model.ledger import named
from recon.model.offsets import OffsetSpan, Spans
from recon.text import plural


def judge_made(sink: SinkRows) -> None:
    """Adds findings for micro-batches of which the sink holds other rows than it was given."""
    for entry in _made_by_transform(sink):
        head = sink.ledger.heads[entry]
        if head.given is None:
            continue
        given, held = head.given, _held(sink, head)
        told = f"the sink was given {plural(given.rows, 'row')} of {named(head)}, and "
        if held is None:
            # Its rows cannot be told from others': what it took in was counted as well.
            held, told = CountedRows(given.rows - sink.counts.counted[entry].lost, None), f"{told}took in "
        else:
            told += "holds "
        if held.rows < given.rows:
            lost = f"{held.rows:,}: {plural(given.rows - held.rows, 'row')} lost"
            sink.findings.add(Code.GAP, told + lost, head=head)
        elif held.rows > given.rows:
            more = f"{held.rows:,}: {plural(held.rows - given.rows, 'row')} doubled"
            sink.findings.add(doubled(sink.witnesses)[0], told + more, head=head)
        elif _differ(given, held):
            other = "as many, but of other offsets: some are lost, and others doubled"
            sink.findings.add(Code.GAP, told + other, head=head)


def filtered_by_transform(sink: SinkRows, entry: int, without_row: Iterable[Piece]) -> bool:
    """Whether the records of an entry that have no row were read and the transform dropped them.

    It did where the sink holds all that it was given, and where these records, with those that have rows, are the
    records that were read.
    """
    head = sink.ledger.heads[entry]
    held = _held(sink, head)
    if head.read is None or head.given is None or held is None or held.rows != head.given.rows:
        return False
    if None in (held.fingerprint, head.given.fingerprint, head.read.fingerprint) or _differ(head.given, held):
        return False
    return _records(sink, entry, without_row) == head.read


def read_others(sink: SinkRows, entry: int, without_row: Iterable[Piece]) -> bool:
    """Whether as many records were read as an entry's ranges have, and others: some were lost, and others doubled.

    The records are those that have rows, and those that Kafka has and no row carries.
    """
    read, records = sink.ledger.heads[entry].read, _records(sink, entry, without_row)
    return read is not None and read.rows == records.rows and _differ(read, records)


def _records(sink: SinkRows, entry: int, without_row: Iterable[Piece]) -> CountedRows:
    """The records of an entry that have rows, together with some that have none, each counted once."""
    missing: dict[tuple[str, int], Spans] = {}
    for piece in without_row:
        missing[piece.where] = missing.get(piece.where, Spans()).union(Spans.of([(piece.start, piece.end)]))
    records: list[OffsetSpan] = []
    for read in sink.ledger.ranges.of(entry):
        where = (read.topic, read.partition)
        known = sink.present.get(where, Spans()).union(missing.get(where, Spans()))
        records += [
            OffsetSpan(read.topic, None, read.partition, *span) for span in known.intersect(Spans.of([read.span]))
        ]
    return CountedRows(sum(record.span.size for record in records), of_ranges(records))


def _made_by_transform(sink: SinkRows) -> list[int]:
    """Entries whose transform may make several rows of one record, as recon.yml declares."""
    if not sink.witnesses.declared.explodes:
        return []
    heads, operators = sink.ledger.heads, sink.counts.operators
    return [
        entry
        for entry, counted in sink.counts.counted.items()
        if (counted.explodes or counted.lost) and not operators.keeps_state(heads[entry])
    ]


def _held(sink: SinkRows, head: EntryHead) -> CountedRows | None:
    """The rows that the sink holds of a micro-batch; None where they cannot be told from those of other writes.

    Rows carry `_batch_id` and no epoch, and a release or a repair writes rows with the number of another's micro-batch.
    """
    log = sink.witnesses.of_sink(sink.witnesses.delta)
    if log is None or sink.witnesses.period_to < sink.witnesses.now or not rows_are_no_newer(sink):
        return None
    epochs = {head.epoch for head in sink.ledger.heads}
    epochs.update(stamp.epoch for _, stamp in own_commits(log, sink.ledger.pipeline, sink.ledger.sink))
    if epochs - {0}:
        return None
    groups = [group for group in sink.rows.groups if group.batch_id == head.batch_id]
    prints = [group.fingerprint for group in groups]
    known = None if None in prints else sum(p for p in prints if p is not None) % PRIME
    return CountedRows(sum(group.rows for group in groups), known)


def _differ(one: CountedRows, other: CountedRows) -> bool:
    return None not in (one.fingerprint, other.fingerprint) and one.fingerprint != other.fingerprint
