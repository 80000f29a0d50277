"""MERGE into a Delta table by keys: exactly once by `txn`, found again by `userMetadata`.

A MERGE takes its txn and its userMetadata from the session's settings alone. They are set on the micro-batch's own
session for that one statement and always reset: leaked, they would make Delta drop later writes silently. A MERGE with
a txn always commits, even one that changes nothing. So `confirm` knows by a missing commit that Delta skipped it.

The rows of a micro-batch are first reduced to one per key, in one shuffle, and persisted until the MERGE is over. Rows,
NULL keys and the values that prune the target are counted on the persisted rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Self, cast

from typing_extensions import override

from recon.base.errors import SinkError
from recon.model import ReconStamp, dump_stamp
from recon.project import DeltaMergeSink, Project, Sink
from recon.spark.lazy import F
from recon.witness import delta_log
from recon.write.sinks import failpoints
from recon.write.sinks.base import ConfirmedWrite, rows_of_batch
from recon.write.sinks.delta.append import DeltaAppend, commit_nothing, refusing_other_writers
from recon.write.sinks.delta.commit import committing_with
from recon.write.sinks.delta.statements import history, newest
from recon.write.sinks.newest import explained
from recon.write.sinks.reduce import MergeRows, ReducedCounts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class DeltaMerge(DeltaAppend):
    """Merges micro-batches into the Delta table at a path or URI."""

    def __init__(self, target: str, sink: DeltaMergeSink, *, storage_options: Mapping[str, str] | None = None) -> None:
        """`sink` says how; `target` is where, as an absolute path or URI."""
        super().__init__(target, storage_options=storage_options, partition_by=sink.partition_by, options=sink.options)
        self.sink = sink

    @classmethod
    @override
    def of(cls, project: Project, pipeline: str, sink: Sink) -> Self:
        return cls(project.location(sink), cast(DeltaMergeSink, sink), storage_options=project.storage_options)

    # -- write -------------------------------------------------------------------------------------

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Reduce the rows to one per key and merge them, with txn and userMetadata."""
        if self._seen is None or self._seen < 0:
            self._seen = self._newest()
        new = self._seen < 0
        rows = MergeRows(
            self.sink, frame, f"pipeline {stamp.pipeline}, sink {stamp.sink}: micro-batch {stamp.batch_id}"
        )
        rows.require_columns(self._partition_by if new else ())
        reduced = rows.reduced().persist()
        try:
            counts = rows.counted(reduced)
            rows.require_keys(counts)
            stamp = replace(stamp, given=counts.given, taken=None if self.sink.scd2 is None else counts.rows)
            self.failpoint(failpoints.REDUCED, stamp)
            if new:  # an empty table; after a crash here the next attempt finds it and goes on
                with refusing_other_writers(self.target, stamp):
                    self._writer(rows.empty(), "ignore").save(self.target)
                self.failpoint(failpoints.TABLE_CREATED, stamp)
            self._add_columns(frame, stamp)
            if counts.rows:
                self._merge(rows, reduced, counts, stamp)
            else:
                # The log has the micro-batch all the same; a MERGE of no rows would read the table for nothing.
                commit_nothing(frame.sparkSession, self.target, self._commit_options(stamp))
        finally:
            reduced.unpersist()

    def _merge(self, rows: MergeRows, reduced: DataFrame, counts: ReducedCounts, stamp: ReconStamp) -> None:
        spark = reduced.sparkSession
        table = spark.read.format("delta").load(self.target)
        rows.require_target(table, self.target)
        with explained(rows, self.target):
            merge = (history if self.sink.scd2 else newest)(rows, table, reduced, counts, self.target)
            commit = committing_with(spark, dump_stamp(stamp), *self._txn(stamp), query_id=stamp.query_id)
            with refusing_other_writers(self.target, stamp), commit:
                merge.execute()

    # -- read back --------------------------------------------------------------------------------

    @override
    def rows_of(self, spark: SparkSession, landed: ConfirmedWrite, stamp: ReconStamp) -> DataFrame:
        # The files that the commit added also hold rows of other micro-batches, which the MERGE copied.
        if landed.version is None:
            raise SinkError(f"{self.target}: no Delta version is known for this micro-batch; nothing to check")
        table = spark.read.format("delta").option("versionAsOf", landed.version).load(self.target)
        files = [path.rsplit("/", 1)[-1] for path in delta_log.added_files(self.storage, landed.version)]
        if not files:
            return table.limit(0)
        return rows_of_batch(table.filter(F.col("_metadata.file_name").isin(files)), stamp)
