"""Repairs in Delta tables: rows that are appended, and rows that are merged by keys.

The commit carries the next number of the sink's writes as its txn, as that of a micro-batch does. It is read before the
table is, so that Delta refuses or drops a write that has not seen another one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.errors import SinkError
from recon.evidence import delta_log
from recon.model import ReconStamp, SinkCommit
from recon.model.wire.app_ids import app_id
from recon.model.wire.columns import SOURCE_COLUMNS
from recon.project import Project
from recon.project.sinks import DeltaMergeSink, DeltaSink
from recon.recovery.repair.doubled import DoubledRows, remove
from recon.recovery.repair.plan import PlannedRange
from recon.recovery.repair.store import Removed, RepairStore, SinkSnapshot
from recon.sinks import BatchSink, Failpoint
from recon.sinks.delta.append import DeltaAppend
from recon.sinks.delta.merge import DeltaMerge
from recon.sinks.reduce import MergeRows
from recon.spark.columns import quoted
from recon.spark.errors import spark_error
from recon.spark.lazy import F
from recon.storage import Storage
from recon.text import plural

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# A record that was read late replaces a row only where it is the later one of the same topic partition.
_LATER = " AND ".join(
    (*(f"s.{column} = t.{column}" for column in SOURCE_COLUMNS[:2]), f"s.{SOURCE_COLUMNS[2]} > t.{SOURCE_COLUMNS[2]}")
)


class DeltaStore(RepairStore):
    """A Delta table that is appended to."""

    def __init__(self, project: Project, pipeline: str, sink: DeltaSink | DeltaMergeSink) -> None:
        """Nothing is read yet."""
        super().__init__(project, pipeline, sink)
        self.storage = Storage(project.location(sink), project.storage_options)

    @override
    def commits(self) -> Sequence[SinkCommit]:
        commits = delta_log.stamped(self.storage).commits
        return [commit for commit in commits if commit.stamp.is_of(self.pipeline, self.sink.name)]

    @override
    def look(self) -> SinkSnapshot:
        number = delta_log.transaction_version(self.storage, app_id(self.pipeline, self.sink.name)) or 0
        version = delta_log.latest_version(self.storage)
        return SinkSnapshot(newest=number, next=number + 1, table=partial(self._table, version))

    def _table(self, version: int | None, spark: SparkSession) -> DataFrame | None:
        if version is None:
            return None
        try:
            return spark.read.format("delta").option("versionAsOf", version).load(self.storage.uri)
        except Exception as error:
            raise SinkError(f"{self.storage.uri} cannot be read: {spark_error(error)}; nothing was written") from error

    @override
    def writer(self, ranges: Sequence[PlannedRange], look: SinkSnapshot, failpoint: Failpoint) -> BatchSink:
        writer = self._opened()
        writer.failpoint = failpoint
        return writer

    def _opened(self) -> BatchSink:
        assert isinstance(self.sink, DeltaSink)
        # With txn_app_id, too, repairs are numbered under recon's own.
        return DeltaAppend.of(self.project, self.pipeline, self.sink.model_copy(update={"txn_app_id": None}))

    @override
    def remove(
        self,
        rows: DoubledRows,
        ranges: Sequence[PlannedRange],
        stamp: ReconStamp,
        look: SinkSnapshot,
        failpoint: Failpoint,
    ) -> Removed:
        commit = remove(rows.frame.sparkSession, self.storage, rows, stamp)
        return Removed(rows=rows.removed, put_back=rows.kept, version=commit.version)


class MergeStore(DeltaStore):
    """A Delta table into which rows are merged by keys."""

    rewrites = True
    sink: DeltaMergeSink

    @override
    def _opened(self) -> BatchSink:
        sink = self.sink
        if sink.newer_wins is None and sink.scd2 is None:
            sink = sink.model_copy(update={"update_when": _LATER})
        return DeltaMerge(self.storage.uri, sink, storage_options=self.project.storage_options)

    @override
    def columns(self, table: DataFrame, rows: Collection[str]) -> Sequence[str]:
        scd2, known = self.sink.scd2, {name.lower() for name in rows}
        made = set() if scd2 is None else {scd2.valid_from.lower(), scd2.valid_to.lower(), scd2.is_current.lower()}
        return [name for name in table.columns if name.lower() in known or name.lower() not in made]

    @override
    def require_order(self, rows: DataFrame, table: DataFrame | None) -> None:
        """NULL in `newer_wins`, a version that is there, a key whose row came through another topic partition."""
        sink, columns = self.sink, MergeRows(self.sink, rows, self.name)
        if sink.newer_wins is not None:
            null = rows.filter(F.col(quoted(columns.column(sink.newer_wins))).isNull()).count()
            if null:
                raise self._undecided(null, f"NULL in {sink.newer_wins}, which says which of two is the newer")
        if sink.newer_wins is not None or table is None:
            return
        same = self._same_key(columns)
        if sink.scd2 is not None:
            same = same & (_of("s", columns.column(sink.scd2.effective)) == _of("t", sink.scd2.valid_from))
            what = f"a key and an instant ({sink.scd2.effective}) that the table has already"
        else:
            apart = [~_of("s", column).eqNullSafe(_of("t", column)) for column in SOURCE_COLUMNS[:2]]
            same = same & (apart[0] | apart[1])
            what = (
                "a key whose row came through another topic partition, so that their offsets do not say which of them "
                "is the newer (the sink has no newer_wins)"
            )
        undecided = rows.alias("s").join(table.alias("t"), same, "left_semi").count()
        if undecided:
            raise self._undecided(undecided, what)

    def _same_key(self, columns: MergeRows) -> Column:
        same = F.lit(True)
        for key in columns.keys:
            same = same & (_of("s", key) == _of("t", key))
        return same

    def _undecided(self, records: int, what: str) -> SinkError:
        return SinkError(
            f"{self.name}: {plural(records, 'record')} to be read again have {what}: a repair could put an older "
            "record in place of a newer row, and nothing was written: compare these keys with the table, correct the "
            "rows, then accept the finding"
        )


def _of(side: str, column: str) -> Column:
    return F.col(f"{side}.{quoted(column)}")
