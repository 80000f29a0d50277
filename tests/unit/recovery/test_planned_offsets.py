"""`recon offsets` of a stream that the ledger does not know: from its checkpoint, and what that does not prove."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recon.base.errors import ConfigError
from recon.project import DeltaSink, Project
from recon.recovery.starting_offsets import starting_offsets
from recon.write.ledger import open_ledger
from tests.support.ledger_entries import entry
from tests.support.messages import raises, same_message
from tests.unit.cli.test_cli import Ended, project, recon  # noqa: F401
from tests.unit.evidence.test_checkpoint_files import Checkpoint
from tests.unit.recovery.test_starting_offsets import project_of, span


@pytest.fixture
def of_stream(tmp_path: Path) -> Project:
    return project_of(tmp_path, DeltaSink(name="orders", target="orders"))


@pytest.fixture
def made(tmp_path: Path) -> Checkpoint:
    """A checkpoint of three micro-batches, of which two are finished."""
    checkpoint = Checkpoint(tmp_path / "cp")
    checkpoint.initial({"orders": {"0": 5, "1": 0}})
    for batch_id, ends in enumerate([(10, 4), (20, 4), (30, 8)]):
        checkpoint.planned(batch_id, {"orders": dict(zip("01", ends, strict=True))})
    checkpoint.committed(0)
    checkpoint.committed(1)
    return checkpoint


def answered(of_stream: Project, caplog: pytest.LogCaptureFixture) -> Any:
    """What is answered; the warnings are the golden ones."""
    with caplog.at_level(logging.WARNING, logger="recon"):
        offsets = json.loads(starting_offsets(of_stream, "orders"))
    assert caplog.messages and all(same_message(message) for message in caplog.messages)
    return offsets


def test_the_last_finished_micro_batch(of_stream: Project, made: Checkpoint, caplog: pytest.LogCaptureFixture) -> None:
    made.committed(2)
    assert answered(of_stream, caplog) == {"orders": {"0": 30, "1": 8}}


def test_a_micro_batch_that_was_not_finished(
    of_stream: Project, made: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    assert answered(of_stream, caplog) == {"orders": {"0": 20, "1": 4}}


def test_the_first_micro_batch_was_not_finished(
    of_stream: Project, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = Checkpoint(tmp_path / "cp")
    checkpoint.initial({"orders": {"0": 5}})
    checkpoint.planned(0, {"orders": {"0": 10, "1": 4}})
    assert answered(of_stream, caplog) == {"orders": {"0": 5, "1": -2}}, "partition 1 begins at its log start"


def test_nothing_is_known_but_an_end(of_stream: Project, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Checkpoint(tmp_path / "cp").planned(41, {"orders": {"0": 10}})
    assert answered(of_stream, caplog) == {"orders": {"0": 10}}


def test_the_oldest_micro_batch_that_is_left(
    of_stream: Project, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = Checkpoint(tmp_path / "cp")
    checkpoint.planned(41, {"orders": {"0": 10}}, "-")
    checkpoint.committed(41)
    assert answered(of_stream, caplog) == {"orders": {"0": 10}}


def test_a_lost_commit_file_is_said(of_stream: Project, made: Checkpoint, caplog: pytest.LogCaptureFixture) -> None:
    made.committed(2)
    (made.folder / "commits/0").unlink()
    assert answered(of_stream, caplog) == {"orders": {"0": 30, "1": 8}}


def test_what_a_sinks_own_record_has_comes_first(of_stream: Project, made: Checkpoint) -> None:
    from tests.unit.recovery.test_starting_offsets import Table

    Table(of_stream.project_dir).write(0, 5, 12, entered=False)
    assert json.loads(starting_offsets(of_stream, "orders")) == {"orders": {"0": 12}}


def test_another_sink_that_the_ledger_knows(tmp_path: Path, made: Checkpoint) -> None:
    both = project_of(tmp_path, DeltaSink(name="orders", target="orders"))
    pipeline = both.pipelines[0]
    sinks = (*pipeline.sinks, DeltaSink(name="copy", target="copy"))
    both = both.model_copy(update={"pipelines": (pipeline.model_copy(update={"sinks": sinks}),)})
    open_ledger(both).append(entry(sink_version=None, offsets=(span(0, 7),)))
    with raises(ConfigError):
        starting_offsets(both, "orders", "copy")


@pytest.mark.parametrize("there", ["nothing", "metadata alone", "sources that are others", "a topic twice"])
def test_no_answer(of_stream: Project, tmp_path: Path, there: str) -> None:
    if there != "nothing":
        checkpoint = Checkpoint(tmp_path / "cp")
        if there == "sources that are others":
            checkpoint.planned(0, {"seqNum": 7})
        if there == "a topic twice":
            checkpoint.planned(0, {"orders": {"0": 10}}, {"orders": {"1": 4}})
            checkpoint.committed(0)
            for source in (0, 1):
                checkpoint.initial({"orders": {str(source): 0}}, source)
    with raises(ConfigError):
        starting_offsets(of_stream, "orders")


def test_the_command_line(
    project: Path,  # noqa: F811
    recon: Callable[..., Ended],  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended = recon("offsets", "--pipeline", "orders")
    assert (ended.code, ended.out) == (2, "") and same_message(ended.err)
    text = (project / "recon.yml").read_text()
    where = next(line.split(":")[1].strip() for line in text.splitlines() if "checkpoint:" in line)
    checkpoint = Checkpoint(project / where)
    checkpoint.planned(0, {"orders": {"0": 10}})
    (project / where / "offsets/0").write_text("torn")
    ended = recon("offsets", "--pipeline", "orders")
    assert (ended.code, ended.out) == (2, "") and same_message(ended.err)
    checkpoint.planned(0, {"orders": {"0": 10}})
    checkpoint.committed(0)
    assert recon("offsets", "--pipeline", "orders").out == '{"orders":{"0":10}}\n'
    assert "not what was proved" in caplog.text
