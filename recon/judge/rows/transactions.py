"""Which micro-batches may have read records of transactions that were aborted, and which of these have rows.

A query that reads uncommitted gives the sink the records of every transaction. Whether one was aborted, Kafka shows as
long as it holds its records; that a topic has transactions at all, their markers show: offsets without a record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from recon.judge.coverage import is_compacted, is_same_topic, judged_holes
from recon.judge.findings import Findings
from recon.judge.kafka.kafka_states import open_transactions, was_held
from recon.judge.row_counts import Counts, Piece, ReadStretches
from recon.judge.rows.sink_rows import TopicPartition, report
from recon.model import Code, ProbeAnswer, Witnesses
from recon.model.offsets import Span, Spans

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


def read_while_open(counts: Counts, witnesses: Witnesses) -> frozenset[int]:
    """The judged entries that read offsets behind an open transaction, and may have read its records.

    The hook or an earlier audit saw it open. That it was aborted since, no count shows: the marker at its end is an
    offset that the stream need not have read yet.
    """
    doubtful = read_uncommitted(counts)
    if not doubtful:
        return frozenset()
    ledger = counts.covered.slice
    seen_open = open_transactions(ledger, witnesses.proof)
    return frozenset(
        piece.entry
        for where, spans in seen_open.items()
        if (stretches := counts.judged.get(where)) is not None
        for piece in stretches.readings(spans.intersect(stretches.ranges))
        if piece.entry in doubtful
    )


# -- transactions that ended in a range that no micro-batch read -----------------------------------------------------


def left_out(counts: Counts, witnesses: Witnesses) -> Mapping[TopicPartition, Spans]:
    """The begins of ranges that no micro-batch read, in topic partitions of which one may have read aborted records.

    The marker at a transaction's end may lie there, and then no count shows it.
    """
    found: dict[TopicPartition, list[Span]] = {}
    doubtful = read_uncommitted(counts)
    for key, incarnation, hole in judged_holes(counts.covered) if doubtful else ():
        where = (key.topic, key.partition)
        if where in counts.judged and is_same_topic(key, incarnation, witnesses):
            found.setdefault(where, []).append(Span(hole.start, min(hole.end, hole.start + _LOOKED_AT)))
    return {where: Spans.of(spans) for where, spans in found.items()}


def ended_unread(counts: Counts, witnesses: Witnesses) -> frozenset[TopicPartition]:
    """The topic partitions of which Kafka shows that a transaction ended in what no micro-batch read, or may have."""
    return frozenset(
        where
        for where, spans in left_out(counts, witnesses).items()
        if (answer := witnesses.probes.get(where)) is not None and _ended_in(spans, answer, witnesses)
    )


def _ended_in(spans: Spans, answer: ProbeAnswer, witnesses: Witnesses) -> bool:
    """Whether offsets have no committed record; in a compacted topic, whether they have one that was aborted.

    An answer that was cut short does not show that none ended there.
    """
    shown = spans.intersect(answer.shown)
    if is_compacted(answer.topic, witnesses):
        shown = shown.intersect(answer.uncommitted)
    return answer.truncated is not None or bool(shown.minus(answer.committed))


def doubtful_readings(counts: Counts, witnesses: Witnesses) -> Mapping[TopicPartition, Spans]:
    """What Kafka is asked about ranges that no micro-batch read and, where transactions ended there, what was read."""
    doubtful, ended = read_uncommitted(counts), ended_unread(counts, witnesses)
    return {
        where: spans.union(Spans.of((p.start, p.end) for p in readings_of(counts.judged[where], doubtful)))
        if where in ended
        else spans
        for where, spans in left_out(counts, witnesses).items()
    }


# -- rows of aborted transactions ------------------------------------------------------------------------------------


def judge_aborted(
    counts: Counts, witnesses: Witnesses, findings: Findings, present: Mapping[TopicPartition, Spans] | None
) -> None:
    """Adds findings for rows of aborted transactions, and for those of which Kafka no longer shows it.

    `present` are the offsets that rows carry; None where rows were not read, since counts prove that every offset has
    a row.
    """
    doubtful, ended = read_uncommitted(counts), ended_unread(counts, witnesses)
    for where, answer in sorted(witnesses.probes.items()):
        stretches = counts.judged.get(where)
        if stretches is None:
            continue
        if present is None:
            read = readings_of(stretches, [entry for entry in doubtful if counts.counted[entry].proved])
            rows = Spans.of((piece.start, piece.end) for piece in read)
        else:
            rows = present.get(where, Spans()).intersect(stretches.ranges)
        rows = rows.intersect(answer.requested)
        judged = _Judged(counts, witnesses, findings, stretches, answer, rows, rows_read=present is not None)
        judged.shown(ended=where in ended)
        judged.expired()
        judged.compacted()


@dataclass(frozen=True)
class _Judged:
    """The rows of one topic partition, against what Kafka says of their records."""

    counts: Counts
    witnesses: Witnesses
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
            self._report(
                Code.INCONCLUSIVE,
                self._readers_of(undecided if aborted or ended else Spans()),
                f"may be rows of aborted transactions: {self.answer.truncated}",
            )
            return
        has_row: list[Piece] = []
        perhaps: list[Piece] = []
        for piece in self._readers_of(aborted):
            counted = self.counts.counted[piece.entry]
            sure = self.rows_read or not (counted.dropped or counted.quarantined)
            (has_row if sure else perhaps).append(piece)
        self._report(
            Code.PHANTOM_ROWS,
            has_row,
            "have rows, and their transaction was aborted: set kafka.isolation.level to read_committed and "
            "remove the rows",
        )
        self._report(Code.INCONCLUSIVE, perhaps, "may have rows, and their transaction was aborted")

    def expired(self) -> None:
        """Rows whose records Kafka has deleted, in a topic partition that has transactions."""
        # Without a marker, or a record of an aborted transaction, nothing shows that producers use transactions.
        if not (self.answer.shown.minus(self.answer.committed) or self._markers_expired()):
            return
        expired = self.rows.intersect(Spans.of([(0, self.answer.log_start)]))
        self._report(
            Code.INCONCLUSIVE,
            self._unproved(expired, declared=self.witnesses.isolation_level),
            f"have rows that were read uncommitted, and Kafka's log now starts at {self.answer.log_start}: whether "
            "their transaction was aborted is not known any more; audit while Kafka holds what was read",
        )

    def _markers_expired(self) -> bool:
        """Whether offsets that had no record when they were read, and are in no row, are deleted by now."""
        if not self.rows_read or is_compacted(self.answer.topic, self.witnesses):
            return False
        gone = self.answer.requested.intersect(Spans.of([(0, self.answer.log_start)]))
        heads = self.counts.covered.slice.heads
        return any(
            self.counts.counted[piece.entry].missing_at_read
            and (
                not piece.leads
                or was_held(self.counts.covered.slice, heads[piece.entry].sequence, piece.where, piece.start)
            )
            for piece in self.stretches.pieces(gone.intersect(self.stretches.ranges).minus(self.rows))
        )

    def compacted(self) -> None:
        """Rows whose records compaction removed, where recon.yml says that the query reads committed records."""
        if self.answer.truncated is not None or not is_compacted(self.answer.topic, self.witnesses):
            return
        if self.witnesses.isolation_level != "read_committed":
            return  # nobody says that the topic has transactions
        gone = self.rows.intersect(self.answer.stable)
        self._report(
            Code.INCONCLUSIVE,
            self._unproved(gone.minus(self.answer.uncommitted), declared="read_committed"),
            "have rows that were read uncommitted, whatever recon.yml says, and compaction removed their records: "
            "whether their transaction was aborted is not known any more; open the stream with recon.read_kafka",
        )

    def _readers_of(self, rows: Spans) -> Iterator[Piece]:
        """Rows by the entry that read them; of a topic that was created again, one that may have read uncommitted."""
        if self.stretches.incarnations > 1:
            doubtful = read_uncommitted(self.counts)
            readings = [piece for piece in self.stretches.readings(rows) if piece.entry in doubtful]
            yield from readings
            rows = rows.minus(Spans.of((piece.start, piece.end) for piece in readings))
        yield from self.stretches.pieces(rows)

    def _unproved(self, rows: Spans, *, declared: str) -> Iterator[Piece]:
        """Rows of micro-batches that no earlier audit proved, and that read uncommitted, or so it is declared.

        What an earlier audit could not decide, it did not prove.
        """
        proof = self.witnesses.proof
        position, heads = proof.position if proof is not None else 0, self.counts.covered.slice.heads
        where = (self.answer.topic, self.answer.partition)
        asked = [one.spans for one in (proof.open if proof is not None else ()) if one.is_in(*where)]
        open_ = Spans.of(span for spans in asked for span in spans)
        before = Spans.of((p.start, p.end) for p in self._readers_of(rows) if heads[p.entry].sequence <= position)
        for piece in self._readers_of(rows.minus(before.minus(open_))):
            if (heads[piece.entry].isolation_level or declared) == "read_uncommitted":
                yield piece

    def _report(self, code: Code, pieces: Iterable[Piece], what: str) -> None:
        report(self.counts.covered.slice, self.findings, code, pieces, what)
