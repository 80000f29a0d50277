"""Figures of a column: how each is measured, merged over disjoint rows, computed and shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from recon.checks.data.bounds import comparable, instant_text, is_instant
from recon.checks.data_check import Measure, count_if, greatest, least, total
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


class Figure(NamedTuple):
    """A figure of a column of some type.

    `value` is computed from what the `measures` and the number of `rows` are; None for none. `aggregate` is the figure
    as Spark computes it, for a comparison within SQL.
    """

    name: str
    measures: Callable[[Column, DataType], Mapping[str, Measure]]
    value: Callable[[Mapping[str, Any]], Any] = itemgetter("value")
    aggregate: Callable[[Column, DataType], Column] | None = None


def widened(column: Column, type_: DataType) -> Column:
    """A numeric column in a type in which its sum does not overflow."""
    from pyspark.sql import types as T

    if isinstance(type_, T.LongType):
        return column.cast("decimal(20,0)")  # sums of bigint overflow
    return column.cast("double") if isinstance(type_, T.FloatType) else column


def _mean(measured: Mapping[str, Any]) -> Any:
    sum_, count = measured["sum"], measured["count"]
    if sum_ is None or not count:
        return None
    return sum_ / count if isinstance(sum_, float) else Decimal(sum_) / count


def _extreme(name: str, extreme: Callable[[Column], Measure]) -> Figure:
    def measures(column: Column, type_: DataType) -> Mapping[str, Measure]:
        measure = extreme(column)
        return {"value": replace(measure, aggregate=lambda c: comparable(measure.aggregate(c), type_))}

    return Figure(name, measures, aggregate=lambda c, _: extreme(c).aggregate(c))


def _sum_and_count(column: Column, type_: DataType) -> Mapping[str, Measure]:
    return {"sum": total(widened(column, type_)), "count": count_if(column.isNotNull())}


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
SUM = Figure(
    "sum", lambda c, type_: {"value": total(widened(c, type_))}, aggregate=lambda c, type_: F.sum(widened(c, type_))
)
MEAN = Figure("mean", _sum_and_count, _mean, lambda c, _: F.avg(c))
MIN, MAX = _extreme("smallest value", least), _extreme("greatest value", greatest)
STDDEV = Figure(
    "standard deviation",
    lambda c, _: {"moments": moments(c)},
    lambda measured: stddev_of(measured["moments"]),
    lambda c, _: F.stddev_samp(c),
)


def as_evidence(value: Any, type_: DataType) -> Any:
    """A figure in JSON's types: a number, or text for a date or time."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if is_instant(type_) and isinstance(value, int):
        return instant_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else str(value)  # JSON has neither
    return value if isinstance(value, (int, float)) else str(value)
