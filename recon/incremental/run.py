"""Runs the data checks of one sink of which some are incremental: what is known, what is new, what is kept."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from recon.checks.bound import Bound
from recon.checks.engine import runner
from recon.checks.engine.context import ScanContext
from recon.checks.engine.executor import reason_of
from recon.checks.engine.scan import TableMeasurement
from recon.errors import LedgerError, ReconError
from recon.evidence import delta_log
from recon.incremental.changes import News, Position, StaleState, position_at, require_partitions, since
from recon.incremental.memory import Beginning, CheckState, Growing, Plan
from recon.incremental.plan import WholeTable, plan_for
from recon.ledger import arrow, open_ledger
from recon.ledger.key_index import KeyIndex
from recon.ledger.state import Document, keep, newest, open_state
from recon.ledger.store import Filter
from recon.model import CheckResult, DeltaWitness, Unavailable
from recon.project import Pipeline, Project, Sink
from recon.spark.errors import spark_error
from recon.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("recon")

# Hashes of new keys are looked up in the driver; with more of them than that the table is grouped as a whole.
_MOST_NEW_KEYS = 10_000_000
_LISTED_HERE = "spark.sql.sources.parallelPartitionDiscovery.threshold"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the checks run: the sink of a project, and the session that reads its rows.

    Args:
        refresh: measure everything on the whole table, and keep that.
        keep: whether what is measured is kept for the next audit.
    """

    project: Project
    pipeline: Pipeline
    sink: Sink
    spark: SparkSession
    refresh: bool = False
    keep: bool = True

    @property
    def target(self) -> str:
        """The table."""
        return self.project.location(self.sink)


def results(
    place: Place, bounds: Sequence[Bound], clock: Callable[[], datetime], context: ScanContext
) -> Iterator[CheckResult]:
    """The results of a sink's data checks, in their order.

    Those without `incremental`, those that cannot go on from an earlier audit, and those without one share the scans
    of the whole table; the others share those of the new micro-batches. Evidence `incremental` tells which it was.

    Args:
        place: where.
        bounds: checks of kind "data", all on this sink.
        clock: the time, in UTC.
        context: other tables, earlier runs and the like, without a memory.
    """
    run = _Run(place, bounds, clock, context)
    try:
        table = run.table
    except Exception as error:  # AnalysisException and whatever the filesystem raises
        gone = Unavailable("rows", f"table {place.target} cannot be read: {reason_of(error)}")
        yield from (runner.without_answer(bound, gone, clock) for bound in bounds)
        return
    try:
        yield from run.results(table)
    finally:
        run.close()


class _Run:
    def __init__(
        self, place: Place, bounds: Sequence[Bound], clock: Callable[[], datetime], context: ScanContext
    ) -> None:
        self._place, self._bounds, self._clock, self._context = place, bounds, clock, context
        self._storage = Storage(place.target, place.project.storage_options)
        self._because: dict[str, str] = {}  # why a check is measured on the whole table
        self._beginnings: list[Beginning] = []
        self._growings: list[Growing] = []
        self._growing: dict[str, Plan] = {}
        self._repeated: dict[str, tuple[TableMeasurement, int]] = {}
        self._known: dict[str, CheckState] = {}
        self._trouble = ""  # why nothing at all can be kept
        self._unread = ""  # why what was kept cannot be read

    # -- what there is -------------------------------------------------------------------------------

    @cached_property
    def _document(self) -> Document:
        """The kept state; empty where there is none, or where `_trouble` or `_unread` say why."""
        place = self._place
        try:
            if not self._ledger.exists():
                self._trouble = f"there is no ledger at {self._ledger.location} to keep what was measured"
                return {}
            return newest(self._store, place.pipeline.name, place.sink.name)
        except LedgerError as error:
            self._unread = str(error)
            return {}

    @cached_property
    def _ledger(self) -> Any:
        return open_ledger(self._place.project, self._place.spark)

    @cached_property
    def _store(self) -> Any:
        return open_state(self._place.project, self._place.spark)

    @cached_property
    def _log(self) -> DeltaWitness | None:
        """The table's log from the oldest version that a usable state covers; None where it cannot be read."""
        try:
            last = delta_log.latest_version(self._storage)
            if last is None:
                self._trouble = "its Delta log holds no commit"
                return None
            first = min((state.position.version for state in self._known.values()), default=last)
            return delta_log.read(self._storage, from_version=min(first, last))
        except ReconError as error:
            self._trouble = str(error)
            return None

    @cached_property
    def table(self) -> DataFrame:
        """The whole table, at the version that this audit measures."""
        self._read_states()
        reader = self._place.spark.read.format("delta")
        if self._log is not None and self._log.last is not None:
            reader = reader.option("versionAsOf", self._log.last)
        return reader.load(self._place.target)

    def _read_states(self) -> None:
        for bound in self._bounds:
            found = self._document.get(bound.unique_id) if bound.config.incremental else None
            if found is None:
                continue
            try:
                self._known[bound.unique_id] = CheckState.of_json(found)
            except (KeyError, TypeError, ValueError, AttributeError, ReconError) as error:
                self._because[bound.unique_id] = f"what was kept cannot be understood ({type(error).__name__})"

    # -- who is measured on what ---------------------------------------------------------------------

    def results(self, table: DataFrame) -> Iterator[CheckResult]:
        plans = {b.unique_id: plan for b in self._bounds if b.config.incremental and (plan := self._plan(b, table))}
        growing = {name: plan for name, plan in plans.items() if plan.news is not None}
        read = [(news, self._new_rows(news, table, growing)) for news in _distinct(growing.values())]
        groups = [(news, rows) for news, rows in read if rows is not None]
        self._growing = {name: plan for name, plan in growing.items() if name not in self._because}
        beginning = {name: replace(plan, news=None) for name, plan in plans.items() if name not in self._growing}
        whole = [b for b in self._bounds if b.unique_id not in self._growing]
        measured = {b.unique_id: (of, at) for of, at, b in self._measured(whole, table, self._begin(beginning))}
        for news, rows in groups:
            mine = {name: plan for name, plan in self._growing.items() if plan.news == news}
            memory = Growing(mine, news, rows, table, self._index_of, keep=self._place.keep)
            self._growings.append(memory)
            bounds = [plan.bound for plan in mine.values()]
            if any(plan.merges is not None for plan in mine.values()):
                bounds.insert(0, memory.census)  # a column of the aggregate that there is anyway
            measured |= {b.unique_id: (of, at) for of, at, b in self._measured(bounds, rows, memory)}
        for bound in self._bounds:
            measurement, at = measured[bound.unique_id]
            result = measurement.result(at)
            if bound.unique_id in self._growing and result.status == "error":
                result = self._again(bound.unique_id, table, result)
            yield self._told(bound, result)

    def _measured(
        self, bounds: Sequence[Bound], rows: DataFrame, memory: Beginning | Growing | None
    ) -> Iterator[tuple[TableMeasurement, int, Bound]]:
        if bounds:
            context = replace(self._context, memory=memory)
            of = TableMeasurement(bounds, rows, self._place.target, self._clock, context)
            yield from ((of, at, bound) for at, bound in enumerate(bounds))

    def _plan(self, bound: Bound, table: DataFrame) -> Plan | None:
        """How the check goes on or begins; None where it is measured as if it were not incremental."""
        name = bound.unique_id
        try:
            plan = plan_for(bound, table, self._place.target)
        except WholeTable as error:
            self._because[name] = str(error)
            return None
        except Exception:  # the scan meets it again and tells it
            return None
        if plan.merges is None and self._place.project.ledger.writer == "spark":
            self._because[name] = "the ledger is written by Spark, beside which no index of keys is kept"
            return None
        if self._place.refresh:
            self._because[name] = "--full-refresh"
            return plan
        if self._trouble or self._log is None:
            self._because[name] = self._trouble
            return None
        known = self._known.get(name)
        if known is None:
            self._because.setdefault(name, self._unread or "nothing was kept yet")
            return plan
        if known.fingerprint != plan.fingerprint:
            self._because[name] = "the check, the table's schema or the session's settings changed"
            return plan
        try:
            news = since(known.position, self._log)
        except StaleState as error:
            self._because[name] = str(error)
            return plan
        if news.rows is None:
            self._because[name] = "the log does not tell how many rows are new"
            return plan
        if plan.merges is None and news.rows > _MOST_NEW_KEYS:
            self._because[name] = f"{news.rows} rows are new, more than are looked up in the index of keys"
            return plan
        if plan.merges is not None and set(plan.merges) != set(known.values):
            self._because[name] = "what was kept are other values"
            return plan
        return replace(plan, known=known, news=news)

    def _begin(self, plans: Mapping[str, Plan]) -> Beginning | None:
        """A memory for checks that begin with the whole table; None where nothing can be kept."""
        if not plans or not self._place.keep:
            return None
        try:
            position = self._position()
        except ReconError as error:
            self._trouble = str(error)
        if self._trouble:
            self._because |= {name: f"{self._because.get(name, '')}; {self._trouble}".lstrip("; ") for name in plans}
            return None
        memory = Beginning(plans, position, self._index_of)
        self._beginnings.append(memory)
        return memory

    def _position(self) -> Position:
        if self._log is None or self._log.last is None:
            raise StaleState(self._trouble or "the table's log cannot be read")
        if delta_log.properties(self._storage).get("delta.columnMapping.mode", "none") != "none":
            raise StaleState("the table's files name its columns otherwise (delta.columnMapping.mode)")
        return position_at(self._log.last, self._log, self._landed(self._log.last))

    def _landed(self, version: int) -> Iterator[tuple[str, int, int]]:
        """The ledger's micro-batches of this sink that are in a version."""
        pipeline, sink = self._place.pipeline.name, self._place.sink.name
        which = Filter(equals=(("pipeline", pipeline), ("sink", sink)))
        entries = self._ledger.store.read(which, ["epoch", "batch_id", "sink_version"])
        columns = (arrow.values(entries[name]) for name in ("epoch", "batch_id", "sink_version"))
        for epoch, batch_id, at in zip(*columns, strict=True):
            if at is not None and at <= version:
                yield f"{pipeline}/{sink}", epoch, batch_id

    def _new_rows(self, news: News, table: DataFrame, growing: Mapping[str, Plan]) -> DataFrame | None:
        """The rows of the files that new micro-batches added; None, and why, where they cannot be read alone."""
        try:
            types = {field.name: field.dataType.simpleString() for field in table.schema}
            files = []
            for version in news.versions:
                for file, partitions in delta_log.added_partitions(self._storage, version).items():
                    require_partitions(file, partitions, types)
                    files.append(file)
            return self._rows_of(files, table) if files else table.limit(0)
        except Exception as error:  # such as files that an OPTIMIZE replaced and a VACUUM removed
            why = f"the files of new micro-batches cannot be read: {spark_error(error)}"
            self._because |= {name: why for name, plan in growing.items() if plan.news == news}
            return None

    def _rows_of(self, files: Sequence[str], table: DataFrame) -> DataFrame:
        spark, target = self._place.spark, self._place.target
        reader = spark.read.schema(table.schema).option("basePath", target)
        # A file that is gone or torn is an error, whatever the session says of such files.
        reader = reader.options(ignoreMissingFiles="false", ignoreCorruptFiles="false")
        # Spark would look for more than a few files with a job of one task each.
        before = spark.conf.get(_LISTED_HERE, None) if self._storage.local is not None else None
        if before is None:
            return reader.parquet(*files)
        spark.conf.set(_LISTED_HERE, str(max(int(before), len(files))))
        try:
            return reader.parquet(*files)
        finally:
            spark.conf.set(_LISTED_HERE, before)

    def _again(self, name: str, table: DataFrame, result: CheckResult) -> CheckResult:
        """The check on the whole table, after it could not be measured on new rows alone."""
        if self._is_measured(name):
            return result  # and could not be judged
        if name not in self._repeated:
            plan = self._growing[name]
            # Row checks share an aggregate: what broke one of them broke all.
            failed = {
                n: p
                for n, p in self._growing.items()
                if n == name
                or (
                    plan.merges is not None
                    and p.merges is not None
                    and p.news == plan.news
                    and not self._is_measured(n)
                )
            }
            self._because |= dict.fromkeys(failed, result.message)
            bounds = [p.bound for p in failed.values()]
            memory = self._begin({n: replace(p, news=None) for n, p in failed.items()})
            self._repeated |= {b.unique_id: (of, at) for of, at, b in self._measured(bounds, table, memory)}
        measurement, at = self._repeated[name]
        return measurement.result(at)

    def _is_measured(self, name: str) -> bool:
        return any(name in memory.states for memory in self._growings)

    # -- what is told and kept -----------------------------------------------------------------------

    @property
    def _memories(self) -> Sequence[Beginning | Growing]:
        return [*self._growings, *self._beginnings]

    def _told(self, bound: Bound, result: CheckResult) -> CheckResult:
        if not bound.config.incremental:
            return result
        said: dict[str, Any]
        plan = self._growing.get(bound.unique_id)
        if plan is not None and plan.news is not None and bound.unique_id not in self._because:
            news = plan.news
            said = {"scan": "new micro-batches", "micro_batches": news.batches, "version": news.position.version}
            if news.rows is not None:
                said["new_rows"] = news.rows
        else:
            said = {"scan": "whole table", "because": self._because.get(bound.unique_id, "")}
        for memory in self._beginnings:
            if bound.unique_id in memory.refused:
                said["not_kept"] = memory.refused[bound.unique_id]
        return replace(result, evidence={**result.evidence, "incremental": said})

    def close(self) -> None:
        """Keeps what was measured; an audit whose state cannot be kept is as right as any other."""
        states = {name: state for memory in self._memories for name, state in memory.states.items()}
        if not self._place.keep or not states:
            return
        measured = {}
        for name, state in states.items():
            try:
                measured[name] = state.as_json()
            except TypeError:
                continue  # its next measurement reads the whole table again
        place = self._place
        try:
            kept = keep(self._store, place.pipeline.name, place.sink.name, self._document, measured, self._clock())
            for bound in self._bounds:
                known, now = self._known.get(bound.unique_id), states.get(bound.unique_id)
                # Where another audit's state counts, the parts that it names have to stay.
                if bound.unique_id in kept and known is not None and now is not None and now.parts:
                    self._index_of(bound).forget(known.parts, now.parts)
        except LedgerError as error:
            log.warning(
                "pipeline %s, sink %s: what incremental checks measured is not kept as it should be: %s",
                place.pipeline.name,
                place.sink.name,
                error,
            )

    def _index_of(self, bound: Bound) -> KeyIndex:
        project = self._place.project
        assert project.ledger.location is not None
        name = hashlib.sha256(f"{self._place.pipeline.name}/{self._place.sink.name}/{bound.unique_id}".encode())
        uri = f"{project.resolve(project.ledger.location).rstrip('/')}/keys/{name.hexdigest()[:16]}"
        return KeyIndex(uri, project.storage_options)


def _distinct(plans: Iterable[Plan]) -> list[News]:
    found: list[News] = []
    for plan in plans:
        if plan.news is not None and plan.news not in found:
            found.append(plan.news)
    return found


__all__ = ["Place", "results"]
