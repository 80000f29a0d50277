"""Records that were read again, for a Kafka sink: they and their batch marker in one transaction of the driver.

A micro-batch has a transaction for each task, and its query completes what a crash left of them. A repair has no
checkpoint that would replay it with the same rows. So it is one transaction: after a crash all of it is there, with its
marker, or nothing. Its producer has the transactional id of the sink's driver. It fences the query's producer, so that
no micro-batch is completed meanwhile, and is fenced by a query that starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from recon.base.clock import utc_now
from recon.base.errors import SinkError
from recon.model import ReconStamp
from recon.model.wire.markers import BatchMarker, Plan, batch_key
from recon.spark.releases import to_arrow
from recon.witness import kafka
from recon.write.sinks import failpoints
from recon.write.sinks.kafka.frame import record_frame
from recon.write.sinks.kafka.partitioner import partitioned
from recon.write.sinks.kafka.task import Job, TaskTransaction
from recon.write.sinks.kafka.writer import KafkaWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS = 5_000  # that are given to the producer at once


class LateWriter(KafkaWriter):
    """Writes rows of one micro-batch that are late, once."""

    owner_batch: int = 0  # the micro-batch that read past the records: their `_batch_id`

    @property
    def _name(self) -> str:
        return f"pipeline {self.owner.pipeline}, sink {self.owner.sink}"

    def unfit(self) -> str:
        """Why late records must not be written into the topic as it is, in a clause; "" where they may.

        Raises:
            EvidenceError: the topic or the marker topic cannot be read.
        """
        name = self.sink.target
        topic = kafka.read(self.conf, [name], isolation_level="read_committed").topics[name]
        anew = "fill it anew by the query on a fresh checkpoint, then accept the findings"
        if not topic.exists:
            return f"topic {name} does not exist: create it, {anew}"
        if topic.cleanup_policy == "unknown":
            return (
                f"the broker does not show whether topic {name} is compacted, and in one that is, a late record takes "
                "the place of a newer one: grant this user DescribeConfigs on it"
            )
        if "compact" in topic.cleanup_policy:
            return (
                f"topic {name} is compacted: of each key Kafka keeps the record that was written last, so a repair "
                "could put an older record in place of a newer one: compare the keys of these offsets with the topic, "
                "write the records that are missing, then accept the finding"
            )
        if replaced := self.changes().replaced:
            return f"{replaced}, so it lacks more than a repair would write: {anew}"
        return ""

    def take_over(self) -> None:
        """Fence the driver that wrote before; what is read from here on has all that it completed."""
        self._markers.take_over(self._name)

    def begun(self) -> Sequence[Plan]:
        """Micro-batches that were begun and not completed: their query writes them when it is restarted.

        From here on no task of theirs writes before that, nor does another driver complete one.
        """
        return self._markers.opened(self._name).unfinished

    def settled(self, spark: SparkSession) -> DataFrame:
        """The records of the topic, once none of them waits for the end of a transaction.

        Raises:
            EvidenceError: a transaction stays open too long.
        """
        self._await_stable(self._name)
        return self.table(spark)

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        self._done = None
        # As tasks of a query do: a key's records stay in their order.
        records = partitioned(record_frame(frame, self.sink, stamp), 1)
        markers = self._markers.opened(stamp.label)
        if self._is_complete(markers, stamp):
            return
        job = replace(self._job(stamp, marker_topic=self._markers.topic, tasks=1), batch_id=self.owner_batch)
        starts = self._target_ends(stamp.label)
        try:
            write = _Transaction(job, self._markers.driver(stamp.label), starts)
            with write:
                # An action of a DataFrame: Spark reports what it observed of the rows.
                for batch in to_arrow(records).to_batches(_ROWS):
                    write.take(batch)
                write.flush()
                self.failpoint(failpoints.PRODUCED, stamp)
                self._done = write.complete(stamp)
        except SinkError as error:
            raise SinkError(
                f"{error}; a repair writes all of its records or none: run it again while the query is stopped"
            ) from error
        self.failpoint(failpoints.MARKED, stamp)


class _Transaction(TaskTransaction):
    """The rows, and the batch marker that says that they are there; left by an error, it is aborted."""

    def __init__(self, job: Job, producer: Any, starts: Mapping[int, int]) -> None:
        super().__init__(job, 0, careful=False)
        self._producer, self._starts = producer, starts

    def __enter__(self) -> None:
        with self._errors_of(self.job.owner.target):
            self._producer.begin_transaction()
        self._open = True

    def __exit__(self, *error: object) -> None:
        self.abort()

    def complete(self, stamp: ReconStamp) -> BatchMarker:
        """Commit the rows with their marker."""
        marker = BatchMarker(
            stamp=stamp,
            tasks=1,
            rows=self.rows,
            ids=self.ids,
            content=self.content,
            starts=self._starts,
            at=utc_now(),
        )
        self.commit(batch_key(self.job.owner, stamp.epoch, stamp.batch_id), marker.dump())
        return marker
