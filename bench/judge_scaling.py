"""What the evidence checks cost per micro-batch, from 1,000 to 100,000 micro-batches of one topic partition.

Witnesses are built in memory, so that only judging is measured, in the process's own time. The scenes:

- `markers`: a filter drops one record of each micro-batch, and a transaction marker ends it, so that each leaves a
  question to the rows and to Kafka.
- `trimmed`: every second micro-batch was planned again from further back, and recon dropped what it had.
- `findings`: every micro-batch deviates: a gap before it or offsets read twice, a doubled row, a commit that is gone.
- `missing`: every third micro-batch has no ledger entry, and half of those no commit.
- `exploding`: the transform drops one record of each micro-batch and makes two rows of the others. Rows and
  fingerprints of their offsets were counted before it, after it and at the sink.

Ours: the slowest check's time per micro-batch at the largest size; floor: the same at the smallest. A check whose cost
grows with the square has a ratio of 100.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from recon.audits.summary import touched_ranges
from recon.checks.base import EvidenceCheck
from recon.checks.registry import check_class
from recon.model import (
    CheckpointBatch,
    CheckpointWitness,
    Code,
    DeclaredRows,
    EntryHead,
    Finding,
    KafkaPartition,
    KafkaTopic,
    KafkaWitness,
    LedgerSlice,
    Level,
    LiveFiles,
    ProbeAnswer,
    RangeTable,
    ReconStamp,
    RowGroup,
    RowsWitness,
    SinkCommit,
    SinkLog,
    TableCommit,
    TableLog,
    Witnesses,
    offsets_text,
)
from recon.model.fingerprint import PRIME, of_ranges
from recon.model.offsets import OffsetSpan, Span, Spans

SIZES = (1_000, 10_000, 100_000)
CHECKS = (
    "offset_continuity",
    "kafka_end_offsets",
    "checkpoint_commits",
    "delta_history",
    "sink_commits",
    "ledger_integrity",
    "atomicity",
    "source_rows",
)
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_WIDTH = 10  # offsets of a micro-batch
_TOPIC, _ID = "events", "id"


def run() -> dict[str, Any]:
    """Prints microseconds per micro-batch of each scene, check and size."""
    worst = (0.0, 0.0)
    for scene, build in _SCENES.items():
        taken: dict[str, list[float]] = {}
        for size in SIZES:
            gc.unfreeze()
            witnesses = build(size)
            gc.collect()
            gc.freeze()  # the collector would otherwise go through the witnesses again and again
            for name, judge in _judges(witnesses).items():
                taken.setdefault(name, []).append(_seconds(judge, 5 if size < SIZES[-1] else 1) / size * 1e6)
        print(f"{scene}, microseconds per micro-batch at {', '.join(f'{size:,}' for size in SIZES)}", file=sys.stderr)
        for name, per_batch in taken.items():
            print(f"  {name:<20}" + "".join(f"{each:>10.1f}" for each in per_batch), file=sys.stderr)
        worst = max([worst, *((each[-1], each[0]) for each in taken.values())])
    ours, floor = worst
    return {"name": "judge_scaling", "ours": ours, "floor": floor, "ratio": ours / floor, "unit": "µs", "peers": {}}


def _seconds(judge: Callable[[], object], runs: int) -> float:
    times = []
    for _ in range(runs):
        began = time.process_time()
        judge()
        times.append(time.process_time() - began)
    return statistics.median(times)


def _judges(witnesses: Witnesses) -> Mapping[str, Callable[[], object]]:
    def of(name: str) -> Callable[[], object]:
        check = check_class(name)()
        assert isinstance(check, EvidenceCheck)

        def judge() -> None:
            anew = _anew(witnesses)  # what is kept with a slice is computed again
            verdict = check.judge(anew)
            assert verdict.message

        return judge

    judges = {name: of(name) for name in CHECKS}
    slice_ = _slice(witnesses)
    findings = [
        Finding(
            code=Code.GAP,
            message="",
            pipeline="p",
            sink="s",
            topic=_TOPIC,
            partition=0,
            start_offset=int(start),
            end_offset=int(start) + 1,
            batch_id=n,
        )
        for n, start in enumerate(slice_.ranges.start.tolist())
    ]
    return {**judges, "touched_ranges": lambda: touched_ranges(slice_, findings, Level.FAIL)}


def _slice(witnesses: Witnesses) -> LedgerSlice:
    assert isinstance(witnesses.ledgers, Mapping)
    return witnesses.ledgers["s"]


def _anew(witnesses: Witnesses) -> Witnesses:
    assert isinstance(witnesses.ledgers, Mapping)
    return replace(witnesses, ledgers={name: replace(slice_) for name, slice_ in witnesses.ledgers.items()})


# -- scenes ------------------------------------------------------------------------------------------------------------


def _markers(batches: int) -> Witnesses:
    """Each micro-batch reads ten offsets: eight rows, one record that the transform filters, one marker."""
    ranges = [(n * _WIDTH, (n + 1) * _WIDTH) for n in range(batches)]
    present = [[(start, start + _WIDTH - 2)] for start, _ in ranges]
    records = Spans(tuple(Span(start, end - 1) for start, end in ranges))
    return _witnesses(ranges, ranges, present, records, rows_read=_WIDTH - 1, rows_filtered=1)


def _trimmed(batches: int) -> Witnesses:
    """Every second micro-batch was planned from five offsets further back, and its entry holds what was new."""
    ranges = [(n * _WIDTH, (n + 1) * _WIDTH) for n in range(batches)]
    planned = [(max(start - 5 * (n % 2), 0), end) for n, (start, end) in enumerate(ranges)]
    return _witnesses(ranges, planned, [[span] for span in ranges], Spans.of(ranges))


def _findings(batches: int) -> Witnesses:
    """Each micro-batch leaves out two offsets, and reads the last three of the one before it again; one row is double.

    Every second commit is gone from the log, and somebody deleted rows after each tenth.
    """
    ranges = [(n * _WIDTH + 2 - 5 * (n % 2), (n + 1) * _WIDTH) for n in range(batches)]
    ranges[0] = (0, _WIDTH)
    present = [[(start, end - 3)] for start, end in ranges]
    made = _witnesses(ranges, ranges, present, Spans.of(ranges), doubled=1)
    assert isinstance(made.delta, Mapping) and isinstance(made.sink_logs, Mapping)
    log = made.delta["s"]
    commits = {version: commit for version, commit in log.commits.items() if version % 2}
    for version in range(0, 2 * batches, 20):
        commits[version] = _commit(version, None, operation="DELETE", rows_added=0, rows_removed=3, files_removed=1)
    repeated = [replace(commit, stamp=replace(commit.stamp, batch_id=n // 2)) for n, commit in enumerate(_log(made))]
    return replace(
        made,
        delta={"s": replace(log, commits=commits)},
        sink_logs={"s": replace(made.sink_logs["s"], commits=tuple(repeated))},
    )


def _missing(batches: int) -> Witnesses:
    """Every third micro-batch has no entry, and every sixth no commit either; earlier audits saw the first entry."""
    made = _markers(batches)
    assert isinstance(made.ledgers, Mapping) and isinstance(made.delta, Mapping)
    slice_, log = _slice(made), made.delta["s"]
    kept = [n for n in range(batches) if n % 3 != 1]
    spans = list(zip(slice_.ranges.start[kept].tolist(), slice_.ranges.end[kept].tolist(), strict=True))
    slice_ = replace(
        slice_,
        heads=[slice_.heads[n] for n in kept],
        ranges=_table(spans),
        offsets_texts=[slice_.offsets_texts[n] for n in kept],
        anchors=1,
        complete=False,
    )
    commits = {version: commit for version, commit in log.commits.items() if (version - 1) // 2 % 6 != 1}
    return replace(
        made, ledgers={**made.ledgers, "s": slice_}, delta={"s": replace(log, commits=commits)}, period_to=made.now
    )


def _exploding(batches: int) -> Witnesses:
    """Each micro-batch reads ten records; the sink has two rows each of nine of them."""
    ranges = [(n * _WIDTH, (n + 1) * _WIDTH) for n in range(batches)]
    kept = [(start, end - 1) for start, end in ranges]
    made = _witnesses(ranges, ranges, [[span] for span in kept], Spans.of(ranges), doubled=_WIDTH - 1)
    read, twice = ([_fingerprint(span) for span in spans] for spans in (ranges, kept))
    twice = [2 * value % PRIME for value in twice]
    slice_, rows = _slice(made), 2 * (_WIDTH - 1)
    heads = [
        replace(
            head,
            rows_read=_WIDTH,
            rows_filtered=None,
            rows_returned=rows,
            rows_given=rows,
            fingerprint_read=before,
            fingerprint_returned=after,
            fingerprint_given=after,
        )
        for head, before, after in zip(slice_.heads, read, twice, strict=True)
    ]
    assert isinstance(made.ledgers, Mapping) and isinstance(made.rows, RowsWitness)
    groups = [replace(group, fingerprint=after) for group, after in zip(made.rows.groups, twice, strict=True)]
    return replace(
        made,
        ledgers={**made.ledgers, "s": replace(slice_, heads=heads)},
        rows=replace(made.rows, groups=groups),
        declared=DeclaredRows(filters=True, explodes=True),
    )


def _fingerprint(span: tuple[int, int]) -> int:
    return of_ranges([OffsetSpan(_TOPIC, _ID, 0, *span)])


_SCENES: Mapping[str, Callable[[int], Witnesses]] = {
    "markers": _markers,
    "trimmed": _trimmed,
    "findings": _findings,
    "missing": _missing,
    "exploding": _exploding,
}


def _log(witnesses: Witnesses) -> Sequence[SinkCommit]:
    assert isinstance(witnesses.sink_logs, Mapping)
    return witnesses.sink_logs["s"].commits


# -- witnesses ---------------------------------------------------------------------------------------------------------


def _witnesses(
    ranges: Sequence[tuple[int, int]],
    planned: Sequence[tuple[int, int]],
    present: Sequence[Sequence[tuple[int, int]]],
    records: Spans,
    *,
    doubled: int = 0,
    **head: Any,
) -> Witnesses:
    end = ranges[-1][1]
    now = _BEGIN + timedelta(seconds=len(ranges) + 10)
    rows = [sum(high - low for low, high in spans) + doubled for spans in present]
    heads = [_head(n, rows[n], **({"rows_read": rows[n]} | head)) for n in range(len(ranges))]
    texts = [offsets_text((OffsetSpan(_TOPIC, _ID, 0, *span),)) for span in ranges]
    slice_ = LedgerSlice("p", "s", heads, _table(ranges), offsets_texts=texts)
    stamps = [
        ReconStamp(
            pipeline="p", sink="s", epoch=0, batch_id=n, query_id="q", run_id=None, prev_hash="", offsets_text=text
        )
        for n, text in enumerate(texts)
    ]
    commits = {2 * n + 1: _commit(2 * n + 1, stamp, rows_added=rows[n]) for n, stamp in enumerate(stamps)}
    last = max(commits)
    written = tuple(
        SinkCommit(version=None, stamp=stamp, rows=rows[n], at=heads[n].committed_at) for n, stamp in enumerate(stamps)
    )
    partition = KafkaPartition(partition=0, log_start=0, log_end=end, high_watermark=end, last_stable=end)
    topic = KafkaTopic(topic=_TOPIC, exists=True, topic_id=_ID, partitions={0: partition})
    asked = Spans.of([(0, end)])
    answer = ProbeAnswer(
        topic=_TOPIC, partition=0, requested=asked, uncommitted=records, committed=records, log_start=0, last_stable=end
    )
    groups = [
        RowGroup(
            batch_id=n,
            topic=_TOPIC,
            partition=0,
            rows=rows[n],
            present=Spans.of(spans),
        )
        for n, spans in enumerate(present)
    ]
    plans = [
        CheckpointBatch(
            batch_id=n,
            planned_at=heads[n].started_at,
            committed=True,
            ranges=(OffsetSpan(_TOPIC, None, 0, *span),),
        )
        for n, span in enumerate(planned)
    ]
    other = replace(slice_, sink="t", heads=[replace(each, sink="t") for each in heads[: len(heads) // 2]])
    table = other.ranges
    half = np.flatnonzero(table.entry < len(other.heads))
    columns = (column[half] for column in (table.entry, table.topic, table.partition, table.start, table.end))
    other = replace(other, ranges=RangeTable(*columns, table.topics), offsets_texts=texts[: len(half)])
    return Witnesses(
        pipeline="p",
        sink="s",
        now=now,
        isolation_level="read_committed",
        period_from=None,
        period_to=now,
        ledgers={"s": slice_, "t": other},
        checkpoint=CheckpointWitness(location="checkpoint", query_id="q", batches=plans),
        kafka=KafkaWitness(
            bootstrap_servers="broker", isolation_level="read_committed", read_at=now, topics={_TOPIC: topic}
        ),
        delta={
            "s": TableLog(
                location="lake",
                exists=True,
                first_retained=0,
                last=last,
                commits=commits,
                files=LiveFiles(files=len(commits), rows=sum(rows)),
            ),
        },
        rows=RowsWitness(
            location="lake", version=last, rows=sum(rows), unstamped_rows=0, has_source_columns=True, groups=groups
        ),
        probes={(_TOPIC, 0): answer},
        quarantine={},
        sink_logs={"s": SinkLog(location="recon_ledger", exists=True, commits=written)},
    )


def _table(ranges: Sequence[tuple[int, int]]) -> RangeTable:
    columns = np.array(ranges, np.int64)
    count = len(columns)
    return RangeTable(
        np.arange(count, dtype=np.int64),
        np.zeros(count, np.int32),
        np.zeros(count, np.int64),
        columns[:, 0].copy(),
        columns[:, 1].copy(),
        [(0, _TOPIC, _ID)],
    )


def _head(batch_id: int, rows: int, **fields: Any) -> EntryHead:
    at = _BEGIN + timedelta(seconds=batch_id)
    made: dict[str, Any] = {
        "pipeline": "p",
        "sink": "s",
        "sequence": batch_id + 1,
        "sink_kind": "delta",
        "target": "lake",
        "guarantee": "exactly-once",
        "query_id": "q",
        "run_id": None,
        "epoch": 0,
        "batch_id": batch_id,
        "attempt": 1,
        "status": "committed",
        "rows_read": rows,
        "rows_written": rows,
        "rows_quarantined": 0,
        "rows_filtered": 0,
        "sink_version": 2 * batch_id + 1,
        "started_at": at,
        "committed_at": at,
        "spark_version": None,
        "recon_version": "",
        "checks_fingerprint": None,
        "prev_hash": str(batch_id) if batch_id else "",
        "entry_hash": str(batch_id + 1),
    }
    return EntryHead(**(made | fields))


def _commit(version: int, stamp: ReconStamp | None, **fields: Any) -> TableCommit:
    made: dict[str, Any] = {
        "version": version,
        "timestamp": _BEGIN + timedelta(seconds=version / 2),
        "operation": "WRITE",
        "operation_parameters": {},
        "operation_metrics": {},
        "txn": {} if stamp is None else {"recon:p:s": stamp.batch_id},
        "user_metadata": None,
        "stamp": stamp,
        "files_added": 1,
        "files_removed": 0,
        "rows_added": 0,
        "rows_removed": 0,
        "data_change": True,
    }
    return TableCommit(**(made | fields))


if __name__ == "__main__":
    print(run())
