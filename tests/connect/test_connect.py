"""Streams through Spark Connect, held against their audits: every kind of sink, quarantine, kills, and who looks on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import recon
from recon.base.errors import ConfigError
from recon.model import ReconStamp
from recon.write.ledger.progress import PROGRESS
from recon.write.ledger.store import open_store
from recon.write.sinks.failpoints import AFTER_WRITE, BEFORE_LEDGER
from tests.cases.lake import complete, failing, told
from tests.connect.conftest import EVIDENCE, ROOT, Stream
from tests.support.connect import ConnectServer, new_session
from tests.support.processes import recon as command
from tests.support.processes import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MakeStream = Callable[..., Stream]
DELTA = {"kind": "delta", "target": "table"}
MERGE = {"kind": "delta_merge", "target": "table", "keys": ["id"]}


def keyed(frame: DataFrame) -> DataFrame:
    """One row of each record: its number."""
    return frame.select(
        F.col("value").cast("string").cast("int").alias("id"), "_source_topic", "_source_partition", "_source_offset"
    )


def added(frame: DataFrame) -> DataFrame:
    """Every column of the source, and the number."""
    return frame.withColumn("id", F.col("value").cast("string").cast("int"))


def rows_of(stream: Stream, target: str = "table") -> list[int]:
    return sorted(row.id for row in stream.spark.read.format("delta").load(str(stream.path / target)).collect())


def dies(point: str, folder: Path) -> Callable[[str, ReconStamp], None]:
    """Ends the function's process at a moment of the second micro-batch, once."""

    def failpoint(reached: str, stamp: ReconStamp) -> None:
        if reached == point and stamp.batch_id == 1 and not (folder / "died").exists():
            (folder / "died").touch()
            os._exit(137)

    return failpoint


def waits(point: str, folder: Path) -> Callable[[str, ReconStamp], None]:
    """Stays at a moment of the second micro-batch until somebody ends the process, once."""

    def failpoint(reached: str, stamp: ReconStamp) -> None:
        if reached == point and stamp.batch_id == 1 and not (folder / "waits").exists():
            (folder / "waits").touch()
            time.sleep(600)

    return failpoint


# -- sinks -----------------------------------------------------------------------------------------


def test_append(stream: MakeStream) -> None:
    lake = stream(
        {**DELTA, "data_tests": [*EVIDENCE, "delta_history", {"row_count": {"arguments": {"min_value": 40}}}]}
    )
    lake.produce(*range(40))
    lake.run(transform=keyed)
    entries = lake.entries()
    assert [(e.batch_id, e.rows_read, e.rows_written, e.rows_filtered) for e in entries] == [
        (number, 10, 10, 0) for number in range(4)
    ]
    assert len({e.run_id for e in entries}) == 1 and entries[0].run_id
    assert all(e.fingerprint_read is not None and e.isolation_level is None for e in entries)
    run = lake.audit()
    assert complete(run), told(run)
    assert {r.status for r in run.results} == {"pass"} and rows_of(lake) == list(range(40))


def test_merge(stream: MakeStream) -> None:
    lake = stream({**MERGE, "newer_wins": "_source_offset", "update_when": "s.id >= 0 -- any", "delete_when": "id = 7"})
    lake.produce(*range(20), *range(5), 7)
    lake.run(transform=keyed)
    run = lake.audit()
    assert complete(run), told(run)
    assert rows_of(lake) == [number for number in range(20) if number != 7]
    assert sum(e.rows_read or 0 for e in lake.entries()) == 26


@pytest.mark.long
def test_merge_of_every_version(stream: MakeStream) -> None:
    scd2 = {"effective": "at", "valid_from": "valid_from", "valid_to": "valid_to", "is_current": "is_current"}
    lake = stream({**MERGE, "scd2": scd2, "prune_by": [{"column": "land", "immutable": True}], "evolve_schema": True})
    lake.produce(*range(10), *range(5))
    lake.run(transform=versioned)
    lake.produce(0)
    lake.run(transform=wider)
    run = lake.audit()
    assert complete(run), told(run)
    table = lake.spark.read.format("delta").load(str(lake.path / "table"))
    assert (table.count(), table.filter("is_current").count(), table.filter("more = 1").count()) == (16, 10, 1)


def versioned(frame: DataFrame) -> DataFrame:
    at = F.timestamp_seconds(F.col("_source_offset"))
    return keyed(frame).withColumns({"at": at, "land": F.lit("o'k")})


def wider(frame: DataFrame) -> DataFrame:
    return versioned(frame).withColumn("more", F.lit(1))


def test_merge_needs_a_session_that_runs_no_other_query(stream: MakeStream) -> None:
    lake = stream(MERGE)
    lake.produce(*range(5))
    hook = recon.foreach_batch(lake.path, pipeline="p", transform=keyed)
    other = lake.spark.readStream.format("rate").load().writeStream.format("noop").start()
    with pytest.raises(PySparkException, match="in the same session of Spark Connect as this MERGE"):
        lake.run(hook)
    other.stop()
    lake.run(hook)
    assert rows_of(lake) == list(range(5))


@pytest.mark.long
@pytest.mark.parametrize("mode", ["replace", "append"])
def test_files(stream: MakeStream, mode: str) -> None:
    lake = stream({"kind": "parquet", "target": "files", "mode": mode})
    lake.produce(*range(20))
    lake.run(transform=keyed)
    run = lake.audit()
    # Files that are appended leave no record of what was written: the rows alone show that none is lost.
    assert not failing(run) and (complete(run) or mode == "append"), told(run)
    assert {r.status for r in run.results if r.check == "source_rows"} == {"pass"}
    assert [e.rows_written for e in lake.entries()] == ([10, 10] if mode == "replace" else [None, None])


@pytest.mark.long
def test_database(stream: MakeStream, postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", postgres.connection["password"])
    connection = {**postgres.connection, "password": '{{ env_var("DATABASE_PASSWORD") }}'}
    table = {"target": f"t{time.time_ns()}", "connection": connection, "create_table": True}
    lake = stream({"kind": "jdbc_upsert", "keys": ["id"], **table})
    lake.produce(*range(20))
    lake.run(transform=keyed)
    run = lake.audit()
    assert complete(run), told(run)
    assert postgres.sql(f"SELECT COUNT(*) FROM {table['target']}") == [(20,)]
    postgres.sql(f"DROP TABLE {table['target']}")


@pytest.mark.long
def test_topic(stream: MakeStream, topic: Callable[..., str]) -> None:
    markers = topic("markers", config={"cleanup.policy": "compact"})
    lake = stream({"kind": "kafka", "target": topic("out"), "marker_topic": markers, "value_format": "json"})
    lake.produce(*range(20))
    lake.run(transform=keyed)
    run = lake.audit()
    assert complete(run), told(run)
    assert len(lake.kafka.read(str(lake.sinks[0]["target"]), "read_committed")) == 20


@pytest.mark.long
def test_routes(stream: MakeStream) -> None:
    lake = stream(
        {"name": "even", "kind": "delta", "target": "even"},
        {"name": "odd", "kind": "parquet", "target": "odd"},
        routes={"by": "id % 2", "to": {"0": "even", "1": "odd"}},
        data_tests=["atomicity"],
    )
    lake.produce(*range(20))
    lake.run(transform=keyed)
    run = lake.audit()
    assert complete(run), told(run)
    assert rows_of(lake, "even") == list(range(0, 20, 2)) and [e.rows_written for e in lake.entries("odd")] == [5, 5]


@pytest.mark.long
def test_quarantine(stream: MakeStream) -> None:
    small = {"expression_is_true": {"arguments": {"expression": "id < 15"}, "config": {"on_failure": "quarantine"}}}
    lake = stream({**DELTA, "post_batch": [small]})
    lake.produce(*range(20))
    lake.run(transform=added)
    assert [(e.rows_written, e.rows_quarantined) for e in lake.entries()] == [(10, 0), (5, 5)]
    run = lake.audit()
    assert complete(run), told(run)
    assert rows_of(lake) == list(range(15))


@pytest.mark.long
def test_a_check_stops_the_query(stream: MakeStream) -> None:
    small = {"expression_is_true": {"arguments": {"expression": "id < 15"}, "config": {"on_failure": "stop"}}}
    lake = stream({**DELTA, "post_batch": [small]})
    lake.produce(*range(20))
    with pytest.raises(PySparkException, match=r"recon\.base\.errors\.GateError: post-batch check expression_is_true"):
        lake.run(transform=keyed)
    assert rows_of(lake) == list(range(10))


@pytest.mark.long
def test_a_ledger_that_spark_keeps(stream: MakeStream) -> None:
    lake = stream(DELTA, ledger={"location": "recon", "writer": "spark"})
    lake.produce(*range(20))
    lake.run(transform=keyed)
    run = lake.audit()
    assert complete(run), told(run)
    assert [e.rows_read for e in lake.entries()] == [10, 10]


def half(rest: int) -> Callable[[DataFrame], DataFrame]:
    return lambda frame: keyed(frame).where(f"id % 2 = {rest}")


def test_a_second_hook_of_the_sink_in_one_function(stream: MakeStream) -> None:
    """The process on the server that runs the function knows the first call; the two transforms have one name."""
    lake = stream(DELTA)
    lake.produce(*range(20))
    first, second = (recon.foreach_batch(lake.path, pipeline="p", transform=half(rest)) for rest in range(2))

    def write(frame: DataFrame, batch_id: int) -> None:
        first(frame, batch_id)
        second(frame, batch_id)

    for _ in range(2):
        with pytest.raises(PySparkException, match=r"recon\.base\.errors\.SinkError: .*another call of the hook wrote"):
            lake.run(write)
    assert rows_of(lake) == list(range(0, 10, 2))
    run = lake.audit()
    assert {p.answer for p in run.pipelines} == {"could not be proved"}, told(run)


@pytest.mark.long
def test_a_function_that_calls_the_hook_again(stream: MakeStream) -> None:
    lake = stream(DELTA)
    lake.produce(*range(20))
    hook = recon.foreach_batch(lake.path, pipeline="p", transform=keyed)

    def write(frame: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            hook(frame.where("value IS NOT NULL"), batch_id)

    lake.run(write)
    assert [e.status for e in lake.entries()] == ["committed"] * 2
    run = lake.audit()
    assert complete(run), told(run)


# -- kills and mistakes ------------------------------------------------------------------------------


@pytest.mark.parametrize("sink", [DELTA, MERGE], ids=["append", "merge"])
def test_the_functions_process_dies_between_the_commit_and_the_ledger(stream: MakeStream, sink: dict[str, Any]) -> None:
    lake = stream(sink)
    lake.produce(*range(30))
    with pytest.raises(PySparkException):
        lake.run(transform=keyed, failpoint=dies(BEFORE_LEDGER, lake.path))
    assert len(lake.entries()) == 1 and rows_of(lake) == list(range(20))
    lake.run(transform=keyed)
    run = lake.audit()
    assert complete(run), told(run)
    assert [(e.batch_id, e.status) for e in lake.entries() if e.batch_id != 1] == [(0, "committed"), (2, "committed")]
    assert rows_of(lake) == list(range(30))


def test_the_server_is_killed_between_the_commit_and_the_ledger(
    kafka: Any, topic: Callable[..., str], tmp_path: Path
) -> None:
    own = tmp_path / "server"
    lake_path = tmp_path / "lake"
    lake_path.mkdir()
    with ConnectServer(own, env={"PYTHONPATH": str(ROOT)}) as mine:
        lake = Stream(lake_path, kafka, new_session(mine.url), topic("c"), [DELTA])
        lake.produce(*range(30))
        lake.start(recon.foreach_batch(lake.path, pipeline="p", transform=keyed, failpoint=waits(AFTER_WRITE, own)))
        assert until(lambda: (own / "waits").exists(), 120)
        mine.kill()
        assert len(lake.entries()) == 1

        mine.start()
        lake.spark.stop()  # without a server it would try for minutes
        lake.spark = new_session(mine.url)
        lake.run(transform=keyed)
        run = lake.audit()
        assert complete(run), told(run)
        assert rows_of(lake) == list(range(30)) and {e.batch_id for e in lake.entries()} == {0, 1, 2}
        lake.spark.stop()


@pytest.mark.long
def test_the_checkpoint_of_another_query(stream: MakeStream) -> None:
    lake = stream(DELTA)
    lake.produce(*range(5))
    lake.run(transform=keyed)
    lake.produce(*range(5, 10))
    hook = recon.foreach_batch(lake.path, pipeline="p", transform=keyed)
    with pytest.raises(PySparkException, match="belongs to query"):
        lake.start(hook, checkpoint="other").awaitTermination(120)
    assert rows_of(lake) == list(range(5))


def test_what_is_said_when_the_hook_is_made(stream: MakeStream, caplog: pytest.LogCaptureFixture) -> None:
    recon.foreach_batch(stream(DELTA).path, pipeline="p")
    (record,) = caplog.records
    assert "isolation level" in record.getMessage() and "recon.read_kafka" in record.getMessage()
    recon.foreach_batch(stream(MERGE).path, pipeline="p")
    assert "in a session of its own" in caplog.records[-1].getMessage()


def test_other_versions_are_named_when_the_hook_is_made(
    stream: MakeStream, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = stream(DELTA)
    monkeypatch.setattr("pyspark.__version__", "4.9.0")
    recon.foreach_batch(lake.path, pipeline="p")
    assert f"the client has pyspark 4.9.0 and the server Spark {lake.spark.version}; if" in caplog.text
    monkeypatch.setattr(lake.spark, "version", "3.5.7")
    with pytest.raises(ConfigError) as refused:
        recon.foreach_batch(lake.path, pipeline="p")
    assert "the client has pyspark 4.9.0 and the server Spark 3.5.7; use a newer server" in str(refused.value)


def test_another_python_on_the_server(stream: MakeStream, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = stream(DELTA)
    lake.produce(1)
    monkeypatch.setattr("pyspark.sql.connect.streaming.readwriter.get_python_ver", lambda: "3.99")
    hook = recon.foreach_batch(lake.path, pipeline="p")
    with pytest.raises(PySparkException, match="PYTHON_VERSION_MISMATCH"):
        lake.start(hook)


# -- who looks on ------------------------------------------------------------------------------------


def test_a_native_stream_is_observed(stream: MakeStream) -> None:
    lake = stream(DELTA, write="native")
    lake.produce(*range(30))
    listener = recon.ProgressListener(lake.path)
    lake.spark.streams.addListener(listener)
    query = (
        recon.read_kafka(lake.spark, lake.path, "p", startingOffsets="earliest", maxOffsetsPerTrigger="10")
        .selectExpr(
            "topic AS _source_topic",
            "partition AS _source_partition",
            "offset AS _source_offset",
            "int(string(value)) AS id",
        )
        .writeStream.format("delta")
        .option("checkpointLocation", str(lake.path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(lake.path / "table"))
    )
    assert query.awaitTermination(120)
    recorded = open_store(lake.project, PROGRESS)
    assert until(lambda: recorded.exists() and len(recorded.dates()) > 0 and len(lake.entries()) == 3, 30)
    lake.spark.streams.removeListener(listener)

    said = command("observe", cwd=lake.path)
    assert said.returncode == 0, said.stdout + said.stderr
    run = lake.audit()
    assert complete(run), told(run)
    assert [(e.batch_id, e.rows_written) for e in lake.entries()] == [(0, 10), (1, 10), (2, 10)]


def test_the_commands_with_a_server(stream: MakeStream, server: ConnectServer) -> None:
    not_null = {"name": "id", "data_tests": ["not_null", "unique"]}
    lake = stream({**DELTA, "columns": [not_null]})
    lake.produce(*range(20))
    lake.run(transform=keyed)
    said = command("audit", cwd=lake.path, env={"SPARK_REMOTE": server.url})
    assert said.returncode == 0, said.stdout + said.stderr
    assert "PASS=8" in said.stdout and "complete" in said.stdout

    lake.spark.range(19).selectExpr("int(id) AS id").write.format("delta").save(str(lake.path / "copy"))
    said = command("compare", "s", "./copy", "--key", "id", cwd=lake.path, env={"SPARK_REMOTE": server.url})
    assert said.returncode == 1 and "19" in said.stdout, said.stdout + said.stderr


def test_compare(stream: MakeStream) -> None:
    spark = stream(DELTA).spark
    left = spark.createDataFrame([(1, "a"), (2, "b"), (3, "c")], "id int, name string")
    right = spark.createDataFrame([(1, "a"), (2, "x"), (4, "d")], "id int, name string")
    compared = recon.compare(left, right, key="id")
    assert (compared.missing, compared.extra, compared.changed) == (1, 1, 1)
    assert recon.compare(left, left, key="id").equal
    assert recon.compare(left, left, key="id", where="id > 1 -- and not all").left_rows == 2
    for wrong in ("id > 1 or", "1) or (1", "id > 1 AS x"):
        with pytest.raises(ConfigError, match=r"where .* is no condition on left"):
            recon.compare(left, left, key="id", where=wrong)
