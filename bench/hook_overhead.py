"""What the hook adds to a micro-batch: the same stream with a plain Delta append, and through the hook.

One topic of 200 partitions; micro-batches of 250,000 records of about 200 bytes, 10 s worth at 25,000 events a second.
Floor: foreachBatch with a plain append that is exactly-once by txnAppId/txnVersion and stamps the same four columns, so
that the same bytes are written. Ours: `recon.foreach_batch`. Two queries drain the same topic in one session, one
micro-batch at a time; which of the two reads a range first, and so from a colder cache, changes with every range. The
figure is the median time inside the foreachBatch function.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PARTITIONS = 200
PER_BATCH = 250_000
BATCHES = 14
WARM_UP = 2


def run() -> dict[str, Any]:
    from recon.local.kafka import LocalKafka
    from recon.local.spark import spark_session

    with tempfile.TemporaryDirectory() as folder, LocalKafka(Path(folder) / "kafka") as broker:
        broker.create_topic("events", PARTITIONS)
        spark = spark_session("hook_overhead", conf={"spark.driver.memory": "6g"})
        try:
            produce(spark, broker.bootstrap_servers, BATCHES)
            ours, floor = _alternate(spark, broker.bootstrap_servers, Path(folder))
        finally:
            spark.stop()
    return {"name": "hook_overhead", "ours": ours, "floor": floor, "ratio": ours / floor, "unit": "s", "peers": {}}


def produce(spark: Any, bootstrap: str, batches: int) -> None:
    """Fills the topic with so many micro-batches."""
    rows = spark.range(0, PER_BATCH * batches, 1, 8).selectExpr(
        f"CAST(id % {PARTITIONS} AS INT) AS partition",
        "CAST(CAST(id AS STRING) AS BINARY) AS key",
        "CAST(to_json(struct(id, uuid() AS order_id, 'shipped' AS status, rand() AS amount, repeat('x', 80) AS note)) "
        "AS BINARY) AS value",
    )
    rows.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", "events").save()


def _alternate(spark: Any, bootstrap: str, folder: Path) -> tuple[float, float]:
    """Medians (ours, floor) of the seconds inside foreachBatch."""
    import recon

    hook = recon.foreach_batch(
        pipeline="events",
        checkpoint=str(folder / "ours-checkpoint"),
        target=str(folder / "ours"),
        ledger=str(folder / "ledger"),
        kafka={"bootstrap.servers": bootstrap},
    )
    writes = {"ours": hook, "floor": _plain(str(folder / "floor"))}
    taken = drain(spark, bootstrap, folder, writes, BATCHES)
    written = [spark.read.format("delta").load(str(folder / name)).count() for name in writes]
    assert written == [PER_BATCH * BATCHES] * 2, written
    return statistics.median(taken["ours"][WARM_UP:]), statistics.median(taken["floor"][WARM_UP:])


def drain(
    spark: Any, bootstrap: str, folder: Path, writes: Mapping[str, Callable[[Any, int], None]], batches: int
) -> dict[str, list[float]]:
    """Seconds inside foreachBatch by name, for queries that drain the topic; only one of them works at a time.

    Which of them reads a range first changes with every range. `<folder>/<name>-checkpoint` is a query's checkpoint.
    """
    turn = threading.Condition()
    names = list(writes)
    order = [name for n in range(batches) for name in names[n % len(names) :] + names[: n % len(names)]]
    taken: dict[str, list[float]] = {name: [] for name in names}

    def timed(name: str, write: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        def timed_write(frame: Any, batch_id: int) -> None:
            with turn:
                turn.wait_for(lambda: order[0] == name, timeout=300)
                began = time.perf_counter()
                write(frame, batch_id)
                taken[name].append(time.perf_counter() - began)
                order.pop(0)
                turn.notify_all()

        return timed_write

    queries = []
    for name, write in writes.items():
        query = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", "events")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", PER_BATCH)
            .load()
            .writeStream.foreachBatch(timed(name, write))
            .option("checkpointLocation", str(folder / f"{name}-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        queries.append(query)
    for query in queries:
        query.awaitTermination()
    counts = {name: len(times) for name, times in taken.items()}
    assert set(counts.values()) == {batches}, counts
    print(json.dumps({name: [round(t, 2) for t in times] for name, times in taken.items()}))
    return taken


def _plain(path: str) -> Callable[[Any, int], None]:
    def write(frame: Any, batch_id: int) -> None:
        from pyspark.sql import functions as F

        stamped = frame.withColumns(
            {
                "_source_topic": F.col("topic"),
                "_source_partition": F.col("partition"),
                "_source_offset": F.col("offset"),
                "_batch_id": F.lit(batch_id).cast("long"),
            }
        )
        writer = stamped.write.format("delta").mode("append")
        writer.option("txnAppId", "bench").option("txnVersion", batch_id).save(path)

    return write
