"""Repairs in folders of files: the rows of one micro-batch in a folder and a manifest of their own.

The file of the write's number is made exclusively, as that of a micro-batch is. It is read before the manifests are, so
that a write that has not seen another one is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.evidence import manifest_files, manifests
from recon.model import SinkCommit
from recon.model.wire.columns import EPOCH
from recon.project import Project
from recon.project.sinks import FileSink
from recon.recovery.repair.plan import PlannedRange
from recon.recovery.repair.store import RepairStore, SinkSnapshot
from recon.sinks import BatchSink, Failpoint
from recon.sinks.files.reading import open_batches
from recon.sinks.files.replace import FileReplace
from recon.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class FileStore(RepairStore):
    """A folder of files, each write with a manifest."""

    of_one_batch = True  # a folder's name is the _batch_id of its rows

    def __init__(self, project: Project, pipeline: str, sink: FileSink) -> None:
        """Nothing is read yet."""
        super().__init__(project, pipeline, sink)
        self.storage = Storage(project.location(sink), project.storage_options)

    @override
    def commits(self) -> Sequence[SinkCommit]:
        self._newest()
        own = manifests.log(self.storage).commits
        return [commit for commit in own if commit.stamp.is_of(self.pipeline, self.sink.name)]

    @override
    def look(self) -> SinkSnapshot:
        number = self._newest()
        return SinkSnapshot(newest=number, next=number + 1, table=self._table)

    def _newest(self) -> int:
        """The number of the newest write, whose manifest is there from now on."""
        return self._opened().newest_number(self.pipeline, self.sink.name) or 0

    def _opened(self) -> FileReplace:
        writer = FileReplace.of(self.project, self.pipeline, self.sink)
        assert isinstance(writer, FileReplace)
        return writer

    def _table(self, spark: SparkSession) -> DataFrame | None:
        finished = manifest_files.left(self.storage)  # the rows of files that are gone are missing
        return open_batches(spark, self.storage, finished) if finished else None

    @override
    def columns(self, table: DataFrame, rows: Collection[str]) -> Sequence[str]:
        return [name for name in table.columns if name != EPOCH]

    @override
    def writer(self, ranges: Sequence[PlannedRange], look: SinkSnapshot, failpoint: Failpoint) -> BatchSink:
        writer = self._opened()
        writer.owner = next((one.batch_id for one in ranges), None) or 0
        writer.failpoint = failpoint
        return writer
