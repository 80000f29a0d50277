"""Adds recon's columns to a Delta or Iceberg table that was written without recon before.

Only `_batch_id` and the source columns, in a commit of its own before the first write. `mergeSchema` would also add
whatever else the rows have, and an error in the user's schema has to stay an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from recon.base.errors import SinkError
from recon.model.wire.columns import STAMPED_COLUMNS
from recon.spark.errors import without_sqlstate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def add_columns(frame: DataFrame, read: Callable[[], DataFrame], table: str, target: str, label: str) -> None:
    """Add those of recon's columns that the rows to write have and the table lacks.

    Args:
        frame: the rows to write.
        read: opens the table, which exists, without a row of it being read.
        table: the table, as SQL names it.
        target: the table in messages.
        label: who writes, for messages.

    Raises:
        SinkError: the table has a column of such a name and another type, or Spark did not add the columns; nothing was
            written.
    """
    ours = [(f.name, f.dataType.simpleString()) for f in frame.schema.fields if f.name in STAMPED_COLUMNS]
    present = _types(read())
    for name, kind in ours:
        if present.get(name, kind) != kind:
            raise SinkError(
                f"{label}: the table {target} has a column {name} of type {present[name]}, and recon writes one of "
                f"that name and type {kind}: rename the table's column, or write to a new table; nothing was written"
            )
    missing = [(name, kind) for name, kind in ours if name not in present]
    if not present or not missing:
        return
    columns = ", ".join(f"{name} {kind.upper()}" for name, kind in missing)
    statement = f"ALTER TABLE {table} ADD COLUMNS ({columns})"
    try:
        frame.sparkSession.sql(statement)
    except Exception as error:  # of many classes, depending on the session and on what forbids it
        if {name for name, _ in missing} <= set(_types(read())):
            return  # another writer added them at the same moment
        raise SinkError(
            f"{label}: the table {target} has no column {', '.join(name for name, _ in missing)}, and recon could not "
            f"add what it writes on each row ({without_sqlstate(error)}); nothing was written: run {statement} as "
            "somebody who may change the table, then restart the query"
        ) from error


def _types(table: DataFrame) -> dict[str, str]:
    """The types of the table's columns; those with recon's names by recon's spelling, as Spark ignores case."""
    ours = {name.lower(): name for name in STAMPED_COLUMNS}
    return {ours.get(field.name.lower(), field.name): field.dataType.simpleString() for field in table.schema.fields}
