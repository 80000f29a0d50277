"""Rows counted during the write at three points, with the fingerprint of their offsets (cases 59 and 60)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from typing_extensions import override

from recon.model import ReconStamp, RunResult
from recon.model.fingerprint import of_offsets, of_ranges
from recon.project import Project
from recon.project.model import Rows
from recon.write.sinks.delta.append import DeltaAppend
from recon.write.sinks.failpoints import BEFORE_LEDGER
from tests.cases.lake import Lake, failing, findings, ranges, told
from tests.cases.test_quarantine import HAS_KEY, parse, produce
from tests.support import fault_cases
from tests.support.failpoints import dies_at
from tests.support.marks import long

MakeLake = Callable[..., Lake]


def test_the_fingerprint_is_the_one_that_follows_from_the_ranges(make_lake: MakeLake) -> None:
    lake = make_lake(partitions=3)
    for partition in range(3):
        lake.produce(40 + partition, partition)
    lake.run(per_trigger=100)
    entries = lake.entries()
    assert len(entries) > 1
    for entry in entries:
        expected = of_ranges(entry.offsets)
        rows = sum(span.span.size for span in entry.offsets)
        assert entry.read == entry.returned == entry.given == (rows, expected)


@pytest.mark.long
def test_a_filter_is_between_what_was_read_and_what_was_returned(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(20)
    lake.run(transform=lambda frame: frame.where("offset % 2 = 0"))
    (entry,) = lake.entries()
    assert entry.read == (20, of_ranges(entry.offsets))
    assert entry.returned == entry.given == (10, of_offsets(lake.topic, 0, range(0, 20, 2)))


@pytest.mark.long
def test_quarantined_rows_are_returned_and_not_given(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"post_batch": (HAS_KEY,)})
    produce(lake, *((None if n == 3 else "k", str(n)) for n in range(10)))
    lake.run(transform=parse)
    (entry,) = lake.entries()
    assert entry.rows_quarantined == 1
    assert entry.read == entry.returned == (10, of_ranges(entry.offsets))
    assert entry.given == (9, of_offsets(lake.topic, 0, [n for n in range(10) if n != 3]))


OWN = ("'eu' AS topic", "'a' AS partition", "'b' AS offset")


def test_rows_without_source_columns_have_a_count_alone(make_lake: MakeLake) -> None:
    """The answer says what a count does not show; columns of the user's may have the names of Kafka's."""
    lake = make_lake(sink={"stamp_source_offsets": False})
    lake.produce(20)
    lake.run(transform=lambda frame: frame.selectExpr("CAST(value AS STRING) AS v", *OWN))
    (entry,) = lake.entries()
    assert entry.read == (20, of_ranges(entry.offsets)) and entry.returned == entry.given == (20, None)
    (of_pipeline,) = lake.audit().pipelines
    assert of_pipeline.answer == "complete" and "lost while another is doubled" in of_pipeline.because


def test_a_swap_before_the_hook_where_rows_have_kafkas_own_columns_alone(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"stamp_source_offsets": False})
    lake.produce(10)
    hook = lake.hook()
    lost, doubled = "offset <> 3", "offset = 4"
    lake.run(lambda frame, batch_id: hook(frame.where(lost).union(frame.where(doubled)), batch_id))
    (entry,) = lake.entries()
    assert entry.rows_written == 10 and lake.audit().pipelines[0].answer == "could not be proved"


@pytest.mark.case(59, "GAP", "DUPLICATE")
def test_a_transform_that_loses_a_row_and_doubles_another(make_lake: MakeLake) -> None:
    """Case 59: as many rows as offsets."""
    lake = make_lake(partitions=2)
    lake.produce(10, 0)
    lake.produce(10, 1)

    def faulty(frame: DataFrame) -> DataFrame:
        again = frame.where("partition = 1 AND offset = 3")
        return frame.where("NOT (partition = 0 AND offset = 7)").union(again)

    lake.run(transform=faulty)
    (entry,) = lake.entries()
    assert entry.rows_read == entry.rows_written == 20 and entry.rows_filtered == 0
    run = lake.audit()
    assert failing(run) == {"GAP", "DUPLICATE"} and ranges(findings(run, "GAP")) == {(0, 7, 8)}
    assert run.pipelines[0].answer == "not complete"


class LosesARow(DeltaAppend):
    """Leaves out the row of offset 4, which it was given."""

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        super().write(frame.where("_source_offset <> 4"), stamp)


@pytest.mark.case(60, "GAP")
def test_a_sink_that_loses_a_row_it_was_given(make_lake: MakeLake) -> None:
    """Case 60: the row does not pass for one of those that the transform filtered."""
    lake = make_lake()
    lake.produce(10)
    hook = lake.hook(transform=lambda frame: frame.where("offset % 3 > 0"))
    hook.writer = LosesARow(str(lake.table))
    lake.run(hook)
    (entry,) = lake.entries()
    assert (entry.rows_read, entry.rows_filtered, entry.rows_given, entry.rows_written) == (10, 4, 6, 5)
    run = lake.audit()
    assert failing(run) == {"GAP"} and run.pipelines[0].answer == "not complete"


def declared(lake: Lake, **rows: bool) -> Project:
    """The lake's project with `rows` of its pipeline."""
    (pipeline,) = lake.project.pipelines
    return lake.project.model_copy(update={"pipelines": (pipeline.model_copy(update={"rows": Rows(**rows)}),)})


@pytest.mark.long
def test_rows_that_a_transform_makes_of_one_record_are_doubled_unless_declared(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(10)
    lake.run(transform=lambda frame: frame.selectExpr("*", "explode(sequence(1, 2)) AS line"))
    (entry,) = lake.entries()
    assert (entry.rows_read, entry.rows_returned, entry.rows_written) == (10, 20, 20)
    lawful = fault_cases.audit(declared(lake, explodes=True), spark=lake.spark)
    assert failing(lawful) == set() and lawful.pipelines[0].answer == "complete"
    assert failing(lake.audit(from_=datetime.fromtimestamp(0, UTC))) == {"DUPLICATE"}


class LosesOneOfTwo(DeltaAppend):
    """Leaves out one of the two rows that a transform made of offset 4, and which it was given."""

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        super().write(frame.where("NOT (_source_offset = 4 AND line = 2)"), stamp)


@pytest.mark.case(60, "GAP")
def test_a_sink_that_loses_one_of_the_rows_that_a_transform_made_of_a_record(make_lake: MakeLake) -> None:
    """Every offset still has a row."""
    lake = make_lake()
    lake.produce(10)
    hook = lake.hook(transform=lambda frame: frame.selectExpr("*", "explode(sequence(1, 2)) AS line"))
    hook.writer = LosesOneOfTwo(str(lake.table))
    lake.run(hook)
    run = fault_cases.audit(declared(lake, explodes=True), spark=lake.spark)
    assert failing(run) == {"GAP"} and run.pipelines[0].answer == "not complete"


@pytest.mark.long
def test_a_transform_that_drops_records_and_makes_rows_of_others(make_lake: MakeLake) -> None:
    """Counts alone say nothing of a record; the sink holds what it was given, of the records that were read."""
    lake = make_lake()
    lake.produce(10)
    lake.run(transform=lambda frame: frame.where("offset % 2 = 0").selectExpr("*", "explode(sequence(1, 2)) AS line"))
    lawful = fault_cases.audit(declared(lake, explodes=True), spark=lake.spark, full=True)
    assert failing(lawful) == set() and lawful.pipelines[0].answer == "complete", lawful.pipelines[0].because
    strict = fault_cases.audit(declared(lake, explodes=True, filters=False), spark=lake.spark, full=True)
    assert failing(strict) == {"GAP"} and len(ranges(findings(strict, "GAP"))) == 5


@pytest.mark.case(15, "GAP")
def test_rows_that_a_transform_may_not_filter_are_a_gap(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(10)
    lake.run(transform=lambda frame: frame.where("offset <> 6"))
    run = fault_cases.audit(declared(lake, filters=False), spark=lake.spark)
    assert failing(run) == {"GAP"} and ranges(findings(run, "GAP")) == {(0, 6, 7)}


# -- the spot check ----------------------------------------------------------------------------------------------------


def looked_up(spark: SparkSession, *keys: str) -> Callable[[DataFrame], DataFrame]:
    """A transform that joins records with a lookup table, by key."""
    table = spark.createDataFrame([(key, f"name of {key}") for key in keys], "key_ STRING, name STRING")

    def join(frame: DataFrame) -> DataFrame:
        return frame.join(table, frame["key"].cast("string") == table["key_"])

    return join


def looked_at(run: RunResult) -> Any:
    (result,) = [result for result in run.results if result.check == "source_rows"]
    return result.evidence.get("looked_at")


@pytest.mark.case(59, "GAP", "DUPLICATE")
@pytest.mark.parametrize("of_the_missing_key", [1, *long(3)])
def test_a_join_with_a_table_that_lacks_a_key_and_has_another_twice(
    make_lake: MakeLake, of_the_missing_key: int
) -> None:
    """Case 59: three records have no key there, and one has two; or one and one, so that the counts are equal."""
    lake = make_lake()
    keys = ["twice", *["missing"] * of_the_missing_key, *["there"] * (9 - of_the_missing_key)]
    lake.kafka.produce(lake.topic, [(key, f"v{n}", 0) for n, key in enumerate(keys)])
    lake.run(transform=looked_up(lake.spark, "there", "twice", "twice"))
    (entry,) = lake.entries()
    assert (entry.rows_read, entry.rows_returned) == (10, 11 - of_the_missing_key)
    without_rows = lake.audit(no_spark=True)
    assert without_rows.pipelines[0].answer == "could not be proved"
    run = lake.audit()
    assert failing(run) == {"GAP", "DUPLICATE"} and run.pipelines[0].answer == "not complete"


@pytest.mark.long
def test_a_join_that_only_filters_is_proved_without_spark(make_lake: MakeLake) -> None:
    lake = make_lake(partitions=2)
    for partition in range(2):
        lake.kafka.produce(lake.topic, [(f"k{n % 3}", f"v{n}", partition) for n in range(30)])
    lake.run(transform=looked_up(lake.spark, "k0", "k1"), per_trigger=20)
    assert len(lake.entries()) == 3
    run = lake.audit(no_spark=True)
    assert run.pipelines[0].answer == "complete", told(run)
    assert looked_at(run) == {"micro_batches": 3, "rows": 40}
    # What VACUUM removed is not looked at, and no fault.
    lake.sql("OPTIMIZE {table}")
    lake.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    lake.sql("VACUUM {table} RETAIN 0 HOURS")
    lake.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    again = lake.audit(no_spark=True, full=True)
    assert again.pipelines[0].answer == "complete", told(again)
    assert looked_at(again) == {"micro_batches": 0, "rows": 0}


def test_a_restored_entry_is_proved_by_the_rows_of_its_commit(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(10)
    with pytest.raises(StreamingQueryException):
        lake.run(failpoint=dies_at(BEFORE_LEDGER))
    lake.run()
    assert [entry.status for entry in lake.entries()] == ["rebuilt", "already_committed"]
    run = lake.audit(no_spark=True)
    assert run.pipelines[0].answer == "complete", told(run)
    assert looked_at(run) == {"micro_batches": 1, "rows": 10}
