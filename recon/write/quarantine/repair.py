"""Applies a user's repair to quarantined rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from recon.base.errors import ConfigError
from recon.model.wire.columns import QUARANTINE_COLUMNS, REASONS, ROW_ID, STAMPED_COLUMNS
from recon.spark.columns import expression, with_columns
from recon.spark.errors import spark_error
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Repair = Callable[["DataFrame"], "DataFrame"] | Mapping[str, str]


def repaired(rows: DataFrame, repair: Repair | None, table: str) -> DataFrame:
    """The rows after the repair, with `_recon_id` and the stamps.

    Args:
        rows: rows of the quarantine table.
        repair: SQL expressions by column, or a function of the rows; None leaves them as they are.
        table: where the quarantine table is, for messages.

    Raises:
        ConfigError: Spark does not accept the repair, or it sets or drops a column that identifies a row.
    """
    rows = rows.drop(*(name for name in QUARANTINE_COLUMNS if name not in (ROW_ID, REASONS)))
    if repair is None:
        return rows
    return _by_function(rows, repair) if callable(repair) else _by_expressions(rows, repair, table)


def _by_function(rows: DataFrame, repair: Callable[[DataFrame], DataFrame]) -> DataFrame:
    result = repair(rows)
    missing = [name for name in (ROW_ID, *STAMPED_COLUMNS) if name in rows.columns and name not in result.columns]
    if missing:
        raise ConfigError(
            f"the repair returned rows without {missing[0]}; keep {ROW_ID} and the stamped columns in its rows"
        )
    return result


def _by_expressions(rows: DataFrame, expressions: Mapping[str, str], table: str) -> DataFrame:
    for column in expressions:
        if column in (*QUARANTINE_COLUMNS, *STAMPED_COLUMNS):
            raise ConfigError(f"{column} identifies a quarantined row and cannot be set by a repair; leave it out")
        if column not in rows.columns:
            raise ConfigError(
                f"the quarantined rows of {table} have no column {column!r}; they have "
                f"{', '.join(c for c in rows.columns if c not in QUARANTINE_COLUMNS)}"
            )
    try:
        result = with_columns(rows, {column: expression(sql, column) for column, sql in expressions.items()})
        # A repair must not change a column's type: the sink would refuse the rows, or change its own schema.
        types = {column: rows.schema[column].dataType for column in expressions}
        result = with_columns(result, {column: F.col(column).cast(of_type) for column, of_type in types.items()})
        _ = result.schema
    except Exception as error:
        repair = ", ".join(f"{column} = {sql}" for column, sql in expressions.items())
        raise ConfigError(f"the repair {repair} cannot be applied: {spark_error(error)}") from error
    return result
