"""Which micro-batches may have read records of transactions that were aborted, and which of these have rows.

A query that reads uncommitted gives the sink the records of every transaction. Whether one was aborted, Kafka shows as
long as it holds its records; that a topic has transactions at all, their markers show: offsets without a record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from recon.judge.coverage import judged_holes
from recon.judge.findings import Findings
from recon.judge.kafka.kafka_states import open_transactions, was_held
from recon.judge.row_counts import Counts, Piece, ReadStretches
from recon.judge.rows.sink_rows import TopicPartition, report
from recon.judge.source import Source
from recon.model import Code, ProbeAnswer
from recon.model.grouping import united
from recon.model.offsets import Span, Spans
from recon.model.proof import SinkProof

_LOOKED_AT = 10_000  # offsets at the begin of a range that no micro-batch read: the end of a transaction is near it


def read_uncommitted(counts: Counts) -> frozenset[int]:
    """The judged entries whose query read uncommitted records, or may have.

    What Spark's plan says of the query counts. Where it is not known, recon.yml may say otherwise than the query does.
    """
    heads = counts.covered.slice.heads
    return frozenset(entry for entry in counts.counted if heads[entry].isolation_level != "read_committed")


def readings_of(stretches: ReadStretches, entries: Collection[int]) -> Iterator[Piece]:
    """What some of the entries read of a topic partition, also where others had read the same offsets before them."""
    return (piece for piece in stretches.readings(stretches.ranges) if piece.entry in entries) if entries else iter(())


def read_while_open(counts: Counts, proof: SinkProof | None) -> frozenset[int]:
    """The judged entries that read offsets behind an open transaction, and may have read its records.

    The hook or an earlier audit saw it open. That it was aborted since, no count shows: the marker at its end is an
    offset that the stream need not have read yet.
    """
    doubtful = read_uncommitted(counts)
    if not doubtful:
        return frozenset()
    seen_open = open_transactions(counts.covered.slice, proof)
    return frozenset(
        piece.entry
        for where, spans in seen_open.items()
        if (stretches := counts.judged.get(where)) is not None
        for piece in stretches.readings(spans.intersect(stretches.ranges))
        if piece.entry in doubtful
    )


# -- transactions that ended in a range that no micro-batch read -----------------------------------------------------


def left_out(counts: Counts, source: Source) -> Mapping[TopicPartition, Spans]:
    """The begins of ranges that no micro-batch read, in topic partitions of which one may have read aborted records.

    The marker at a transaction's end may lie there, and then no count shows it.
    """
    found: defaultdict[TopicPartition, list[Span]] = defaultdict(list)
    for key, incarnation, hole in judged_holes(counts.covered) if read_uncommitted(counts) else ():
        where = (key.topic, key.partition)
        if where in counts.judged and source.is_topic(key.topic, incarnation.topic_id):
            found[where].append(Span(hole.start, min(hole.end, hole.start + _LOOKED_AT)))
    return {where: Spans.of(spans) for where, spans in found.items()}


def ended_unread(counts: Counts, source: Source) -> frozenset[TopicPartition]:
    """The topic partitions of which Kafka shows that a transaction ended in what no micro-batch read, or may have.

    Offsets have no committed record there; in a compacted topic, they have one that was aborted. An answer that was cut
    short does not show that none ended there.
    """
    found = set[TopicPartition]()
    for where, spans in left_out(counts, source).items():
        if (answer := source.answers.get(where)) is not None:
            shown = spans.intersect(answer.shown)
            if source.is_compacted(answer.topic):
                shown = shown.intersect(answer.uncommitted)
            if answer.truncated is not None or shown.minus(answer.committed):
                found.add(where)
    return frozenset(found)


def doubtful_readings(counts: Counts, source: Source) -> Mapping[TopicPartition, Spans]:
    """What Kafka is asked about ranges that no micro-batch read and, where transactions ended there, what was read."""
    doubtful, ended = read_uncommitted(counts), ended_unread(counts, source)
    read = {where: Spans.of((p.start, p.end) for p in readings_of(counts.judged[where], doubtful)) for where in ended}
    return united(left_out(counts, source), read)


# -- rows of aborted transactions ------------------------------------------------------------------------------------


def judge_aborted(
    counts: Counts,
    source: Source,
    proof: SinkProof | None,
    findings: Findings,
    present: Mapping[TopicPartition, Spans] | None,
) -> None:
    """Adds findings for rows of aborted transactions, and for those of which Kafka no longer shows it.

    `present` are the offsets that rows carry; None where rows were not read, since counts prove that every offset has
    a row.
    """
    proved = [entry for entry in read_uncommitted(counts) if counts.counted[entry].proved]
    ended = ended_unread(counts, source)
    for where, answer in sorted(source.answers.items()):
        stretches = counts.judged.get(where)
        if stretches is None:
            continue
        if present is None:
            rows = Spans.of((piece.start, piece.end) for piece in readings_of(stretches, proved))
        else:
            rows = present.get(where, Spans()).intersect(stretches.ranges)
        rows = rows.intersect(answer.requested)
        judged = _Judged(counts, source, proof, findings, stretches, answer, rows, rows_read=present is not None)
        judged.shown(ended=where in ended)
        judged.gone()


@dataclass(frozen=True)
class _Judged:
    """The rows of one topic partition, against what Kafka says of their records."""

    counts: Counts
    source: Source
    proof: SinkProof | None
    findings: Findings
    stretches: ReadStretches
    answer: ProbeAnswer
    rows: Spans
    rows_read: bool

    def shown(self, *, ended: bool) -> None:
        """Rows whose records Kafka still has, and shows as aborted; `ended`: see `ended_unread`."""
        aborted = self.rows.intersect(self.answer.aborted).intersect(Spans.of([(0, self.answer.last_stable)]))
        if self.answer.truncated is not None:
            undecided = self.rows.intersect(self.answer.stable).minus(self.answer.committed)
            perhaps = self._readers_of(undecided if aborted or ended else Spans())
            self._report(Code.INCONCLUSIVE, perhaps, f"may be rows of aborted transactions: {self.answer.truncated}")
            return
        sure: dict[bool, list[Piece]] = {True: [], False: []}
        for piece in self._readers_of(aborted):
            counted = self.counts.counted[piece.entry]
            sure[self.rows_read or not (counted.dropped or counted.quarantined)].append(piece)
        step = "set kafka.isolation.level to read_committed and remove the rows"
        self._report(Code.PHANTOM_ROWS, sure[True], f"have rows, and their transaction was aborted: {step}")
        self._report(Code.INCONCLUSIVE, sure[False], "may have rows, and their transaction was aborted")

    def gone(self) -> None:
        """Rows whose records Kafka has deleted or compacted, of a topic partition that has transactions."""
        answer, gone = self.answer, Spans()
        # Without a marker, or a record of an aborted transaction, nothing shows that producers use transactions.
        if answer.shown.minus(answer.committed) or self._markers_expired():
            gone = self.rows.intersect(Spans.of([(0, answer.log_start)]))
        # Where recon.yml says that the query reads committed records, the topic has transactions.
        declared = self.source.isolation_level == "read_committed"
        if declared and answer.truncated is None and self.source.is_compacted(answer.topic):
            gone = gone.union(self.rows.intersect(answer.stable).minus(answer.uncommitted))
        self._report(
            Code.INCONCLUSIVE,
            self._unproved(gone),
            "have rows that were read uncommitted, and Kafka no longer has their records: whether their transaction "
            "was aborted is not known any more; audit while Kafka holds what was read, and open the stream with "
            "recon.read_kafka",
        )

    def _markers_expired(self) -> bool:
        """Whether offsets that had no record when they were read, and are in no row, are deleted by now."""
        if not self.rows_read or self.source.is_compacted(self.answer.topic):
            return False
        ledger, gone = self.counts.covered.slice, Spans.of([(0, self.answer.log_start)])
        asked = self.answer.requested.intersect(gone).intersect(self.stretches.ranges).minus(self.rows)
        missing = (p for p in self.stretches.pieces(asked) if self.counts.counted[p.entry].missing_at_read)
        return any(
            not piece.leads or was_held(ledger, ledger.heads[piece.entry].sequence, piece.where, piece.start)
            for piece in missing
        )

    def _readers_of(self, rows: Spans) -> Iterator[Piece]:
        """Rows by the entry that read them; of a topic that was created again, one that may have read uncommitted."""
        if self.stretches.incarnations > 1:
            doubtful = read_uncommitted(self.counts)
            readings = [piece for piece in self.stretches.readings(rows) if piece.entry in doubtful]
            yield from readings
            rows = rows.minus(Spans.of((piece.start, piece.end) for piece in readings))
        yield from self.stretches.pieces(rows)

    def _unproved(self, rows: Spans) -> Iterator[Piece]:
        """Rows of micro-batches that no earlier audit proved, and that read uncommitted, or so it is declared.

        What an earlier audit could not decide, it did not prove.
        """
        proof, heads = self.proof, self.counts.covered.slice.heads
        position, open_ = (proof.position, proof.open) if proof is not None else (0, ())
        where, declared = (self.answer.topic, self.answer.partition), self.source.isolation_level
        asked = Spans.of(span for found in open_ if found.is_in(*where) for span in found.spans)
        for piece in self._readers_of(rows):
            head, spans = heads[piece.entry], Spans.of([(piece.start, piece.end)])
            if (head.isolation_level or declared) == "read_uncommitted":
                for start, end in spans if head.sequence > position else spans.intersect(asked):
                    yield piece.part(start, end)

    def _report(self, code: Code, pieces: Iterable[Piece], what: str) -> None:
        report(self.counts.covered.slice, self.findings, code, pieces, what)
