"""Names of columns for Spark, and conditions on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from recon.errors import ConfigError
from recon.spark.connect import analysed
from recon.spark.errors import spark_error
from recon.spark.lazy import F
from recon.spark.releases import parse
from recon.text import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


def quoted(name: str) -> str:
    """A column's name in backticks, valid for any name: with dots, blanks or backticks."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: Any) -> str:
    """A value as an SQL literal, whatever the settings of Spark's parser are.

    Args:
        value: a string, a number, a boolean, a date or None.

    >>> literal("o'k"), literal(date(2026, 1, 31)), literal(Decimal("1.50"))
    ("CAST(X'6f276b' AS STRING)", "DATE '2026-01-31'", '1.50BD')
    """
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    if isinstance(value, int):
        return str(value)
    text = str(value)
    # What a backslash, a quote or a variable means in a literal is a setting.
    return f"'{text}'" if not set(text) & set("\\'$") else f"CAST(X'{text.encode().hex()}' AS STRING)"


def with_columns(frame: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
    """The frame with these columns; with none of them it is unchanged, where Spark Connect raises an error."""
    return frame.withColumns(dict(columns)) if columns else frame


def distinct(names: Iterable[str]) -> list[str]:
    """The names made distinct: a join's `SELECT *` may repeat a name, and samples are keyed by name.

    >>> distinct(["id", "ID", "x"])
    ['id', 'ID_2', 'x']
    """
    taken: set[str] = set()
    unique_names = []
    for name in names:
        number, unique = 1, name
        while unique.lower() in taken:
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique.lower())
        unique_names.append(unique)
    return unique_names


def expression(sql: str, argument: str) -> Column:
    """The column that an SQL expression of the user's gives; never one with an alias behind it.

    Spark's `expr` takes `100 nonsense` for 100 with the alias nonsense, and `id > 5 or` for `id > 5` with the alias or.

    Args:
        sql: the expression; it may end with a comment.
        argument: what it is called in messages, such as "where".

    Raises:
        ConfigError: it has an alias.
        ParseException: it is no SQL. A session of Spark Connect raises it in both cases, and when the column is used.
    """
    column = F.expr(sql)
    if parse(sql):
        refuse_alias(sql, argument)
        return column
    # The server parses both, as both are in the plan.
    return F.when(F.lit(True), F.expr(_as_argument(sql))).otherwise(column)


def refuse_alias(sql: str, argument: str) -> None:
    """Raises ConfigError where one of these SQL expressions has an alias, or is none; not with Spark Connect."""
    from pyspark.errors import ParseException

    try:
        parse(_as_argument(sql))
    except ParseException as error:
        raise ConfigError(
            f"{argument} {sql!r} is no SQL expression: Spark would take what it ends with for an alias; remove that, "
            "or complete the expression"
        ) from error


def _as_argument(sql: str) -> str:
    """Expressions where none can have an alias, and none be DISTINCT: behind the first argument of a function."""
    return f"coalesce(NULL, {sql}\n)"


def filtered(table: DataFrame, condition: str | None, argument: str, name: str) -> DataFrame:
    """The rows of a table that meet a condition; all of them where it is None.

    Args:
        table: its rows.
        condition: SQL, resolved and typed here; no job runs.
        argument: what the condition is called in messages, such as "where".
        name: what the table is called in messages.

    Raises:
        ConfigError: it is no condition on this table.
    """
    if condition is None:
        return table
    try:
        rows = analysed(table.filter(expression(condition, argument)))
    except ConfigError:
        raise
    except Exception as error:  # what Spark's parser and analyser raise
        raise ConfigError(f"{argument} {condition!r} is no condition on {name}: {spark_error(error)}") from error
    return rows


def type_of(column: str, table: DataFrame, name: str) -> DataType:
    """The type of a column, or of a field of a struct, in Spark's notation; no job runs.

    Raises:
        ConfigError: the table, which messages call `name`, has no such column.
    """
    from pyspark.errors import AnalysisException, ParseException

    fields = {field.name: field.dataType for field in table.schema}
    # A plain name is looked up in the schema; only a path or a name in backticks needs Spark.
    if column in fields and column.isidentifier():
        return fields[column]
    try:
        return table.select(F.col(column)).schema[0].dataType
    except (AnalysisException, ParseException) as error:
        if column in fields:
            raise ConfigError(
                f"column {column!r} of {name} cannot be named so; write it in backticks: `{column}`"
            ) from error
        raise ConfigError(f"{name} has no column {column!r}{did_you_mean(column, table.columns)}") from error
