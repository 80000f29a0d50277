"""Other tables by name: a project's sinks, its `tables`, paths and catalog tables as DataFrames."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recon.complaint import meant
from recon.errors import ConfigError
from recon.project import Project, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CALL = re.compile(r"\s*(?:\{\{)?\s*(?:ref|source)\s*\(")
_REF = re.compile(r"""\s*(?:\{\{)?\s*(?:ref|source)\(\s*(['"])(.+?)\1\s*(?:,\s*(['"])(.+?)\3\s*)?\)\s*(?:\}\})?\s*""")
_IDENTIFIER = re.compile(r"\w+(\.\w+)*")


class ProjectTables:
    """Opens tables for the checks of a project; relative paths are relative to recon.yml.

    Make one for each run, and for each micro-batch: what it has opened stays at the version it had then.
    """

    def __init__(self, project: Project, spark: SparkSession) -> None:
        """`spark` is the session that reads; inside foreachBatch the micro-batch's own."""
        self._project, self._spark = project, spark
        self._opened: dict[str, DataFrame] = {}

    def open(self, reference: str) -> DataFrame:
        """The rows of a table; it is not read yet.

        A table is opened once, so that all who ask see the same version of a Delta table.

        Args:
            reference: `ref('name')` or a bare name: a sink, `pipeline.sink`, or an entry of `tables`;
                `ref('pipeline', 'sink')`; a path or URI of a Delta table, or of Parquet when it ends in `.parquet`;
                else a catalog table, such as `sales.orders`.

        Raises:
            ConfigError: there is no such table, or it cannot be read.
        """
        found = _REF.fullmatch(reference)
        if not found and _CALL.match(reference):
            raise ConfigError(f"{reference!r} names no table; write ref('name'), a path or a catalog table")
        name = ".".join(part for part in (found[2], found[4]) if part) if found else reference.strip()
        if name not in self._opened:
            self._opened[name] = self._open(name, only_ours=found is not None)
        return self._opened[name]

    def _open(self, name: str, only_ours: bool) -> DataFrame:
        known = self._project.find_table(name)
        try:
            if isinstance(known, tuple):
                return self._spark.read.format("delta").load(self._project.resolve(known[1].target))
            if isinstance(known, Table):
                return self._table(known)
            if not only_ours and "`" in name:
                return self._spark.read.table(name)
            if not only_ours and ("/" in name or name.endswith(".parquet")):
                kind = "parquet" if name.rstrip("/").endswith(".parquet") else "delta"
                return self._spark.read.format(kind).load(self._project.resolve(name))
            if not only_ours and _IDENTIFIER.fullmatch(name) and self._spark.catalog.tableExists(name):
                return self._spark.read.table(name)
        except Exception as error:  # whatever Spark, a driver or a filesystem raises
            told = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise ConfigError(f"table {name!r} cannot be read: {told[:300]}") from error
        raise ConfigError(f"there is no table {name!r}{meant(name, self._project.table_names(), 'recon.yml has')}")

    def _table(self, table: Table) -> DataFrame:
        if table.format == "table":
            return self._spark.read.options(**table.options).table(str(table.target))
        reader = self._spark.read.format(table.format).options(**table.options)
        if table.target is None:
            return reader.load()
        return reader.load(self._project.resolve(table.target))
