"""What every contestant of `check_suite` shares: the session, the floor, and the taking of times. Needs pyspark alone.

A contestant's module is run as `python -m bench.peers.<name> TABLE REPEATS` and prints one line of JSON at the end.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

ROWS = int(os.environ.get("CHECK_SUITE_ROWS", "10000000"))  # fewer to try a peer on a table of your own
STATUSES = ("new", "paid", "shipped", "returned", "cancelled")
EMAIL = "^[a-z0-9.]+@[a-z0-9]+[.][a-z]{2,}$"
NOT_NULL = ("order_id", "customer_id", "created_at")
QUANTITY = (1, 100)
AMOUNT = (0.0, 9999.99)  # the smallest and the greatest that occur
KEY = "order_id"

# The same for all. 8 shuffle partitions is where the floor is fastest on two cores, not Spark's 200.
CONF = {
    "spark.driver.memory": "6g",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
MASTER = "local[2]"


def session(packages: Sequence[str] = ()) -> Any:
    """A peer's session, with the Delta of its own delta-spark."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(MASTER).appName("check_suite")
    settings = {
        **CONF,
        "spark.jars.packages": ",".join([_delta(), *packages]),
        "spark.sql.warehouse.dir": tempfile.mkdtemp(prefix="check-suite-"),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _delta() -> str:
    """Delta's Maven coordinate: since 4.1 the artefact's name tells the Spark line it was built for."""
    spark, delta = (importlib.metadata.version(name) for name in ("pyspark", "delta-spark"))
    major, minor = (int(part) for part in delta.split(".")[:2])
    line = f"_{'.'.join(spark.split('.')[:2])}" if (major, minor) >= (4, 1) else ""
    scala = "2.12" if spark.startswith("3.") else "2.13"
    return f"io.delta:delta-spark{line}_{scala}:{delta}"


def floor(rows: Any) -> None:
    """The ten checks by hand: one aggregate, and one count per key."""
    from pyspark.sql import functions as F

    counts = rows.agg(
        F.count(F.lit(1)).alias("rows"),
        *(F.count_if(F.col(name).isNull()).alias(f"null_{name}") for name in NOT_NULL),
        F.count_if(~F.col("status").isin(*STATUSES)).alias("status"),
        F.count_if(~F.col("quantity").between(*QUANTITY)).alias("quantity"),
        F.count_if(~F.col("email").rlike(EMAIL)).alias("email"),
        F.min("amount").alias("least"),
        F.max("amount").alias("greatest"),
    ).collect()[0]
    twice = rows.groupBy(KEY).count().filter("count > 1").count()
    assert tuple(counts) == (ROWS, 0, 0, 0, 0, 0, 0, *AMOUNT) and not twice, (counts, twice)


def alternate(
    works: Mapping[str, Callable[[], Any]], repeats: int, before: Callable[[], Any] = lambda: None
) -> dict[str, float]:
    """Medians of seconds, all in turn; one warm-up of each at first, and each goes first about equally often.

    `before` is called before each turn, untimed.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    before()
    for name in works:
        works[name]()
    for n in range(repeats):
        before()
        for name in list(works) if n % 2 == 0 else list(works)[::-1]:
            began = time.perf_counter()
            works[name]()
            times[name].append(time.perf_counter() - began)
            print(f"  {name} {times[name][-1]:.2f} s", file=sys.stderr, flush=True)
    return {name: statistics.median(taken) for name, taken in times.items()}


def contest(package: str, spark: Any, checks: Callable[[Any, Any], Sequence[bool]], expected: int) -> None:
    """Measures a peer against the floor in its own session and prints both.

    Args:
        package: the peer's distribution, for its version.
        spark: its session.
        checks: gets the session and the rows, and tells of each check whether it passed.
        expected: how many checks it is to tell of.
    """
    path, repeats = sys.argv[1], int(sys.argv[2])

    def ours() -> None:
        passed = checks(spark, spark.read.format("delta").load(path))
        assert len(passed) == expected and all(passed), passed

    taken = alternate({"ours": ours, "floor": lambda: floor(spark.read.format("delta").load(path))}, repeats)
    versions = {package: importlib.metadata.version(package), "spark": spark.version}
    # Not every peer leaves its JVM in a state that can be stopped in order; the line is what counts.
    print(json.dumps({**taken, "versions": versions}), flush=True)
    sys.stdout.flush()
    os._exit(0)
