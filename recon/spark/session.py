"""The Spark session of an audit: the active one, or one built from `spark:` in recon.yml."""

from __future__ import annotations

import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from recon.spark.jvm import start_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recon.project import Project

SCALA = "2.13"

DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def delta_package(spark: str, delta: str) -> str:
    """Delta's Maven coordinate: since 4.1 the artefact's name contains the Spark version it was built for.

    >>> delta_package("4.0.0", "4.0.1")
    'io.delta:delta-spark_2.13:4.0.1'
    >>> delta_package("4.0.2", "4.1.0")
    'io.delta:delta-spark_4.0_2.13:4.1.0'
    """
    line = f"_{_minor(spark)[0]}.{_minor(spark)[1]}" if _minor(delta) >= (4, 1) else ""
    return f"io.delta:delta-spark{line}_{SCALA}:{delta}"


def kafka_package(spark: str) -> str:
    """The Maven coordinate of Spark's Kafka connector.

    >>> kafka_package("4.0.0")
    'org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0'
    """
    return f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{spark}"


def default_packages(*, kafka: bool = False) -> tuple[str, ...]:
    """The packages of a session that recon builds, for the installed versions; with `kafka`, the Kafka connector."""
    spark = version("pyspark")
    return (delta_package(spark, version("delta-spark")), *([kafka_package(spark)] if kafka else []))


def _minor(release: str) -> tuple[int, int]:
    major, minor = release.split(".")[:2]
    return int(major), int(minor)


def session(project: Project, *, kafka: bool = False, log: Path | None = None) -> SparkSession:
    """The session to read rows with; with `kafka`, to read Kafka, too.

    Under spark-submit, in a notebook or inside a running driver the active session is used unchanged.
    Otherwise one is built from `spark: {master, conf, packages}`; without `packages` Delta's own, for the
    installed versions, is fetched. What the JVM that is started for it prints (Ivy's downloads, Spark's warnings) goes
    to the file `log`; without one, to the console.

    Raises:
        ConfigError: a jar that was fetched differs from the one that was published.
    """
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    config = project.spark
    # Workers run the python3 of PATH by default, which may be another Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.Builder().appName(f"recon {project.name}")
    if config.master:
        builder = builder.master(config.master)
    settings = {**DELTA_CONF, "spark.sql.session.timeZone": "UTC", "spark.ui.showConsoleProgress": "false"}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has already chosen the jars
        packages = config.packages or default_packages(kafka=kafka)
        settings["spark.jars.packages"] = ",".join(packages)
    # PySpark logs the SQL of each query that fails, which may hold a secret; the check's result has the error.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    master = {"spark.master": config.master} if config.master else {}
    start_jvm({**settings, **config.conf, **master}, log)
    return builder.config(map={**settings, **config.conf}).getOrCreate()
