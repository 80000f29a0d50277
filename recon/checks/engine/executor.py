"""What an executor is: it returns verdicts for all checks measured by the same Spark job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from recon.base.errors import ConfigError, ReconError
from recon.base.text import first_line
from recon.checks.bound import Bound
from recon.checks.data_check import DataCheck, KeyCheck, QueryCheck, RowCheck
from recon.checks.engine.context import ScanContext
from recon.model import Verdict
from recon.spark.errors import spark_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CheckT = TypeVar("CheckT", bound=DataCheck, covariant=True)


@dataclass(frozen=True)
class ScheduledCheck(Generic[CheckT]):
    """A check that waits to be measured: its place among the scan's checks, and its `where`."""

    at: int
    bound: Bound
    check: CheckT
    where: Column | None


@dataclass(frozen=True)
class ScannedTable:
    """The table that the executors of one scan measure; `name` is what messages call it."""

    frame: DataFrame
    name: str
    context: ScanContext

    def rows_for(self, scheduled: ScheduledCheck[DataCheck]) -> DataFrame:
        """The rows that meet the check's `where`."""
        return self.frame if scheduled.where is None else self.frame.filter(scheduled.where)


class Executor(ABC):
    """Measures one kind of check of one table."""

    def __init__(self, table: ScannedTable) -> None:
        self._table = table
        self._scheduled: dict[int, ScheduledCheck[Any]] = {}

    def admit(self, scheduled: ScheduledCheck[Any]) -> None:
        """Takes a check; raises when it cannot be measured."""
        self._scheduled[scheduled.at] = scheduled

    @abstractmethod
    def measure(self, scheduled: ScheduledCheck[Any]) -> Mapping[int, Verdict]:
        """Verdicts by place: this check's, and those of all that the same job measured.

        Raises:
            Exception: Spark could not measure this check.
        """

    def failing(self, scheduled: ScheduledCheck[Any], limit: int) -> DataFrame | None:
        """At most `limit` failing rows of a failed check; None where no row alone fails, or the verdict has samples."""
        return None


def judged(judge: Callable[[], Verdict]) -> Verdict:
    """The verdict that a check's own code gives; unproved where it raises."""
    try:
        return judge()
    except Exception as error:
        return Verdict(unproved=reason_of(error))


def verdict_of(
    scheduled: ScheduledCheck[RowCheck | KeyCheck | QueryCheck], values: Mapping[str, Any], context: ScanContext
) -> Verdict:
    """The check's verdict on measured values, or what `if_empty` says where there was nothing to judge."""
    check = scheduled.check
    if not values["rows"] and not check.judges_empty:
        return verdict_on_no_rows(scheduled)
    remembers = check.remembers is not None
    verdict = judged(lambda: _judged_with_history(scheduled, values, context) if remembers else check.judge(values))
    # No row was judged: all were NULL, or left out by a condition of the check's own. Too few earlier runs are no such
    # reason where there are rows.
    if verdict.skipped is None or scheduled.bound.config.if_empty == "skip" or (remembers and values["rows"]):
        return verdict
    return replace(verdict_on_no_rows(scheduled, verdict.skipped), evidence=verdict.evidence)


def _judged_with_history(
    scheduled: ScheduledCheck[RowCheck | KeyCheck | QueryCheck], values: Mapping[str, Any], context: ScanContext
) -> Verdict:
    bound, check = scheduled.bound, scheduled.check
    assert check.remembers is not None
    verdict = check.judge({**values, "history": context.history(bound, check.remembers)})
    return replace(verdict, evidence={**verdict.evidence, "asked": bound.fingerprint})


def verdict_on_no_rows(scheduled: ScheduledCheck[DataCheck], reason: str | None = None) -> Verdict:
    """The verdict that `if_empty` gives a check that had no rows to judge."""
    where, if_empty = scheduled.bound.config.where, scheduled.bound.config.if_empty
    if reason is None:
        reason = f"0 rows where {where}" if where else "0 rows"
    if if_empty == "skip":
        return Verdict(skipped=reason)
    return Verdict(
        failures=int(if_empty == "fail"), regardless=True, message=f"{reason}, which if_empty takes as {if_empty}"
    )


def measuring_error(name: str, error: Exception) -> ReconError:
    """The error to show when Spark, rather than the check, failed."""
    if isinstance(error, ReconError):
        return error
    return ConfigError(f"Spark could not measure {name}: {spark_error(error)}")


def reason_of(error: Exception) -> str:
    """Why a check could not be evaluated, in one sentence without a stack trace."""
    if isinstance(error, ReconError):
        return first_line(error)
    return f"the check could not be evaluated: {type(error).__name__}: {spark_error(error)}"
