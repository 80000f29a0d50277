"""Checks with a query of their own: one job each, and the shared aggregate for the number of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from recon.checks.base import QueryCheck
from recon.checks.engine.aggregates import AggregateExecutor
from recon.checks.engine.context import ScanContext
from recon.checks.engine.executor import ScheduledCheck, broke, judged
from recon.errors import ConfigError
from recon.model import Verdict
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class QueryExecutor:
    """Checks with a query of their own: one job each, and the shared aggregate for the number of rows."""

    def __init__(self, table: DataFrame, name: str, context: ScanContext, folded: AggregateExecutor) -> None:
        self._table, self._name, self._context, self._folded = table, name, context, folded
        self._counted: dict[int, DataFrame] = {}
        self._folds: set[int] = set()

    def admit(self, scheduled: ScheduledCheck) -> None:
        """Takes a check if Spark accepts its query."""
        check = cast(QueryCheck, scheduled.check)
        counted = check.counted(self._rows(scheduled), self._context.tables)
        _ = counted.schema
        self._counted[scheduled.at] = counted
        if check.measures() or not (check.judges_empty or "rows" in check.figures()):
            self._folded.count_rows(scheduled)
            self._folds.add(scheduled.at)

    def measure(self, scheduled: ScheduledCheck) -> Mapping[int, Verdict]:
        """This one alone."""
        check = cast(QueryCheck, scheduled.check)
        try:
            values: dict[str, Any] = {"rows": None, "failures": 0}
            if scheduled.at in self._folds:
                values |= self._folded.values(scheduled)
            if values["rows"] != 0 or check.judges_empty:
                values |= self._figures(scheduled, check)
        except Exception as error:
            return {scheduled.at: Verdict(unproved=str(broke(self._name, error)))}
        return {scheduled.at: judged(scheduled, values, self._context)}

    def failing(self, scheduled: ScheduledCheck, limit: int) -> DataFrame | None:
        """The query's own rows."""
        return self._failing(scheduled).limit(limit)

    def _failing(self, scheduled: ScheduledCheck) -> DataFrame:
        return cast(QueryCheck, scheduled.check).failing_rows(self._rows(scheduled), self._context.tables)

    def _figures(self, scheduled: ScheduledCheck, check: QueryCheck) -> dict[str, Any]:
        """The failures and the check's figures, in one job."""
        figures = [F.expr(sql).alias(name) for name, sql in check.figures().items()]
        own = scheduled.bound.config.fail_calc
        failures = F.expr(own or check.fail_calc()).alias("failures")
        if own is None:
            found = self._counted[scheduled.at].agg(failures, *figures)
        else:
            found = self._failing(scheduled).agg(failures, F.count(F.lit(1)).alias("failing_rows"))
            if figures:
                found = found.crossJoin(self._counted[scheduled.at].agg(*figures))
        values = found.collect()[0].asDict()
        return {**values, "failures": _whole(values["failures"], own, values.pop("failing_rows", 0))}

    def _rows(self, scheduled: ScheduledCheck) -> DataFrame:
        return self._table if scheduled.where is None else self._table.filter(scheduled.where)


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
