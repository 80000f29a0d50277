"""Checkpoint and Delta log as Spark really writes them, fed by a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recon.base.storage import Storage
from recon.model import CheckpointBatch, ReconStamp, dump_stamp, offsets_text
from recon.model.offsets import OffsetSpan, Spans
from recon.witness import checkpoint, delta_log, kafka_probe
from recon.witness import kafka as kafka_evidence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.kafka import LocalKafka

APP = "recon:orders:lake"


@dataclass
class Stream:
    """A query from Kafka into a Delta table that stamps its commits, run batch by batch."""

    spark: SparkSession
    kafka: LocalKafka
    folder: Path
    isolation_level: str = "read_uncommitted"
    planned: dict[int, CheckpointBatch] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Storage:
        return Storage(str(self.folder / "checkpoint"))

    @property
    def table(self) -> Storage:
        return Storage(str(self.folder / "table"))

    def source(self, *topics: str) -> DataFrame:
        return (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.kafka.bootstrap_servers)
            .option("kafka.isolation.level", self.isolation_level)
            .option("subscribe", ",".join(topics))
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value")
        )

    def write(self, batch: DataFrame, batch_id: int) -> None:
        planned = checkpoint.read_batch(self.checkpoint, batch_id)
        self.planned[batch_id] = planned
        text = offsets_text(planned.ranges)
        stamp = ReconStamp(
            pipeline="orders",
            sink="lake",
            epoch=0,
            batch_id=batch_id,
            query_id=checkpoint.query_id(self.checkpoint),
            run_id=None,
            prev_hash="",
            offsets_text=text,
        )
        self.rows[batch_id] = batch.count()
        (
            batch.write.format("delta")
            .option("txnAppId", APP)
            .option("txnVersion", batch_id)
            .option("userMetadata", dump_stamp(stamp))
            .mode("append")
            .save(self.table.uri)
        )

    def run(self, source: DataFrame) -> str:
        """All that is there now, in one micro-batch; returns the query's id as Spark knows it."""
        query = (
            source.writeStream.foreachBatch(self.write)
            .option("checkpointLocation", self.checkpoint.uri)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return str(query.id)


@pytest.fixture
def stream(spark: SparkSession, kafka: LocalKafka, lake: Path) -> Stream:
    return Stream(spark, kafka, lake)


def span(topic: str, partition: int, start: int, end: int, source: int = 0) -> OffsetSpan:
    return OffsetSpan(topic, None, partition, start, end, source)


def test_checkpoint_and_log_of_a_real_stream(stream: Stream, kafka: LocalKafka, topic: Callable[..., str]) -> None:
    began = datetime.now(UTC) - timedelta(seconds=1)
    name = topic("orders", partitions=2)
    kafka.produce(name, [("k", "v", p) for p in (0, 0, 0, 1)])
    source = stream.source(name)
    query_id = stream.run(source)
    kafka.produce(name, [("k", "v", 1), ("k", "v", 1)])
    stream.run(source)
    kafka.add_partitions(name, 3)
    kafka.produce(name, [("k", "v", 2)])
    stream.run(source)

    witness = checkpoint.read(stream.checkpoint)
    assert witness.query_id == query_id
    assert [(b.batch_id, b.committed, b.starts_known) for b in witness.batches] == [
        (0, True, True),
        (1, True, True),
        (2, True, True),
    ]
    assert [b.ranges for b in witness.batches] == [
        (span(name, 0, 0, 3), span(name, 1, 0, 1)),
        (span(name, 0, 3, 3), span(name, 1, 1, 3)),
        (span(name, 0, 3, 3), span(name, 1, 3, 3)),
    ]
    assert witness.batches[2].new_partitions == ((0, name, 2, 1),)
    for batch in witness.batches:
        assert batch.planned_at is not None
        assert began < batch.planned_at < datetime.now(UTC)
        inside = stream.planned[batch.batch_id]  # what the hook saw while the micro-batch ran
        assert (inside.ranges, inside.new_partitions) == (batch.ranges, batch.new_partitions)
        assert not inside.committed

    log = delta_log.read(stream.table)
    assert (log.exists, log.first_retained, log.last, log.txns) == (True, 0, 2, {APP: 2})
    for batch in witness.batches:
        commit = log.commits[batch.batch_id]
        assert commit.operation == "WRITE"
        assert commit.txn == {APP: batch.batch_id}
        assert commit.stamp is not None
        assert (commit.stamp.batch_id, commit.stamp.query_id) == (batch.batch_id, query_id)
        assert commit.stamp.offsets_text == offsets_text(batch.ranges)
        assert commit.rows_added == stream.rows[batch.batch_id] == int(commit.operation_metrics["numOutputRows"])
        assert commit.data_change
        assert began < commit.timestamp < datetime.now(UTC)
        assert delta_log.find_stamped(stream.table, APP, batch.batch_id, after=batch.batch_id - 1) == commit
    assert stream.rows == {0: 4, 1: 2, 2: 1}
    assert delta_log.latest_version(stream.table) == 2
    assert delta_log.transaction_version(stream.table, APP) == 2
    files = delta_log.added_files(stream.table, 0)
    assert stream.spark.read.parquet(*files).count() == 4

    # a part of the log alone still knows the whole table's txns, by Spark's checksum file
    part = delta_log.read(stream.table, from_version=0, to_version=0)
    assert (list(part.commits), part.txns) == ([0], {APP: 2})


def test_two_sources_in_one_query(stream: Stream, kafka: LocalKafka, topic: Callable[..., str]) -> None:
    orders, refunds = topic("orders"), topic("refunds")
    kafka.produce(orders, [("k", "v", 0)] * 3)
    kafka.produce(refunds, [("k", "v", 0)] * 2)
    union = stream.source(orders).unionByName(stream.source(refunds))
    stream.run(union)
    kafka.produce(refunds, [("k", "v", 0)])
    stream.run(union)
    witness = checkpoint.read(stream.checkpoint)
    assert witness.sources == 2
    by_topic = [{(s.topic, s.start_offset, s.end_offset) for s in b.ranges} for b in witness.batches]
    assert by_topic == [{(orders, 0, 3), (refunds, 0, 2)}, {(orders, 3, 3), (refunds, 2, 3)}]
    assert {s.source for b in witness.batches for s in b.ranges} == {0, 1}
    assert {(s.topic, s.source) for s in witness.batches[0].ranges} == {
        (s.topic, s.source) for s in witness.batches[1].ranges
    }


def test_the_probe_explains_what_a_committed_reader_did_not_get(
    stream: Stream, kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    stream.isolation_level = "read_committed"
    name = topic("tx")
    kafka.transaction(name, [("k", "v", 0)] * 10, "commit")
    kafka.transaction(name, [("k", "v", 0)] * 4, "abort")
    stream.run(stream.source(name))
    (read,) = checkpoint.read(stream.checkpoint).batches[0].ranges
    assert read == span(name, 0, 0, 16)  # 10 + marker + 4 + marker
    assert stream.rows[0] == 10
    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    witness = kafka_evidence.read(
        settings, [name], isolation_level="read_committed", positions={(name, 0): read.end_offset}
    )
    partition = witness.topics[name].partitions[0]
    assert (partition.log_end, partition.unread_since) == (read.end_offset, None)
    answer = kafka_probe.probe(settings, {(name, 0): Spans((read.span,))})[name, 0]
    assert (answer.committed.size, answer.uncommitted.size, answer.truncated) == (10, 14, None)


@pytest.mark.long
def test_operations_that_rewrite_a_table(spark: SparkSession, lake: Path) -> None:
    path = str(lake / "table")
    spark.range(0, 100, 1, 2).write.format("delta").save(path)

    def sql(text: str) -> Any:
        return spark.sql(text.replace("TABLE_", f"delta.`{path}`")).collect()

    sql("DELETE FROM TABLE_ WHERE id < 10")
    sql("ALTER TABLE TABLE_ SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 12 days')")
    sql("ALTER TABLE TABLE_ SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    before = len(delta_log.read(Storage(path)).commits)
    sql("DELETE FROM TABLE_ WHERE id IN (20, 21, 22)")
    sql("UPDATE TABLE_ SET id = -1 WHERE id = 30")
    sql("OPTIMIZE TABLE_")
    sql("RESTORE TABLE TABLE_ TO VERSION AS OF 0")

    witness = delta_log.read(Storage(path))
    commits = list(witness.commits.values())
    history = {r["version"]: r for r in sql("DESCRIBE HISTORY TABLE_")}
    assert [c.operation for c in commits] == [history[c.version]["operation"] for c in commits]
    assert [c.operation_metrics for c in commits] == [history[c.version]["operationMetrics"] for c in commits]
    created, deleted = commits[0], commits[1]
    assert (created.rows_added, created.rows_removed, created.files_added) == (100, 0, 2)
    assert deleted.rows_added is not None
    assert deleted.rows_removed is not None
    assert deleted.rows_removed - deleted.rows_added == 10
    marked, updated, optimized, restored = commits[before:]
    assert marked.operation == "DELETE"
    assert (marked.rows_removed or 0) - (marked.rows_added or 0) == 3
    assert int(marked.operation_metrics["numDeletionVectorsAdded"]) > 0
    assert (updated.rows_removed or 0) == (updated.rows_added or 0) > 0
    assert (optimized.data_change, optimized.files_added, optimized.rows_added) == (False, 0, 0)
    assert restored.operation == "RESTORE"
    assert restored.data_change
    assert restored.rows_added == 100
    rows = sum((c.rows_added or 0) - (c.rows_removed or 0) for c in commits)
    assert rows == 100 == spark.read.format("delta").load(path).count()
    # RESTORE brought the table's first properties back
    assert witness.log_retention_days == 30.0
    at_optimize = delta_log.read(Storage(path), to_version=optimized.version)
    assert at_optimize.last == restored.version
    assert time.time() - restored.timestamp.timestamp() < 120
