"""Repairs in folders of files: the rows of one micro-batch in a folder and a manifest of their own.

The file of the write's number is made exclusively, as that of a micro-batch is. It is read before the manifests are, so
that a write that has not seen another one is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, cast

from typing_extensions import override

from recon.model import SinkCommit
from recon.model.wire.columns import EPOCH
from recon.witness import manifest_files
from recon.write.sinks import BatchSink, Failpoint
from recon.write.sinks.files.reading import open_batches
from recon.write.sinks.files.replace import FileReplace
from recon.write.sinks.repair import RangeToRepair, RepairStore, SinkSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class FileStore(RepairStore):
    """A folder of files, each write with a manifest."""

    of_one_batch = True  # a folder's name is the _batch_id of its rows
    reader: FileReplace

    @override
    def commits(self) -> Sequence[SinkCommit]:
        self.newest_number()  # whose manifest is there from now on
        return super().commits()

    @override
    def table(self, spark: SparkSession) -> DataFrame | None:
        storage = self.reader.storage
        finished = manifest_files.left(storage)  # the rows of files that are gone are missing
        return open_batches(spark, storage, finished) if finished else None

    @override
    def columns(self, table: DataFrame, rows: Collection[str]) -> Sequence[str]:
        return [name for name in table.columns if name != EPOCH]

    @override
    def writer(self, ranges: Sequence[RangeToRepair], snapshot: SinkSnapshot, failpoint: Failpoint) -> BatchSink:
        writer = cast(FileReplace, super().writer(ranges, snapshot, failpoint))
        writer.owner = next((of.batch_id for of in ranges), None) or 0
        return writer
