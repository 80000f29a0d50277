"""Names of columns for Spark, and conditions on them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from recon.base.errors import ConfigError
from recon.base.text import did_you_mean
from recon.spark.connect import analysed
from recon.spark.errors import spark_error
from recon.spark.lazy import F
from recon.spark.releases import parse

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


# A part of a column's name: in backticks, of which each within is doubled, or bare.
_PART = re.compile(r"(?:`((?:[^`]|``)+)`|([^.`]+))(?:\.(?!$)|$)")

_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def quoted(name: str) -> str:
    """A column's name in backticks, valid for any name: with dots, blanks or backticks."""
    return "`" + name.replace("`", "``") + "`"


def is_expression(text: str) -> bool:
    """Whether a key or group is an SQL expression: it has a parenthesis, which a column's name has in backticks only.

    >>> is_expression("lower(region)"), is_expression("a.b"), is_expression("`net (EUR)`")
    (True, False, False)
    """
    return "(" in re.sub(r"`[^`]*`", "", text)


def key_column(text: str) -> Column:
    """The column of a key or group: one of the table, or what an SQL expression gives."""
    return expression(text, "the expression") if is_expression(text) else F.col(text)


def path_of(name: str) -> tuple[str, ...]:
    """The column that a name of recon.yml means, and the fields within it, as Spark reads it; () where it is none.

    >>> path_of("a.b"), path_of("`a.b`.my field"), path_of("a.")
    (('a', 'b'), ('a.b', 'my field'), ())
    """
    parts, at = [], 0
    while at < len(name):
        part = _PART.match(name, at)
        if part is None:
            return ()
        parts.append(part[2] if part[1] is None else part[1].replace("``", "`"))
        at = part.end()
    return tuple(parts)


def named(path: Iterable[str]) -> str:
    """The name that means this column: what `path_of` reads, with no more backticks than it needs.

    >>> named(["a", "b"]), named(["a.b", "my field"])
    ('a.b', '`a.b`.my field')
    """
    return ".".join(quoted(part) if set(part) & set(".`") else part for part in path)


def sql_name(name: str) -> str:
    """A column that recon.yml names, for SQL: in backticks where it is no plain word.

    >>> sql_name("amount"), sql_name("a.my field"), sql_name("`a.b`")
    ('amount', 'a.`my field`', '`a.b`')
    """
    return ".".join(part if _WORD.fullmatch(part) else quoted(part) for part in path_of(name))


def unknown(name: str, columns: Iterable[str], listing: str = "there is") -> str:
    """The end of a sentence about a name that means no column of a table: how that is written, or a name like it."""
    known = list(columns)
    if name in known:
        return (
            f"; write {quoted(name)}: a dot leads to a field of a struct, and a name with a dot, a parenthesis or a "
            "backtick stands in backticks"
        )
    return did_you_mean(name, (named([column]) for column in known), listing)


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
    """The type of a column, of a field of a struct in Spark's notation, or of an SQL expression; no job runs.

    Raises:
        ConfigError: the table, which messages call `name`, has no such column, or cannot give the expression.
    """
    from pyspark.errors import AnalysisException, ParseException

    fields = {field.name: field.dataType for field in table.schema}
    # A plain name is looked up in the schema; only a path or a name in backticks needs Spark.
    if column in fields and column.isidentifier():
        return fields[column]
    try:
        if column not in fields or not is_expression(column):
            return table.select(key_column(column)).schema[0].dataType
    except (AnalysisException, ParseException) as error:
        if is_expression(column):
            raise ConfigError(f"{column!r} is no expression on {name}: {spark_error(error)}") from error
    raise ConfigError(f"{name} has no column {column!r}{unknown(column, table.columns)}")
