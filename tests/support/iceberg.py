"""Iceberg tables for tests, in a catalog of PostgreSQL that Spark and pyiceberg share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

    from tests.support.postgres import LocalPostgres


@dataclass(frozen=True)
class Lake:
    """A catalog `name` whose tables lie in `folder`, and pyiceberg's properties of it."""

    name: str
    folder: Path
    properties: Mapping[str, str]

    @property
    def target(self) -> str:
        """The name of the table that most tests write."""
        return f"{self.name}.sales.orders"

    def table(self, name: str = "orders") -> Table:
        """A table of the namespace `sales`, as it is now."""
        from pyiceberg.catalog import load_catalog

        return load_catalog(self.name, **self.properties).load_table(f"sales.{name}")


def lake_of_postgres(name: str, folder: Path, server: LocalPostgres, database: str | None = None) -> Lake:
    """A catalog in a database of the server, with the namespace `sales`."""
    from pyiceberg.catalog import load_catalog

    address = f"{server.user}:{server.password}@127.0.0.1:{server.port}/{database or server.database}"
    properties = {"type": "sql", "uri": f"postgresql+psycopg://{address}", "warehouse": f"file://{folder}"}
    load_catalog(name, **properties).create_namespace_if_not_exists("sales")
    return Lake(name, folder, properties)


def spark_conf(lake: Lake, server: LocalPostgres, database: str | None = None) -> dict[str, str]:
    """The settings by which a Spark session knows the catalog."""
    catalog = f"spark.sql.catalog.{lake.name}"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:postgresql://127.0.0.1:{server.port}/{database or server.database}",
        f"{catalog}.jdbc.user": server.user,
        f"{catalog}.jdbc.password": server.password,
        f"{catalog}.warehouse": f"file://{lake.folder}",
    }


def add_to(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Makes a running session know a catalog: Spark looks its settings up when it is first named."""
    for key, value in conf.items():
        spark.conf.set(key, value)
