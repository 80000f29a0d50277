"""MERGE as SQL: its clauses, and the statement that reads its source from a DataFrame."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Clause:
    """A WHEN clause of a MERGE from `s` into `t`.

    Attributes:
        matched: whether it is for rows of the target that the source has, or for rows of the source alone.
        condition: SQL; None for all of them.
        values: SQL by column, to update or insert; None deletes the row.
    """

    matched: bool
    condition: str | None = None
    values: Mapping[str, str] | None = None

    def sql(self) -> str:
        """The clause as SQL."""
        when = "WHEN MATCHED" if self.matched else "WHEN NOT MATCHED"
        if self.condition is not None:
            when += f" AND ({self.condition}\n)"
        if self.values is None:
            return f"{when} THEN DELETE"
        if self.matched:
            return f"{when} THEN UPDATE SET {assignments(self.values)}"
        return f"{when} THEN INSERT ({', '.join(self.values)}) VALUES ({', '.join(self.values.values())})"


def merge(source: DataFrame, target: str, on: str, clauses: Sequence[Clause]) -> None:
    """Merges `source`, as `s`, into the table that SQL calls `target`, as `t`; raises what Spark raises."""
    with temporary_view(source) as view:
        listed = "\n".join(clause.sql() for clause in clauses)
        source.sparkSession.sql(f"MERGE INTO {target} AS t USING {view} AS s ON {on}\n{listed}")


def assignments(values: Mapping[str, str]) -> str:
    """What follows SET: SQL by column."""
    return ", ".join(f"{column} = {value}" for column, value in values.items())


@contextmanager
def temporary_view(frame: DataFrame) -> Iterator[str]:
    """A name by which SQL reads a frame inside; no other query of the session has a view of that name."""
    view = f"recon_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(view)
    try:
        yield view
    finally:
        frame.sparkSession.catalog.dropTempView(view)
