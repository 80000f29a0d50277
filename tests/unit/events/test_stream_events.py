"""What the listener tells: a query that starts, makes progress, stalls, resumes, ends."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recon.events import Emitter
from recon.write.streams.listener import ProgressListener
from recon.write.streams.watch import StreamWatch
from tests.support.events import Install, Kept, consumers  # noqa: F401
from tests.unit.streams.test_listener import EVENTS, project, started, told

LONG = 60.0
PROGRESS = next(e for e in EVENTS if "addBatch" in e["durationMs"])
IDS = {"id": PROGRESS["id"], "runId": PROGRESS["runId"]}


@pytest.fixture
def kept(consumers: Install) -> Kept:  # noqa: F811
    kept = Kept()
    consumers(kept)
    return kept


def _closed(listener: ProgressListener) -> None:
    listener.emitter.close(LONG)


def _option(value: str | None) -> Any:
    return SimpleNamespace(isDefined=lambda: value is not None, get=lambda: value)


@pytest.mark.parametrize("jvm", [False, True])
def test_a_query_from_its_start_to_its_error(tmp_path: Path, kept: Kept, jvm: bool) -> None:
    started(tmp_path, "p", PROGRESS["id"])
    listener = ProgressListener(project(tmp_path))

    def event(**fields: Any) -> Any:
        methods = {name: (lambda value=value: value) for name, value in fields.items()}
        return SimpleNamespace(**(methods if jvm else fields))

    listener.onQueryStarted(event(**IDS, name=None))
    listener.onQueryProgress(told(PROGRESS))
    error = "[STREAM_FAILED] Query terminated\n  with exception: no space left"
    listener.onQueryTerminated(event(**IDS, exception=_option(error) if jvm else error))
    _closed(listener)
    assert kept.seen == ["stream.started", "stream.progressed", "stream.terminated"]
    start, progressed, end = kept.dicts
    assert {(e["pipeline"], e["query_id"], e["run_id"]) for e in kept.dicts} == {("p", IDS["id"], IDS["runId"])}
    assert progressed["batch_id"] == PROGRESS["batchId"] and progressed["rows"] == PROGRESS["numInputRows"]
    assert end["error"] == "[STREAM_FAILED] Query terminated"
    assert start["at"] <= end["at"]


def test_a_query_that_was_stopped_has_no_error_and_one_of_no_pipeline_is_not_told(tmp_path: Path, kept: Kept) -> None:
    started(tmp_path, "p", PROGRESS["id"])
    listener = ProgressListener(project(tmp_path))
    listener.onQueryStarted(SimpleNamespace(id="another", runId="run", name="other"))
    listener.onQueryTerminated(SimpleNamespace(id="another", runId="run", exception="broken"))
    listener.onQueryTerminated(SimpleNamespace(**IDS, exception=None))
    _closed(listener)
    assert kept.seen == ["stream.started", "stream.terminated"]
    assert kept.dicts[-1]["error"] == ""


def test_a_query_that_says_nothing_for_long_is_told_once_and_when_it_resumes(tmp_path: Path, kept: Kept) -> None:
    now = [1000.0]
    emitter = Emitter(project(tmp_path))
    watch = StreamWatch(emitter, "lake", lambda query_id, name: name or "p", stalled_after=600, clock=lambda: now[0])
    watch.started("q", "r", "p")
    now[0] += 599
    watch.look()
    now[0] += 1
    watch.look()
    watch.look()
    watch.heard("q", "r")
    now[0] += 700
    watch.heard("q", "r")
    watch.look()
    watch.terminated("q", "r", None)
    now[0] += 10_000
    watch.look()
    emitter.close(LONG)
    assert kept.seen == ["stream.started", "stream.stalled", "stream.resumed", "stream.terminated"]
    assert kept.dicts[1]["last_seen"] == kept.dicts[2]["stalled_since"]


def test_without_a_time_nothing_is_called_stalled(tmp_path: Path, kept: Kept) -> None:
    now = [0.0]
    emitter = Emitter(project(tmp_path))
    watch = StreamWatch(emitter, "lake", lambda query_id, name: "p", clock=lambda: now[0])
    watch.started("q", "r", "p")
    now[0] += 1e9
    watch.look()
    emitter.close(LONG)
    assert kept.seen == []
