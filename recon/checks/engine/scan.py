"""One table's data checks, measured in as few Spark jobs as they allow.

Each way of measuring is an executor. This module hands checks to them, asks them when a result is wanted, and fetches
samples: all failed checks of the table in one job. A check that cannot be measured is an error, and the others still
run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

from recon.checks.base import DataCheck, JointCheck, KeyCheck, QueryCheck, RowCheck, SchemaCheck, WholeCheck
from recon.checks.bound import Bound
from recon.checks.engine.aggregates import AggregateExecutor
from recon.checks.engine.context import ScanContext
from recon.checks.engine.executor import Executor, ScheduledCheck, reason_of
from recon.checks.engine.external import JointExecutor, SingleExecutor
from recon.checks.engine.groupings import GroupingExecutor
from recon.checks.engine.queries import QueryExecutor
from recon.checks.threshold import settle
from recon.errors import ConfigError
from recon.model import CheckResult, Verdict
from recon.spark.columns import distinct
from recon.spark.errors import spark_error
from recon.spark.lazy import F
from recon.text import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

DEFAULT_LIMIT = 5
STORED_LIMIT = 1000


class TableMeasurement:
    """The checks of one table; a job starts when a `result` that needs it is first asked for."""

    def __init__(
        self,
        bounds: Sequence[Bound],
        table: DataFrame,
        relation_name: str,
        clock: Callable[[], datetime],
        context: ScanContext | None = None,
    ) -> None:
        self._bounds = bounds
        self._table = table
        self._name = relation_name
        self._clock = clock
        self._context = context or ScanContext()
        self._wheres: dict[str, Column] = {}
        self._verdicts: dict[int, tuple[Verdict, datetime, datetime]] = {}
        self._unsampled: dict[int, ScheduledCheck] = {}
        self._executors: dict[int, tuple[Executor, ScheduledCheck]] = {}
        self._folded = AggregateExecutor(table, relation_name, self._context)
        self._grouped = GroupingExecutor(table, relation_name, self._context, self._folded)
        self._queried = QueryExecutor(table, relation_name, self._context, self._folded)
        self._joint = JointExecutor(table, relation_name, self._folded)
        self._alone = SingleExecutor(table, relation_name, self._context, self._limit)
        for at, bound in enumerate(bounds):
            self._admit(at, bound)

    def result(self, at: int) -> CheckResult:
        """The result of the check at this place of `bounds`."""
        self._measure(at)
        if at in self._unsampled:
            # The samples of all that fail are one job, so the others are measured first.
            for other in () if self._context.fail_fast else range(len(self._bounds)):
                self._measure(other)
            self._sample()
        verdict, started, ended = self._verdicts[at]
        return settle(self._bounds[at], verdict, started, ended, self._name)

    # -- what the checks hand themselves to ----------------------------------------------------------

    def fold(self, at: int, check: RowCheck) -> None:
        """Takes a check into the one aggregate."""
        self._join(self._folded, at, check)

    def group(self, at: int, check: KeyCheck) -> None:
        """Takes a check that groups the table by a key."""
        self._join(self._grouped, at, check)

    def query(self, at: int, check: QueryCheck) -> None:
        """Takes a check with a query of its own."""
        self._join(self._queried, at, check)

    def jointly(self, at: int, check: JointCheck) -> None:
        """Takes a check that is measured with its party."""
        self._join(self._joint, at, check)

    def alone(self, at: int, check: WholeCheck) -> None:
        """Takes a check that measures itself."""
        self._join(self._alone, at, check)

    def inspect(self, at: int, check: SchemaCheck) -> None:
        """Judges the schema at once."""
        now = self._clock()
        verdict = check.judge_schema(self._table.schema)
        self._verdicts[at] = (verdict, now, self._clock())
        if verdict.samples:
            self._keep(at, verdict.samples)

    def _join(self, executor: Executor, at: int, check: DataCheck) -> None:
        bound = self._bounds[at]
        scheduled = ScheduledCheck(at, bound, check, where_of(bound, self._table, self._name, self._wheres))
        executor.admit(scheduled)
        self._executors[at] = (executor, scheduled)

    def _admit(self, at: int, bound: Bound) -> None:
        started = self._clock()
        try:
            fitted_check(bound, self._table, self._name).join(self, at)
        except Exception as error:
            self._verdicts[at] = (Verdict(unproved=reason_of(error)), started, self._clock())

    # -- measuring and sampling ----------------------------------------------------------------------

    def _measure(self, at: int) -> None:
        if at in self._verdicts:
            return
        executor, scheduled = self._executors[at]
        started = self._clock()
        verdicts = executor.measure(scheduled)
        ended = self._clock()
        for other, verdict in verdicts.items():
            self._verdicts[other] = (verdict, started, ended)
            if verdict.samples:
                self._keep(other, verdict.samples)
            elif verdict.failures:
                self._unsampled[other] = self._executors[other][1]

    def _sample(self) -> None:
        """Failing rows of every failed check that was not sampled yet, in one job; none where Spark has none.

        If the job breaks, each check is sampled on its own, so that only the culprit goes without, and says why.
        """
        waiting, self._unsampled = self._unsampled, {}
        parts: dict[int, DataFrame] = {}
        for at, scheduled in waiting.items():
            try:
                rows = self._failing(at, scheduled)
            except Exception as error:
                self._unread(at, error)
                continue
            if rows is not None:
                parts[at] = rows.select(F.lit(at).alias("at"), F.col("row"))
        found: dict[int, list[Mapping[str, Any]]] = {}
        for row in self._collected(parts):
            found.setdefault(row["at"], []).append(json.loads(row["row"]))
        for at, samples in found.items():
            self._keep(at, samples)

    def _collected(self, parts: Mapping[int, DataFrame]) -> Sequence[Any]:
        """The rows of all parts in one job, or of those that can be had."""
        if not parts:
            return ()
        try:
            return reduce(lambda a, b: a.unionAll(b), parts.values()).collect()
        except Exception as error:  # the counts stand without samples
            if len(parts) > 1:
                return [row for at, part in parts.items() for row in self._collected({at: part})]
            self._unread(next(iter(parts)), error)
            return ()

    def _unread(self, at: int, error: Exception) -> None:
        """Tells that a check failed and why its rows are not shown."""
        verdict, started, ended = self._verdicts[at]
        evidence = {**verdict.evidence, "samples": f"could not be read: {spark_error(error)}"}
        self._verdicts[at] = (replace(verdict, evidence=evidence), started, ended)

    def _keep(self, at: int, samples: Sequence[Mapping[str, Any]]) -> None:
        """Shows as many failing rows as `limit` allows, and stores all of them where that is wanted."""
        bound = self._bounds[at]
        verdict, started, ended = self._verdicts[at]
        shown = tuple(samples[: bound.config.limit or DEFAULT_LIMIT])
        self._verdicts[at] = (replace(verdict, samples=shown), started, ended)
        if bound.config.store_failures and self._context.keep_failures is not None:
            self._context.keep_failures(bound, samples)

    def _failing(self, at: int, scheduled: ScheduledCheck) -> DataFrame | None:
        """At most as many failing rows as are shown or stored, as JSON text."""
        rows = self._executors[at][0].failing(scheduled, self._limit(scheduled))
        if rows is None:
            return None
        named = rows.toDF(*distinct(rows.columns))  # a column of the table may be called as one that tells more
        return named.select(_as_json(named.columns).alias("row"))

    def _limit(self, scheduled: ScheduledCheck) -> int:
        config = scheduled.bound.config
        storing = config.store_failures and self._context.keep_failures is not None
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
    return check.fit({column: _type_of(column, table, name) for column in check.columns()})


def _type_of(column: str, table: DataFrame, name: str) -> DataType:
    from pyspark.errors import AnalysisException, ParseException

    fields = {field.name: field.dataType for field in table.schema}
    # A plain name is looked up in the schema; only a path or a name in backticks is put to Spark.
    if column in fields and column.isidentifier():
        return fields[column]
    try:
        return table.select(F.col(column)).schema[0].dataType
    except (AnalysisException, ParseException) as error:
        if column in fields:
            raise ConfigError(
                f"column {column!r} of {name} cannot be named so; write it in backticks: `{column}`"
            ) from error
        raise ConfigError(f"{name} has no column {column!r}{did_you_mean(column, table.columns)}") from error


def where_of(bound: Bound, table: DataFrame, name: str, known: dict[str, Column]) -> Column | None:
    """The check's `where`, if Spark accepts it as a condition on this table; `known` spares asking twice."""
    where = bound.config.where
    if where is None:
        return None
    if where not in known:
        try:
            condition = F.expr(where)
            _ = table.filter(condition).schema  # resolved and typed; no job runs
        except Exception as error:
            raise ConfigError(f"where {where!r} is no condition on {name}: {spark_error(error)}") from error
        known[where] = condition
    return known[where]


def _as_json(columns: Sequence[str]) -> Column:
    """A row as JSON text, NULLs kept."""
    return F.to_json(F.struct(*(F.col(f"`{c.replace('`', '``')}`") for c in columns)), {"ignoreNullFields": "false"})


__all__ = ["DEFAULT_LIMIT", "STORED_LIMIT", "TableMeasurement", "fitted", "fitted_check", "where_of"]
