"""Repairs in tables of databases: the rows and the repair's own row of recon_ledger are one transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from recon.model import ReconStamp, SinkCommit
from recon.project import Project
from recon.project.sinks import JdbcAppendSink, JdbcUpsertSink
from recon.recovery.repair.doubled import DoubledRows
from recon.recovery.repair.plan import PlannedRange
from recon.recovery.repair.store import Removed, RepairStore, SinkSnapshot
from recon.sinks import BatchSink, Failpoint
from recon.sinks.jdbc.late import late_writer
from recon.spark.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class DatabaseStore(RepairStore):
    """A table of a database that rows are appended to, or upserted into."""

    sink: JdbcAppendSink | JdbcUpsertSink
    puts_back = False

    def __init__(self, project: Project, pipeline: str, sink: JdbcAppendSink | JdbcUpsertSink) -> None:
        """Nothing is read yet."""
        super().__init__(project, pipeline, sink)
        self.rewrites = sink.rewrites
        self._database = late_writer(pipeline, sink, 0)

    @override
    def commits(self) -> Sequence[SinkCommit]:
        return self._database.log().commits

    @override
    def look(self) -> SinkSnapshot:
        number = self._database.newest_number(self.pipeline, self.sink.name)
        return SinkSnapshot(newest=number or 0, next=None, table=self._table)

    def _table(self, spark: SparkSession) -> DataFrame | None:
        import sqlalchemy

        target = self._database.target
        if not sqlalchemy.inspect(self._database.engine).has_table(target.name, schema=target.schema):
            return None
        return self._database.table(spark)

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

        target = self._database.target
        return sqlalchemy.inspect(self._database.engine).get_columns(target.name, schema=target.schema)

    @override
    def remove(
        self,
        rows: DoubledRows,
        ranges: Sequence[PlannedRange],
        stamp: ReconStamp,
        look: SinkSnapshot,
        failpoint: Failpoint,
    ) -> Removed:
        writer = late_writer(self.pipeline, self.sink, look.newest)
        writer.failpoint = failpoint
        removed = rows.removed - rows.kept
        owned = [((one.topic, one.partition), one.span.span, one.batch_id) for one in ranges]
        writer.remove_doubled(owned, stamp, held=rows.held, doubled=removed)
        return Removed(rows=removed, put_back=0)

    @override
    def writer(self, ranges: Sequence[PlannedRange], look: SinkSnapshot, failpoint: Failpoint) -> BatchSink:
        writer = late_writer(self.pipeline, self.sink, look.newest)
        writer.failpoint = failpoint
        return writer


def _is_made(column: Mapping[str, Any]) -> bool:
    """Whether the database makes the values of a column: a number of its own for each row, or from other columns."""
    return column.get("autoincrement") is True or bool(column.get("identity")) or bool(column.get("computed"))
