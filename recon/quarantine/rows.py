"""Row checks on a micro-batch before it is written: what they count, which rows fail, what that means.

A row check names a condition that a failing row meets. All conditions are put to the rows on their way into the
sink, by `observe`, so that asking costs no pass of its own; only what must be known before the write (a check with
`on_failure: stop`, a share above which to stop) costs one aggregate job. NULL meets no condition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

from recon.checks.base import DataCheck, RowCheck
from recon.checks.bound import Bound
from recon.checks.engine.executor import reason_of
from recon.checks.threshold import settle
from recon.errors import ConfigError
from recon.model import CheckResult, Verdict
from recon.spark.lazy import F
from recon.spark.observation import ROWS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

# Among what is counted, beside all ROWS: those that at least one check with on_failure: quarantine fails.
FAILING = "failing"


def names_rows(check: DataCheck) -> bool:
    """Whether a check tells its failing rows from the row alone, so that it can be asked before the write."""
    return (
        isinstance(check, RowCheck)
        and type(check).failing is not RowCheck.failing
        and check.remembers is None
        and not check.judges_empty
    )


class RowChecks:
    """The row checks of a sink's `post_batch`; the others are `others`."""

    def __init__(self, bounds: Sequence[Bound]) -> None:
        """Raises ConfigError where `on_failure: quarantine` stands at a check that names no failing rows."""
        self.bounds = [bound for bound in bounds if names_rows(cast(DataCheck, bound.check))]
        self.others = [bound for bound in bounds if bound not in self.bounds]
        for bound in self.others:
            if bound.config.on_failure == "quarantine":
                raise ConfigError(
                    f"post-batch check {bound.name} of pipeline {bound.pipeline}, sink {bound.sink} cannot put rows "
                    f"aside: {bound.check.test} judges the micro-batch, not its rows one by one; set on_failure to "
                    "warn or stop"
                )
        self._fitted: tuple[StructType, Asked] | None = None

    @property
    def puts_aside(self) -> bool:
        """Whether any of them has `on_failure: quarantine`."""
        return any(bound.config.on_failure == "quarantine" for bound in self.bounds)

    @property
    def stops(self) -> bool:
        """Whether any of them has `on_failure: stop`."""
        return any(bound.config.on_failure == "stop" for bound in self.bounds)

    def forget(self) -> None:
        """Fits the checks anew; another session may have other functions."""
        self._fitted = None

    def asked(self, frame: DataFrame, name: str) -> Asked:
        """The checks fitted to rows like these; `name` is what messages call them."""
        schema = frame.schema
        if self._fitted is None or self._fitted[0] != schema:
            self._fitted = (schema, _fit(self.bounds, frame, name))
        return self._fitted[1]


@dataclass(frozen=True)
class _Fitted:
    """One check for rows of a known schema: what it counts, and the condition its failing rows meet."""

    bound: Bound
    check: RowCheck
    counts: Mapping[str, Column]
    failing: Column | None

    @property
    def puts_aside(self) -> bool:
        return self.bound.config.on_failure == "quarantine"


@dataclass(frozen=True)
class Asked:
    """Row checks fitted to one schema. `broken` are those that cannot be put, each with its reason."""

    checks: tuple[_Fitted, ...]
    broken: tuple[tuple[Bound, str], ...] = ()

    def aggregates(self) -> list[Column]:
        """Everything to count, under unique names."""
        counted = [F.count(F.lit(1)).alias(ROWS)]
        if (bad := self.bad()) is not None:
            counted.append(F.count_if(bad).alias(FAILING))
        return counted + [c.alias(f"c{i}.{n}") for i, check in enumerate(self.checks) for n, c in check.counts.items()]

    def measure(self, frame: DataFrame) -> Mapping[str, Any]:
        """The counts, in one job."""
        return dict(frame.agg(*self.aggregates()).collect()[0].asDict())

    def bad(self) -> Column | None:
        """Whether a row is to be put aside; never NULL. None where no check puts rows aside."""
        conditions = [c.failing for c in self.checks if c.puts_aside and c.failing is not None]
        return reduce(lambda a, b: a | b, conditions) if conditions else None

    def refused(self) -> Column | None:
        """Whether a row fails a check that may not be passed over (quarantine or stop); None where there is none."""
        kept = [c.failing for c in self.checks if c.bound.config.on_failure != "warn" and c.failing is not None]
        return reduce(lambda a, b: a | b, kept) if kept else None

    def reasons(self) -> Column:
        """The names of the checks that put a row aside."""
        named = [F.when(c.failing, F.lit(c.bound.name)) for c in self.checks if c.puts_aside and c.failing is not None]
        return F.array_compact(F.array(*named))

    def judge(self, counted: Mapping[str, Any], at: datetime, name: str) -> list[CheckResult]:
        """A result per check from its counts, `if_empty` and thresholds applied."""
        from recon.checks.engine.context import ScanContext
        from recon.checks.engine.executor import ScheduledCheck, verdict_of

        found = []
        for i, check in enumerate(self.checks):
            values = {n: counted[f"c{i}.{n}"] for n in check.counts}
            scheduled = ScheduledCheck(i, check.bound, check.check, None)
            verdict = verdict_of(scheduled, {ROWS: counted[ROWS], **values}, ScanContext())
            found.append(settle(check.bound, verdict, at, at, name))
        return found

    def refusals(self, at: datetime, name: str) -> list[CheckResult]:
        """A result, status error, for each check that cannot be put."""
        return [settle(bound, Verdict(unproved=reason), at, at, name) for bound, reason in self.broken]

    def without_those_that_break_on(self, frame: DataFrame) -> Asked | None:
        """Tells the checks whose expressions Spark cannot evaluate on these rows from the others.

        None when no check is to blame: the rows themselves cannot be read, or every check can be evaluated.
        """
        try:
            frame.write.format("noop").mode("overwrite").save()
        except Exception:
            return None
        kept, broken = [], list(self.broken)
        for check in self.checks:
            try:
                Asked((check,)).measure(frame)
                kept.append(check)
            except Exception as error:
                broken.append((check.bound, reason_of(error)))
        return Asked(tuple(kept), tuple(broken)) if len(kept) < len(self.checks) else None


def _fit(bounds: Sequence[Bound], frame: DataFrame, name: str) -> Asked:
    checks: list[_Fitted] = []
    broken: list[tuple[Bound, str]] = []
    for bound in bounds:
        try:
            checks.append(_fitted(bound, frame, name))
        except Exception as error:
            broken.append((bound, reason_of(error)))
    whole = Asked(tuple(checks), tuple(broken))
    try:
        _analyse(whole, frame)
    except Exception:
        return _analysed(whole, frame)
    return whole


def _analyse(asked: Asked, frame: DataFrame) -> None:
    """Lets Spark resolve and type everything that is counted; no job runs. It refuses what is not deterministic."""
    _ = frame.observe("recon", *asked.aggregates()).schema


def _analysed(whole: Asked, frame: DataFrame) -> Asked:
    """One wrong expression costs its check and no other."""
    kept: list[_Fitted] = []
    broken = list(whole.broken)
    for check in whole.checks:
        try:
            _analyse(Asked((check,)), frame)
            kept.append(check)
        except Exception as error:
            broken.append((check.bound, reason_of(error)))
    return replace(whole, checks=tuple(kept), broken=tuple(broken))


def _fitted(bound: Bound, frame: DataFrame, name: str) -> _Fitted:
    from recon.checks.engine.scan import fitted

    found, where = fitted(bound, frame, name)
    check = cast(RowCheck, found)
    failing = check.failing()
    if failing is None and bound.config.on_failure == "quarantine":
        raise ConfigError(f"{check.test} names no failing rows with these arguments, so none can be put aside")
    counts = {n: measure.over(where) for n, measure in check.measures().items()}
    if where is not None:
        counts[ROWS] = F.count_if(where)
        failing = None if failing is None else failing & where
    sure = None if failing is None else F.coalesce(failing, F.lit(False))
    return _Fitted(bound, check, counts, sure)


__all__ = ["FAILING", "ROWS", "Asked", "RowChecks", "names_rows"]
