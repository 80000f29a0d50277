"""What one look enters of a stream whose own function for foreachBatch writes, and what it leaves."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from recon.audits.run import run_audit
from recon.model import Level
from recon.project import Project, load
from tests.support.messages import same_message
from tests.support.native_stream import NativeStream
from tests.unit.observer.test_look import NAMED, YAML, answer, codes, entered, looked


@pytest.fixture
def stream(tmp_path: Path) -> NativeStream:
    return NativeStream(tmp_path / "checkpoint", tmp_path / "table", app_id="app").start({"t": {0: 0, 1: 5}})


def project_in(folder: Path, more: str = NAMED, rows: str = "filters: false") -> Project:
    text = YAML.format(more=f"txn_app_id: app\n        {more}", kafka="")
    text = text.replace("write: native", "write: foreach_batch").replace("filters: false", rows)
    (folder / "recon.yml").write_text(text)
    return load(folder)


def test_a_look_enters_every_micro_batch_once(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 10, 1: 9}})
    assert {entry.query_id for entry in looked(project).entered} == {stream.query_id}
    assert not looked(project).entered
    stream.batch({"t": {0: 12}})
    looked(project)
    assert entered(project) == [(0, 0, 0, 10), (0, 1, 1, 4), (0, 2, 2, 2)]


def test_commits_of_another_application_are_a_strangers(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    assert answer(run_audit(project, no_spark=True)) == "complete"
    stream.batch({"t": {0: 20}}, writes=False)
    stream.app_id = "another"
    stream.commit(1, [("t", 0, offset) for offset in range(10, 20)])
    run = run_audit(project, no_spark=True)
    assert [batch for _, batch, _, _ in entered(project)] == [0]
    assert answer(run) == "could not be proved" and "GAP" not in codes(run, Level.FAIL), "it may be the function's"
    assert any("version 1 (txn version 1 of app id another, " in f.message for r in run.results for f in r.findings)


def test_a_strangers_commit_after_the_next_plan_is_not_the_micro_batchs(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}}, writes=False)
    stream.batch({"t": {0: 30}})
    stream.app_id = "another"
    stream.commit(9, [("t", 0, offset) for offset in range(10, 20)])
    run = run_audit(project, no_spark=True)
    assert answer(run) == "not complete" and "GAP" in codes(run, Level.FAIL)
    assert not codes(run, Level.UNPROVED)


def test_a_commit_that_is_older_than_its_plan_is_of_an_earlier_query(stream: NativeStream, tmp_path: Path) -> None:
    """The checkpoint was lost: the new query's numbers begin at 0, and Delta takes them for those it has."""
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}})
    assert answer(run_audit(project, no_spark=True)) == "complete"
    old = stream.query_id
    for folder in ("offsets", "commits"):
        for file in (stream.checkpoint / folder).iterdir():
            file.unlink()
    stream.start({"t": {0: 20, 1: 5}})
    for end in (30, 40):
        stream.batch({"t": {0: end}}, writes=False)  # Delta has the numbers 0 and 1
    stream.batch({"t": {0: 50}})
    run = run_audit(project, no_spark=True)
    assert [(epoch, batch) for epoch, batch, _, _ in entered(project)] == [(0, 0), (0, 1), (1, 2)]
    assert old != stream.query_id and answer(run) == "not complete"
    assert {"GAP"} <= codes(run, Level.FAIL)
    assert answer(run_audit(project, no_spark=True)) == "not complete"


@pytest.mark.parametrize("rows", ["explodes: false", "filters: true"])
def test_a_micro_batch_without_a_commit_is_not_known_where_rows_may_be_filtered(
    stream: NativeStream, tmp_path: Path, rows: str
) -> None:
    project = project_in(tmp_path, rows=rows)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}}, writes=False)
    stream.batch({"t": {0: 30}})
    run = run_audit(project, no_spark=True)
    assert answer(run) == "could not be proved" and "GAP" not in codes(run, Level.FAIL)
    said = {f.message for r in run.results for f in r.findings if f.level is Level.UNPROVED}
    assert same_message("\n".join(sorted(said)))


def test_a_micro_batch_without_a_commit_is_a_gap_where_none_are_filtered(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}}, writes=False)
    stream.batch({"t": {0: 30}})
    run = run_audit(project, no_spark=True)
    assert answer(run) == "not complete" and "GAP" in codes(run, Level.FAIL)
    assert not codes(run, Level.UNPROVED)


@pytest.mark.parametrize("shift", [1, -1])
def test_numbers_that_are_no_batch_ids_prove_nothing(stream: NativeStream, tmp_path: Path, shift: int) -> None:
    project = project_in(tmp_path, "description: counts alone")
    for number, end in enumerate((10, 20, 30, 40)):
        at = stream.at
        stream.batch({"t": {0: end}}, writes=False)
        stream.at, later = at, stream.at
        if number + shift >= 0:
            stream.commit(number + shift, [("t", 0, offset) for offset in range(end - 10, end)])
        stream.at = later
    run = run_audit(project, no_spark=True)
    assert answer(run) != "complete" and not [batch for _, batch, _, _ in entered(project) if batch < 3], run.pipelines


def test_an_older_number_that_nobody_saw_is_unwitnessed(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    for end in (10, 20, 30):
        stream.batch({"t": {0: end}})
    stream.purge(0)
    found = looked(project)
    assert list(found.unseen) == [0, 1] and [e.batch_id for e in found.entered] == [2], "1 has lost its start, too"
    run = run_audit(project, no_spark=True)
    assert answer(run) == "complete" and "micro-batch 2" in run.pipelines[0].says


def test_a_function_that_replaces_rows_is_not_entered(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}}, writes=False)
    stream.commit(1, [("t", 0, offset) for offset in range(20)], mode="overwrite")
    found = looked(project)
    assert not found.entered and same_message(found.waits.replace(stream.query_id, "q"))
    assert answer(run_audit(project, no_spark=True)) != "complete"


@pytest.mark.parametrize("stranger", [True, False], ids=["another program's", "of an earlier query"])
def test_rows_from_before_the_first_entry_are_not_witnessed(
    stream: NativeStream, tmp_path: Path, stranger: bool
) -> None:
    """They may be of the records that are read after them: without Spark nobody compares them."""
    project = project_in(tmp_path)
    if stranger:
        stream.app_id = "a batch job"
        stream.commit(0, [("t", 0, offset) for offset in range(10)])
    else:
        stream.batch({"t": {0: 10, 1: 5}})
        shutil.rmtree(stream.checkpoint)
        stream.start({"t": {0: 0, 1: 5}})
    stream.app_id = "app"
    if not stranger:
        text = (tmp_path / "recon.yml").read_text()
        (tmp_path / "recon.yml").write_text(text.replace("txn_app_id: app", "txn_app_id: app-2"))
        project, stream.app_id = load(tmp_path), "app-2"
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}})
    run = run_audit(project, no_spark=True)
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL)
    assert "UNWITNESSED" in codes(run, Level.WARN)
    stream.batch({"t": {0: 30}})
    assert answer(run_audit(project, no_spark=True)) == "could not be proved", "and it stays so"


@pytest.mark.parametrize("declared", ["filters: false", "filters: true"])
def test_a_new_application_id_before_the_last_look_leaves_a_question(
    stream: NativeStream, tmp_path: Path, declared: str
) -> None:
    """A new checkpoint with a new id, and one micro-batch of the old that nobody had looked at."""
    project = project_in(tmp_path, rows=declared)
    stream.batch({"t": {0: 10, 1: 5}})
    assert answer(run_audit(project, no_spark=True)) == "complete"
    stream.batch({"t": {0: 20}})
    shutil.rmtree(stream.checkpoint)
    stream.start({"t": {0: 20, 1: 5}})
    text = (tmp_path / "recon.yml").read_text()
    (tmp_path / "recon.yml").write_text(text.replace("txn_app_id: app", "txn_app_id: app-2"))
    stream.app_id = "app-2"
    stream.batch({"t": {0: 30}})
    run = run_audit(load(tmp_path), no_spark=True)
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL) & {"GAP", "SKIPPED"}


def test_a_clock_of_the_table_that_is_behind_leaves_a_question(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    assert answer(run_audit(project, no_spark=True)) == "complete"
    stream.batch({"t": {0: 20}}, writes=False)
    stream.at -= timedelta(seconds=20)
    stream.commit(1, [("t", 0, offset) for offset in range(10, 20)])
    run = run_audit(project, no_spark=True)
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL), run.pipelines


@pytest.mark.parametrize("filtered", [True, False], ids=["filtered whole", "plan purged"])
def test_a_partition_that_appears_in_a_micro_batch_nobody_saw(
    stream: NativeStream, tmp_path: Path, filtered: bool
) -> None:
    project = project_in(tmp_path, rows="filters: true")
    stream.batch({"t": {0: 10, 1: 5}})
    looked(project)
    stream.batch({"t": {0: 10, 1: 5, 2: 5}}, writes=not filtered)
    stream.batch({"t": {2: 9}})
    stream.batch({"t": {2: 12}})
    if not filtered:
        stream.purge(0, 1)
    run = run_audit(project, no_spark=True)
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL), run.pipelines


def test_without_a_commit_that_fits_the_audit_says_what_was_looked_for(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.app_id = "misspelt"
    stream.batch({"t": {0: 10, 1: 5}})
    run = run_audit(project, no_spark=True)
    assert answer(run) == "could not be proved"
    assert "a txn with the txn_app_id that recon.yml names" in run.pipelines[0].because
