"""Fault cases of rows: lost, filtered and made by transforms and aggregates, and what recon does not know of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from recon.model import RunResult
from tests.cases.lake import Keeps, Lake, complete, failing, findings, ranges, refuted, told
from tests.cases.test_counted_rows import declared
from tests.cases.test_streaming_patterns import listening, stream
from tests.support import fault_cases

MakeLake = Callable[..., Lake]


@pytest.mark.case(65, "INCONCLUSIVE")
def test_half_the_input_of_an_aggregate_is_lost(make_lake: MakeLake) -> None:
    """Kafka deletes it before Spark reads it, and Spark is told not to mind."""
    lake = make_lake(sink={"stamp_source_offsets": False})
    lake.produce(20)
    hook = lake.hook()

    def late(frame: DataFrame, batch_id: int) -> None:
        lake.kafka.delete_records({(lake.topic, 0): 10})
        hook(frame, batch_id)

    counts = stream(lake, per_trigger=20, failOnDataLoss="false").groupBy(F.expr("offset % 5").alias("rest")).count()
    with listening(lake):
        query = (
            counts.writeStream.foreachBatch(late)
            .outputMode("update")
            .option("checkpointLocation", str(lake.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
    assert sum(row["count"] for row in lake.rows()) == 10
    run = lake.audit()
    assert run.pipelines[0].answer == "could not be proved", told(run)


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


@pytest.mark.case(76, "INCONCLUSIVE")
def test_counts_that_spark_did_not_report_and_a_filter_that_seldom_acts(make_lake: MakeLake, monkeypatch: Any) -> None:
    lake = make_lake()
    lake.produce(20)
    with monkeypatch.context() as patched:
        patched.setattr(Observation, "get", property(lambda _: {}))
        lake.run(transform=lambda frame: frame.where("offset <> 7"))
    (entry,) = lake.entries()
    assert entry.rows_read is None
    run = lake.audit()
    assert run.pipelines[0].answer == "could not be proved" and not failing(run), told(run)


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
