"""A witness that is missing or torn: status error with one sentence, never a pass."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable

from recon.project import CheckSpec, Project
from tests.cases.lake import EVIDENCE, Lake, findings, ranges, statuses
from tests.support.marks import long

MakeLake = Callable[..., Lake]


@pytest.fixture
def lake(written: Lake) -> Lake:
    return written


def messages(run: Any) -> str:
    return "\n".join(f"{r.check}: {r.message}" for r in run.results if r.status not in ("pass", "warn"))


def not_proved(run: Any) -> bool:
    return run.pipelines[0].answer == "could not be proved" and run.exit_code == 1


def test_no_ledger(lake: Lake) -> None:
    shutil.rmtree(lake.path / "recon")
    run = lake.audit()
    assert set(statuses(run).values()) == {"error"} and not_proved(run)
    assert "there is no ledger at" in messages(run)
    assert not (lake.path / "recon").exists(), "an audit of nothing leaves nothing behind"


def test_no_checkpoint(lake: Lake) -> None:
    lake.forget_checkpoint()
    run = lake.audit()
    assert statuses(run)["checkpoint_commits"] == "error" and not_proved(run)
    assert str(lake.checkpoint) in messages(run)


def test_no_table(lake: Lake) -> None:
    shutil.rmtree(lake.table)
    run = lake.audit()
    assert statuses(run)["delta_history"] in ("error", "fail") and run.exit_code == 1
    assert str(lake.table) in messages(run)


def test_no_broker(lake: Lake) -> None:
    whole = lake.project
    dead = whole.model_copy(update={"kafka": {"bootstrap.servers": "127.0.0.1:1"}})

    class Dead(Lake):
        @property
        def project(self) -> Project:
            return dead

    lake.__class__ = Dead
    run = lake.audit()
    assert statuses(run)["kafka_end_offsets"] == "error" and not_proved(run)
    assert "127.0.0.1:1" in messages(run)
    assert statuses(run)["offset_continuity"] == statuses(run)["delta_history"] == "pass"
    assert any("kafka could not be read" in note for note in run.notes)


def test_no_topic(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(10)
    lake.run()
    lake.kafka.delete_topic(lake.topic)
    run = lake.audit(keep=False)
    assert statuses(run)["kafka_end_offsets"] in ("error", "fail") and run.exit_code == 1
    assert lake.topic in messages(run)


@pytest.mark.long
@pytest.mark.parametrize("content", [b'v1\n{"batch', *long(b"", b"v9\n{}\n{}")])
def test_a_torn_checkpoint_file(lake: Lake, content: bytes) -> None:
    (lake.checkpoint / "offsets" / "1").write_bytes(content)
    run = lake.audit()
    assert statuses(run)["checkpoint_commits"] == "error" and not_proved(run)
    assert "offsets/1" in messages(run)


def test_a_torn_delta_log(lake: Lake) -> None:
    (lake.table / "_delta_log" / f"{1:020d}.json").write_text('{"commitInfo": {"times')
    run = lake.audit()
    assert statuses(run)["delta_history"] == "error" and run.exit_code == 1
    assert f"{1:020d}.json" in messages(run)


@pytest.mark.long
def test_a_deleted_commit_file(lake: Lake) -> None:
    (lake.table / "_delta_log" / f"{1:020d}.json").unlink()
    run = lake.audit()
    assert statuses(run)["delta_history"] in ("error", "fail") and run.exit_code == 1


def test_without_spark_nothing_that_needs_rows_passes(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"data_tests": tuple(CheckSpec(test=t) for t in EVIDENCE)})
    lake.kafka.transaction(lake.topic, [("k", "v", 0)] * 10)
    lake.run()
    run = lake.audit(no_spark=True)
    # The transaction's marker leaves a hole that only the rows and Kafka can explain.
    assert statuses(run)["source_rows"] == "skipped" and run.pipelines[0].answer == "could not be proved"
    assert run.exit_code == 0
    assert "--no-spark" in messages(run)


def test_without_spark_the_data_files_show_the_rows_among_transactions(make_lake: MakeLake) -> None:
    lake = make_lake(
        sink={"data_tests": tuple(CheckSpec(test=t) for t in EVIDENCE)}, isolation_level="read_committed", partitions=2
    )
    for end in ("commit", "abort"):
        lake.kafka.transaction(lake.topic, [("k", "v", p) for p in (0, 1) for _ in range(10)], end)
        lake.run()
    run = lake.audit(no_spark=True)
    assert (run.pipelines[0].answer, statuses(run)["source_rows"]) == ("complete", "pass"), messages(run)
    # In a micro-batch that counts do not prove, a record that nobody took in is named.
    hook = lake.hook()
    lake.kafka.transaction(lake.topic, [("k", "v", p) for p in (0, 1) for _ in range(10)])
    lake.run(lambda frame, batch_id: hook(frame.where("NOT (partition = 1 AND offset = 24)"), batch_id))
    run = lake.audit(no_spark=True)
    assert run.pipelines[0].answer == "not complete" and ranges(findings(run, "GAP")) == {(1, 24, 25)}
    # Whoever deletes rows puts those of all micro-batches in question.
    DeltaTable(str(lake.table)).delete("_source_offset = 3")
    run = lake.audit(no_spark=True)
    assert run.pipelines[0].answer == "not complete" and findings(run, "MUTATED")


def test_fail_fast_skips_the_rest(lake: Lake) -> None:
    shutil.rmtree(lake.path / "recon")
    run = lake.audit(fail_fast=True)
    assert [r.status for r in run.results] == ["error"] + ["skipped"] * (len(run.results) - 1)


@pytest.mark.long
def test_one_checks_error_leaves_the_others(lake: Lake) -> None:
    lake.sink = {
        "data_tests": (
            CheckSpec(test="unique", arguments={"column_name": "nope"}),
            CheckSpec(test="not_null", arguments={"column_name": "value"}),
        )
    }
    run = lake.audit()
    by_check = statuses(run)
    assert by_check["unique"] == "error" and by_check["not_null"] == "pass"
    assert "nope" in messages(run)
