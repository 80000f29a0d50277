"""What the hook, audits and the listener call to tell an event."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from recon.base.text import first_line
from recon.events.dispatcher import Dispatcher
from recon.events.model import Event
from recon.events.registry import consumers_of
from recon.project import Project

log = logging.getLogger("recon")


class Emitter:
    """Tells a project's events to its consumers; does nothing where recon.yml names none.

    Threads start with the first event, in the process where it happens. Spark Connect sends the hook to another
    process: no thread is pickled.
    """

    def __init__(self, project: Project, *, logs: bool = True) -> None:
        """Starts nothing.

        Args:
            project: its consumers are told.
            logs: log why a consumer failed; without it, only `close` says so.

        Raises:
            ConfigError: a consumer needs an extra that is not installed, or a setting of it cannot be used.
        """
        self._project, self._logs = project, logs
        self._open()

    def _open(self) -> None:
        project = self._project
        consumers = consumers_of(project)
        self._dispatcher = Dispatcher(consumers, project.masked, logs=self._logs) if consumers else None

    @property
    def active(self) -> bool:
        """Whether there is a consumer at all."""
        return self._dispatcher is not None

    def takes(self, kind: str) -> bool:
        """Whether any consumer takes events of a kind."""
        return self._dispatcher is not None and self._dispatcher.takes(kind)

    def put(self, event: Event) -> None:
        """Queues an event."""
        self.emit(lambda: event)

    def emit(self, make: Callable[[], Event], *, masked: bool = False) -> None:
        """Like `emit_each`, for one event."""
        self.emit_each(lambda: (make(),), masked=masked)

    def emit_each(self, make: Callable[[], Iterable[Event]], *, masked: bool = False) -> None:
        """Queues the events that `make` returns; where there is no consumer, it is not called. Raises nothing.

        `masked` is whether no text of them holds a secret of the project; otherwise all are masked here.
        """
        if self._dispatcher is None:
            return
        try:
            for event in make():
                self._dispatcher.put(event, masked=masked)
        except Exception as error:  # what is told about the work must not stop the work
            log.warning("an event could not be told: %s: %s", type(error).__name__, first_line(error))

    def close(self, seconds: float) -> tuple[str, ...]:
        """Waits at most so long for consumers; sentences on what was not delivered."""
        if self._dispatcher is None:
            return ()
        outcomes = self._dispatcher.close(seconds)
        return tuple(self._project.mask(outcome.note) for outcome in outcomes if outcome.note)

    def __getstate__(self) -> dict[str, Any]:
        return {"_project": self._project, "_logs": self._logs}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._project, self._logs = state["_project"], state["_logs"]
        self._open()
