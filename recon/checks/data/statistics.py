"""Data checks on one figure of a table or column: counts, proportions, statistics; all measured in one scan."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

from typing_extensions import override

from recon.checks.base import Measure, RowCheck, count_if, greatest, least, set_by_fit, total
from recon.checks.data import sketch
from recon.checks.data.bounds import (
    Bounded,
    OfColumn,
    comparable,
    instant_text,
    is_instant,
    is_numeric,
    plain,
    settled,
)
from recon.checks.data.grouped import GroupableCheck
from recon.errors import ConfigError
from recon.model import Verdict
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


@dataclass(frozen=True, kw_only=True)
class RowCount(Bounded, RowCheck):
    """Whether the number of rows lies in a range.

    Fails by 1. NULLs do not matter. Zero rows are counted like any other number, so that `min_value: 1` fails on an
    empty table (or `where`). Costs nothing beyond the one scan that all row checks of the table share.

    Args:
        min_value: the least number of rows.
        max_value: the greatest. At least one of both must be given.
        inclusive: whether the bounds themselves are accepted.

    Example:
        data_tests:
          - row_count:
              arguments: {min_value: 1}
    """

    test: ClassVar[str] = "row_count"
    judges_empty: ClassVar[bool] = True
    min_value: int | None = None
    max_value: int | None = None

    @override
    def label(self) -> str:
        return "__".join(self.bounds_label())

    @override
    def measures(self) -> Mapping[str, Measure]:
        return {}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        rows = measured["rows"]
        out = _below(rows, self.min_value, self.inclusive) or _below(self.max_value, rows, self.inclusive)
        return Verdict(
            failures=int(out),
            message=f"there are {rows} rows, not {self.range_text()}" if out else "",
            evidence={"rows": rows, "value": rows},
        )


@dataclass(frozen=True, kw_only=True)
class NotNullProportion(OfColumn, GroupableCheck):
    """Whether the share of rows whose column is not NULL lies in a range (dbt_utils' test of this name).

    Fails by 1, or by the number of groups that fail. A group key that is NULL is a group of its own. A table (or
    `where`) with no rows is skipped. Costs nothing beyond the one scan that all row checks of the table share; with
    `group_by_columns`, one Spark job that groups the table.

    Args:
        column_name: the column; filled in for a test listed below a column. A field of a struct is `a.b`.
        at_least: the least accepted share, 0 to 1.
        at_most: the greatest accepted share.
        group_by_columns: judge each group of rows with equal values in these columns on its own.

    Example:
        columns:
          - name: customer_id
            data_tests:
              - not_null_proportion:
                  arguments: {at_least: 0.95, group_by_columns: [country]}
    """

    test: ClassVar[str] = "not_null_proportion"
    at_least: float
    at_most: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.at_least <= self.at_most <= 1:
            raise ConfigError(
                f"at_least is {self.at_least} and at_most {self.at_most}; "
                "both must lie between 0 and 1, at_least not above at_most"
            )

    @override
    def label(self) -> str:
        return "__".join([self.column_name, str(self.at_least), *self.grouped_by()])

    @override
    def columns(self) -> tuple[str, ...]:
        return (self.column_name, *self.group_by_columns)

    @override
    def measures(self) -> Mapping[str, Measure]:
        return {"known": count_if(_has_value(self.column_name))}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        rows, known = measured["rows"], measured["known"]
        share = known / rows
        out = share < self.at_least or share > self.at_most
        return Verdict(
            failures=int(out),
            message=f"{self.column_name} is not NULL in {known} of {rows} rows ({share:.4g}), {self._wanted()}"
            if out
            else "",
            evidence={"rows": rows, "known": known, "value": share},
        )

    @override
    def group_fails(self, measured: Mapping[str, Column]) -> Column:
        share = measured["known"] / measured["rows"]
        return (share < self.at_least) | (share > self.at_most)

    @override
    def group_shows(self, measured: Mapping[str, Column]) -> Mapping[str, Column]:
        return {"not_null_proportion": measured["known"] / measured["rows"]}

    @override
    def group_message(self, groups: int) -> str:
        return f"the share of rows whose {self.column_name} is not NULL is {self._wanted()} in {groups} groups"

    def _wanted(self) -> str:
        return f"not between {self.at_least:g} and {self.at_most:g}"


@dataclass(frozen=True, kw_only=True)
class NotConstant(OfColumn, GroupableCheck):
    """Whether a column holds more than one value (dbt_utils' test of this name).

    Fails by 1, or by the number of groups that fail. NULL is no value: a column that holds one value and NULL fails, as
    in dbt_utils, and so does one that is NULL throughout, which dbt_utils passes. A single row fails. A table (or
    `where`) with no rows is skipped. Costs nothing beyond the one scan that all row checks of the table share; with
    `group_by_columns`, one Spark job that groups the table.

    Args:
        column_name: the column; filled in for a test listed below a column. A field of a struct is `a.b`.
        group_by_columns: judge each group of rows with equal values in these columns on its own.
    """

    test: ClassVar[str] = "not_constant"
    column_type: Any = set_by_fit()

    @override
    def label(self) -> str:
        return "__".join([self.column_name, *self.grouped_by()])

    @override
    def columns(self) -> tuple[str, ...]:
        return (self.column_name, *self.group_by_columns)

    @override
    def fit(self, types: Mapping[str, DataType], rows: DataFrame) -> Self:
        return _typed(self, _orderable(self, types[self.column_name]))

    @override
    def measures(self) -> Mapping[str, Measure]:
        value = comparable(F.col(self.column_name), self.column_type)
        return {"least": least(value), "greatest": greatest(value)}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        low, high, rows = measured["least"], measured["greatest"], measured["rows"]
        same = low == high or (low != low and high != high)  # NaN differs from itself
        said = f"{self.column_name} is NULL in all {rows} rows"
        if low is not None:
            said = f"{self.column_name} holds one value in all {rows} rows: {_told(low, self.column_type)}"
        return Verdict(failures=int(same), message=said if same else "", evidence={"rows": rows})

    @override
    def group_fails(self, measured: Mapping[str, Column]) -> Column:
        return measured["least"].eqNullSafe(measured["greatest"])

    @override
    def group_shows(self, measured: Mapping[str, Column]) -> Mapping[str, Column]:
        return {self.column_name: measured["least"]}

    @override
    def group_message(self, groups: int) -> str:
        return f"{self.column_name} does not vary in {groups} groups"


@dataclass(frozen=True, kw_only=True)
class AtLeastOne(OfColumn, GroupableCheck):
    """Whether a column holds at least one value (dbt_utils' test of this name).

    Fails by 1 when the column is NULL in every row, and, as in dbt_utils, when there are no rows at all, whatever
    `if_empty` says. With `group_by_columns` it fails by the number of groups in which the column is always NULL, which
    dbt_utils overlooks as soon as another group has a value; there a table (or `where`) with no rows is skipped. Costs
    nothing beyond the one scan that all row checks of the table share; with `group_by_columns`, one Spark job that
    groups the table.

    Args:
        column_name: the column; filled in for a test listed below a column. A field of a struct is `a.b`.
        group_by_columns: judge each group of rows with equal values in these columns on its own.
    """

    test: ClassVar[str] = "at_least_one"
    judges_empty: ClassVar[bool] = True

    @override
    def label(self) -> str:
        return "__".join([self.column_name, *self.grouped_by()])

    @override
    def columns(self) -> tuple[str, ...]:
        return (self.column_name, *self.group_by_columns)

    @override
    def measures(self) -> Mapping[str, Measure]:
        return {"known": count_if(_has_value(self.column_name))}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        known, rows = measured["known"], measured["rows"]
        return Verdict(
            failures=int(not known),
            message="" if known else f"{self.column_name} has no value in {rows} rows",
            evidence={"rows": rows, "known": known},
        )

    @override
    def group_fails(self, measured: Mapping[str, Column]) -> Column:
        return measured["known"] == 0

    @override
    def group_shows(self, measured: Mapping[str, Column]) -> Mapping[str, Column]:
        return {}

    @override
    def group_message(self, groups: int) -> str:
        return f"{self.column_name} has no value in {groups} groups"


@dataclass(frozen=True, kw_only=True)
class Statistic(OfColumn, Bounded, RowCheck):
    """One figure of a column, to lie in a range; derive by what it is made of."""

    figure: ClassVar[str]
    column_type: Any = set_by_fit()

    @abstractmethod
    def parts(self) -> Mapping[str, Measure]:
        """What the figure is made of, by name."""

    @abstractmethod
    def value(self, measured: Mapping[str, Any]) -> Any:
        """The figure from its parts; None when there is none."""

    @abstractmethod
    def in_spark(self, column: Column) -> Column:
        """The figure as one aggregate, for bounds that are SQL expressions."""

    def compared_as(self) -> DataType:
        """The type of the figure; a sum, mean or the like is exact where the column is."""
        from pyspark.sql import types as T

        return T.DoubleType() if isinstance(self.column_type, T.FloatType) else self.column_type

    @override
    def label(self) -> str:
        return "__".join([self.column_name, *self.bounds_label()])

    @override
    def fit(self, types: Mapping[str, DataType], rows: DataFrame) -> Self:
        return _typed(self, _numeric(self, types[self.column_name]), settle=True)

    @override
    def measures(self) -> Mapping[str, Measure]:
        column, asked = F.col(self.column_name), dict(self.parts())
        if isinstance(low := self.min_value, str):
            asked["breaks_min"] = Measure(column, lambda c: self._less(self.in_spark(c), F.expr(low)))
        if isinstance(high := self.max_value, str):
            asked["breaks_max"] = Measure(column, lambda c: self._less(F.expr(high), self.in_spark(c)))
        return asked

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        rows, value = measured["rows"], self.value(measured)
        if value is None:
            return Verdict(skipped=f"{self.column_name} has no {self.figure}: too few of its {rows} rows have a value")
        said = _told(value, self.column_type)
        evidence = {"rows": rows, "value": said}
        breaks = [self._is_broken(end, value, measured) for end in ("min", "max")]
        if True not in breaks and None in breaks:
            return Verdict(
                unproved=f"a bound of {self.column_name} is NULL, so that nothing was compared", evidence=evidence
            )
        out = True in breaks
        return Verdict(
            failures=int(out),
            message=f"the {self.figure} of {self.column_name} is {said}, not {self.range_text()}" if out else "",
            evidence=evidence,
        )

    def _less(self, a: Column, b: Column) -> Column:
        return a < b if self.inclusive else a <= b

    def _is_broken(self, end: str, value: Any, measured: Mapping[str, Any]) -> bool | None:
        """Whether a bound is broken; None where it is NULL."""
        bound = self.min_value if end == "min" else self.max_value
        if bound is None:
            return False
        if isinstance(value, float) and math.isnan(value):
            return True  # in no range
        if isinstance(bound, str):
            found = measured[f"breaks_{end}"]
            return None if found is None else bool(found)
        known = plain(bound, self.compared_as())
        return _below(value, known, self.inclusive) if end == "min" else _below(known, value, self.inclusive)


def _below(value: Any, bound: Any, inclusive: bool) -> bool:
    """Whether `value` is too small for a lower `bound`; with either None, it is not."""
    if value is None or bound is None:
        return False
    return bool(value < bound if inclusive else value <= bound)


@dataclass(frozen=True, kw_only=True)
class ColumnMean(Statistic):
    """Whether the mean of a column lies in a range.

    Fails by 1. NULL is left out; a column without a value is skipped, and so is a table (or `where`) with no rows. A
    mean that is NaN, because a value is, lies in no range. The mean of whole numbers and decimals is exact. Costs
    nothing beyond the one scan that all row checks of the table share.

    Args:
        column_name: the column; filled in for a test listed below a column. A field of a struct is `a.b`.
        min_value: where the range begins: a number, or an SQL expression without columns.
        max_value: where it ends. At least one of both must be given.
        inclusive: whether the bounds themselves are accepted.

    Example:
        columns:
          - name: amount
            data_tests:
              - column_mean:
                  arguments: {min_value: 10, max_value: 500}
    """

    test: ClassVar[str] = "column_mean"
    figure: ClassVar[str] = "mean"

    @override
    def parts(self) -> Mapping[str, Measure]:
        return {
            "sum": sum_of(F.col(self.column_name), self.column_type),
            "count": count_if(_has_value(self.column_name)),
        }

    @override
    def value(self, measured: Mapping[str, Any]) -> Any:
        return mean_of(measured["sum"], measured["count"])

    @override
    def in_spark(self, column: Column) -> Column:
        return F.avg(column)


@dataclass(frozen=True, kw_only=True)
class ColumnSum(Statistic):
    """Whether the sum of a column lies in a range.

    Fails by 1. NULL is left out; a column without a value is skipped, and so is a table (or `where`) with no rows. A
    sum that is NaN, because a value is, lies in no range. The sum of whole numbers and decimals is exact and does not
    overflow. Costs nothing beyond the one scan that all row checks of the table share.

    Args:
        column_name: the column; filled in for a test listed below a column. A field of a struct is `a.b`.
        min_value: where the range begins: a number, or an SQL expression without columns.
        max_value: where it ends. At least one of both must be given.
        inclusive: whether the bounds themselves are accepted.

    Example:
        columns:
          - name: amount
            data_tests:
              - column_sum:
                  arguments: {min_value: 0}
    """

    test: ClassVar[str] = "column_sum"
    figure: ClassVar[str] = "sum"

    @override
    def parts(self) -> Mapping[str, Measure]:
        return {"sum": sum_of(F.col(self.column_name), self.column_type)}

    @override
    def value(self, measured: Mapping[str, Any]) -> Any:
        return measured["sum"]

    @override
    def in_spark(self, column: Column) -> Column:
        return F.sum(_wide(column, self.column_type))


@dataclass(frozen=True, kw_only=True)
class Extreme(Statistic):
    """The first or last value of a column in its order; derive by which."""

    @staticmethod
    @abstractmethod
    def extreme(of: Column) -> Measure:
        """The measure of which value."""

    @override
    def fit(self, types: Mapping[str, DataType], rows: DataFrame) -> Self:
        return _typed(self, _orderable(self, types[self.column_name]), settle=True)

    @override
    def compared_as(self) -> DataType:
        return cast("DataType", self.column_type)

    @override
    def parts(self) -> Mapping[str, Measure]:
        type_, found = self.column_type, self.extreme(F.col(self.column_name))
        return {"value": replace(found, aggregate=lambda c: comparable(found.aggregate(c), type_))}

    @override
    def value(self, measured: Mapping[str, Any]) -> Any:
        return measured["value"]

    @override
    def in_spark(self, column: Column) -> Column:
        return self.extreme(column).aggregate(column)


@dataclass(frozen=True, kw_only=True)
class ColumnMin(Extreme):
    """Whether the smallest value of a column lies in a range.

    Fails by 1. NULL is left out; a column without a value is skipped, and so is a table (or `where`) with no rows. NaN
    is above every number, and where it is the smallest value it lies in no range. Costs nothing beyond the one scan
    that all row checks of the table share.

    Args:
        column_name: the column; filled in for a test listed below a column. A field of a struct is `a.b`.
        min_value: where the range begins: a number, a date or time (UTC where it names no zone), or an SQL expression
            without columns, such as `current_date()`.
        max_value: where it ends. At least one of both must be given.
        inclusive: whether the bounds themselves are accepted.

    Example:
        columns:
          - name: amount
            data_tests:
              - column_min:
                  arguments: {min_value: 0}
    """

    test: ClassVar[str] = "column_min"
    figure: ClassVar[str] = "smallest value"
    extreme = staticmethod(least)


@dataclass(frozen=True, kw_only=True)
class ColumnMax(Extreme):
    """Whether the greatest value of a column lies in a range.

    Fails by 1. NULL is left out; a column without a value is skipped, and so is a table (or `where`) with no rows. NaN
    is above every number, and where it is the greatest value it lies in no range. Costs nothing beyond the one scan
    that all row checks of the table share.

    Args:
        column_name: the column; filled in for a test listed below a column. A field of a struct is `a.b`.
        min_value: where the range begins: a number, a date or time (UTC where it names no zone), or an SQL expression
            without columns, such as `current_date()`.
        max_value: where it ends. At least one of both must be given.
        inclusive: whether the bounds themselves are accepted.

    Example:
        columns:
          - name: amount
            data_tests:
              - column_max:
                  arguments: {max_value: 100000}
    """

    test: ClassVar[str] = "column_max"
    figure: ClassVar[str] = "greatest value"
    extreme = staticmethod(greatest)


@dataclass(frozen=True, kw_only=True)
class ColumnStddev(Statistic):
    """Whether the standard deviation of a column lies in a range.

    It is the sample's (divided by n - 1). Fails by 1. NULL is left out; a column with fewer than two values is skipped,
    and so is a table (or `where`) with no rows. A deviation that is NaN, because a value is, lies in no range. Costs
    nothing beyond the one scan that all row checks of the table share.

    Args:
        column_name: the column; filled in for a test listed below a column. A field of a struct is `a.b`.
        min_value: where the range begins: a number, or an SQL expression without columns.
        max_value: where it ends. At least one of both must be given.
        inclusive: whether the bounds themselves are accepted.

    Example:
        columns:
          - name: amount
            data_tests:
              - column_stddev:
                  arguments: {max_value: 250}
    """

    test: ClassVar[str] = "column_stddev"
    figure: ClassVar[str] = "standard deviation"

    @override
    def compared_as(self) -> DataType:
        from pyspark.sql import types as T

        return T.DoubleType()

    @override
    def parts(self) -> Mapping[str, Measure]:
        return {"moments": moments(F.col(self.column_name))}

    @override
    def value(self, measured: Mapping[str, Any]) -> Any:
        return stddev_of(measured["moments"])

    @override
    def in_spark(self, column: Column) -> Column:
        return F.stddev_samp(column)


@dataclass(frozen=True, kw_only=True)
class ColumnQuantile(Statistic):
    """Whether a quantile of a column lies in a range.

    Fails by 1. NULL is left out; a column without a value is skipped, and so is a table (or `where`) with no rows. NaN
    is above every number. Costs nothing beyond the one scan that all row checks of the table share; the exact quantile,
    interpolated between neighbours, holds every distinct value of the column in memory.

    Args:
        column_name: the column; filled in for a test listed below a column. A field of a struct is `a.b`.
        quantile: which one, 0 to 1; 0.5 is the median.
        min_value: where the range begins: a number, or an SQL expression without columns.
        max_value: where it ends. At least one of both must be given.
        inclusive: whether the bounds themselves are accepted.
        approx: true estimates it in little memory, to within 1 % of the value; where a bound is an SQL expression, as
            one of the column's values.

    Example:
        columns:
          - name: amount
            data_tests:
              - column_quantile:
                  arguments: {quantile: 0.95, max_value: 1000}
    """

    test: ClassVar[str] = "column_quantile"
    figure: ClassVar[str] = "quantile"
    quantile: float
    approx: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.quantile <= 1:
            raise ConfigError(f"quantile is {self.quantile}; it must lie between 0 and 1")

    @override
    def label(self) -> str:
        return "__".join([self.column_name, str(self.quantile), *self.bounds_label()])

    @override
    def compared_as(self) -> DataType:
        from pyspark.sql import types as T

        return T.DoubleType()

    @override
    def parts(self) -> Mapping[str, Measure]:
        column = F.col(self.column_name)
        return {"sketch": sketch.histogram(column)} if self._sketched else {"value": Measure(column, self.in_spark)}

    @override
    def value(self, measured: Mapping[str, Any]) -> Any:
        return sketch.quantile(measured["sketch"], self.quantile) if self._sketched else measured["value"]

    @property
    def _sketched(self) -> bool:
        # A bound that only Spark can tell is compared by Spark, with a quantile of its own.
        return self.approx and not any(isinstance(bound, str) for bound in (self.min_value, self.max_value))

    @override
    def in_spark(self, column: Column) -> Column:
        return (
            F.approx_percentile(column, self.quantile) if self.approx else F.percentile(column, self.quantile)
        ).cast("double")


# -- figures, also for the anomaly checks -----------------------------------------------------------------------------


def sum_of(column: Column, type_: DataType) -> Measure:
    """The sum of a numeric column, exact and without overflow where the column is exact; None without values."""
    return total(_wide(column, type_))


def _wide(column: Column, type_: DataType) -> Column:
    from pyspark.sql import types as T

    if isinstance(type_, T.LongType):
        return column.cast("decimal(20,0)")  # sums of bigint overflow
    return column.cast("double") if isinstance(type_, T.FloatType) else column


def mean_of(sum_: Any, count: int) -> Any:
    """The mean; None without values."""
    if sum_ is None or not count:
        return None
    return sum_ / count if isinstance(sum_, float) else Decimal(sum_) / count


def moments(column: Column) -> Measure:
    """Number, mean and sum of squared differences from the mean of a numeric column."""

    def of(c: Column) -> Column:
        count = F.count(c)
        return F.struct(count.alias("n"), F.avg(c).alias("mean"), (F.var_pop(c) * count).alias("m2"))

    return Measure(column.cast("double"), of, merged_moments)


def merged_moments(a: Sequence[Any] | None, b: Sequence[Any] | None) -> Sequence[Any] | None:
    """The moments of two disjoint sets of values together (Chan, Golub and LeVeque).

    >>> merged_moments((1, 1.0, 0.0), (1, 3.0, 0.0))
    (2, 2.0, 2.0)
    """
    if a is None or not a[0]:
        return b
    if b is None or not b[0]:
        return a
    (n, mean, m2), (m, other, o2) = a, b
    apart, all_ = other - mean, n + m
    return all_, mean + apart * m / all_, m2 + o2 + apart * apart * n * m / all_


def stddev_of(found: Sequence[Any] | None) -> float | None:
    """The sample's standard deviation from its moments; None for fewer than two values."""
    if found is None or found[0] < 2:
        return None
    return math.sqrt(found[2] / (found[0] - 1))


# -- types ------------------------------------------------------------------------------------------------------------

_C = TypeVar("_C", bound=OfColumn)


def _typed(check: _C, type_: DataType, settle: bool = False) -> _C:
    """The check that knows its column's type, with bounds settled for it."""
    found: Mapping[str, Any] = check.bounds() if settle and isinstance(check, Bounded) else {}
    bounds = {name: settled(bound, check.column_name, type_) for name, bound in found.items()}
    return replace(check, column_type=type_, **bounds)  # type: ignore[call-arg]


def _numeric(check: OfColumn, type_: DataType) -> DataType:
    if not is_numeric(type_):
        raise ConfigError(f"{check.test} needs numbers, and column {check.column_name} is {type_.simpleString()}")
    return type_


def _orderable(check: OfColumn, type_: DataType) -> DataType:
    from pyspark.sql import types as T

    if isinstance(type_, (T.MapType, T.VariantType, T.CalendarIntervalType, T.NullType)):
        raise ConfigError(
            f"{check.test} compares values, and column {check.column_name} is {type_.simpleString()}, "
            "which has no order"
        )
    return type_


def _has_value(column_name: str) -> Column:
    return F.col(column_name).isNotNull()


def _told(value: Any, type_: DataType) -> Any:
    """A figure as evidence: a number, text for a date or time."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if is_instant(type_) and isinstance(value, int):
        return instant_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else str(value)  # JSON has neither
    return value if isinstance(value, (int, float)) else str(value)
