"""Row checks of a micro-batch: what they count, which rows fail, and the results.

A row check has a condition that a failing row meets. All conditions are evaluated during the sink write, using
`observe`, so that the checks need no Spark job of their own. What must be known before the write costs one aggregate
job: a check with `on_failure: stop`, or `stop_above`. NULL meets no condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

from recon.base.errors import ConfigError
from recon.checks.bound import Bound
from recon.checks.data_check import DataCheck, RowCheck
from recon.checks.engine.executor import reason_of
from recon.checks.threshold import settle
from recon.model import CheckResult, Verdict
from recon.spark.lazy import F
from recon.spark.observation import ROWS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

# The name of a count: rows that fail at least one check with on_failure: quarantine. ROWS counts all rows.
FAILING = "failing"


def names_rows(check: DataCheck) -> bool:
    """Whether a check decides from a row alone whether it fails, so that it can be evaluated before the write."""
    return (
        isinstance(check, RowCheck)
        and type(check).failing is not RowCheck.failing
        and check.remembers is None
        and not check.judges_empty
    )


class RowChecks:
    """The checks of a sink's `post_batch`: `bounds` judge rows, `others` judge the micro-batch as a whole."""

    def __init__(self, bounds: Sequence[Bound]) -> None:
        """Raises ConfigError where a check that names no failing rows has `on_failure: quarantine`."""
        self.bounds = [bound for bound in bounds if names_rows(cast(DataCheck, bound.check))]
        self.others = [bound for bound in bounds if bound not in self.bounds]
        for bound in self.others:
            if bound.config.on_failure == "quarantine":
                raise ConfigError(
                    f"post-batch check {bound.name} of pipeline {bound.pipeline}, sink {bound.sink} cannot "
                    f"quarantine rows: {bound.check.test} judges the micro-batch, not its rows one by one; set "
                    "on_failure to warn or stop"
                )
        self._fitted: tuple[StructType, FittedRowChecks] | None = None

    @property
    def quarantines(self) -> bool:
        """Whether a row check has `on_failure: quarantine`."""
        return any(bound.config.on_failure == "quarantine" for bound in self.bounds)

    @property
    def stops(self) -> bool:
        """Whether a row check has `on_failure: stop`."""
        return any(bound.config.on_failure == "stop" for bound in self.bounds)

    def forget(self) -> None:
        """Has the checks fitted anew: another session may have other functions."""
        self._fitted = None

    def fitted(self, frame: DataFrame, name: str) -> FittedRowChecks:
        """The row checks for rows of this schema; messages call the rows `name`."""
        schema = frame.schema
        if self._fitted is None or self._fitted[0] != schema:
            self._fitted = (schema, _fit(self.bounds, frame, name))
        return self._fitted[1]


@dataclass(frozen=True)
class _FittedRowCheck:
    """One row check for rows of a known schema: what it counts, and the condition that its failing rows meet."""

    bound: Bound
    check: RowCheck
    counts: Mapping[str, Column]
    failing: Column | None

    @property
    def quarantines(self) -> bool:
        return self.bound.config.on_failure == "quarantine"


@dataclass(frozen=True)
class FittedRowChecks:
    """Row checks fitted to one schema. `broken` are those that cannot be evaluated on it, each with its reason."""

    checks: tuple[_FittedRowCheck, ...]
    broken: tuple[tuple[Bound, str], ...] = ()

    def aggregates(self) -> list[Column]:
        """Everything to count, under unique names."""
        counts = [F.count(F.lit(1)).alias(ROWS)]
        if (fails := self.quarantine_condition()) is not None:
            counts.append(F.count_if(fails).alias(FAILING))
        return counts + [c.alias(f"c{i}.{n}") for i, check in enumerate(self.checks) for n, c in check.counts.items()]

    def measure(self, frame: DataFrame) -> Mapping[str, Any]:
        """The counts, in one job."""
        return dict(frame.agg(*self.aggregates()).collect()[0].asDict())

    def quarantine_condition(self) -> Column | None:
        """Whether a row fails a check with `on_failure: quarantine`; never NULL. None where there is no such check."""
        return _any(c.failing for c in self.checks if c.quarantines)

    def refusal_condition(self) -> Column | None:
        """Whether a row fails a check with `on_failure: quarantine` or `stop`; None where there is no such check."""
        return _any(c.failing for c in self.checks if c.bound.config.on_failure != "warn")

    def reasons(self) -> Column:
        """The names of the checks with `on_failure: quarantine` that a row fails."""
        named = [F.when(c.failing, F.lit(c.bound.name)) for c in self.checks if c.quarantines and c.failing is not None]
        return F.array_compact(F.array(*named))

    def results(self, counts: Mapping[str, Any], at: datetime, name: str) -> list[CheckResult]:
        """A result per check from its counts, `if_empty` and thresholds applied; messages call the table `name`."""
        from recon.checks.engine.context import ScanContext
        from recon.checks.engine.executor import ScheduledCheck, verdict_of

        results = []
        for i, check in enumerate(self.checks):
            values = {n: counts[f"c{i}.{n}"] for n in check.counts}
            scheduled = ScheduledCheck(i, check.bound, check.check, None)
            verdict = verdict_of(scheduled, {ROWS: counts[ROWS], **values}, ScanContext())
            results.append(settle(check.bound, verdict, at, at, name))
        return results

    def errors(self, at: datetime, name: str) -> list[CheckResult]:
        """A result, status error, for each check that cannot be evaluated."""
        return [settle(bound, Verdict(unproved=reason), at, at, name) for bound, reason in self.broken]

    def without_those_that_break_on(self, frame: DataFrame) -> FittedRowChecks | None:
        """The checks that Spark can evaluate on these rows; the others are among its `broken`.

        None where no check is at fault: the rows themselves cannot be computed, or every check can be evaluated.
        """
        try:
            frame.write.format("noop").mode("overwrite").save()
        except Exception:
            return None
        remaining = self.without_broken(lambda check: check.measure(frame))
        return remaining if len(remaining.checks) < len(self.checks) else None

    def without_broken(self, evaluate: Callable[[FittedRowChecks], object]) -> FittedRowChecks:
        """The checks that `evaluate` evaluates, each alone; those that raise an exception are among its `broken`."""
        kept, broken = [], list(self.broken)
        for check in self.checks:
            try:
                evaluate(FittedRowChecks((check,)))
                kept.append(check)
            except Exception as error:
                broken.append((check.bound, reason_of(error)))
        return FittedRowChecks(tuple(kept), tuple(broken))


def _fit(bounds: Sequence[Bound], frame: DataFrame, name: str) -> FittedRowChecks:
    checks, broken = [], []
    for bound in bounds:
        try:
            checks.append(_fitted(bound, frame, name))
        except Exception as error:
            broken.append((bound, reason_of(error)))
    whole = FittedRowChecks(tuple(checks), tuple(broken))
    try:
        _analyse(whole, frame)
    except Exception:  # one by one, so that a wrong expression breaks its own check and no other
        return whole.without_broken(lambda check: _analyse(check, frame))
    return whole


def _analyse(checks: FittedRowChecks, frame: DataFrame) -> None:
    """Has Spark resolve and type all aggregates, without a job; it refuses those that are not deterministic."""
    _ = frame.observe("recon", *checks.aggregates()).schema


def _fitted(bound: Bound, frame: DataFrame, name: str) -> _FittedRowCheck:
    from recon.checks.engine.scan import fitted

    fitted_check, where = fitted(bound, frame, name)
    check = cast(RowCheck, fitted_check)
    failing = check.failing()
    if failing is None and bound.config.on_failure == "quarantine":
        raise ConfigError(
            f"{check.test} has no condition for failing rows with these arguments, so none can be quarantined"
        )
    counts = {n: measure.over(where) for n, measure in check.measures().items()}
    if where is not None:
        counts[ROWS] = F.count_if(where)
        failing = None if failing is None else failing & where
    return _FittedRowCheck(bound, check, counts, None if failing is None else F.coalesce(failing, F.lit(False)))


def _any(conditions: Iterable[Column | None]) -> Column | None:
    known = [condition for condition in conditions if condition is not None]
    return reduce(lambda condition, other: condition | other, known) if known else None
