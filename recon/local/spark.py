"""A local Spark session with Delta and the Kafka connector, set for small data and fast commits."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recon.local.java import java_home
from recon.spark.jvm import start_jvm
from recon.spark.packages import default_packages
from recon.spark.session import DELTA_CONF, on_one_machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def packages() -> list[str]:
    """Maven coordinates of Delta and the Kafka connector that fit the installed pyspark and delta-spark."""
    return list(default_packages(kafka=True))


def spark_session(
    app_name: str = "recon",
    *,
    master: str = "local[2]",
    extra_packages: Sequence[str] = (),
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The active session of this process, or a new one.

    Args:
        app_name: shown in Spark's logs.
        master: `local[n]`, or a standalone master's `spark://…` on this machine.
        extra_packages: more Maven coordinates.
        conf: Spark settings, over those of `local_conf`.

    Raises:
        ConfigError: no Java 17 or newer, or a fetched jar differs from the one that was published.
    """
    from pyspark.sql import SparkSession

    _set_environment()
    settings = {**local_conf(extra_packages), **(conf or {})}
    if "spark.sql.warehouse.dir" not in settings:
        warehouse = tempfile.mkdtemp(prefix="recon-warehouse-")
        atexit.register(shutil.rmtree, warehouse, ignore_errors=True)
        settings["spark.sql.warehouse.dir"] = warehouse
    start_jvm({**settings, "spark.app.name": app_name, "spark.master": master})
    session = SparkSession.Builder().appName(app_name).master(master).config(map={**settings}).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def fetch_packages(extra_packages: Sequence[str] = ()) -> list[Path]:
    """Lets Spark's JVM fetch the packages of a local session; makes no session and loads none of them.

    Returns:
        The jars; none where this process runs a JVM already.

    Raises:
        ConfigError: no Java 17 or newer, or a jar differs from the one that was published.
    """
    _set_environment()
    return start_jvm({**local_conf(extra_packages), "spark.master": "local[1]"})


def _set_environment() -> None:
    # By default workers run the python3 of PATH, which may be another Python without these packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Spark prefers JAVA_HOME even when that one is too old and PATH has a good one.
    os.environ["JAVA_HOME"] = str(java_home())
    # The machine's host name need not resolve.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def local_conf(extra_packages: Sequence[str] = ()) -> dict[str, str]:
    """The Spark settings of `spark_session`, for a session built elsewhere."""
    return {
        "spark.jars.packages": ",".join([*packages(), *extra_packages]),
        **DELTA_CONF,
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        **on_one_machine("local"),
        # A stream's state has so many partitions for good, and each costs a task and files in every micro-batch.
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
