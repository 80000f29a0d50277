"""Adopting recon on a stream that runs: the hook goes on with a checkpoint and a table that were written without it.

Nothing of before is called complete, nothing is written twice, and what comes after is proved as ever.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from recon import foreach_batch
from recon.audits.run import run_audit
from recon.model import Level
from recon.project import load
from tests.cases.lake import Lake, complete, failing, findings, refuted, told
from tests.cases.native import NativeLake
from tests.cases.test_delta_merge import MergedLake
from tests.support.processes import recon

STAMPED = {"_source_topic": "string", "_source_partition": "int", "_source_offset": "bigint", "_batch_id": "bigint"}
OWN = ("CAST(value AS STRING) AS value", "partition AS kafka_partition", "offset AS kafka_offset")


@pytest.fixture
def native(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> NativeLake:
    return NativeLake(tmp_path, kafka, spark, topic("a", 1))


def adopted(native: NativeLake, **options: Any) -> Lake:
    """The same topic, checkpoint and table, with a recon.yml for the hook."""
    return Lake(native.path, native.kafka, native.spark, native.topic, **options)


def kept(frame: DataFrame) -> DataFrame:
    """The columns that the table has from before, and recon's."""
    return frame.selectExpr(*OWN, "_source_topic", "_source_partition", "_source_offset")


def unfinish(lake: Lake, batch_id: int) -> None:
    """As after a kill between the write and the end of a micro-batch: Spark plans it again."""
    for name in (f"{batch_id}", f".{batch_id}.crc"):
        (lake.checkpoint / "commits" / name).unlink(missing_ok=True)


def types(lake: Lake) -> dict[str, str]:
    return dict(lake.spark.read.format("delta").load(str(lake.table)).dtypes)


def warned(run: Any) -> set[str]:
    return {str(f.code) for f in findings(run) if f.level is not Level.INFO}


def entered(lake: Lake) -> list[tuple[int, str]]:
    return [(entry.batch_id, entry.status) for entry in lake.entries()]


def test_appending_goes_on_behind_what_nobody_witnessed(native: NativeLake) -> None:
    native.produce(30)
    native.stream(per_trigger=10)
    lake = adopted(native)
    lake.produce(20)
    lake.run(transform=kept, per_trigger=10)
    assert entered(lake) == [(3, "committed"), (4, "committed")] and len(lake.rows()) == 50
    assert types(lake) == {"value": "string", "kafka_partition": "int", "kafka_offset": "bigint", **STAMPED}
    run = lake.audit()
    assert complete(run) and warned(run) == {"UNWITNESSED"}, told(run)
    assert "since micro-batch 3" in run.pipelines[0].says
    assert [result.name for result in run.results if result.status == "warn"] == ["checkpoint_commits_s"]
    lake.produce(10)
    lake.run(transform=kept)
    assert len(lake.rows()) == 60
    lake.sql("DELETE FROM {table} WHERE _source_offset = 42")
    run = lake.audit()
    assert run.pipelines[0].answer == "not complete" and "GAP" in failing(run), told(run)


def test_a_query_that_wrote_files_goes_on_with_recon(native: NativeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the message of `recon init --from` says, which cannot observe Spark's own file sink."""
    folder, file = native.path, native.path / "recon.yml"
    native.produce(10)
    native.stream(format="parquet")
    for target in ((), ("--target", "table")):
        ended = recon("init", "--from", "checkpoint", *target, cwd=folder)
        assert ended.returncode == 2 and "recon observes Delta tables alone" in ended.stderr
        assert "Spark's file sink wrote" in ended.stderr or "Spark's own file sink writes" in ended.stderr
    assert recon(*shlex.split(ended.stderr.split("`")[1])[1:], cwd=folder).returncode == 0
    text = file.read_text().replace("kind: delta", "kind: parquet")
    file.write_text(text.replace("- delta_history ", "- sink_commits "))
    monkeypatch.setenv("KAFKA_BOOTSTRAP", native.kafka.bootstrap_servers)
    (pipeline,) = load(folder).pipelines
    native.produce(5)
    native.run(foreach_batch(str(folder), pipeline=pipeline.name), columns=["*"])
    run = run_audit(load(folder), no_spark=True)
    assert complete(run), told(run)
    assert "since micro-batch 1" in run.pipelines[0].says


@pytest.mark.long
def test_merging_goes_on_too(native: NativeLake) -> None:
    native.kafka.produce(native.topic, [(f"k{i}", f"a{i}", 0) for i in range(30)])
    native.stream(per_trigger=10)
    own = {"keys": ["value"], "delete_when": None}
    lake = MergedLake(
        native.path, native.kafka, native.spark, native.topic, isolation_level="read_uncommitted", sink=own
    )
    lake.kafka.produce(native.topic, [(f"k{i}", f"a{i + 20}", 0) for i in range(20)])
    lake.run(transform=kept, per_trigger=10)
    assert entered(lake) == [(3, "committed"), (4, "committed")] and len(lake.rows()) == 40
    run = lake.audit(exclude=["not_null_s_k"])
    assert complete(run) and warned(run) == {"UNWITNESSED"}, told(run)


@pytest.mark.long
def test_what_was_observed_is_in_the_same_ledger(native: NativeLake) -> None:
    native.produce(30)
    native.stream(per_trigger=10)
    assert complete(native.audit())
    native.produce(20)
    native.stream(per_trigger=10)
    unfinish(native, 4)
    lake = adopted(native)
    lake.produce(20)
    lake.run(transform=kept, per_trigger=10)
    before, since = [(n, "observed") for n in range(5)], [(5, "committed"), (6, "committed")]
    assert entered(lake) == before + since and len(lake.rows()) == 70
    run = lake.audit()
    assert complete(run) and not warned(run), told(run)


@pytest.mark.long
def test_a_micro_batch_that_sparks_own_sink_wrote_is_not_written_again(native: NativeLake) -> None:
    native.produce(30)
    native.stream(per_trigger=10)
    unfinish(native, 2)
    lake = adopted(native)
    lake.produce(20)
    lake.run(transform=kept, per_trigger=10)
    assert entered(lake) == [(2, "observed"), (3, "committed"), (4, "committed")] and len(lake.rows()) == 50
    run = lake.audit()
    assert not failing(run) and "since micro-batch 2" in run.pipelines[0].says, told(run)


def test_a_micro_batch_that_somebody_else_may_have_written_stops_the_query(native: NativeLake) -> None:
    native.produce(30)
    lake = adopted(native)

    def own_function(frame: DataFrame, batch_id: int) -> None:
        frame.selectExpr(*OWN).write.format("delta").mode("append").save(str(lake.table))
        if batch_id == 2:
            raise RuntimeError("killed")

    with pytest.raises(StreamingQueryException, match="killed"):
        lake.run(own_function, per_trigger=10)
    with pytest.raises(StreamingQueryException, match=r"version 2 \(WRITE\) added rows to the table after that"):
        lake.run(transform=kept)
    assert len(lake.rows()) == 30 and not lake.entries()
    lake.sql("RESTORE TABLE {table} TO VERSION AS OF 1")
    lake.run(transform=kept)
    assert entered(lake) == [(2, "committed")] and len(lake.rows()) == 30
    run = lake.audit()
    assert complete(run) and warned(run) == {"UNWITNESSED"}, told(run)


@pytest.mark.long
def test_only_recons_columns_are_added(native: NativeLake) -> None:
    native.produce(10)
    native.stream()
    lake = adopted(native)
    lake.produce(10)
    with pytest.raises(StreamingQueryException, match=r"(?s)schema mismatch.*extra"):
        lake.run(transform=lambda frame: kept(frame).selectExpr("*", "1 AS extra"))
    assert "extra" not in types(lake) and not lake.entries()
    lake.run(transform=kept)
    assert complete(lake.audit()) and len(lake.rows()) == 20


def test_a_column_of_recons_name_and_another_type(native: NativeLake) -> None:
    native.produce(10)
    native.stream()
    native.sql("ALTER TABLE {table} ADD COLUMNS (_batch_id STRING)")
    lake = adopted(native)
    lake.produce(10)
    with pytest.raises(StreamingQueryException, match="has a column _batch_id of type string, and recon writes"):
        lake.run(transform=kept)
    assert len(lake.rows()) == 10


@pytest.mark.long
def test_a_table_whose_log_was_cleaned_up(native: NativeLake) -> None:
    native.produce(24)
    native.stream(per_trigger=2)
    for version in range(10):
        for ending in ("json", "crc"):
            (native.table / "_delta_log" / f"{version:020d}.{ending}").unlink(missing_ok=True)
    lake = adopted(native)
    lake.produce(20)
    lake.run(transform=kept, per_trigger=10)
    run = lake.audit()
    assert complete(run) and warned(run) == {"UNWITNESSED"}, told(run)
    lake.sql("DELETE FROM {table} WHERE _source_offset = 30")
    run = lake.audit()
    assert run.pipelines[0].answer == "not complete" and refuted(run, *failing(run)), told(run)
