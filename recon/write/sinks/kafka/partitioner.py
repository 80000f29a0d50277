"""Partition rows across tasks by their source partition alone, so that a replay gives each task the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recon.model import ReconStamp, parse_offsets
from recon.spark.lazy import F
from recon.write.sinks.kafka.columns import FROM, OFFSET, TASK, TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TASKS = 8  # at most, where recon.yml does not say
_BY = "_recon_partition"


def task_count(stamp: ReconStamp, most: int | None) -> int:
    """One task for each source partition that has records, at most `most` (8 where it is None)."""
    sources = {(s.topic, s.partition) for s in parse_offsets(stamp.offsets_text) if s.span.size}
    return max(1, min(len(sources), most or _TASKS))


def partitioned(frame: DataFrame, tasks: int) -> DataFrame:
    """The rows in `tasks` Spark partitions by source partition, neighbours in different ones, sorted by offset."""
    topic = F.coalesce(F.crc32(F.col(TOPIC).cast("binary")), F.lit(0))
    number = F.coalesce(F.col(FROM), F.lit(0))
    numbered = frame.withColumn(TASK, F.pmod(topic + number, F.lit(tasks)).cast("int"))
    # Spark partitions by the hash of a column: values whose hashes are 0, 1, 2, … modulo `tasks` choose the partition.
    values = F.array(*(F.lit(value) for value in partition_values(tasks)))
    spread = numbered.withColumn(_BY, F.element_at(values, F.col(TASK) + 1)).repartition(tasks, _BY)
    return spread.sortWithinPartitions(TOPIC, FROM, OFFSET).drop(_BY)


def partition_values(tasks: int) -> list[int]:
    """For each of `tasks` partitions a number that Spark's hash partitioning puts there.

    >>> partition_values(1)
    [0]
    """
    values: dict[int, int] = {}
    value = 0
    while len(values) < tasks:
        values.setdefault(spark_hash(value) % tasks, value)
        value += 1
    return [values[task] for task in range(tasks)]


def spark_hash(number: int) -> int:
    """Spark's hash of an int column (Murmur3, x86, 32 bits, seed 42), signed."""

    def rotated(x: int, by: int) -> int:
        return (x << by | x >> 32 - by) & 0xFFFFFFFF

    k = rotated(number * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    h = (rotated(42 ^ k, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
