"""The local session: Delta, the Kafka connector and the worker's Python are the right ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.kafka import LocalKafka

pytestmark = pytest.mark.spark


def test_workers_run_this_python(spark: SparkSession) -> None:
    assert spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect() == [sys.executable]


def test_kafka_rows_reach_a_delta_table(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], lake: Path
) -> None:
    name = topic("lake", partitions=2)
    kafka.transaction(name, [("k", str(i), i % 2) for i in range(10)], "commit")
    kafka.transaction(name, [("k", "never", 0)], "abort")
    source = spark.read.format("kafka").options(
        **{
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": name,
            "kafka.isolation.level": "read_committed",
        }
    )
    source.load().write.format("delta").save(str(lake / "t"))
    values = {bytes(row.value).decode() for row in spark.read.format("delta").load(str(lake / "t")).collect()}
    assert values == {str(i) for i in range(10)}


def test_commits_are_kept_fast_by_settings(spark: SparkSession) -> None:
    # Delta's default of 50 snapshot partitions makes every commit several times as slow on two cores.
    assert spark.conf.get("spark.databricks.delta.snapshotPartitions") == "2"


def test_timestamps_are_utc(spark: SparkSession) -> None:
    shown = spark.sql("SELECT date_format(timestamp_seconds(0), 'yyyy-MM-dd HH:mm') AS t").collect()
    assert shown[0].t == "1970-01-01 00:00"
