"""Locates the catalog tables that recon.yml names: Spark is asked once, and from then on the location is used.

recon reads a table's log by its path, without Spark. Hive's catalog, Spark's own and Unity Catalog answer alike, by
`DESCRIBE DETAIL`. Where no session is there, the catalogs of which recon.yml has the URL are asked (`catalogs`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from recon.base.errors import ConfigError
from recon.spark.catalogs import ask, asked_of, usable
from recon.spark.errors import without_sqlstate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recon.project import Project, Sink


def active_session() -> SparkSession | None:
    """The session that is active in this thread; None where there is none."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def locate(project: Project, spark: SparkSession, tables: Sequence[str] | None = None) -> None:
    """Asks Spark where catalog tables are, by default those of all sinks, and notes it in the project.

    For a table that is not found, the reason is noted.
    """
    for name in project.catalog_tables() if tables is None else tables:
        try:
            project.set_location(name, _location(project, spark, name))
        except ConfigError as error:
            project.set_unlocated(name, str(error))


def ask_active(project: Project, given: SparkSession | None = None) -> None:
    """Locates the catalog tables of all sinks by the given or the active session, and else by their catalog's API."""
    spark = (given or active_session()) if project.catalog_tables() else None
    if spark is not None:
        locate(project, spark)
    ask(project)


def require_located(project: Project, sinks: Sequence[Sink], given: SparkSession | None = None) -> None:
    """Requires that the tables of these sinks are located; asks the session, by default the active one.

    Without a session, and of tables that it does not know, the catalogs that recon.yml names are asked.

    Raises:
        ConfigError: a sink's table is one of a catalog, and no session is active, or it has no such Delta table.
    """
    tables = project.catalog_tables(sinks)
    spark = (given or active_session()) if tables else None
    if spark is not None:
        locate(project, spark, tables)
    ask(project, project.catalog_tables(sinks))
    left = [name for name in project.catalog_tables(sinks) if asked_of(project, name) is None]
    if left and spark is None:
        raise ConfigError(
            f"the location of {left[0]} is known to a catalog alone, and no Spark session is active to ask for it; "
            "make the session before this call, or write the table's location as target"
        )
    for name in project.catalog_tables(sinks):
        raise ConfigError(project.why_unlocated(project.table_location(name)))


def _location(project: Project, spark: SparkSession, name: str) -> str:
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {name}").first()
    except Exception as error:  # whatever Spark, its catalog or the connection to it raises
        raise ConfigError(
            f"the catalog of the Spark session gives no location of {name}: {without_sqlstate(error)}; create the "
            "table there, correct its name, or write the table's location as target; a view is tested as an entry of "
            "tables (format: table, with data_tests of its own)"
        ) from error
    kind = None if detail is None else detail["format"]
    if detail is None or kind != "delta" or not detail["location"]:
        raise ConfigError(
            f"{name} is no Delta table, but one of format {kind}; write the name of a Delta table, or a path or URI; "
            "another table is tested as an entry of tables (format: table, with data_tests of its own)"
        )
    return usable(project, name, str(detail["location"]))
