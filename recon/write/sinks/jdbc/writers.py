"""The three JDBC sinks: upsert and append through a stage, exactly once, and Spark's plain append."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.base.errors import ReconError, SinkError
from recon.model import ReconStamp, SinkLog
from recon.model.wire.columns import SOURCE_COLUMNS, STAMPED_COLUMNS
from recon.project import Project, Sink
from recon.project.sinks import JdbcAppendSink, JdbcUpsertSink
from recon.write.sinks.base import UnrecordedAppend
from recon.write.sinks.jdbc.dialects import Upsert
from recon.write.sinks.jdbc.rows import NESTED
from recon.write.sinks.jdbc.staged import Stage, StagedWriter
from recon.write.sinks.jdbc.table import JdbcWriter
from recon.write.sinks.jdbc.target import UpsertTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlalchemy.engine import Connection


class JdbcUpsert(StagedWriter):
    """Inserts new keys, and updates the rows of keys that the table has."""

    sink: JdbcUpsertSink

    @cached_property
    @override
    def _into(self) -> UpsertTarget:
        return UpsertTarget(self, self.sink)

    def _upsert(self, stage: Stage) -> Upsert:
        sink = self.sink
        columns = set(stage.columns)
        # An update always sets the columns that name the source record, whatever `update` lists.
        stamped = [c for c in STAMPED_COLUMNS if c in columns]
        listed = sink.update if sink.update is not None else [c for c in stage.columns if c not in sink.keys]
        newer_wins = [sink.newer_wins] if sink.newer_wins else []
        latest = [*newer_wins, *sink.order_by, *(c for c in SOURCE_COLUMNS if c in columns)]
        return Upsert(
            target=self.target,
            stage=stage.table,
            columns=stage.columns,
            keys=sink.keys,
            update=tuple(dict.fromkeys((*listed, *newer_wins, *stamped))),
            latest=tuple(dict.fromkeys(latest)),
            newer_wins=sink.newer_wins,
        )

    @override
    def _require_usable(self, stage: Stage, stamp: ReconStamp) -> None:
        """NULL keys are refused, and rows of one key that nothing orders."""
        dialect, keys = self.dialect, self.sink.keys
        nulls = ", ".join(f"SUM(CASE WHEN {dialect.quote(key)} IS NULL THEN 1 ELSE 0 END)" for key in keys)
        with self.engine.connect() as connection:
            null_counts = connection.exec_driver_sql(f"SELECT {nulls} FROM {dialect.table(stage.table)}").one()
            for key, count in zip(keys, null_counts, strict=True):
                if count:
                    raise self.refused(
                        stamp,
                        f"{int(count)} of {stage.rows} rows have NULL in the key column {key}",
                        "filter them or quarantine them (a post-batch not_null with on_failure: quarantine)",
                    )
            if self._upsert(stage).latest:
                return
            doubles = stage.rows - _count(connection, dialect.count_keys(stage.table, keys))
            if doubles:
                raise self.refused(
                    stamp,
                    f"{doubles} rows repeat a key and nothing orders them",
                    "set order_by, or keep stamp_source_offsets: true",
                )

    @override
    def _move_rows(self, connection: Connection, stage: Stage) -> int:
        upsert = self._upsert(stage)
        affected = connection.exec_driver_sql(self.dialect.upsert(upsert)).rowcount
        if self.dialect.counts_updates_once:
            return affected
        if not upsert.newer_wins:
            return _count(connection, self.dialect.count_keys(stage.table, upsert.keys))
        identity = [c for c in STAMPED_COLUMNS if c in stage.columns]
        return _count(connection, self.dialect.count_written(upsert, identity))


def _count(connection: Connection, statement: str) -> int:
    return int(connection.exec_driver_sql(statement).scalar_one())


class JdbcAppend(StagedWriter):
    """All rows are inserted."""

    sink: JdbcAppendSink

    @classmethod
    @override
    def of(cls, project: Project, pipeline: str, sink: Sink) -> JdbcWriter:
        assert isinstance(sink, JdbcAppendSink)
        return cls(pipeline, sink) if sink.guard else JdbcPlainAppend(pipeline, sink)

    @override
    def _move_rows(self, connection: Connection, stage: Stage) -> int:
        return connection.exec_driver_sql(self.dialect.insert(self.target, stage.table, stage.columns)).rowcount


class JdbcPlainAppend(UnrecordedAppend, JdbcWriter):
    """Spark's own JDBC append: tasks commit one by one, so a retry writes rows again."""

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Spark's JDBC append; it makes a table that is missing."""
        for field in frame.schema.fields:
            if field.dataType.typeName() in NESTED and self.database.kind != "postgresql":
                raise self._refused(stamp, f"column {field.name} is {field.dataType.simpleString()[:60]}")
        try:
            self._written = self.append_by_spark(frame, self.target)
        except ReconError:
            raise
        except Exception as error:
            raise self._refused(stamp, *self.reason_and_step(error)) from None

    def _refused(self, stamp: ReconStamp, why: str, then: str = "write it as text in the transform") -> SinkError:
        return SinkError(
            f"{stamp.label} was not wholly written to {self.where}: {why}; {then}, then restart the query: the "
            "micro-batch is written again, beside what its tasks may have committed (at-least-once)"
        )

    @override
    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        return SinkLog(location=self.sink.target, exists=True, recorded=False, gone=self._is_gone())


__all__ = ["JdbcAppend", "JdbcPlainAppend", "JdbcUpsert"]
