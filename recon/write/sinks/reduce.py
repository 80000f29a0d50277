"""The rows of one micro-batch before a MERGE: the sink's requirements of them, one row per key, and their counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from recon.base.errors import ConfigError, SinkError
from recon.model.wire.columns import SOURCE_COLUMNS
from recon.project import DeltaMergeSink, IcebergMergeSink
from recon.spark.columns import expression, quoted
from recon.spark.connect import analysed
from recon.spark.errors import without_sqlstate
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Columns beside the rows' own: how many rows a reduced row stands for, the row, and whether it is a tombstone.
ROWS, ROW, DELETED = "_recon_rows", "_recon_row", "_recon_gone"
_PRUNING = ("string", "date", "boolean", "tinyint", "smallint", "int", "bigint", "decimal")
_NO_ORDER = ("map", "variant", "interval")  # types that no hash and no grouping takes
_EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class ReducedCounts:
    """Counts of the reduced rows: `given` before the reduction, `rows` after it, NULLs and extents by column."""

    given: int
    rows: int
    nulls: Mapping[str, int]
    extents: Mapping[str, tuple[Any, Any, int]]  # least, greatest, NULLs


class MergeRows:
    """The rows of one micro-batch and their columns, as the sink's keys name them."""

    def __init__(self, sink: DeltaMergeSink | IcebergMergeSink, frame: DataFrame, name: str) -> None:
        self.sink, self.frame, self.name = sink, frame, name
        sensitive = str(frame.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
        self._fold = (lambda text: text) if sensitive else str.lower
        self._columns = {self._fold(column): column for column in frame.columns}
        self._types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}

    def column(self, name: str) -> str:
        """A column's name in the rows, whose upper and lower case may differ from recon.yml's."""
        return self._columns[self._fold(name)]

    # -- requirements ------------------------------------------------------------------------------

    def require_columns(self, partition_by: Sequence[str]) -> None:
        """Requires that the rows have the columns that the sink's keys name, in types that can be used so.

        Raises:
            SinkError: they do not.
        """
        sink = self.sink
        wanted = [("keys", key) for key in sink.keys]
        wanted += [("newer_wins", sink.newer_wins)] if sink.newer_wins else []
        wanted += [("scd2: effective", sink.scd2.effective)] if sink.scd2 else []
        wanted += [("prune_by", prune.column) for prune in sink.prune_by]
        wanted += [("partition_by", column) for column in partition_by]
        missing = [(key, column) for key, column in wanted if self._fold(column) not in self._columns]
        if missing:
            listed = ", ".join(f"{column} ({key})" for key, column in missing)
            raise SinkError(
                f"{self.name} has no column {listed}; its columns are {', '.join(self.frame.columns)}: keep it in the "
                "transform, or correct the sink in recon.yml; nothing of it was written"
            )
        made = [sink.scd2.valid_to, sink.scd2.is_current] if sink.scd2 else []
        if sink.scd2 and self._fold(sink.scd2.valid_from) != self._fold(sink.scd2.effective):
            made.append(sink.scd2.valid_from)
        for column in made:
            if self._fold(column) in self._columns:
                raise SinkError(
                    f"{self.name} already has a column {column}, which the sink's scd2 makes; rename it in the "
                    "transform, or name the sink's column otherwise"
                )
        for column in self.grain:
            if self._types[column].split("<")[0] in _NO_ORDER:
                raise SinkError(
                    f"{self.name}: key column {column} is a {self._types[column]}, by which rows cannot be grouped; "
                    "choose other keys"
                )
        for column in self.pruning:
            if self._types[column].split("(")[0] not in _PRUNING:
                raise SinkError(
                    f"{self.name}: prune_by column {column} is a {self._types[column]}, by whose values files "
                    f"cannot be left out exactly; prune by one of the types {', '.join(_PRUNING)}"
                )

    def require_keys(self, counts: ReducedCounts) -> None:
        """Requires that no key holds a NULL: it matches nothing, so that each such row would be inserted once more.

        Raises:
            SinkError: a key column has NULLs; the message counts them.
        """
        null = {column: count for column, count in counts.nulls.items() if count}
        if not null:
            return
        bad = reduce(lambda a, b: a | b, (F.col(quoted(column)).isNull() for column in null))
        examples = ""
        if set(SOURCE_COLUMNS) <= set(self.frame.columns):
            rows = self.frame.filter(bad).select(*SOURCE_COLUMNS).limit(_EXAMPLES).collect()
            examples = f" (such as {', '.join(f'{topic}-{p} offset {offset}' for topic, p, offset in rows)})"
        nulls = ", ".join(f"{column} is NULL in {count:,}" for column, count in null.items())
        raise SinkError(
            f"{self.name}: key column {nulls} of {counts.given:,} rows{examples}: a MERGE matches no NULL; repair or "
            "drop the rows in the transform, or quarantine them with a post_batch check not_null and on_failure: "
            "quarantine; nothing of it was written"
        )

    def require_target(self, table: DataFrame, target: str) -> None:
        """Requires the target's columns: all of the grain, and without evolve_schema all others of the rows.

        Raises:
            SinkError: the target lacks a column.
        """
        present = {self._fold(column) for column in table.columns}
        needed = list(self.keys)
        if self.sink.scd2 is not None:
            needed += [self.sink.scd2.valid_from, self.sink.scd2.valid_to, self.sink.scd2.is_current]
        missing = [column for column in needed if self._fold(column) not in present]
        if missing:
            raise SinkError(
                f"{self.name}: the table {target} has no column {', '.join(missing)}, by which rows are merged; its "
                f"columns are {', '.join(table.columns)}: correct the sink in recon.yml, or write to a new table"
            )
        new = [column for column in self.frame.columns if self._fold(column) not in present]
        if new and not self.sink.evolve_schema:
            raise SinkError(
                f"{self.name}: the table {target} has no column {', '.join(new)}; {self._to_add}, or drop it in the "
                "transform; nothing of it was written"
            )

    @property
    def _to_add(self) -> str:
        """How the table gets another column."""
        evolves = "evolve_schema" in type(self.sink).model_fields
        return "set evolve_schema: true for the sink" if evolves else "add it to the table (ALTER TABLE … ADD COLUMNS)"

    # -- reduce ------------------------------------------------------------------------------------

    @property
    def keys(self) -> list[str]:
        """The key columns as the rows name them."""
        return [self.column(key) for key in self.sink.keys]

    @property
    def grain(self) -> list[str]:
        """The columns by which rows are reduced: the keys, or the keys and the version."""
        scd2 = self.sink.scd2
        return self.keys if scd2 is None else [*self.keys, self.column(scd2.effective)]

    @property
    def pruning(self) -> list[str]:
        """The prune columns as the rows name them."""
        return [self.column(prune.column) for prune in self.sink.prune_by]

    def reduced(self) -> DataFrame:
        """One row per key, the latest, with the number of rows it stands for; one shuffle.

        Rows are ranked by `newer_wins`, `order_by`, offset, partition, topic and last by a hash of the row. So any two
        attempts choose the same row, whatever order Spark reads in. NULL ranks lowest.

        Raises:
            SinkError: `order_by` or `delete_when` cannot be evaluated.
        """
        from pyspark.errors import AnalysisException

        hashed = [c for c, kind in self._types.items() if not any(word in kind for word in _NO_ORDER)]
        whole = F.struct(*(F.col(quoted(column)) for column in self.frame.columns))
        grain = [F.col(quoted(column)) for column in self.grain]
        try:
            ranks = [F.col(quoted(self.column(self.sink.newer_wins)))] if self.sink.newer_wins else []
            ranks += [expression(sql, "order_by") for sql in self.sink.order_by]
            ranks += [F.col(column) for column in reversed(SOURCE_COLUMNS) if column in self.frame.columns]
            ranks.append(F.xxhash64(*(F.col(quoted(column)) for column in hashed)))
            # Expressions may name columns alone, or as those of `s`.
            grouped = (
                self.frame.alias("s")
                .groupBy(*grain)
                .agg(F.max_by(whole, F.struct(*ranks)).alias(ROW), F.count(F.lit(1)).alias(ROWS))
            )
            reduced = grouped.select(
                *(F.col(f"{ROW}.{quoted(column)}").alias(column) for column in self.frame.columns), ROWS
            )
            return analysed(reduced.alias("s").withColumn(DELETED, self._deleted()))
        except (AnalysisException, ConfigError) as error:
            raise SinkError(
                f"{self.name}: order_by or delete_when cannot be evaluated on its rows: {without_sqlstate(error)}; "
                "nothing was written; correct the sink in recon.yml"
            ) from error

    def _deleted(self) -> Column:
        if self.sink.delete_when is None:
            return F.lit(False)
        return F.coalesce(expression(self.sink.delete_when, "delete_when"), F.lit(False))

    def counted(self, reduced: DataFrame) -> ReducedCounts:
        """Count the reduced rows, in one Spark job."""
        given = F.coalesce(F.sum(ROWS), F.lit(0))
        aggregates = [given.alias("given"), F.count(F.lit(1)).alias("rows")]
        for i, column in enumerate(self.grain):
            null = F.when(F.col(quoted(column)).isNull(), F.col(ROWS))
            aggregates.append(F.coalesce(F.sum(null), F.lit(0)).alias(f"null{i}"))
        for i, column in enumerate(self.pruning):
            of = F.col(quoted(column))
            aggregates += [
                F.min(of).alias(f"min{i}"),
                F.max(of).alias(f"max{i}"),
                F.count_if(of.isNull()).alias(f"none{i}"),
            ]
        counts = reduced.agg(*aggregates).collect()[0]
        return ReducedCounts(
            given=counts["given"],
            rows=counts["rows"],
            nulls={column: counts[f"null{i}"] for i, column in enumerate(self.grain)},
            extents={c: (counts[f"min{i}"], counts[f"max{i}"], counts[f"none{i}"]) for i, c in enumerate(self.pruning)},
        )

    def empty(self) -> DataFrame:
        """A frame without rows that has the columns of a new table."""
        scd2, made = self.sink.scd2, self.frame.limit(0)
        if scd2 is None:
            return made
        effective = F.col(quoted(self.column(scd2.effective)))
        return made.withColumns(
            {
                scd2.valid_from: effective,
                scd2.valid_to: F.when(F.lit(False), effective),
                scd2.is_current: F.lit(True),
            }
        )
