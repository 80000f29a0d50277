"""Data checks on one figure of a column: its mean, sum, smallest or greatest value, standard deviation, quantile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from typing_extensions import override

from recon.checks.data import sketch
from recon.checks.data.bounds import BoundedColumn, is_numeric, plain, require_order
from recon.checks.data.figures import MAX, MEAN, MIN, STDDEV, SUM, Figure, as_evidence
from recon.checks.data_check import Measure, RowCheck
from recon.errors import ConfigError
from recon.model import Verdict
from recon.spark.columns import expression
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


@dataclass(frozen=True, kw_only=True)
class Statistic(BoundedColumn, RowCheck):
    """One figure of a column, which must lie in a range; a subclass says which."""

    figure: ClassVar[Figure]
    in_doubles: ClassVar[bool] = False

    def measured_figure(self) -> Figure:
        """`figure`, unless it depends on the arguments."""
        return self.figure

    def compared_as(self) -> DataType:
        """The type of the figure: exact where the column is, unless the figure is computed `in_doubles`."""
        from pyspark.sql import types as T

        return T.DoubleType() if self.in_doubles or isinstance(self.column_type, T.FloatType) else self.column_type

    @override
    def require(self, type_: DataType) -> None:
        if not is_numeric(type_):
            raise ConfigError(f"{self.test} needs numbers, and column {self.column_name} is {type_.simpleString()}")

    @override
    def measures(self) -> Mapping[str, Measure]:
        column = F.col(self.column_name)
        measures = dict(self.measured_figure().measures(column, self.column_type))
        if isinstance(low := self.min_value, str):
            measures["breaks_min"] = Measure(
                column, lambda c: self.less(self._in_spark(c), expression(low, "min_value"))
            )
        if isinstance(high := self.max_value, str):
            measures["breaks_max"] = Measure(
                column, lambda c: self.less(expression(high, "max_value"), self._in_spark(c))
            )
        return measures

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        rows, figure = measured["rows"], self.measured_figure()
        value = figure.value(measured)
        if value is None:
            return Verdict(skipped=f"{self.column_name} has no {figure.name}: too few of its {rows} rows have a value")
        shown = as_evidence(value, self.column_type)
        evidence = {"rows": rows, "value": shown}
        breaks = [self._is_broken(end, value, measured) for end in ("min", "max")]
        if True not in breaks and None in breaks:
            return Verdict(
                unproved=f"a bound of {self.column_name} is NULL, so that nothing was compared", evidence=evidence
            )
        message = f"the {figure.name} of {self.column_name} is {shown}, not {self.range_text()}"
        return Verdict.counted(int(True in breaks), message, **evidence)

    def _in_spark(self, column: Column) -> Column:
        aggregate = self.measured_figure().aggregate
        assert aggregate is not None
        return aggregate(column, self.column_type)

    def _is_broken(self, end: str, value: Any, measured: Mapping[str, Any]) -> bool | None:
        """Whether a bound is broken; None where it is NULL."""
        bound = self.min_value if end == "min" else self.max_value
        if bound is None:
            return False
        if isinstance(value, float) and math.isnan(value):
            return True  # in no range
        if isinstance(bound, str):
            breaks = measured[f"breaks_{end}"]
            return None if breaks is None else bool(breaks)
        limit = plain(bound, self.compared_as())
        return bool(self.less(value, limit) if end == "min" else self.less(limit, value))


@dataclass(frozen=True, kw_only=True)
class ColumnMean(Statistic):
    """Whether the mean of a column lies in a range.

    Fails by 1. NULL is left out; a column without a value is skipped. A mean that is NaN, because a value is, lies in
    no range. The mean of whole numbers and decimals is exact.

    Example:
        columns:
          - name: amount
            data_tests:
              - column_mean:
                  arguments: {min_value: 10, max_value: 500}
    """

    test: ClassVar[str] = "column_mean"
    figure: ClassVar[Figure] = MEAN


@dataclass(frozen=True, kw_only=True)
class ColumnSum(Statistic):
    """Whether the sum of a column lies in a range.

    Fails by 1. NULL is left out; a column without a value is skipped. A sum that is NaN, because a value is, lies in no
    range. The sum of whole numbers and decimals is exact and does not overflow.

    Example:
        columns:
          - name: amount
            data_tests:
              - column_sum:
                  arguments: {min_value: 0}
    """

    test: ClassVar[str] = "column_sum"
    figure: ClassVar[Figure] = SUM


@dataclass(frozen=True, kw_only=True)
class Extreme(Statistic):
    """The first or last value of a column in its order.

    Args:
        min_value: where the range begins: a number, a date or time (UTC where it names no zone), or an SQL expression
            without columns, such as `current_date()`.
    """

    @override
    def require(self, type_: DataType) -> None:
        require_order(self, type_)

    @override
    def compared_as(self) -> DataType:
        return cast("DataType", self.column_type)


@dataclass(frozen=True, kw_only=True)
class ColumnMin(Extreme):
    """Whether the smallest value of a column lies in a range.

    Fails by 1. NULL is left out; a column without a value is skipped. NaN is above every number, and where it is the
    smallest value it lies in no range.

    Example:
        columns:
          - name: amount
            data_tests:
              - column_min:
                  arguments: {min_value: 0}
    """

    test: ClassVar[str] = "column_min"
    figure: ClassVar[Figure] = MIN


@dataclass(frozen=True, kw_only=True)
class ColumnMax(Extreme):
    """Whether the greatest value of a column lies in a range.

    Fails by 1. NULL is left out; a column without a value is skipped. NaN is above every number, and where it is the
    greatest value it lies in no range.

    Example:
        columns:
          - name: amount
            data_tests:
              - column_max:
                  arguments: {max_value: 100000}
    """

    test: ClassVar[str] = "column_max"
    figure: ClassVar[Figure] = MAX


@dataclass(frozen=True, kw_only=True)
class ColumnStddev(Statistic):
    """Whether the standard deviation of a column lies in a range.

    It is the sample's (divided by n - 1). Fails by 1. NULL is left out; a column with fewer than two values is skipped.
    A deviation that is NaN, because a value is, lies in no range.

    Example:
        columns:
          - name: amount
            data_tests:
              - column_stddev:
                  arguments: {max_value: 250}
    """

    test: ClassVar[str] = "column_stddev"
    figure: ClassVar[Figure] = STDDEV
    in_doubles: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class ColumnQuantile(Statistic):
    """Whether a quantile of a column lies in a range.

    Fails by 1. NULL is left out; a column without a value is skipped. NaN is above every number.

    Args:
        quantile: which one, 0 to 1; 0.5 is the median.
        approx: true estimates it in little memory, to within 1 % of the value; where a bound is an SQL expression, as
            one of the column's values.

    Cost:
        nothing beyond the one scan that all row checks of the table share; the exact quantile, interpolated between
        neighbours, holds every distinct value of the column in memory.

    Example:
        columns:
          - name: amount
            data_tests:
              - column_quantile:
                  arguments: {quantile: 0.95, max_value: 1000}
    """

    test: ClassVar[str] = "column_quantile"
    in_doubles: ClassVar[bool] = True
    named_after: ClassVar[Sequence[str]] = ("column_name", "quantile", "min_value", "max_value")
    quantile: float
    approx: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.quantile <= 1:
            raise ConfigError(f"quantile is {self.quantile}; it must lie between 0 and 1")

    @override
    def measured_figure(self) -> Figure:
        def in_spark(column: Column, _: DataType | None = None) -> Column:
            quantile = F.approx_percentile if self.approx else F.percentile
            return quantile(column, self.quantile).cast("double")

        # Where a bound is an SQL expression, Spark compares it, with a quantile of its own.
        if self.approx and not any(isinstance(bound, str) for bound in self.bounds().values()):
            return Figure(
                "quantile",
                lambda c, _: {"sketch": sketch.histogram(c)},
                lambda measured: sketch.quantile(measured["sketch"], self.quantile),
            )
        return Figure("quantile", lambda c, _: {"value": Measure(c, in_spark)}, aggregate=in_spark)
