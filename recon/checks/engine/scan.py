"""Measures one table's data checks in as few Spark jobs as they allow.

Each kind of check has its executor. This module gives every check to the executor of its kind, has it measured when
its result is needed, and fetches samples: all failed checks of the table in one job. A check that cannot be measured
is status error, and the others still run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

from recon.base.errors import ConfigError, ReconError
from recon.checks.bound import Bound
from recon.checks.data_check import DataCheck, JointCheck, KeyCheck, QueryCheck, RowCheck, SchemaCheck, WholeCheck
from recon.checks.engine.aggregates import AggregateExecutor
from recon.checks.engine.context import ScanContext
from recon.checks.engine.executor import Executor, ScannedTable, ScheduledCheck, measuring_error, reason_of
from recon.checks.engine.external import JointExecutor, SchemaExecutor, SingleExecutor
from recon.checks.engine.groupings import GroupingExecutor
from recon.checks.engine.queries import QueryExecutor
from recon.checks.samples import NOT_SHOWN, without_values
from recon.checks.threshold import settle
from recon.model import CheckResult, Verdict
from recon.spark.columns import distinct, expression, filtered, quoted, type_of
from recon.spark.errors import spark_error
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DEFAULT_LIMIT = 5
STORED_LIMIT = 1000

Scheduled = ScheduledCheck[DataCheck]


class TableMeasurement:
    """The checks of one table; a job starts when a `result` that needs it is first called for."""

    def __init__(
        self,
        bounds: Sequence[Bound],
        table: DataFrame,
        relation_name: str,
        clock: Callable[[], datetime],
        context: ScanContext | None = None,
    ) -> None:
        self._bounds = bounds
        self._clock = clock
        self._table = scanned = ScannedTable(table, relation_name, context or ScanContext())
        self._conditions: dict[str, Column] = {}
        self._verdicts: dict[int, tuple[Verdict, datetime, datetime]] = {}
        self._unsampled: dict[int, Scheduled] = {}
        self._scheduled: dict[int, tuple[Executor, Scheduled]] = {}
        aggregates = AggregateExecutor(scanned)
        self._executors: Mapping[type[DataCheck], Executor] = {
            RowCheck: aggregates,
            KeyCheck: GroupingExecutor(scanned, aggregates),
            QueryCheck: QueryExecutor(scanned, aggregates),
            SchemaCheck: SchemaExecutor(scanned),
            JointCheck: JointExecutor(scanned, aggregates),
            WholeCheck: SingleExecutor(scanned, self._limit),
        }
        for at, bound in enumerate(bounds):
            self._schedule(at, bound)

    def result(self, at: int) -> CheckResult:
        """The result of the check at this place of `bounds`."""
        self._measure(at)
        if at in self._unsampled:
            # The samples of all that fail are one job, so the others are measured first.
            for other in () if self._table.context.fail_fast else range(len(self._bounds)):
                self._measure(other)
            self._sample()
        verdict, started, ended = self._verdicts[at]
        return settle(self._bounds[at], verdict, started, ended, self._table.name)

    def _schedule(self, at: int, bound: Bound) -> None:
        started = self._clock()
        frame, name = self._table.frame, self._table.name
        try:
            check = fitted_check(bound, frame, name).measured_as()
            executor = self._executor_of(check)
            scheduled = ScheduledCheck(at, bound, check, where_of(bound, frame, name, self._conditions))
            executor.admit(scheduled)
        except Exception as error:
            self._verdicts[at] = (Verdict(unproved=reason_of(error) + bound.place), started, self._clock())
        else:
            self._scheduled[at] = (executor, scheduled)

    def _executor_of(self, check: DataCheck) -> Executor:
        for kind, executor in self._executors.items():
            if isinstance(check, kind):
                return executor
        kinds = ", ".join(kind.__name__ for kind in self._executors)
        raise ConfigError(f"check {check.test} is of no kind that can be measured; derive it from one of {kinds}")

    # -- measuring and sampling ----------------------------------------------------------------------

    def _measure(self, at: int) -> None:
        if at in self._verdicts:
            return
        executor, scheduled = self._scheduled[at]
        started = self._clock()
        try:
            verdicts = executor.measure(scheduled)
        except Exception as error:
            place = self._bounds[at].place if isinstance(error, ConfigError) else ""
            verdicts = {at: Verdict(unproved=f"{measuring_error(self._table.name, error)}{place}")}
        ended = self._clock()
        for other, verdict in verdicts.items():
            self._verdicts[other] = (verdict, started, ended)
            if verdict.samples:
                self._keep(other, verdict.samples)
            elif verdict.failures:
                self._unsampled[other] = self._scheduled[other][1]

    def _sample(self) -> None:
        """Failing rows of every failed check that was not sampled yet, in one job; none where Spark has none.

        If the job breaks, each check is sampled on its own: only the one that breaks it has no samples, and says why.
        """
        waiting, self._unsampled = self._unsampled, {}
        failing_rows: dict[int, DataFrame] = {}
        for at, scheduled in waiting.items():
            try:
                rows = self._failing(at, scheduled)
            except Exception as error:
                self._unread(at, error)
                continue
            if rows is not None:
                failing_rows[at] = rows.select(F.lit(at).alias("at"), F.col("row"))
        samples: dict[int, list[Mapping[str, Any]]] = {}
        for row in self._collected(failing_rows):
            samples.setdefault(row["at"], []).append(json.loads(row["row"]))
        for at, rows_of_check in samples.items():
            self._keep(at, rows_of_check)

    def _collected(self, failing_rows: Mapping[int, DataFrame]) -> Sequence[Any]:
        """The failing rows of all checks in one job, or of those whose rows Spark can read."""
        if not failing_rows:
            return ()
        try:
            return reduce(lambda a, b: a.unionAll(b), failing_rows.values()).collect()
        except Exception as error:  # the counts are right without samples
            if len(failing_rows) > 1:
                return [row for at, rows in failing_rows.items() for row in self._collected({at: rows})]
            self._unread(next(iter(failing_rows)), error)
            return ()

    def _unread(self, at: int, error: Exception) -> None:
        """Notes in the evidence of a failed check why its failing rows are not shown."""
        verdict, started, ended = self._verdicts[at]
        reason = without_values(spark_error(error), self._bounds[at].config)
        evidence = {**verdict.evidence, "samples": f"could not be read: {reason}"}
        self._verdicts[at] = (replace(verdict, evidence=evidence), started, ended)

    def _keep(self, at: int, samples: Sequence[Mapping[str, Any]]) -> None:
        """Shows as many failing rows as `limit` allows, and stores all of them where that is wanted.

        Both show no more of them than the check's `samples` and `never_show` allow.
        """
        bound = self._bounds[at]
        verdict, started, ended = self._verdicts[at]
        try:
            visible = self._visible(at, samples)
        except ReconError as error:  # the count is right without samples
            self._verdicts[at] = (replace(verdict, samples=()), started, ended)
            self._unread(at, error)
            return
        evidence = verdict.evidence
        if samples and not visible:
            evidence = {**evidence, "samples": NOT_SHOWN.format(policy=bound.config.samples)}
        shown = tuple(visible[: bound.config.limit or DEFAULT_LIMIT])
        self._verdicts[at] = (replace(verdict, samples=shown, evidence=evidence), started, ended)
        if visible and bound.config.store_failures and self._table.context.keep_failures is not None:
            self._table.context.keep_failures(bound, visible)

    def _visible(self, at: int, samples: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        check = self._scheduled[at][1].check
        if not check.samples_are_rows:
            return samples
        rules = replace(self._table.context.samples, columns=frozenset(self._table.frame.columns))
        return rules.shown(samples, self._bounds[at].config, check.identifying())

    def _failing(self, at: int, scheduled: Scheduled) -> DataFrame | None:
        """At most as many failing rows as are shown or stored, as JSON text."""
        rows = self._scheduled[at][0].failing(scheduled, self._limit(scheduled))
        if rows is None:
            return None
        named = rows.toDF(*distinct(rows.columns))  # two columns of the table may have one name
        return named.select(_as_json(named.columns).alias("row"))

    def _limit(self, scheduled: Scheduled) -> int:
        config = scheduled.bound.config
        storing = config.store_failures and self._table.context.keep_failures is not None
        return config.limit or (STORED_LIMIT if storing else DEFAULT_LIMIT)


def fitted(bound: Bound, table: DataFrame, name: str) -> tuple[DataCheck, Column | None]:
    """A bound check fitted to a table's types, and its `where` as a condition.

    Raises:
        ConfigError: a column is missing, its type does not fit, or `where` is no condition on this table.
    """
    return fitted_check(bound, table, name), where_of(bound, table, name, {})


def fitted_check(bound: Bound, table: DataFrame, name: str) -> DataCheck:
    """A bound check fitted to a table's types; raises ConfigError as `fitted` does."""
    check = cast(DataCheck, bound.check)
    return check.fit({column: type_of(column, table, name) for column in check.columns()}, table)


def where_of(bound: Bound, table: DataFrame, name: str, accepted: dict[str, Column]) -> Column | None:
    """The check's `where`, if Spark accepts it as a condition on this table; `accepted` holds those it has accepted."""
    where = bound.config.where
    if where is None:
        return None
    if where not in accepted:
        filtered(table, where, "where", name)
        accepted[where] = expression(where, "where")
    return accepted[where]


def _as_json(columns: Sequence[str]) -> Column:
    """A row as JSON text, NULLs kept."""
    return F.to_json(F.struct(*(F.col(quoted(c)) for c in columns)), {"ignoreNullFields": "false"})
