"""Repairs in topics: records that no micro-batch read, and their marker, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from recon.model import SinkCommit
from recon.model.offsets import Spans
from recon.project import Project
from recon.project.sinks import KafkaSink
from recon.recovery.repair.plan import PlannedRange, TopicPartition
from recon.recovery.repair.store import Look, RepairStore
from recon.sinks import BatchSink, Failpoint
from recon.sinks.kafka.late import LateWriter


class KafkaStore(RepairStore):
    """A topic that is written by transactions with markers."""

    # Which offsets have a record is known from the markers: to look at the records, all of the topic would be read.
    rewrites = True
    of_one_batch = True  # a record says its _batch_id in a header that the writer sets

    def __init__(self, project: Project, pipeline: str, sink: KafkaSink) -> None:
        """Nothing is read yet."""
        super().__init__(project, pipeline, sink)
        self._kafka_sink = sink
        self._writer = self._opened()

    def _opened(self) -> LateWriter:
        return LateWriter(self.project, self.pipeline, self._kafka_sink)

    @override
    def commits(self) -> Sequence[SinkCommit]:
        return self._opened().log().commits

    @override
    def look(self) -> Look:
        self._writer = self._opened()
        self._writer.newest_number(self.pipeline, self.sink.name)
        return Look(newest=0, next=None, table=lambda spark: None)

    @override
    def read(self) -> dict[TopicPartition, Spans]:
        """Offsets of micro-batches that are there, and of those that were begun: their query completes them."""
        found = super().read()
        for read in self._writer.begun():
            where = (read.topic, read.partition)
            found[where] = found.get(where, Spans()).union(Spans.of([read.span]))
        return found

    @override
    def writer(self, ranges: Sequence[PlannedRange], look: Look, failpoint: Failpoint) -> BatchSink:
        self._writer.owner_batch = next((one.batch_id for one in ranges), None) or 0
        self._writer.failpoint = failpoint
        return self._writer
