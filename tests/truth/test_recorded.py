"""Recorded witnesses: the same judge says the same of them again, and another judge's answer is shown."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recon.checks.evidence.source_rows import SourceRows
from scripts import recorded as replayed
from tests.support.recorded import Judged, Recorder, recordings
from tests.truth.stories import STORIES

STORY = "18-lost_record_whose_offset_the_topic_made_anew_has_again"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The recorded audits of one story."""
    recorder = Recorder(tmp_path)
    recorder.listen()
    try:
        STORIES[STORY].story()
    finally:
        recorder.stop()
    recorder.write("story")
    yield tmp_path


def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["recorded", str(folder)])
    return replayed.main()


def test_the_same_judge_says_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    ((test, audits),) = recordings(folder)
    assert test == "story" and {audited.name for audited in audits} >= {"source_rows_lake", "answer"}
    found = [audited.result.findings for audited in audits if isinstance(audited, Judged)]
    assert any(found), "nothing was found of a story with a fault"
    assert run(folder, monkeypatch) == 0
    assert capsys.readouterr().out == f"{len(audits)} answers of 1 tests compared, 0 differ\n"


def test_what_another_judge_says_is_shown(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    judge = SourceRows.judge
    monkeypatch.setattr(SourceRows, "judge", lambda check, seen: replace(judge(check, seen), findings=(), failures=0))
    assert run(folder, monkeypatch) == 1
    assert "story [" in (out := capsys.readouterr().out) and "only before" in out


def test_an_empty_folder_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, monkeypatch) == 1


def test_a_class_that_was_moved_is_found_by_its_name(folder: Path) -> None:
    ((_, before),) = recordings(folder)
    for name in ("recon.model.evidence", "recon.model.ledger"):  # as if another tree had them elsewhere
        content = next(folder.glob("*.gz"))
        moved = gzip.decompress(content.read_bytes()).replace(name.encode(), name.encode()[:-1] + b"_")
        content.write_bytes(gzip.compress(moved))
    ((_, after),) = recordings(folder)
    assert [audited.said() for audited in after] == [audited.said() for audited in before]
