"""Fault cases of sinks that are no Delta table: a micro-batch is written again, or with another transform."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from recon.model import ReconStamp
from recon.write.hook import ForeachBatch
from recon.write.sinks.failpoints import BEFORE_LEDGER, BEFORE_WRITE
from tests.cases.lake import complete, failing, findings, ranges, refuted, told
from tests.cases.test_databases import DatabaseLake, keyed
from tests.cases.test_routed import Streams, streams  # noqa: F401
from tests.support import fault_cases
from tests.support.failpoints import dies_at
from tests.support.marks import long

MakeSink = Callable[..., DatabaseLake]


@pytest.fixture
def make_sink(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> MakeSink:
    """A pipeline whose sink is none of Delta's."""
    return lambda **sink: DatabaseLake(tmp_path, kafka, spark, topic("t"), sink=sink)


def crashed(lake: DatabaseLake) -> None:
    """The driver dies between a write and its entry, and the query starts again."""
    lake.produce(10)
    with pytest.raises(StreamingQueryException, match="died"):
        lake.run(transform=keyed, failpoint=dies_at(BEFORE_LEDGER))
    lake.run(transform=keyed)


@pytest.mark.case(25, "REPEATED")
def test_a_database_table_without_recons_entry(make_sink: MakeSink, postgres: Any) -> None:
    lake = make_sink(kind="jdbc_append", connection=postgres.connection, create_table=True, guard=False, target="")
    table = lake.topic.replace("-", "_")
    lake.sink = {**lake.sink, "target": table}
    crashed(lake)
    assert postgres.sql(f"SELECT COUNT(*) FROM {table}") == [(20,)]
    run = lake.audit()
    assert ranges(findings(run, "REPEATED")) == {(0, 0, 10)} and not failing(run), told(run)
    postgres.sql(f"DROP TABLE {table}")


@pytest.mark.case(26, "REPEATED")
def test_files_that_are_appended(make_sink: MakeSink) -> None:
    lake = make_sink(kind="parquet", mode="append", target="files")
    crashed(lake)
    run = lake.audit()
    assert ranges(findings(run, "REPEATED")) == {(0, 0, 10)} and not failing(run), told(run)


@pytest.mark.case(26)
def test_files_of_a_micro_batch_that_are_replaced(make_sink: MakeSink) -> None:
    lake = make_sink(kind="parquet", target="files")
    crashed(lake)
    run = lake.audit()
    assert complete(run) and not findings(run, "REPEATED"), told(run)


@pytest.mark.parametrize("kind", ["parquet", *long("json")])
def test_a_file_that_was_written_is_gone(make_sink: MakeSink, kind: str) -> None:
    """No row is read to find it; the rows that are left say which offsets are gone."""
    lake = make_sink(kind=kind, target="files")
    for _ in range(2):
        lake.produce(10)
        lake.run(transform=keyed)
    assert complete(lake.audit())
    (file,) = (lake.path / "files").glob(f"*=0/*=1/*/part-*.{kind}")
    away = file.rename(lake.path / "away")
    run = lake.audit(no_spark=True)
    assert refuted(run, "MUTATED"), told(run)
    (finding,) = findings(run, "MUTATED")
    assert finding.batch_id == 1 and file.name in finding.message

    run = lake.audit()
    assert refuted(run, "MUTATED", "GAP") and ranges(findings(run, "GAP")) == {(0, 10, 20)}, told(run)
    away.rename(file)
    run = lake.audit()
    assert complete(run) and ranges(findings(run, "REPAIRED")) == {(0, 10, 20)}, told(run)


def test_a_file_that_somebody_put_beside_those_that_were_written(make_sink: MakeSink) -> None:
    lake = make_sink(kind="parquet", target="files")
    lake.produce(10)
    lake.run(transform=keyed)
    (file,) = (lake.path / "files").glob("*=0/*=0/*/part-*.parquet")
    shutil.copy(file, file.with_name("copied.parquet"))
    shutil.copy(file, lake.path / "files" / "copied.parquet")
    run = lake.audit(no_spark=True)
    assert complete(run) and "2 files that no manifest names" in findings(run, "UNSTAMPED")[0].message, told(run)


def test_the_topic_of_a_kafka_sink_is_made_anew(make_sink: MakeSink, topic: Callable[..., str]) -> None:
    out = topic("out", partitions=2)
    lake = make_sink(kind="kafka", value_format="json", key="k", target=out, marker_topic=topic("markers"))
    lake.kafka.alter_config(str(lake.sink["marker_topic"]), {"cleanup.policy": "compact"})
    for _ in range(2):
        lake.produce(10)
        lake.run(transform=keyed)
    assert complete(lake.audit(no_spark=True))
    lake.kafka.delete_topic(out)
    run = lake.audit(no_spark=True)
    assert refuted(run, "MUTATED") and "does not exist" in findings(run, "MUTATED")[0].message, told(run)
    lake.kafka.create_topic(out, partitions=2)
    lake.produce(3)
    lake.run(transform=keyed)
    run = lake.audit(no_spark=True)
    assert refuted(run, "MUTATED"), told(run)
    assert any("ends earlier" in finding.message for finding in findings(run, "MUTATED")), told(run)


@pytest.mark.case(26, "REPEATED")
def test_a_topic_that_is_written_without_transactions(make_sink: MakeSink, topic: Callable[..., str]) -> None:
    lake = make_sink(kind="kafka", mode="at_least_once", value_format="json", key="k", target=topic("out"))
    crashed(lake)
    assert len(lake.kafka.read(str(lake.sink["target"]))) == 20
    run = lake.audit()
    assert ranges(findings(run, "REPEATED")) == {(0, 0, 10)} and not failing(run), told(run)


@pytest.mark.parametrize("mode", ["replace", *long("append")])
def test_a_second_hook_of_the_sink_in_one_function(make_sink: MakeSink, mode: str) -> None:
    """It is refused, whether the sink would have left out its rows, replaced the others by them, or kept both."""
    lake = make_sink(kind="parquet", mode=mode, target="files")
    lake.produce(10)
    first, second = lake.hook(transform=keyed), lake.hook(transform=lambda frame: keyed(frame).where("k > 'k4'"))

    def write(frame: DataFrame, batch_id: int) -> None:
        first(frame, batch_id)
        second(frame, batch_id)

    with pytest.raises(StreamingQueryException, match="another call of the hook wrote micro-batch 0 in this run"):
        lake.run(write)
    assert [entry.status for entry in lake.entries()] == ["committed", "already_committed"]
    assert lake.spark.read.parquet(str(lake.path / "files")).count() == 10


@pytest.mark.case(61, "DUPLICATE")
def test_two_drivers_write_a_micro_batch_into_a_sink_without_versions(make_sink: MakeSink, tmp_path: Path) -> None:
    """Its write is said to be exactly-once, and appends."""
    files = str(tmp_path / "files")
    lake = make_sink(
        kind="custom",
        target="files",
        declares="exactly-once",
        write=lambda frame, batch: frame.write.mode("append").parquet(files),
        read=lambda spark: spark.read.parquet(files),
    )
    second: ForeachBatch = lake.hook(transform=keyed)

    def writes(frame: DataFrame, batch_id: int) -> None:
        def meanwhile(point: str, stamp: ReconStamp) -> None:
            if point == BEFORE_WRITE:
                second(frame, batch_id)

        lake.hook(transform=keyed, failpoint=meanwhile)(frame, batch_id)

    lake.produce(10)
    lake.run(writes)
    assert [entry.status for entry in lake.entries()] == ["committed", "committed"]
    run = lake.audit()
    assert refuted(run, "DUPLICATE") or refuted(run, "DUPLICATE", "OVERLAP"), told(run)


@pytest.mark.case(35, "NONDETERMINISTIC")
def test_a_retry_of_routes_whose_transform_returns_other_rows(streams: Streams) -> None:  # noqa: F811
    streams.produce(*["eu", "us"] * 5)

    def transform(most: int) -> Callable[[DataFrame], DataFrame]:
        columns = ("CAST(value AS STRING) AS land", "_source_topic", "_source_partition", "_source_offset")
        return lambda frame: frame.where(f"offset < {most}").selectExpr(*columns)

    with pytest.raises(StreamingQueryException, match="died"):
        streams.run(streams.hook(transform=transform(10), failpoint=dies_at(BEFORE_WRITE, sink="us")))
    streams.run(streams.hook(transform=transform(6)))
    run = fault_cases.audit(streams.project, spark=streams.spark)
    assert "NONDETERMINISTIC" in failing(run) and run.pipelines[0].answer == "not complete", told(run)
