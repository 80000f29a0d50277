"""What an executor is: it returns verdicts for all checks measured by the same Spark job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from recon.checks.base import DataCheck, KeyCheck, QueryCheck, RowCheck
from recon.checks.bound import Bound
from recon.checks.engine.context import ScanContext
from recon.errors import ConfigError, ReconError
from recon.model import Verdict
from recon.spark.errors import spark_error
from recon.text import first_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class ScheduledCheck:
    """A check that waits to be measured: its place among the scan's checks, and its `where`."""

    at: int
    bound: Bound
    check: DataCheck
    where: Column | None


class Executor(Protocol):
    """One way of measuring."""

    def admit(self, scheduled: ScheduledCheck) -> None:
        """Takes a check; raises when it cannot be measured."""

    def measure(self, scheduled: ScheduledCheck) -> Mapping[int, Verdict]:
        """Verdicts by place: this check's, and those of all that the same job measured."""

    def failing(self, scheduled: ScheduledCheck, limit: int) -> DataFrame | None:
        """At most `limit` failing rows of a failed check; None where no row alone fails."""


def judged(scheduled: ScheduledCheck, values: Mapping[str, Any], context: ScanContext) -> Verdict:
    """The check's verdict on measured values, or what zero rows give."""
    check = cast("RowCheck | KeyCheck | QueryCheck", scheduled.check)
    if not values["rows"] and not check.judges_empty:
        return empty(scheduled)
    try:
        if check.remembers is not None:
            values = {**values, "history": context.history(scheduled.bound, check.remembers)}
            verdict = check.judge(values)
            return replace(verdict, evidence={**verdict.evidence, "asked": scheduled.bound.asked})
        verdict = check.judge(values)
    except Exception as error:
        return Verdict(unproved=reason_of(error))
    # There were rows, and none to judge: all NULL, or left out by a condition of the check's own.
    nothing = verdict.skipped is not None and scheduled.bound.config.if_empty != "skip"
    return empty(scheduled, verdict.skipped) if nothing else verdict


def empty(scheduled: ScheduledCheck, said: str | None = None) -> Verdict:
    """What a check gives that was put to no rows, as `if_empty` says."""
    where, allowed = scheduled.bound.config.where, scheduled.bound.config.if_empty
    if said is None:
        said = f"0 rows where {where}" if where else "0 rows"
    if allowed == "skip":
        return Verdict(skipped=said)
    return Verdict(
        failures=int(allowed == "fail"), regardless=True, message=f"{said}, which if_empty takes as {allowed}"
    )


def broke(name: str, error: Exception) -> Exception:
    """What to tell when Spark, rather than the check, gave up."""
    if isinstance(error, ConfigError):
        return error
    return ConfigError(f"Spark could not measure {name}: {spark_error(error)}")


def reason_of(error: Exception) -> str:
    """Why a check could not be evaluated, in one sentence without a stack trace."""
    if isinstance(error, ReconError):
        return first_line(error)
    return f"the check could not be evaluated: {type(error).__name__}: {first_line(error)}"
