"""Data checks on single rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from typing_extensions import override

from recon.checks.base import yaml_text
from recon.checks.data.bounds import BoundedColumn, OfColumn, as_column
from recon.checks.data_check import EachRow
from recon.errors import ConfigError
from recon.spark.columns import expression
from recon.spark.errors import spark_error
from recon.spark.lazy import F
from recon.spark.releases import try_cast

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

# dbt_utils trims blanks, tabs and line ends.
_WHITESPACE = " \t\n\r\f\x0b"
# So many digits that no number of a configuration is rounded.
_EXACT = Context(prec=10_000)


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
    compare exactly, with case and blanks.

    Args:
        values: the accepted values. Each is read as a value of the column's type, so that `[1, 2]` and `["1", "2"]`
            mean the same; one that is no value of that type, such as 1.005 for `decimal(10,2)`, accepts nothing.
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
    def failing(self) -> Column:
        column = F.col(self.column_name)
        # A NULL in the list (a value that is none of this type) would make IN answer NULL and hide a failure.
        accepted = F.coalesce(column.isin(*(self._literal(v) for v in self.values)), F.lit(False))
        return column.isNotNull() & ~accepted

    @override
    def message(self, failures: int, rows: int) -> str:
        return f"{self.column_name} is none of the {len(self.values)} accepted values in {failures} of {rows} rows"

    def _literal(self, value: Any) -> Column:
        if isinstance(value, str) and not self.quote:
            return expression(value, "the value")
        text = yaml_text(value)
        if self.column_type is None:
            return F.lit(text)
        return try_cast(F.lit(None if _cut_short(text, self.column_type) else text), self.column_type)


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
    it should not. An expression that Spark refuses, that is no condition, or that breaks on some value (such as a cast)
    is an error of this check alone.

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
        return self.condition()

    @override
    def failing(self) -> Column:
        return ~expression(self.condition(), "expression")

    @override
    def message(self, failures: int, rows: int) -> str:
        return f"{self.condition()} is false in {failures} of {rows} rows"

    def condition(self) -> str:
        """The whole expression."""
        return self.expression if self.column_name is None else f"{self.column_name} {self.expression}"


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
            # Spark's optimizer evaluates the expression on a table of one value; no job runs.
            rows.sparkSession.sql("VALUES ('')").select(F.col("col1").rlike(self.pattern())).collect()
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


def _cut_short(text: str, type_: DataType) -> bool:
    """Whether Spark would round a value to fit the type, or leave some of it out."""
    from pyspark.sql import types as T

    if isinstance(type_, T.DecimalType):
        try:
            exponent = Decimal(text).normalize(_EXACT).as_tuple().exponent
        except ArithmeticError:  # no number: the cast gives NULL
            return False
        return isinstance(exponent, int) and exponent < -type_.scale
    if isinstance(type_, T.DateType):
        return re.search(r"\d[ T].*[1-9]", text) is not None  # a time of the day
    if isinstance(type_, (T.TimestampType, T.TimestampNTZType)):
        return re.search(r"\.\d{6}\d*[1-9]", text) is not None  # finer than microseconds
    return False
