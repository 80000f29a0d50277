"""Repairs in topics: records that no micro-batch read, and their marker, in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.model import SinkCommit, parse_offsets
from recon.project.sinks import KafkaSink
from recon.write.sinks import BatchSink, Failpoint
from recon.write.sinks.kafka.late import LateWriter
from recon.write.sinks.repair import RangeToRepair, RepairStore, SinkSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class KafkaStore(RepairStore):
    """A topic that is written by transactions with markers."""

    expires = True  # retention takes records away
    of_one_batch = True  # a record says its _batch_id in a header that the writer sets
    sink: KafkaSink
    reader: LateWriter  # writes, too: it has fenced the query's driver
    _used = False  # whether `reader` wrote: another driver may have fenced it since

    @override
    def opened(self) -> LateWriter:
        return LateWriter(self.project, self.pipeline, self.sink)

    @override
    def unfit(self) -> str:
        return self.opened().unfit()

    @override
    def commits(self) -> Sequence[SinkCommit]:
        self.reader.take_over()  # ends a transaction that a repair, or a driver, left open
        return super().commits()

    @override
    def snapshot(self) -> SinkSnapshot:
        if self._used:
            self.reader, self._used = self.opened(), False
        self.reader.take_over()
        begun = [
            (f"micro-batch {plan.batch_id} (epoch {plan.epoch})", parse_offsets(plan.offsets_text))
            for plan in self.reader.begun()
        ]
        return SinkSnapshot(newest=0, next=None, table=self.reader.settled, begun=begun)

    @override
    def columns(self, table: DataFrame, rows: Collection[str]) -> Sequence[str]:
        return list(rows)  # a topic has no columns

    @override
    def writer(self, ranges: Sequence[RangeToRepair], snapshot: SinkSnapshot, failpoint: Failpoint) -> BatchSink:
        self._used = True
        self.reader.owner_batch = next((of.batch_id for of in ranges), None) or 0
        self.reader.failpoint = failpoint
        return self.reader
