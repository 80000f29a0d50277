"""Rows counted during the write at three points, with the fingerprint of their offsets (cases 59 and 60)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame
from typing_extensions import override

from recon.model import ReconStamp
from recon.model.fingerprint import of_offsets, of_ranges
from recon.project import Project
from recon.project.model import Rows
from recon.sinks.delta.append import DeltaAppend
from tests.cases.lake import Lake, failing, findings, ranges
from tests.cases.test_quarantine import HAS_KEY, parse, produce
from tests.support import fault_cases

MakeLake = Callable[..., Lake]


def test_the_fingerprint_is_the_one_that_follows_from_the_ranges(make_lake: MakeLake) -> None:
    lake = make_lake(partitions=3)
    for partition in range(3):
        lake.produce(40 + partition, partition)
    lake.run(per_trigger=50)
    entries = lake.entries()
    assert len(entries) > 1
    for entry in entries:
        expected = of_ranges(entry.offsets)
        rows = sum(span.span.size for span in entry.offsets)
        assert entry.read == entry.returned == entry.given == (rows, expected)


def test_a_filter_is_between_what_was_read_and_what_was_returned(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(20)
    lake.run(transform=lambda frame: frame.where("offset % 2 = 0"))
    (entry,) = lake.entries()
    assert entry.read == (20, of_ranges(entry.offsets))
    assert entry.returned == entry.given == (10, of_offsets(lake.topic, 0, range(0, 20, 2)))


def test_quarantined_rows_are_returned_and_not_given(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"post_batch": (HAS_KEY,)})
    produce(lake, *((None if n == 3 else "k", str(n)) for n in range(10)))
    lake.run(transform=parse)
    (entry,) = lake.entries()
    assert entry.rows_quarantined == 1
    assert entry.read == entry.returned == (10, of_ranges(entry.offsets))
    assert entry.given == (9, of_offsets(lake.topic, 0, [n for n in range(10) if n != 3]))


def test_rows_without_source_columns_have_a_count_alone(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"stamp_source_offsets": False})
    lake.produce(20)
    lake.run(transform=lambda frame: frame.selectExpr("CAST(value AS STRING) AS v"))
    (entry,) = lake.entries()
    assert entry.read == (20, of_ranges(entry.offsets)) and entry.returned == entry.given == (20, None)


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
