"""What one look enters of a stream that writes without recon, and what it leaves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from recon.audits.run import run_audit
from recon.base.errors import ConfigError, EvidenceError
from recon.model import Code, Level, RunResult
from recon.project import Project, load
from recon.write.hook import foreach_batch
from recon.write.ledger import open_ledger
from recon.write.observer import ObservationResult, look
from tests.support.messages import raises, same_message
from tests.support.native_stream import NativeStream

YAML = """
name: lake
ledger: ledger
{kafka}
pipelines:
  - name: p
    write: native
    checkpoint: checkpoint
    source: {{topics: [t]}}
    rows: {{filters: false}}
    sinks:
      - name: s
        target: table
        {more}
        data_tests: [ledger_integrity, offset_continuity, checkpoint_commits, delta_history, source_rows]
"""
NAMED = "source_columns: {topic: kafka_topic, partition: kafka_partition, offset: kafka_offset}"


@pytest.fixture
def stream(tmp_path: Path) -> NativeStream:
    return NativeStream(tmp_path / "checkpoint", tmp_path / "table").start({"t": {0: 0, 1: 5}})


def project_in(folder: Path, more: str = NAMED, kafka: str = "") -> Project:
    (folder / "recon.yml").write_text(YAML.format(more=more, kafka=kafka))
    return load(folder)


def asks(_: Any, question: Callable[[], Any]) -> Any:
    return question()


def looked(project: Project, ask: Any = asks) -> ObservationResult:
    return look(project, project.pipelines[0], open_ledger(project), ask)


def entered(project: Project) -> list[tuple[int, int, int | None, int | None]]:
    """(epoch, batch_id, version, rows) of every entry."""
    entries = open_ledger(project).entries("p", "s")
    return [(e.epoch, e.batch_id, e.sink_version, e.rows_written) for e in entries]


def answer(run: RunResult) -> str:
    return run.pipelines[0].answer


def codes(run: RunResult, level: Level) -> set[str]:
    return {str(f.code) for r in run.results for f in r.findings if f.level is level}


def test_a_look_enters_every_micro_batch_once(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 10, 1: 9}})
    found = looked(project)
    assert [(e.status, e.guarantee, e.rows_read, e.rows_filtered) for e in found.entered] == [
        ("observed", "observed", None, None)
    ] * 2
    assert [(s.partition, s.start_offset, s.end_offset) for e in found.entered for s in e.offsets if s.span.size] == [
        (0, 0, 10),
        (1, 5, 9),
    ]
    assert looked(project) == ObservationResult()
    stream.batch({"t": {0: 12}})
    looked(project)
    assert entered(project) == [(0, 0, 0, 10), (0, 1, 1, 4), (0, 2, 2, 2)]


@pytest.mark.parametrize("more", [NAMED, "description: counts alone"])
def test_an_audit_looks_first_and_says_that_it_observed(stream: NativeStream, tmp_path: Path, more: str) -> None:
    project = project_in(tmp_path, more)
    stream.batch({"t": {0: 10, 1: 5}})
    run = run_audit(project, no_spark=True)
    assert answer(run) == "complete", [(r.name, r.status, r.message) for r in run.results]
    assert same_message(run.pipelines[0].because) and same_message(run.notes[0])
    stream.batch({"t": {0: 20}})
    second = run_audit(project, no_spark=True)
    assert answer(second) == "complete" and not any("is observed" in note for note in second.notes)
    assert [batch for _, batch, _, _ in entered(project)] == [0, 1]


def test_without_a_broker_micro_batches_wait_for_the_ids_of_their_topics(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path, kafka="kafka: {bootstrap.servers: localhost:1}")

    def silent(_: Any, __: Callable[[], Any]) -> Any:
        raise EvidenceError("the broker does not answer")

    stream.batch({"t": {0: 10}})
    found = looked(project, silent)
    assert not found.entered and same_message(found.waits)
    for _ in range(50):
        stream.batch({"t": {0: stream.position["t"][0] + 1}})
    assert len(looked(project, silent).entered) == 51
    assert {span.topic_id for e in open_ledger(project).entries("p", "s") for span in e.offsets} == {None}


def test_a_micro_batch_whose_plan_is_gone_is_unseen(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10}})
    looked(project)
    for end in (20, 30, 40):
        stream.batch({"t": {0: end}})
    stream.purge(0, 1)
    found = looked(project)
    assert found.unseen == [1, 2] and [e.batch_id for e in found.entered] == [3]
    run = run_audit(project, no_spark=True)
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL)
    by_check = {r.check: r.message for r in run.results if r.status == "error"}
    assert same_message(by_check["offset_continuity"]) and same_message(by_check["delta_history"])


def test_a_swallowed_micro_batch_is_a_gap(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10}})
    stream.batch({"t": {0: 20}}, writes=False)
    stream.batch({"t": {0: 30}})
    run = run_audit(project, no_spark=True)
    assert answer(run) == "not complete" and codes(run, Level.FAIL) == {"GAP"}
    assert [batch for _, batch, _, _ in entered(project)] == [0, 2]


def test_a_micro_batch_in_progress_is_in_flight(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10}})
    stream.batch({"t": {0: 20}}, writes=False, commits=False)
    run = run_audit(project, no_spark=True)
    assert answer(run) in ("complete", "not complete") and "GAP" not in codes(run, Level.FAIL)


def test_a_new_checkpoint_begins_an_epoch(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10}})
    looked(project)
    stream.start({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 15}})
    looked(project)
    assert [(epoch, batch) for epoch, batch, _, _ in entered(project)] == [(0, 0), (1, 0)]


def test_rows_of_one_record_too_few_and_one_too_many(stream: NativeStream, tmp_path: Path) -> None:
    """A record is lost and another doubled: rows that carry their source show it, numbers of rows do not."""
    rows = [("t", 0, offset) for offset in (0, 1, 2, 2)]
    stream.batch({"t": {0: 4, 1: 5}}, rows)
    run = run_audit(project_in(tmp_path), no_spark=True)
    assert answer(run) != "complete"


def test_fewer_rows_than_records_without_a_broker_are_not_proved(stream: NativeStream, tmp_path: Path) -> None:
    stream.batch({"t": {0: 4, 1: 5}}, [("t", 0, 0), ("t", 0, 1)])
    run = run_audit(project_in(tmp_path, "description: counts alone"), no_spark=True)
    assert answer(run) == "could not be proved"


def test_a_query_that_replaces_the_table_is_not_entered(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 4}})
    stream.batch({"t": {0: 8}}, writes=False)
    stream.commit(1, [("t", 0, 7)], mode="overwrite")
    found = looked(project)
    assert not found.entered and same_message(found.waits.replace(str(tmp_path), "LAKE").replace(stream.query_id, "Q"))


def test_a_query_that_begins_to_replace_the_table_has_changed_rows(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 4}})
    assert answer(run_audit(project, no_spark=True)) == "complete"
    stream.batch({"t": {0: 8}}, writes=False)
    stream.commit(1, [("t", 0, 7)], mode="overwrite")
    run = run_audit(project, no_spark=True)
    assert answer(run) == "not complete" and "MUTATED" in codes(run, Level.FAIL)


def test_a_table_that_another_query_wrote(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 4}})
    wrote = stream.query_id
    other = NativeStream(tmp_path / "checkpoint", tmp_path / "elsewhere").start({"t": {0: 0}})
    said = looked(project).waits.replace(str(tmp_path), "LAKE").replace(wrote, "A").replace(other.query_id, "B")
    assert same_message(said)


def test_a_stranger_that_uses_the_querys_txn_is_not_its_micro_batch(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 4}})
    stream.batch({"t": {0: 8}}, writes=False)
    version = stream.commit(1, [])
    file = stream.table / "_delta_log" / f"{version:020d}.json"
    file.write_text(file.read_text().replace("STREAMING UPDATE", "WRITE"))
    run = run_audit(project, no_spark=True)
    assert answer(run) == "not complete" and codes(run, Level.FAIL) <= {"GAP", "SKIPPED"}


def test_an_audit_of_a_period_enters_nothing(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 4}})
    run_audit(project, no_spark=True)
    stream.batch({"t": {0: 8}})
    run = run_audit(project, no_spark=True, from_="24h")
    assert len(entered(project)) == 1 and not codes(run, Level.FAIL)
    run = run_audit(project, no_spark=True, keep=False)
    assert len(entered(project)) == 1 and not codes(run, Level.FAIL)


def test_a_later_period_does_not_take_entries_outside_it_for_unseen(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    for end in range(1, 9):
        stream.batch({"t": {0: end}})
    run_audit(project, no_spark=True)
    stream.purge(*range(7))
    middle = open_ledger(project).entries("p", "s")[4].committed_at
    run = run_audit(project, no_spark=True, to=middle)
    assert not codes(run, Level.FAIL) | codes(run, Level.UNPROVED), [(r.name, r.message) for r in run.results]


def test_the_hook_refuses_a_pipeline_that_it_does_not_write(tmp_path: Path) -> None:
    with raises(ConfigError):
        foreach_batch(project_in(tmp_path), pipeline="p")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("write: native", "write: natively"),
        ("name: s\n", "name: s\n        kind: delta_merge\n        keys: [k]\n"),
        ("name: s\n", "name: s\n        partition_by: [day]\n"),
        (
            "name: s\n        target: table\n",
            "name: s\n        target: table\n      - name: two\n        target: two\n",
        ),
        ("write: native", "write: recon"),
        ("write: native", "write: foreach_batch"),
        ("name: s\n", "name: s\n        txn_app_id: app\n"),
        ("topics: [t]}", "topics: [t, u]}"),
    ],
)
def test_bad_input(tmp_path: Path, old: str, new: str) -> None:
    named = "source_columns: {partition: kafka_partition, offset: kafka_offset}"
    text = YAML.format(more=named if "topics" in old or "recon" in new else "description: d", kafka="")
    assert old in text
    (tmp_path / "recon.yml").write_text(text.replace(old, new))
    with raises(ConfigError):
        load(tmp_path)


def test_a_checkpoint_that_cannot_be_read_fails_its_checks_alone(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 4}})
    looked(project)
    stream.batch({"t": {0: 8}})
    (stream.checkpoint / "offsets" / "1").write_text("v9\n{}\n")
    run = run_audit(project, no_spark=True)
    assert answer(run) == "could not be proved" and len(run.results) == 5
    assert json.dumps(run.notes)


def test_a_new_checkpoint_that_has_planned_its_first_micro_batch_is_in_flight(
    stream: NativeStream, tmp_path: Path
) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10}})
    assert answer(run_audit(project, no_spark=True)) == "complete"
    ends = {topic: dict(of) for topic, of in stream.position.items()}
    shutil.rmtree(stream.checkpoint)
    stream.start(ends)
    assert not codes(run_audit(project, no_spark=True), Level.FAIL)
    stream.batch({"t": {0: 12}}, writes=False, commits=False)
    assert not codes(run_audit(project, no_spark=True), Level.FAIL)
    stream.batch({"t": {0: 12}}, [("t", 0, 10), ("t", 0, 11)])
    assert answer(run_audit(project, no_spark=True)) == "complete"


def test_what_nobody_saw_stays_unknown_when_the_log_is_cleaned_up(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10}})
    looked(project)
    for end in (20, 30, 40):
        stream.batch({"t": {0: end}})
    stream.purge(0, 1)
    looked(project)
    table = DeltaTable(str(stream.table))
    table.create_checkpoint()
    for version in range(3):
        (stream.table / "_delta_log" / f"{version:020d}.json").unlink()
    run = run_audit(project, no_spark=True)
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL), [
        (r.name, r.message) for r in run.results
    ]


def test_a_query_that_makes_several_rows_of_a_record_proves_nothing_by_numbers(
    stream: NativeStream, tmp_path: Path
) -> None:
    stream.batch({"t": {0: 3, 1: 5}}, [("t", 0, 0), ("t", 0, 1), ("t", 0, 1)])
    (tmp_path / "recon.yml").write_text(
        YAML.format(more="description: counts alone", kafka="").replace("{filters: false}", "{explodes: true}")
    )
    assert answer(run_audit(load(tmp_path), no_spark=True)) == "could not be proved"


def test_columns_that_the_table_lacks_are_not_passed_over(stream: NativeStream, tmp_path: Path) -> None:
    stream.batch({"t": {0: 3, 1: 5}})
    project = project_in(tmp_path, NAMED.replace("kafka_offset", "kafka_ofset"))
    run = run_audit(project, no_spark=True)
    assert answer(run) == "could not be proved" and "kafka_ofset" in run.pipelines[0].because


def test_an_older_checkpoint_hides_no_micro_batch(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 3}})
    assert answer(run_audit(project, no_spark=True)) == "complete"
    stream.batch({"t": {0: 6}}, [("t", 0, 3)])
    stream.purge(1)
    run = run_audit(project, no_spark=True)
    assert answer(run) == "could not be proved" and "UNSTAMPED" not in codes(run, Level.WARN)


def test_rows_from_before_the_first_look_are_not_judged(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path, "description: counts alone")
    stream.batch({"t": {0: 10}})
    stream.batch({"t": {0: 20}})
    stream.purge(0)
    DeltaTable(str(stream.table)).delete("kafka_offset < 3")
    stream.batch({"t": {0: 30}})
    run = run_audit(project, no_spark=True)
    assert entered(project) == [(0, 2, 3, 10)]
    assert not codes(run, Level.FAIL) | codes(run, Level.UNPROVED), [(r.name, r.message) for r in run.results]


def test_taken_over_by_the_hook_without_a_last_look(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 3}})
    looked(project)
    stream.batch({"t": {0: 6}})
    text = (tmp_path / "recon.yml").read_text()
    text = text.replace("    write: native\n", "").replace(f"        {NAMED}\n", "")
    (tmp_path / "recon.yml").write_text(text)
    run = run_audit(load(tmp_path), no_spark=True)
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL), [
        (r.name, r.message) for r in run.results
    ]


def test_a_strangers_rows_between_two_micro_batches_hide_no_gap(stream: NativeStream, tmp_path: Path) -> None:
    """A commit of Spark's own sink names its query: one that names none is none of its micro-batches."""
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    run_audit(project, no_spark=True)
    stream.app_id = "a batch job"
    stream.commit(0, [("t", 0, 3)])
    stream.app_id = ""
    shutil.rmtree(stream.checkpoint)
    stream.start({"t": {0: 20, 1: 5}})
    stream.batch({"t": {0: 30}})
    run = run_audit(project, no_spark=True)
    assert answer(run) == "not complete" and "GAP" in codes(run, Level.FAIL)


def test_a_log_that_was_cleaned_up_since_makes_no_rows_from_before(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    fields = [("kafka_topic", "string"), ("kafka_partition", "integer"), ("kafka_offset", "long")]
    DeltaTable.create(str(stream.table), Schema([Field(name, PrimitiveType(kind)) for name, kind in fields]))
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}})
    assert run_audit(project, no_spark=True).pipelines[0].says == "complete"
    DeltaTable(str(stream.table)).create_checkpoint()
    (stream.table / "_delta_log" / f"{0:020d}.json").unlink()
    assert run_audit(project, no_spark=True, full=True).pipelines[0].says == "complete"
    shutil.rmtree(tmp_path / "ledger")
    stream.purge(0)
    fresh = run_audit(project, no_spark=True)
    assert "since micro-batch" in fresh.pipelines[0].says or answer(fresh) != "complete"


@pytest.mark.parametrize(("end", "says", "lost"), [(15, "complete", set()), (30, "not complete", {(20, 30)})])
def test_what_to_do_where_delta_drops_a_micro_batch_of_its_own_sink(
    stream: NativeStream, tmp_path: Path, end: int, says: str, lost: set[tuple[int, int]]
) -> None:
    project = project_in(tmp_path)
    for first in (10, 20):
        stream.batch({"t": {0: first}})
    run_audit(project, no_spark=True)
    stream.batch_id, stream.position = 1, {"t": {0: 10, 1: 5}}
    stream.batch({"t": {0: end}}, writes=False)
    run = run_audit(project, no_spark=True)
    found = [f for r in run.results for f in r.findings if f.code in {Code.SKIPPED, Code.STALE_CHECKPOINT}]
    assert found and answer(run) == says
    assert {(f.start_offset, f.end_offset) for f in found if f.code is Code.SKIPPED} == lost
    assert all("txnAppId" not in f.message for f in found)


def test_a_plan_that_is_gone_between_others_hides_its_neighbour_alone(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    for end in (10, 20, 30, 40, 50):
        stream.batch({"t": {0: end}})
    (stream.checkpoint / "offsets" / "2").unlink()
    run = run_audit(project, no_spark=True)
    assert answer(run) == "could not be proved"
    assert [batch_id for _, batch_id, *_ in entered(project)] == [0, 1, 4]


def test_an_empty_plan_leaves_the_others_judged(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    for end in (10, 20):
        stream.batch({"t": {0: end}})
    (stream.checkpoint / "offsets" / "2").write_bytes(b"")
    run = run_audit(project, no_spark=True)
    assert answer(run) == "could not be proved"
    (asked,) = (f for r in run.results for f in r.findings if f.level is Level.UNPROVED)
    assert asked.batch_id == 2 and "remove the file" in asked.message
    assert [batch_id for _, batch_id, *_ in entered(project)] == [0, 1]
