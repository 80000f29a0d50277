"""Reading a sink's rows back (recon.witness.sink_rows) against Spark's bare groupBy of the same columns."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

PARTITIONS = 200
OFFSETS = 1_000  # per topic partition and micro-batch
RUNS = 5


def run(rows: int = 10_000_000) -> dict[str, Any]:
    """Medians of alternating runs in one session, seconds; one warm-up of each before."""
    from recon.local.spark import spark_session

    spark = spark_session("row_readback")
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/table"
            _write(spark, path, rows)
            ours, floor = _alternate(lambda: _ours(spark, path), lambda: _floor(spark, path))
    finally:
        spark.stop()
    return {
        "name": "row_readback",
        "ours": ours,
        "floor": floor,
        "ratio": ours / floor,
        "unit": "s",
        "peers": {},
    }


def _write(spark: Any, path: str, rows: int) -> None:
    """Micro-batches of PARTITIONS x OFFSETS rows, one or two files each, one offset in 997 missing."""
    per_batch = PARTITIONS * OFFSETS
    (
        spark.range(0, rows, 1, max(1, rows // per_batch))
        .selectExpr(
            f"id DIV {per_batch} AS _batch_id",
            "'orders' AS _source_topic",
            f"CAST(id DIV {OFFSETS} % {PARTITIONS} AS INT) AS _source_partition",
            f"id DIV {per_batch} * {OFFSETS} + id % {OFFSETS} AS _source_offset",
            "uuid() AS order_id",
            "rand() AS amount",
        )
        .where("_source_offset % 997 != 0")
        .write.format("delta")
        .save(path)
    )


def _ours(spark: Any, path: str) -> int:
    from recon.witness import sink_rows

    return len(sink_rows.read(spark, path).groups)


def _floor(spark: Any, path: str) -> int:
    from pyspark.sql import functions as F

    grouped = spark.read.format("delta").load(path).groupBy("_batch_id", "_source_topic", "_source_partition")
    counted = grouped.agg(F.count(F.lit(1)), F.min("_source_offset"), F.max("_source_offset"))
    return len(counted.collect())


def _alternate(ours: Callable[[], int], floor: Callable[[], int]) -> tuple[float, float]:
    times: dict[str, list[float]] = {"ours": [], "floor": []}
    assert ours() == floor()  # warm, and the same groups
    for _ in range(RUNS):
        for name, work in (("ours", ours), ("floor", floor)):
            started = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - started)
    return statistics.median(times["ours"]), statistics.median(times["floor"])


if __name__ == "__main__":
    print(run())
