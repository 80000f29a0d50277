"""Findings of one cause are one incident, which says what its offsets have in common; its next step is followed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from recon.audits.accept import accept
from recon.model import Incident, Pattern, RunResult
from tests.cases.lake import complete, failing, findings, told
from tests.cases.native import COLUMNS, NativeLake

Make = Callable[..., NativeLake]


@pytest.fixture
def make(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> Make:
    def made(named: bool = True, partitions: int = 1, **options: Any) -> NativeLake:
        lake = NativeLake(tmp_path, kafka, spark, topic("i", partitions), **options)
        return lake.named() if named else lake

    return made


def open_ones(run: RunResult) -> list[Incident]:
    return [incident for incident in run.pipelines[0].incidents if incident.state == "open"]


def only(run: RunResult) -> tuple[Incident, Pattern]:
    """The one open incident and its pattern."""
    (incident,) = open_ones(run)
    assert incident.pattern is not None, (incident.cause, told(run))
    return incident, incident.pattern


def in_two_appends(lake: NativeLake) -> Callable[[DataFrame, int], None]:
    """A function that writes each micro-batch by two appends under one number: Delta drops the second."""

    def write(frame: DataFrame, batch_id: int) -> None:
        for part in ("kafka_offset % 4 <> 3", "kafka_offset % 4 = 3"):
            lake.append(frame.where(part), batch_id)

    return write


def test_two_appends_under_one_number_and_what_is_printed_for_it(make: Make) -> None:
    lake = make(write="foreach_batch")
    lake.produce(80)
    lake.run(in_two_appends(lake), per_trigger=40)
    incident, pattern = only(lake.audit())
    assert (incident.counts[0].harm, incident.counts[0].rows, len(incident.findings)) == ("missing", 20, 20)
    assert pattern.says == f"20 offsets in 2 micro-batches: every fourth offset from 3 to 79 of {lake.topic}-0"
    assert pattern.causes[0].says.startswith("the function writes each micro-batch by several appends")
    assert pattern.causes[0].because.startswith("the table has one commit of each")
    assert only(lake.audit())[1].says == pattern.says
    # As printed: one append from now on, and what is missing by a query of its own.
    lake.produce(40)
    lake.run(lake.append)
    source = lake.spark.read.format("kafka").option("kafka.bootstrap.servers", lake.kafka.bootstrap_servers)
    missing = source.option("subscribe", lake.topic).load().selectExpr(*COLUMNS)
    missing.where("kafka_offset % 4 = 3 AND kafka_offset < 80").write.format("delta").mode("append").save(
        str(lake.table)
    )
    run = lake.audit()
    assert complete(run) and not open_ones(run), told(run)


@pytest.mark.long
def test_rows_that_are_only_counted_say_which_share_of_each_micro_batch(make: Make) -> None:
    lake = make(named=False, write="foreach_batch")
    lake.produce(120)
    lake.run(in_two_appends(lake), per_trigger=40)
    incident, pattern = only(lake.audit())
    assert incident.counts[0].rows == 30
    assert pattern.says == "of each of the 3 micro-batches 0 to 2 (epoch 0) a part: 10 of 40 offsets each"
    assert "txnAppId" in pattern.causes[0].says


def test_a_lost_checkpoint_and_what_is_printed_for_it(make: Make) -> None:
    lake = make(partitions=2)
    for partition in (0, 1):
        lake.produce(40, partition)
    lake.stream(per_trigger=40)
    assert complete(lake.audit())
    first = lake.entries()[0].query_id
    lake.forget_checkpoint()
    lake.produce(10)
    lake.stream(per_trigger=30)
    incident, pattern = only(lake.audit())
    assert set(incident.codes) == {"OVERLAP", "DUPLICATE"} and incident.counts[0].rows == 80
    assert pattern.says == (
        "epoch 1, which began with micro-batch 0, read again what epochs before it had read, from offset 0 on: "
        f"{lake.topic}-0 [0, 40), {lake.topic}-1 [0, 40)"
    )
    (cause,) = pattern.causes
    assert cause.says.startswith("the checkpoint was deleted") and first in cause.because
    # As printed: one row of each is removed; what the next audit then has is what it says beforehand.
    once = lake.spark.read.format("delta").load(str(lake.table)).dropDuplicates(["kafka_partition", "kafka_offset"])
    once.write.format("delta").mode("overwrite").save(str(lake.table))
    run = lake.audit()
    assert not findings(run, "DUPLICATE") and failing(run) <= {"OVERLAP", "MUTATED", "GAP"}, told(run)
    for each in open_ones(run):
        for id_ in each.findings:
            accept(lake.project, id_, reason="one row of each is left", by="Ada")
    assert lake.audit().pipelines[0].answer == "complete"
