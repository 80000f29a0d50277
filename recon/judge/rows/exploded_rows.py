"""Rows that a transform makes: where a record may have several, its offset does not show whether all of them are there.

What the sink was given was counted during the write, with a fingerprint of the rows' source offsets. What it holds of
the micro-batch must be as many rows, of the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recon.judge.coverage import is_compacted
from recon.judge.history.recon_commits import doubled
from recon.judge.row_counts import Piece
from recon.judge.rows.sink_rows import SinkRows
from recon.model import Code, CommitRows, CountedRows
from recon.model.fingerprint import PRIME, of_offsets, of_ranges
from recon.model.ledger import named
from recon.model.offsets import OffsetSpan, Spans
from recon.text import plural


def judge_made(sink: SinkRows) -> None:
    """Adds findings for micro-batches of which the sink holds other rows than it was given."""
    for entry in _made_by_transform(sink):
        head = sink.ledger.heads[entry]
        _judge_read(sink, entry)
        if head.given is None:
            _judge_uncounted(sink, entry)
            continue
        given, held = head.given, sink.held_of(head.batch_id)
        message = f"the sink was given {plural(given.rows, 'row')} of {named(head)}, and "
        message += "took in " if held is None else "holds "
        held = held or _taken_in(sink, entry, given)
        if held.rows < given.rows:
            lost = f"{held.rows:,}: {plural(given.rows - held.rows, 'row')} lost"
            sink.findings.add(Code.GAP, message + lost, head=head)
        elif held.rows > given.rows:
            more = f"{held.rows:,}: {plural(held.rows - given.rows, 'row')} doubled"
            sink.findings.add(doubled(sink.witnesses)[0], message + more, head=head)
        elif _differ(given, held):
            other = "as many, but of other offsets: some are lost, and others doubled"
            sink.findings.add(Code.GAP, message + other, head=head)


def _taken_in(sink: SinkRows, entry: int, given: CountedRows) -> CountedRows:
    """What the sink took in of a micro-batch whose rows cannot be told from others': its commit's, or their number."""
    version = sink.ledger.heads[entry].sink_version
    added = None if version is None else sink.witnesses.commit_rows.get(version)
    if isinstance(added, CommitRows):
        return added.held
    return CountedRows(given.rows - sink.counts.counted[entry].lost, None)


def _judge_uncounted(sink: SinkRows, entry: int) -> None:
    """A commit does not say how many rows it was given: what is not in it, its restored entry does not show."""
    head = sink.ledger.heads[entry]
    if head.is_uncounted:
        made = "made" if head.is_observed else "restored"
        sink.findings.add(
            Code.INCONCLUSIVE,
            f"the ledger entry of {named(head)} was {made} from the sink's own record, which does not say how many "
            "rows the sink was given: whether it holds all that the transform made of each record is not known; "
            "compare them with the source, then accept it",
            head=head,
        )


def _judge_read(sink: SinkRows, entry: int) -> None:
    """More records read than there are: rows that a transform makes of a record which was read twice look like one's.

    In the epochs after the first one a sink that trims drops what it holds already, and that was read, too.
    """
    head, most = sink.ledger.heads[entry], sink.counts.width[entry] - _without_a_record(sink, entry)
    if head.read is None or head.read.rows <= most:
        return
    message = f"{plural(head.read.rows, 'row')} of {plural(most, 'record')} of {named(head)} came before the transform"
    if head.read.rows > sink.counts.width[entry] and head.epoch <= 0:
        code, _ = doubled(sink.witnesses)
        sink.findings.add(code, f"{message}: some were read twice, and all that it makes of them is doubled", head=head)
    else:
        some_since = "some were read twice, or dropped as already there, or compaction removed records since"
        sink.findings.add(Code.INCONCLUSIVE, f"{message}: {some_since}", head=head)


def _without_a_record(sink: SinkRows, entry: int) -> int:
    """How many offsets of an entry have no row, and no record either, as Kafka says."""
    absent = 0
    for read in sink.ledger.ranges.of(entry):
        where = (read.topic, read.partition)
        answer = sink.witnesses.probes.get(where)
        if answer is not None and answer.truncated is None and not is_compacted(read.topic, sink.witnesses):
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
    if head.read is None or head.given is None or held is None or held.rows != head.given.rows:
        return False
    if None in (held.fingerprint, head.given.fingerprint, head.read.fingerprint) or _differ(head.given, held):
        return False
    return _records(sink, entry, without_row) == head.read


def lost_by_fingerprints(sink: SinkRows, entry: int, without_row: Sequence[Piece]) -> list[Piece]:
    """Which of an entry's records without a row were lost, where its transform filtered the others; [] if unknown.

    A record that the reader lost, and one that the sink lost or that was removed from it, each leaves the difference of
    two fingerprints: of the records that Kafka has and those that were read, of the rows that the sink was given and
    those that it holds. One record alone has that fingerprint.
    """
    head, dropped = sink.ledger.heads[entry], sink.counts.counted[entry].dropped
    if head.read is None or head.given is None or dropped is None:
        return []
    steps = ((_records(sink, entry, without_row), head.read), (head.given, _records(sink, entry, ())))
    missing = [before.rows - after.rows for before, after in steps]
    if set(missing) - {0, 1} or sum(missing) != sum(piece.size for piece in without_row) - dropped:
        return []
    lost: set[Piece] = set()
    for before, after in steps:
        if before.fingerprint is None or after.fingerprint is None:
            return []
        difference = (before.fingerprint - after.fingerprint) % PRIME
        found = _with_fingerprint(difference, without_row) if before.rows > after.rows else []
        if len(found) != before.rows - after.rows or (not found and difference):
            return []
        lost.update(found)
    return sorted(lost) if len(lost) == sum(missing) else []


def _with_fingerprint(fingerprint: int, pieces: Iterable[Piece]) -> list[Piece]:
    """The single offsets of some pieces whose row has a fingerprint."""
    return [
        piece._replace(start=offset, end=offset + 1, leads=piece.leads and offset == piece.start)
        for piece in pieces
        for offset in range(piece.start, piece.end)
        if of_offsets(*piece.where, (offset,)) == fingerprint
    ]


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
        where, asked = (read.topic, read.partition), Spans.of([read.span])
        present, lost = (known.get(where, Spans()).intersect(asked) for known in (sink.present, missing))
        records += [OffsetSpan(read.topic, None, read.partition, *span) for span in present.union(lost)]
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


def _differ(one: CountedRows, other: CountedRows) -> bool:
    return None not in (one.fingerprint, other.fingerprint) and one.fingerprint != other.fingerprint
