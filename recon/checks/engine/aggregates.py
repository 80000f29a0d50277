"""Row checks of every `where`, computed by one aggregate over the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from recon.checks.base import Measure, QueryCheck, RowCheck
from recon.checks.engine.context import ScanContext
from recon.checks.engine.executor import ScheduledCheck, broke, judged, reason_of
from recon.errors import ConfigError
from recon.model import Verdict
from recon.model.wire.columns import STAMPED_COLUMNS
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class AggregateExecutor:
    """Row checks of every `where` in one aggregate, and the row counts that other parts ask for.

    Equal aggregates of several checks are computed once: Spark's physical aggregation tells them by meaning.
    """

    def __init__(self, table: DataFrame, name: str, context: ScanContext) -> None:
        self._table, self._name, self._context = table, name, context
        self._scheduled: dict[int, ScheduledCheck] = {}
        self._counted: dict[int, ScheduledCheck] = {}
        self._values: dict[int, Mapping[str, Any] | Exception] = {}

    def admit(self, scheduled: ScheduledCheck) -> None:
        """Takes a check whose measures are what they must be."""
        _columns(scheduled)
        self._scheduled[scheduled.at] = scheduled

    def count_rows(self, scheduled: ScheduledCheck) -> None:
        """Counts the rows of a check that another part measures, and takes the `measures` of its query."""
        _ = self._wanted(scheduled)
        self._counted[scheduled.at] = scheduled

    def rows(self, scheduled: ScheduledCheck) -> int:
        """The number of rows that `count_rows` asked for."""
        return int(self.values(scheduled)["rows"])

    def values(self, scheduled: ScheduledCheck) -> Mapping[str, Any]:
        """The number of rows that `count_rows` asked for, and the measures."""
        self._run()
        found = self._values[scheduled.at]
        if isinstance(found, Exception):
            raise found
        return found

    def table_rows(self) -> int | None:
        """How many rows the table has, if a check without `where` has counted them already."""
        for at, values in self._values.items():
            scheduled = self._scheduled.get(at) or self._counted.get(at)
            if scheduled is not None and scheduled.where is None and not isinstance(values, Exception):
                return int(values["rows"])
        return None

    def measure(self, scheduled: ScheduledCheck) -> Mapping[int, Verdict]:
        """All of them at once."""
        self._run()
        return {at: self._verdict(of) for at, of in self._scheduled.items()}

    def failing(self, scheduled: ScheduledCheck, limit: int) -> DataFrame | None:
        """The columns of the check, and where the record came from."""
        condition = cast(RowCheck, scheduled.check).failing()
        if condition is None:
            return None
        rows = self._table.filter(condition)
        if scheduled.where is not None:
            rows = rows.filter(scheduled.where)
        names = scheduled.check.columns() or self._table.columns
        shown = dict.fromkeys([*names, *(name for name in STAMPED_COLUMNS if name in self._table.columns)])
        # A limit per branch lets Spark stop early; a window over all failing rows would sort them.
        return rows.limit(limit).select(*(F.col(name).alias(name) for name in shown))

    def _run(self) -> None:
        waiting = {at: s for at, s in (self._scheduled | self._counted).items() if at not in self._values}
        if waiting:
            self._values.update(self._collected(waiting))

    def _collected(self, checks: Mapping[int, ScheduledCheck]) -> dict[int, Mapping[str, Any] | Exception]:
        """The values of one job; if it breaks, those of each half, so that in the end only the culprit errs."""
        try:
            columns = [c.alias(f"c{at}.{n}") for at, s in checks.items() for n, c in self._wanted(s).items()]
            row = self._table.agg(*columns).collect()[0].asDict()
        except Exception as error:
            if len(checks) == 1:
                return dict.fromkeys(checks, broke(self._name, error))
            refused = self._refused(checks)
            if refused:  # found without a job; the others still share one
                others = {at: s for at, s in checks.items() if at not in refused}
                return refused | (self._collected(others) if others else {})
            places = list(checks)
            halves = places[: len(places) // 2], places[len(places) // 2 :]
            return {at: v for half in halves for at, v in self._collected({at: checks[at] for at in half}).items()}
        return {at: {n: row[f"c{at}.{n}"] for n in self._wanted(s)} for at, s in checks.items()}

    def _refused(self, checks: Mapping[int, ScheduledCheck]) -> dict[int, Mapping[str, Any] | Exception]:
        """Those that Spark cannot even plan, such as an expression with an unknown column."""
        found: dict[int, Mapping[str, Any] | Exception] = {}
        for at, scheduled in checks.items():
            try:
                _ = self._table.agg(*self._wanted(scheduled).values()).schema
            except Exception as error:
                found[at] = broke(self._name, error)
        return found

    def _wanted(self, scheduled: ScheduledCheck) -> dict[str, Column]:
        return (
            _columns(scheduled)
            if isinstance(scheduled.check, (RowCheck, QueryCheck))
            else {"rows": _row_count(scheduled)}
        )

    def _verdict(self, scheduled: ScheduledCheck) -> Verdict:
        values = self._values[scheduled.at]
        if isinstance(values, Exception):
            return Verdict(unproved=reason_of(values))
        memory = self._context.memory
        if memory is not None and memory.keeps(scheduled.bound):
            try:
                values = memory.fold(scheduled.bound, cast(RowCheck, scheduled.check), values)
            except Exception as error:
                return Verdict(unproved=reason_of(error))
        return judged(scheduled, values, self._context)


def _columns(scheduled: ScheduledCheck) -> dict[str, Column]:
    """A check's aggregates and its number of rows, by name."""
    measures = cast("RowCheck | QueryCheck", scheduled.check).measures()
    bare = [name for name, measure in measures.items() if not isinstance(measure, Measure)]
    if bare:
        raise ConfigError(
            f"{scheduled.check.test} measures {bare[0]!r} with a bare Column, to which `where` cannot be applied; "
            "use count_if or Measure of recon.checks.base"
        )
    return {name: measure.over(scheduled.where) for name, measure in measures.items()} | {"rows": _row_count(scheduled)}


def _row_count(scheduled: ScheduledCheck) -> Column:
    return F.count(F.lit(1)) if scheduled.where is None else F.count_if(scheduled.where)
