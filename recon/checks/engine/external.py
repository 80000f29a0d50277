"""Checks that need no measuring of ours: by the schema, by another library, or by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from typing_extensions import override

from recon.checks.data_check import JointCheck, SchemaCheck, WholeCheck
from recon.checks.engine.aggregates import AggregateExecutor
from recon.checks.engine.executor import (
    Executor,
    ScannedTable,
    ScheduledCheck,
    judged,
    reason_of,
    verdict_on_no_rows,
)
from recon.model import Verdict


class SchemaExecutor(Executor):
    """Judges the table's schema; no job runs."""

    @override
    def measure(self, scheduled: ScheduledCheck[SchemaCheck]) -> Mapping[int, Verdict]:
        schema = self._table.frame.schema
        return {scheduled.at: judged(lambda: scheduled.check.judge_schema(schema))}


class JointExecutor(Executor):
    """Has another library measure all checks of one `group` and `where` together."""

    def __init__(self, table: ScannedTable, aggregates: AggregateExecutor) -> None:
        super().__init__(table)
        self._aggregates = aggregates

    @override
    def admit(self, scheduled: ScheduledCheck[JointCheck]) -> None:
        super().admit(scheduled)
        if not scheduled.check.judges_empty:
            self._aggregates.count_rows(scheduled)

    @override
    def measure(self, scheduled: ScheduledCheck[JointCheck]) -> Mapping[int, Verdict]:
        together = {at: s for at, s in self._scheduled.items() if _group(s) == _group(scheduled)}
        try:
            if not scheduled.check.judges_empty and not self._aggregates.values(scheduled)["rows"]:
                return {at: verdict_on_no_rows(s) for at, s in together.items()}
            checks = [s.check for s in together.values()]
            verdicts = scheduled.check.judge_all(checks, self._table.rows_for(scheduled))
        except Exception as error:
            return dict.fromkeys(together, Verdict(unproved=reason_of(error)))
        return dict(zip(together, verdicts, strict=True))


def _group(scheduled: ScheduledCheck[JointCheck]) -> tuple[Any, ...]:
    return type(scheduled.check), scheduled.check.group(), scheduled.bound.config.where


class SingleExecutor(Executor):
    """Lets each check measure itself."""

    def __init__(self, table: ScannedTable, limit: Callable[[ScheduledCheck[Any]], int]) -> None:
        super().__init__(table)
        self._limit = limit

    @override
    def measure(self, scheduled: ScheduledCheck[WholeCheck]) -> Mapping[int, Verdict]:
        rows, tables = self._table.rows_for(scheduled), self._table.context.tables
        verdict = scheduled.check.judge_tables(rows, tables, self._limit(scheduled))
        return {scheduled.at: verdict_on_no_rows(scheduled) if verdict is None else verdict}
