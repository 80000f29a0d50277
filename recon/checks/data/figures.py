"""Figures of a column: how each is measured, merged over disjoint rows, computed and shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from recon.base.errors import ConfigError
from recon.checks.data.bounds import comparable, instant_text, is_instant
from recon.checks.data_check import Measure, count_if, greatest, least, total
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


class Figure(NamedTuple):
    """A figure of a column of some type.

    `value` is computed from what the `measures` and the number of `rows` are; None for none. `aggregate` is the figure
    as Spark computes it, where bounds that are SQL are compared in Spark; without it, they are compared as values.
    """

    name: str
    measures: Callable[[Column, DataType], Mapping[str, Measure]]
    value: Callable[[Mapping[str, Any], DataType], Any] = lambda measured, _: measured["value"]
    aggregate: Callable[[Column], Column] | None = None


# Spark's sum of decimals has ten digits more than they have, up to 38: those with more digits than this may overflow.
_SUMMED_WHOLE = 28
# Digits of the rest, where values are cut in two.
_REST = 20


def _unit(type_: DataType) -> Decimal | None:
    """What values of a wide decimal are divided by before they are added up; None where sums fit."""
    from pyspark.sql import types as T

    if not isinstance(type_, T.DecimalType) or type_.precision <= _SUMMED_WHOLE:
        return None
    return Decimal(10) ** (_REST - type_.scale)


def _summed(column: Column, type_: DataType) -> dict[str, Measure]:
    """The number of values and their sum, or that of wide decimals in two parts, neither of which overflows."""
    from pyspark.sql import types as T

    count = {"count": count_if(column.isNotNull())}
    if unit := _unit(type_):
        units = F.call_function("div", column, F.lit(unit)).cast("decimal(20,0)")
        return {**count, "sum": total(units), "rest": total(column % F.lit(unit))}
    if isinstance(type_, T.LongType):
        column = column.cast("decimal(20,0)")
    return {**count, "sum": total(column.cast("double") if isinstance(type_, T.FloatType) else column)}


def _sum(measured: Mapping[str, Any], type_: DataType) -> Any:
    """A float, or an exact sum; None without values."""
    sum_ = measured["sum"]
    if not measured["count"] or isinstance(sum_, float):
        return sum_
    if sum_ is None:
        raise ConfigError(
            f"the sum of {measured['count']} values has more than the 38 digits that Spark adds up; measure fewer rows "
            "with `where`"
        )
    unit = _unit(type_)
    return Fraction(sum_) * Fraction(unit) + Fraction(measured["rest"]) if unit else Fraction(sum_)


def _mean(measured: Mapping[str, Any], type_: DataType) -> Any:
    sum_ = _sum(measured, type_)
    return None if sum_ is None else sum_ / measured["count"]


def _extreme(name: str, extreme: Callable[[Column], Measure]) -> Figure:
    def measures(column: Column, type_: DataType) -> Mapping[str, Measure]:
        measure = extreme(column)
        return {"value": replace(measure, aggregate=lambda c: comparable(measure.aggregate(c), type_))}

    return Figure(name, measures, aggregate=lambda c: extreme(c).aggregate(c))


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


def stddev_of(moments: Sequence[Any] | None) -> float | None:
    """The sample's standard deviation from its moments; None for fewer than two values."""
    if moments is None or moments[0] < 2:
        return None
    return math.sqrt(moments[2] / (moments[0] - 1))


# Sum and mean are exact where the column is, and the sum does not overflow.
SUM = Figure("sum", _summed, _sum)
MEAN = Figure("mean", _summed, _mean)
MIN, MAX = _extreme("smallest value", least), _extreme("greatest value", greatest)
STDDEV = Figure(
    "standard deviation",
    lambda c, _: {"moments": moments(c)},
    lambda measured, _: stddev_of(measured["moments"]),
)


def as_evidence(value: Any, type_: DataType) -> Any:
    """A figure in JSON's types: a number, or text for a date or time."""
    if isinstance(value, (Decimal, Fraction)):
        return int(value) if value == int(value) else float(value)
    if is_instant(type_) and isinstance(value, int):
        return instant_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else str(value)  # JSON has neither
    return value if isinstance(value, (int, float)) else str(value)
