"""The Spark session of an audit: the active one, or one built from `spark:` in recon.yml."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from recon.project.sinks import IcebergTableSink
from recon.spark.connect import will_connect
from recon.spark.jvm import start_jvm
from recon.spark.packages import default_packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recon.project import Project

DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def session(project: Project, *, kafka: bool = False, log: Path | None = None) -> SparkSession:
    """The session to read rows with; with `kafka`, to read Kafka, too.

    Under spark-submit, in a notebook or inside a running driver the active session is used unchanged.
    Otherwise one is built from `spark: {master, conf, packages}`; without `packages` Delta's own, and Iceberg's where
    a sink needs it, for the installed versions, are fetched. What the JVM that is started for it prints (Ivy's
    downloads, Spark's warnings) goes to the file `log`; without one, to the console.

    Raises:
        ConfigError: a jar that was fetched differs from the one that was published; the installed delta-spark has
            no build for the installed pyspark.
    """
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
    settings = {"spark.sql.session.timeZone": "UTC"}
    remote = will_connect(config.conf)  # a Connect server has extensions and jars of its own
    if not remote:
        settings |= {**DELTA_CONF, "spark.ui.showConsoleProgress": "false"}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has already chosen the jars
        if not remote:
            sinks = [sink for pipeline in project.pipelines for sink in pipeline.sinks]
            iceberg = any(isinstance(sink, IcebergTableSink) for sink in sinks)
            packages = config.packages or default_packages(kafka=kafka, iceberg=iceberg)
            settings["spark.jars.packages"] = ",".join(packages)
        # Spark 3.5 gives NULL for what cannot be cast or divided: a check of rows would pass there and fail on Spark 4.
        settings["spark.sql.ansi.enabled"] = "true"
    _silence_failed_queries()
    master = {"spark.master": config.master} if config.master else {}
    start_jvm({**settings, **config.conf, **master}, log)
    return builder.config(map={**settings, **config.conf}).getOrCreate()


def _silence_failed_queries() -> None:
    """PySpark 4 logs the SQL of each query that fails, which may hold a secret; the check's result has the error."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # Spark 3.5 logs none
        return
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
