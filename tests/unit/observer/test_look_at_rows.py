"""A function for foreachBatch that puts no number on its commits: their rows say which micro-batch they are of."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from recon import explain
from recon.audits.run import run_audit
from recon.base.errors import ConfigError
from recon.model import Level, RunResult
from recon.project import Project, load
from recon.witness import commit_rows
from tests.support.messages import raises, same_message
from tests.support.native_stream import NativeStream
from tests.unit.observer.test_look import NAMED, YAML, answer, codes, entered, looked

Rows = list[tuple[str, int, int]]


@pytest.fixture
def stream(tmp_path: Path) -> NativeStream:
    made = NativeStream(tmp_path / "checkpoint", tmp_path / "table", app_id="app", numbered=False)
    return made.start({"t": {0: 0, 1: 5}})


def project_in(folder: Path, more: str = NAMED, rows: str = "filters: false") -> Project:
    text = YAML.format(more=more, kafka="").replace("write: native", "write: foreach_batch")
    (folder / "recon.yml").write_text(text.replace("filters: false", rows))
    return load(folder)


def of(offsets: Iterable[int], topic: str = "t") -> Rows:
    return [(topic, 0, offset) for offset in offsets]


def audited(project: Project) -> RunResult:
    return run_audit(project, no_spark=True)


def messages(run: RunResult, level: Level) -> str:
    said = "\n".join(sorted(f.message for r in run.results for f in r.findings if f.level is level))
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "<time>", said)


def test_each_commit_is_entered_once(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 10, 1: 9}})
    assert {entry.query_id for entry in looked(project).entered} == {stream.query_id}
    assert looked(project) == looked(project) and not looked(project).waits
    stream.batch({"t": {0: 12}})
    assert answer(audited(project)) == "complete"
    assert entered(project) == [(0, 0, 0, 10), (0, 1, 1, 4), (0, 2, 2, 2)]
    assert answer(audited(project)) == "complete" and len(entered(project)) == 3
    assert answer(run_audit(project, no_spark=True, full=True)) == "complete"


def test_a_micro_batch_that_was_tried_again_is_doubled(stream: NativeStream, tmp_path: Path) -> None:
    """The driver died behind the write; Spark gives the function the micro-batch again."""
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}}, commits=False)
    between = audited(project)
    assert [batch for _, batch, _, _ in entered(project)] == [0], "Spark will write it once more"
    assert answer(between) == "complete" and "to 0 is" in between.pipelines[0].because
    stream.commit(1, of(range(10, 20)))  # the plan stays the one of the first attempt
    (stream.checkpoint / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    stream.batch_id, stream.at = 2, stream.at + timedelta(seconds=10)
    stream.batch({"t": {0: 30}})
    run = audited(project)
    assert answer(run) == "not complete" and "DUPLICATE" in codes(run, Level.FAIL), messages(run, Level.FAIL)
    assert [batch for _, batch, _, _ in entered(project)] == [0, 1, 2]
    assert "wrote the same ranges 2 times" in messages(run, Level.FAIL)
    assert answer(audited(project)) == "not complete", "and it stays so"


@pytest.mark.parametrize("looked_between", [True, False])
def test_what_an_unfinished_micro_batch_wrote_is_doubled_by_a_new_checkpoint(
    stream: NativeStream, tmp_path: Path, looked_between: bool
) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    assert answer(audited(project)) == "complete"
    stream.batch({"t": {0: 20}}, commits=False)
    if looked_between:
        assert answer(audited(project)) == "complete"
    shutil.rmtree(stream.checkpoint)
    stream.start({"t": {0: 10, 1: 5}})
    stream.at += timedelta(seconds=30)
    stream.batch({"t": {0: 20}})
    run = audited(project)
    assert answer(run) != "complete", "the rows of 10 to 20 are there twice"
    stream.batch({"t": {0: 30}})
    assert answer(audited(project)) != "complete"


def test_explain_says_that_a_retry_writes_again(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}}, commits=False)
    looked(project)
    explained = explain(project, "p")
    assert (explained.next, explained.sinks[0].action) == ("replay", "write")
    assert same_message(explained.sinks[0].sentence)


def test_a_swallowed_failure_is_a_gap(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}}, writes=False)
    stream.batch({"t": {0: 30}})
    run = audited(project)
    assert answer(run) == "not complete" and "GAP" in codes(run, Level.FAIL)


@pytest.mark.parametrize("rows", ["explodes: false", "filters: true"])
def test_a_micro_batch_without_rows_is_not_known_where_some_may_be_filtered(
    stream: NativeStream, tmp_path: Path, rows: str
) -> None:
    project = project_in(tmp_path, rows=rows)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}}, writes=False)
    stream.batch({"t": {0: 30}})
    run = audited(project)
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL)


def test_rows_of_other_offsets_are_a_strangers(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    assert answer(audited(project)) == "complete"
    stream.batch({"t": {0: 20}}, writes=False)
    stream.commit(1, of(range(30, 40)))
    run = audited(project)
    assert [batch for _, batch, _, _ in entered(project)] == [0]
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL)
    assert same_message(messages(run, Level.UNPROVED))


@pytest.mark.parametrize("late", [True, False], ids=["after the next plan", "before its plan"])
def test_rows_that_come_at_another_time_are_not_taken_for_the_micro_batchs(
    stream: NativeStream, tmp_path: Path, late: bool
) -> None:
    """Somebody copied them there, or an earlier query did."""
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    if not late:
        stream.commit(1, of(range(10, 20)))
        stream.at += timedelta(seconds=20)
    stream.batch({"t": {0: 20}}, writes=False)
    stream.batch({"t": {0: 30}})
    if late:
        stream.commit(1, of(range(10, 20)))
    run = audited(project)
    assert answer(run) == "could not be proved", messages(run, Level.FAIL)
    assert [batch for _, batch, _, _ in entered(project)] == [0, 2]


def test_several_appends_of_a_micro_batch_prove_nothing_of_it(stream: NativeStream, tmp_path: Path) -> None:
    """Each is a part of it: which were its last is not known."""
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}}, rows=of(range(10, 20, 2)))
    stream.at -= timedelta(seconds=9)
    stream.commit(1, of(range(11, 20, 2)))
    stream.at += timedelta(seconds=9)
    stream.batch({"t": {0: 30}})
    found = looked(project)
    assert [entry.batch_id for entry in found.entered] == [0, 2]
    assert same_message(found.waits.replace(str(tmp_path), ""))
    run = audited(project)
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL), messages(run, Level.FAIL)


def test_a_function_that_overwrites_the_table_is_not_entered(stream: NativeStream, tmp_path: Path) -> None:
    """The rows of its newest micro-batch are in the table: nothing says to read them again."""
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}}, writes=False)
    stream.at -= timedelta(seconds=9)
    stream.commit(1, of(range(10, 20)), mode="overwrite")
    run = audited(project)
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL), messages(run, Level.FAIL)
    assert not looked(project).entered and "replaced rows" in looked(project).waits


def test_rows_without_a_source_are_not_taken_for_a_micro_batchs(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path, "source_columns: {topic: kafka_topic, partition: kafka_partition, offset: position}")
    stream.batch({"t": {0: 10, 1: 5}})
    found = looked(project)
    assert not found.entered and same_message(found.waits.replace(str(tmp_path), ""))
    run = audited(project)
    assert answer(run) == "could not be proved"
    assert "data files have no position" in run.pipelines[0].because


def test_rows_that_cannot_be_read_now_wait(
    stream: NativeStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}})
    stream.batch({"t": {0: 30}})
    real = commit_rows.source_columns
    broken = {1}

    def read(storage: object, path: str, action: object, *rest: object) -> object:
        if broken and _version_of(tmp_path / "table", path) in broken:
            raise OSError("the store is away")
        return real(storage, path, action, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(commit_rows, "source_columns", read)
    found = looked(project)
    assert [entry.batch_id for entry in found.entered] == [0] and "the store is away" in found.waits
    assert answer(audited(project)) == "could not be proved"
    broken.clear()
    run = audited(project)
    assert [batch for _, batch, _, _ in entered(project)] == [0, 1, 2]
    assert answer(run) == "complete", run.pipelines[0].says


def test_after_a_lost_checkpoint_what_is_read_again_is_doubled(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}})
    assert answer(audited(project)) == "complete"
    shutil.rmtree(stream.checkpoint)
    stream.start({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 30}})
    run = audited(project)
    assert answer(run) == "not complete" and "OVERLAP" in codes(run, Level.FAIL)
    assert [(epoch, batch) for epoch, batch, _, _ in entered(project)] == [(0, 0), (0, 1), (1, 0)]


def test_after_a_lost_checkpoint_that_goes_on(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    assert answer(audited(project)) == "complete"
    shutil.rmtree(stream.checkpoint)
    stream.start({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 30}})
    assert answer(audited(project)) == "complete"
    assert [(epoch, batch) for epoch, batch, _, _ in entered(project)] == [(0, 0), (1, 0)]


def test_a_micro_batch_that_nobody_saw_is_not_known(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    assert answer(audited(project)) == "complete"
    for end in (20, 30, 40):
        stream.batch({"t": {0: end}})
    stream.purge(0, 1)
    run = audited(project)
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL), messages(run, Level.FAIL)


def test_rows_from_before_the_first_entry_are_not_witnessed(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    for end in (10, 20, 30):
        stream.batch({"t": {0: end, 1: 5}})
    stream.purge(0)
    run = audited(project)
    assert [batch for _, batch, _, _ in entered(project)] == [2], "1 has lost its start, too"
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL), "their rows were not compared"
    assert "UNWITNESSED" in codes(run, Level.WARN)


def test_another_topic_in_the_same_columns_is_not_taken_where_the_topic_is_named(
    stream: NativeStream, tmp_path: Path
) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}}, writes=False)
    stream.at -= timedelta(seconds=9)
    stream.commit(1, of(range(10, 20), topic="another"))
    stream.at += timedelta(seconds=9)
    stream.batch({"t": {0: 30}})
    run = audited(project)
    assert [batch for _, batch, _, _ in entered(project)] == [0, 2]
    assert answer(run) == "could not be proved"


def test_fewer_rows_than_records(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}}, rows=of(range(9)))
    run = audited(project)
    assert answer(run) != "complete"


def test_nothing_that_says_of_which_micro_batch_a_commit_is_is_refused(tmp_path: Path) -> None:
    with raises(ConfigError):
        project_in(tmp_path, "description: nothing")


def _version_of(table: Path, path: str) -> int | None:
    name = path.rpartition("/")[2]
    for file in sorted((table / "_delta_log").glob("*.json")):
        if name in file.read_text():
            return int(file.stem)
    return None


# -- what an outsider found --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbered", [True, False], ids=["native", "rows"])
@pytest.mark.parametrize("start", ["known", "lost"])
def test_rows_from_before_a_first_micro_batch_that_read_nothing(tmp_path: Path, numbered: bool, start: str) -> None:
    """A checkpoint that is lost before the first audit, and begins with a trigger that finds no records."""
    app = "" if numbered else "app"
    stream = NativeStream(tmp_path / "checkpoint", tmp_path / "table", app_id=app, numbered=numbered).start(
        {"t": {0: 0}}
    )
    stream.batch({"t": {0: 20}})
    shutil.rmtree(stream.checkpoint)
    stream.start({"t": {0: 0}})
    stream.batch({"t": {0: 0}}, writes=False)
    for end in (10, 20):
        stream.batch({"t": {0: end}})
    if start == "lost":
        (stream.checkpoint / "sources/0/0").unlink()
    project = project_in(tmp_path)
    if numbered:
        text = (tmp_path / "recon.yml").read_text().replace("write: foreach_batch", "write: native")
        (tmp_path / "recon.yml").write_text(text)
        project = load(tmp_path)
    run = audited(project)
    assert "UNWITNESSED" in codes(run, Level.WARN), (run.pipelines[0].because, messages(run, Level.WARN))


def test_a_table_that_was_made_anew_is_read_from_its_begin(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    for end in (10, 20, 30):
        stream.batch({"t": {0: end, 1: 5}})
    assert answer(audited(project)) == "complete"
    shutil.rmtree(stream.table)
    for end in (40, 50, 60, 70):
        stream.batch({"t": {0: end}})
    run = audited(project)
    assert [batch for _, batch, _, _ in entered(project)] == list(range(7))
    gaps = {(f.partition, f.start_offset, f.end_offset) for r in run.results for f in r.findings if f.code == "GAP"}
    assert answer(run) == "not complete" and gaps == {(0, 0, 30)}, messages(run, Level.FAIL)


def test_a_table_that_was_put_back_from_a_copy(stream: NativeStream, tmp_path: Path) -> None:
    """Versions 3 and 4 are those of other micro-batches then: what is gone is named, and what is there is not."""
    project = project_in(tmp_path)
    for end in (10, 20, 30):
        stream.batch({"t": {0: end, 1: 5}})
    shutil.copytree(stream.table, tmp_path / "copy")
    for end in (40, 50):
        stream.batch({"t": {0: end}})
    assert answer(audited(project)) == "complete"
    shutil.rmtree(stream.table)
    shutil.copytree(tmp_path / "copy", stream.table)
    for end in (60, 70):
        stream.batch({"t": {0: end}})
    run = audited(project)
    assert [(batch, version) for _, batch, version, _ in entered(project)][-2:] == [(5, 3), (6, 4)]
    gaps = {(f.start_offset, f.end_offset) for r in run.results for f in r.findings if f.code == "GAP"}
    assert answer(run) == "not complete" and not gaps & {(50, 60), (60, 70), (50, 70)}, messages(run, Level.FAIL)


def test_a_partition_that_is_new_in_a_micro_batch_nobody_saw_before_a_new_checkpoint(
    stream: NativeStream, tmp_path: Path
) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    assert answer(audited(project)) == "complete"
    stream.batch({"t": {0: 20, 2: 5}})
    shutil.rmtree(stream.checkpoint)
    stream.start({"t": {0: 20, 1: 5, 2: 5}})
    stream.batch({"t": {0: 30, 2: 9}})
    run = audited(project)
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL), messages(run, Level.FAIL)


@pytest.mark.parametrize("first", ["empty", "unfinished"])
def test_a_new_checkpoint_behind_micro_batches_that_nobody_saw(
    stream: NativeStream, tmp_path: Path, first: str
) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    assert answer(audited(project)) == "complete"
    stream.batch({"t": {0: 20}})
    shutil.rmtree(stream.checkpoint)
    stream.start({"t": {0: 20, 1: 5}})
    stream.batch({"t": {0: 20 if first == "empty" else 30}}, writes=False, commits=first == "empty")
    run = audited(project)
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL), messages(run, Level.FAIL)


def test_what_an_unfinished_micro_batch_wrote_is_taken_back_before_it_is_tried_again(
    stream: NativeStream, tmp_path: Path
) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}}, commits=False)
    assert answer(audited(project)) == "complete"
    DeltaTable(str(stream.table)).restore(0)
    stream.commit(1, of(range(10, 20)))
    (stream.checkpoint / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    stream.batch_id, stream.at = 2, stream.at + timedelta(seconds=10)
    stream.batch({"t": {0: 30}})
    run = audited(project)
    assert [(batch, version) for _, batch, version, _ in entered(project)] == [(0, 0), (1, 3), (2, 4)]
    assert not codes(run, Level.FAIL) and "changed rows" in run.pipelines[0].because, "the rows must be read"


def test_two_appends_of_several_rows_of_each_record_are_not_doubled(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path, rows="explodes: true")
    stream.batch({"t": {0: 10, 1: 5}}, commits=False)
    stream.commit(0, of(range(10)))
    (stream.checkpoint / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    run = audited(project)
    assert answer(run) == "could not be proved" and not codes(run, Level.FAIL), messages(run, Level.FAIL)


def test_an_offset_that_is_no_number_holds_up_nothing(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 10, 1: 5}})
    stream.batch({"t": {0: 20}}, writes=False)
    columns = {"kafka_topic": ["t"], "kafka_partition": pa.array([0], pa.int32()), "kafka_offset": ["seventeen"]}
    write_deltalake(str(tmp_path / "other"), pa.table(columns))
    version = stream.commit(1, of([10]))
    [file] = [f for f in stream.table.glob("*.parquet") if _version_of(stream.table, f.name) == version]
    shutil.copy(next((tmp_path / "other").glob("*.parquet")), file)
    stream.batch({"t": {0: 30}})
    found = looked(project)
    assert [entry.batch_id for entry in found.entered] == [0, 2] and "was taken for no micro-batch" in found.waits


def test_columns_that_are_the_same_are_refused(tmp_path: Path) -> None:
    with raises(ConfigError):
        project_in(tmp_path, "source_columns: {partition: kafka_offset, offset: kafka_offset}")
