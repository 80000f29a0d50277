"""Spark's plain append of files."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.base.errors import EvidenceError
from recon.model import ReconStamp, SinkLog
from recon.spark.connect import analysed
from recon.spark.errors import spark_error
from recon.spark.observation import Counter
from recon.write.sinks import failpoints
from recon.write.sinks.base import UnrecordedAppend
from recon.write.sinks.path import PathSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class FileAppend(UnrecordedAppend, PathSink):
    """Spark's append: nothing marks a micro-batch's files, so a retry leaves those of the failed attempt."""

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        counter = Counter(frame)
        self._writer(counter.frame, "append").save(self.target)
        self.failpoint(failpoints.FILES_WRITTEN, stamp)
        self._written = counter.rows()

    @override
    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        return SinkLog(location=self.target, exists=bool(self.storage.names()), recorded=False, since=since)

    @override
    def table(self, spark: SparkSession) -> DataFrame:
        """All rows in the folder, those of failed attempts among them.

        Raises:
            EvidenceError: the files cannot be read.
        """
        reader = spark.read.format(self.kind).options(**{"inferSchema": "true", **self._options})
        try:
            return analysed(reader.load(self.target))
        except Exception as error:
            raise EvidenceError(
                f"the {self.kind} files of {self.target} cannot be read: {spark_error(error)}"
            ) from error
