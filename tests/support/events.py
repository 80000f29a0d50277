"""Consumers of events for tests: one that keeps them, and what puts it in place of those of recon.yml."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from threading import Condition
from threading import Event as Flag
from typing import Any

import pytest

from recon.events import Consumer, Event


class Kept:
    """Keeps the events; `hold` makes it hang until `go` is set."""

    every: float | None = None

    def __init__(self, name: str = "kept", kinds: Sequence[str] = (), hold: bool = False) -> None:
        self.name = name
        self.kinds = frozenset(kinds or ("audit.*", "incident.*", "finding.*", "micro_batch.*", "stream.*"))
        self.events: list[Event] = []
        self.closed = False
        self._changed = Condition()
        self.fails: Exception | None = None
        self.entered, self.go = Flag(), Flag()
        if not hold:
            self.go.set()

    def take(self, events: Sequence[Event]) -> None:
        self.entered.set()
        assert self.go.wait(60)
        if self.fails is not None:
            raise self.fails
        with self._changed:
            self.events.extend(events)
            self._changed.notify_all()

    def await_count(self, count: int) -> None:
        """Waits until it has so many events."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.events) >= count, 60)

    def close(self) -> None:
        self.closed = True

    @property
    def seen(self) -> list[str]:
        return [event.kind for event in self.events]

    @property
    def dicts(self) -> list[dict[str, Any]]:
        """The events as JSON has them."""
        return [json.loads(json.dumps(event.to_dict())) for event in self.events]


Install = Callable[..., None]


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Call it with the consumers that every project has in this test."""

    def install(*given: Consumer) -> None:
        monkeypatch.setattr("recon.events.emitter.consumers_of", lambda project: list(given))

    return install
