"""The usual shapes of a streaming query through the hook, on a real broker, and what the audit says of each.

Every query has a ProgressListener beside it: what stateful operators let fall is known from Spark's own counts alone.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recon.model import RUNNING, ProgressWitness
from recon.write.ledger.progress import PROGRESS, read_progress
from recon.write.ledger.store import open_store
from recon.write.sinks.failpoints import BEFORE_LEDGER
from recon.write.streams.advise import advise
from recon.write.streams.listener import ProgressListener
from tests.cases.lake import EVIDENCE, Lake, failing, findings, statuses
from tests.support.failpoints import dies_at

MakeLake = Callable[..., Lake]

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def stream(lake: Lake, *topics: str, per_trigger: int | None = None, **options: str) -> DataFrame:
    reader = (
        lake.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", lake.kafka.bootstrap_servers)
        .option("subscribe", ",".join(topics or (lake.topic,)))
        .option("startingOffsets", "earliest")
        .options(**options)
    )
    return (reader.option("maxOffsetsPerTrigger", per_trigger) if per_trigger else reader).load()


def run(
    lake: Lake,
    frame: DataFrame,
    write: Any = None,
    *,
    mode: str = "append",
    rows: int | None = None,
    idle: float = 0.0,
) -> None:
    """Drains with availableNow; with `rows`, runs every half second until so many were read and `idle` seconds on."""
    writer = (
        frame.writeStream.foreachBatch(write or lake.hook())
        .outputMode(mode)
        .option("checkpointLocation", str(lake.checkpoint))
    )
    if rows is None:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(120)
        assert not query.isActive
        return
    query = writer.trigger(processingTime="500 milliseconds").start()
    deadline = time.monotonic() + 120
    while sum(p.numInputRows for p in query.recentProgress) < rows or query.status["isTriggerActive"]:
        assert query.isActive and time.monotonic() < deadline, query.exception()
        time.sleep(0.1)
    time.sleep(idle)
    query.stop()


@contextmanager
def listening(lake: Lake) -> Iterator[None]:
    """Progress is recorded; when this ends, that of the last micro-batch as well."""
    listener = ProgressListener(lake.project)
    lake.spark.streams.addListener(listener)
    try:
        yield
        last, deadline = lake.entries()[-1], time.monotonic() + 20
        while not any((b.query_id, b.batch_id) == (last.query_id, last.batch_id) for b in progress(lake).batches):
            assert time.monotonic() < deadline, "Spark never told of the last micro-batch"
            time.sleep(0.1)
            listener.flush()
    finally:
        lake.spark.streams.removeListener(listener)


def progress(lake: Lake) -> ProgressWitness:
    return read_progress(open_store(lake.project, PROGRESS), "p", None, None)


@pytest.fixture
def rocksdb(spark: Any) -> Iterator[None]:
    name = "spark.sql.streaming.stateStore.providerClass"
    spark.conf.set(name, ROCKSDB)
    yield
    spark.conf.unset(name)


def send(lake: Lake, topic: str, keys: range, partition: int = 0) -> None:
    lake.kafka.produce(topic, [(f"k{i}", f"v{i}", partition) for i in keys])


def deduplicated(lake: Lake) -> DataFrame:
    return stream(lake).withWatermark("timestamp", "1 minute").dropDuplicates(["key"])


def test_watermark_and_drop_duplicates(make_lake: MakeLake) -> None:
    lake = make_lake(partitions=2)
    send(lake, lake.topic, range(60))
    send(lake, lake.topic, range(30), partition=1)  # the same keys once more
    with listening(lake):
        run(lake, deduplicated(lake))
        send(lake, lake.topic, range(50, 70))  # ten known, ten new
        run(lake, deduplicated(lake))
    assert len(lake.rows()) == 70
    told = progress(lake).batches
    assert sum(b.dropped_duplicates or 0 for b in told) == 40 and sum(b.rows for b in told) == 110
    found = lake.audit()
    assert failing(found) == set() and found.pipelines[0].answer == "complete"
    (source_rows,) = [r for r in found.results if r.check == "source_rows"]
    assert (source_rows.status, source_rows.evidence["dropped_by_state"]) == ("pass", 40)

    # Without Spark's counts nobody can tell a dropped duplicate from a lost row: no pass, and no loss either.
    kept = lake.path / "recon" / "progress"
    shutil.move(kept, lake.path / "aside")
    blind = lake.audit()
    assert failing(blind) == set() and blind.pipelines[0].answer == "could not be proved"
    assert "ProgressListener" in next(r.message for r in blind.results if r.check == "source_rows")


def test_a_crash_after_the_commit_of_a_stateful_query(make_lake: MakeLake) -> None:
    """The replay finds its rows in the table and does not compute the frame again; its state is there already."""
    lake = make_lake()
    send(lake, lake.topic, range(60))
    send(lake, lake.topic, range(30, 50))
    with listening(lake):
        with pytest.raises(StreamingQueryException, match="died"):
            run(lake, deduplicated(lake), lake.hook(failpoint=dies_at(BEFORE_LEDGER)))
        send(lake, lake.topic, range(40, 80))
        run(lake, deduplicated(lake))
    assert sorted(r["key"].decode() for r in lake.rows()) == sorted(f"k{i}" for i in range(80))
    found = lake.audit()
    # What the replayed micro-batch dropped was never told: it did not run to its end, and then did not run at all.
    assert failing(found) == set() and found.pipelines[0].answer == "could not be proved"
    assert {f.batch_id for f in findings(found, "INCONCLUSIVE")} == {0}


def test_an_aggregate_in_update_mode_with_rocksdb(make_lake: MakeLake, rocksdb: None) -> None:
    """Rows of an aggregate have no source offsets: what was read is proved, what became of it is attested."""
    lake = make_lake(partitions=2, sink={"stamp_source_offsets": False})
    send(lake, lake.topic, range(40))
    send(lake, lake.topic, range(20), partition=1)

    def counts() -> DataFrame:
        frame = stream(lake).withWatermark("timestamp", "1 second")
        return frame.groupBy(F.window("timestamp", "1 second", "500 milliseconds"), "key").count()

    with listening(lake):
        run(lake, counts(), mode="update", rows=60)
    told = progress(lake).batches
    assert all(b.rocksdb for b in told if b.state_operators) and any(b.state_rows for b in told)
    wide = [e for e in lake.entries() if (e.rows_written or 0) > sum(s.span.size for s in e.offsets)]
    assert wide, "sliding windows write more rows than were read"
    found = lake.audit()
    assert failing(found) == set()
    assert statuses(found) | {"source_rows": "warn"} == statuses(found)
    assert {str(f.code) for f in findings(found) if f.level == "warn"} == {"ATTESTED_ONLY"}


@pytest.mark.long
def test_the_last_micro_batch_of_an_append_aggregate_reads_nothing(make_lake: MakeLake) -> None:
    """Append mode writes a window when the watermark passes it: rows of a micro-batch that read no offset."""
    lake = make_lake(sink={"stamp_source_offsets": False})
    send(lake, lake.topic, range(30))
    frame = stream(lake).withColumn("at", F.expr("timestamp - make_dt_interval(0, 0, 0, offset * 10)"))
    counts = frame.withWatermark("at", "1 second").groupBy(F.window("at", "10 seconds")).count()
    with listening(lake):
        run(lake, counts)
    empty = [e for e in lake.entries() if not sum(s.span.size for s in e.offsets)]
    assert empty and empty[-1].rows_written, "the no-data micro-batch wrote the closed windows"
    found = lake.audit()
    assert failing(found) == set() and statuses(found)["source_rows"] == "warn"


@pytest.mark.long
def test_several_topics_in_one_source_and_several_sources_in_one_query(
    make_lake: MakeLake, topic: Callable[..., str]
) -> None:
    lake = make_lake(partitions=2)
    second, third = topic("second"), topic("third", 2)
    for name, count in ((lake.topic, 50), (second, 20), (third, 30)):
        send(lake, name, range(count))
    send(lake, third, range(10), partition=1)

    def both() -> DataFrame:
        return stream(lake, lake.topic, second).unionByName(stream(lake, third, per_trigger=25))

    with listening(lake):
        run(lake, both())
    assert sorted({s.source for e in lake.entries() for s in e.offsets}) == [0, 1]
    assert len(lake.rows()) == 110
    assert {b.partitions for b in progress(lake).batches} == {5}
    found = lake.audit()
    assert failing(found) == set() and found.pipelines[0].answer == "complete"
    assert set(found.pipelines[0].topics) >= {lake.topic}


def test_a_stream_stream_join(make_lake: MakeLake, topic: Callable[..., str]) -> None:
    lake = make_lake(sink={"stamp_source_offsets": False})
    payments = topic("payments")
    send(lake, lake.topic, range(40))
    send(lake, payments, range(20, 60))

    def joined() -> DataFrame:
        left = stream(lake).withWatermark("timestamp", "1 minute").selectExpr("key", "timestamp t1", "value v1")
        right = stream(lake, payments).withWatermark("timestamp", "1 minute")
        right = right.selectExpr("key k2", "timestamp t2", "value v2")
        return left.join(right, F.expr("key = k2 AND t2 BETWEEN t1 - INTERVAL 1 HOUR AND t1 + INTERVAL 1 HOUR"))

    with listening(lake):
        run(lake, joined())
        send(lake, payments, range(20))  # the other halves of rows that waited in the state
        run(lake, joined())
    assert len(lake.rows()) == 40
    found = lake.audit()
    assert failing(found) == set()
    assert statuses(found)["source_rows"] == "warn" and found.pipelines[0].answer == "complete"


@pytest.mark.long
def test_processing_time_trigger(make_lake: MakeLake) -> None:
    lake = make_lake(checks=(*EVIDENCE, *RUNNING))
    lake.produce(30)
    with listening(lake):
        run(lake, stream(lake, per_trigger=10), rows=30, idle=2)
    told = progress(lake).batches
    assert [b.batch_id for b in told] == [0, 1, 2], "idle triggers leave no row"
    assert [b.lag for b in told] == [20, 10, 0]
    assert {b.cores for b in told} == {lake.spark.sparkContext.defaultParallelism}
    found = lake.audit()
    assert failing(found) == set() and found.pipelines[0].answer == "complete"
    assert [statuses(found)[check] for check in RUNNING] == ["skipped"] * 3, "three micro-batches are no history"
    advice = {a.rule: a for a in advise(lake.project)}
    assert advice["fail_on_data_loss"].decision == "keep"
    assert advice["fail_on_data_loss"].figures["retention_seconds"] == 7 * 86_400, "the broker's own default"
    assert advice["max_offsets_per_trigger"].decision == "unknown"
