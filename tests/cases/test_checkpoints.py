"""Fault cases of checkpoints, epochs and periods: unfinished micro-batches, older copies, audits from and to."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from recon.model import ReconStamp, RunResult
from recon.recovery.explain import explain
from recon.recovery.starting_offsets import starting_offsets
from recon.write.sinks.failpoints import BEFORE_LEDGER
from tests.cases.lake import Lake, complete, failing, findings, ranges, refuted, told

MakeLake = Callable[..., Lake]
Later = Callable[[timedelta], None]
WARN = {"on_new_epoch": "warn"}
EPOCH_0 = datetime.fromtimestamp(0, UTC)


def ran(lake: Lake, batches: int, **options: Any) -> None:
    """So many micro-batches of ten records, in one run of the query."""
    lake.produce(10 * batches)
    lake.run(per_trigger=10, **options)


def two_epochs(lake: Lake) -> None:
    """The second one goes on where the first one ended."""
    ran(lake, 2)
    starting = starting_offsets(lake.project, "p")
    lake.forget_checkpoint()
    ran(lake, 2, starting=starting)
    assert [entry.epoch for entry in lake.entries()] == [0, 0, 1, 1]


@pytest.mark.case(21, "INFLIGHT", answer="complete")
@pytest.mark.case(21, "STALLED")
@pytest.mark.case(21, "LOSS_RETENTION")
def test_a_micro_batch_that_was_planned_and_not_finished(make_lake: MakeLake, audits_later: Later) -> None:
    lake = make_lake()
    ran(lake, 1)
    lake.produce(10)

    def stops(frame: DataFrame, batch_id: int) -> None:
        raise RuntimeError("stopped")

    with pytest.raises(StreamingQueryException, match="stopped"):
        lake.run(stops)
    young = lake.audit()
    assert complete(young) and 1 in {f.batch_id for f in findings(young, "INFLIGHT")}, told(young)
    audits_later(timedelta(hours=2))
    assert refuted(lake.audit(), "STALLED")
    lake.kafka.delete_records({(lake.topic, 0): 15})
    gone = lake.audit()
    assert {"LOSS_RETENTION"} <= failing(gone) <= {"LOSS_RETENTION", "STALLED"}, told(gone)
    assert ranges(findings(gone, "LOSS_RETENTION")) == {(0, 10, 15)}


@pytest.mark.case(39)
def test_checkpoint_files_are_purged_and_the_table_is_vacuumed_and_gets_a_column(make_lake: MakeLake) -> None:
    lake = make_lake()
    ran(lake, 4)
    for batch_id in (0, 1):
        for folder in ("offsets", "commits"):
            for file in (lake.checkpoint / folder).glob(f"*{batch_id}*"):
                file.unlink()
    DeltaTable(str(lake.table)).vacuum(dry_run=False)
    lake.sql("ALTER TABLE {table} ADD COLUMNS (note STRING)")
    ran(lake, 1)
    run = lake.audit()
    assert complete(run), told(run)


@pytest.mark.case(64, "STALE_CHECKPOINT", answer="complete")
def test_a_checkpoint_is_an_older_copy_than_the_ledger(make_lake: MakeLake) -> None:
    lake = make_lake()
    set_back(lake)
    lake.run(per_trigger=10)
    assert [entry.status for entry in lake.entries()][-2:] == ["already_committed"] * 2
    assert lake.values() == [(0, offset) for offset in range(30)]
    run = lake.audit()
    assert complete(run) and not findings(run, "STALE_CHECKPOINT"), told(run)


@pytest.mark.case(32, "GAP")
def test_a_plan_is_edited_after_it_was_entered(make_lake: MakeLake) -> None:
    lake = make_lake()
    ran(lake, 2)
    lake.produce(10)
    plan = lake.checkpoint / "offsets" / "1"
    plan.write_text(plan.read_text().replace('{"0":20}', '{"0":23}'))
    (plan.parent / ".1.crc").unlink(missing_ok=True)
    for runs in (0, 1):
        if runs:
            lake.run()
        run = lake.audit()
        assert failing(run) == {"GAP"} and len(findings(run, "GAP")) == 1 and not findings(run, "NEW_EPOCH"), told(run)
        assert ranges(findings(run, "GAP")) == {(0, 20, 23)}
        assert "offsets/1 was edited after micro-batch 1 was entered" in findings(run, "GAP")[0].message


def set_back(lake: Lake) -> None:
    """A copy of the checkpoint is put back that lacks two micro-batches, and audited."""
    ran(lake, 1)
    copy = lake.path / "copy"
    shutil.copytree(lake.checkpoint, copy)
    ran(lake, 2)
    lake.forget_checkpoint()
    copy.rename(lake.checkpoint)
    assert "set back" in " ".join(explain(lake.project, "p", 1).sentences)
    run = lake.audit()
    (stale,) = findings(run, "STALE_CHECKPOINT")
    assert complete(run) and stale.batch_id == 1 and "offsets [10, 30)" in stale.message, told(run)


@pytest.mark.case(73)
@pytest.mark.case(75)
@pytest.mark.case(82)
def test_two_epochs_audits_of_a_period_and_to_a_future_time_and_retention(make_lake: MakeLake) -> None:
    lake = make_lake(sink=WARN)
    two_epochs(lake)
    run = lake.audit(from_=datetime.now(UTC) - timedelta(days=60))
    assert complete(run) and not findings(run, "RETENTION_NEAR"), told(run)
    assert complete(lake.audit(from_=lake.entries()[2].committed_at))
    lake.kafka.delete_records({(lake.topic, 0): 40})
    run = lake.audit(to=datetime(2999, 1, 1, tzinfo=UTC))
    assert complete(run), told(run)
    ran(lake, 1)
    assert complete(lake.audit())


@pytest.mark.case(77)
def test_two_sources_on_one_topic(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(10)
    reader = (
        lake.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", lake.kafka.bootstrap_servers)
        .option("startingOffsets", "earliest")
        .option("subscribe", lake.topic)
    )
    query = (
        reader.load()
        .union(reader.load())
        .writeStream.foreachBatch(lake.hook())
        .option("checkpointLocation", str(lake.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert {(s.source, *s.span) for entry in lake.entries() for s in entry.offsets} == {(0, 0, 10), (1, 0, 10)}
    run = lake.audit()
    assert complete(run), told(run)


@pytest.mark.case(81)
def test_an_audit_between_a_commit_and_its_entry(make_lake: MakeLake) -> None:
    lake = make_lake()
    ran(lake, 1)
    lake.produce(10)
    runs: list[RunResult] = []

    def audits(point: str, stamp: ReconStamp) -> None:
        if point == BEFORE_LEDGER:
            runs.append(lake.audit())

    lake.run(failpoint=audits)
    (run,) = runs
    assert complete(run) and complete(lake.audit()), told(run)
    assert not findings(run, "LEDGER_MISSING") and 1 in {f.batch_id for f in findings(run, "INFLIGHT")}


@pytest.mark.case(88, "GAP")
def test_restored_entries_are_judged(make_lake: MakeLake) -> None:
    """As a whole, and at the time of their commits."""
    lake = make_lake()
    begin, end = restored(lake)
    for period in ({"from_": begin, "to": end}, {}):
        run = lake.audit(**period)
        assert refuted(run, "GAP") and ranges(findings(run, "GAP")) == {(0, 4, 5)}, told(run)


def restored(lake: Lake) -> tuple[datetime, datetime]:
    """When micro-batch 0 was written, which lost a row; its entry was lost, and the next start restored it."""
    begin = datetime.now(UTC)
    lake.produce(10)
    hook = lake.hook()
    lake.run(lambda frame, batch_id: hook(frame.where("offset <> 4"), batch_id))
    end = datetime.now(UTC)
    shutil.rmtree(lake.path / "recon")
    ran(lake, 1)
    assert [entry.status for entry in lake.entries()] == ["rebuilt", "committed"]
    return begin, end
