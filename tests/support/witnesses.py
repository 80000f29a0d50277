"""Small builders of witnesses for the pure tests of the judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from recon.model import (
    CheckpointBatch,
    CheckpointWitness,
    Code,
    DeltaCommit,
    DeltaWitness,
    EntryHead,
    KafkaPartition,
    KafkaTopic,
    KafkaWitness,
    LedgerSlice,
    PreviousAudit,
    ProbeAnswer,
    RangeTable,
    ReconStamp,
    RowGroup,
    RowsWitness,
    Unavailable,
    Verdict,
    Witnesses,
    offsets_text,
)
from recon.model.offsets import OffsetSpan, Spans

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
START = NOW - timedelta(hours=6)
PIPELINE, SINK, TOPIC, TOPIC_ID = "orders", "lake", "orders", "id-1"

Range = tuple[int, int]  # of partition 0 of TOPIC


def span(
    start: int, end: int, partition: int = 0, topic: str = TOPIC, topic_id: str | None = TOPIC_ID, source: int = 0
) -> OffsetSpan:
    return OffsetSpan(topic, topic_id, partition, start, end, source)


class Entry:
    """One ledger entry to be: a head and its ranges. A bare (start, end) stands for partition 0."""

    def __init__(self, batch_id: int, *ranges: OffsetSpan | Range, **head: Any) -> None:
        self.batch_id = batch_id
        self.ranges = tuple(r if isinstance(r, OffsetSpan) else span(*r) for r in ranges)
        self.head = head

    @property
    def width(self) -> int:
        return sum(max(r.end_offset - r.start_offset, 0) for r in self.ranges)


def head_of(entry: Entry, index: int, prev_hash: str) -> EntryHead:
    at = START + timedelta(minutes=index)
    fields: dict[str, Any] = {
        "pipeline": PIPELINE,
        "sink": SINK,
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
    topics: dict[tuple[int, str, str | None], int] = {}
    rows = [
        (i, topics.setdefault((r.source, r.topic, r.topic_id), len(topics)), r.partition, r.start_offset, r.end_offset)
        for i, members in enumerate(ranges)
        for r in members
    ]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    return RangeTable(columns[0], columns[1].astype(np.int32), columns[2], columns[3], columns[4], list(topics))


def regular_ledger(batches: int, partitions: int, size: int = 100, **fields: Any) -> LedgerSlice:
    """A long, healthy ledger, made in columns."""
    heads: list[EntryHead] = []
    for i in range(batches):
        made = head_of(Entry(i), i, heads[-1].entry_hash if heads else "")
        rows = size * partitions
        heads.append(replace(made, rows_written=rows, rows_read=rows, committed_at=START + timedelta(seconds=10 * i)))
    start = np.repeat(np.arange(batches, dtype=np.int64) * size, partitions)
    table = RangeTable(
        np.repeat(np.arange(batches, dtype=np.int64), partitions),
        np.zeros(batches * partitions, np.int32),
        np.tile(np.arange(partitions, dtype=np.int64), batches),
        start,
        start + size,
        [(0, TOPIC, TOPIC_ID)],
    )
    ids = ",".join(str(p) for p in range(partitions))

    def text(i: int) -> str:
        starts, ends = ([str((i + k) * size)] * partitions for k in (0, 1))
        return f'[[0,"{TOPIC}","{TOPIC_ID}",[{ids}],[{",".join(starts)}],[{",".join(ends)}]]]'

    return LedgerSlice(
        pipeline=PIPELINE,
        sink=SINK,
        heads=heads,
        ranges=table,
        **{"offsets_texts": [text(i) for i in range(batches)], **fields},
    )


def kafka(
    log_start: int = 0,
    log_end: int = 100,
    *,
    partition: int = 0,
    topic: str = TOPIC,
    topic_id: str | None = TOPIC_ID,
    policy: str = "delete",
    exists: bool = True,
    isolation_level: str = "read_committed",
    more: Iterable[KafkaPartition] = (),
    **fields: Any,
) -> KafkaWitness:
    first = KafkaPartition(
        partition=partition,
        log_start=log_start,
        log_end=log_end,
        **{"high_watermark": log_end, "last_stable": log_end, **fields},
    )
    partitions = {p.partition: p for p in (first, *more)} if exists else {}
    found = KafkaTopic(
        topic=topic,
        exists=exists,
        topic_id=topic_id if exists else None,
        cleanup_policy=policy,
        partitions=partitions,
    )
    return KafkaWitness(
        bootstrap_servers="broker:9092", isolation_level=isolation_level, read_at=NOW, topics={topic: found}
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
    return CheckpointWitness(location="checkpoints/orders", query_id=query_id, batches=batches)


def commit(version: int, entry: Entry | None = None, **fields: Any) -> DeltaCommit:
    """A commit; of a micro-batch when an entry is given."""
    made: dict[str, Any] = {
        "version": version,
        "timestamp": START + timedelta(minutes=version, seconds=1),
        "operation": "WRITE",
        "operation_parameters": {"mode": "Append"},
        "operation_metrics": {},
        "txn": {},
        "user_metadata": None,
        "stamp": None,
        "files_added": 1,
        "files_removed": 0,
        "rows_added": 10,
        "rows_removed": 0,
        "data_change": True,
    }
    if entry is not None:
        epoch = entry.head.get("epoch", 0)
        rows = entry.head.get("rows_written", entry.width)
        made |= {
            "txn": {f"recon:{PIPELINE}:{SINK}:{epoch}": entry.batch_id},
            "rows_added": rows,
            "operation_metrics": {"numOutputRows": str(rows)},
            "stamp": ReconStamp(
                pipeline=PIPELINE,
                sink=SINK,
                epoch=epoch,
                batch_id=entry.batch_id,
                query_id=entry.head.get("query_id", "q-1"),
                run_id=None,
                prev_hash="",
                offsets_text=offsets_text(entry.ranges),
            ),
        }
    return DeltaCommit(**{**made, **fields})


def delta(*commits: DeltaCommit, **fields: Any) -> DeltaWitness:
    versions = sorted(c.version for c in commits)
    txns: dict[str, int] = {}
    for found in sorted(commits, key=lambda c: c.version):
        txns |= found.txn
    made: dict[str, Any] = {
        "location": "lake/orders",
        "exists": True,
        "first_retained": versions[0] if versions else None,
        "last": versions[-1] if versions else None,
        "commits": {c.version: c for c in commits},
        "txns": txns,
    }
    return DeltaWitness(**{**made, **fields})


delta_log = delta  # where an argument hides the name


def group(batch_id: int, *present: Range, rows: int | None = None, partition: int = 0, topic: str = TOPIC) -> RowGroup:
    offsets = Spans.of(present)
    hull = offsets.hull
    assert hull is not None
    return RowGroup(
        batch_id=batch_id,
        topic=topic,
        partition=partition,
        rows=offsets.size if rows is None else rows,
        distinct_offsets=offsets.size,
        min_offset=hull.start,
        max_offset=hull.end - 1,
        present=offsets,
    )


def rows(*groups: RowGroup, **fields: Any) -> RowsWitness:
    made: dict[str, Any] = {
        "location": "lake/orders",
        "version": None,
        "rows": sum(g.rows for g in groups),
        "unstamped_rows": 0,
        "has_source_columns": True,
        "groups": groups,
    }
    return RowsWitness(**{**made, **fields})


def probe(
    asked: Sequence[Range],
    uncommitted: Sequence[Range] = (),
    committed: Sequence[Range] = (),
    *,
    log_start: int = 0,
    last_stable: int = 10_000,
    truncated: str | None = None,
    partition: int = 0,
) -> dict[tuple[str, int], ProbeAnswer]:
    answer = ProbeAnswer(
        topic=TOPIC,
        partition=partition,
        asked=Spans.of(asked),
        uncommitted=Spans.of(uncommitted),
        committed=Spans.of(committed),
        log_start=log_start,
        last_stable=last_stable,
        truncated=truncated,
    )
    return {(TOPIC, partition): answer}


def gone(witness: str, *, skipped: bool = False) -> Unavailable:
    return Unavailable(witness, f"{witness} did not answer", skipped)


def witnesses(
    ledger: LedgerSlice | Unavailable | None = None,
    *,
    delta: DeltaWitness | Unavailable | None = None,
    previous: PreviousAudit | None = None,
    probes: Mapping[tuple[str, int], ProbeAnswer] | None = None,
    **fields: Any,
) -> Witnesses:
    made: dict[str, Any] = {
        "pipeline": PIPELINE,
        "sink": SINK,
        "now": NOW,
        "isolation_level": "read_committed",
        "period_from": None,
        "period_to": NOW,
        "ledgers": ledger if isinstance(ledger, Unavailable) else {SINK: ledger} if ledger is not None else {},
        "checkpoint": gone("checkpoint"),
        "kafka": gone("kafka"),
        "delta": gone("delta") if delta is None else delta if isinstance(delta, Unavailable) else {SINK: delta},
        "rows": gone("rows"),
        "probes": probes or {},
        "previous": previous,
        "quarantine": {SINK: delta_log(location="lake/quarantine")},
    }
    return Witnesses(**{**made, **fields})


Told = tuple[str, int | None, int | None, int | None]


def told(verdict: Verdict, *, info: bool = False) -> list[Told]:
    """(code, partition, start, end) of the findings, sorted; INFO ones only when asked for."""
    shown = [f for f in verdict.findings if info or f.level != "info"]
    return sorted(((str(f.code), f.partition, f.start_offset, f.end_offset) for f in shown), key=str)


def codes(verdict: Verdict) -> list[Code]:
    """The codes of all findings, sorted."""
    return sorted(f.code for f in verdict.findings)
