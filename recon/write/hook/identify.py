"""Identifies a micro-batch: its query and its offset ranges, from the checkpoint's files and Kafka.

Nothing here needs the JVM gateway, so that Spark Connect works, too: there the session tells which queries it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recon.base.errors import ConfigError, EvidenceError
from recon.base.storage import Storage
from recon.base.text import command
from recon.model import CheckpointBatch
from recon.model.offsets import OffsetSpan
from recon.model.positions import SourceKind, id_in, is_kafka, kind_of
from recon.spark.connect import connects, running_queries
from recon.witness import checkpoint
from recon.write.hook.broker import Broker
from recon.write.hook.epochs import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def identify(
    frame: DataFrame,
    batch_id: int,
    *,
    pipeline: str,
    storage: Storage,
    broker: Broker,
    reads: SourceKind = "Kafka",
    beginning: int = 0,
) -> Batch:
    """The micro-batch as the checkpoint planned it.

    Args:
        frame: the micro-batch.
        batch_id: as Spark gives it.
        pipeline: the pipeline's name, for messages.
        storage: the checkpoint's folder.
        broker: gives topic ids, and log starts of new partitions.
        reads: what the query reads, as recon.yml says.
        beginning: where a new query begins with a Delta table, as an offset.

    Raises:
        ConfigError: the checkpoint belongs to another query than the one that runs.
        EvidenceError: the checkpoint does not have the micro-batch's offset range.
    """
    query_id = checkpoint.query_id(storage)
    running, run_id = _running_query(frame, query_id)
    if running is not None and running != query_id:
        raise ConfigError(
            f"pipeline {pipeline}: the running query is {running}, but checkpoint {storage.uri} belongs to query "
            f"{query_id}; set the pipeline's checkpoint to the checkpointLocation of this query"
        )
    planned = checkpoint.read_batch(storage, batch_id, positions=reads != "Kafka")
    if reads != "Kafka" and planned.starts_known and not any(kind_of(topic) == reads for topic in _topics(planned)):
        raise ConfigError(
            f"pipeline {pipeline}: recon.yml says that the query reads {reads}, and micro-batch {batch_id} in "
            f"checkpoint {storage.uri} has no position in one; correct the pipeline's source"
        )
    if not planned.starts_known:
        raise EvidenceError(
            f"checkpoint {storage.uri} has no start offsets for micro-batch {batch_id} (offsets/{batch_id - 1} or "
            "sources/0/0 is missing), so its range cannot be recorded; restore the file, or start a fresh checkpoint "
            f"with the offsets that `{command('recon offsets', pipeline)}` prints"
        )
    return Batch(
        query_id=query_id,
        run_id=run_id,
        batch_id=batch_id,
        ranges=_ranges(planned, broker, beginning),
        new_partitions=frozenset((source, topic, p) for source, topic, p, _ in planned.new_partitions),
        planned_at=planned.planned_at,
    )


def _topics(planned: CheckpointBatch) -> list[str]:
    return sorted({s.topic for s in planned.ranges} | {topic for _, topic, _, _ in planned.new_partitions})


def _ranges(planned: CheckpointBatch, broker: Broker, beginning: int) -> tuple[OffsetSpan, ...]:
    topics = _topics(planned)
    ids = dict(broker.topic_ids([topic for topic in topics if is_kafka(topic)]))
    ids |= {topic: id_ for topic in topics if (id_ := id_in(topic)) is not None}
    # A topic that was re-created and is shorter now moves the position back: nothing was read.
    ranges = [
        span._replace(
            topic_id=span.topic_id or ids.get(span.topic), start_offset=min(span.start_offset, span.end_offset)
        )
        for span in planned.ranges
    ]
    if planned.new_partitions:
        # The checkpoint does not have the offset at which Spark began to read a new partition: it is the log start.
        # Where that is unknown it is taken as 0, so that offsets that no row carries are reported as missing.
        new = [(topic, partition) for _, topic, partition, _ in planned.new_partitions]
        starts = dict(broker.log_starts([place for place in new if is_kafka(place[0])]))
        starts |= {place: beginning for place in new if not is_kafka(place[0])}
        for source, topic, partition, end in planned.new_partitions:
            start = min(starts.get((topic, partition), 0), end)
            ranges.append(OffsetSpan(topic, ids.get(topic), partition, start, end, source))
    return tuple(ranges)


def _running_query(frame: DataFrame, query_id: str) -> tuple[str | None, str | None]:
    """(query_id, run_id) from Spark's thread-local properties; over Connect, of `query_id` if the session runs it.

    (None, None) where no query runs.
    """
    spark = frame.sparkSession
    if connects(spark):
        runs = running_queries(spark)
        running = query_id if query_id in runs else " or ".join(runs) or None
        return running, runs.get(query_id)
    try:
        context = spark.sparkContext
        # Spark runs the jobs of a query in a job group that is named by its run_id.
        return context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("spark.jobGroup.id")
    except Exception:  # a gateway that does not let everybody ask raises several kinds of errors
        return None, None
