"""Repairs in tables of databases: the rows and the repair's own row of recon_ledger are one transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from recon.model import ReconStamp
from recon.project.sinks import JdbcAppendSink, JdbcUpsertSink
from recon.spark.columns import quoted
from recon.write.sinks import Failpoint
from recon.write.sinks.jdbc.late import LateWriter, late_writer
from recon.write.sinks.repair import DoubledRows, RangeToRepair, Removed, RepairStore, SinkSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class DatabaseStore(RepairStore):
    """A table of a database that rows are appended to, or upserted into."""

    puts_back = False
    sink: JdbcAppendSink | JdbcUpsertSink
    reader: LateWriter

    @override
    def opened(self) -> LateWriter:
        return late_writer(self.pipeline, self.sink, 0)

    @override
    def snapshot(self) -> SinkSnapshot:
        return replace(super().snapshot(), next=None)

    @override
    def table(self, spark: SparkSession) -> DataFrame | None:
        import sqlalchemy

        target = self.reader.target
        if not sqlalchemy.inspect(self.reader.engine).has_table(target.name, schema=target.schema):
            return None
        return self.reader.table(spark)

    @override
    def columns(self, table: DataFrame, rows: Collection[str]) -> Sequence[str]:
        """Columns that the database fills itself need not be in the rows."""
        known, described = {name.lower() for name in rows}, self._described()
        filled = {c["name"].lower() for c in described if c.get("default") is not None or _is_made(c)}
        return [name for name in table.columns if name.lower() in known or name.lower() not in filled]

    @override
    def comparable(self, table: DataFrame) -> DataFrame:
        made = {column["name"].lower() for column in self._described() if _is_made(column)}
        return table.select(*(quoted(name) for name in table.columns if name.lower() not in made))

    def _described(self) -> Sequence[Mapping[str, Any]]:
        import sqlalchemy

        target = self.reader.target
        return sqlalchemy.inspect(self.reader.engine).get_columns(target.name, schema=target.schema)

    @override
    def remove(
        self,
        rows: DoubledRows,
        ranges: Sequence[RangeToRepair],
        stamp: ReconStamp,
        snapshot: SinkSnapshot,
        failpoint: Failpoint,
    ) -> Removed:
        removed = rows.removed - rows.kept
        owned = [((of.span.topic, of.span.partition), of.span.span, of.batch_id) for of in ranges]
        self.writer(ranges, snapshot, failpoint).remove_doubled(owned, stamp, held=rows.held, doubled=removed)
        return Removed(rows=removed, put_back=0)

    @override
    def writer(self, ranges: Sequence[RangeToRepair], snapshot: SinkSnapshot, failpoint: Failpoint) -> LateWriter:
        writer = late_writer(self.pipeline, self.sink, snapshot.newest)
        writer.failpoint = failpoint
        return writer


def _is_made(column: Mapping[str, Any]) -> bool:
    """Whether the database makes the values of a column: a number of its own for each row, or from other columns."""
    return column.get("autoincrement") is True or bool(column.get("identity")) or bool(column.get("computed"))
