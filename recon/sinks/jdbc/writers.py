"""The three JDBC sinks: upsert and append through a stage, exactly once, and Spark's plain append."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.errors import ReconError, SinkError
from recon.model import ReconStamp, SinkLog
from recon.model.wire.columns import SOURCE_COLUMNS, STAMPED_COLUMNS
from recon.model.wire.ledger_row import JdbcEntry
from recon.project import Project, Sink
from recon.project.sinks import JdbcAppendSink, JdbcUpsertSink
from recon.sinks.base import Landed
from recon.sinks.jdbc.dialects import Upsert
from recon.sinks.jdbc.rows import NESTED
from recon.sinks.jdbc.staged import Stage, StagedWriter, TargetColumn
from recon.sinks.jdbc.table import JdbcWriter
from recon.spark.observation import Counter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlalchemy.engine import Connection


class JdbcUpsert(StagedWriter):
    """Inserts new keys, and updates the rows of keys that the table has."""

    sink: JdbcUpsertSink

    @property
    def _keys(self) -> tuple[str, ...]:
        return self.sink.keys

    def _as_landed(self, entry: JdbcEntry) -> Landed:
        return Landed(version=None, rows=entry.rows, given=entry.given)

    def _upsert(self, stage: Stage) -> Upsert:
        sink = self.sink
        columns = set(stage.columns)
        # An update always sets the columns that name the source record, whatever `update` lists.
        ours = [c for c in STAMPED_COLUMNS if c in columns]
        chosen = sink.update if sink.update is not None else [c for c in stage.columns if c not in sink.keys]
        decides = [sink.newer_wins] if sink.newer_wins else []
        latest = [*decides, *sink.order_by, *(c for c in SOURCE_COLUMNS if c in columns)]
        return Upsert(
            target=self.target,
            stage=stage.table,
            columns=stage.columns,
            keys=sink.keys,
            update=tuple(dict.fromkeys((*chosen, *decides, *ours))),
            latest=tuple(dict.fromkeys(latest)),
            newer_wins=sink.newer_wins,
        )

    def _require_fit(self, columns: Mapping[str, TargetColumn], stamp: ReconStamp) -> None:
        super()._require_fit(columns, stamp)
        for key in self.sink.keys:
            if key not in columns:
                raise self._refused(
                    stamp,
                    f"it has no column {key}, which is one of the keys; it has {', '.join(columns)}",
                    "correct keys, whose names are the table's",
                )
        unique = list(self._unique_keys())
        if not any(set(names) == set(self.sink.keys) for names in unique):
            quoted = self._dialect.quoted(self.sink.keys)
            name = self._dialect.quote(f"{self.target.name}_recon_key")
            raise self._refused(
                stamp,
                f"it has no primary key or unique index on exactly {', '.join(self.sink.keys)}",
                f"add one: CREATE UNIQUE INDEX {name} ON {self._dialect.table(self.target)} ({quoted})",
            )
        self._other_keys = [other for other in unique if set(other) != set(self.sink.keys)]

    _other_keys: Sequence[Sequence[str]] = ()

    def _unique_keys(self) -> Iterator[Sequence[str]]:
        """The columns of every unique key that holds for all rows."""
        import sqlalchemy

        inspector = sqlalchemy.inspect(self._engine)
        name, schema = self.target.name, self.target.schema
        if primary := inspector.get_pk_constraint(name, schema=schema)["constrained_columns"]:
            yield primary
        for index in inspector.get_indexes(name, schema=schema):
            options = index.get("dialect_options", {})
            partial = any(key.endswith(("_where", "_filter")) and value for key, value in options.items())
            columns = index["column_names"]
            if index["unique"] and not partial and None not in columns:
                yield [column for column in columns if column is not None]
        for constraint in inspector.get_unique_constraints(name, schema=schema):
            yield constraint["column_names"]

    def _fit(
        self, frame: DataFrame, columns: Mapping[str, TargetColumn], stamp: ReconStamp
    ) -> tuple[DataFrame, list[str]]:
        out, names = super()._fit(frame, columns, stamp)
        sink = self.sink
        chosen = {"update": sink.update or (), "order_by": sink.order_by, "newer_wins": filter(None, [sink.newer_wins])}
        for option, wanted in chosen.items():
            for column in wanted:
                if column not in names:
                    raise self._refused(
                        stamp,
                        f"the rows have no column {column}, which {option} names; they have {', '.join(names)}",
                        f"add it in the transform, or correct {option}",
                    )
        for other in self._other_keys:
            # ON DUPLICATE KEY means any key: it would update a row of other keys that has the same value there.
            if self.database.kind == "mysql" and set(other) <= set(names):
                raise self._refused(
                    stamp,
                    f"besides the keys it has a unique key on {', '.join(other)}, and ON DUPLICATE KEY UPDATE would "
                    "update whichever row has either",
                    "drop that key, or make it a plain index",
                )
        return out, names

    def _require_usable(self, stage: Stage, stamp: ReconStamp) -> None:
        """NULL keys are refused, and rows of one key that nothing orders."""
        dialect, keys = self._dialect, self.sink.keys
        nulls = ", ".join(f"SUM(CASE WHEN {dialect.quote(key)} IS NULL THEN 1 ELSE 0 END)" for key in keys)
        with self._engine.connect() as connection:
            null_counts = connection.exec_driver_sql(f"SELECT {nulls} FROM {dialect.table(stage.table)}").one()
            for key, count in zip(keys, null_counts, strict=True):
                if count:
                    raise self._refused(
                        stamp,
                        f"{int(count)} of {stage.rows} rows have NULL in the key column {key}",
                        "filter them or quarantine them (a post-batch not_null with on_failure: quarantine)",
                    )
            if self._upsert(stage).latest:
                return
            doubles = stage.rows - self._distinct_keys(connection, stage)
            if doubles:
                raise self._refused(
                    stamp,
                    f"{doubles} rows repeat a key and nothing orders them",
                    "set order_by, or keep stamp_source_offsets: true",
                )

    def _distinct_keys(self, connection: Connection, stage: Stage) -> int:
        names = self._dialect.quoted(self.sink.keys)
        inner = f"SELECT {names} FROM {self._dialect.table(stage.table)} GROUP BY {names}"
        return int(connection.exec_driver_sql(f"SELECT COUNT(*) FROM ({inner}) AS recon_keys").scalar_one())

    def _move_rows(self, connection: Connection, stage: Stage) -> int:
        what = self._upsert(stage)
        affected = connection.exec_driver_sql(self._dialect.upsert(what)).rowcount
        if self._dialect.counts_updates_once:
            return affected
        if not what.newer_wins:
            return self._distinct_keys(connection, stage)
        identity = [c for c in STAMPED_COLUMNS if c in stage.columns]
        return int(connection.exec_driver_sql(self._dialect.taken(what, identity)).scalar_one())


class JdbcAppend(StagedWriter):
    """All rows are inserted."""

    sink: JdbcAppendSink

    @classmethod
    @override
    def of(cls, project: Project, pipeline: str, sink: Sink) -> JdbcWriter:
        """The writer for a sink of recon.yml: through a stage, or by Spark alone where nothing guards it."""
        assert isinstance(sink, JdbcAppendSink)
        return cls(pipeline, sink) if sink.guard else JdbcPlainAppend(pipeline, sink)

    def _move_rows(self, connection: Connection, stage: Stage) -> int:
        return connection.exec_driver_sql(self._dialect.insert(self.target, stage.table, stage.columns)).rowcount


class JdbcPlainAppend(JdbcWriter):
    """Spark's own JDBC append: tasks commit one by one, so a retry writes rows again. The sink keeps no record."""

    sink: JdbcAppendSink
    _written: int | None = None

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Spark's JDBC append; it makes a table that is missing."""
        for field in frame.schema.fields:
            if field.dataType.typeName() in NESTED and self.database.kind != "postgresql":
                raise self._plain_refused(stamp, f"column {field.name} is {field.dataType.simpleString()[:60]}")
        counter = Counter(frame)
        try:
            options = self._spark_options(self._dialect.table(self.target), writes=True)
            counter.frame.write.format("jdbc").mode("append").options(**options).save()
        except ReconError:
            raise
        except Exception as error:
            why, then = self._reason_and_step(error)
            raise self._plain_refused(stamp, why, then) from None
        self._written = counter.rows()

    def _plain_refused(self, stamp: ReconStamp, why: str, then: str = "write it as text in the transform") -> SinkError:
        return SinkError(
            f"{stamp.label} was not wholly written to {self._where}: {why}; {then}, then restart the query: the "
            "micro-batch is written again, beside what its tasks may have committed (at-least-once)"
        )

    @override
    def confirm(self, stamp: ReconStamp) -> Landed:
        """The rows that Spark counted; the table has no record."""
        return Landed(version=None, rows=self._written)

    @override
    def landed(self, stamp: ReconStamp, version: int | None) -> Landed | None:
        return Landed(version=None, rows=None)

    @override
    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        return SinkLog(location=self.sink.target, exists=True, recorded=False)


__all__ = ["JdbcAppend", "JdbcPlainAppend", "JdbcUpsert"]
