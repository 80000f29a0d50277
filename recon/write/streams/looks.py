"""Looks at streams that write without recon, from inside their driver: those pipelines of the listener.

A look reads the checkpoint and the table's log and asks the broker, which may take seconds where one of them is slow.
It runs on a thread of its own, so that neither the query nor Spark's other listeners wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from recon.base.text import plural, some
from recon.project import Pipeline, Project
from recon.write.ledger import Ledger
from recon.write.observer import ObservationResult, look

T = TypeVar("T")


class Looks:
    """One look at a time: at the first micro-batch, when enough of them ended or enough time went by, at the end."""

    def __init__(
        self,
        project: Project,
        pipelines: Iterable[Pipeline],
        ledger: Callable[[], Ledger],
        *,
        every: int,
        seconds: float,
        failed: Callable[[Exception], None],
        tell: Callable[[str], None],
    ) -> None:
        """Nothing is read yet.

        Args:
            project: a loaded recon.yml.
            pipelines: those of its pipelines that are looked at where recon only observes them.
            ledger: opens the project's ledger, at the first look.
            every: look when so many micro-batches of a pipeline ended since the last look.
            seconds: or when one ended so long after it.
            failed: called with an error of a look; the next look comes as if there had been none.
            tell: called with a sentence about what a look could not enter.
        """
        self._project, self._open = project, ledger
        self._pipelines = {pipe.name: pipe for pipe in pipelines if pipe.is_observed}
        self._every, self._seconds = every, seconds
        self._failed, self._tell = failed, tell
        self._ledger: Ledger | None = None
        self._ended: dict[str, int] = {}  # micro-batches since the last look, by pipeline
        self._looked_at: dict[str, float] = {}
        self._due: set[str] = set()
        self._guard = threading.Condition()
        self._runs = False

    def ended(self, pipeline: str) -> None:
        """A micro-batch of the pipeline ended."""
        if pipeline not in self._pipelines:
            return
        self._ended[pipeline] = self._ended.get(pipeline, 0) + 1
        waited = time.monotonic() - self._looked_at.get(pipeline, float("-inf"))
        if self._ended[pipeline] >= self._every or waited >= self._seconds:
            self.now(pipeline)

    def now(self, pipeline: str | None = None) -> None:
        """Looks soon, on the thread of the looks; at all pipelines of which micro-batches ended where none is named."""
        names = [pipeline] if pipeline is not None else [name for name, ended in self._ended.items() if ended]
        for name in (name for name in names if name in self._pipelines):
            self._ended[name], self._looked_at[name] = 0, time.monotonic()
            with self._guard:
                self._due.add(name)
                if not self._runs:
                    self._runs = True
                    threading.Thread(target=self._work, name="recon-looks", daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Waits until no look runs, or so long."""
        with self._guard:
            self._guard.wait_for(lambda: not self._runs, seconds)

    def _work(self) -> None:
        while True:
            with self._guard:
                if not self._due:
                    self._runs = False
                    self._guard.notify_all()
                    return
                name = self._due.pop()
            try:
                self._look(self._pipelines[name])
            except Exception as error:  # whatever a store raises: the query goes on
                self._failed(error)

    def _look(self, pipeline: Pipeline) -> None:
        if self._ledger is None:
            self._ledger = self._open()
        found = look(self._project, pipeline, self._ledger, _ask)
        for sentence in _left_out(found):
            self._tell(f"pipeline {pipeline.name}: {sentence}")


def _ask(_: Mapping[str, str], question: Callable[[], T]) -> T:
    return question()


def _left_out(found: ObservationResult) -> Iterable[str]:
    if found.waits:
        yield found.waits
    if found.unseen and found.entered:
        yield (
            f"{plural(len(found.unseen), 'micro-batch')} ({some(found.unseen)}) had no plan in the checkpoint any "
            "more: what was read into them is not known"
        )
