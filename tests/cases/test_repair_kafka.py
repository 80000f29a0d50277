"""Repairs of Kafka sinks on a real broker and stream: records and their marker in one transaction, once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from recon.base.errors import ConfigError
from recon.model import REPAIRS, ReconStamp
from recon.model.wire.columns import BATCH_ID, EPOCH_HEADER, SOURCE_OFFSET
from recon.model.wire.markers import Owner, batch_key
from recon.recovery.repair.run import Repaired
from recon.recovery.repair.witnesses import repair_plans
from recon.write.sinks import open_sink
from recon.write.sinks.failpoints import (
    AFTER_LEDGER,
    AFTER_WRITE,
    BEFORE_LEDGER,
    BEFORE_WRITE,
    MARKED,
    PRODUCED,
    TASKS_COMMITTED,
)
from tests.cases.lake import failing, findings
from tests.cases.test_databases import DatabaseLake
from tests.cases.test_repair import mend, mend_twice_at_once, parse, swallowing
from tests.support.failpoints import dies_at

# tests/crash/test_killed_repair.py repairs such a sink in `make test`.
pytestmark = pytest.mark.long

WHOLE = [offset for offset in range(60) if offset % 10 != 9]
MakeLake = Callable[..., DatabaseLake]


@pytest.fixture
def make_lake(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> MakeLake:
    sink = {"kind": "kafka", "value_format": "json", "key": "k", "target": topic("out", partitions=2)}
    own = {"marker_topic": topic("markers")}
    kafka.alter_config(own["marker_topic"], {"cleanup.policy": "compact"})
    return lambda **more: DatabaseLake(tmp_path, kafka, spark, topic("t"), sink={**sink, **own, **more})


def records(lake: DatabaseLake) -> list[tuple[int, int, int]]:
    """(source offset, _batch_id, epoch) of each committed record of the target."""
    (pipeline,) = lake.project.pipelines
    rows = open_sink(lake.project, "p", pipeline.sinks[0]).table(lake.spark)
    return sorted(tuple(row) for row in rows.select(SOURCE_OFFSET, BATCH_ID, EPOCH_HEADER).collect())


def offsets(lake: DatabaseLake) -> list[int]:
    return [offset for offset, _, _ in records(lake)]


def test_a_swallowed_micro_batch_is_one_transaction_of_the_repair(make_lake: MakeLake) -> None:
    lake = make_lake()
    swallowing(lake)
    assert failing(lake.audit()) == {"GAP"}
    (plan,) = repair_plans(lake.project)
    assert [(one.action, one.start_offset, one.end_offset, one.batch_id) for one in plan.ranges] == [
        ("read", 20, 40, 1)
    ]
    done = mend(lake)
    assert (done.offsets, done.rows, done.incomplete) == (20, 18, ())
    assert offsets(lake) == WHOLE
    assert {(batch, epoch) for offset, batch, epoch in records(lake) if 20 <= offset < 40} == {(1, REPAIRS)}
    (entry,) = (one for one in lake.entries() if one.is_repair)
    assert entry.given is not None and entry.given.rows == 18, "Spark reports what it counted during the write"
    run = lake.audit()
    assert not failing(run) and findings(run, "REPAIRED")
    assert run.pipelines[0].answer == "complete", run.pipelines[0].because
    assert mend(lake).entries == ()
    lake.produce(20)
    lake.run(transform=parse)
    assert offsets(lake) == [o for o in range(80) if o % 10 != 9]
    assert not failing(lake.audit()) and not failing(lake.audit(full=True))
    # What the sink's own record does not have, an entry of a repair does not prove.
    sink = lake.project.pipelines[0].sinks[0]
    owner = Owner("p", "s", sink.target)
    lake.kafka.produce(sink.marker_topic, [(batch_key(owner, REPAIRS, 0).decode(), None, 0)])
    run = lake.audit(full=True)
    assert failing(run) and run.pipelines[0].answer == "not complete", run.pipelines[0].because


@pytest.mark.parametrize("point", [BEFORE_WRITE, PRODUCED, MARKED, AFTER_WRITE, BEFORE_LEDGER])
def test_an_interrupted_repair_is_run_again(make_lake: MakeLake, point: str) -> None:
    lake = make_lake()
    swallowing(lake)
    lake.audit()
    with pytest.raises(RuntimeError, match="died"):
        mend(lake, failpoint=dies_at(point))
    lake.produce(20)
    lake.run(transform=parse)  # whatever the repair left, the query goes on
    done = mend(lake)
    assert done.incomplete == ()
    assert offsets(lake) == [o for o in range(80) if o % 10 != 9]
    run = lake.audit()
    assert not failing(run) and run.pipelines[0].answer == "complete", run.pipelines[0].because
    entry = next(one for one in lake.entries() if one.is_repair)
    assert (entry.rows_read, entry.rows_written, entry.rows_filtered) == (20, 18, 2)


@pytest.mark.parametrize("at", [BEFORE_WRITE, TASKS_COMMITTED, AFTER_LEDGER])
def test_a_query_that_runs_is_fenced_and_goes_on_when_it_is_restarted(make_lake: MakeLake, at: str) -> None:
    lake = make_lake()
    swallowing(lake)
    lake.audit()
    lake.produce(60)
    done: list[Repaired] = []

    def repairs(point: str, stamp: ReconStamp) -> None:
        if (point, stamp.batch_id) == (at, 3) and not done:
            done.append(mend(lake))

    with pytest.raises(StreamingQueryException, match="fenced"):
        lake.run(transform=parse, failpoint=repairs, per_trigger=20)
    assert [(one.offsets, one.rows, one.incomplete) for one in done] == [(20, 18, ())]
    lake.run(transform=parse)
    assert offsets(lake) == [o for o in range(120) if o % 10 != 9]
    run = lake.audit()
    assert not failing(run) and run.pipelines[0].answer == "complete", run.pipelines[0].because


def test_two_repairs_at_once_write_once(make_lake: MakeLake) -> None:
    lake = make_lake()
    swallowing(lake)
    lake.audit()
    results = mend_twice_at_once(lake)
    assert sum(one.rows for one in results if isinstance(one, Repaired)) == 18, results
    assert offsets(lake) == WHOLE and not failing(lake.audit())


def test_offsets_of_a_micro_batch_that_was_begun_are_left_to_its_query(make_lake: MakeLake) -> None:
    lake = make_lake()
    swallowing(lake)
    lake.audit()
    lake.produce(20)
    lake.forget_checkpoint()
    with pytest.raises(StreamingQueryException):  # begins the swallowed offsets on another checkpoint
        lake.run(
            lake.hook(transform=parse, failpoint=dies_at(TASKS_COMMITTED)),
            starting=f'{{"{lake.topic}": {{"0": 20}}}}',
            per_trigger=10,
        )
    done = mend(lake)
    assert (done.offsets, done.rows) == (10, 9)
    assert done.incomplete[0].startswith("micro-batch 0 (epoch 1) was begun and is not complete: its offsets were left")
    with pytest.raises(StreamingQueryException, match="NewEpochError"):
        lake.run(transform=parse, per_trigger=10)  # it completes [20, 30), then comes to what the repair wrote
    assert offsets(lake) == WHOLE and not failing(lake.audit())


def test_records_of_a_micro_batch_that_nobody_completes_are_not_written_again(make_lake: MakeLake) -> None:
    """Its checkpoint is gone, and markers of a later micro-batch are in place of its own: the topic itself tells."""
    lake = make_lake(on_new_epoch="warn")
    lake.produce(60)
    with pytest.raises(StreamingQueryException):
        lake.run(transform=parse, failpoint=dies_at(TASKS_COMMITTED, batch_id=1), per_trigger=20)
    lake.forget_checkpoint()
    lake.produce(20)
    lake.run(transform=parse, starting=f'{{"{lake.topic}": {{"0": 60}}}}')
    assert offsets(lake) == [o for o in range(80) if o % 10 != 9 and not 40 <= o < 60]
    assert "GAP" in failing(lake.audit())
    assert mend(lake).rows == 18
    assert offsets(lake) == [o for o in range(80) if o % 10 != 9]
    assert lake.audit().pipelines[0].answer == "not complete", "no micro-batch accounts for what it left"


def test_doubled_records_stay(make_lake: MakeLake) -> None:
    lake = make_lake(on_new_epoch="warn")
    lake.produce(20)
    lake.run(transform=parse)
    lake.forget_checkpoint()
    lake.run(transform=parse)
    assert "OVERLAP" in failing(lake.audit())
    done = mend(lake)
    assert {(one.action, one.why.partition(",")[0]) for one in done.plan.ranges} == {
        ("unknown", "a record of a topic cannot be taken back")
    }
    assert (done.entries, len(offsets(lake))) == ((), 36)
    assert lake.audit().pipelines[0].answer == "not complete"


def refused(lake: DatabaseLake, why: str) -> None:
    """The plan and the repair say it, and nothing was written."""
    there = offsets(lake)
    (plan,) = repair_plans(lake.project)
    assert why in plan.refused and not plan.does_something
    with pytest.raises(ConfigError, match=why):
        mend(lake)
    assert offsets(lake) == there and not [one for one in lake.entries() if one.is_repair]
    assert lake.audit().pipelines[0].answer == "not complete"


def test_in_a_compacted_topic_a_late_record_would_replace_a_newer_one(make_lake: MakeLake, kafka: Any) -> None:
    lake = make_lake()
    swallowing(lake)
    lake.audit()
    kafka.alter_config(lake.project.pipelines[0].sinks[0].target, {"cleanup.policy": "compact,delete"})
    refused(lake, "is compacted: of each key Kafka keeps the record that was written last")


def test_a_topic_that_was_made_anew_lacks_more_than_a_repair_would_write(make_lake: MakeLake, kafka: Any) -> None:
    lake = make_lake()
    swallowing(lake)
    lake.audit()
    target = lake.project.pipelines[0].sinks[0].target
    kafka.delete_topic(target)
    (plan,) = repair_plans(lake.project)
    assert f"topic {target} does not exist" in plan.refused
    kafka.create_topic(target, 2)
    refused(lake, "was deleted and created again, or its log was cut off, so it lacks more than a repair would write")


def test_what_is_not_done(make_lake: MakeLake) -> None:
    plain = make_lake(mode="at_least_once")
    with pytest.raises(ConfigError, match="it has mode: at_least_once"):
        mend(plain)
