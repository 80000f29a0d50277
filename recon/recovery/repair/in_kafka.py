"""Repairs in topics: records that no micro-batch read, and their marker, in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.model import SinkCommit, parse_offsets
from recon.project import Project
from recon.project.sinks import KafkaSink
from recon.recovery.repair.plan import PlannedRange
from recon.recovery.repair.store import RepairStore, SinkSnapshot
from recon.sinks import BatchSink, Failpoint
from recon.sinks.kafka.late import LateWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class KafkaStore(RepairStore):
    """A topic that is written by transactions with markers."""

    expires = True  # retention takes records away
    of_one_batch = True  # a record says its _batch_id in a header that the writer sets

    def __init__(self, project: Project, pipeline: str, sink: KafkaSink) -> None:
        """Nothing is read yet."""
        super().__init__(project, pipeline, sink)
        self._kafka_sink = sink
        self._writer = self._opened()
        self._used = False  # whether `_writer` wrote: another driver may have fenced it since

    def _opened(self) -> LateWriter:
        return LateWriter(self.project, self.pipeline, self._kafka_sink)

    @override
    def unfit(self) -> str:
        return self._opened().unfit()

    @override
    def commits(self) -> Sequence[SinkCommit]:
        self._writer.take_over()  # ends a transaction that a repair, or a driver, left open
        return self._writer.log().commits

    @override
    def look(self) -> SinkSnapshot:
        if self._used:
            self._writer, self._used = self._opened(), False
        self._writer.take_over()
        begun = [
            (f"micro-batch {plan.batch_id} (epoch {plan.epoch})", parse_offsets(plan.offsets_text))
            for plan in self._writer.begun()
        ]
        return SinkSnapshot(newest=0, next=None, table=self._writer.settled, begun=begun)

    @override
    def columns(self, table: DataFrame, rows: Collection[str]) -> Sequence[str]:
        return list(rows)  # a topic has no columns

    @override
    def writer(self, ranges: Sequence[PlannedRange], look: SinkSnapshot, failpoint: Failpoint) -> BatchSink:
        self._used = True
        self._writer.owner_batch = next((one.batch_id for one in ranges), None) or 0
        self._writer.failpoint = failpoint
        return self._writer
