"""What Spark itself knows of a query that runs, and its checkpoint does not: the options of its sources.

It is read through the JVM gateway, and only where there is one: elsewhere the answer is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPTION = "kafka.isolation.level"
_DEFAULT = "read_uncommitted"  # of Kafka's consumer


def isolation_level(spark: SparkSession, query_id: str) -> str | None:
    """The isolation level with which a running query reads Kafka; None where it is not known.

    It is known where Spark has the query's plan and all of its Kafka sources have the same level.
    """
    try:
        levels = {level for level in _levels(spark, query_id) if level is not None}
    except Exception:  # no gateway (Spark Connect), or a Spark whose plans are others: each fails in its own way
        return None
    return levels.pop() if len(levels) == 1 else None


def _levels(spark: SparkSession, query_id: str) -> list[str | None]:
    """The level of each source of the query's plan; None for a source that is not Kafka."""
    jvm: Any = spark.sparkContext._jvm
    # foreachBatch has a session of its own, which knows no query; what all sessions share knows every query.
    queries = spark._jsparkSession.sharedState().activeStreamingQueries()
    # The analysed plan has the options of each source as they were given; the plan that runs has them since 4.0 only.
    leaves = queries.get(jvm.java.util.UUID.fromString(query_id)).analyzedPlan().collectLeaves()
    return [_level(leaves.apply(i)) for i in range(leaves.size())]


def _level(leaf: Any) -> str | None:
    if str(leaf.getClass().getSimpleName()) != "StreamingRelationV2" or str(leaf.sourceName()).lower() != "kafka":
        return None
    return str(leaf.extraOptions().getOrDefault(_OPTION, _DEFAULT))
