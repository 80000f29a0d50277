"""Repairs of merged tables on real parts: missing records are merged late, and none replaces a newer row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from recon.audits.accept import open_findings
from recon.base.errors import ConfigError, SinkError
from recon.project import CheckConfig, CheckSpec
from recon.recovery.repair.run import Repaired, repair
from recon.recovery.repair.witnesses import repair_plans
from recon.write.sinks.failpoints import AFTER_WRITE, BEFORE_LEDGER, BEFORE_WRITE, REDUCED
from tests.cases.lake import failing, findings, told
from tests.cases.test_delta_merge import Change, MergedLake, assert_complete, unfiltered
from tests.support.failpoints import dies_at
from tests.support.kafka import LocalKafka

# tests/crash/test_killed_repair.py repairs such a sink in `make test`.
pytestmark = pytest.mark.long

Make = Callable[..., MergedLake]

FIRST: list[Change] = [("a", 1, 1, "u"), ("b", 1, 1, "u"), ("c", 1, 1, "u")]
SWALLOWED: list[Change] = [("a", 2, 5, "u"), ("b", 2, 5, "u"), ("new", 2, 5, "u"), ("new", 3, 6, "u")]
LAST: list[Change] = [("a", 3, 9, "u"), ("d", 3, 9, "u")]
TRUTH = [("a", 3), ("b", 2), ("c", 1), ("d", 3), ("new", 3)]


@pytest.fixture
def make(kafka: LocalKafka, spark: SparkSession, topic: Callable[..., str], tmp_path: Path) -> Make:
    return lambda **sink: MergedLake(tmp_path, kafka, spark, topic("m", 2), sink={"delete_when": None, **sink})


def swallowing(lake: MergedLake, last_partition: int = 0) -> None:
    """The second of three micro-batches is swallowed."""
    for changes, swallows, partition in ((FIRST, False, 0), (SWALLOWED, True, 0), (LAST, False, last_partition)):
        lake.send(changes, partition=partition)
        good = lake.hook(transform=unfiltered)

        def hook(frame: DataFrame, batch_id: int, good: Any = good, swallows: bool = swallows) -> None:
            if not swallows:
                good(frame, batch_id)

        lake.run(hook)
    assert failing(lake.audit()) == {"GAP"}


def mend(lake: MergedLake, **options: Any) -> Repaired:
    return repair(lake.project, "p", "s", spark=lake.spark, **{"transform": unfiltered, **options})


@pytest.mark.parametrize("point", [None, BEFORE_WRITE, REDUCED, AFTER_WRITE, BEFORE_LEDGER])
def test_no_older_record_replaces_a_newer_row(make: Make, point: str | None) -> None:
    lake = make(newer_wins="at")
    swallowing(lake)
    (plan,) = repair_plans(lake.project)
    assert [(one.action, one.batch_id) for one in plan.ranges] == [("read", 1)]
    if point is not None:
        with pytest.raises(RuntimeError, match=point):
            mend(lake, failpoint=dies_at(point))
    done = mend(lake)
    assert done.incomplete == () and bool(done.finished) == (point in (AFTER_WRITE, BEFORE_LEDGER))
    assert lake.merged("k", "v") == TRUTH
    entries = [one for one in lake.entries() if one.is_repair]
    assert [(one.batch_id, one.rows_written, one.rows_filtered) for one in entries] == [(0, 2, 2)]
    run = lake.audit()
    assert findings(run, "REPAIRED") and not open_findings(lake.project), told(run)
    assert_complete(lake)
    assert mend(lake).entries == ()
    # The query goes on.
    lake.send([("b", 9, 9, "u")])
    lake.run(lake.hook(transform=unfiltered))
    assert lake.merged("k", "v") == [("b", 9) if k == "b" else (k, v) for k, v in TRUTH]
    assert_complete(lake)


def test_offsets_order_records_of_one_partition(make: Make) -> None:
    lake = make()
    swallowing(lake)
    done = mend(lake)
    assert (done.offsets > 0, done.incomplete) == (True, ())
    assert lake.merged("k", "v") == TRUTH
    assert findings(lake.audit(), "REPAIRED")
    assert_complete(lake)


def test_offsets_do_not_order_records_of_two_partitions(make: Make) -> None:
    lake = make()
    swallowing(lake, last_partition=1)
    before = lake.merged("k", "v")
    with pytest.raises(SinkError, match=r"1 record to be read again have a key whose row came through another topic"):
        mend(lake)
    assert lake.merged("k", "v") == before and not any(one.is_repair for one in lake.entries())
    assert failing(lake.audit()) == {"GAP"}


def test_history_takes_versions_in_any_order(make: Make) -> None:
    lake = make(scd2={"effective": "at"})
    swallowing(lake)
    assert mend(lake).incomplete == ()
    history = lake.merged("k", "v", "valid_from", "valid_to", "is_current")
    assert [row for row in history if row[0] in ("a", "new")] == [
        ("a", 1, 1, 5, False),
        ("a", 2, 5, 9, False),
        ("a", 3, 9, None, True),
        ("new", 2, 5, 6, False),
        ("new", 3, 6, None, True),
    ]
    assert findings(lake.audit(), "REPAIRED")
    assert_complete(lake)


def test_what_has_no_order_is_refused(make: Make) -> None:
    lake = make(newer_wins="at", delete_when="op = 'd'")
    swallowing(lake)
    (plan,) = repair_plans(lake.project)
    assert "a record from before its deletion would be inserted again" in plan.refused and not plan.does_something
    assert [one.action for one in plan.ranges] == ["read"]
    with pytest.raises(ConfigError, match="it has delete_when"):
        mend(lake)
    for sink, key in (
        ({"update_when": "s.v <> t.v"}, "update_when"),
        ({"order_by": ["at"]}, "order_by"),
        ({"insert_when": "s.v > 0"}, "insert_when"),
    ):
        lake.sink = {"delete_when": None, **sink}
        with pytest.raises(ConfigError, match=f"it has {key}: "):
            mend(lake)


def test_a_record_without_an_age_is_refused(make: Make) -> None:
    lake = make(newer_wins="at")

    def no_age(frame: DataFrame) -> DataFrame:
        return unfiltered(frame).selectExpr(
            "k", "v", "nullif(at, 6) AS at", "op", "_source_topic", "_source_partition", "_source_offset"
        )

    swallowing(lake)
    with pytest.raises(SinkError, match="1 record to be read again have NULL in at"):
        mend(lake, transform=no_age, other_transform=True)
    assert not any(one.is_repair for one in lake.entries())


@pytest.mark.parametrize("point", [None, AFTER_WRITE])
def test_failing_rows_go_to_quarantine_wherever_a_repair_ends(make: Make, point: str | None) -> None:
    small = CheckSpec(
        test="accepted_values",
        arguments={"column_name": "v", "values": (1, 3)},
        config=CheckConfig(on_failure="quarantine"),
    )
    lake = make(newer_wins="at", post_batch=(small,))
    swallowing(lake)
    if point is not None:
        with pytest.raises(RuntimeError, match=point):
            mend(lake, failpoint=dies_at(point))
        with pytest.raises(ConfigError, match="none was given"):
            mend(lake, transform=None)
    mend(lake)
    assert lake.merged("k", "v") == [("a", 3), ("b", 1), ("c", 1), ("d", 3), ("new", 3)]
    waiting = lake.spark.read.format("delta").load(str(lake.path / "recon" / "quarantine" / "p" / "s"))
    assert sorted(tuple(row) for row in waiting.select("k", "v", "_batch_id").collect()) == [
        ("a", 2, 1),
        ("b", 2, 1),
        ("new", 2, 1),
    ]
    assert mend(lake).entries == ()
    assert findings(lake.audit(), "REPAIRED")
    assert_complete(lake)
