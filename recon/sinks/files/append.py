"""What both file writers have in common, and Spark's plain append."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.errors import EvidenceError
from recon.model import ReconStamp, SinkLog
from recon.project import FileSink, Project, Sink
from recon.sinks import failpoints
from recon.sinks.base import BatchSink, UnrecordedAppend
from recon.spark.errors import spark_error
from recon.spark.observation import Counter
from recon.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class FileWriter(BatchSink):
    """What both writers have: the target, and the options of Spark's writer."""

    def __init__(
        self,
        target: str,
        kind: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`kind` is Spark's format; `options` go to Spark's writer and reader."""
        self.target, self.kind = target, kind
        self.storage = Storage(target, dict(storage_options or {}))
        self._partition_by, self._options = tuple(partition_by), dict(options or {})

    @classmethod
    @override
    def of(cls, project: Project, pipeline: str, sink: Sink) -> FileWriter:
        assert isinstance(sink, FileSink)
        return cls(
            project.location(sink),
            sink.kind,
            storage_options=project.storage_options,
            partition_by=sink.partition_by,
            options=sink.options,
        )


class FileAppend(UnrecordedAppend, FileWriter):
    """Spark's append: nothing marks a micro-batch's files, so a retry leaves those of the failed attempt."""

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        counter = Counter(frame)
        writer = counter.frame.write.format(self.kind).mode("append").options(**self._options)
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.save(self.target)
        self.failpoint(failpoints.FILES_WRITTEN, stamp)
        self._written = counter.rows()

    @override
    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        return SinkLog(location=self.target, exists=bool(self.storage.names()), recorded=False, since=since)

    @override
    def table(self, spark: SparkSession) -> DataFrame:
        """All rows in the folder, those of failed attempts among them.

        Raises:
            EvidenceError: there is nothing that Spark can read.
        """
        reader = spark.read.format(self.kind).options(**{"inferSchema": "true", **self._options})
        try:
            return reader.load(self.target)
        except Exception as error:
            raise EvidenceError(
                f"the {self.kind} files of {self.target} cannot be read: {spark_error(error)}"
            ) from error
