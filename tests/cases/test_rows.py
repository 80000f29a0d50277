"""Fault cases of rows: lost, filtered and made by transforms and aggregates, and what recon does not know of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recon.audits.accept import accept, open_findings
from recon.model import RunResult
from tests.cases.lake import Keeps, Lake, complete, failing, findings, ranges, refuted, told
from tests.cases.test_counted_rows import declared
from tests.cases.test_streaming_patterns import listening, stream
from tests.cases.test_streaming_patterns import run as drained
from tests.support import fault_cases

MakeLake = Callable[..., Lake]


def aggregated(lake: Lake, write: Callable[[DataFrame, int], None], **options: str) -> None:
    """Counts 20 records a micro-batch by the rest of their offset; rows of an aggregate carry no source offsets."""
    records = stream(lake, per_trigger=20, failOnDataLoss="false", **options)
    with listening(lake):
        drained(lake, records.groupBy(F.expr("offset % 5").alias("rest")).count(), write, mode="update")


def with_deleted(lake: Lake, before: int) -> Callable[[DataFrame, int], None]:
    """The hook; Kafka deletes the records of partition 0 up to an offset, which Spark has planned to read."""
    hook = lake.hook()

    def late(frame: DataFrame, batch_id: int) -> None:
        lake.kafka.delete_records({(lake.topic, 0): before})
        hook(frame, batch_id)

    return late


@pytest.mark.case(65, "INCONCLUSIVE")
def test_half_the_input_of_an_aggregate_is_lost(make_lake: MakeLake) -> None:
    """Kafka deletes it before Spark reads it, and Spark is told not to mind."""
    lake = make_lake(sink={"stamp_source_offsets": False})
    lake.produce(20)
    aggregated(lake, with_deleted(lake, 10))
    assert sum(row["count"] for row in lake.rows()) == 10
    run = lake.audit()
    assert run.pipelines[0].answer == "could not be proved", told(run)


@pytest.mark.long
def test_doubled_rows_that_were_accepted_are_counted_by_rows(make_lake: MakeLake) -> None:
    """An offset has three rows, so that one finding is of the whole micro-batch, and one of the offset."""
    lake = make_lake()
    lake.produce(10)
    lake.run()
    for _ in range(2):
        lake.sql("INSERT INTO {table} SELECT * FROM {table} VERSION AS OF 0 WHERE _source_offset = 3")
    assert ranges(findings(lake.audit(), "DUPLICATE")) == {(0, 0, 10), (0, 3, 4)}
    for known in {one.id for one in open_findings(lake.project)}:
        accept(lake.project, known, by="Ada Lovelace", reason="known")
    run = lake.audit()
    assert run.pipelines[0].says.endswith(" accepted findings (2 records doubled)"), run.pipelines[0].says


@pytest.mark.long
def test_an_aggregate_whose_sink_took_in_fewer_rows_than_it_was_given(make_lake: MakeLake) -> None:
    """Spark says that every offset was read; one of five rows of the second micro-batch is not in the table."""
    lake = make_lake(sink={"stamp_source_offsets": False})
    lake.produce(40)
    hook = lake.hook()
    hook.writer = Keeps(lake, "NOT (rest = 3 AND count = 8)")
    aggregated(lake, hook)
    assert [(entry.rows_given, entry.rows_written) for entry in lake.entries()] == [(5, 5), (5, 4)]
    run = lake.audit()
    assert run.pipelines[0].answer == "could not be proved" and not failing(run), told(run)
    assert [f.batch_id for f in findings(run, "INCONCLUSIVE")] == [1], told(run)
    (attested,) = findings(run, "ATTESTED_ONLY")
    assert attested.message.startswith("1 micro-batch (micro-batch 0 "), attested.message


@pytest.mark.case(71)
def test_explode_of_empty_lists_over_a_topic_with_transactions(make_lake: MakeLake) -> None:
    lake = make_lake(isolation_level="read_committed")
    lake.kafka.transaction(lake.topic, [("k", "v", 0)] * 10)
    lake.kafka.transaction(lake.topic, [("k", "v", 0)] * 5, "abort")
    lake.kafka.transaction(lake.topic, [("k", "v", 0)] * 10)
    lines = "CASE offset % 3 WHEN 0 THEN array() WHEN 1 THEN array(1) ELSE array(1, 2) END"
    lake.run(transform=lambda frame: frame.selectExpr("*", f"explode({lines}) AS line"))
    run = fault_cases.audit(declared(lake, explodes=True), spark=lake.spark)
    assert complete(run), told(run)


def filters_and_loses_one(lake: Lake) -> RunResult:
    """Of 20 offsets of each micro-batch seven are filtered; of the second one the row of offset 28 is lost."""
    lake.produce(60)
    hook = lake.hook(transform=lambda frame: frame.where("offset % 20 >= 7"))
    hook.writer = Keeps(lake, "_source_offset <> 28")
    lake.run(hook, per_trigger=20)
    assert [entry.rows_written for entry in lake.entries()] == [13, 12, 13]
    return lake.audit()


@pytest.mark.case(83, "GAP")
def test_a_filter_and_one_lost_row(make_lake: MakeLake) -> None:
    run = filters_and_loses_one(make_lake())
    assert refuted(run, "GAP") and {f.batch_id for f in findings(run, "GAP")} == {1}, told(run)
    (gap,) = findings(run, "GAP")
    assert ranges([gap]) == {(0, 28, 29)}
    assert "8 offsets of the micro-batch without a row, 7 filtered, 1 missing" in gap.message
