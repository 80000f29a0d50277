"""Witnesses for the test of an evidence check: a ledger, a checkpoint and Kafka that agree unless told otherwise.

All are about one pipeline `orders` with one sink `lake`, which reads one topic `orders`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from recon.base.lazy import np
from recon.model import (
    CheckpointBatch,
    CheckpointWitness,
    EntryHead,
    KafkaPartition,
    KafkaTopic,
    KafkaWitness,
    LedgerSlice,
    RangeTable,
    TableLog,
    Unavailable,
    Witnesses,
    offsets_text,
)
from recon.model.offsets import OffsetSpan

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
START = NOW - timedelta(hours=6)
PIPELINE, SINK, TOPIC, TOPIC_ID = "orders", "lake", "orders", "id-1"

Range = tuple[int, int]  # of partition 0 of TOPIC


def span(
    start: int, end: int, partition: int = 0, topic: str = TOPIC, topic_id: str | None = TOPIC_ID, source: int = 0
) -> OffsetSpan:
    """Offsets of one topic partition; `end` is exclusive."""
    return OffsetSpan(topic, topic_id, partition, start, end, source)


class Entry:
    """One ledger entry to be: its micro-batch and offset ranges, and further fields of `EntryHead`.

    A bare (start, end) is a range of partition 0; `span` gives one of another partition.
    """

    def __init__(self, batch_id: int, *ranges: OffsetSpan | Range, **head: Any) -> None:
        self.batch_id = batch_id
        self.ranges = tuple(r if isinstance(r, OffsetSpan) else span(*r) for r in ranges)
        self.head = head

    @property
    def width(self) -> int:
        """The number of offsets in its ranges."""
        return sum(max(r.end_offset - r.start_offset, 0) for r in self.ranges)


def head_of(entry: Entry, index: int, prev_hash: str) -> EntryHead:
    """An entry's head as the hook would have written it: exactly-once, every row it read written."""
    at = START + timedelta(minutes=index)
    fields: dict[str, Any] = {
        "pipeline": PIPELINE,
        "sink": SINK,
        "sequence": index + 1,
        "sink_kind": "delta",
        "target": "lake/orders",
        "guarantee": "exactly-once",
        "query_id": "q-1",
        "run_id": None,
        "epoch": 0,
        "batch_id": entry.batch_id,
        "attempt": 1,
        "status": "committed",
        "rows_read": entry.width,
        "rows_written": entry.width,
        "rows_quarantined": 0,
        "rows_filtered": 0,
        "isolation_level": "read_committed",
        "sink_version": index,
        "started_at": at,
        "committed_at": at + timedelta(seconds=2),
        "spark_version": "4.0.0",
        "recon_version": "0",
        "checks_fingerprint": None,
        "prev_hash": prev_hash,
        "entry_hash": f"hash-{index}",
    }
    return EntryHead(**{**fields, **entry.head})


def ledger(*entries: Entry, anchors: int = 0, **fields: Any) -> LedgerSlice:
    """The ledger's entries of the period, chained in this order; the first `anchors` came before the period."""
    heads: list[EntryHead] = []
    for i, entry in enumerate(entries):
        heads.append(head_of(entry, i, heads[-1].entry_hash if heads else ""))
    return LedgerSlice(
        pipeline=PIPELINE,
        sink=SINK,
        heads=heads,
        ranges=range_table([entry.ranges for entry in entries]),
        anchors=anchors,
        **{"offsets_texts": [offsets_text(entry.ranges) for entry in entries], **fields},
    )


def range_table(ranges: Sequence[Sequence[OffsetSpan]]) -> RangeTable:
    """The ranges of entries, in columns."""
    topics: dict[tuple[int, str, str | None], int] = {}
    rows = [
        (i, topics.setdefault((r.source, r.topic, r.topic_id), len(topics)), r.partition, r.start_offset, r.end_offset)
        for i, members in enumerate(ranges)
        for r in members
    ]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    return RangeTable(columns[0], columns[1].astype(np.int32), columns[2], columns[3], columns[4], list(topics))


def kafka(
    log_start: int = 0,
    log_end: int = 100,
    *,
    partition: int = 0,
    topic: str = TOPIC,
    topic_id: str | None = TOPIC_ID,
    cluster_id: str | None = None,
    policy: str = "delete",
    exists: bool = True,
    isolation_level: str = "read_committed",
    more: Iterable[KafkaPartition] = (),
    **fields: Any,
) -> KafkaWitness:
    """A topic as Kafka describes it: one partition whose log holds these offsets, and `more`."""
    first = KafkaPartition(
        partition=partition,
        log_start=log_start,
        log_end=log_end,
        **{"high_watermark": log_end, "last_stable": log_end, **fields},
    )
    partitions = {p.partition: p for p in (first, *more)} if exists else {}
    described = KafkaTopic(
        topic=topic,
        exists=exists,
        topic_id=topic_id if exists else None,
        cluster_id=cluster_id if exists else None,
        cleanup_policy=policy,
        partitions=partitions,
    )
    return KafkaWitness(
        bootstrap_servers="broker:9092", isolation_level=isolation_level, read_at=NOW, topics={topic: described}
    )


def planned(
    batch_id: int, *ranges: OffsetSpan | Range, committed: bool = True, at: datetime | None = None, **fields: Any
) -> CheckpointBatch:
    """One micro-batch of the checkpoint; Spark's files know no topic ids."""
    spans = tuple((r if isinstance(r, OffsetSpan) else span(*r))._replace(topic_id=None) for r in ranges)
    return CheckpointBatch(
        batch_id=batch_id,
        planned_at=at or START + timedelta(minutes=batch_id, seconds=-1),
        committed=committed,
        ranges=spans,
        **fields,
    )


def checkpoint(*batches: CheckpointBatch, query_id: str = "q-1") -> CheckpointWitness:
    """A checkpoint that holds these micro-batches, made by `planned`."""
    return CheckpointWitness(location="checkpoints/orders", query_id=query_id, batches=batches)


def gone(witness: str, *, skipped: bool = False) -> Unavailable:
    """A witness that cannot be read, or that the user chose to skip."""
    return Unavailable(witness, f"{witness} did not answer", skipped)


def witnesses(
    ledger: LedgerSlice | Unavailable | None = None,
    *,
    delta: TableLog | Unavailable | None = None,
    **fields: Any,
) -> Witnesses:
    """Witnesses of one sink at noon, six hours after its stream began; those not given are Unavailable.

    Args:
        ledger: the ledger's entries, made by `ledger`; without it, the ledger has none.
        delta: the sink's Delta log.
        fields: further fields of `Witnesses`, such as `checkpoint`, `kafka`, `rows` or `period_from`.
    """
    in_ledger: Mapping[str, LedgerSlice] | Unavailable = {}
    if ledger is not None:
        in_ledger = ledger if isinstance(ledger, Unavailable) else {SINK: ledger}
    defaults: dict[str, Any] = {
        "pipeline": PIPELINE,
        "sink": SINK,
        "now": NOW,
        "isolation_level": "read_committed",
        "period_from": None,
        "period_to": NOW,
        "ledgers": in_ledger,
        "checkpoint": gone("checkpoint"),
        "kafka": gone("kafka"),
        "delta": gone("delta") if delta is None else delta if isinstance(delta, Unavailable) else {SINK: delta},
        "rows": gone("rows"),
    }
    return Witnesses(**{**defaults, **fields})
