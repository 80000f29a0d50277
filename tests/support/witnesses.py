"""Witnesses for the tests of recon's own evidence checks, beside those of recon.testing.evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np

from recon.model import (
    Code,
    EntryHead,
    LedgerSlice,
    LiveFiles,
    ProbeAnswer,
    RangeTable,
    ReconStamp,
    RowGroup,
    RowsWitness,
    TableCommit,
    TableLog,
    Unavailable,
    Verdict,
    Witnesses,
    offsets_text,
)
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.offsets import Spans
from recon.model.proof import SinkProof
from recon.testing import evidence
from recon.testing.evidence import PIPELINE, SINK, START, TOPIC, TOPIC_ID, Entry, Range, head_of

M = TypeVar("M", bound=SinkMemory)


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


def commit(version: int, entry: Entry | None = None, **fields: Any) -> TableCommit:
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
            "txn": {f"recon:{PIPELINE}:{SINK}": version + 1},
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
    return TableCommit(**{**made, **fields})


def live_files(*commits: TableCommit, before: int = 0) -> LiveFiles:
    """The files of a table that had `before` rows before these commits."""
    counts = [None if None in (c.rows_added, c.rows_removed) else c.rows_added - c.rows_removed for c in commits]
    rows = None if None in counts else before + sum(counts)
    return LiveFiles(files=len(commits), rows=rows, without_statistics=counts.count(None))


def delta(*commits: TableCommit, **fields: Any) -> TableLog:
    """A log of these commits, whose files are all in the store."""
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
        "files": live_files(*commits),
    }
    return TableLog(**{**made, **fields})


def log_of(slice_: LedgerSlice) -> TableLog:
    """The log of a table that has the commits of a slice's entries, and no others."""
    stamps = [
        ReconStamp(
            pipeline=PIPELINE, sink=SINK, epoch=head.epoch, batch_id=head.batch_id, query_id=head.query_id, run_id=None,
            prev_hash=head.prev_hash, offsets_text=text,
        )
        for head, text in zip(slice_.heads, slice_.offsets_texts, strict=True)
    ]  # fmt: skip
    versions = [head.sink_version or 0 for head in slice_.heads]
    made = [commit(version, stamp=stamp) for version, stamp in zip(versions, stamps, strict=True)]
    rows_of = [head.rows_written for head in slice_.heads]
    return delta(*(replace(empty, rows_added=rows) for empty, rows in zip(made, rows_of, strict=True)))


delta_log = delta  # where an argument hides the name


def sink_proof(*memories: SinkMemory | None, **fields: Any) -> SinkProof:
    """What earlier audits proved of the sink, and remember of it: nothing but what is told."""
    made: dict[str, Any] = {
        "pipeline": PIPELINE,
        "sink": SINK,
        "at": START,
        "invocation_id": "1",
        "position": 0,
        "chain_head": "",
        "first_epoch": 0,
        "first_batch_id": 0,
        "memories": {type(memory): memory for memory in memories if memory is not None},
    }
    return SinkProof(**{**made, **fields})


def after(kind: type[M], seen: Witnesses, slice_: LedgerSlice | None = None) -> M | None:
    """What is remembered of one kind after an audit which saw this; without it, as before."""
    of_sink = slice_ or seen.ledger
    assert of_sink is not None
    return kind.after(seen.memory(kind), SinkAudit(before=seen.proof, ledger=of_sink, witnesses=seen, results=()))


def group(batch_id: int, *present: Range, rows: int | None = None, partition: int = 0, topic: str = TOPIC) -> RowGroup:
    offsets = Spans.of(present)
    return RowGroup(
        batch_id=batch_id,
        topic=topic,
        partition=partition,
        rows=offsets.size if rows is None else rows,
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
    last_stable: int = 1_000_000,
    truncated: str | None = None,
    partition: int = 0,
) -> dict[tuple[str, int], ProbeAnswer]:
    answer = ProbeAnswer(
        topic=TOPIC,
        partition=partition,
        requested=Spans.of(asked),
        uncommitted=Spans.of(uncommitted),
        committed=Spans.of(committed),
        log_start=log_start,
        last_stable=last_stable,
        truncated=truncated,
    )
    return {(TOPIC, partition): answer}


def witnesses(
    ledger: LedgerSlice | Unavailable | None = None,
    *,
    probes: Mapping[tuple[str, int], ProbeAnswer] | None = None,
    **fields: Any,
) -> Witnesses:
    quarantine = {SINK: delta_log(location="lake/quarantine")}
    return evidence.witnesses(ledger, **{"probes": probes or {}, "quarantine": quarantine, **fields})


Told = tuple[str, int | None, int | None, int | None]


def told(verdict: Verdict, *, info: bool = False) -> list[Told]:
    """(code, partition, start, end) of the findings, sorted; INFO ones only when asked for."""
    shown = [f for f in verdict.findings if info or f.level != "info"]
    return sorted(((str(f.code), f.partition, f.start_offset, f.end_offset) for f in shown), key=str)


def codes(verdict: Verdict) -> list[Code]:
    """The codes of all findings, sorted."""
    return sorted(f.code for f in verdict.findings)
