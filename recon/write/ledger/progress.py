"""Spark's progress of each micro-batch, stored beside the ledger: one row each, appended by the listener.

The figures that checks judge have columns of their own. What differs from query to query is JSON: offsets per
partition, the metrics of stateful operators, every duration. Rows are not hashed: they explain and forecast, and the
ledger does not depend on them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

from recon._version import __version__
from recon.base.errors import EvidenceError
from recon.model.progress import BatchProgress, ProgressWitness, SourceOffsets
from recon.write.ledger import arrow
from recon.write.ledger.store import Filter, LedgerTable, Store

TIME = "started_at"  # of the trigger
_NO_WATERMARK = datetime(1970, 1, 1, tzinfo=UTC)  # Spark's value before the first event time
_SAMPLES = 16

# durationMs of Spark's progress, and our column of each.
DURATIONS = {
    "triggerExecution": "trigger_ms",
    "addBatch": "add_batch_ms",
    "getBatch": "get_batch_ms",
    "latestOffset": "latest_offset_ms",
    "queryPlanning": "query_planning_ms",
    "walCommit": "wal_commit_ms",
    "commitOffsets": "commit_offsets_ms",
}

# The column of each field of BatchProgress.
_COLUMN_OF = {field.name: field.name for field in fields(BatchProgress)} | {
    "at": TIME,
    "seconds": "trigger_ms",
    "offsets": "offsets_read",
    "state_operators": "state_names",
}

# One row per micro-batch; `sources`, `state_operators` and `durations` are JSON.
PROGRESS = LedgerTable(
    kind="progress",
    time=TIME,
    columns={
        "pipeline": str,
        "query_id": str,
        "run_id": str,
        "query_name": str,
        "batch_id": int,
        TIME: datetime,
        "rows": int,
        "input_rows_per_second": float,
        "processed_rows_per_second": float,
        **dict.fromkeys(DURATIONS.values(), int),
        "durations": str,
        "offsets_read": int,
        "partitions": int,
        "lag": int,
        "sources": str,
        "state_rows": int,
        "state_bytes": int,
        "state_updated": int,
        "state_removed": int,
        "state_partitions": int,
        "state_names": str,
        "dropped_late": int,
        "dropped_duplicates": int,
        "rocksdb": int,
        "state_operators": str,
        "watermark": datetime,
        "sink": str,
        "sink_rows": int,
        "cores": int,
        "spark_version": str,
        "recon_version": str,
    },
)


def row_of(
    progress: Mapping[str, Any], pipeline: str, *, cores: int | None = None, spark_version: str | None = None
) -> dict[str, Any]:
    """A row of the table from the JSON of Spark's progress.

    Raises:
        EvidenceError: the JSON is not that of a streaming query's progress.
    """
    try:
        return _row(progress, pipeline, cores, spark_version)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EvidenceError(
            f"Spark's progress of a micro-batch of pipeline {pipeline} is not as expected ({type(error).__name__}: "
            f"{error}); it is not recorded"
        ) from error


def _row(progress: Mapping[str, Any], pipeline: str, cores: int | None, spark_version: str | None) -> dict[str, Any]:
    at = _instant(progress["timestamp"])
    sources = [_source(source) for source in progress.get("sources") or ()]
    operators = list(progress.get("stateOperators") or ())
    durations = {name: int(ms) for name, ms in (progress.get("durationMs") or {}).items()}
    watermark = (progress.get("eventTime") or {}).get("watermark")
    reached = _instant(watermark) if watermark else None
    sink = progress.get("sink") or {}
    sink_rows = sink.get("numOutputRows")
    return {
        "pipeline": pipeline,
        "query_id": str(progress["id"]),
        "run_id": str(progress["runId"]),
        "query_name": progress.get("name"),
        "batch_id": int(progress["batchId"]),
        TIME: at,
        "rows": int(progress.get("numInputRows") or 0),
        "input_rows_per_second": _real(progress.get("inputRowsPerSecond")),
        "processed_rows_per_second": _real(progress.get("processedRowsPerSecond")),
        **{column: durations.get(name) for name, column in DURATIONS.items()},
        "durations": _json(durations),
        **_offsets(sources),
        "sources": _json(sources),
        **_state(operators),
        "state_operators": _json([_operator(operator) for operator in operators]),
        "watermark": reached if reached and reached > _NO_WATERMARK else None,
        "sink": sink.get("description"),
        # Spark reports -1 for a sink that does not count its rows; foreachBatch never does.
        "sink_rows": None if sink_rows is None or sink_rows < 0 else int(sink_rows),
        "cores": cores,
        "spark_version": spark_version,
        "recon_version": __version__,
    }


def _source(source: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "source": source.get("description"),
        "rows": int(source.get("numInputRows") or 0),
        "start": _kafka(source.get("startOffset")),
        "end": _kafka(source.get("endOffset")),
        "latest": _kafka(source.get("latestOffset")),
    }


def _kafka(offset: Any) -> dict[str, dict[str, int]] | None:
    """An offset as Kafka's source writes it; None for another source's, or none."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if not isinstance(offset, Mapping) or not all(isinstance(of_topic, Mapping) for of_topic in offset.values()):
        return None
    try:
        return {topic: {str(int(p)): int(at) for p, at in of.items()} for topic, of in offset.items()}
    except (TypeError, ValueError):
        return None


def _offsets(sources: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    """Width, partitions and lag over all sources; None where one of them does not tell it."""
    of_kafka = [source for source in sources if source["end"] is not None]
    if not of_kafka or len(of_kafka) < len(sources):
        return {"offsets_read": None, "partitions": None, "lag": None}
    width: int | None = 0
    lag: int | None = 0
    partitions = 0
    for source in of_kafka:
        start, end, latest = (_flat(source[name]) for name in ("start", "end", "latest"))
        partitions += len(end)
        # The first micro-batch has no start here, nor has a partition that is new in this one.
        width = None if width is None or not end.keys() <= start.keys() else width + _ahead(start, end)
        lag = None if lag is None or not end.keys() <= latest.keys() else lag + _ahead(end, latest)
    return {"offsets_read": width, "partitions": partitions, "lag": lag}


def _flat(offsets: Mapping[str, Mapping[str, int]] | None) -> dict[tuple[str, int], int]:
    return {(topic, int(p)): at for topic, of in (offsets or {}).items() for p, at in of.items()}


def _ahead(behind: Mapping[tuple[str, int], int], ahead: Mapping[tuple[str, int], int]) -> int:
    return sum(max(at - behind[key], 0) for key, at in ahead.items() if key in behind)


_STATE_COLUMNS = (
    *("state_rows", "state_bytes", "state_updated", "state_removed", "state_partitions", "state_names"),
    *("dropped_late", "dropped_duplicates", "rocksdb"),
)


def _state(operators: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not operators:
        return dict.fromkeys(_STATE_COLUMNS)

    def total(name: str) -> int:
        return sum(int(operator.get(name) or 0) // _passes(operator) for operator in operators)

    custom = [(operator.get("customMetrics") or {}, _passes(operator)) for operator in operators]
    return {
        "state_rows": total("numRowsTotal"),
        "state_bytes": total("memoryUsedBytes"),
        "state_updated": total("numRowsUpdated"),
        "state_removed": total("numRowsRemoved"),
        "state_partitions": max(int(operator.get("numShufflePartitions") or 0) for operator in operators) or None,
        "state_names": " ".join(str(operator.get("operatorName")) for operator in operators),
        "dropped_late": total("numRowsDroppedByWatermark"),
        "dropped_duplicates": sum(int(of.get("numDroppedDuplicateRows") or 0) // times for of, times in custom),
        "rocksdb": int(any(name.startswith("rocksdb") for of, _ in custom for name in of)),
    }


def _passes(operator: Mapping[str, Any]) -> int:
    """How often a stateful operator was computed: each time that foreachBatch uses its frame adds to its figures.

    An operator has one store per partition, and Spark reports how many stores were opened; a join has four.
    """
    stores, partitions = operator.get("numStateStoreInstances") or 0, operator.get("numShufflePartitions") or 0
    if operator.get("operatorName") == "symmetricHashJoin" or not partitions or stores % partitions:
        return 1
    return max(1, int(stores) // int(partitions))


def _operator(operator: Mapping[str, Any]) -> dict[str, Any]:
    """A stateful operator, its own metrics without the zeros: RocksDB has dozens."""
    custom = {name: value for name, value in (operator.get("customMetrics") or {}).items() if value}
    return {**{name: value for name, value in operator.items() if name != "customMetrics"}, "customMetrics": custom}


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def _real(value: Any) -> float | None:
    number = None if value is None else float(value)
    return number if number is not None and number == number and abs(number) != float("inf") else None


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def read_progress(
    store: Store, pipeline: str, from_: datetime | None, to: datetime | None, *, samples: int = _SAMPLES
) -> ProgressWitness:
    """A pipeline's micro-batches whose trigger began in [from_, to); each once, though two listeners recorded it.

    `samples` of them come with their offsets: the first, the last and some evenly between.

    Raises:
        LedgerError: the table cannot be read.
    """
    which = Filter.of(pipeline, from_=from_, to=to)
    by_batch: dict[tuple[str, int, str], dict[str, Any]] = {}
    for row in arrow.rows(store.read(which, list(_COLUMN_OF.values()))):
        by_batch[row["query_id"], row["batch_id"], row["run_id"]] = row
    rows = sorted(by_batch.values(), key=lambda row: (row[TIME], row["batch_id"]))
    return ProgressWitness(
        location=store.location,
        batches=[_batch(row) for row in rows],
        offsets=_sampled(store, pipeline, rows, samples),
    )


def _batch(row: Mapping[str, Any]) -> BatchProgress:
    values = {name: row[column] for name, column in _COLUMN_OF.items()}
    values["seconds"] = (row["trigger_ms"] or 0) / 1000
    values["state_operators"] = tuple((row["state_names"] or "").split())
    values["rocksdb"] = None if row["rocksdb"] is None else bool(row["rocksdb"])
    return BatchProgress(**values)


def _sampled(
    store: Store, pipeline: str, rows: Sequence[Mapping[str, Any]], samples: int
) -> Mapping[int, SourceOffsets]:
    """The offsets of some rows; a day of 200 partitions is too much JSON to parse for a trend."""
    if not rows or samples < 1:
        return {}
    step = max(1, (len(rows) - 1) // max(1, samples - 1))
    wanted = {**{rows[i][TIME]: i for i in range(0, len(rows), step)}, rows[-1][TIME]: len(rows) - 1}
    moment = timedelta(microseconds=1)
    which = Filter.of(pipeline, from_=rows[0][TIME], to=rows[-1][TIME] + moment)
    offsets: dict[int, SourceOffsets] = {}
    table = store.read(which, [TIME, "sources"])
    times = arrow.values(table.column(TIME))
    for place, at in enumerate(times):
        if at in wanted:
            of_batch = offsets_of(table.column("sources")[place].as_py())
            if of_batch is not None:
                offsets[wanted[at]] = of_batch
    return offsets


def offsets_of(sources: str | None) -> SourceOffsets | None:
    """The offsets in a row's `sources`; None when a source is not Kafka's."""
    listed = json.loads(sources or "[]")
    if not listed or any(source["end"] is None for source in listed):
        return None
    offsets: dict[str, dict[tuple[str, int], int]] = {"start": {}, "end": {}, "latest": {}}
    for source in listed:
        for name, of in offsets.items():
            for key, at in _flat(source[name]).items():
                of[key] = min(at, of.get(key, at))  # one topic in two sources: the slower one counts
    return SourceOffsets(**offsets)
