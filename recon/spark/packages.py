"""The Maven coordinates of Delta, Iceberg and Spark's Kafka connector that fit a Spark version."""

from __future__ import annotations

import os
from importlib.metadata import version

from recon.base.errors import ConfigError

# The lines of Spark that each line of Delta has a build for. The metadata of the Python package delta-spark allows
# more: pip installs pairs that Maven has no jar for.
_BUILDS: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {
    (3, 3): ((3, 5),),
    (4, 0): ((4, 0),),
    (4, 1): ((4, 0), (4, 1)),
    (4, 2): ((4, 0), (4, 1)),
    (4, 3): ((4, 0), (4, 1)),
    (4, 4): ((4, 0), (4, 1), (4, 2)),
}

_ICEBERG = "1.10.0"
_ICEBERG_BUILDS = [(3, 5), (4, 0)]  # lines of Spark


def scala(spark: str) -> str:
    """The Scala version that the Python package pyspark of this version is built with.

    >>> scala("3.5.7"), scala("4.2.0")
    ('2.12', '2.13')
    """
    return "2.12" if _minor(spark) < (4, 0) else "2.13"


def delta_package(spark: str, delta: str) -> str:
    """Delta's Maven coordinate: since 4.1 the artefact's name contains the Spark version it was built for.

    >>> delta_package("3.5.7", "3.3.3")
    'io.delta:delta-spark_2.12:3.3.3'
    >>> delta_package("4.0.0", "4.0.1")
    'io.delta:delta-spark_2.13:4.0.1'
    >>> delta_package("4.0.2", "4.1.0")
    'io.delta:delta-spark_4.0_2.13:4.1.0'

    Raises:
        ConfigError: this Delta has no build for this Spark.
    """
    builds = _BUILDS.get(_minor(delta))
    if builds is not None and _minor(spark) not in builds:
        fitting = [delta_line for delta_line, lines in _BUILDS.items() if _minor(spark) in lines]
        raise ConfigError(
            f"delta-spark {delta} has no build for Spark {spark}, only for Spark {_lines(builds)}; install "
            + (f"delta-spark {_lines(fitting)} beside pyspark {spark}" if fitting else "another pyspark beside it")
        )
    line = f"_{_line(_minor(spark))}" if _minor(delta) >= (4, 1) else ""
    return f"io.delta:delta-spark{line}_{scala(spark)}:{delta}"


def kafka_package(spark: str) -> str:
    """The Maven coordinate of Spark's Kafka connector.

    >>> kafka_package("4.0.0")
    'org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0'
    """
    return f"org.apache.spark:spark-sql-kafka-0-10_{scala(spark)}:{spark}"


def iceberg_package(spark: str) -> str:
    """The Maven coordinate of Iceberg's runtime.

    >>> iceberg_package("4.0.0")
    'org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0'

    Raises:
        ConfigError: this Iceberg has no build for this Spark.
    """
    if _minor(spark) not in _ICEBERG_BUILDS:
        raise ConfigError(
            f"Iceberg {_ICEBERG} has no build for Spark {spark}, only for Spark {_lines(_ICEBERG_BUILDS)}; name the "
            "session's jars in `spark: packages` of recon.yml"
        )
    return f"org.apache.iceberg:iceberg-spark-runtime-{_line(_minor(spark))}_{scala(spark)}:{_ICEBERG}"


def default_packages(*, kafka: bool = False, iceberg: bool = False) -> tuple[str, ...]:
    """The packages of a session that recon builds, for the installed versions; with the Kafka connector and Iceberg.

    RECON_KAFKA_CONNECTOR names another release of the connector, or whole coordinates in its place: some Maven mirrors
    lack a jar that the newest one needs.

    Raises:
        ConfigError: the installed delta-spark, or Iceberg, has no build for the installed pyspark.
    """
    spark = version("pyspark")
    connector = os.environ.get("RECON_KAFKA_CONNECTOR") or spark
    package = connector if ":" in connector else kafka_package(connector)
    more = [package] if kafka else []
    more += [iceberg_package(spark)] if iceberg else []
    return (delta_package(spark, version("delta-spark")), *more)


def _minor(release: str) -> tuple[int, int]:
    major, minor = release.split(".")[:2]
    return int(major), int(minor)


def _line(minor: tuple[int, int]) -> str:
    return f"{minor[0]}.{minor[1]}"


def _lines(minors: list[tuple[int, int]] | tuple[tuple[int, int], ...]) -> str:
    *most, last = [_line(minor) for minor in minors]
    return f"{', '.join(most)} or {last}" if most else last
