"""Events (recon.events) of queries that start, make progress, end and stall."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recon.base.clock import utc_now
from recon.events import (
    Emitter,
    StreamProgressed,
    StreamResumed,
    StreamStalled,
    StreamStarted,
    StreamTerminated,
)
from recon.events.errors import sentence


@dataclass
class _Run:
    """One run of a query, and when it last reported; `at` is the clock, `seen` the same moment for people."""

    query_id: str
    run_id: str
    name: str | None
    started: datetime
    at: float
    seen: datetime
    told: bool = False
    stalled: datetime | None = None  # since when; None where it is not


class StreamWatch:
    """The runs of queries that this process has.

    A query that waits for records says so every ten seconds, unless its trigger is longer. One that says nothing for
    `stalled_after` has a micro-batch that hangs, or waits for its trigger: choose a time longer than both take.
    """

    def __init__(
        self,
        emitter: Emitter,
        project: str,
        pipeline_of: Callable[[str, str | None], str | None],
        stalled_after: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts nothing.

        Args:
            emitter: takes the events.
            project: the project's name.
            pipeline_of: finds the pipeline of a query, by its id and name; None for a query of no pipeline.
            stalled_after: seconds without a report after which a running query is stalled; None for never.
            clock: seconds that never jump.
        """
        self._emitter, self._project, self._pipeline_of = emitter, project, pipeline_of
        self._stalled_after, self._clock = stalled_after, clock
        self._runs: dict[str, _Run] = {}
        self._guard = threading.RLock()
        self._thread: threading.Thread | None = None

    def started(self, query_id: str, run_id: str, name: str | None) -> None:
        """A query started. Looks nothing up, since the query waits: the event comes with its first report."""
        with self._guard:
            self._run(query_id, run_id, name)

    def progressed(self, pipeline: str, progress: Mapping[str, Any]) -> None:
        """A query finished a micro-batch."""
        query_id, run_id = str(progress.get("id")), str(progress.get("runId"))
        self.heard(query_id, run_id, pipeline)
        batch_id = int(progress.get("batchId") or 0)
        self._emitter.emit(
            lambda: StreamProgressed(
                **self._names(pipeline, query_id, run_id), batch_id=batch_id, progress=dict(progress)
            )
        )

    def heard(self, query_id: str, run_id: str, pipeline: str | None = None) -> None:
        """A query reported anything."""
        with self._guard:
            run = self._run(query_id, run_id, None)
            run.at, run.seen = self._clock(), utc_now()
            stalled, run.stalled = run.stalled, None
            pipeline = pipeline or self._pipeline_of(query_id, run.name)
            if pipeline is None:
                return
            self._tell_start(run, pipeline)
        if stalled is not None:
            self._emitter.emit(lambda: StreamResumed(**self._names(pipeline, query_id, run_id), stalled_since=stalled))

    def terminated(self, query_id: str, run_id: str, error: str | None) -> None:
        """A query ended."""
        with self._guard:
            run = self._run(query_id, run_id, None)
            del self._runs[query_id]
            pipeline = self._pipeline_of(query_id, run.name)
            if pipeline is None:
                return
            self._tell_start(run, pipeline)
        text = sentence(error) if error else ""
        self._emitter.emit(lambda: StreamTerminated(**self._names(pipeline, query_id, run_id), error=text))

    def look(self) -> None:
        """Reports runs that were silent for too long, each once until it reports again."""
        if self._stalled_after is None:
            return
        with self._guard:
            silent = [r for r in self._runs.values() if self._clock() - r.at >= self._stalled_after and not r.stalled]
            found = [(run, self._pipeline_of(run.query_id, run.name)) for run in silent]
            for run, pipeline in found:
                run.stalled = run.seen
                if pipeline is not None:
                    self._tell_start(run, pipeline)
        for run, pipeline in found:
            if pipeline is not None:
                self._emitter.put(StreamStalled(**self._names(pipeline, run.query_id, run.run_id), last_seen=run.seen))

    def _run(self, query_id: str, run_id: str, name: str | None) -> _Run:
        run = self._runs.get(query_id)
        if run is None or run.run_id != run_id:
            now = utc_now()
            run = _Run(query_id, run_id, name, started=now, at=self._clock(), seen=now)
            self._runs[query_id] = run
            if self._stalled_after is not None and self._thread is None:
                self._thread = threading.Thread(target=self._look_again, name="recon-streams", daemon=True)
                self._thread.start()
        return run

    def _look_again(self) -> None:
        assert self._stalled_after is not None
        pause = threading.Event()
        while not pause.wait(min(max(self._stalled_after / 4, 1.0), 60.0)):
            self.look()

    def _tell_start(self, run: _Run, pipeline: str) -> None:
        if not run.told:
            run.told = True
            self._emitter.put(StreamStarted(**self._names(pipeline, run.query_id, run.run_id), at=run.started))

    def _names(self, pipeline: str, query_id: str, run_id: str) -> dict[str, Any]:
        return {"project": self._project, "pipeline": pipeline, "query_id": query_id, "run_id": run_id}
