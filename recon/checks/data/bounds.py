"""Bounds as recon.yml writes them, compared with columns: numbers, dates, times and SQL expressions."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Self

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.checks.base import set_by_fit
from recon.checks.data_check import DataCheck
from recon.spark.columns import expression, is_expression
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

DAY = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class OfColumn(DataCheck):
    """A check that is about one column.

    Args:
        column_name: the column; filled in for a test listed below a column. A field of a struct is `a.b`; a name with a
            dot or a backtick stands in backticks.
    """

    named_after: ClassVar[Sequence[str]] = ("column_name",)
    reads: ClassVar[Sequence[str]] = ("column_name",)
    column_name: str
    column_type: Any = set_by_fit()

    @override
    def fit(self, types: Mapping[str, DataType], rows: DataFrame) -> Self:
        if is_expression(self.column_name):
            raise ConfigError(
                f"{self.test} needs a column, and column_name is the expression {self.column_name!r}; "
                "use expression_is_true, or add it to the table as a column"
            )
        self.require(types[self.column_name])
        return replace(self, column_type=types[self.column_name])

    def require(self, type_: DataType) -> None:
        """Raises ConfigError when the check does not work on a column of this type."""
        return


@dataclass(frozen=True, kw_only=True)
class Bounded(DataCheck):
    """A check against a range, of which either end may be left out.

    Args:
        min_value: where the range begins: a number, or an SQL expression without columns.
        max_value: where it ends. At least one of both must be given.
        inclusive: whether the bounds themselves are accepted.
    """

    min_value: Any = None
    max_value: Any = None
    inclusive: bool = True

    def __post_init__(self) -> None:
        if self.min_value is None and self.max_value is None:
            raise ConfigError(f"{self.test} needs min_value, max_value or both: without a bound nothing can fail")
        for name, bound in self.bounds().items():
            if isinstance(bound, bool) or not isinstance(bound, (int, float, Decimal, str, date)):
                raise ConfigError(f"{name} is {bound!r}, which is no number, date, time or SQL expression")
            if isinstance(bound, (float, Decimal)) and not math.isfinite(bound):
                raise ConfigError(f"{name} is {bound!r}, which bounds nothing; leave it out")
        low, high = (_orderable(bound) for bound in (self.min_value, self.max_value))
        if type(low) is type(high) and low is not None and (low > high or (low == high and not self.inclusive)):
            raise ConfigError(f"no value can be {self.range_text()}; swap or widen min_value and max_value")

    def bounds(self) -> Mapping[str, Any]:
        """The given bounds, by argument."""
        both = {"min_value": self.min_value, "max_value": self.max_value}
        return {name: bound for name, bound in both.items() if bound is not None}

    def range_text(self) -> str:
        """The range in words, such as `between 0 and 100`."""
        low, high = self.min_value, self.max_value
        if low is None:
            return f"at most {high}" if self.inclusive else f"below {high}"
        if high is None:
            return f"at least {low}" if self.inclusive else f"above {low}"
        return f"between {low} and {high}" if self.inclusive else f"strictly between {low} and {high}"

    def less(self, a: Any, b: Any) -> Any:
        """Whether a value is too small for its lower bound, or an upper bound for the value; values or columns."""
        return a < b if self.inclusive else a <= b


@dataclass(frozen=True, kw_only=True)
class BoundedColumn(OfColumn, Bounded):
    """A check of one column against a range."""

    named_after: ClassVar[Sequence[str]] = ("column_name", "min_value", "max_value")

    @override
    def fit(self, types: Mapping[str, DataType], rows: DataFrame) -> Self:
        fitted = super().fit(types, rows)
        bounds = {name: settled(b, self.column_name, fitted.column_type) for name, b in self.bounds().items()}
        return replace(fitted, **bounds)


def _orderable(bound: Any) -> Any:
    if isinstance(bound, (int, float, Decimal)):
        return Decimal(str(bound))
    return instant(bound) if isinstance(bound, date) else None


def number(bound: Any) -> bool:
    """Whether a bound is a plain number."""
    return isinstance(bound, (int, float, Decimal))


def instant(bound: date) -> int:
    """A date or time as microseconds since 1970 in UTC; without a zone it is UTC.

    >>> instant(date(1970, 1, 2))
    86400000000
    """
    if not isinstance(bound, datetime):
        return (bound.toordinal() - _EPOCH.toordinal()) * DAY
    aware = bound if bound.tzinfo else bound.replace(tzinfo=UTC)
    return (aware - _EPOCH) // (datetime.resolution)


def instant_text(micros: int) -> str:
    """Microseconds since 1970 as ISO 8601 in UTC.

    >>> instant_text(86400000000)
    '1970-01-02T00:00:00Z'
    """
    return (_EPOCH + micros * datetime.resolution).isoformat().replace("+00:00", "Z")


def is_instant(type_: DataType | None) -> bool:
    """Whether a type is a date or a timestamp."""
    from pyspark.sql import types as T

    return isinstance(type_, (T.DateType, T.TimestampType, T.TimestampNTZType))


def is_numeric(type_: DataType | None) -> bool:
    """Whether a type is a number."""
    from pyspark.sql import types as T

    return isinstance(type_, T.NumericType)


def require_order(check: OfColumn, type_: DataType) -> None:
    """Raises ConfigError when values of this type have no order."""
    from pyspark.sql import types as T

    without = ("MapType", "VariantType", "CalendarIntervalType", "NullType")
    if isinstance(type_, tuple(getattr(T, name) for name in without if hasattr(T, name))):  # two of them since 4.0
        raise ConfigError(
            f"{check.test} compares values, and column {check.column_name} is {type_.simpleString()}, "
            "which has no order"
        )


def settled(bound: Any, column: str, type_: DataType) -> Any:
    """A bound as it is meant for a column of this type: a number, date, time, or the text of an SQL expression.

    Text such as `2026-01-31` is a date where the column is one.

    Raises:
        ConfigError: it can never be compared with such a column.
    """
    if isinstance(bound, str):
        return _date_of(bound) if is_instant(type_) else bound
    if number(bound) and not is_numeric(type_):
        raise ConfigError(f"{bound!r} is a number, and column {column} is {type_.simpleString()}; {_AS_EXPRESSION}")
    if isinstance(bound, date) and not is_instant(type_):
        raise ConfigError(f"{bound} is a date, and column {column} is {type_.simpleString()}; {_AS_EXPRESSION}")
    return bound


_AS_EXPRESSION = "give a bound of its type, as an SQL expression in quotes"


def _date_of(text: str) -> Any:
    try:
        return date.fromisoformat(text)
    except ValueError:
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            return text


def as_column(bound: Any, type_: DataType, argument: str) -> Column:
    """A settled bound, which messages call `argument`, as a column that compares exactly with one of this type."""
    from pyspark.sql import types as T

    if isinstance(bound, str):
        return expression(bound, argument)
    if number(bound):
        value = plain(bound, type_)
        if isinstance(type_, T.FloatType):
            return F.lit(value).cast("float")
        if isinstance(value, float) or abs(value) >= 10**38:  # beyond any decimal
            return F.lit(float(value))
        return F.lit(value if isinstance(value, int) and abs(value) < 2**63 else Decimal(f"{Decimal(value):f}"))
    if isinstance(type_, T.DateType) and not isinstance(bound, datetime):
        return F.lit(bound)
    text = instant_text(instant(bound))
    # Never a datetime as such: Spark would read it in the time zone of this process.
    if isinstance(type_, T.TimestampNTZType):
        return F.lit(text.removesuffix("Z")).cast("timestamp_ntz")
    return F.lit(text).cast("timestamp")


def plain(bound: Any, type_: DataType) -> Any:
    """A settled bound as the value that `comparable` gives for a column of this type."""
    from pyspark.sql import types as T

    if not number(bound):
        return instant(bound)
    if isinstance(type_, T.FloatType):
        return _as_float32(float(bound))
    if isinstance(type_, T.DoubleType):
        return float(bound)
    return bound if isinstance(bound, int) else Decimal(str(bound))


def _as_float32(value: float) -> float:
    """0.1 as a float column holds it."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def comparable(value: Column, type_: DataType) -> Column:
    """A date or time as microseconds since 1970 in UTC, whatever this process takes for its zone; others as is.

    Text is without its collation: PySpark 4.0 collects no row that has one.
    """
    from pyspark.sql import types as T

    if isinstance(type_, T.StringType):
        return value.cast("string")
    if isinstance(type_, T.DateType):
        return F.unix_date(value).cast("bigint") * F.lit(DAY)
    if isinstance(type_, T.TimestampNTZType):
        value = F.concat(value.cast("string"), F.lit("Z")).cast("timestamp")
    return F.unix_micros(value) if is_instant(type_) else value
