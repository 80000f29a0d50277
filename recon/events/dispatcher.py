"""Hands events to consumers. Whoever puts an event waits for none of them, and no error of theirs reaches it.

Each consumer has a bounded queue and a daemon thread: one that hangs holds up no other. While it hangs its queue fills;
then the oldest events are dropped and counted.
"""

from __future__ import annotations

import atexit
import logging
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from threading import Condition, Thread
from typing import Protocol, TypeVar

from recon.base.errors import ReconError
from recon.base.text import first_line, plural
from recon.events.consumer import Consumer, takes
from recon.events.model import Event

log = logging.getLogger("recon")

MOST_WAITING = 1_000  # events of one consumer
EXIT_S = 10.0  # a process that ends waits so long for consumers

# Those with a thread, or with a dispatcher that may start one; a thread may outlive its dispatcher for a moment.
_lanes: weakref.WeakSet[_Lane] = weakref.WeakSet()


T = TypeVar("T")


class Mask(Protocol):
    """`Project.masked`."""

    def __call__(self, value: T, /) -> T: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of the events of one consumer.

    `error` is the first one, "" for none. `waiting` are those that it did not take in time, `dropped` those that
    found the queue full.
    """

    consumer: str
    taken: int
    failed: int
    waiting: int
    dropped: int
    error: str = ""

    @property
    def note(self) -> str:
        """A sentence on what was not delivered; "" where all was."""
        if self.error:
            return f"{self.consumer}: {self.error}"
        lost = self.waiting + self.dropped
        return f"{self.consumer}: {plural(lost, 'event')} not delivered: it did not answer in time" if lost else ""


class Dispatcher:
    """The queues and threads of a project's consumers; threads start with the first event."""

    def __init__(
        self, consumers: Sequence[Consumer], mask: Mask, most_waiting: int = MOST_WAITING, *, logs: bool = True
    ) -> None:
        """Starts nothing.

        Args:
            consumers: what takes the events.
            mask: hides the project's secrets in an event, or in a text.
            most_waiting: events that wait for one consumer.
            logs: log each error once; an outcome has it in any case.
        """
        self._lanes = [_Lane(consumer, mask, most_waiting, logs) for consumer in consumers]
        self._mask = mask
        _lanes.update(self._lanes)
        _wait_at_exit()
        # The threads know the queues alone, so that a dispatcher that nobody has any more ends them.
        weakref.finalize(self, _end, self._lanes).atexit = False

    def put(self, event: Event, *, masked: bool = False) -> None:
        """Queues an event, which may be masked already. Never waits for a consumer."""
        lanes = [lane for lane in self._lanes if takes(lane.consumer, event.kind)]
        if not lanes:
            return
        event = event if masked else self._mask(event)
        for lane in lanes:
            lane.put(event)

    def takes(self, kind: str) -> bool:
        """Whether any consumer takes events of a kind."""
        return any(takes(lane.consumer, kind) for lane in self._lanes)

    def flush(self, seconds: float) -> tuple[Outcome, ...]:
        """Waits until every event was taken, or failed, at most so long; what became of them since the last call."""
        until = time.monotonic() + seconds
        return tuple(lane.outcome(until) for lane in self._lanes)

    def close(self, seconds: float) -> tuple[Outcome, ...]:
        """Like `flush`; consumers send what they keep waiting themselves, and the threads end."""
        _end(self._lanes)
        return self.flush(seconds)


class _Lane:
    """One consumer, its queue and its thread."""

    def __init__(self, consumer: Consumer, mask: Mask, most_waiting: int, logs: bool) -> None:
        self.consumer = consumer
        self._mask, self._logs = mask, logs
        self._queue: deque[Event] = deque()
        self._most = most_waiting
        self._changed = Condition()
        self._thread: Thread | None = None
        self._busy = self._ending = self._ended = False
        self._in_hand = self._taken = self._failed = self._dropped = 0
        self._error = ""
        self._logged: set[str] = set()

    def put(self, event: Event) -> None:
        with self._changed:
            if self._ending:
                return
            if len(self._queue) >= self._most:
                self._queue.popleft()
                self._dropped += 1
            self._queue.append(event)
            if self._thread is None:
                self._thread = Thread(target=self._run, name=f"recon-{self.consumer.name}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ending = True
            self._ended = self._thread is None
            self._changed.notify_all()

    def outcome(self, until: float) -> Outcome:
        with self._changed:
            self._changed.wait_for(self._is_done, max(0.0, until - time.monotonic()))
            outcome = Outcome(
                consumer=self.consumer.name,
                taken=self._taken,
                failed=self._failed,
                waiting=len(self._queue) + self._in_hand,
                dropped=self._dropped,
                error=self._error,
            )
            self._taken = self._failed = self._dropped = 0
            self._error = ""
            return outcome

    def _is_done(self) -> bool:
        return self._ended or (not self._ending and not self._queue and not self._busy)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._ending, self.consumer.every)
                events = tuple(self._queue)
                self._queue.clear()
                self._busy, self._in_hand = True, len(events)
                last = self._ending
            # Nothing that comes up is lost: neither the events, nor why they were not delivered.
            error = _error_of(partial(self.consumer.take, events))
            if last:
                closing = _error_of(self.consumer.close)
                error = error or closing
            with self._changed:
                self._busy, self._in_hand = False, 0
                if error is None:
                    self._taken += len(events)
                else:
                    self._failed += len(events)
                    self._note(error)
                self._ended = last
                self._changed.notify_all()
            if last:
                return

    def _note(self, error: Exception) -> None:
        text = str(error) if isinstance(error, ReconError) else f"{type(error).__name__}: {first_line(error)}"
        text = self._mask(text)
        self._error = self._error or text
        if self._logs and text not in self._logged:
            self._logged.add(text)
            log.warning("%s: %s; the same error is not logged again", self.consumer.name, text.rstrip("."))


def _end(lanes: Sequence[_Lane]) -> None:
    for lane in lanes:
        lane.end()


@cache
def _wait_at_exit() -> None:
    """A query that ends by an error often ends its process: what is told of it must still go out."""
    atexit.register(lambda: _close_all(EXIT_S))


def _close_all(seconds: float) -> None:
    lanes, until = list(_lanes), time.monotonic() + seconds
    _end(lanes)
    for lane in lanes:
        lane.outcome(until)


def _error_of(call: Callable[[], None]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None
