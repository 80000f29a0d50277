"""MERGE into an Iceberg table by keys: staged on a branch, published by one commit, as an append is.

Spark gives the snapshot of a MERGE no property (Iceberg 1.10), so a second one follows on the branch before it is
published: it has no rows, the stamp, and the id of the one that has the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from typing_extensions import override

from recon.errors import SinkError
from recon.model import ReconStamp, dump_stamp
from recon.model.wire.iceberg import MERGED, STAMP
from recon.project import IcebergMergeSink
from recon.sinks import failpoints
from recon.sinks.base import Landed, rows_of_batch
from recon.sinks.iceberg.append import IcebergAppend
from recon.sinks.iceberg.publish import Branch, staged
from recon.sinks.reduce import DELETED, ROWS, MergeRows
from recon.spark.columns import quoted
from recon.spark.errors import refusal

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import DataFrame, SparkSession

_VIEW = "_recon_merge_source"


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
        spark, target = reduced.sparkSession, self._branch(branch)
        rows.require_target(spark.table(target), self.sink.target)
        reduced.drop(ROWS).createOrReplaceTempView(_VIEW)
        try:
            spark.sql(statement(rows, target, _VIEW))
        except Exception as error:
            reason = refusal(error)
            if reason is None:
                raise
            raise SinkError(
                f"{rows.name} cannot be merged into {self.sink.target}: {reason}; nothing of it was published: correct "
                "the sink's conditions or the transform, then restart the query"
            ) from error
        finally:
            spark.catalog.dropTempView(_VIEW)

    @override
    def rows_of(self, spark: SparkSession, landed: Landed, stamp: ReconStamp) -> DataFrame:
        # A MERGE also copies rows of other micro-batches.
        return rows_of_batch(self._rows_at(spark, self._snapshot(landed)), stamp)

    @property
    @override
    def _options(self) -> Mapping[str, str]:
        return {}


def statement(rows: MergeRows, target: str, source: str) -> str:
    """The MERGE that keeps one row per key; `target` and `source` are tables as SQL names them."""
    sink = rows.sink
    matches = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in rows.keys)
    newer, deleted = "true", f"s.{quoted(DELETED)}"
    if sink.newer_wins is not None:
        column = quoted(rows.column(sink.newer_wins))
        newer = f"(s.{column} > t.{column} OR t.{column} IS NULL)"
    columns = [quoted(column) for column in rows.frame.columns]
    values = ", ".join(f"s.{column}" for column in columns)
    clauses = [
        f"WHEN MATCHED AND {newer} AND NOT {deleted}{_also(sink.update_when)} THEN "
        f"UPDATE SET {', '.join(f't.{column} = s.{column}' for column in columns)}",
        f"WHEN NOT MATCHED AND NOT {deleted}{_also(sink.insert_when)} THEN "
        f"INSERT ({', '.join(columns)}) VALUES ({values})",
    ]
    if sink.delete_when is not None:
        clauses.insert(0, f"WHEN MATCHED AND {newer} AND {deleted} THEN DELETE")
    return f"MERGE INTO {target} t USING {source} s ON {matches} {' '.join(clauses)}"


def _also(condition: str | None) -> str:
    return "" if condition is None else f" AND ({condition})"
