"""The query-progress listener: records Spark's progress of each micro-batch in the table `progress` beside the ledger.

Spark calls listeners on a thread of their own, so the query does not wait for them, and their errors must not stop it.
Hence no event waits for the store: rows are collected and appended together, and an error is logged once and dropped.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.streaming.listener import StreamingQueryListener

from recon.base.clock import utc_now
from recon.base.errors import ConfigError, EvidenceError
from recon.base.storage import Storage
from recon.events import Emitter
from recon.project import Project, as_project, without_yaml
from recon.witness import checkpoint as checkpoints
from recon.write.ledger import open_ledger
from recon.write.ledger.progress import PROGRESS, row_of
from recon.write.ledger.store import BeingMerged, Store, open_store
from recon.write.streams.looks import Looks
from recon.write.streams.watch import StreamWatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger("recon")

MOST_WAITING = 10_000  # rows kept in memory while the store cannot be written
COMPACT_EVERY = 100  # appends
MOST_BETWEEN_LOOKS = 20  # micro-batches; Spark keeps the plans of about 100
_LAST_LOOK_S = 10.0
_LOOK_AGAIN_S = 60.0  # before the pipeline of an unknown query is looked up again


class ProgressListener(StreamingQueryListener):
    """Records each micro-batch's progress: `spark.streams.addListener(recon.ProgressListener("."))`.

    A query belongs to the pipeline whose checkpoint has its id (in `metadata`), else to the pipeline of its name. Other
    queries are ignored.

    Micro-batches of a pipeline that recon only observes are entered in the ledger, as `recon observe` does, before
    Spark removes their plans from the checkpoint. The write does not change.
    """

    def __init__(
        self,
        project: str | Path | Project | None = None,
        *,
        pipeline: str | None = None,
        checkpoint: str | None = None,
        ledger: str | None = None,
        every: int = 20,
        seconds: float = 60.0,
        keep_days: int = 30,
        stalled_after: float | None = None,
    ) -> None:
        """Nothing is read or written before the first micro-batch.

        Args:
            project: where recon.yml is (a folder, the file, or a `Project`).
            pipeline: only this pipeline. Without a project: the pipeline's name, to be given with `ledger`.
            checkpoint: without a project: the query's checkpointLocation; None records queries with the pipeline's
                name or without a name.
            ledger: without a project: folder of the ledger.
            every: append when this many micro-batches wait; so often are those of an observed pipeline entered.
            seconds: or when the first of them has waited this long. When a query ends or idles, all are appended, and
                entered.
            keep_days: days of progress to keep; older ones are removed.
            stalled_after: seconds after which a running query without a report is stalled (`stream.stalled` of
                docs/events.md); longer than a micro-batch and a trigger take. By default that of `alerts` in recon.yml;
                None for never.

        Raises:
            ConfigError: the project cannot be read, it has no such pipeline, or what should be told of its streams
                cannot be.
        """
        if project is None:
            if not (pipeline and ledger):
                raise ConfigError(
                    "ProgressListener needs a project (the folder of recon.yml), or pipeline= and ledger="
                )
            # The sink is never opened.
            sink = {"name": pipeline, "kind": "delta", "target": ledger}
            only = {"name": pipeline, "checkpoint": checkpoint or "", "sinks": [sink]}
            self._project = without_yaml("ProgressListener", ledger=ledger, pipeline=only)
        else:
            self._project = as_project(project)
        self._any_query = project is None and checkpoint is None
        pipelines = self._project.pipelines if pipeline is None else [self._project.find_pipeline(pipeline)]
        self._pipelines = {pipe.name: pipe for pipe in pipelines}
        self._every, self._seconds, self._keep_days = max(1, every), seconds, keep_days
        self._waiting: list[Mapping[str, Any]] = []
        self._since = 0.0
        self._last: dict[str, tuple[str, int]] = {}  # query_id → (run_id, batch_id) that was recorded last
        self._pipeline_of: dict[str, str] = {}  # by query_id
        self._unknown: dict[str, float] = {}  # query_id → when its pipeline was last looked up and not found
        self._logged: set[str] = set()  # kinds of errors
        self._guard, self._writing = threading.RLock(), threading.Lock()
        self._appends = 0
        self._forgot: object = None
        self._session: tuple[int | None, str | None] | None = None
        self.emitter = Emitter(self._project)
        configured = self._project.alerts.stalled_after
        if stalled_after is None and configured is not None:
            stalled_after = configured.seconds
        self.looks = Looks(
            self._project,
            pipelines,
            lambda: open_ledger(self._project, self._spark()),
            every=min(self._every, MOST_BETWEEN_LOOKS),
            seconds=seconds,
            failed=lambda error: self._log_once(error, "micro-batches are not entered in the ledger for now"),
            tell=self._tell_once,
        )
        self._told: set[str] = set()  # what looks could not enter
        self._watch = StreamWatch(self.emitter, self._project.name, self._find_pipeline, stalled_after)
        atexit.register(self._at_exit)

    @property
    def _jlistener(self) -> Any:
        """The object that Spark's JVM calls; it hands over its own events.

        PySpark's would make Python objects of each event, by more than a hundred calls to the JVM.
        """
        if not hasattr(self, "_jlistenerobj"):
            try:
                from pyspark import SparkContext

                jvm: Any = SparkContext._jvm
                self._jlistenerobj = jvm.PythonStreamingQueryListenerWrapper(self)
            except Exception:  # another PySpark: use its own listener
                return super()._jlistener
        return self._jlistenerobj

    # -- called by Spark --------------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Notes that it started, and no more, as the query waits for this call."""
        if self.emitter.active:

            def note() -> None:
                name = _value(event, "name")
                self._watch.started(*_ids(event), None if name is None else str(name))

            self._safely(note)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Records a finished micro-batch; the event is PySpark's, or the JVM's own."""

        def record() -> None:
            progress: Any = event.progress
            self.record(json.loads(progress().json() if callable(progress) else progress.json))

        self._safely(record)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Appends the waiting rows; an idle trigger is not recorded."""
        self._safely(self.flush)
        self._safely(self.looks.now)
        if self.emitter.active:
            self._safely(lambda: self._watch.heard(*_ids(event)))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Appends the waiting rows of a query that ended."""
        self._safely(self.flush)
        self._safely(self.looks.now)
        if self.emitter.active:
            self._safely(lambda: self._watch.terminated(*_ids(event), _error(event)))

    class Java:
        """For Py4J."""

        implements: ClassVar[list[str]] = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    # -- recording ------------------------------------------------------------------------------------

    def record(self, progress: Mapping[str, Any]) -> None:
        """Records one progress, Spark's JSON; it is appended together with others.

        Raises:
            EvidenceError: the JSON is not that of a streaming query's progress.
        """
        query_id, run_id, batch_id = str(progress.get("id")), str(progress.get("runId")), progress.get("batchId")
        pipeline = self._find_pipeline(query_id, progress.get("name"))
        if pipeline is not None and self.emitter.active:
            self._watch.heard(query_id, run_id, pipeline)
        # Some Sparks report an idle query every ten seconds, with the number of its last or next micro-batch.
        executed = "addBatch" in (progress.get("durationMs") or {})
        if pipeline is None or not executed or self._last.get(query_id) == (run_id, batch_id):
            return
        for observed in self._of_checkpoint(pipeline):
            self.looks.ended(observed)
        if self.emitter.active:
            self._watch.progressed(pipeline, progress)
        cores, version = self._of_session()
        row = row_of(progress, pipeline, cores=cores, spark_version=version)
        with self._guard:
            self._last[query_id] = (run_id, row["batch_id"])
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting.append(row)
            due = len(self._waiting) >= self._every or time.monotonic() - self._since >= self._seconds
        if due:
            self.flush()

    def flush(self) -> None:
        """Appends the waiting rows. Rows that cannot be written wait for the next time, 10,000 of them at most."""
        with self._writing:
            with self._guard:
                rows, self._waiting = self._waiting, []
            if not rows:
                return
            try:
                self._store.append_rows(rows)
            except Exception as error:
                self._log_once(error)
                with self._guard:
                    self._waiting = [*rows, *self._waiting][-MOST_WAITING:]
                    self._since = time.monotonic()
                return
            self._appends += 1
            self._safely(self._tidy)

    def _tidy(self) -> None:
        store = self._store
        # Also at the first append: a query that is restarted for every micro-batch never makes a hundred.
        many = self._appends % COMPACT_EVERY == 1 and store.small_files() > COMPACT_EVERY
        if many:
            with suppress(BeingMerged):
                store.compact()
        last = (utc_now() - timedelta(days=self._keep_days + 1)).date()  # the newest day that is kept no longer
        if self._forgot != last:
            self._forgot = last
            many = many or any(day <= last for day in store.dates())
        if many:
            store.forget(last)  # also removes the files that were merged

    def _at_exit(self) -> None:
        self.flush()
        self.looks.wait(_LAST_LOOK_S)  # what is not entered then, the next look enters

    @cached_property
    def _store(self) -> Store:
        return open_store(self._project, PROGRESS, self._spark())

    def _spark(self) -> SparkSession | None:
        from pyspark.sql import SparkSession

        # Spark sets it where a listener runs in a process of its own.
        return self.spark or SparkSession.getActiveSession()

    def _of_session(self) -> tuple[int | None, str | None]:
        """(cores, Spark's version), read once."""
        if self._session is None:
            spark = self._spark()
            if spark is None:
                return None, None
            try:
                cores = int(spark.sparkContext.defaultParallelism)
            except Exception:  # Spark Connect has no SparkContext, and raises several kinds
                cores = None
            self._session = cores, spark.version
        return self._session

    # -- the query's pipeline ---------------------------------------------------------------------------

    def _find_pipeline(self, query_id: str, name: Any) -> str | None:
        """The pipeline of a query; None for a query of no pipeline of the project."""
        if query_id in self._pipeline_of:
            return self._pipeline_of[query_id]
        now = time.monotonic()
        if now - self._unknown.get(query_id, float("-inf")) < _LOOK_AGAIN_S:
            return None
        pipeline = self._by_checkpoint(query_id)
        if pipeline is None and name in self._pipelines:
            pipeline = str(name)
        if pipeline is None and self._any_query and name is None:
            pipeline = next(iter(self._pipelines))
        if pipeline is not None:
            self._pipeline_of[query_id] = pipeline
            return pipeline
        if query_id not in self._unknown:
            log.info("query %s (%s) belongs to no pipeline of recon.yml; its progress is not recorded", query_id, name)
        self._unknown[query_id] = now
        return None

    def _of_checkpoint(self, pipeline: str) -> list[str]:
        """The pipelines of one query: one that writes several tables has a pipeline for each that recon observes."""
        checkpoint = self._pipelines[pipeline].checkpoint
        return [name for name, pipe in self._pipelines.items() if pipe.checkpoint == checkpoint]

    def _by_checkpoint(self, query_id: str) -> str | None:
        if self._any_query:
            return None
        for pipe in self._pipelines.values():
            try:
                where = Storage(self._project.resolve(pipe.checkpoint), self._project.storage_options)
                if checkpoints.query_id(where) == query_id:
                    return pipe.name
            except EvidenceError:
                continue  # not started yet, or torn: the audit reports it
        return None

    # -- errors stay here --------------------------------------------------------------------

    def _safely(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # Spark would log it at every micro-batch
            self._log_once(error)

    def _log_once(self, error: Exception, what: str = "progress is not recorded for now") -> None:
        kind = type(error).__name__
        if f"{what} {kind}" not in self._logged:
            self._logged.add(f"{what} {kind}")
            message = f"{kind}: {self._project.mask(str(error))}"
            log.warning("%s; further errors of this kind are not logged: %s", what, message)

    def _tell_once(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            log.warning("%s", self._project.mask(sentence))


# -- events are PySpark's, or the JVM's own, whose fields are methods --------------------------------------------------


def _value(event: object, name: str) -> Any:
    value = getattr(event, name)
    return value() if callable(value) else value


def _ids(event: object) -> tuple[str, str]:
    """(query_id, run_id) of an event."""
    return str(_value(event, "id")), str(_value(event, "runId"))


def _error(event: object) -> str | None:
    """Why a query ended; None where it was stopped."""
    error = _value(event, "exception")
    if error is not None and not isinstance(error, str):  # Scala's Option
        error = error.get() if error.isDefined() else None
    return None if error is None else str(error)
