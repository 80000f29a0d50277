"""Both tables in one form: the key as k0, k1, … and the compared columns as v0, v1, …, in their common types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recon.comparison.align import Alignment, Pair
from recon.errors import ConfigError
from recon.spark.columns import filtered, quoted
from recon.spark.errors import spark_error
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Sides = tuple["DataFrame", "DataFrame"]


def aligned_side(
    table: DataFrame, alignment: Alignment, where: str | None, name: str, renamed: bool = False
) -> DataFrame:
    """One table's rows that meet `where`, with the key and the compared columns in their common types.

    Raises:
        ConfigError: `where` is no condition on the table, or a column cannot be cast.
    """
    if renamed:
        table = table.select(*(F.col(quoted(theirs)).alias(ours) for ours, theirs in alignment.names))
    table = filtered(table, where, "where", name)
    types = {field.name: field.dataType for field in table.schema.fields}

    def aligned(pair: Pair, as_: str) -> Column:
        column = F.col(quoted(pair.name))
        return (column if types[pair.name] == pair.type else column.cast(pair.type)).alias(as_)

    try:
        return table.select(
            *(aligned(p, f"k{i}") for i, p in enumerate(alignment.key)),
            *(aligned(p, f"v{i}") for i, p in enumerate(alignment.columns)),
        )
    except Exception as error:
        raise ConfigError(f"the columns of {name} cannot be compared: {spark_error(error)}") from error


def key_names(alignment: Alignment) -> list[str]:
    """The names k0, k1, … of the key columns."""
    return [f"k{i}" for i in range(len(alignment.key))]


def value_names(alignment: Alignment) -> list[str]:
    """The names v0, v1, … of the compared columns."""
    return [f"v{i}" for i in range(len(alignment.columns))]
