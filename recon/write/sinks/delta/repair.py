"""Repairs in Delta tables: rows that are appended, and rows that are merged by keys.

The commit carries the next number of the sink's writes as its txn, as that of a micro-batch does. It is read before the
table is, so that Delta refuses or drops a write that has not seen another one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.base.errors import RefusedError, SinkError
from recon.base.storage import Storage
from recon.base.text import plural
from recon.model import ReconStamp, TableCommit, dump_stamp
from recon.model.wire.app_ids import app_id
from recon.model.wire.columns import SOURCE_COLUMNS
from recon.project.sinks import DeltaMergeSink, DeltaSink
from recon.spark.columns import literal, quoted
from recon.spark.delta_tables import Merge
from recon.spark.errors import spark_error
from recon.spark.lazy import F
from recon.spark.merge import Clause
from recon.witness import delta_log
from recon.write.sinks import Failpoint
from recon.write.sinks.delta.append import DeltaAppend, refusing_other_writers
from recon.write.sinks.delta.commit import committing_with
from recon.write.sinks.delta.merge import DeltaMerge
from recon.write.sinks.reduce import MergeRows
from recon.write.sinks.repair import DOUBLED, KEPT_ROW, DoubledRows, RangeToRepair, Removed, RepairStore, SinkSnapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# A record that was read late replaces a row only where it is the later one of the same topic partition.
_LATER = " AND ".join(
    (*(f"s.{column} = t.{column}" for column in SOURCE_COLUMNS[:2]), f"s.{SOURCE_COLUMNS[2]} > t.{SOURCE_COLUMNS[2]}")
)


class DeltaStore(RepairStore):
    """A Delta table that is appended to."""

    sink: DeltaSink | DeltaMergeSink
    reader: DeltaAppend

    @override
    def opened(self) -> DeltaAppend:
        # With txn_app_id, too, repairs are numbered under recon's own.
        return DeltaAppend.of(self.project, self.pipeline, self.sink.model_copy(update={"txn_app_id": None}))

    @override
    def snapshot(self) -> SinkSnapshot:
        number_first = super().snapshot()
        return replace(number_first, table=partial(self._as_of, delta_log.latest_version(self.reader.storage)))

    def _as_of(self, version: int | None, spark: SparkSession) -> DataFrame | None:
        if version is None:
            return None
        uri = self.reader.storage.uri
        try:
            return spark.read.format("delta").option("versionAsOf", version).load(uri)
        except Exception as error:
            raise SinkError(f"{uri} cannot be read: {spark_error(error)}; nothing was written") from error

    @override
    def remove(
        self,
        rows: DoubledRows,
        ranges: Sequence[RangeToRepair],
        stamp: ReconStamp,
        snapshot: SinkSnapshot,
        failpoint: Failpoint,
    ) -> Removed:
        commit = _removed(rows.frame.sparkSession, self.reader.storage, rows, stamp)
        return Removed(rows=rows.removed, put_back=rows.kept, version=commit.version)


class MergeStore(DeltaStore):
    """A Delta table into which rows are merged by keys."""

    sink: DeltaMergeSink

    @override
    def opened(self) -> DeltaMerge:
        sink = self.sink
        if sink.newer_wins is None and sink.scd2 is None:
            sink = sink.model_copy(update={"update_when": _LATER})
        return DeltaMerge.of(self.project, self.pipeline, sink)

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


def _removed(spark: SparkSession, storage: Storage, rows: DoubledRows, stamp: ReconStamp) -> TableCommit:
    """Commits the removal, with recon's stamp, under the number of the stamp.

    Two rows may differ in nothing at all, so that no condition tells them apart: a DELETE would take both. So the
    MERGE's source has two rows for each such offset. One matches, and all rows of the offset are deleted; the other
    matches nothing, and the row to keep is inserted.

    Raises:
        RefusedError: another writer took the number, or changed the table at the same moment; nothing was changed.
    """
    before = delta_log.latest_version(storage)
    nothing = [F.lit(None).cast(rows.frame.schema[key].dataType).alias(key) for key in DOUBLED]
    to_delete = rows.frame.select(*DOUBLED, F.lit(None).cast(rows.frame.schema[KEPT_ROW].dataType).alias(KEPT_ROW))
    source = to_delete.unionByName(rows.frame.select(*nothing, KEPT_ROW))
    same = [f"t.{name} = s.{key}" for name, key in zip(SOURCE_COLUMNS, DOUBLED, strict=True)]
    bounds = rows.frame.agg(F.min(DOUBLED[2]), F.max(DOUBLED[2])).collect()[0]
    near = f"t.{SOURCE_COLUMNS[2]} BETWEEN {literal(bounds[0])} AND {literal(bounds[1])}"
    columns = [field.name for field in rows.frame.schema[KEPT_ROW].dataType]  # type: ignore[attr-defined]
    values = {quoted(name): f"s.{KEPT_ROW}.{quoted(name)}" for name in columns}
    merge = Merge(
        target=storage.uri,
        source=source,
        on=" AND ".join([*same, near]),
        clauses=[
            Clause(matched=True),
            Clause(matched=False, condition=f"s.{KEPT_ROW} IS NOT NULL", values=values),
        ],
    )
    metadata, app, number = dump_stamp(stamp), app_id(stamp.pipeline, stamp.sink), stamp.number or 0
    with committing_with(spark, metadata, app, number), refusing_other_writers(storage.uri, stamp):
        merge.execute()
    commit = delta_log.find_stamped(storage, app, number, after=-1 if before is None else before)
    if commit is None or commit.user_metadata != metadata:
        raise RefusedError(
            f"another writer of pipeline {stamp.pipeline}, sink {stamp.sink} took write {number} at the same moment; "
            "nothing was removed here: run it again",
            number,
        )
    return commit
