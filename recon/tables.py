"""Other tables by name: a project's sinks, its `tables`, paths and catalog tables as DataFrames."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recon.complaint import meant
from recon.errors import ConfigError
from recon.project import Project, Sink, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_REF = re.compile(r"""\s*(?:\{\{)?\s*(?:ref|source)\(\s*(['"])(.+?)\1\s*(?:,\s*(['"])(.+?)\3\s*)?\)\s*(?:\}\})?\s*""")


class ProjectTables:
    """Opens tables for the checks of a project; relative paths are relative to recon.yml."""

    def __init__(self, project: Project, spark: SparkSession) -> None:
        """`spark` is the session that reads; inside foreachBatch the micro-batch's own."""
        self._project, self._spark = project, spark

    def open(self, reference: str) -> DataFrame:
        """The rows of a table; it is not read yet.

        Args:
            reference: `ref('name')` or a bare name: a sink, `pipeline.sink`, or an entry of `tables`;
                `ref('pipeline', 'sink')`; a path or URI of a Delta table, or of Parquet when it ends in `.parquet`;
                else a catalog table, such as `sales.orders`.

        Raises:
            ConfigError: there is no such table, or it cannot be read.
        """
        found = _REF.fullmatch(reference)
        name = ".".join(part for part in (found[2], found[4]) if part) if found else reference.strip()
        known = find(self._project, name)
        try:
            if isinstance(known, Sink):
                return self._spark.read.format("delta").load(self._project.resolve(known.target))
            if isinstance(known, Table):
                return self._table(known)
            if "/" in name:
                kind = "parquet" if name.rstrip("/").endswith(".parquet") else "delta"
                return self._spark.read.format(kind).load(self._project.resolve(name))
            if not found and self._spark.catalog.tableExists(name):
                return self._spark.read.table(name)
        except Exception as error:  # whatever Spark, a driver or a filesystem raises
            told = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise ConfigError(f"table {name!r} cannot be read: {told[:300]}") from error
        raise ConfigError(f"there is no table {name!r}{meant(name, names(self._project), 'recon.yml has')}")

    def _table(self, table: Table) -> DataFrame:
        if table.format == "table":
            return self._spark.read.options(**table.options).table(str(table.target))
        reader = self._spark.read.format(table.format).options(**table.options)
        if table.target is None:
            return reader.load()
        return reader.load(self._project.resolve(table.target))


def find(project: Project, name: str) -> Sink | Table | None:
    """The sink or entry of `tables` of this name; None when there is none.

    Raises:
        ConfigError: sinks of several pipelines have the name.
    """
    for table in project.tables:
        if table.name == name:
            return table
    sinks = [(p.name, s) for p in project.pipelines for s in p.sinks if name in (s.name, f"{p.name}.{s.name}")]
    exact = [(p, s) for p, s in sinks if f"{p}.{s.name}" == name]
    if len(exact or sinks) > 1:
        several = ", ".join(f"{pipeline}.{name}" for pipeline, _ in sinks)
        raise ConfigError(f"several pipelines have a sink {name!r}; write which: {several}")
    return (exact or sinks)[0][1] if sinks else None


def names(project: Project) -> list[str]:
    """What `ref` finds."""
    return [*(t.name for t in project.tables), *(s.name for p in project.pipelines for s in p.sinks)]
