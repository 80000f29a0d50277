"""The fault catalogue: each fault is made for real, and the audit's verdict on it is asserted.

Numbers are those of the catalogue in docs/verdicts.md.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from recon.write.hook import ForeachBatch
from recon.write.sinks.failpoints import BEFORE_LEDGER
from tests.cases.lake import Lake, failing, findings, ranges, statuses
from tests.support.failpoints import dies_at

MakeLake = Callable[..., Lake]
WARN = {"on_new_epoch": "warn"}


def at(lake: Lake, **partitions: int) -> str:
    """startingOffsets JSON: at(lake, p0=150)."""
    return json.dumps({lake.topic: {name[1:]: offset for name, offset in partitions.items()}})


def assert_complete(lake: Lake, **options: Any) -> Any:
    run = lake.audit(**options)
    assert failing(run) == set(), [f.message for f in findings(run)]
    assert set(statuses(run).values()) == {"pass"}, {r.name: (r.status, r.message) for r in run.results}
    assert [p.answer for p in run.pipelines] == ["complete"]
    assert run.exit_code == 0
    return run


@pytest.mark.case(1)
@pytest.mark.case(7)
def test_1_and_7_ranges_that_join_are_complete_and_empty_ones_too(make_lake: MakeLake) -> None:
    lake = make_lake(partitions=2)
    lake.produce(100)
    lake.run(per_trigger=40)
    lake.produce(5)
    lake.run()
    run = assert_complete(lake)
    assert lake.values() == [(0, o) for o in range(105)]
    sink = run.pipelines[0].sinks[0]
    assert (sink.batches, sink.batches_proved, sink.rows_written) == (4, 4, 105)


@pytest.mark.case(2, "GAP")
@pytest.mark.case(3, "GAP", "LOSS_RETENTION")
def test_2_and_3_a_gap_that_kafka_still_holds_and_one_whose_records_are_gone(make_lake: MakeLake) -> None:
    lake = make_lake(sink=WARN)
    lake.produce(100)
    lake.run()
    lake.produce(100)
    lake.forget_checkpoint()
    lake.run(starting=at(lake, p0=150))
    run = lake.audit(keep=False)
    assert failing(run) == {"GAP"} and ranges(findings(run, "GAP")) == {(0, 100, 150)}
    assert "still holds" in findings(run, "GAP")[0].message
    assert run.pipelines[0].answer == "not complete" and run.exit_code == 1

    lake.kafka.delete_records({(lake.topic, 0): 130})
    run = lake.audit()
    assert failing(run) == {"GAP", "LOSS_RETENTION"}
    assert ranges(findings(run, "LOSS_RETENTION")) == {(0, 100, 130)}
    assert ranges(findings(run, "GAP")) == {(0, 130, 150)}


@pytest.mark.case(4, "OVERLAP", "DUPLICATE")
def test_4_an_overlap_and_the_rows_it_doubles(make_lake: MakeLake) -> None:
    lake = make_lake(sink=WARN)
    lake.produce(100)
    lake.run()
    lake.forget_checkpoint()
    lake.run(starting=at(lake, p0=60))
    run = lake.audit()
    assert failing(run) == {"OVERLAP", "DUPLICATE"}
    assert ranges(findings(run, "OVERLAP")) == ranges(findings(run, "DUPLICATE")) == {(0, 60, 100)}


@pytest.mark.case(4)
def test_4_an_overlap_that_was_trimmed_doubles_nothing(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"trim_replayed_offsets": True})
    lake.produce(100)
    lake.run()
    lake.produce(50)
    lake.forget_checkpoint()
    lake.run(starting="earliest")
    assert lake.values() == [(0, o) for o in range(150)]
    assert [(e.epoch, e.rows_read, e.rows_written, e.rows_filtered) for e in lake.entries()] == [
        (0, 100, 100, 0),
        (1, 150, 50, 100),
    ]
    assert_complete(lake)


@pytest.mark.case(5, "LOSS_RETENTION")
def test_5_a_new_partition_whose_first_records_are_gone(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(20)
    lake.run()
    lake.kafka.add_partitions(lake.topic, 2)
    lake.produce(10, partition=1)
    lake.kafka.delete_records({(lake.topic, 1): 4})
    lake.run(fail_on_data_loss=False)
    run = lake.audit()
    assert failing(run) == {"LOSS_RETENTION"} and ranges(findings(run, "LOSS_RETENTION")) == {(1, 0, 4)}


@pytest.mark.case(8, "EXPLAINED")
def test_8_a_range_that_holds_only_a_transaction_marker(make_lake: MakeLake) -> None:
    lake = make_lake(isolation_level="read_committed")
    lake.kafka.transaction(lake.topic, [("k", "v", 0)] * 10)
    lake.run(per_trigger=10)
    assert [s.span for e in lake.entries() for s in e.offsets] == [(0, 10), (10, 11)]
    assert [e.rows_written for e in lake.entries()] == [10, 0]
    assert_complete(lake)


@pytest.mark.case(9, "EXPLAINED")
def test_9_committed_transactions(make_lake: MakeLake) -> None:
    lake = make_lake(partitions=2)
    for _ in range(2):
        lake.kafka.transaction(lake.topic, [("k", "v", p) for p in (0, 1) for _ in range(10)])
    lake.run(per_trigger=30)
    run = assert_complete(lake)
    assert "control" in " ".join(f.message for f in findings(run, "EXPLAINED"))


@pytest.mark.case(10, "EXPLAINED")
def test_10_aborted_transactions_that_the_stream_did_not_read(make_lake: MakeLake) -> None:
    lake = make_lake(isolation_level="read_committed")
    lake.produce(10)
    lake.kafka.transaction(lake.topic, [("k", "aborted", 0)] * 7, "abort")
    lake.produce(10)
    lake.run()
    assert len(lake.rows()) == 20
    run = assert_complete(lake)
    assert "7 aborted" in " ".join(f.message for f in findings(run, "EXPLAINED"))


@pytest.mark.case(11, "PHANTOM_ROWS")
def test_11_aborted_transactions_that_the_stream_did_read(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(10)
    lake.kafka.transaction(lake.topic, [("k", "aborted", 0)] * 7, "abort")
    lake.produce(10)
    lake.run()
    assert len(lake.rows()) == 27
    run = lake.audit()
    assert failing(run) == {"PHANTOM_ROWS"} and ranges(findings(run, "PHANTOM_ROWS")) == {(0, 10, 17)}


@pytest.mark.case(12, "INFLIGHT")
def test_12_an_open_transaction_is_in_flight(make_lake: MakeLake) -> None:
    lake = make_lake(isolation_level="read_committed")
    lake.produce(10)
    txn = lake.kafka.transaction(lake.topic, [("k", "open", 0)] * 5, "open")
    try:
        lake.run()
        run = assert_complete(lake)
        assert "open transaction" in " ".join(f.message for f in findings(run, "INFLIGHT"))
    finally:
        txn.abort()


@pytest.mark.case(16, "LOSS_RETENTION")
def test_16_records_that_expire_while_the_batch_is_read(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(100)
    hook = lake.hook()

    def late(frame: DataFrame, batch_id: int) -> None:
        lake.kafka.delete_records({(lake.topic, 0): 60})
        hook(frame, batch_id)

    lake.run(late, fail_on_data_loss=False)
    assert lake.entries()[0].offsets[0].span == (0, 100) and len(lake.rows()) == 40
    run = lake.audit()
    assert failing(run) == {"LOSS_RETENTION"} and ranges(findings(run, "LOSS_RETENTION")) == {(0, 0, 60)}


def _recreate(lake: Lake, records: int) -> None:
    lake.kafka.delete_topic(lake.topic)
    lake.kafka.create_topic(lake.topic, 1)
    lake.produce(records)


@pytest.mark.case(17, "RECREATED")
@pytest.mark.case(18, "RECREATED", "GAP")
def test_17_and_18_a_topic_made_anew_that_has_not_grown_back_and_one_that_is_read_on(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(50)
    lake.run()
    _recreate(lake, 20)
    assert failing(lake.audit(keep=False)) == {"RECREATED"}
    lake.produce(60)
    lake.run()  # Spark says nothing and reads [50, 80) of the new topic
    assert lake.entries()[-1].offsets[0].span == (50, 80)
    run = lake.audit()
    assert failing(run) == {"RECREATED", "GAP"} and ranges(findings(run, "GAP")) == {(0, 0, 50)}


def dying(lake: Lake) -> ForeachBatch:
    """Fails between the data commit and the ledger entry."""
    return lake.hook(failpoint=dies_at(BEFORE_LEDGER))


@pytest.mark.case(22, "LEDGER_MISSING")
def test_22_a_commit_the_ledger_does_not_know_is_found_and_repaired(
    make_lake: MakeLake, audits_later: Callable[[timedelta], None]
) -> None:
    lake = make_lake()
    lake.produce(30)
    lake.run()
    lake.produce(30)
    with pytest.raises(StreamingQueryException):
        lake.run(dying(lake))
    audits_later(timedelta(hours=1))
    run = lake.audit()
    assert [f.batch_id for f in findings(run, "LEDGER_MISSING")] == [1]
    assert statuses(run)["checkpoint_commits"] == "warn" and failing(run) == set()
    lake.produce(5)
    lake.run()
    assert [(e.batch_id, e.attempt, e.status) for e in lake.entries()] == [
        (0, 1, "committed"),
        (1, 1, "rebuilt"),
        (1, 2, "already_committed"),
        (2, 1, "committed"),
    ]
    assert lake.values() == [(0, o) for o in range(65)]
    assert_complete(lake)


@pytest.mark.case(23, "REPLAYED")
def test_23_a_replay_lands_once(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(30)
    hook = lake.hook()

    def dies_after(frame: DataFrame, batch_id: int) -> None:
        hook(frame, batch_id)
        raise RuntimeError("died here")

    with pytest.raises(StreamingQueryException):
        lake.run(dies_after)
    lake.run()
    assert [(e.attempt, e.status) for e in lake.entries()] == [(1, "committed"), (2, "already_committed")]
    assert len({e.sink_version for e in lake.entries()}) == 1 and len(lake.rows()) == 30
    run = assert_complete(lake)
    assert findings(run, "REPLAYED")


@pytest.mark.case(27, "GAP")
def test_27_an_error_the_users_function_swallowed(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(90)

    def broken(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("no_such_column")

    good, bad = lake.hook(), lake.hook(transform=broken)

    def swallows(frame: DataFrame, batch_id: int) -> None:
        with contextlib.suppress(Exception):  # this is the fault
            (bad if batch_id == 1 else good)(frame, batch_id)

    lake.run(swallows, per_trigger=30)
    assert [e.batch_id for e in lake.entries()] == [0, 2]
    run = lake.audit()
    assert failing(run) == {"GAP"} and ranges(findings(run, "GAP")) == {(0, 30, 60)}
    assert 1 in {f.batch_id for r in run.results if r.check == "checkpoint_commits" for f in r.findings}


def test_the_first_micro_batch_was_swallowed_and_spark_removed_its_plan(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(90)
    hook = lake.hook()
    lake.run(lambda frame, batch_id: hook(frame, batch_id) if batch_id else None, per_trigger=30)
    for batch_id in (0, 1):
        for name in (f"offsets/{batch_id}", f"commits/{batch_id}"):
            (lake.checkpoint / name).unlink()
    run = lake.audit()
    assert failing(run) == {"GAP"} and ranges(findings(run, "GAP")) == {(0, 0, 30)}


@pytest.mark.case(30, "NEW_EPOCH", "SKIPPED")
def test_30_a_lost_checkpoint_under_a_fixed_app_id(make_lake: MakeLake) -> None:
    lake = make_lake(sink={**WARN, "txn_app_id": "our-writer"})
    lake.produce(40)
    lake.run()
    lake.produce(20)
    lake.forget_checkpoint()
    with pytest.raises(StreamingQueryException, match="was SKIPPED"):
        lake.run(starting=at(lake, p0=40))
    assert len(lake.rows()) == 40
    run = lake.audit()
    assert findings(run, "NEW_EPOCH") and failing(run) == {"SKIPPED"}
    assert ranges(findings(run, "SKIPPED")) == {(0, 40, 60)}


@pytest.mark.case(31, "NEW_EPOCH", "SKIPPED")
def test_31_offsets_and_commits_deleted_with_metadata_kept(make_lake: MakeLake) -> None:
    lake = make_lake(sink={**WARN, "txn_app_id": "our-writer"})
    lake.produce(40)
    lake.run()
    lake.produce(20)
    for folder in ("offsets", "commits", "sources"):
        shutil.rmtree(lake.checkpoint / folder)
    with pytest.raises(StreamingQueryException, match="was SKIPPED"):
        lake.run(starting="earliest")
    assert {e.query_id for e in lake.entries()} == {json.loads((lake.checkpoint / "metadata").read_text())["id"]}
    run = lake.audit()
    assert findings(run, "NEW_EPOCH") and "SKIPPED" in failing(run)
    assert ranges(findings(run, "SKIPPED")) == {(0, 40, 60)}  # [0, 40) was read again, and is in the sink


@pytest.mark.case(31)
def test_31_recons_own_app_id_skips_nothing(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"trim_replayed_offsets": True})
    lake.produce(40)
    lake.run()
    lake.produce(20)
    for folder in ("offsets", "commits", "sources"):
        shutil.rmtree(lake.checkpoint / folder)
    lake.run(starting="earliest")
    assert lake.values() == [(0, o) for o in range(60)]
    assert [e.epoch for e in lake.entries()] == [0, 1]
    assert_complete(lake)


@pytest.mark.case(36, "INFLIGHT")
def test_36_what_is_not_read_yet_is_lag(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(40)
    lake.run()
    lake.produce(25)
    run = lake.audit()
    assert statuses(run)["kafka_end_offsets"] == "pass" and failing(run) == set()
    assert "25 offsets" in " ".join(f.message for f in findings(run, "INFLIGHT"))
    assert [p.lag for p in run.pipelines[0].sinks[0].partitions] == [25]


@pytest.mark.case(38, "MUTATED", "GAP")
def test_38_restore_takes_audited_rows_away(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(60)
    lake.run(per_trigger=20)
    lake.sql("RESTORE TABLE {table} TO VERSION AS OF 0")
    lake.produce(20)
    lake.run()  # a restart does not refill it
    assert len(lake.rows()) == 40
    run = lake.audit()
    assert failing(run) >= {"MUTATED", "GAP"}
    assert ranges(findings(run, "GAP")) == {(0, 20, 60)}


@pytest.mark.case(38, "MUTATED")
def test_38_an_overwrite(written: Lake) -> None:
    written.sql("INSERT OVERWRITE {table} SELECT * FROM {table}")
    assert "MUTATED" in failing(written.audit())


@pytest.mark.case(38, "MUTATED", "GAP")
def test_38_deleted_rows_are_a_gap_though_kafka_forgot_them_too(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(60)
    lake.run(per_trigger=20)
    lake.sql("DELETE FROM {table} WHERE _source_offset BETWEEN 25 AND 34")
    lake.kafka.delete_records({(lake.topic, 0): 60})
    run = lake.audit()
    assert "MUTATED" in failing(run) and "10 rows" in " ".join(f.message for f in findings(run, "MUTATED"))
    assert (0, 25, 35) in ranges(findings(run, "GAP")) and not findings(run, "INCONCLUSIVE", "LOSS_RETENTION")


def edit_ledger(lake: Lake, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    path = str(lake.path / "recon/ledger")
    table = pa.table(DeltaTable(path).scan())
    write_deltalake(path, pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema), mode="overwrite")


@pytest.mark.case(40, "TAMPERED")
def test_40_a_tampered_ledger(written: Lake) -> None:
    """An entry is edited, or one is not there any more; or a statement deletes one."""
    lake = written

    def more_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**r, "rows_written": r["rows_written"] + (r["batch_id"] == 1)} for r in rows]

    changes: tuple[Callable[[], Any], ...] = (
        lambda: edit_ledger(lake, more_rows),
        lambda: edit_ledger(lake, lambda rows: [r for r in rows if r["batch_id"] != 1]),
        lambda: DeltaTable(str(lake.path / "recon/ledger")).delete("batch_id = 2"),
    )
    shutil.copytree(lake.path / "recon", lake.path / "whole")
    for change in changes:
        change()
        run = lake.audit(keep=False)
        assert "TAMPERED" in failing(run) and statuses(run)["ledger_integrity"] == "fail"
        assert run.pipelines[0].answer == "not complete"
        shutil.rmtree(lake.path / "recon")
        shutil.copytree(lake.path / "whole", lake.path / "recon")
