"""The Spark session of an audit: the active one, or one built from `spark:` in recon.yml."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

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

_TASKS_PER_CORE = 2
_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\])?")


def on_one_machine(master: str) -> dict[str, str]:
    """Settings for a master whose tasks all run in this process; none for a cluster.

    Delta replays a table's log with 50 tasks, however short it is, and VACUUM lists its folders with 10,000. That takes
    seconds for each table on a machine with few cores. `_TASKS_PER_CORE` keeps the tasks of a long log small. The
    number of shuffle partitions is left to Spark, which merges small ones while a query runs.
    """
    match = _LOCAL.fullmatch(master.strip())
    if match is None:
        return {}
    tasks = str(_TASKS_PER_CORE * ((os.cpu_count() or 1) if match[1] == "*" else int(match[1] or 1)))
    return {
        "spark.databricks.delta.snapshotPartitions": tasks,
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": tasks,
    }


def session(project: Project, *, kafka: bool = False, log: Path | None = None) -> SparkSession:
    """The session to read rows with; with `kafka`, to read Kafka, too.

    Under spark-submit, in a notebook or inside a running driver the active session is used unchanged.
    Otherwise one is built from `spark: {master, conf, packages}`. Without `packages`, Delta's for the installed
    versions is fetched, and Iceberg's where a sink needs it. On a local master it has the settings of `on_one_machine`
    that neither `conf` nor Spark's own configuration files set. What the JVM that is started for it prints (Ivy's
    downloads, Spark's warnings) goes to the file `log`; without one, to the console.

    Raises:
        ConfigError: a jar that was fetched differs from the one that was published; the installed delta-spark has
            no build for the installed pyspark.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    _quiet()
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
            iceberg = any(sink.in_iceberg for pipeline in project.pipelines for sink in pipeline.sinks)
            packages = config.packages or default_packages(kafka=kafka, iceberg=iceberg)
            settings["spark.jars.packages"] = ",".join(packages)
        # Spark 3.5 gives NULL for what cannot be cast or divided: a check of rows would pass there and fail on Spark 4.
        settings["spark.sql.ansi.enabled"] = "true"
    own = not remote and SparkContext._active_spark_context is None
    master = {"spark.master": config.master} if config.master else {}
    start_jvm({**settings, **config.conf, **master}, log)
    spark = builder.config(map={**settings, **config.conf}).getOrCreate()
    if own:
        _set_where_unset(spark)
    return spark


def _set_where_unset(spark: SparkSession) -> None:
    """The settings of `on_one_machine`, once Spark has read its own configuration files."""
    given = spark.sparkContext.getConf()
    for name, value in on_one_machine(spark.sparkContext.master or "").items():
        if not given.contains(name):
            spark.conf.set(name, value)


def _quiet() -> None:
    """Keeps what PySpark says to developers off the console of recon's own session.

    PySpark 4 logs each query that fails, with a stack trace of the JVM and its SQL, which may hold a secret. The
    check's result has the error. PySpark 4.2 warns of pandas 3; recon hands it no frame of pandas.
    """
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # Spark 3.5 logs none
        return
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
