"""MERGE into an Iceberg table by keys: staged on a branch, published by one commit, as an append is.

Spark gives the snapshot of a MERGE no property (Iceberg 1.10), so a second one follows on the branch before it is
published: it has no rows, the stamp, and the id of the one that has the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from typing_extensions import override

from recon.model import ReconStamp, dump_stamp
from recon.model.wire.iceberg import MERGED, STAMP
from recon.project import IcebergMergeSink
from recon.spark.merge import merge
from recon.write.sinks import failpoints
from recon.write.sinks.base import ConfirmedWrite, rows_of_batch
from recon.write.sinks.iceberg.append import IcebergAppend
from recon.write.sinks.iceberg.publish import Branch, staged
from recon.write.sinks.newest import explained, newest_clauses, same_keys
from recon.write.sinks.reduce import ROWS, MergeRows

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class _Reduced:
    """The rows of the micro-batch that is being written, one per key, and how many these are."""

    rows: MergeRows
    frame: DataFrame
    count: int


class IcebergMerge(IcebergAppend):
    """Merges micro-batches into an Iceberg table of the session's catalog."""

    _reduced: _Reduced

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Reduce the rows to one per key, merge them into a branch and publish it."""
        rows = MergeRows(self._config, frame, stamp.label)
        rows.require_columns(())
        reduced = rows.reduced().persist()
        try:
            counts = rows.counted(reduced)
            rows.require_keys(counts)
            stamp = replace(stamp, given=counts.given, taken=counts.rows)
            self.failpoint(failpoints.REDUCED, stamp)
            self._reduced = _Reduced(rows, reduced, counts.rows)
            super().write(frame, stamp)
        finally:
            reduced.unpersist()

    @property
    def _config(self) -> IcebergMergeSink:
        return cast(IcebergMergeSink, self.sink)

    @override
    def _stage(self, frame: DataFrame, branch: Branch, stamp: ReconStamp) -> Snapshot:
        properties = {STAMP: dump_stamp(stamp)}
        if self._reduced.count:
            self._merge(branch)
            properties[MERGED] = str(staged(self.source, branch, stamp).snapshot_id)
            self.failpoint(failpoints.MERGED, stamp)
        with self._found().transaction() as transaction:
            transaction.update_snapshot(snapshot_properties=properties, branch=branch.name).fast_append().commit()
        return staged(self.source, branch, stamp)

    def _merge(self, branch: Branch) -> None:
        rows, reduced = self._reduced.rows, self._reduced.frame
        target = self._branch(branch)
        rows.require_target(reduced.sparkSession.table(target), self.sink.target)
        with explained(rows, self.sink.target):
            merge(reduced.drop(ROWS), target, same_keys(rows), newest_clauses(rows))

    @override
    def rows_of(self, spark: SparkSession, landed: ConfirmedWrite, stamp: ReconStamp) -> DataFrame:
        # A MERGE also copies rows of other micro-batches.
        return rows_of_batch(self._rows_at(spark, self._snapshot(landed)), stamp)

    @property
    @override
    def _options(self) -> Mapping[str, str]:
        return {}
