"""Providers that rest on Kafka's answers: offsets that it deleted, and those that have no record there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from recon.judge.account.fold import Classified, OpenOffsets, Provider, Told, classified
from recon.judge.account.recorded import recorded
from recon.judge.kafka.kafka_states import was_held
from recon.judge.row_counts import Piece, inside
from recon.judge.rows.of_sink import CHECK
from recon.judge.rows.sink_rows import SinkRows, TopicPartition
from recon.model import Code, ProbeAnswer
from recon.model.account import HowKnown, OffsetClass
from recon.model.offsets import Spans
from recon.model.proof import SinkProof


def not_answered(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """Kafka gave no answer about their topic partition, or not one that reaches them."""
    for where, of_partition in left.by_partition.items():
        pieces = [piece for piece in of_partition if not _is_of_another_topic(sink, piece)]
        answer, unclear = sink.source.answers.get(where), Spans.of((piece.start, piece.end) for piece in pieces)
        what = "are in no row, and Kafka could not be read to explain them"
        if answer is not None:
            why = answer.truncated or "the probe did not reach them"
            what = f"are in no row, and Kafka could not explain them: {why}"
            unclear = unclear.minus(_deleted(answer)).minus(answer.committed).minus(_sure(answer))
        told = Told(Code.INCONCLUSIVE, what)
        yield from classified(inside(pieces, unclear), OffsetClass.NOT_KNOWN, HowKnown.NOTHING, told)


def found_lost(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """Kafka has them no longer; an earlier audit found that they are records, all of them, and have no row."""
    what = "are in no row; an earlier audit found them in Kafka, which has deleted them since"
    told = Told(Code.GAP, what, records=True)
    for where, pieces in left.by_partition.items():
        gone = [*_gone(sink, pieces), *_compacted(sink, pieces)]
        lost = inside(gone, _lost(sink, where))
        yield from classified(lost, OffsetClass.LOST, HowKnown.REMEMBERED, told)


def _lost(sink: SinkRows, where: TopicPartition) -> Spans:
    """What it named. Where the topic was created again, they may be of another one."""
    proof = sink.proof
    if proof is None or sink.counts.judged[where].incarnations > 1:
        return Spans()
    found = (o for o in proof.open if o.check == CHECK and o.finding.code is Code.GAP and o.is_in(*where))
    return Spans.of(span for open_ in found if open_.finding.rows == open_.spans.size for span in open_.spans)


def proved_before(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """Kafka has deleted them; an earlier audit proved their micro-batch, and no more lack a row than a record then.

    That audit found the reason for each of these offsets while Kafka could still show it.
    """
    proved = _proved(sink)
    gone = _gone(sink, (piece for piece in left.pieces if piece.entry in proved))
    yield from classified(gone, OffsetClass.WITHOUT_RECORD, HowKnown.REMEMBERED)


def _proved(sink: SinkRows) -> frozenset[int]:
    proof, asked = sink.proof, recorded(sink)[1]
    if proof is None:
        return frozenset()
    doubted = set[int]()
    for where, pieces in asked.by_partition.items():
        open_spans = Spans.of(span for open_ in proof.open if open_.is_in(*where) for span in open_.spans)
        doubted.update(piece.entry for piece in inside(pieces, open_spans))
    return frozenset(
        entry for entry in asked.of_entry if entry not in doubted and _was_proved(sink, proof, entry, asked)
    )


def _was_proved(sink: SinkRows, proof: SinkProof, entry: int, asked: OpenOffsets) -> bool:
    """Whether an earlier audit proved an entry, and no more of its offsets lack a row than lacked a record then."""
    head, counted = sink.ledger.heads[entry], sink.counts.counted[entry]
    named_open = {(open_.finding.epoch, open_.finding.batch_id) for open_ in proof.open}
    if not proof.judged(head, sink.ledger) or (head.epoch, head.batch_id) in named_open or counted.explodes:
        return False
    # Where the reader did not count, the offsets that no counted row accounts for are those without a record.
    holes = counted.deficit if counted.missing_at_read is None else counted.missing_at_read
    return holes is not None and asked.of_entry[entry] <= holes + (counted.dropped or 0)


def of_another_topic(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """Their topic was deleted and created again, or moved: what Kafka has under its name now may be other records."""
    for piece in left.pieces:
        if _is_of_another_topic(sink, piece):
            other = sink.source.other_records(piece.key.topic, _topic_id(sink, piece))
            yield Classified.for_good_unknown(piece, f"are in no row, and {other}")


def deleted(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """Kafka has deleted them since they were planned, and no audit before saw what they were."""
    for where, pieces in left.by_partition.items():
        answer = sink.source.answers[where]
        for piece in inside(pieces, _deleted(answer)):
            yield _class(sink, piece, answer.log_start)


def _class(sink: SinkRows, piece: Piece, log_start: int) -> Classified:
    unread = _expired_unread(sink, piece, log_start) if piece.leads else False
    starts = f"are in no row, and Kafka's log now starts at {log_start}"
    if unread:
        told = Told(Code.LOSS_RETENTION, f"{starts}: they cannot be read any more")
        return Classified(piece, OffsetClass.DELETED, HowKnown.KAFKA, told)
    what = f"{starts}: they were there when they were read, and whether they were records is unknown"
    if unread is None:
        what = (
            f"{starts}: whether they had expired when they were read, or were records of aborted transactions, is "
            "not known any more"
        )
    return Classified.for_good_unknown(piece, what)


def _expired_unread(sink: SinkRows, piece: Piece, log_start: int) -> bool | None:
    """Whether the beginning of a range had expired when it was read; None where nobody knows.

    The broker may have told the hook later where the log starts. If not, it is so where the log still starts right
    behind it, and where the query reads uncommitted, which gets every record that Kafka still has; one that reads
    committed leaves out those of aborted transactions, too, and retention may have taken them since.
    """
    head = sink.ledger.heads[piece.entry]
    held = was_held(sink.ledger, head.sequence, piece.where, piece.start)
    if held is None:
        reads_all = (head.isolation_level or sink.source.isolation_level) == "read_uncommitted"
        return True if reads_all or piece.end == log_start else None
    return not held


def had_a_record(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """They have no record today, where fewer of their micro-batch had none when it was read: some had one then."""
    for entry, pieces in left.by_entry.items():
        without = [part for p in pieces for part in inside((p,), _unread_now(sink, p.where))]
        more = _more(sink, entry, pieces, sum(piece.size for piece in without))
        what = (
            f"are in no row, and Kafka has no record there now; when the micro-batch was read, {more:,} more of "
            "its offsets had one: as many were lost, and Kafka no longer shows which"
        )
        for piece in without if more > 0 else ():
            yield Classified.for_good_unknown(piece, what, entry=entry)


def _more(sink: SinkRows, entry: int, pieces: Sequence[Piece], without: int) -> int:
    """How many of the offsets without a record had one; 0 where counts do not tell."""
    counted = sink.counts.counted[entry]
    if counted.missing_at_read is None or counted.dropped is None or counted.explodes:
        return 0
    records = [part for p in pieces for part in inside((p,), sink.source.answers[p.where].committed)]
    filtered = max(counted.dropped - sum(piece.size for piece in records), 0)
    return without + _expired(sink, entry) - counted.missing_at_read - filtered


def _expired(sink: SinkRows, entry: int) -> int:
    """How many offsets of an entry Kafka had deleted before they were read."""
    expired = 0
    for piece in recorded(sink)[1].by_entry[entry]:
        answer = sink.source.answers.get(piece.where)
        if answer is not None:
            gone = inside((piece,), _deleted(answer))
            expired += sum(p.size for p in gone if p.leads and _expired_unread(sink, p, answer.log_start))
    return expired


def without_a_record(sink: SinkRows, left: OpenOffsets) -> Iterator[Classified]:
    """Kafka has no record there for a reader of committed records."""
    for where, pieces in left.by_partition.items():
        answer = sink.source.answers[where]
        yield from classified(inside(pieces, answer.aborted), OffsetClass.ABORTED, HowKnown.KAFKA)
        for piece in inside(pieces, _unread_now(sink, where).minus(answer.aborted)):
            yield _never_there(sink, piece)


def _never_there(sink: SinkRows, piece: Piece) -> Classified:
    if not sink.source.is_compacted(piece.key.topic):
        return Classified(piece, OffsetClass.MARKER, HowKnown.KAFKA)
    if not sink.counts.counted[piece.entry].uncounted:
        return Classified(piece, OffsetClass.COMPACTED, HowKnown.KAFKA)
    what = (
        "are in no row, and Kafka has no record there now: compaction may have removed one that was lost since it "
        "was written, and no count says how many records were read"
    )
    return Classified.for_good_unknown(piece, what)


def _gone(sink: SinkRows, pieces: Iterable[Piece]) -> Iterator[Piece]:
    """What Kafka no longer has of them: it deleted them, or the topic."""
    for piece in pieces:
        if _is_of_another_topic(sink, piece):
            yield piece
        elif (answer := sink.source.answers.get(piece.where)) is not None:
            yield from inside((piece,), _deleted(answer))


def _compacted(sink: SinkRows, pieces: Iterable[Piece]) -> Iterator[Piece]:
    """What compaction may have removed of them: Kafka has no record there, of no transaction either."""
    for piece in pieces:
        if sink.source.is_compacted(piece.key.topic) and piece.where in sink.source.answers:
            aborted = sink.source.answers[piece.where].aborted
            yield from inside((piece,), _unread_now(sink, piece.where).minus(aborted))


def _is_of_another_topic(sink: SinkRows, piece: Piece) -> bool:
    """Whether Kafka's topic is another one than the micro-batch read, as far as topic ids are known."""
    now, read = sink.source.topic(piece.key.topic), _topic_id(sink, piece)
    return now is not None and now.topic_id is not None and read not in (None, now.topic_id)


def _topic_id(sink: SinkRows, piece: Piece) -> str | None:
    incarnation = sink.counts.covered.incarnation_of(piece.key, piece.entry, piece.start)
    return incarnation.topic_id if incarnation is not None else None


def _deleted(answer: ProbeAnswer) -> Spans:
    return Spans.of([(0, answer.log_start)])


def _sure(answer: ProbeAnswer) -> Spans:
    """The offsets of which an answer that is not cut short says whether they have a record."""
    return answer.shown if answer.truncated is None else Spans()


def _unread_now(sink: SinkRows, where: TopicPartition) -> Spans:
    """The offsets that have no record for a reader of committed records."""
    answer = sink.source.answers[where]
    return _sure(answer).minus(answer.committed)


WITHOUT_A_RECORD: Sequence[Provider] = (
    not_answered,
    found_lost,
    proved_before,
    of_another_topic,
    deleted,
    had_a_record,
    without_a_record,
)
