"""Names of columns for Spark, and conditions on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from recon.errors import ConfigError
from recon.spark.errors import spark_error
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def quoted(name: str) -> str:
    """A column's name in backticks, valid for any name: with dots, blanks or backticks."""
    return "`" + name.replace("`", "``") + "`"


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
        rows = table.filter(F.expr(condition))
        _ = rows.schema
    except Exception as error:  # what Spark's parser and analyser raise
        raise ConfigError(f"{argument} {condition!r} is no condition on {name}: {spark_error(error)}") from error
    return rows
