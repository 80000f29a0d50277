"""Spark expressions for the values of one type: hash input, difference, tolerance, and JSON form."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from recon.spark.lazy import F, T

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from recon.checks.comparison.align import Pair
    from recon.checks.comparison.tolerance import Tolerance

_MASK = 62  # columns whose NULLs fit into one signed 64-bit number


def hashable(columns: Sequence[tuple[Column, DataType]]) -> list[Column]:
    """The input of `xxhash64` that is equal for equal rows and for no others.

    Spark's hash skips NULL, and chains the elements of an array without its length: (NULL, 'a') and ('a', NULL) would
    have the same hash. So the NULLs come first, as bits, and an array has its size before its elements.
    """
    masks = [_nulls([column for column, _ in columns[i : i + _MASK]]) for i in range(0, len(columns), _MASK)]
    return [*masks, *(part for column, type_ in columns for part in _content(column, type_))]


def _nulls(columns: Sequence[Column]) -> Column:
    bits = F.lit(0).cast("bigint")
    for i, column in enumerate(columns):
        bits = bits.bitwiseOR(F.when(column.isNull(), F.lit(1 << i).cast("bigint")).otherwise(F.lit(0).cast("bigint")))
    return bits


def _content(column: Column, type_: DataType) -> list[Column]:
    if isinstance(type_, T.StructType):
        fields = [(column.getField(f.name), f.dataType) for f in type_.fields]
        return hashable(fields) if fields else []
    if isinstance(type_, T.ArrayType):
        element = type_.elementType
        return [F.size(column), F.transform(column, lambda x: F.struct(*hashable([(x, element)])))]
    if isinstance(type_, T.NullType):
        return []
    return [column]


def allowed(pair: Pair, tolerance: Tolerance) -> str | None:
    """Why a column of this type cannot have the tolerance; None where it can."""
    compared = pair.type.simpleString()
    if isinstance(pair.type, T.NumericType):
        return None if tolerance.duration is None else f"it is compared as {compared}, which needs a number"
    if isinstance(pair.type, (T.TimestampType, T.TimestampNTZType, T.DateType)):
        if tolerance.duration is None or tolerance.relative is not None:
            return f"it is compared as {compared}, which needs a duration such as '5 seconds'"
        return None
    return f"it is compared as {compared}; only numbers, dates and times have a tolerance"


def distance(left: Column, right: Column, pair: Pair) -> Column | None:
    """The absolute difference, of times in seconds; None for a type without one, NULL where it cannot be computed."""
    if isinstance(pair.type, T.IntegralType):  # as decimals: the difference of two longs may overflow
        return F.abs(F.try_subtract(left.cast("decimal(20,0)"), right.cast("decimal(20,0)")))
    if isinstance(pair.type, T.NumericType):
        return F.abs(F.try_subtract(left, right))
    if isinstance(pair.type, T.TimestampType):
        micros = F.abs(F.unix_micros(left).cast("decimal(20,0)") - F.unix_micros(right).cast("decimal(20,0)"))
        return micros * F.lit(Decimal("0.000001"))
    if isinstance(pair.type, T.TimestampNTZType):
        apart = F.abs(left - right)
        units = (("DAY", 86_400), ("HOUR", 3_600), ("MINUTE", 60), ("SECOND", 1))
        parts = [F.extract(F.lit(u), apart).cast("decimal(20,6)") * F.lit(s) for u, s in units]
        return parts[0] + parts[1] + parts[2] + parts[3]
    if isinstance(pair.type, T.DateType):
        return F.abs(F.datediff(left, right)).cast("decimal(20,0)") * F.lit(86_400)
    return None


def tolerated(left: Column, right: Column, apart: Column | None, pair: Pair, tolerance: Tolerance) -> Column:
    """Whether two values lie within the tolerance; False where one is NULL or the distance cannot be computed.

    Infinity is within no tolerance of anything else.
    """
    assert apart is not None  # `allowed` refuses other types
    floating = isinstance(pair.type, (T.FloatType, T.DoubleType))
    within = F.lit(False)
    if tolerance.absolute is not None:
        bound = F.lit(float(tolerance.absolute)) if floating else F.lit(tolerance.absolute)
        within = within | (apart <= bound)
    if tolerance.duration is not None:
        within = within | (apart <= F.lit(Decimal(str(tolerance.duration.total_seconds()))))
    if tolerance.relative is not None:
        greater = F.greatest(F.abs(left.cast("double")), F.abs(right.cast("double")))
        within = within | (apart.cast("double") <= F.lit(tolerance.relative) * greater)
    if floating:
        within = within & (apart.cast("double") < F.lit(float("inf")))
    return F.coalesce(within, F.lit(False))


def shown(column: Column, type_: DataType) -> Column:
    """The value in a form that JSON holds without losing digits: decimals, times and the like become text."""
    if isinstance(type_, T.BinaryType):
        return F.base64(column)
    plain = (T.IntegralType, T.FloatType, T.DoubleType, T.StringType, T.BooleanType, T.StructType, T.ArrayType)
    return column if isinstance(type_, plain) else column.cast("string")
