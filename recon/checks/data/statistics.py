"""Data checks on one figure of a column: its mean, sum, smallest or greatest value, standard deviation, quantile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, cast

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.checks.data import sketch
from recon.checks.data.bounds import BoundedColumn, is_numeric, number, plain, require_order
from recon.checks.data.figures import MAX, MEAN, MIN, STDDEV, SUM, Figure, as_evidence
from recon.checks.data_check import DataCheck, Measure, QueryCheck, RowCheck, Tables, count_if
from recon.model import Verdict
from recon.spark.columns import expression
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


@dataclass(frozen=True, kw_only=True)
class Statistic(BoundedColumn, RowCheck):
    """One figure of a column, which must lie in a range; a subclass says which."""

    figure: ClassVar[Figure]

    def measured_figure(self) -> Figure:
        """`figure`, unless it depends on the arguments."""
        return self.figure

    def compared_as(self) -> DataType:
        """The type of the figure: exact where the column is."""
        from pyspark.sql import types as T

        return T.DoubleType() if isinstance(self.column_type, T.FloatType) else self.column_type

    @override
    def require(self, type_: DataType) -> None:
        if not is_numeric(type_):
            raise ConfigError(f"{self.test} needs numbers, and column {self.column_name} is {type_.simpleString()}")

    @override
    def measures(self) -> Mapping[str, Measure]:
        figure = self.measured_figure().measures(F.col(self.column_name), self.column_type)
        expressions = {name: bound for name, bound in self.bounds().items() if isinstance(bound, str)}
        return {**figure, **{name: self._of_expression(name, sql) for name, sql in expressions.items()}}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        rows, figure = measured["rows"], self.measured_figure()
        value = figure.value(measured, self.column_type)
        if value is None:
            return Verdict(skipped=f"{self.column_name} has no {figure.name}: too few of its {rows} rows have a value")
        shown = as_evidence(value, self.column_type)
        evidence = {"rows": rows, "value": shown}
        breaks = [self._is_broken(name, bound, value, measured) for name, bound in self.bounds().items()]
        if True not in breaks and None in breaks:
            return Verdict(
                unproved=f"a bound of {self.column_name} is NULL, so that nothing was compared", evidence=evidence
            )
        message = f"the {figure.name} of {self.column_name} is {shown}, not {self.range_text()}"
        return Verdict.counted(int(True in breaks), message, **evidence)

    def _of_expression(self, argument: str, sql: str) -> Measure:
        """What is measured of a bound that is SQL: its value, or whether it is broken, where Spark has the figure."""
        aggregate = self.measured_figure().aggregate
        if aggregate is None:
            return Measure(F.col(self.column_name), lambda _: expression(sql, argument))
        return Measure(
            F.col(self.column_name), lambda c: self._beyond(argument, aggregate(c), expression(sql, argument))
        )

    def _beyond(self, argument: str, value: Any, bound: Any) -> Any:
        return self.less(value, bound) if argument == "min_value" else self.less(bound, value)

    def _is_broken(self, argument: str, bound: Any, value: Any, measured: Mapping[str, Any]) -> bool | None:
        """Whether a bound is broken; None where it is NULL."""
        if isinstance(value, float) and math.isnan(value):
            return True  # in no range
        if isinstance(bound, str):
            sql, bound = bound, measured[argument]
            if bound is None:
                return None
            if self.measured_figure().aggregate is not None:
                return bool(bound)
            if isinstance(bound, bool) or not number(bound) or not math.isfinite(bound):
                raise ConfigError(f"{argument} {sql!r} gives {bound!r}, which is no number that bounds anything")
        return bool(self._beyond(argument, _exact(value), _exact(plain(bound, self.compared_as()))))


def _exact(value: Any) -> Any:
    """A value that compares with fractions, which Python's decimals do not."""
    return Fraction(value) if isinstance(value, Decimal) else value


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
            without columns (`current_date()`).
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

    @override
    def compared_as(self) -> DataType:
        from pyspark.sql import types as T

        return T.DoubleType()


@dataclass(frozen=True, kw_only=True)
class ColumnQuantile(Statistic):
    """Whether a quantile of a column lies in a range.

    It is interpolated between neighbours, and exact where the column holds whole numbers or decimals. Fails by 1. NULL
    is left out; a column without a value is skipped. NaN is above every number.

    Args:
        quantile: which one, 0 to 1; 0.5 is the median.
        approx: true estimates it in little memory, to within 1 % of the value.

    Cost:
        one Spark job that groups the table by the column. Of float and double, and with `approx`, nothing beyond the
        one scan that all row checks of the table share; without `approx` that holds every distinct value in memory.

    Example:
        columns:
          - name: amount
            data_tests:
              - column_quantile:
                  arguments: {quantile: 0.95, max_value: 1000}
    """

    test: ClassVar[str] = "column_quantile"
    named_after: ClassVar[Sequence[str]] = ("column_name", "quantile", "min_value", "max_value")
    quantile: float
    approx: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.quantile <= 1:
            raise ConfigError(f"quantile is {self.quantile}; it must lie between 0 and 1")

    @override
    def compared_as(self) -> DataType:
        from pyspark.sql import types as T

        return T.DoubleType() if self.approx else super().compared_as()

    @override
    def measured_figure(self) -> Figure:
        if self.approx:
            return Figure(
                "quantile",
                lambda c, _: {"sketch": sketch.histogram(c)},
                lambda measured, _: sketch.quantile(measured["sketch"], self.quantile),
            )
        if self._is_exact():
            return Figure(
                "quantile", lambda c, _: {"count": count_if(c.isNotNull())}, lambda measured, _: self._between(measured)
            )
        return Figure("quantile", lambda c, _: {"value": Measure(c, lambda of: F.percentile(of, self.quantile))})

    @override
    def measured_as(self) -> DataCheck:
        return _ByRank(of=self) if self._is_exact() else self

    def place(self) -> Fraction:
        """The quantile as a fraction: of n values, the one that place * (n - 1) others precede."""
        return Fraction(str(self.quantile)).limit_denominator(10**17)

    def _is_exact(self) -> bool:
        from pyspark.sql import types as T

        return not self.approx and isinstance(self.column_type, (T.IntegralType, T.DecimalType))

    def _between(self, measured: Mapping[str, Any]) -> Fraction | None:
        """The quantile, interpolated between its neighbours; None without values."""
        if not measured["count"]:
            return None
        lower, upper = Fraction(measured["lower"]), Fraction(measured["upper"])
        before = self.place() * int(measured["count"] - 1)
        return lower + (upper - lower) * (before % 1)


@dataclass(frozen=True, kw_only=True)
class _ByRank(QueryCheck):
    """A quantile between two values of the column, found by their ranks: Spark's own `percentile` computes doubles."""

    test: ClassVar[str] = "by_rank"
    fail_calc: ClassVar[str] = "0"  # the judge counts
    of: ColumnQuantile

    @override
    def measures(self) -> Mapping[str, Measure]:
        return self.of.measures()

    @override
    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        return rows.limit(0)  # no row alone fails

    @override
    def counted(self, rows: DataFrame, tables: Tables) -> DataFrame:
        """Each value, and whether the lower neighbour, and the upper one, is no greater."""
        from pyspark.sql import Window

        column, place = F.col(self.of.column_name), self.of.place()
        values = rows.filter(column.isNotNull()).groupBy(column.alias("value")).agg(F.count(F.lit(1)).alias("n"))
        ranked = values.select(
            "value",
            F.sum("n").over(Window.orderBy("value")).alias("upto"),
            ((F.sum("n").over(Window.partitionBy()) - 1) * F.lit(Decimal(place.numerator))).alias("before"),
        )
        divisor = F.lit(Decimal(place.denominator))
        lower = F.call_function("div", F.col("before"), divisor)
        upper = lower + F.when(F.col("before") % divisor > 0, 1).otherwise(0)
        return ranked.select(
            "value", (F.col("upto") > lower).alias("from_lower"), (F.col("upto") > upper).alias("from_upper")
        )

    @override
    def figures(self) -> Mapping[str, str]:
        return {side: f"min(value) FILTER (WHERE from_{side})" for side in ("lower", "upper")}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        return self.of.judge(measured)
