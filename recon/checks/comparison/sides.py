"""Both tables in one form: the key as k0, k1, … and the compared columns as v0, v1, …, in their common types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recon.base.errors import ConfigError
from recon.checks.comparison.align import Alignment, Pair, type_within
from recon.spark.columns import expression, filtered
from recon.spark.errors import spark_error
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Sides = tuple["DataFrame", "DataFrame"]
_ALIGNED = "_recon_aligned"


def aligned_side(
    table: DataFrame, alignment: Alignment, where: str | None, name: str, renamed: bool = False
) -> DataFrame:
    """One table's rows that meet `where`, with the key and the compared columns in their common types.

    The right table, `renamed`, is put to `where` with the left one's names.

    Raises:
        ConfigError: `where` is no condition on the table, or a column cannot be cast.
    """

    def aligned(pair: Pair, as_: str) -> Column:
        column = pair.other if renamed else pair.name
        same = type_within(table.schema, column) == pair.type
        return (F.col(column) if same else F.col(column).cast(pair.type)).alias(as_)

    columns = [
        *(aligned(p, f"k{i}") for i, p in enumerate(alignment.key)),
        *(aligned(p, f"v{i}") for i, p in enumerate(alignment.columns)),
    ]
    try:
        if where is None:
            return table.select(*columns)
        by_left_names = [F.col(theirs).alias(ours) for ours, theirs in alignment.names] if renamed else [F.col("*")]
        filtered(table.select(*by_left_names), where, "where", name)
        # In one column, the compared ones cannot be confused with those that `where` names.
        rows = table.select(*by_left_names, F.struct(*columns).alias(_ALIGNED))
        return rows.filter(expression(where, "where")).select(f"{_ALIGNED}.*")
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"the columns of {name} cannot be compared: {spark_error(error)}") from error


def key_names(alignment: Alignment) -> list[str]:
    """The names k0, k1, … of the key columns."""
    return [f"k{i}" for i in range(len(alignment.key))]


def value_names(alignment: Alignment) -> list[str]:
    """The names v0, v1, … of the compared columns."""
    return [f"v{i}" for i in range(len(alignment.columns))]
