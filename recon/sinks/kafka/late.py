"""Records that were read again, for a Kafka sink: they and their batch marker in one transaction of the driver.

A micro-batch has a transaction for each task, and its query completes what a crash left of them. A repair has no
checkpoint that would begin it again with the same rows, so it is one transaction: after a crash either all of it is
there, with the marker that says so, or nothing. The producer is the sink's driver: it fences the query's, so that no
micro-batch is completed meanwhile, and is fenced by a query that starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from recon.evidence import kafka_markers
from recon.model import ReconStamp, parse_offsets
from recon.model.wire.markers import BatchMarker, batch_key
from recon.sinks import failpoints
from recon.sinks.kafka.frame import record_frame
from recon.sinks.kafka.producer import COMMIT_S
from recon.sinks.kafka.task import Job, TaskTransaction
from recon.sinks.kafka.writer import KafkaWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from recon.model.offsets import OffsetSpan

_ROWS = 5_000  # that the driver has in memory at once


class LateWriter(KafkaWriter):
    """Writes rows of one micro-batch that are late, once."""

    owner_batch: int = 0  # the micro-batch that read past the records: their `_batch_id`

    def begun(self) -> list[OffsetSpan]:
        """Offsets of micro-batches that were begun and not completed: their query writes them when it is restarted.

        From here on no task of theirs writes, nor does another driver complete one.
        """
        markers = self._markers.opened(f"pipeline {self.owner.pipeline}, sink {self.owner.sink}")
        return [span for plan in markers.unfinished for span in parse_offsets(plan.offsets_text)]

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        self._done = None
        records = record_frame(frame, self.sink, stamp)
        markers = self._markers.opened(stamp.label)
        complete = markers.batches.get((stamp.epoch, stamp.batch_id))
        if complete is not None:
            self._require_ours(complete, stamp)
            self._done = complete
            return
        job = replace(self._job(stamp, marker_topic=self._markers.topic, tasks=1), batch_id=self.owner_batch)
        write = _Transaction(job, self._markers.driver(stamp.label), starts=self._target_ends(stamp))
        try:
            for batch in _batches(records):
                write.take(batch)
            self.failpoint(failpoints.BEFORE_COMMIT, stamp)
            self._done = write.complete(stamp)
        except BaseException:
            write.abort()
            raise
        self.failpoint(failpoints.MARKED, stamp)


class _Transaction(TaskTransaction):
    """The rows, and the batch marker that says that they are there."""

    def __init__(self, job: Job, producer: Any, starts: Mapping[int, int]) -> None:
        super().__init__(job, 0, careful=False)
        self._producer, self._starts = producer, starts
        with self._errors_of(job.owner.target):
            producer.begin_transaction()
        self._open = True

    def complete(self, stamp: ReconStamp) -> BatchMarker:
        """Commit the rows with their marker."""
        self.flush()
        marker = BatchMarker(
            stamp=stamp,
            tasks=1,
            rows=self.rows,
            ids=self.ids,
            content=self.content,
            starts=self._starts,
            at=datetime.now(UTC),
        )
        assert self.job.marker_topic is not None
        with self._errors_of(self.job.marker_topic):
            self._producer.produce(
                self.job.marker_topic,
                key=batch_key(self.job.owner, stamp.epoch, stamp.batch_id),
                value=marker.dump(),
                partition=kafka_markers.PARTITION,
                on_delivery=partial(self._delivered, (None, None, None)),
            )
            self.flush()
            self._producer.commit_transaction(COMMIT_S)
        self._open = False
        return marker


def _batches(records: DataFrame) -> Iterator[pa.RecordBatch]:
    """The rows, some thousands at a time."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(records.schema)
    rows = (row.asDict(recursive=True) for row in records.toLocalIterator())
    while some := list(islice(rows, _ROWS)):
        yield pa.RecordBatch.from_pylist(some, schema=schema)
