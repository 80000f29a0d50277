"""Data checks against the table's own past: a figure that is far from what earlier runs measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import dropwhile, pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.checks.base import set_by_fit
from recon.checks.data.bounds import is_instant, is_numeric
from recon.checks.data.figures import MAX, MEAN, MIN, STDDEV, SUM, Figure
from recon.checks.data.freshness import moment, now
from recon.checks.data_check import DataCheck, Measure, RowCheck, count_if
from recon.checks.period import Period
from recon.model import Verdict
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

# Iglewicz and Hoaglin: what makes both deviations comparable with a normal distribution's standard deviation.
_OF_MEDIAN_DEVIATION = 0.6745
_OF_MEAN_DEVIATION = 1.253314


class Usual(NamedTuple):
    """What a figure was in earlier runs, and how far a new one is from that."""

    median: float
    spread: float  # 0 when all were equal
    score: float  # how many deviations the new one is away; signed
    runs: int


def compare(value: float, earlier: Sequence[float], tolerance: float) -> Usual:
    """How unusual a value is among earlier ones, by the modified z-score.

    The spread is the median absolute deviation from the median. Where that is 0, because more than half were equal, it
    is the mean absolute deviation. Where all were equal, a value within `tolerance`, a share of the median, is not
    unusual.

    >>> compare(17, [10, 12, 11, 9, 10], tolerance=0.01).score
    4.7215
    """
    middle = median(earlier)
    apart = [abs(e - middle) for e in earlier]
    if spread := median(apart):
        return Usual(middle, spread, _OF_MEDIAN_DEVIATION * (value - middle) / spread, len(earlier))
    if spread := fmean(apart):
        return Usual(middle, spread, (value - middle) / (_OF_MEAN_DEVIATION * spread), len(earlier))
    allowed = tolerance * abs(middle)
    beyond = abs(value - middle) > allowed
    return Usual(middle, 0.0, math.copysign(math.inf, value - middle) if beyond else 0.0, len(earlier))


@dataclass(frozen=True, kw_only=True)
class Anomaly(RowCheck):
    """One figure, compared with what earlier runs of the check measured; a subclass says which.

    Usual:
        the median of earlier runs. A deviation is their median absolute deviation, scaled as in a normal distribution;
        where that is 0, the mean absolute deviation. Runs in which the check failed count as history like others; a
        median is robust against them. With fewer than `min_runs` earlier runs the check is skipped as "not enough
        history", never passed.

    Args:
        min_runs: how many earlier runs there must be.
        window: how many of the newest earlier runs are compared with.
        deviations: from how many deviations on it fails.
        direction: `up` or `down` fails on too great or too small a figure only.
        tolerance: where all earlier runs were equal, the share of their value by which a new one may differ.
    """

    remembers: ClassVar[str] = "value"
    min_runs: int = 7
    window: int = 30
    deviations: float = 3.5
    direction: Literal["both", "up", "down"] = "both"
    tolerance: float = 0.01

    def __post_init__(self) -> None:
        if self.min_runs < 1 or self.window < self.min_runs:
            raise ConfigError(
                f"min_runs is {self.min_runs} and window {self.window}; "
                "min_runs must be 1 or more, and window not below it"
            )
        if not self.deviations > 0 or not self.tolerance >= 0:
            raise ConfigError(
                f"deviations is {self.deviations} and tolerance {self.tolerance}; the one must be above 0, "
                "the other not below"
            )

    def judge_value(
        self,
        value: float | None,
        earlier: Sequence[float],
        what: str,
        evidence: Mapping[str, Any],
        emptied: bool = False,
    ) -> Verdict:
        """The verdict on a value; `evidence` holds it whatever the verdict, for later runs to compare with.

        An `emptied` table is never usual, however much the earlier values differ.
        """
        seen = earlier[: self.window]
        if len(seen) < self.min_runs:
            runs = f"{len(seen)} of {self.min_runs} runs"
            return Verdict(skipped=f"not enough history: {runs}", evidence={**evidence, "runs": len(seen)})
        if value is None or math.isnan(value) or (emptied and self.direction != "up"):
            now_is = "missing" if value is None else "NaN" if math.isnan(value) else _text(value)
            why = "there are 0 rows, where earlier runs had some: " if emptied else ""
            message = f"{what} is {now_is}, and was {_text(median(seen))} in the median of {len(seen)} earlier runs"
            return Verdict.counted(1, why + message, **evidence, runs=len(seen))
        usual = compare(value, seen, self.tolerance)
        unusual = abs(usual.score) > self.deviations and self.direction in ("both", "up" if usual.score > 0 else "down")
        return Verdict.counted(
            int(unusual),
            self._message(what, value, usual),
            **evidence,
            median=usual.median,
            deviation=usual.spread,
            score=usual.score if math.isfinite(usual.score) else None,
            runs=usual.runs,
        )

    def emptied(self, rows: int, earlier: Sequence[float]) -> bool:
        """Whether a table without rows had some in earlier runs, newest first, and in all of them until it had none."""
        before = list(dropwhile(lambda value: value == 0, earlier[: self.window]))
        return not rows and bool(before) and all(before)

    def _message(self, what: str, value: float, usual: Usual) -> str:
        way = "above" if usual.score > 0 else "below"
        usually = f"the median {_text(usual.median)} of {usual.runs} earlier runs"
        if not usual.spread:
            return f"{what} is {_text(value)}, {way} {usually}, which were all the same"
        score = f"{abs(usual.score):.1f} deviations, {self.deviations:g} are allowed"
        return f"{what} is {_text(value)}, far {way} {usually} ({score})"


@dataclass(frozen=True, kw_only=True)
class VolumeAnomaly(Anomaly):
    """Whether a table grew by an unusual number of rows, compared with earlier runs of this check.

    Fails by 1. With `timestamp_column` and `period`, the rows of the last complete period are counted. Without them, it
    is the rows that came since the last run: audits should then be equally far apart. Rows whose timestamp is NULL are
    in no period. Periods begin at multiples of their length since 1970 in UTC.

    Args:
        timestamp_column: a date or timestamp: when a row arrived.
        period: the length of a period, as `{count: 1, period: day}`; audit about as often.

    Zero rows:
        counted like any other number. A table that was emptied fails, however much earlier numbers differ, unless
        `direction` is `up` or it was empty in some earlier runs. Without enough history `if_empty` decides.

    Example:
        data_tests:
          - volume_anomaly:
              arguments:
                timestamp_column: created_at
                period: {count: 1, period: day}
                direction: down
    """

    test: ClassVar[str] = "volume_anomaly"
    judges_empty: ClassVar[bool] = True
    named_after: ClassVar[Sequence[str]] = ("timestamp_column",)
    reads: ClassVar[Sequence[str]] = ("timestamp_column",)
    timestamp_column: str | None = None
    period: Period | None = None
    time_type: Any = set_by_fit()

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.timestamp_column is None) != (self.period is None):
            raise ConfigError("volume_anomaly needs timestamp_column and period together, or neither")
        if self.period is not None and self.period.count < 1:
            raise ConfigError(f"period is {self.period}; its count must be 1 or more")

    @override
    def fit(self, types: Mapping[str, DataType], rows: DataFrame) -> Self:
        if self.timestamp_column is None:
            return self
        type_ = types[self.timestamp_column]
        if not is_instant(type_):
            raise ConfigError(
                f"volume_anomaly needs a date or timestamp, and column {self.timestamp_column} is "
                f"{type_.simpleString()}"
            )
        return replace(self, time_type=type_)

    @override
    def measures(self) -> Mapping[str, Measure]:
        if self.timestamp_column is None or self.period is None:
            return {}
        time, length = F.col(self.timestamp_column), int(self.period.length.total_seconds()) * 1_000_000
        end = F.floor(now() / F.lit(length)).cast("bigint") * F.lit(length)
        start = moment(end - F.lit(length), self.time_type)
        # What was measured a period ago is of another period: this cannot be merged.
        within = (time >= start) & (time < moment(end, self.time_type))
        return {"rows_in_period": Measure(within, F.count_if)}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        earlier = numbers(measured["history"])
        if self.period is not None:
            value = measured["rows_in_period"]
            what = f"the number of rows in the last complete period of {self.period}"
            evidence = {"value": value, "rows": measured["rows"]}
            return self.judge_value(value, earlier, what, evidence, self.emptied(measured["rows"], earlier))
        total = measured["rows"]
        grown = [newer - older for newer, older in pairwise(earlier)]
        growth = total - earlier[0] if earlier else None
        evidence = {"value": total, "rows": total, "growth": growth}
        what = "the number of rows since the last run"
        return self.judge_value(growth, grown, what, evidence, self.emptied(total, earlier))


_Metric = Literal[
    "row_count", "null_count", "null_proportion", "approx_distinct", "min", "max", "mean", "sum", "stddev"
]


@dataclass(frozen=True, kw_only=True)
class MetricAnomaly(Anomaly):
    """Whether a figure of a column is unusual, compared with earlier runs of this check.

    Fails by 1. NULL is left out of every metric but `null_count`, `null_proportion` and `row_count`. A figure that is
    NaN, or that a column without values does not have, fails once there is enough history.

    Args:
        metric: what is measured.
        column_name: the column; filled in for a test listed below a column. `row_count` needs none.

    Zero rows:
        a table (or `where`) with no rows is skipped. `row_count` counts them like any other number. A table that was
        emptied fails, however much earlier numbers differ, unless `direction` is `up` or it was empty in some earlier
        runs. Without enough history `if_empty` decides.

    Example:
        columns:
          - name: amount
            data_tests:
              - metric_anomaly:
                  arguments: {metric: mean, deviations: 5}
    """

    test: ClassVar[str] = "metric_anomaly"
    named_after: ClassVar[Sequence[str]] = ("column_name", "metric")
    reads: ClassVar[Sequence[str]] = ("column_name",)
    metric: _Metric
    column_name: str | None = None
    column_type: Any = set_by_fit()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.column_name is None and self.metric != "row_count":
            raise ConfigError(f"metric_anomaly needs a column for the metric {self.metric}: give it as column_name")

    @override
    def fit(self, types: Mapping[str, DataType], rows: DataFrame) -> Self:
        if self.column_name is None:
            return self
        type_ = types[self.column_name]
        if self.metric in ("min", "max", "mean", "sum", "stddev") and not is_numeric(type_):
            raise ConfigError(
                f"metric_anomaly's metric {self.metric} needs numbers, and column {self.column_name} is "
                f"{type_.simpleString()}"
            )
        return replace(self, column_type=type_)

    @override
    def measures(self) -> Mapping[str, Measure]:
        if self.column_name is None:
            return {}
        return _METRICS[self.metric].measures(F.col(self.column_name), self.column_type)

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        value = _number(_METRICS[self.metric].value(measured, self.column_type))
        what = f"{self.metric} of {self.column_name}" if self.column_name else self.metric
        finite = value if value is not None and math.isfinite(value) else None
        evidence = {"value": finite, "rows": measured["rows"]}
        earlier = numbers(measured["history"])
        return self.judge_value(value, earlier, what, evidence, self.emptied(measured["rows"], earlier))

    @override
    def measured_as(self) -> DataCheck:
        if self.metric != "row_count" or self.judges_empty:
            return self
        return _RowCountAnomaly(**{name: getattr(self, name) for name in self.argument_fields()})


@dataclass(frozen=True, kw_only=True)
class _RowCountAnomaly(MetricAnomaly):
    """The metric that a table without rows has, too."""

    judges_empty: ClassVar[bool] = True


def _nulls(column: Column, type_: DataType) -> Mapping[str, Measure]:
    return {"value": count_if(column.isNull())}


_METRICS: Mapping[str, Figure] = {
    "row_count": Figure("number of rows", lambda c, type_: {}, lambda measured, _: measured["rows"]),
    "null_count": Figure("number of NULLs", _nulls),
    "null_proportion": Figure("share of NULLs", _nulls, lambda measured, _: measured["value"] / measured["rows"]),
    "approx_distinct": Figure("number of values", lambda c, type_: {"value": Measure(c, F.approx_count_distinct)}),
    "min": MIN,
    "max": MAX,
    "sum": SUM,
    "mean": MEAN,
    "stddev": STDDEV,
}


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, (int, float)):
        return value
    return int(value) if value == int(value) else float(value)


def _text(value: float) -> str:
    """A figure for people: whole numbers whole.

    >>> _text(1234567), _text(0.123456789)
    ('1234567', '0.123457')
    """
    return str(int(value)) if math.isfinite(value) and value == int(value) else f"{value:.6g}"


def numbers(history: Sequence[Any]) -> list[float]:
    """The finite numbers among the values of earlier runs."""
    values = [h for h in history if isinstance(h, (int, float, Decimal)) and not isinstance(h, bool)]
    return [float(h) if isinstance(h, Decimal) else h for h in values if math.isfinite(h)]
