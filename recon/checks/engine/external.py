"""Checks that measure themselves: by foreign code that takes several at once, or each alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from recon.checks.base import JointCheck, WholeCheck
from recon.checks.engine.aggregates import AggregateExecutor
from recon.checks.engine.context import ScanContext
from recon.checks.engine.executor import ScheduledCheck, broke, empty, reason_of
from recon.errors import ReconError
from recon.model import Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class JointExecutor:
    """Checks that foreign code measures together; those of one party and `where` share a call."""

    def __init__(self, table: DataFrame, name: str, folded: AggregateExecutor) -> None:
        self._table, self._name, self._folded = table, name, folded
        self._scheduled: dict[int, ScheduledCheck] = {}

    def admit(self, scheduled: ScheduledCheck) -> None:
        """Takes a check."""
        self._scheduled[scheduled.at] = scheduled
        if not scheduled.check.judges_empty:
            self._folded.count_rows(scheduled)

    def measure(self, scheduled: ScheduledCheck) -> Mapping[int, Verdict]:
        """The whole party."""
        mine = self._party(scheduled)
        together = {at: s for at, s in self._scheduled.items() if self._party(s) == mine}
        try:
            if not scheduled.check.judges_empty and not self._folded.rows(scheduled):
                return {at: empty(s) for at, s in together.items()}
            rows = self._table if scheduled.where is None else self._table.filter(scheduled.where)
            checks = [s.check for s in together.values()]
            found = cast(JointCheck, scheduled.check).judge_all(checks, rows)
        except Exception as error:
            return dict.fromkeys(together, Verdict(unproved=reason_of(error)))
        return dict(zip(together, found, strict=True))

    def failing(self, scheduled: ScheduledCheck, limit: int) -> DataFrame | None:
        """Their verdicts bring samples along."""
        return None

    def _party(self, scheduled: ScheduledCheck) -> tuple[Any, ...]:
        return (type(scheduled.check), cast(JointCheck, scheduled.check).party(), scheduled.bound.config.where)


class SingleExecutor:
    """Checks that measure themselves; they bring their samples along."""

    def __init__(
        self, table: DataFrame, name: str, context: ScanContext, limit: Callable[[ScheduledCheck], int]
    ) -> None:
        self._table, self._name, self._context, self._limit = table, name, context, limit

    def admit(self, scheduled: ScheduledCheck) -> None:
        """Takes any."""

    def measure(self, scheduled: ScheduledCheck) -> Mapping[int, Verdict]:
        """This one alone."""
        rows = self._table if scheduled.where is None else self._table.filter(scheduled.where)
        try:
            found = cast(WholeCheck, scheduled.check).judge_tables(rows, self._context.tables, self._limit(scheduled))
        except ReconError as error:
            return {scheduled.at: Verdict(unproved=reason_of(error))}
        except Exception as error:
            return {scheduled.at: Verdict(unproved=str(broke(self._name, error)))}
        return {scheduled.at: empty(scheduled) if found is None else found}

    def failing(self, scheduled: ScheduledCheck, limit: int) -> DataFrame | None:
        """None beyond those of the verdict."""
        return None
