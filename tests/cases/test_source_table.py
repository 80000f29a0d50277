"""Streams that read a Delta table, by recon's hook and by Spark's own sink, held against the table's log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recon.model import Code, RunResult
from recon.model.delta_offsets import BEGINNING, offset_of
from tests.cases.lake import statuses
from tests.cases.layers import Layers
from tests.support.marks import long

pytestmark = pytest.mark.spark
DELTA = version("delta-spark")

written_by_both = pytest.mark.parametrize("layers", ["recon", "native"], indirect=True)


@pytest.fixture(params=("recon", *long("native")))
def layers(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Layers:
    return Layers(tmp_path, spark, write=request.param, rows={"filters": False})


def codes(run: RunResult, check: str) -> list[Code]:
    return [f.code for r in run.results if r.check == check for f in r.findings if f.code is not Code.REPAIRED]


def answer(run: RunResult) -> str:
    return run.pipelines[0].answer


@written_by_both
def test_the_table_as_it_is_and_then_each_commit(layers: Layers) -> None:
    layers.add(3, 4)
    layers.run()
    layers.add(5, 6)
    layers.run()
    run = layers.audit()
    assert set(statuses(run).values()) == {"pass"}
    assert answer(run) == "complete"
    assert (
        "a row that is lost while another is doubled in the same micro-batch does not show" in run.pipelines[0].because
    )
    assert layers.ranges() == [(BEGINNING, offset_of(2, 0)), (offset_of(2, 0), offset_of(4, 0))]
    table_id = str(DeltaTable(str(layers.bronze)).metadata().id)
    read = {(span.topic, span.topic_id) for entry in layers.entries() for span in entry.offsets}
    assert read == {(f"delta:{table_id}", table_id)}


@pytest.mark.long
def test_files_of_a_version_in_several_micro_batches(layers: Layers) -> None:
    """With maxFilesPerTrigger the snapshot, and a commit of several files, are read in parts."""
    layers = layers.with_(options={"maxFilesPerTrigger": "1"})
    layers.add(3, 4, 5)
    layers.run()
    rows = layers.spark.range(40).selectExpr("id AS version", "id").repartition(3)
    rows.write.format("delta").mode("append").save(str(layers.bronze))
    layers.run()
    run = layers.audit()
    assert set(statuses(run).values()) == {"pass"}
    assert answer(run) == "complete"
    ranges = layers.ranges()
    assert len(ranges) >= 6
    assert ranges[0] == (BEGINNING, offset_of(2, 1, in_snapshot=True))
    assert ranges[-1][1] == offset_of(4, 0)
    assert all(end == start for (_, end), (start, _) in pairwise(ranges))


@pytest.mark.long
def test_a_version_to_start_with(layers: Layers) -> None:
    layers = layers.with_(options={"startingVersion": "1"})
    layers.add(3, 4, 5)
    layers.run()
    run = layers.audit()
    assert answer(run) == "complete"
    assert layers.ranges() == [(offset_of(1, 0), offset_of(3, 0))]
    # Where recon.yml does not say it, the rows of the first micro-batch do not add up, and the message says why.
    other = layers.with_(path=layers.path / "other", options={}, unsaid={"startingVersion": "1"})
    other.path.mkdir()
    other.add(3, 4, 5)
    other.run()
    run = other.audit()
    assert codes(run, "source_rows") == [Code.GAP]
    assert "startingVersion" in next(r.message for r in run.results if r.check == "source_rows")


def test_what_waits_is_lag_and_its_age_is_judged(layers: Layers, audits_later: Callable[[timedelta], None]) -> None:
    layers.add(3)
    layers.run()
    layers.add(4, 5)
    run = layers.audit()
    assert codes(run, "source_table") == [Code.INFLIGHT]
    assert answer(run) == "complete"
    evidence = next(r.evidence for r in run.results if r.check == "source_table")
    assert (evidence["waiting"], evidence["rows"]) == ([1, 2], 9)


def drops(frame: DataFrame) -> DataFrame:
    return frame.where(F.col("id") > 0)


@written_by_both
def test_rows_that_do_not_arrive(layers: Layers) -> None:
    layers.add(5)
    if layers.write == "native":
        layers.run(transform=drops)
    else:
        layers.run(transform=None, hook=layers.hook(transform=drops))
    # The hook counts what the transform drops; of Spark's own sink nothing says how many rows it did not get.
    run = layers.with_(rows={"filters": True}).audit()
    assert answer(run) == ("complete" if layers.write == "recon" else "could not be proved")
    run = layers.audit(full=True)
    assert Code.GAP in codes(run, "source_rows")
    assert answer(run) == "not complete"


@pytest.mark.long
def test_rows_that_are_doubled(layers: Layers) -> None:
    def doubles(frame: DataFrame) -> DataFrame:
        again = F.explode(F.sequence(F.lit(1), F.when(F.col("id") == 0, 2).otherwise(1)))
        return frame.select("*", again.alias("again")).drop("again")

    layers.add(5)
    if layers.write == "native":
        layers.run(transform=doubles)
    else:
        layers.run(hook=layers.hook(transform=doubles))
    run = layers.audit()
    assert Code.DUPLICATE in codes(run, "source_rows")
    assert answer(run) == "not complete"


@pytest.mark.long
def test_a_swallowed_micro_batch(layers: Layers) -> None:
    """A function that writes nothing leaves a commit of Spark's without an entry, and a range that nobody read."""
    layers.add(3)
    layers.run()
    layers.add(4)
    layers.with_(write="recon").run(hook=lambda frame, batch_id: None)
    layers.add(5)
    layers.run()
    run = layers.audit()
    assert Code.GAP in codes(run, "offset_continuity") + codes(run, "checkpoint_commits")
    assert answer(run) == "not complete"


@pytest.mark.long
@pytest.mark.parametrize("option", ["skipChangeCommits", "ignoreChanges"])
def test_a_commit_that_replaces_rows(layers: Layers, option: str) -> None:
    layers = layers.with_(options={option: "true"})
    layers.add(3)
    layers.run()
    DeltaTable(str(layers.bronze)).update(updates={"id": "100"}, predicate="id = 1")
    DeltaTable(str(layers.bronze)).delete(predicate="version = 0 AND id >= 0")
    layers.add(4)
    layers.run()
    run = layers.audit()
    replaced = Code.GAP if option == "skipChangeCommits" else Code.DUPLICATE
    assert codes(run, "source_table") == [replaced, Code.EXPLAINED]
    assert codes(run, "source_rows") == []  # the rows that the query was given are all there
    assert answer(run) == "not complete"
    # Where recon.yml does not name the option, nobody knows what the query made of that version.
    run = layers.with_(options={}, unsaid=layers.options).audit(full=True)
    assert Code.MUTATED in codes(run, "source_table")


@pytest.mark.long
def test_a_change_data_feed(layers: Layers) -> None:
    """Rows before and after a change are rows of the feed; a file that only some rows left is not read whole."""
    layers = layers.with_(options={"readChangeFeed": "true"})
    table = f"delta.`{layers.bronze}`"
    properties = "'delta.enableChangeDataFeed' = 'true'"
    layers.spark.sql(f"CREATE TABLE {table} (version BIGINT, id BIGINT) USING delta TBLPROPERTIES({properties})")
    layers.add(4)
    layers.run()
    layers.spark.sql(f"UPDATE {table} SET id = 100 WHERE id = 1")
    layers.spark.sql(f"DELETE FROM {table} WHERE id = 2")
    layers.add(3)
    layers.run()
    run = layers.audit()
    assert answer(run) == "complete"
    silver = layers.spark.read.format("delta").load(str(layers.silver))
    assert silver.count() == 4 + 2 + 1 + 3
    assert codes(run, "source_table") == []


@pytest.mark.long
def test_a_commit_at_which_the_query_stops(layers: Layers) -> None:
    layers.add(3)
    layers.run()
    DeltaTable(str(layers.bronze)).update(updates={"id": "100"}, predicate="id = 1")
    with pytest.raises(StreamingQueryException):
        layers.run()
    run = layers.audit()
    assert Code.STALLED in codes(run, "source_table")


@pytest.mark.long
def test_versions_that_were_cleaned_up_unread(layers: Layers) -> None:
    layers = layers.with_(unsaid={"failOnDataLoss": "false"})
    for rows in (3, 4):
        layers.add(rows)
        layers.run()
    layers.add(5, 6, 7)
    DeltaTable(str(layers.bronze)).create_checkpoint()
    for number in (0, 1, 2, 3):
        (layers.bronze / "_delta_log" / f"{number:020d}.json").unlink()
    run = layers.audit()
    assert Code.LOSS_RETENTION in codes(run, "source_table")
    assert answer(run) == "not complete"
    if DELTA >= "4.4":
        with pytest.raises(StreamingQueryException, match="DELTA_STREAMING_TRAILING_COMMIT_MISSING"):
            layers.run()
        assert answer(layers.audit()) == "not complete"
        return
    layers.run()  # passes over them without an error
    run = layers.audit()
    assert Code.INCONCLUSIVE in codes(run, "source_rows")
    assert answer(run) == "not complete"


@pytest.mark.long
def test_a_table_that_was_made_anew(layers: Layers) -> None:
    layers.add(3)
    layers.run()
    layers.bronze.rename(layers.path / "before")
    layers.add(3)
    run = layers.audit()
    assert Code.RECREATED in codes(run, "source_table")
    assert answer(run) == "not complete"


@written_by_both
def test_a_lost_checkpoint(layers: Layers) -> None:
    """A new query reads the table from its beginning: the hook stops it, and Spark's own sink doubles every row."""
    layers.add(3, 4)
    layers.run()
    layers.audit()
    layers.forget_checkpoint()
    layers.add(5)
    if layers.write == "recon":
        with pytest.raises(StreamingQueryException, match="begins a new epoch"):
            layers.run()
    else:
        layers.run()
    run = layers.audit()
    if layers.write == "recon":  # the sink is as it was, and the micro-batch that was refused is not finished
        assert codes(run, "checkpoint_commits") == [Code.NEW_EPOCH, Code.INFLIGHT]
        assert answer(run) == "complete"
    else:
        assert Code.OVERLAP in codes(run, "offset_continuity") + codes(run, "checkpoint_commits")
        assert answer(run) == "not complete"


@pytest.mark.long
def test_a_checkpoint_of_another_source(spark: Any, tmp_path: Path) -> None:
    layers = Layers(tmp_path, spark)
    layers.add(3)
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    query = (
        rate.writeStream.foreachBatch(layers.hook())
        .option("checkpointLocation", str(layers.checkpoint))
        .trigger(once=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match="has no position in one"):
        query.awaitTermination(60)
