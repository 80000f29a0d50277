"""Data checks on single rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.checks.base import yaml_text
from recon.checks.data.bounds import BoundedColumn, OfColumn, as_column
from recon.checks.data_check import EachRow
from recon.spark.columns import expression, sql_name
from recon.spark.errors import spark_error
from recon.spark.lazy import F
from recon.spark.releases import try_cast

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

# dbt_utils trims blanks, tabs and line ends.
_WHITESPACE = " \t\n\r\f\x0b"
# So many digits that no number of a configuration is rounded; one with a greater exponent than Python has is infinite.
_EXACT = Context(prec=10_000, traps=[])
_MOST_DIGITS = 38
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?|nan", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class NotNull(OfColumn, EachRow):
    """Rows whose column is NULL.

    Failures are rows. NaN and the empty string are values, not NULL.
    """

    test: ClassVar[str] = "not_null"

    @override
    def failing(self) -> Column:
        return F.col(self.column_name).isNull()

    @override
    def message(self, failures: int, rows: int) -> str:
        return f"{self.column_name} is NULL in {failures} of {rows} rows"


@dataclass(frozen=True, kw_only=True)
class AcceptedValues(OfColumn, EachRow):
    """Rows whose column holds a value outside a list.

    Failures are rows (dbt counts distinct values). NULL is accepted, as in dbt: add `not_null` where it is not. Strings
    compare exactly, with case and blanks, unless the column has a collation.

    Args:
        values: the accepted values. Each is read as a value of the column's type, so that `[1, 2]`, `[1.0, 2.0]` and
            `["1", "2"]` mean the same. A number or time that does not fit, such as 1.005 for `decimal(10,2)`, accepts
            nothing; a value that is none of that type, such as `new` for `int`, is an error.
        quote: false takes strings in `values` as SQL expressions, such as `date '2026-01-01'`.

    Example:
        columns:
          - name: status
            data_tests:
              - accepted_values:
                  arguments: {values: [new, paid, shipped]}
    """

    test: ClassVar[str] = "accepted_values"
    named_after: ClassVar[Sequence[str]] = ("column_name", "values")
    values: tuple[Any, ...]
    quote: bool = True

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigError("values is empty, so that no row could pass; list the accepted values")
        unusable = [v for v in self.values if v is None or isinstance(v, (list, tuple, dict, set))]
        if unusable:
            raise ConfigError(f"values holds {unusable[0]!r}, which is not a plain value; NULL is always accepted")

    @override
    def fit(self, types: Mapping[str, DataType], rows: DataFrame) -> Self:
        fitted = super().fit(types, rows)
        read = [value for value in self.values if self.quote or not isinstance(value, str)]
        for value in _of_another_type(read, fitted.column_type, rows):
            kind = fitted.column_type.simpleString()
            raise ConfigError(
                f"values holds {value!r}, which is no {kind}, and column {self.column_name} is one; correct the value, "
                "or take it out"
            )
        return fitted

    @override
    def failing(self) -> Column:
        column = F.col(self.column_name)
        # A NULL in the list (a value that does not fit this type) would make IN answer NULL and hide a failure.
        accepted = F.coalesce(column.isin(*(self._literal(v) for v in self.values)), F.lit(False))
        return column.isNotNull() & ~accepted

    @override
    def message(self, failures: int, rows: int) -> str:
        return f"{self.column_name} is none of the {len(self.values)} accepted values in {failures} of {rows} rows"

    def _literal(self, value: Any) -> Column:
        if isinstance(value, str) and not self.quote:
            return expression(value, "the value")
        from pyspark.sql import types as T

        text = yaml_text(value)
        if self.column_type is None or isinstance(self.column_type, T.StringType):
            return F.lit(text)  # of no collation, so that the column's decides
        return try_cast(F.lit(_fitting(text, self.column_type)), self.column_type)


@dataclass(frozen=True, kw_only=True)
class AcceptedRange(BoundedColumn, EachRow):
    """Rows whose column lies outside a range (dbt_utils' test of this name).

    Failures are rows. NULL is accepted, and so is a row in which a bound's expression gives NULL, as in dbt_utils: add
    `not_null` where it is not. NaN is in no range.

    Args:
        min_value: the least value: a number, a date or time (UTC where it names no zone), or an SQL expression, which
            may name other columns. Text that reads as a date is one where the column is a date or timestamp.
        max_value: the greatest value, likewise. At least one of both must be given.

    Example:
        columns:
          - name: amount
            data_tests:
              - accepted_range:
                  arguments: {min_value: 0, max_value: 100000}
          - name: shipped_at
            data_tests:
              - accepted_range:
                  arguments: {min_value: ordered_at, max_value: current_timestamp()}
    """

    test: ClassVar[str] = "accepted_range"

    @override
    def failing(self) -> Column:
        from pyspark.sql import types as T

        column = F.col(self.column_name)
        outside: list[Column] = []
        if self.min_value is not None:
            outside.append(self.less(column, as_column(self.min_value, self.column_type, "min_value")))
        if self.max_value is not None:
            outside.append(self.less(as_column(self.max_value, self.column_type, "max_value"), column))
        if isinstance(self.column_type, (T.FloatType, T.DoubleType)):
            outside.append(F.isnan(column))  # Spark orders NaN above every number
        return reduce(or_, outside)

    @override
    def message(self, failures: int, rows: int) -> str:
        return f"{self.column_name} is not {self.range_text()} in {failures} of {rows} rows"


@dataclass(frozen=True, kw_only=True)
class ExpressionIsTrue(EachRow):
    """Rows for which an SQL expression is false (dbt_utils' test of this name).

    Failures are rows. A row for which the expression is NULL passes, as in dbt_utils; write `coalesce(…, false)` where
    it should not. An expression is an error of this check alone where Spark refuses it, it is no condition, or it
    breaks on some value (such as a cast).

    Args:
        expression: SQL over the table's columns. Listed below a column, it is what follows the column's name, such as
            `>= 0`.
        column_name: the column the expression begins with; filled in for a test listed below a column.

    Example:
        data_tests:
          - expression_is_true:
              arguments: {expression: amount = price * quantity}
        columns:
          - name: amount
            data_tests:
              - expression_is_true:
                  arguments: {expression: ">= 0"}
    """

    test: ClassVar[str] = "expression_is_true"
    reads: ClassVar[Sequence[str]] = ("column_name",)
    expression: str
    column_name: str | None = None

    def __post_init__(self) -> None:
        if not self.expression.strip():
            raise ConfigError("expression is empty; write a condition such as `amount >= 0`")

    @override
    def label(self) -> str:
        return self._behind(self.column_name)

    @override
    def failing(self) -> Column:
        return ~expression(self.condition(), "expression")

    @override
    def message(self, failures: int, rows: int) -> str:
        return f"{self.label()} is false in {failures} of {rows} rows"

    def condition(self) -> str:
        """The whole expression, with the column's name as SQL has it."""
        return self._behind(self.column_name and sql_name(self.column_name))

    def _behind(self, name: str | None) -> str:
        return self.expression if name is None else f"{name} {self.expression}"


@dataclass(frozen=True, kw_only=True)
class OfText(OfColumn):
    """A check of a text column."""

    @override
    def require(self, type_: DataType) -> None:
        from pyspark.sql import types as T

        if not isinstance(type_, (T.StringType, T.CharType, T.VarcharType)):
            raise ConfigError(
                f"{self.test} needs text, and column {self.column_name} is {type_.simpleString()}; "
                "use accepted_range or expression_is_true for it"
            )


@dataclass(frozen=True, kw_only=True)
class MatchesRegex(OfText, EachRow):
    r"""Rows whose text a regular expression does not match.

    Failures are rows. NULL is accepted: add `not_null` where it is not. The empty string is matched like any other. A
    column that is no string is an error.

    Args:
        regex: a Java regular expression. In YAML, single quotes leave backslashes alone.
        match: `search` finds it anywhere in the text, `full` wants the whole text.
        negate: true turns the check around: rows whose text it matches fail.

    Example:
        columns:
          - name: order_id
            data_tests:
              - matches_regex:
                  arguments: {regex: 'ord-\d{6}', match: full}
    """

    test: ClassVar[str] = "matches_regex"
    regex: str
    match: Literal["search", "full"] = "search"
    negate: bool = False

    @override
    def label(self) -> str:
        return f"{self.column_name}__{'not_' if self.negate else ''}{self.regex}"

    @override
    def fit(self, types: Mapping[str, DataType], rows: DataFrame) -> Self:
        fitted = super().fit(types, rows)
        try:
            _folded(F.col("col1").rlike(self.pattern()), rows)
        except Exception as error:
            raise ConfigError(f"regex {self.regex!r} is no Java regular expression: {spark_error(error)}") from error
        return fitted

    @override
    def failing(self) -> Column:
        matched = F.col(self.column_name).rlike(self.pattern())
        return matched if self.negate else ~matched

    @override
    def message(self, failures: int, rows: int) -> str:
        how = "matches" if self.negate else "does not match"
        return f"{self.column_name} {how} {self.regex} in {failures} of {rows} rows"

    def pattern(self) -> str:
        """The expression that is found in a text that matches."""
        return rf"\A(?:{self.regex})\z" if self.match == "full" else self.regex


@dataclass(frozen=True, kw_only=True)
class NotEmptyString(OfText, EachRow):
    """Rows whose text is empty (dbt_utils' test of this name).

    Failures are rows. NULL is accepted, as in dbt_utils: add `not_null` where it is not. A column that is no string is
    an error.

    Args:
        trim_whitespace: whether text of nothing but blanks, tabs and line ends is empty.
    """

    test: ClassVar[str] = "not_empty_string"
    trim_whitespace: bool = True

    @override
    def failing(self) -> Column:
        text = F.col(self.column_name)
        return (F.btrim(text, F.lit(_WHITESPACE)) if self.trim_whitespace else text) == F.lit("")

    @override
    def message(self, failures: int, rows: int) -> str:
        return f"{self.column_name} is empty in {failures} of {rows} rows"


def _folded(value: Column, rows: DataFrame) -> Any:
    """A value that Spark's optimizer evaluates, on a table of one empty text `col1`; no job runs."""
    return rows.sparkSession.sql("VALUES ('')").select(value).collect()[0][0]


def _of_another_type(values: Sequence[Any], type_: DataType, rows: DataFrame) -> Sequence[Any]:
    """Those of the values that Spark cannot read as one of a type, whether it fits or not; no job runs."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import types as T

    if isinstance(type_, (T.StringType, T.BinaryType)) or not values:
        return ()
    if isinstance(type_, T.NumericType):
        return [value for value in values if not _NUMBER.fullmatch(yaml_text(value).strip())]
    texts = F.array(*(F.lit(yaml_text(value)) for value in values))
    try:
        unread = _folded(F.transform(texts, lambda text: try_cast(text, type_).isNull()), rows)
    except AnalysisException as error:
        raise ConfigError(
            f"accepted_values compares plain values, not {type_.simpleString()}; use expression_is_true"
        ) from error
    return [value for value, is_unread in zip(values, unread, strict=True) if is_unread]


def _fitting(text: str, type_: DataType) -> str | None:
    """A value as Spark reads it for this type; None where it would be rounded, or cut short, to fit."""
    from pyspark.sql import types as T

    if isinstance(type_, (T.IntegralType, T.DecimalType)):
        number = _EXACT.create_decimal(text.strip()).normalize(_EXACT)
        scale = type_.scale if isinstance(type_, T.DecimalType) else 0
        exponent = number.as_tuple().exponent
        fits = isinstance(exponent, int) and -scale <= exponent < _MOST_DIGITS  # text for NaN and the infinite
        return f"{number:f}" if fits else None
    if isinstance(type_, T.DateType) and re.search(r"\d[ T].*[1-9]", text):
        return None  # a time of the day
    if isinstance(type_, (T.TimestampType, T.TimestampNTZType)) and re.search(r"\.\d{6}\d*[1-9]", text):
        return None  # finer than microseconds
    return text
