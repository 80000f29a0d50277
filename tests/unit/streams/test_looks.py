"""The listener of a driver whose query writes without recon enters its micro-batches, and never holds it up."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recon.audits.run import run_audit
from recon.project import Project, load
from recon.write.ledger import open_ledger
from recon.write.observer import ObservationResult
from recon.write.streams import looks
from recon.write.streams.listener import ProgressListener
from tests.support.native_stream import NativeStream

YAML = """
name: lake
ledger: ledger
pipelines:
  - name: p
    write: {write}
    checkpoint: checkpoint
    source: {{topics: [t]}}
    sinks:
      - name: s
        target: table
        data_tests: [ledger_integrity, offset_continuity, checkpoint_commits, delta_history, source_rows]
"""


@pytest.fixture
def stream(tmp_path: Path) -> NativeStream:
    return NativeStream(tmp_path / "checkpoint", tmp_path / "table").start({"t": {0: 0}})


def project_in(folder: Path, write: str = "native") -> Project:
    (folder / "recon.yml").write_text(YAML.format(write=write))
    return load(folder)


class Driver:
    """Spark's side: runs micro-batches of the stream and tells the listener."""

    def __init__(self, stream: NativeStream, listener: ProgressListener) -> None:
        self.stream, self.listener = stream, listener

    def batch(self, rows: int = 5) -> None:
        end = self.stream.position["t"][0] + rows
        number = self.stream.batch({"t": {0: end}})
        progress = {
            "id": self.stream.query_id,
            "runId": "r",
            "name": None,
            "batchId": number,
            "timestamp": "2026-11-25T10:00:00.000Z",
            "numInputRows": rows,
            "durationMs": {"addBatch": 1, "triggerExecution": 2},
            "sources": [],
            "stateOperators": [],
            "sink": {"description": "DeltaSink", "numOutputRows": -1},
        }
        self.listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress))))  # type: ignore[arg-type]
        self.listener.looks.wait(30)

    def end(self) -> None:
        event: Any = SimpleNamespace(id=self.stream.query_id, runId="r", exception=None)
        self.listener.onQueryTerminated(event)
        self.listener.looks.wait(30)


def entered(project: Project) -> list[int]:
    return [entry.batch_id for entry in open_ledger(project).entries("p", "s")]


def test_micro_batches_are_entered_at_the_first_one_then_together(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    stream.batch({"t": {0: 7}})  # before the listener was there
    driver = Driver(stream, ProgressListener(project, every=3, seconds=3600))
    driver.batch()
    assert entered(project) == [0, 1]
    driver.batch()
    driver.batch()
    assert entered(project) == [0, 1]
    driver.batch()
    assert entered(project) == [0, 1, 2, 3, 4]
    driver.batch()
    driver.end()
    assert entered(project) == [0, 1, 2, 3, 4, 5]
    assert {entry.status for entry in open_ledger(project).entries("p", "s")} == {"observed"}


def test_they_are_entered_when_the_first_has_waited_long(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    driver = Driver(stream, ProgressListener(project, every=1000, seconds=0))
    driver.batch()
    driver.batch()
    assert entered(project) == [0, 1]


def test_spark_removes_plans_and_nothing_is_lost(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path)
    driver = Driver(stream, ProgressListener(project, seconds=3600))
    for number in range(130):
        driver.batch(rows=1)
        if number >= 100:
            stream.purge(number - 100)
    driver.end()
    assert entered(project) == list(range(130))
    run = run_audit(project)
    assert run.pipelines[0].answer == "complete" and run.pipelines[0].sinks[0].batches == 130


def test_a_pipeline_that_recon_writes_is_left_to_the_hook(stream: NativeStream, tmp_path: Path) -> None:
    project = project_in(tmp_path, write="recon")
    driver = Driver(stream, ProgressListener(project, every=1))
    driver.batch()
    driver.end()
    assert entered(project) == [] and not (tmp_path / "ledger/ledger").exists()


def test_what_a_look_cannot_enter_is_said_once(stream: NativeStream, tmp_path: Path, caplog: Any) -> None:
    project = project_in(tmp_path)
    driver = Driver(stream, ProgressListener(project, every=1))
    driver.batch()
    stream.commit(stream.batch_id, [("t", 0, 5)], mode="overwrite")
    driver.batch()
    driver.batch()
    said = [record.message for record in caplog.records if "replaced rows" in record.message]
    assert len(said) == 1 and said[0].startswith("pipeline p: micro-batch"), caplog.text


def test_an_error_of_a_look_is_logged_once_and_the_next_look_goes_on(
    stream: NativeStream, tmp_path: Path, caplog: Any
) -> None:
    project = project_in(tmp_path)
    driver = Driver(stream, ProgressListener(project, every=1))
    beginning = stream.checkpoint / "sources/0/0"
    whole = beginning.read_bytes()
    beginning.write_text("torn")
    driver.batch()
    driver.batch()
    (said,) = (r.message for r in caplog.records if "not entered" in r.message)
    assert said.startswith(
        "micro-batches are not entered in the ledger for now; further errors of this kind are not logged: EvidenceError"
    )
    beginning.write_bytes(whole)
    driver.batch()
    assert entered(project) == [0, 1, 2]


def test_a_slow_look_holds_up_neither_the_query_nor_its_progress(
    stream: NativeStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project_in(tmp_path)
    listener = ProgressListener(project, every=1)
    driver = Driver(stream, listener)
    real, goes_on, began = looks.look, threading.Event(), threading.Event()

    def slow(*args: Any) -> ObservationResult:
        began.set()
        goes_on.wait(30)
        return real(*args)

    monkeypatch.setattr(looks, "look", slow)
    monkeypatch.setattr(listener.looks, "wait", lambda _: None)
    driver.batch()
    assert began.wait(30)
    driver.batch()  # returns while the look waits
    driver.batch()
    assert entered(project) == []
    goes_on.set()
    monkeypatch.undo()
    listener.looks.wait(30)
    assert entered(project) == [0, 1, 2]


def test_a_query_that_writes_two_tables_has_both_pipelines_looked_at(stream: NativeStream, tmp_path: Path) -> None:
    first = YAML.format(write="native")
    second = first[first.index("  - name: p") :].replace("- name: p", "- name: q")
    (tmp_path / "recon.yml").write_text(first + second)
    project = load(tmp_path)
    driver = Driver(stream, ProgressListener(project, every=1))
    for _ in range(3):
        driver.batch()
    of = {name: [entry.batch_id for entry in open_ledger(project).entries(name, "s")] for name in ("p", "q")}
    assert of == {"p": [0, 1, 2], "q": [0, 1, 2]}
