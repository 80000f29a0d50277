"""What Delta's Python package does to tables (MERGE, UPDATE, create), in sessions with and without a JVM gateway.

The package needs the gateway, or a plug-in of the Connect server that not every server has. Over Spark Connect the same
statements are sent as SQL.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recon.spark.columns import literal, quoted
from recon.spark.connect import analysed, connects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_EVOLVES = "spark.databricks.delta.schema.autoMerge.enabled"


@dataclass(frozen=True, kw_only=True)
class Clause:
    """A WHEN clause.

    Attributes:
        matched: whether it is for rows of the target that the source has, or for rows of the source alone.
        condition: SQL; None for all of them.
        values: SQL by column, to update or insert; None deletes the row.
    """

    matched: bool
    condition: str | None = None
    values: Mapping[str, str] | None = None

    def added_to(self, builder: Any) -> Any:
        """Delta's builder with this clause."""
        if self.values is None:
            return builder.whenMatchedDelete(self.condition)
        add = builder.whenMatchedUpdate if self.matched else builder.whenNotMatchedInsert
        return add(self.condition, dict(self.values))

    def sql(self) -> str:
        """The clause as SQL."""
        when = "WHEN MATCHED" if self.matched else "WHEN NOT MATCHED"
        if self.condition is not None:
            when += f" AND ({self.condition}\n)"
        if self.values is None:
            return f"{when} THEN DELETE"
        if self.matched:
            return f"{when} THEN UPDATE SET {_set(self.values)}"
        return f"{when} THEN INSERT ({', '.join(self.values)}) VALUES ({', '.join(self.values.values())})"


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
            builder = clause.added_to(builder)
        (builder.withSchemaEvolution() if self.evolve_schema else builder).execute()

    def _as_sql(self, spark: SparkSession) -> None:
        view = f"recon_{uuid.uuid4().hex}"
        self.source.createOrReplaceTempView(view)
        try:
            clauses = "\n".join(clause.sql() for clause in self.clauses)
            with _evolving(spark) if self.evolve_schema else nullcontext():
                spark.sql(f"MERGE INTO delta.{quoted(self.target)} AS t USING {view} AS s ON {self.on}\n{clauses}")
        finally:
            spark.catalog.dropTempView(view)


@contextmanager
def _evolving(spark: SparkSession) -> Iterator[None]:
    """Lets a MERGE add columns; WITH SCHEMA EVOLUTION does not let a clause of SQL set one by name (Delta 4.0)."""
    before = spark.conf.get(_EVOLVES, None)
    spark.conf.set(_EVOLVES, "true")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_EVOLVES)
        else:
            spark.conf.set(_EVOLVES, before)


def update(spark: SparkSession, target: str, values: Mapping[str, str], where: str) -> None:
    """Runs an UPDATE of the Delta table at the location `target`; `values` are SQL by column, `where` is SQL."""
    if connects(spark):
        spark.sql(f"UPDATE delta.{quoted(target)} SET {_set(values)} WHERE {where}")
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


def _set(values: Mapping[str, str]) -> str:
    return ", ".join(f"{column} = {value}" for column, value in values.items())
