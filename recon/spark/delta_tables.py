"""What Delta's Python package does to tables (MERGE, UPDATE, create), in sessions with and without a JVM gateway.

The package needs the gateway, or a plug-in of the Connect server that not every server has. Over Spark Connect the same
statements are sent as SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recon.spark.columns import literal, quoted
from recon.spark.connect import analysed, connects
from recon.spark.merge import Clause, assignments, merge
from recon.spark.settings import settings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# WITH SCHEMA EVOLUTION does not let a clause of SQL set a new column by name (Delta 4.0).
_EVOLVING = {"spark.databricks.delta.schema.autoMerge.enabled": "true"}


@dataclass(frozen=True, kw_only=True)
class Merge:
    """A MERGE of `source`, as `s`, into the Delta table at the location `target`, as `t`; `on` is SQL."""

    target: str
    source: DataFrame
    on: str
    clauses: Sequence[Clause]
    evolve_schema: bool = False

    def execute(self) -> None:
        """Runs it; raises what Spark raises."""
        spark = self.source.sparkSession
        if connects(spark):
            self._as_sql(spark)
        else:
            self._by_builder(spark)

    def _by_builder(self, spark: SparkSession) -> None:
        from delta.tables import DeltaTable

        builder: Any = DeltaTable.forPath(spark, self.target).alias("t").merge(self.source.alias("s"), self.on)
        for clause in self.clauses:
            builder = _added(builder, clause)
        (builder.withSchemaEvolution() if self.evolve_schema else builder).execute()

    def _as_sql(self, spark: SparkSession) -> None:
        with settings_of(spark, _EVOLVING) if self.evolve_schema else nullcontext():
            merge(self.source, f"delta.{quoted(self.target)}", self.on, self.clauses)


def _added(builder: Any, clause: Clause) -> Any:
    """Delta's builder with one clause more."""
    if clause.values is None:
        return builder.whenMatchedDelete(clause.condition)
    add = builder.whenMatchedUpdate if clause.matched else builder.whenNotMatchedInsert
    return add(clause.condition, dict(clause.values))


def update(spark: SparkSession, target: str, values: Mapping[str, str], where: str) -> None:
    """Runs an UPDATE of the Delta table at the location `target`; `values` are SQL by column, `where` is SQL."""
    if connects(spark):
        spark.sql(f"UPDATE delta.{quoted(target)} SET {assignments(values)} WHERE {where}")
        return
    from delta.tables import DeltaTable

    DeltaTable.forPath(spark, target).update(where, dict(values))


def is_delta_table(spark: SparkSession, location: str) -> bool:
    """Whether there is a Delta table at the location."""
    if not connects(spark):
        from delta.tables import DeltaTable

        return bool(DeltaTable.isDeltaTable(spark, location))
    from pyspark.errors import AnalysisException

    try:
        analysed(spark.read.format("delta").load(location))
    except AnalysisException:
        return False
    return True


def create_table(
    spark: SparkSession, schema: StructType, *, name: str | None, location: str, partition_by: str, comment: str
) -> None:
    """Creates a Delta table where there is none: by its name in a catalog, else at the location."""
    if connects(spark):
        columns = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema.fields)
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {name or f'delta.{quoted(location)}'} ({columns}) USING delta "
            f"PARTITIONED BY ({partition_by}) COMMENT {literal(comment)}"
        )
        return
    from delta.tables import DeltaTable

    builder = DeltaTable.createIfNotExists(spark).addColumns(schema)
    builder = builder.location(location) if name is None else builder.tableName(name)
    builder.partitionedBy(partition_by).comment(comment).execute()
