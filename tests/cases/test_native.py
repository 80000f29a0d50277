"""Queries that write with Spark's own Delta sink (`write: native`): recon observes, enters and judges them.

Each fault is made twice: where recon.yml names the columns with the source of each row, and where only numbers of rows
can be judged. What cannot be proved then is said, and never "complete".
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from recon.base.storage import Storage
from recon.local.client import wait_until
from recon.model import Level
from recon.witness import delta_log, delta_rows
from recon.write.ledger import open_ledger
from recon.write.observer import look
from recon.write.sinks import open_sink
from recon.write.sinks.base import ConfirmedWrite
from recon.write.streams.listener import ProgressListener
from tests.cases.lake import complete, failing, findings, ranges, told
from tests.cases.native import CHECKS, NativeLake
from tests.cases.test_adopt import adopted, kept
from tests.cases.test_table_files import cleaned_up
from tests.support.marks import long

Make = Callable[..., NativeLake]
_IDS = ["rows with their source", "counts alone"]
both = pytest.mark.parametrize("named", [True, False], ids=_IDS)
# `make test` runs the first, `make soak` both.
both_in_soak = pytest.mark.parametrize("named", [True, *long(False)], ids=_IDS)


@pytest.fixture
def make(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> Make:
    def made(
        named: bool = True, partitions: int = 1, config: dict[str, str] | None = None, **options: Any
    ) -> NativeLake:
        lake = NativeLake(tmp_path, kafka, spark, topic("n", partitions, config), **options)
        return lake.named() if named else lake

    return made


def answer(run: Any) -> str:
    return run.pipelines[0].answer


def unproved(run: Any) -> set[str]:
    return {str(f.code) for f in findings(run) if f.level is Level.UNPROVED}


def purge(lake: NativeLake, *batch_ids: int) -> None:
    """Removes the plans of micro-batches, as Spark does when there are 100 newer ones."""
    for batch_id in batch_ids:
        (lake.checkpoint / "offsets" / str(batch_id)).unlink()
        (lake.checkpoint / "commits" / str(batch_id)).unlink()


def test_a_table_that_was_born_with_column_mapping(make: Make) -> None:
    """Its data files have other names for the columns, as those that the hook adds when it goes on."""
    lake = make()
    lake.sql(
        "CREATE TABLE {table} (value STRING, kafka_partition INT, kafka_offset BIGINT) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    lake.produce(20)
    lake.stream(per_trigger=10)
    run = lake.audit(no_spark=True)
    assert complete(run), told(run)
    assert "does not show" not in run.pipelines[0].says
    hooked = adopted(lake)
    hooked.produce(10)
    hooked.run(transform=kept)
    run = hooked.audit(no_spark=True)
    assert complete(run), told(run)
    written = delta_log.stamped(Storage(str(lake.table))).commits[-1]
    writer = open_sink(hooked.project, "p", hooked.project.pipelines[0].sinks[0])
    landed = ConfirmedWrite(version=written.version, rows=written.rows)
    rows = writer.rows_of(lake.spark, landed, written.stamp).collect()
    assert sorted(row["kafka_offset"] for row in rows) == list(range(20, 30))
    place = (lake.topic, 0, 25)
    assert [row["_batch_id"] for _, row in delta_rows.find(Storage(str(lake.table)), [place])[place]] == [2]


@both_in_soak
def test_a_native_stream_is_proved_from_checkpoint_and_log(make: Make, named: bool) -> None:
    lake = make(named, partitions=2)
    lake.produce(100)
    lake.produce(50, partition=1)
    lake.stream(per_trigger=40)
    run = lake.audit()
    assert complete(run), (told(run), [(r.name, r.status, r.message) for r in run.results])
    entries = lake.entries()
    assert {e.status for e in entries} == {"observed"} and {e.guarantee for e in entries} == {"observed"}
    assert [e.batch_id for e in entries] == list(range(len(entries)))
    assert sum(e.rows_written or 0 for e in entries) == 150
    assert all(span.topic_id for e in entries for span in e.offsets)
    assert run.pipelines[0].sinks[0].guarantee == "observed"
    lake.produce(30)
    lake.stream()
    assert complete(lake.audit()) and len(lake.entries()) == len(entries) + 1
    assert complete(lake.audit()) and len(lake.entries()) == len(entries) + 1


@pytest.mark.long
@both_in_soak
def test_what_ran_before_recon_looked_is_unwitnessed(make: Make, named: bool) -> None:
    lake = make(named)
    lake.produce(40)
    lake.stream(per_trigger=10)
    purge(lake, 0, 1)  # the plan of micro-batch 2 has no start any more, as the oldest one that Spark keeps
    run = lake.audit()
    assert [e.batch_id for e in lake.entries()] == [3]
    assert "UNWITNESSED" in {str(f.code) for f in findings(run)} and not failing(run), told(run)
    assert answer(run) == "complete" and "micro-batch 3" in run.pipelines[0].says


@both
def test_a_swallowed_micro_batch_is_a_gap(make: Make, named: bool) -> None:
    lake = make(named)
    lake.produce(20)
    lake.stream()
    # Another writer has used the query's next number: Delta drops the micro-batch, and Spark commits it all the same.
    query_id = json.loads((lake.checkpoint / "metadata").read_text())["id"]
    lake.spark.range(0).selectExpr("CAST(id AS STRING) value", "0 kafka_partition", "id kafka_offset").write.format(
        "delta"
    ).option("txnAppId", query_id).option("txnVersion", 1).mode("append").save(str(lake.table))
    lake.produce(30)
    lake.stream()
    run = lake.audit()
    assert answer(run) == "not complete" and ranges(findings(run, "SKIPPED", "GAP")) >= {(0, 20, 50)}, told(run)


@both_in_soak
def test_rows_deleted_by_hand_are_missing(make: Make, named: bool) -> None:
    lake = make(named)
    lake.produce(100)
    lake.stream(per_trigger=50)
    assert complete(lake.audit())
    lake.sql("DELETE FROM {table} WHERE kafka_offset BETWEEN 10 AND 14")
    run = lake.audit()
    assert answer(run) == "not complete" and {"MUTATED", "GAP"} <= failing(run), told(run)
    assert not any("added rows" in message for _, message in told(run)), "it copied the rows that it left"
    if named:
        assert (0, 10, 15) in ranges(findings(run, "GAP"))


@pytest.mark.long
@both_in_soak
def test_a_restore_undoes_micro_batches(make: Make, named: bool) -> None:
    lake = make(named)
    lake.produce(60)
    lake.stream(per_trigger=20)
    assert complete(lake.audit())
    lake.sql("RESTORE TABLE {table} TO VERSION AS OF 0")
    run = lake.audit()
    assert answer(run) == "not complete" and {"MUTATED", "GAP"} <= failing(run), told(run)


@pytest.mark.long
@both_in_soak
def test_records_that_expired_unread(make: Make, named: bool) -> None:
    lake = make(named)
    lake.produce(20)
    lake.stream()
    lake.produce(50)
    lake.kafka.delete_records({(lake.topic, 0): 40})
    lake.stream(failOnDataLoss="false")
    run = lake.audit()
    if named:
        assert failing(run) == {"LOSS_RETENTION"}, told(run)
        assert ranges(findings(run, "LOSS_RETENTION")) == {(0, 20, 40)}
    else:
        assert answer(run) in ("not complete", "could not be proved"), told(run)


@both_in_soak
def test_a_lost_checkpoint_doubles_rows(make: Make, named: bool) -> None:
    lake = make(named)
    lake.produce(40)
    lake.stream()
    assert complete(lake.audit())
    lake.forget_checkpoint()
    lake.stream(starting=json.dumps({lake.topic: {"0": 30}}))
    run = lake.audit()
    assert answer(run) == "not complete" and "OVERLAP" in failing(run), told(run)
    assert {e.epoch for e in lake.entries()} == {0, 1}
    if named:
        assert ranges(findings(run, "DUPLICATE")) == {(0, 30, 40)}, told(run)


@both
def test_rows_of_a_query_whose_checkpoint_was_lost_before_recon_looked(make: Make, named: bool) -> None:
    """Rows that name their records tell which of them the next query wrote again; the first audit compares them."""
    lake = make(named)
    lake.produce(20)
    lake.stream()
    lake.forget_checkpoint()
    lake.stream(starting=json.dumps({lake.topic: {"0": 15}}))
    for _ in range(2):
        run = lake.audit()
        assert "UNWITNESSED" in {str(f.code) for f in findings(run)}, told(run)
        if named:
            assert answer(run) == "not complete" and failing(run) == {"DUPLICATE"}, told(run)
            assert (0, 15, 20) in ranges(findings(run, "DUPLICATE")) and not unproved(run), told(run)
        else:
            assert answer(run) == "complete", told(run)


def test_rows_before_the_first_entry_that_repeat_nothing_are_compared_once(make: Make) -> None:
    lake = make()
    lake.produce(20)
    lake.stream()
    lake.forget_checkpoint()
    lake.produce(10)
    lake.stream(starting=json.dumps({lake.topic: {"0": 20}}))
    run = lake.audit(no_spark=True)
    assert answer(run) == "could not be proved" and "version 0" in run.pipelines[0].because, told(run)
    run = lake.audit()
    assert answer(run) == "complete" and not unproved(run), told(run)
    lake.produce(10)
    lake.stream()
    run = lake.audit(no_spark=True)
    assert answer(run) == "complete" and len(lake.entries()) == 2, run.pipelines[0].because


@pytest.mark.long
@both_in_soak
def test_a_lost_checkpoint_that_starts_late_leaves_a_gap(make: Make, named: bool) -> None:
    lake = make(named)
    lake.produce(40)
    lake.stream()
    lake.produce(40)
    lake.audit()
    lake.forget_checkpoint()
    lake.stream(starting=json.dumps({lake.topic: {"0": 55}}))
    run = lake.audit()
    assert failing(run) == {"GAP"} and (0, 40, 55) in ranges(findings(run, "GAP")), told(run)


@both_in_soak
def test_transaction_markers_are_explained(make: Make, named: bool) -> None:
    lake = make(named, isolation_level="read_committed")
    lake.kafka.transaction(lake.topic, [("k", f"v{i}", 0) for i in range(10)])
    lake.produce(10)
    lake.stream()
    run = lake.audit()
    assert complete(run), told(run)


@pytest.mark.long
@both
def test_an_undeclared_filter_could_not_be_proved(make: Make, named: bool) -> None:
    lake = make(named, declared={})
    lake.produce(20)
    lake.stream(lambda frame: frame.where("kafka_offset % 5 > 0"))
    run = lake.audit()
    assert answer(run) == "could not be proved" and unproved(run) == {"INCONCLUSIVE"}, told(run)


@pytest.mark.long
@both_in_soak
def test_a_filter_that_was_declared_not_to_be_is_a_gap(make: Make, named: bool) -> None:
    lake = make(named)
    lake.produce(20)
    lake.stream(lambda frame: frame.where("kafka_offset != 7"))
    run = lake.audit()
    assert failing(run) == {"GAP"}, told(run)
    if named:
        assert ranges(findings(run, "GAP")) == {(0, 7, 8)}


def test_a_row_lost_and_another_doubled_in_one_micro_batch(make: Make) -> None:
    lake = make(True)
    lake.produce(20)
    lake.stream(lambda frame: frame.where("kafka_offset != 7").unionAll(frame.where("kafka_offset = 8")))
    if not lake.entries() and not (lake.table / "_delta_log").exists():
        pytest.skip("Spark reads a topic twice for a union of a stream with itself")
    run = lake.audit()
    assert answer(run) != "complete", told(run)


@pytest.mark.long
@both_in_soak
def test_micro_batches_that_nobody_saw_are_not_complete(make: Make, named: bool) -> None:
    lake = make(named)
    lake.produce(10)
    lake.stream()
    assert complete(lake.audit())
    lake.produce(40)
    lake.stream(per_trigger=10)
    purge(lake, 0, 1, 2)  # and with 2 the start of 3
    run = lake.audit()
    assert answer(run) == "could not be proved", told(run)
    assert not failing(run) and (0, 10, 40) in ranges(findings(run, "INCONCLUSIVE")), told(run)


@pytest.mark.long
def test_commits_after_the_checkpoint_was_read_are_the_next_audits(make: Make) -> None:
    lake = make(True)
    lake.produce(10)
    lake.stream()
    lake.produce(10)
    held = lake.path / "held"
    shutil.copytree(lake.checkpoint, held)
    lake.stream()
    newest = lake.checkpoint.rename(lake.path / "newest")
    held.rename(lake.checkpoint)
    run = lake.audit()
    assert not failing(run) and not unproved(run), told(run)
    shutil.rmtree(lake.checkpoint)
    newest.rename(lake.checkpoint)
    assert complete(lake.audit()) and [e.batch_id for e in lake.entries()] == [0, 1]


@pytest.mark.long
def test_two_looks_at_the_same_moment_enter_once(make: Make) -> None:
    lake = make(True)
    lake.produce(30)
    lake.stream(per_trigger=10)
    ledger, project = open_ledger(lake.project), lake.project
    pipeline = project.pipelines[0]
    other = open_ledger(lake.project)

    def ask(conf: Any, question: Callable[[], Any]) -> Any:
        if not other.exists():  # somebody else looks, between our reading and our writing
            look(project, pipeline, other, lambda _, asked: asked())
        return question()

    assert look(project, pipeline, ledger, ask).entered == ()
    assert [e.batch_id for e in lake.entries()] == [0, 1, 2]
    assert complete(lake.audit())


@pytest.mark.long
def test_an_entry_that_names_another_commit_is_an_orphan(make: Make) -> None:
    lake = make(True)
    lake.produce(10)
    lake.stream()
    assert complete(lake.audit())
    table = DeltaTable(str(lake.table))
    assert table.version() == 0
    shutil.rmtree(lake.table)
    lake.forget_checkpoint()
    lake.stream()
    run = lake.audit()
    assert answer(run) == "not complete" and {"LEDGER_ORPHAN", "MUTATED"} & failing(run), told(run)


@contextmanager
def listening(lake: NativeLake) -> Iterator[Callable[[], None]]:
    """A listener enters what the query writes; gives a wait until the newest micro-batch is in the ledger."""
    listener = ProgressListener(lake.project, every=1)
    lake.spark.streams.addListener(listener)
    try:
        yield lambda: wait_until(
            lambda: [entry.batch_id for entry in lake.entries()][-1:] == [newest_plan(lake)], "nothing was entered"
        )
    finally:
        lake.spark.streams.removeListener(listener)


def test_a_listener_enters_what_spark_forgets(make: Make) -> None:
    """One line in the driver, no change to the write; the checkpoint keeps three micro-batches alone."""
    lake = make()
    kept = "spark.sql.streaming.minBatchesToRetain"
    before = lake.spark.conf.get(kept) or "100"
    lake.spark.conf.set(kept, "3")
    try:
        with listening(lake) as is_entered:
            for _ in range(4):
                lake.produce(20)
                lake.stream(per_trigger=10)
                is_entered()
    finally:
        lake.spark.conf.set(kept, before)
    batches = [entry.batch_id for entry in lake.entries()]
    assert batches == list(range(newest_plan(lake) + 1)) and len(batches) > 6
    assert not (lake.checkpoint / "offsets/0").exists(), "Spark kept all plans: this shows nothing"
    run = lake.audit()
    assert complete(run), told(run)


def committed_earlier(lake: NativeLake, by: timedelta) -> None:
    """Sets the times of the first micro-batch, of its plan and of its commit, back."""

    def earlier(found: re.Match[str]) -> str:
        return f"{found[1]}:{int(found[2]) - by // timedelta(milliseconds=1)}"

    for file in (lake.checkpoint / "offsets" / "0", lake.table / "_delta_log" / f"{0:020}.json"):
        file.write_text(re.sub(r'("timestamp"|"batchTimestampMs"):(\d+)', earlier, file.read_text()))
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


@pytest.mark.long
def test_a_stranger_adds_a_record_that_the_query_reads_when_the_log_is_cleaned_up(make: Make) -> None:
    """The audit that saw the commit found the record once; the next one has nothing but what that one remembers.

    It does not look at the ledger's first entry any more, from which on the table's rows could be counted.
    """
    lake = make(True)
    lake.produce(5)
    lake.stream()
    committed_earlier(lake, timedelta(hours=2))
    with listening(lake) as is_entered:
        lake.produce(5)
        lake.stream()
        is_entered()
        assert [entry.sink_version for entry in lake.entries()] == [0, 1]
        lake.produce(5)
        lake.sql(
            "INSERT INTO {table} BY NAME SELECT * EXCEPT (kafka_offset), kafka_offset + 10 AS kafka_offset "
            "FROM {table} WHERE kafka_offset = 2"
        )
        run = lake.audit()
        assert complete(run) and findings(run, "UNSTAMPED"), told(run)
        lake.stream()
        is_entered()
    cleaned_up(lake)
    assert lake.values().count((0, 12)) == 2
    run = lake.audit()
    assert answer(run) == "not complete" and failing(run) == {"DUPLICATE"}, told(run)
    assert (0, 12, 13) in ranges(findings(run, "DUPLICATE")), told(run)


def newest_plan(lake: NativeLake) -> int:
    return max(int(name.name) for name in (lake.checkpoint / "commits").iterdir() if name.name.isdigit())


def test_a_topic_leaves_the_subscription_and_comes_back(make: Make, topic: Callable[..., str]) -> None:
    other = topic("other")
    lake = make(False, more_topics=(other,), checks=(*CHECKS, "kafka_end_offsets"))
    both = f"{lake.topic},{other}"

    def produce(count: int, name: str = lake.topic) -> None:
        lake.kafka.produce(name, [(f"k{i}", f"v{i}", 0) for i in range(count)])

    produce(20)
    produce(20, other)
    lake.stream(subscribe=both)
    assert answer(lake.audit()) == "complete"
    produce(5)
    lake.stream(failOnDataLoss="false")
    without = replace(lake, more_topics=())
    for one in (lake, without):
        run = one.audit()
        assert answer(run) == "complete", told(run)  # it was read to its end
    produce(8, other)
    run = lake.audit()
    assert failing(run) == {"STALLED"}, told(run)
    run = without.audit()
    assert ranges(f for f in findings(run) if f.level is Level.UNPROVED) == {(0, 20, 28)}, told(run)
    lake.kafka.delete_records({(other, 0): 20})
    produce(3)
    lake.stream(subscribe=both, failOnDataLoss="false")
    run = lake.audit()
    assert answer(run) == "complete", told(run)
    assert len(lake.rows()) == 20 + 20 + 5 + 8 + 3
