"""What recon prints is followed on real parts, as it was printed: it makes it better, or says what it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from recon import accept, open_findings
from recon.model import RunResult
from recon.recovery.repair.witnesses import repair_plans
from recon.recovery.starting_offsets import starting_offsets
from tests.cases.lake import Lake, complete, failing, told
from tests.cases.native import NativeLake
from tests.cases.test_native import Make, make
from tests.support.advice import printed_step

__all__ = ["make"]
MakeLake = Callable[..., Lake]


def messages(run: RunResult) -> list[str]:
    return [finding.message for result in run.results for finding in result.findings]


def accepts_all(lake: Lake) -> RunResult:
    """Runs every printed `recon accept`, and audits."""
    for id_ in {waiting.id for waiting in open_findings(lake.project) if waiting.accepted is None}:
        accept(lake.project, id_, reason="read again", by="Ada")
    return lake.audit()


def read_with_a_query_of_its_own(lake: NativeLake, start: int, end: int) -> None:
    """Reads a range of partition 0 and appends it."""
    (
        lake.spark.read.format("kafka")
        .option("kafka.bootstrap.servers", lake.kafka.bootstrap_servers)
        .option("subscribe", lake.topic)
        .option("startingOffsets", json.dumps({lake.topic: {"0": start}}))
        .option("endingOffsets", json.dumps({lake.topic: {"0": end}}))
        .load()
        .selectExpr("CAST(value AS STRING) AS value", "partition AS kafka_partition", "offset AS kafka_offset")
        .write.format("delta")
        .mode("append")
        .save(str(lake.table))
    )


def takes_the_next_number(lake: NativeLake, number: int) -> None:
    query_id = json.loads((lake.checkpoint / "metadata").read_text())["id"]
    lake.spark.range(0).selectExpr("CAST(id AS STRING) value", "0 kafka_partition", "id kafka_offset").write.format(
        "delta"
    ).option("txnAppId", query_id).option("txnVersion", number).mode("append").save(str(lake.table))


def test_a_query_begins_where_recon_offsets_says_though_it_never_read_one_partition(make_lake: MakeLake) -> None:
    """Spark refuses startingOffsets that leave a partition out."""
    lake = make_lake()
    lake.produce(10)
    lake.run()
    lake.kafka.add_partitions(lake.topic, 2)
    lake.produce(5, partition=1)
    starting = starting_offsets(lake.project, "p")
    assert json.loads(starting) == {lake.topic: {"0": 10, "1": 0}}
    lake.forget_checkpoint()
    lake.run(starting=starting)
    assert lake.values() == [*((0, o) for o in range(10)), *((1, o) for o in range(5))]
    assert complete(lake.audit())


OWN_QUERY = "read … once more with a query of your own"
SKIPPED_STEP = "start the query on a fresh checkpoint, with the offsets that `…` prints"


@pytest.mark.advice(SKIPPED_STEP)
def test_a_skipped_micro_batch_is_read_by_the_fresh_checkpoint(make: Make) -> None:
    """It is the newest one: who read it again besides would have it twice."""
    lake = make()
    lake.produce(20)
    lake.stream()
    takes_the_next_number(lake, 1)
    lake.produce(30)
    lake.stream()
    run = lake.audit()
    step = printed_step(messages(run), SKIPPED_STEP)
    assert step[1] == "recon offsets --pipeline p" and "read the range again" not in step.string, step.string
    starting = starting_offsets(lake.project, "p")
    lake.forget_checkpoint()
    lake.stream(starting=starting)
    assert lake.values() == [(0, offset) for offset in range(50)]
    assert complete(lake.audit())


@pytest.mark.advice(SKIPPED_STEP, OWN_QUERY)
def test_a_skipped_micro_batch_that_others_followed_is_read_once_more(make: Make) -> None:
    lake = make()
    lake.produce(20)
    lake.stream()
    takes_the_next_number(lake, 1)
    for count in (30, 10):
        lake.produce(count)
        lake.stream()
    run = lake.audit()
    assert "read the range again" in printed_step(messages(run), SKIPPED_STEP).string
    starting = starting_offsets(lake.project, "p")
    assert json.loads(starting) == {lake.topic: {"0": 60}}
    (plan,) = repair_plans(lake.project)
    printed_step(plan.refused, OWN_QUERY)
    (range_,) = plan.of("read")
    lake.forget_checkpoint()
    read_with_a_query_of_its_own(lake, range_.start_offset, range_.end_offset)
    lake.produce(5)
    lake.stream(starting=starting)
    assert lake.values() == [(0, offset) for offset in range(65)]
    assert failing(lake.audit()) == {"GAP", "SKIPPED"}, "the plan says beforehand that it is accepted then"
    assert complete(accepts_all(lake))
    assert complete(lake.audit(full=True))


@pytest.mark.advice("remove all but one row of each doubled offset by hand")
def test_doubled_rows_of_a_table_that_recon_only_observes_are_removed_by_hand(make: Make) -> None:
    lake = make()
    lake.produce(20)
    lake.stream()
    assert complete(lake.audit())
    lake.forget_checkpoint()
    lake.produce(5)
    lake.stream()
    assert "DUPLICATE" in failing(lake.audit())
    (plan,) = repair_plans(lake.project)
    assert "once more" not in plan.refused, "a third row of each would be the result"
    printed_step(plan.refused, "remove all but one row of each doubled offset by hand")
    once = lake.path / "once"
    lake.sql(f"CREATE TABLE delta.`{once}` USING delta AS SELECT DISTINCT * FROM {{table}} WHERE kafka_offset < 20")
    lake.sql("DELETE FROM {table} WHERE kafka_offset < 20")
    lake.sql(f"INSERT INTO {{table}} SELECT * FROM delta.`{once}`")
    assert lake.values() == [(0, offset) for offset in range(25)]
    run = lake.audit()
    run = accepts_all(lake)
    assert complete(run), told(run)
