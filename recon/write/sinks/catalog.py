"""Tables as DataFrames: a project's sinks, its `tables`, paths and catalog tables.

A Delta table is read at the version that is newest when it is opened. Spark would look for a newer one at each job, but
all jobs of one audit have to see the same rows while the stream writes on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from recon.base.errors import ConfigError
from recon.base.storage import Storage
from recon.base.text import did_you_mean
from recon.project import Pipeline, Project, Sink, Table
from recon.project.locations import catalog_name
from recon.spark.catalog import locate, require_located
from recon.spark.connect import analysed
from recon.spark.errors import spark_error
from recon.write.sinks import open_sink
from recon.write.sinks.delta.append import read_newest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CALL = re.compile(r"\s*(?:\{\{)?\s*(?:ref|source)\s*\(")
_REF = re.compile(r"""\s*(?:\{\{)?\s*(?:ref|source)\(\s*(['"])(.+?)\1\s*(?:,\s*(['"])(.+?)\3\s*)?\)\s*(?:\}\})?\s*""")
_IDENTIFIER = re.compile(r"\w+(\.\w+)*")


def open_delta(project: Project, location: str, spark: SparkSession) -> DataFrame:
    """The rows of a Delta table at its newest version; a relative path is relative to recon.yml."""
    return read_newest(spark, Storage(project.resolve(location), project.storage_options))


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
            reference: `ref('name')` or a bare name is a sink, `pipeline.sink`, or an entry of `tables`;
                `ref('pipeline', 'sink')` a sink. A path or URI is a Delta table, or Parquet when it ends in `.parquet`.
                Anything else is a catalog table, such as `sales.orders`.

        Raises:
            ConfigError: there is no such table, or it cannot be read.
        """
        match = _REF.fullmatch(reference)
        if not match and _CALL.match(reference):
            raise ConfigError(f"{reference!r} names no table; write ref('name'), a path or a catalog table")
        name = ".".join(part for part in (match[2], match[4]) if part) if match else reference.strip()
        if name not in self._opened:
            self._opened[name] = self._open(name, only_ours=match is not None)
        return self._opened[name]

    def rows_of(self, pipeline: Pipeline | None, table: Sink | Table) -> DataFrame:
        """The rows of a sink, or of an entry of `tables`.

        Raises:
            ConfigError: a catalog does not know where the table is. Spark and its readers raise errors of their own.
        """
        if pipeline is None or isinstance(table, Table):
            return self._table(cast(Table, table))
        require_located(self._project, [table], self._spark)
        return open_sink(self._project, pipeline.name, table).table(self._spark)

    def _open(self, name: str, only_ours: bool) -> DataFrame:
        known = self._project.find_table(name)
        try:
            found = self._find(known, name, only_ours)
            if found is not None:
                return analysed(found)
        except Exception as error:  # whatever Spark, a driver or a filesystem raises
            raise ConfigError(f"table {name!r} cannot be read: {spark_error(error)}") from error
        raise ConfigError(
            f"there is no table {name!r}{did_you_mean(name, self._project.table_names(), 'recon.yml has:')}"
        )

    def _find(self, known: Table | tuple[Pipeline, Sink] | None, name: str, only_ours: bool) -> DataFrame | None:
        if known is not None:
            return self.rows_of(*((None, known) if isinstance(known, Table) else known))
        if not only_ours and "`" in name:
            return self._spark.read.table(name)
        if not only_ours and ("/" in name or name.endswith(".parquet")):
            if name.rstrip("/").endswith(".parquet"):
                return self._spark.read.parquet(self._project.resolve(name))
            return open_delta(self._project, name, self._spark)
        if not only_ours and _IDENTIFIER.fullmatch(name) and self._spark.catalog.tableExists(name):
            return self._spark.read.table(name)
        return None

    def _delta(self, target: str) -> DataFrame:
        """The rows of a Delta table by its path, URI or name in a catalog."""
        name = catalog_name(target, self._project.project_dir)
        if name is not None:
            locate(self._project, self._spark, [name])
        location = self._project.table_location(target)
        if name is not None and self._project.why_unlocated(location):
            return self._spark.read.table(name)  # a view, for example
        return open_delta(self._project, location, self._spark)

    def _table(self, table: Table) -> DataFrame:
        if table.format == "table":
            return self._spark.read.options(**table.options).table(str(table.target))
        if table.format == "delta" and table.target is not None and not table.options:
            return self._delta(table.target)
        reader = self._spark.read.format(table.format).options(**table.options)
        if table.target is None:
            return reader.load()
        return reader.load(self._project.resolve(table.target))
