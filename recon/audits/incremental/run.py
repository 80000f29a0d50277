"""Runs the data checks of one sink: loads saved state, measures new micro-batches, saves the merged state."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from recon.audits.incremental.changes import (
    CoveredVersion,
    NewBatches,
    StaleState,
    covered_version,
    new_batches,
    require_partitions,
)
from recon.audits.incremental.memory import CheckState, NewBatchesMemory, Plan, WholeTableMemory
from recon.audits.incremental.plan import WholeTable, plan_for
from recon.base.errors import LedgerError, ReconError
from recon.base.storage import Storage
from recon.checks.bound import Bound
from recon.checks.engine import runner
from recon.checks.engine.context import ScanContext
from recon.checks.engine.executor import reason_of
from recon.checks.engine.scan import TableMeasurement
from recon.model import CheckResult, TableLog, Unavailable
from recon.project import Pipeline, Project, Sink
from recon.spark.connect import analysed
from recon.spark.errors import spark_error
from recon.spark.settings import settings_of
from recon.witness import delta_log
from recon.write.ledger import arrow, open_ledger
from recon.write.ledger.key_index import KeyIndex
from recon.write.ledger.state import STATE, Document, keep, newest
from recon.write.ledger.store import Filter, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("recon")

# The driver looks hashes of new keys up in the index; with more new rows than this the whole table is grouped.
_MOST_NEW_KEYS = 10_000_000
_LISTED_HERE = "spark.sql.sources.parallelPartitionDiscovery.threshold"


@dataclass(frozen=True, kw_only=True)
class SinkScan:
    """The sink whose rows are checked, and the session that reads them.

    Args:
        refresh: measure every check on the whole table, and save the result.
        keep: whether the state is saved for the next audit.
    """

    project: Project
    pipeline: Pipeline
    sink: Sink
    spark: SparkSession
    refresh: bool = False
    keep: bool = True

    @property
    def target(self) -> str:
        """The path or URI of the sink's table."""
        return self.project.location(self.sink)


def results(
    sink_scan: SinkScan, bounds: Sequence[Bound], clock: Callable[[], datetime], context: ScanContext
) -> Iterator[CheckResult]:
    """The results of a sink's data checks, in their order.

    Checks without `incremental`, or without a saved state that still holds, share scans of the whole table; the others
    share those of the new micro-batches. Evidence `incremental` names the scan and the reason.

    `bounds` are checks of kind "data", all on this sink; `context` has no memory.
    """
    run = _Run(sink_scan, bounds, clock, context)
    try:
        table = run.table
    except Exception as error:  # AnalysisException and whatever the filesystem raises
        gone = Unavailable("rows", f"table {sink_scan.target} cannot be read: {reason_of(error)}")
        yield from (runner.without_answer(bound, gone, clock) for bound in bounds)
        return
    try:
        yield from run.results(table)
    finally:
        run.close()


class _Run:
    """One run over a sink: the saved states, the reasons for reading the whole table, and the memories of the scans."""

    def __init__(
        self, sink_scan: SinkScan, bounds: Sequence[Bound], clock: Callable[[], datetime], context: ScanContext
    ) -> None:
        self._scan, self._bounds, self._clock, self._context = sink_scan, bounds, clock, context
        self._storage = Storage(sink_scan.target, sink_scan.project.storage_options)
        self._reasons: dict[str, str] = {}  # why a check is measured on the whole table, by unique id
        self._whole_table_memories: list[WholeTableMemory] = []
        self._new_batches_memories: list[NewBatchesMemory] = []
        self._incremental: dict[str, Plan] = {}  # of the checks that are measured on new micro-batches alone
        self._repeated: dict[str, Callable[[], CheckResult]] = {}  # those of them measured on the whole table after all
        self._saved: dict[str, CheckState] = {}
        self._not_saved = ""  # why no state can be saved
        self._not_loaded = ""  # why no saved state can be loaded

    # -- loads what exists -------------------------------------------------------------------------------

    @cached_property
    def _document(self) -> Document:
        """The saved states; empty where there are none, or for the reason in `_not_saved` or `_not_loaded`."""
        scan = self._scan
        try:
            if not self._ledger.exists():
                self._not_saved = f"there is no ledger at {self._ledger.location}, so no state is saved"
                return {}
            return newest(self._store, scan.pipeline.name, scan.sink.name)
        except LedgerError as error:
            self._not_loaded = str(error)
            return {}

    @cached_property
    def _ledger(self) -> Any:
        return open_ledger(self._scan.project, self._scan.spark)

    @cached_property
    def _store(self) -> Any:
        return open_store(self._scan.project, STATE, self._scan.spark)

    @cached_property
    def _log(self) -> TableLog | None:
        """The table's log from the oldest version that a usable state covers; None where it cannot be read."""
        try:
            last = delta_log.latest_version(self._storage)
            if last is None:
                self._not_saved = "its Delta log holds no commit"
                return None
            first = min((state.covered.version for state in self._saved.values()), default=last)
            return delta_log.read(self._storage, from_version=min(first, last))
        except ReconError as error:
            self._not_saved = str(error)
            return None

    @cached_property
    def table(self) -> DataFrame:
        """The whole table, at the version that this audit measures."""
        self._read_states()
        reader = self._scan.spark.read.format("delta")
        if self._log is not None and self._log.last is not None:
            reader = reader.option("versionAsOf", self._log.last)
        return analysed(reader.load(self._scan.target))

    def _read_states(self) -> None:
        for bound in self._bounds:
            document = self._document.get(bound.unique_id) if bound.config.incremental else None
            if document is None:
                continue
            try:
                self._saved[bound.unique_id] = CheckState.of_json(document)
            except (KeyError, TypeError, ValueError, AttributeError, ReconError) as error:
                self._reasons[bound.unique_id] = f"the saved state has an unknown form ({type(error).__name__})"

    # -- decides how each check is measured ---------------------------------------------------------------------

    def results(self, table: DataFrame) -> Iterator[CheckResult]:
        """Measures each check on new micro-batches or on the whole table, and yields the results in order."""
        plans = {b.unique_id: plan for b in self._bounds if b.config.incremental and (plan := self._plan(b, table))}
        possible = {name: plan for name, plan in plans.items() if plan.new is not None}
        read = [(new, self._new_rows(new, table, possible)) for new in _distinct(possible.values())]
        groups = [(new, rows) for new, rows in read if rows is not None]
        self._incremental = {name: plan for name, plan in possible.items() if name not in self._reasons}
        initial = {name: replace(plan, new=None) for name, plan in plans.items() if name not in self._incremental}
        whole = [b for b in self._bounds if b.unique_id not in self._incremental]
        result_of = self._measured(whole, table, self._whole_table_memory(initial))
        for new, rows in groups:
            same = {name: plan for name, plan in self._incremental.items() if plan.new == new}
            memory = NewBatchesMemory(same, new, rows, table, self._index_of, keep=self._scan.keep)
            self._new_batches_memories.append(memory)
            bounds = [plan.bound for plan in same.values()]
            if any(plan.merges is not None for plan in same.values()):
                bounds.insert(0, memory.row_counter)  # one more column of the row checks' aggregate
            result_of |= self._measured(bounds, rows, memory)
        for bound in self._bounds:
            result = result_of[bound.unique_id]()
            if bound.unique_id in self._incremental and result.status == "error":
                result = self._on_whole_table(bound.unique_id, table, result)
            yield self._with_evidence(bound, result)

    def _measured(
        self, bounds: Sequence[Bound], rows: DataFrame, memory: WholeTableMemory | NewBatchesMemory | None
    ) -> dict[str, Callable[[], CheckResult]]:
        """By unique id, a function that returns the result; its first call measures all that share a job."""
        if not bounds:
            return {}
        context = replace(self._context, memory=memory)
        measurement = TableMeasurement(bounds, rows, self._scan.target, self._clock, context)
        return {bound.unique_id: partial(measurement.result, at) for at, bound in enumerate(bounds)}

    def _plan(self, bound: Bound, table: DataFrame) -> Plan | None:
        """How the check is measured; None where it is measured as if it were not incremental, and no state is saved."""
        name = bound.unique_id
        try:
            plan = plan_for(bound, table, self._scan.target)
            if plan.merges is None and self._scan.project.ledger.writer == "spark":
                raise WholeTable("Spark writes the ledger, and then no key index is kept beside it")
        except WholeTable as error:
            self._reasons[name] = str(error)
            return None
        except Exception:  # the scan raises it again, and reports it
            return None
        if self._scan.refresh:
            self._reasons[name] = "--full-refresh"
            return plan
        if self._not_saved or self._log is None:
            self._reasons[name] = self._not_saved
            return None
        try:
            return self._continued(plan, self._log)
        except StaleState as error:
            self._reasons[name] = str(error)
            return plan

    def _continued(self, plan: Plan, table_log: TableLog) -> Plan:
        """The plan with the saved state and the micro-batches since.

        Raises:
            StaleState: the check has to be measured on the whole table.
        """
        name = plan.bound.unique_id
        saved = self._saved.get(name)
        if saved is None:
            raise StaleState(self._reasons.get(name) or self._not_loaded or "no state is saved yet")
        if saved.fingerprint != plan.fingerprint:
            raise StaleState("the check, the table's schema or the session's settings changed")
        new = new_batches(saved.covered, table_log)
        if new.rows is None:
            raise StaleState("the log has no statistics of the new files, so the number of new rows is unknown")
        if plan.merges is None and new.rows > _MOST_NEW_KEYS:
            raise StaleState(f"{new.rows} rows are new, more than are looked up in the key index")
        if plan.merges is not None and set(plan.merges) != set(saved.values):
            raise StaleState("the saved state holds other values")
        return replace(plan, saved=saved, new=new)

    def _whole_table_memory(self, plans: Mapping[str, Plan]) -> WholeTableMemory | None:
        """A memory for checks that are measured on the whole table; None where no state can be saved."""
        if not plans or not self._scan.keep:
            return None
        try:
            covered = self._covered_version()
        except ReconError as error:
            self._not_saved = str(error)
        if self._not_saved:
            self._reasons |= {name: f"{self._reasons.get(name, '')}; {self._not_saved}".lstrip("; ") for name in plans}
            return None
        memory = WholeTableMemory(plans, covered, self._index_of)
        self._whole_table_memories.append(memory)
        return memory

    def _covered_version(self) -> CoveredVersion:
        if self._log is None or self._log.last is None:
            raise StaleState(self._not_saved or "the table's log cannot be read")
        if (delta_log.properties(self._storage) or {}).get(delta_log.MAPPING, "none") != "none":
            raise StaleState("the table's files have other column names than the table (delta.columnMapping.mode)")
        return covered_version(self._log.last, self._log, self._landed(self._log.last))

    def _landed(self, version: int) -> Iterator[tuple[str, int, int]]:
        """The ledger's micro-batches of this sink that are in a version."""
        pipeline, sink = self._scan.pipeline.name, self._scan.sink.name
        names = ("epoch", "batch_id", "sink_version")
        entries = self._ledger.store.read(Filter.of(pipeline, sink), names)
        for epoch, batch_id, at in arrow.tuples(entries, *names):
            if at is not None and at <= version:
                yield f"{pipeline}/{sink}", epoch, batch_id

    def _new_rows(self, new: NewBatches, table: DataFrame, possible: Mapping[str, Plan]) -> DataFrame | None:
        """The rows of the files that new micro-batches added; None, with a reason, where they cannot be read alone."""
        try:
            types = {field.name: field.dataType.simpleString() for field in table.schema}
            files = []
            for version in new.versions:
                for file, action in delta_log.added_files(self._storage, version).items():
                    require_partitions(file, action.get("partitionValues") or {}, types)
                    files.append(file)
            return self._rows_of(files, table) if files else table.limit(0)
        except Exception as error:  # such as files that an OPTIMIZE replaced and a VACUUM removed
            reason = f"the files of new micro-batches cannot be read: {spark_error(error)}"
            self._reasons |= {name: reason for name, plan in possible.items() if plan.new == new}
            return None

    def _rows_of(self, files: Sequence[str], table: DataFrame) -> DataFrame:
        spark, target = self._scan.spark, self._scan.target
        reader = spark.read.schema(table.schema).option("basePath", target)
        # A missing or torn file is an error, whatever the session's settings for such files.
        reader = reader.options(ignoreMissingFiles="false", ignoreCorruptFiles="false")
        # Spark would list more than a few files with a job of one task each.
        before = spark.conf.get(_LISTED_HERE, None) if self._storage.local is not None else None
        if before is None:
            return reader.parquet(*files)
        with settings_of(spark, {_LISTED_HERE: str(max(int(before), len(files)))}):
            return reader.parquet(*files)

    def _on_whole_table(self, name: str, table: DataFrame, result: CheckResult) -> CheckResult:
        """The check's result on the whole table, after it could not be measured on new rows alone."""
        if self._is_measured(name):
            return result  # measured, and the error came from judging
        if name not in self._repeated:
            plan = self._incremental[name]
            # Row checks share an aggregate: an error of one of them is an error of all.
            failed = {
                n: p
                for n, p in self._incremental.items()
                if n == name
                or (plan.merges is not None and p.merges is not None and p.new == plan.new and not self._is_measured(n))
            }
            self._reasons |= dict.fromkeys(failed, result.message)
            bounds = [p.bound for p in failed.values()]
            memory = self._whole_table_memory({n: replace(p, new=None) for n, p in failed.items()})
            self._repeated |= self._measured(bounds, table, memory)
        return self._repeated[name]()

    def _is_measured(self, name: str) -> bool:
        return any(name in memory.states for memory in self._new_batches_memories)

    # -- reports and saves -----------------------------------------------------------------------

    @property
    def _memories(self) -> Sequence[WholeTableMemory | NewBatchesMemory]:
        return [*self._new_batches_memories, *self._whole_table_memories]

    def _with_evidence(self, bound: Bound, result: CheckResult) -> CheckResult:
        if not bound.config.incremental:
            return result
        evidence: dict[str, Any]
        plan = self._incremental.get(bound.unique_id)
        if plan is not None and plan.new is not None and bound.unique_id not in self._reasons:
            new = plan.new
            evidence = {"scan": "new micro-batches", "micro_batches": new.count, "version": new.reached.version}
            if new.rows is not None:
                evidence["new_rows"] = new.rows
        else:
            evidence = {"scan": "whole table", "because": self._reasons.get(bound.unique_id, "")}
        for memory in self._whole_table_memories:
            if bound.unique_id in memory.refused:
                evidence["not_kept"] = memory.refused[bound.unique_id]
        return replace(result, evidence={**result.evidence, "incremental": evidence})

    def close(self) -> None:
        """Saves the states; the verdicts are right even where no state can be saved."""
        states = {name: state for memory in self._memories for name, state in memory.states.items()}
        if not self._scan.keep or not states:
            return
        measured = {}
        for name, state in states.items():
            try:
                measured[name] = state.as_json()
            except TypeError:
                continue  # the next audit reads the whole table for this check
        scan = self._scan
        try:
            saved_names = keep(self._store, scan.pipeline.name, scan.sink.name, self._document, measured, self._clock())
            for bound in self._bounds:
                before, now = self._saved.get(bound.unique_id), states.get(bound.unique_id)
                # Where another audit's state is the newest, the parts that it names have to stay.
                if bound.unique_id in saved_names and before is not None and now is not None and now.parts:
                    self._index_of(bound).forget(before.parts, now.parts)
        except LedgerError as error:
            log.warning(
                "pipeline %s, sink %s: the state of incremental checks could not be saved; the next audit starts from "
                "the state before: %s",
                scan.pipeline.name,
                scan.sink.name,
                error,
            )

    def _index_of(self, bound: Bound) -> KeyIndex:
        project = self._scan.project
        assert project.ledger.location is not None
        name = hashlib.sha256(f"{self._scan.pipeline.name}/{self._scan.sink.name}/{bound.unique_id}".encode())
        uri = f"{project.resolve(project.ledger.location).rstrip('/')}/keys/{name.hexdigest()[:16]}"
        return KeyIndex(uri, project.storage_options)


def _distinct(plans: Iterable[Plan]) -> list[NewBatches]:
    """The distinct groups of new micro-batches; checks whose states cover the same version share one."""
    groups: list[NewBatches] = []
    for plan in plans:
        if plan.new is not None and plan.new not in groups:
            groups.append(plan.new)
    return groups
