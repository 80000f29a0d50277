"""Whether this machine keeps up with 25,000 events a second through the hook, sink by sink, and what the hook adds.

One topic of 200 partitions, filled beforehand (the producer is no part of the figure) with records of about 200 bytes;
a stream with a trigger of 10 s and `maxOffsetsPerTrigger` 250,000, which is what 25,000 a second bring, for three
minutes per sink. A batch that takes longer than its 10 s delays the next: the rate is what comes through then.

Four records in five are a new order, one in five changes an order of the last half million records.

    python -m bench.sustained_rate --seconds 60 --sinks delta,postgres_upsert
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PARTITIONS = 200
RATE = 25_000
EVERY_S = 10
PER_BATCH = RATE * EVERY_S
SECONDS = 180
WARM_UP = 2
SINKS = ("delta", "delta_merge", "postgres_upsert")
_SCHEMA = "order_id long, version long, status string, amount double, day date, note string"


@dataclass
class Times:
    """Seconds of each micro-batch: in the hook, and of these in the sink's write, its confirm and the ledger."""

    hook: list[float] = field(default_factory=list)
    write: list[float] = field(default_factory=list)
    confirm: list[float] = field(default_factory=list)
    ledger: list[float] = field(default_factory=list)

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, its seconds kept under `name`."""

        def timed(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **options)
            finally:
                getattr(self, name).append(time.perf_counter() - began)

        return timed


def run(seconds: int = SECONDS, sinks: Sequence[str] = SINKS) -> dict[str, Any]:
    from recon.local.kafka import LocalKafka
    from recon.local.spark import spark_session
    from tests.support.drivers import POSTGRES_JDBC
    from tests.support.postgres import LocalPostgres

    batches = WARM_UP + max(1, seconds // EVERY_S)
    figures: dict[str, dict[str, Any]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalKafka(Path(folder) / "kafka") as broker,
        LocalPostgres() as server,
    ):
        broker.create_topic("events", PARTITIONS)
        conf = {"spark.driver.memory": "6g", "spark.sql.shuffle.partitions": "4"}
        spark = spark_session("sustained_rate", extra_packages=[POSTGRES_JDBC], conf=conf)
        try:
            _produce(spark, broker.bootstrap_servers, batches)
            for name in sinks:
                place = Path(folder) / name
                figures[name] = _one(spark, broker.bootstrap_servers, place, server, name, batches, seconds)
                print(json.dumps({name: figures[name]}), file=sys.stderr, flush=True)
        finally:
            spark.stop()
    lowest = min(of_sink["rate"] for of_sink in figures.values())
    peers = {name: of_sink["rate"] / RATE for name, of_sink in figures.items()}
    print(table(figures))
    return {
        "name": "sustained_rate",
        "ours": lowest,
        "floor": float(RATE),
        "ratio": lowest / RATE,
        "unit": "events/s",
        "peers": peers,
    }


def _produce(spark: Any, bootstrap: str, batches: int) -> None:
    """Fills the topic with so many micro-batches."""
    recent = 500_000
    rows = (
        spark.range(0, PER_BATCH * batches, 1, 16)
        .selectExpr(
            "id",
            # Every fifth record changes an order of the last half million records, the others are new orders.
            f"IF(id % 5 = 4, GREATEST(0, id - 1 - CAST(rand(7) * {recent} AS BIGINT)), id) AS order_id",
        )
        .selectExpr(
            # A key's records share a partition, as a producer's do.
            f"CAST(order_id % {PARTITIONS} AS INT) AS partition",
            "CAST(CAST(order_id AS STRING) AS BINARY) AS key",
            "CAST(to_json(struct(order_id, id AS version, 'shipped' AS status, rand() AS amount, "
            f"date_add(DATE '2026-01-01', CAST(order_id DIV {4 * PER_BATCH} AS INT)) AS day, "
            "repeat('x', 80) AS note)) AS BINARY) AS value",
        )
    )
    rows.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", "events").save()


def _sink(name: str, folder: Path, server: Any) -> Mapping[str, Any]:
    if name == "delta":
        return {"kind": "delta", "target": str(folder / "table")}
    if name == "delta_merge":
        # An order's day never changes: a MERGE needs to look at the files of the micro-batch's days alone.
        days = {"partition_by": ["day"], "prune_by": [{"column": "day", "immutable": True}]}
        return {"kind": "delta_merge", "target": str(folder / "table"), "keys": ["order_id"], **days}
    if name == "postgres_upsert":
        server.sql(
            "DROP TABLE IF EXISTS orders",
            "CREATE TABLE orders (order_id bigint PRIMARY KEY, version bigint, status text, amount double precision, "
            "day date, note text, _batch_id bigint, _source_topic text, _source_partition int, _source_offset bigint)",
        )
        return {"kind": "jdbc_upsert", "target": "orders", "connection": server.connection, "keys": ["order_id"]}
    raise SystemExit(f"there is no sink {name!r}; there is {', '.join(SINKS)}")


@contextmanager
def _hook(name: str, folder: Path, server: Any, bootstrap: str, times: Times) -> Iterator[Any]:
    """The pipeline's hook, with a clock around what it does besides Spark's write."""
    import recon
    from recon.write.ledger import Ledger

    options = dict(_sink(name, folder, server))
    hook = recon.foreach_batch(
        pipeline=name,
        checkpoint=str(folder / "checkpoint"),
        ledger=str(folder / "ledger"),
        kafka={"bootstrap.servers": bootstrap},
        transform=_parsed,
        target=options.pop("target"),
        **options,
    )
    writer, append = hook.writer, Ledger.append
    writer.write = times.around("write", writer.write)
    writer.confirm = times.around("confirm", writer.confirm)
    Ledger.append = times.around("ledger", append)  # type: ignore[method-assign]
    try:
        yield times.around("hook", hook)
    finally:
        Ledger.append = append  # type: ignore[method-assign]


def _parsed(frame: Any) -> Any:
    from pyspark.sql import functions as F

    fields = F.from_json(F.col("value").cast("string"), _SCHEMA).alias("r")
    source = ["_source_topic", "_source_partition", "_source_offset"]
    return frame.select(fields, *source).select("r.*", *source)


def _one(
    spark: Any, bootstrap: str, folder: Path, server: Any, name: str, batches: int, seconds: int
) -> dict[str, Any]:
    """Runs one sink over the topic at the trigger's pace, to its end or for so long behind the warm-up."""
    times, began = Times(), float("inf")
    with _hook(name, folder, server, bootstrap, times) as write:
        query = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", "events")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", PER_BATCH)
            .load()
            .writeStream.foreachBatch(lambda frame, batch_id: write(frame, batch_id))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(processingTime=f"{EVERY_S} seconds")
            .start()
        )
        try:
            while query.isActive and len(times.hook) < batches and time.monotonic() - began < seconds:
                if len(times.hook) == WARM_UP:
                    began = min(began, time.monotonic())
                time.sleep(0.1)
            done = len(times.hook)
            if query.exception():
                raise query.exception()
            deadline = time.monotonic() + 30
            while len(_progress(query)) < done and time.monotonic() < deadline:
                time.sleep(0.1)
            progress = _progress(query)[:done]
        finally:
            query.stop()
    rows = [p["numInputRows"] for p in progress[WARM_UP:]]
    whole = [p["durationMs"]["triggerExecution"] / 1000 for p in progress[WARM_UP:]]
    spent = sum(max(EVERY_S, seconds) for seconds in whole)
    ours = Times(*(getattr(times, part)[WARM_UP:done] for part in ("hook", "write", "confirm", "ledger")))
    beside = [hook - writing for hook, writing in zip(ours.hook, ours.write, strict=True)]
    return {
        "rate": round(sum(rows) / spent, 1),
        "at_most": round(sum(rows) / sum(whole), 1),
        "batch_s": round(statistics.median(whole), 2),
        "slowest_s": round(max(whole), 2),
        "write_s": round(statistics.median(ours.write), 2),
        "first_write_s": round(ours.write[0], 2),
        "last_write_s": round(ours.write[-1], 2),
        "hook_beside_write_ms": round(1000 * statistics.median(beside), 1),
        "confirm_ms": round(1000 * statistics.median(ours.confirm), 1),
        "ledger_ms": round(1000 * statistics.median(ours.ledger), 1),
        "hook_share": round(statistics.median(b / w for b, w in zip(beside, whole, strict=True)), 4),
    }


def _progress(query: Any) -> list[Any]:
    return [p for p in query.recentProgress if p["numInputRows"]]


def table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """What docs/figures.md shows."""
    lines = [
        "| sink | sustained | batch, median (slowest) | could take | Spark's write | hook beside it | "
        "of these confirm, ledger | hook's share |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, of_sink in figures.items():
        lines.append(
            f"| {name} | {of_sink['rate']:,.0f}/s | {of_sink['batch_s']:.1f} s ({of_sink['slowest_s']:.1f}) | "
            f"{of_sink['at_most']:,.0f}/s | {of_sink['write_s']:.1f} s | {of_sink['hook_beside_write_ms']:.0f} ms | "
            f"{of_sink['confirm_ms']:.0f}, {of_sink['ledger_ms']:.0f} ms | {of_sink['hook_share']:.1%} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="25,000 events a second through the hook")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="per sink, after two micro-batches of warming up")
    parser.add_argument("--sinks", default=",".join(SINKS))
    options = parser.parse_args()
    print(json.dumps(run(options.seconds, options.sinks.split(",")), indent=2))


if __name__ == "__main__":
    main()
