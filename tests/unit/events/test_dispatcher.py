"""Queues and threads of consumers: order, one that hangs, one that fails, too many events, the end."""

from __future__ import annotations

import gc
import logging
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from recon.base.errors import SinkError
from recon.events import AuditStarted, Emitter, Event
from recon.events.dispatcher import Dispatcher
from recon.project import LedgerConfig, Pipeline, Project, load
from tests.support.events import Install, Kept, consumers  # noqa: F401

T = TypeVar("T")
LONG = 60.0  # no test waits so long


def started(n: int, project: str = "lake") -> AuditStarted:
    return AuditStarted(project=project, invocation_id=str(n), checks=n, pipelines=())


def same(value: T) -> T:
    return value


def numbers(kept: Kept) -> list[int]:
    return [event.checks for event in kept.events if isinstance(event, AuditStarted)]


def test_each_consumer_gets_the_events_it_takes_in_their_order() -> None:
    every, none = Kept(), Kept("micro-batches", ["micro_batch.*"])
    dispatcher = Dispatcher([every, none], same)
    for n in range(100):
        dispatcher.put(started(n))
    outcome, other = dispatcher.close(LONG)
    assert numbers(every) == list(range(100)) and every.closed
    assert (outcome.taken, outcome.note) == (100, "")
    assert (none.events, other.taken, other.note) == ([], 0, "")
    assert dispatcher.takes("audit.started") and not dispatcher.takes("other.kind")


def test_a_consumer_that_hangs_holds_up_nobody_and_drops_the_oldest() -> None:
    hanging, other = Kept("hanging", hold=True), Kept("other")
    dispatcher = Dispatcher([hanging, other], same, most_waiting=3)
    dispatcher.put(started(0))
    other.await_count(1)
    assert hanging.entered.wait(LONG)
    for n in range(1, 6):
        dispatcher.put(started(n))
        other.await_count(n + 1)
    outcome, _ = dispatcher.flush(0.0)
    # One in hand, three in the queue, two dropped on the way.
    assert (outcome.taken, outcome.waiting) == (0, 4)
    assert outcome.note.startswith("hanging: ") and outcome.note.endswith("it did not answer in time")
    hanging.go.set()
    dispatcher.close(LONG)
    assert numbers(hanging) == [0, 3, 4, 5]
    assert numbers(other) == list(range(6))


def test_a_consumer_that_fails_is_noted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    failing = Kept("failing")
    failing.fails = SinkError("no such host; see the URL")
    dispatcher = Dispatcher([failing], same)
    with caplog.at_level(logging.WARNING, "recon"):
        for n in range(3):
            dispatcher.put(started(n))
            outcome = dispatcher.flush(LONG)[0]
            assert (outcome.taken, outcome.failed) == (0, 1)
            assert outcome.note == "failing: no such host; see the URL"
    assert len(caplog.records) == 1
    failing.fails = None
    dispatcher.put(started(3))
    assert dispatcher.close(LONG)[0].note == ""
    assert numbers(failing) == [3]


def test_a_consumer_is_called_with_nothing_when_it_asks_for_it() -> None:
    class Ticking(Kept):
        every = 0.01

        def __init__(self) -> None:
            super().__init__()
            self.ticked = threading.Event()

        def take(self, events: Sequence[Event]) -> None:
            if not events:
                self.ticked.set()

    ticking = Ticking()
    dispatcher = Dispatcher([ticking], same)
    assert not ticking.ticked.is_set()
    dispatcher.put(started(1))
    assert ticking.ticked.wait(LONG)
    dispatcher.close(LONG)


def test_a_dispatcher_that_nobody_has_any_more_ends_its_threads() -> None:
    kept = Kept("forgotten")
    dispatcher = Dispatcher([kept], same)
    dispatcher.put(started(1))
    dispatcher.flush(LONG)
    (thread,) = (t for t in threading.enumerate() if t.name == "recon-forgotten")
    del dispatcher
    gc.collect()
    thread.join(LONG)
    assert not thread.is_alive() and kept.closed


def project(**given: object) -> Project:
    pipeline = Pipeline.model_validate({"name": "p", "checkpoint": "c", "sinks": [{"name": "s", "target": "t"}]})
    return Project(name="x", ledger=LedgerConfig(location="l"), pipelines=(pipeline,))


def test_secrets_are_masked_before_any_consumer_sees_an_event(
    tmp_path: Path,
    consumers: Install,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, secret = Kept(), "correct-horse"
    consumers(kept)
    monkeypatch.setenv("KAFKA_PASSWORD", secret)
    (tmp_path / "recon.yml").write_text(
        "version: 2\nname: lake\nledger: l\nkafka: {sasl.password: \"{{ env_var('KAFKA_PASSWORD') }}\"}\n"
        "pipelines: [{name: p, checkpoint: c, sinks: [{name: s, target: t}]}]\n"
    )
    emitter = Emitter(load(tmp_path))
    emitter.emit(lambda: started(1, project=f"lake of {secret}"))
    assert emitter.close(LONG) == ()
    assert kept.dicts[0]["project"] == "lake of ***"


def test_what_cannot_be_told_stops_nothing(consumers: Install, caplog: pytest.LogCaptureFixture) -> None:  # noqa: F811
    consumers(Kept())
    Emitter(project()).emit(lambda: started(1 // 0))
    assert "ZeroDivisionError" in caplog.text


def test_without_a_consumer_no_event_is_made() -> None:
    emitter = Emitter(project())
    assert not emitter.active and not emitter.takes("audit.started")
    emitter.emit(lambda: pytest.fail("made an event for nobody"))
    assert emitter.close(LONG) == ()


def test_an_emitter_is_pickled_without_its_threads(consumers: Install) -> None:  # noqa: F811
    kept = Kept()
    consumers(kept)
    emitter = Emitter(project())
    emitter.emit(lambda: started(1))
    again: Emitter = pickle.loads(pickle.dumps(emitter))
    again.emit(lambda: started(2))
    for one in (emitter, again):
        one.close(LONG)
    assert sorted(numbers(kept)) == [1, 2]
