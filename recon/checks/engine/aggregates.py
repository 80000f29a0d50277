"""Row checks: one aggregate over the table computes those of every `where`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.checks.data_check import DataCheck, Measure, QueryCheck, RowCheck
from recon.checks.engine.executor import (
    Executor,
    ScannedTable,
    ScheduledCheck,
    judged,
    measuring_error,
    reason_of,
    verdict_of,
)
from recon.model import Verdict
from recon.model.wire.columns import STAMPED_COLUMNS
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Values = Mapping[str, Any]


class AggregateExecutor(Executor):
    """Measures row checks of every `where` in one aggregate, and counts rows for the checks of other executors.

    Equal aggregates of several checks are computed once: Spark's physical aggregation recognises them.
    """

    def __init__(self, table: ScannedTable) -> None:
        super().__init__(table)
        self._aggregated: dict[int, ScheduledCheck[DataCheck]] = {}  # the row checks, and those only counted
        self._values: dict[int, Values | Exception] = {}

    @override
    def admit(self, scheduled: ScheduledCheck[RowCheck]) -> None:
        self.count_rows(scheduled)
        super().admit(scheduled)

    def count_rows(self, scheduled: ScheduledCheck[DataCheck]) -> None:
        """Adds to the aggregate the row count of a check of another executor, and the `measures` of a query check."""
        _ = aggregates_of(scheduled)
        self._aggregated[scheduled.at] = scheduled

    def values(self, scheduled: ScheduledCheck[DataCheck]) -> Values:
        """The values of a check given to `count_rows`: `rows`, and its measures."""
        self._run()
        values = self._values[scheduled.at]
        if isinstance(values, Exception):
            raise values
        return values

    def table_rows(self) -> int | None:
        """The number of rows in the table, if the aggregate has already run for a check without `where`."""
        for at, values in self._values.items():
            if self._aggregated[at].where is None and not isinstance(values, Exception):
                return int(values["rows"])
        return None

    @override
    def measure(self, scheduled: ScheduledCheck[RowCheck]) -> Mapping[int, Verdict]:
        self._run()
        return {at: self._verdict(row_check) for at, row_check in self._scheduled.items()}

    @override
    def failing(self, scheduled: ScheduledCheck[RowCheck], limit: int) -> DataFrame | None:
        condition = scheduled.check.failing()
        if condition is None:
            return None
        frame = self._table.frame
        rows = frame.filter(condition)
        if scheduled.where is not None:
            rows = rows.filter(scheduled.where)
        names = scheduled.check.columns() or frame.columns
        shown = dict.fromkeys([*names, *(name for name in STAMPED_COLUMNS if name in frame.columns)])
        # A limit per branch lets Spark stop early; a window over all failing rows would sort them.
        return rows.limit(limit).select(*(F.col(name).alias(name) for name in shown))

    def _run(self) -> None:
        unmeasured = {at: s for at, s in self._aggregated.items() if at not in self._values}
        if unmeasured:
            self._values.update(self._collected(unmeasured))

    def _collected(self, checks: Mapping[int, ScheduledCheck[DataCheck]]) -> dict[int, Values | Exception]:
        """The values of one job; if it breaks, those of each half, so that in the end only the culprit errs."""
        aggregates = {at: aggregates_of(scheduled) for at, scheduled in checks.items()}
        try:
            columns = [column.alias(f"c{at}.{name}") for at, of in aggregates.items() for name, column in of.items()]
            row = self._table.frame.agg(*columns).collect()[0].asDict()
        except Exception as error:
            if len(checks) == 1:
                return dict.fromkeys(checks, measuring_error(self._table.name, error))
            refused = self._refused(aggregates)
            if refused:  # known without a job; the others still share one
                others = {at: s for at, s in checks.items() if at not in refused}
                return refused | (self._collected(others) if others else {})
            places = list(checks)
            halves = places[: len(places) // 2], places[len(places) // 2 :]
            return {at: v for half in halves for at, v in self._collected({at: checks[at] for at in half}).items()}
        return {at: {name: row[f"c{at}.{name}"] for name in of} for at, of in aggregates.items()}

    def _refused(self, aggregates: Mapping[int, Mapping[str, Column]]) -> dict[int, Values | Exception]:
        """Those that Spark cannot even plan, such as an expression with an unknown column."""
        refused: dict[int, Values | Exception] = {}
        for at, columns in aggregates.items():
            try:
                _ = self._table.frame.agg(*columns.values()).schema
            except Exception as error:
                refused[at] = measuring_error(self._table.name, error)
        return refused

    def _verdict(self, scheduled: ScheduledCheck[RowCheck]) -> Verdict:
        values = self._values[scheduled.at]
        if isinstance(values, Exception):
            return Verdict(unproved=reason_of(values))
        context = self._table.context
        memory = context.memory_of(scheduled.bound)
        if memory is None:
            return verdict_of(scheduled, values, context)
        return judged(lambda: verdict_of(scheduled, memory.fold(scheduled.bound, scheduled.check, values), context))


def aggregates_of(scheduled: ScheduledCheck[DataCheck]) -> dict[str, Column]:
    """A check's aggregates and its number of rows, by name.

    Raises:
        ConfigError: a measure is a plain Column.
    """
    check = scheduled.check
    measures = cast(RowCheck, check).measures() if isinstance(check, (RowCheck, QueryCheck)) else {}
    plain = [name for name, measure in measures.items() if not isinstance(measure, Measure)]
    if plain:
        raise ConfigError(
            f"{check.test} measures {plain[0]!r} with a bare Column, to which `where` cannot be applied; "
            "use count_if or Measure of recon.checks"
        )
    row_count = F.count(F.lit(1)) if scheduled.where is None else F.count_if(scheduled.where)
    return {name: measure.over(scheduled.where) for name, measure in measures.items()} | {"rows": row_count}
