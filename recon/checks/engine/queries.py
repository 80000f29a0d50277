"""Query checks: a job for each, and the shared aggregate for the number of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.checks.data_check import QueryCheck
from recon.checks.engine.aggregates import AggregateExecutor
from recon.checks.engine.executor import Executor, ScannedTable, ScheduledCheck, verdict_of
from recon.model import Verdict
from recon.spark.columns import expression
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ScheduledQuery = ScheduledCheck[QueryCheck]


class QueryExecutor(Executor):
    """Measures query checks: a job for each, and the shared aggregate for the number of rows."""

    def __init__(self, table: ScannedTable, aggregates: AggregateExecutor) -> None:
        super().__init__(table)
        self._aggregates = aggregates
        self._counted: dict[int, DataFrame] = {}
        self._in_aggregate: set[int] = set()

    @override
    def admit(self, scheduled: ScheduledQuery) -> None:
        check = scheduled.check
        counted = check.counted(self._table.rows_for(scheduled), self._table.context.tables)
        _ = counted.schema  # Spark refuses a query that it cannot analyse
        self._counted[scheduled.at] = counted
        if check.measures() or not (check.judges_empty or "rows" in check.figures()):
            self._aggregates.count_rows(scheduled)
            self._in_aggregate.add(scheduled.at)

    @override
    def measure(self, scheduled: ScheduledQuery) -> Mapping[int, Verdict]:
        values: dict[str, Any] = {"rows": None, "failures": 0}
        if scheduled.at in self._in_aggregate:
            values |= self._aggregates.values(scheduled)
        if values["rows"] != 0 or scheduled.check.judges_empty:
            values |= self._figures(scheduled)
        return {scheduled.at: verdict_of(scheduled, values, self._table.context)}

    @override
    def failing(self, scheduled: ScheduledQuery, limit: int) -> DataFrame | None:
        return self._failing_rows(scheduled).limit(limit)

    def _failing_rows(self, scheduled: ScheduledQuery) -> DataFrame:
        return scheduled.check.failing_rows(self._table.rows_for(scheduled), self._table.context.tables)

    def _figures(self, scheduled: ScheduledQuery) -> dict[str, Any]:
        """The failures and the check's figures, in one job."""
        check = scheduled.check
        figures = [expression(sql, name).alias(name) for name, sql in check.figures().items()]
        configured = scheduled.bound.config.fail_calc
        failures = expression(configured or check.fail_calc, "fail_calc").alias("failures")
        if configured is None:
            totals = self._counted[scheduled.at].agg(failures, *figures)
        else:
            totals = self._failing_rows(scheduled).agg(failures, F.count(F.lit(1)).alias("failing_rows"))
            if figures:
                totals = totals.crossJoin(self._counted[scheduled.at].agg(*figures))
        values = totals.collect()[0].asDict()
        return {**values, "failures": _whole(values["failures"], configured, values.pop("failing_rows", 0))}


def _whole(failures: Any, fail_calc: str | None, failing_rows: int) -> int:
    """The number of failures; one that is NULL or a fraction would hide some."""
    if failures is None and failing_rows:
        raise ConfigError(f"fail_calc {fail_calc!r} gives NULL over {failing_rows} failing rows; count what is there")
    try:
        whole = int(failures or 0)
    except (TypeError, ValueError, OverflowError):
        whole = None
    if whole is None or whole != (failures or 0):
        raise ConfigError(f"fail_calc {fail_calc!r} gives {failures}, which is not a whole number")
    return whole
