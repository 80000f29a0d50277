"""Whether Spark is reached by Spark Connect, and what has another way there.

A session of Spark Connect has no JVM gateway. The client sends plans to a server, which runs the function of
foreachBatch in a Python process of its own. Frames are analysed when somebody asks for their schema, not when they are
made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Frame = TypeVar("Frame", bound="DataFrame")


def connects(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def will_connect(settings: Mapping[str, str]) -> bool:
    """Whether the session made with these settings will be one of Spark Connect, for which no JVM is started here."""
    if "spark.remote" in settings or not os.environ.keys().isdisjoint(("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")):
        return True
    mode = settings.get("spark.api.mode", os.environ.get("SPARK_API_MODE", "")).lower()
    return (mode if mode in ("classic", "connect") else _default_mode()) == "connect"


def _default_mode() -> str:
    try:
        from pyspark.util import default_api_mode
    except ImportError:  # Spark 3.5 connects only where it is told to
        return "classic"
    return default_api_mode()


def analysed(frame: Frame) -> Frame:
    """The frame, once Spark has found every table and column that it names; raises what Spark's analyser raises."""
    # Spark Connect's filter() hands on the schema of its input, and reading that would not look at the condition.
    _ = frame.select("*").schema
    return frame


def other_versions(spark: SparkSession) -> str:
    """The versions of a client and of its Connect server in a clause; "" where they are of the same line."""
    import pyspark

    lines = {tuple(version.split(".")[:2]) for version in (pyspark.__version__, spark.version)}
    return (
        f"the client has pyspark {pyspark.__version__} and the server Spark {spark.version}" if len(lines) > 1 else ""
    )


def running_queries(spark: SparkSession) -> dict[str, str]:
    """The queries that a session of Spark Connect runs: run_id by query_id; none where it has a JVM gateway."""
    return {query.id: query.runId for query in spark.streams.active} if connects(spark) else {}
