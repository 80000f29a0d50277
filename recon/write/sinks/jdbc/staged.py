"""Upsert into, or append to, a database table: exactly once by one transaction with an entry of recon_ledger.

Spark's tasks write the micro-batch to a staging table of this attempt alone. One transaction of the driver then inserts
the micro-batch into `recon_ledger`, moves the stage's rows into the target and commits both. The micro-batch is the
primary key of `recon_ledger`, so a replay finds its entry. The number of the write is a key there, too: of two drivers
that have read the same entries, the second one waits at that key and is refused. Before rows move, the stage's rows are
compared with the tasks' own counts. This finds a task that Spark ran twice, and an unlogged table that a server lost.

The driver connects from Python (SQLAlchemy and a driver of the database), so nothing here needs the JVM gateway.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from recon._version import __version__
from recon.base.clock import utc_now
from recon.base.errors import EvidenceError, ReconError, SinkError
from recon.model import ReconStamp, RecordCount, SinkLog, TableCount, same_ranges
from recon.model.wire.ledger_row import LEDGER_TABLE, JdbcEntry, dump_ledger_row, ledger_key
from recon.project.sinks import JdbcAppendSink, JdbcUpsertSink
from recon.witness import jdbc_ledger
from recon.witness.jdbc_ledger import ledger_table
from recon.write.sinks import failpoints
from recon.write.sinks.base import ConfirmedWrite
from recon.write.sinks.jdbc.dialects import TableName
from recon.write.sinks.jdbc.errors import RETRIED, cause_of, from_database, reason
from recon.write.sinks.jdbc.rows import as_texts, copier
from recon.write.sinks.jdbc.table import JdbcWriter, Tries
from recon.write.sinks.jdbc.target import Target, unique_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlalchemy import ColumnClause
    from sqlalchemy.engine import Connection, Engine

log = logging.getLogger("recon")
_MANY_WRITES = 100_000  # of which an audit does not look for the fingerprints

T = TypeVar("T")


class _StageLostError(Exception):
    """The stage does not have the rows that the tasks wrote."""


class AlreadyThereError(Exception):
    """recon_ledger has this micro-batch, or a write of its number: another driver committed it meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A filled staging table: its rows as the tasks wrote them."""

    table: TableName
    columns: tuple[str, ...]
    rows: int


class StagedWriter(JdbcWriter):
    """A sink whose rows go through a stage, in one transaction with an entry of recon_ledger."""

    def __init__(self, pipeline: str, sink: JdbcUpsertSink | JdbcAppendSink) -> None:
        super().__init__(pipeline, sink)
        digest = hashlib.sha256(f"{pipeline}\0{sink.name}".encode()).hexdigest()[:10]
        self._stages = f"recon_stage_{digest}_"  # how the names of staging tables begin
        self._has_ledger = False  # whether recon_ledger is known to exist
        self._computed_again = False  # whether the last write staged its rows more than once
        self._tidy = False  # whether stages of crashed attempts were dropped

    @cached_property
    def _into(self) -> Target:
        """Made by the first write: target and writer hold each other, and a writer that only reads is gone at once."""
        return Target(self)

    # -- the interface -----------------------------------------------------------------------------

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Stage the rows, then move them in one transaction; both are retried, within bounds, where that is safe."""
        tries, stage, staged = Tries(self.sink.retry), None, 0
        self._computed_again = False
        try:
            while True:
                try:
                    # An earlier attempt, or another driver, may have committed it.
                    entry = self._entry(stamp)
                    if entry is not None and not self._is_mine(entry, stamp):
                        raise self._overtaken(stamp, entry)
                    if entry is None:
                        staged += stage is None
                        self._computed_again = staged > 1
                        stage = stage or self._stage(frame, stamp)
                        self._move(stage, stamp)
                    break
                except AlreadyThereError as error:
                    self._require_number(stamp)
                    if not tries.again():
                        raise self.refused(stamp, str(error), f"look at {LEDGER_TABLE}") from None
                except _StageLostError as lost:
                    self._drop(stage)
                    stage = None
                    if not tries.again():
                        raise self.refused(stamp, str(lost), "look at the database's log") from None
                except ReconError:
                    raise
                except Exception as error:
                    cause = cause_of(error, self.database.kind)
                    if cause in ("other", "connection") and not from_database(error):
                        raise  # a Spark job failed for a reason of its own: a cast, a check, a source
                    if cause not in (*RETRIED, "no_table") or not tries.again():
                        raise self.failed(error, stamp, tries) from None
                    log.warning("%s: %s; trying again", stamp.label, reason(error, self.database))
                    if cause == "no_table":  # another driver committed first, and dropped our stage
                        stage = None
        except Exception:
            self._drop(stage)
            raise
        self._drop(stage)
        self._drop_what_crashes_left(stamp)

    @override
    def confirm(self, stamp: ReconStamp) -> ConfirmedWrite:
        landed = self.landed(stamp, None)
        if landed is None:
            raise SinkError(
                f"{stamp.label} left no row in {LEDGER_TABLE} of the {self.database.label}, though its "
                "transaction was committed; look for a trigger, a rule or a restored backup, then restart the query"
            )
        return replace(landed, computed_again=self._computed_again)

    @override
    def landed(self, stamp: ReconStamp, version: int | None) -> ConfirmedWrite | None:
        try:
            entry = self._retried(lambda: self._entry(stamp))
        except ReconError:
            raise
        except Exception as error:
            what = self.sentence(error, f"{stamp.label}: {LEDGER_TABLE} cannot be read")
            raise SinkError(f"{what}, then restart the query") from None
        if entry is None:
            return None
        return ConfirmedWrite(rows=entry.rows, given=entry.given if self.sink.rewrites else None)

    @override
    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        def read() -> SinkLog:
            record = jdbc_ledger.read(
                self.engine,
                schema=self.work_schema,
                target=str(self.target),
                pipeline=self.pipeline,
                sink=self.sink.name,
                since=since,
            )
            return replace(record, gone=self._is_gone())

        return self._reading_ledger(read)

    def _reading_ledger(self, read: Callable[[], T]) -> T:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            return self._retried(read)
        except SQLAlchemyError as error:
            raise EvidenceError(
                f"{LEDGER_TABLE} of the {self.database.label} cannot be read: {reason(error, self.database)}; "
                f"check the connection and the user's right to read {LEDGER_TABLE}"
            ) from error

    @override
    def record_count(self, up_to: int) -> RecordCount | None:
        def read() -> RecordCount | None:
            with self.engine.connect() as connection:
                if not self._sees_ledger(connection):
                    return None
                return jdbc_ledger.counted(connection, self.work_schema, self.pipeline, self.sink.name, up_to)

        return self._reading_ledger(read)

    @override
    def _with_record(self, count: TableCount, connection: Connection, since: datetime | None, known: int) -> TableCount:
        import sqlalchemy

        if not self._sees_ledger(connection):
            return count
        schema, target, me = self.work_schema, str(self.target), (self.pipeline, self.sink.name)
        written = jdbc_ledger.written(connection, schema, target)
        if self.sink.work_schema and not self.target.schema:  # a table of this name in another schema may be meant
            written = {writer: rows for writer, rows in written.items() if writer == me}
        apart = written.keys() - {me}
        others = jdbc_ledger.of_others(connection, schema, target, *me, since) if apart else ()
        keys = unique_keys(sqlalchemy.inspect(connection), self.target) if apart else ()
        new = jdbc_ledger.writes_behind(connection, schema, target, *me, known, _MANY_WRITES + 1)
        return replace(
            count,
            newest=jdbc_ledger.newest_number(connection, schema, *me),
            new=tuple(new) if len(new) <= _MANY_WRITES else None,
            written={writer: brought - removed for writer, (brought, removed) in written.items()},
            removed=written.get(me, (0, 0))[1],
            has_unique_key=any(keys),
            others=others,
        )

    # -- recon_ledger ------------------------------------------------------------------------------

    @override
    def newest_number(self, pipeline: str, sink: str) -> int | None:
        def read() -> int:
            with self.engine.connect() as connection:
                if not self._sees_ledger(connection):
                    return 0
                return jdbc_ledger.newest_number(connection, self.work_schema, pipeline, sink)

        try:
            return self._retried(read)
        except ReconError:
            raise
        except Exception as error:
            what = f"{LEDGER_TABLE} of the {self.database.label} cannot be read: {reason(error, self.database)}"
            raise EvidenceError(
                f"{what}; check the connection and the user's right to read {LEDGER_TABLE}, then restart the query"
            ) from None

    def _is_mine(self, entry: JdbcEntry, stamp: ReconStamp) -> bool:
        """Whether a write of this micro-batch is this one, and not another driver's of the same query."""
        return entry.stamp.number == stamp.number

    def _require_number(self, stamp: ReconStamp) -> None:
        """Raises SinkError where another micro-batch has the number."""
        with self.engine.connect() as connection:
            entry = jdbc_ledger.numbered(connection, self.work_schema, stamp)
        if entry is not None and ledger_key(entry.stamp) != ledger_key(stamp):
            raise self._overtaken(stamp, entry)

    def _overtaken(self, stamp: ReconStamp, entry: JdbcEntry) -> SinkError:
        theirs = entry.stamp
        return SinkError(
            f"{stamp.label} was not written to {self.where}: {LEDGER_TABLE} has write {theirs.number} of this sink, "
            f"micro-batch {theirs.batch_id} (epoch {theirs.epoch}) of query {theirs.query_id}, which another driver "
            "committed after this one had read the ledger; stop one of them, then restart the other, which reads what "
            "was written"
        )

    def _entry(self, stamp: ReconStamp) -> JdbcEntry | None:
        """This micro-batch's entry; raises SinkError when another micro-batch has its name."""
        with self.engine.connect() as connection:
            self._has_ledger = self._has_ledger or self._sees_ledger(connection)
            if not self._has_ledger:
                return None
            entry = jdbc_ledger.find(connection, self.work_schema, stamp)
        if entry is not None and entry.target != str(self.target):
            raise SinkError(
                f"{stamp.label}: {LEDGER_TABLE} of the {self.database.label} has it for table {entry.target} "
                f"and not for {self.target}: another project, or an earlier one, has a pipeline and a sink of these "
                "names; give the sink another name"
            )
        if entry is not None and not _same(entry.stamp, stamp):
            other = "with other offsets than" if entry.stamp.query_id == stamp.query_id else "of another query than"
            raise SinkError(
                f"{stamp.label}: {LEDGER_TABLE} of the {self.database.label} has it {other} "
                "this micro-batch: two queries write as one sink, or the ledger was lost; stop one of them, or give "
                "the sink another name, then run `recon audit`"
            )
        return entry

    def _sees_ledger(self, connection: Connection | Engine) -> bool:
        import sqlalchemy

        return sqlalchemy.inspect(connection).has_table(LEDGER_TABLE, schema=self.work_schema)

    def _make_ledger(self) -> None:
        if self._has_ledger:
            return
        try:
            ledger_table(self.work_schema).create(self.engine, checkfirst=True)
        except Exception:
            if not self._sees_ledger(self.engine):  # else two first micro-batches at once: the other one made it
                raise
        self._has_ledger = True

    # -- the stage ---------------------------------------------------------------------------------

    def _stage(self, frame: DataFrame, stamp: ReconStamp) -> Stage:
        self._make_ledger()
        out, names = self._into.fit(frame, stamp)
        name = f"{self._stages}{stamp.epoch}_{stamp.batch_id}_{secrets.token_hex(4)}"
        table = TableName(name, self.work_schema)
        with self.engine.begin() as connection:
            connection.exec_driver_sql(self.dialect.create_stage(table, self.target, names))
        self.failpoint(failpoints.STAGE_CREATED, stamp)
        try:
            rows = self._copy(out, table, names) if self.sink.stage_with == "copy" else self._jdbc(out, table)
            stage = Stage(table=table, columns=tuple(names), rows=rows)
            self._require_usable(stage, stamp)
        except Exception:
            self._drop_table(table)
            raise
        self.failpoint(failpoints.STAGED, stamp)
        return stage

    def _require_usable(self, stage: Stage, stamp: ReconStamp) -> None:
        """Raises SinkError for rows that the sink does not accept."""

    def _jdbc(self, frame: DataFrame, table: TableName) -> int:
        rows = self.append_by_spark(frame, table)
        # Spark reports no count where its optimizer found the plan to be empty, and some servers never do.
        return frame.count() if rows is None else rows

    def _copy(self, frame: DataFrame, table: TableName, names: Sequence[str]) -> int:
        """COPY from each task by psycopg; returns how many rows they wrote."""
        into, columns = self.dialect.table(table), self.dialect.quoted(names)
        statement = f"COPY {into} ({columns}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')"
        counts = as_texts(frame).mapInArrow(copier(self.database.arguments(), statement), "rows long").collect()
        return sum(row.rows for row in counts)

    def _drop(self, stage: Stage | None) -> None:
        if stage is not None:
            self._drop_table(stage.table)

    def _drop_table(self, table: TableName) -> None:
        """Drop a staging table; where that fails, it is dropped after a later micro-batch."""
        try:
            with self.engine.begin() as connection:
                connection.exec_driver_sql(self.dialect.drop(table))
        except Exception as error:
            log.warning("staging table %s was not dropped: %s", table, reason(error, self.database))

    def _drop_what_crashes_left(self, stamp: ReconStamp) -> None:
        """Drop stages of micro-batches that are committed by now; done once."""
        if self._tidy:
            return
        self._tidy = True
        import sqlalchemy

        pattern = re.compile(re.escape(self._stages) + r"(-?\d+)_(\d+)_[0-9a-f]+")
        try:
            for name in sqlalchemy.inspect(self.engine).get_table_names(schema=self.work_schema):
                match = pattern.fullmatch(name)
                # A repair has an epoch below 0, and may be at work beside the query.
                alike = match is not None and (int(match[1]) < 0) == (stamp.epoch < 0)
                if match and alike and (int(match[1]), int(match[2])) <= (stamp.epoch, stamp.batch_id):
                    self._drop_table(TableName(name, self.work_schema))
        except Exception as error:
            log.warning("staging tables of earlier attempts could not be listed: %s", reason(error, self.database))

    # -- the transaction ---------------------------------------------------------------------------

    def _move(self, stage: Stage, stamp: ReconStamp) -> None:
        """Insert the entry, then move the rows, in one transaction: a second driver waits at the entry's key."""
        import sqlalchemy
        from sqlalchemy import func, literal_column, select
        from sqlalchemy.exc import IntegrityError

        ledger = ledger_table(self.work_schema)
        entry = JdbcEntry(
            stamp=stamp,
            target=str(self.target),
            given=stage.rows,
            rows=0,
            at=utc_now(),
            recon_version=__version__,
        )
        now: ColumnClause[Any] = literal_column(self.dialect.utc_now)
        with self.engine.connect() as connection, connection.begin():
            try:
                connection.execute(ledger.insert().values(**{**dump_ledger_row(entry), "committed_at": now}))
            except IntegrityError as error:
                raise AlreadyThereError(reason(error, self.database)) from None
            self.failpoint(failpoints.TRANSACTION_OPEN, stamp)
            staged = connection.execute(
                select(func.count()).select_from(sqlalchemy.table(stage.table.name, schema=stage.table.schema))
            ).scalar_one()
            if staged != stage.rows:
                raise _StageLostError(
                    f"staging table {stage.table} holds {staged} rows and the tasks wrote {stage.rows} (the server "
                    "restarted, or Spark ran a task twice)"
                )
            rows = self._move_rows(connection, stage)
            connection.execute(
                ledger.update()
                .where(*(ledger.c[key] == value for key, value in ledger_key(stamp).items()))
                .values(rows_written=rows, committed_at=now)
            )
            self.failpoint(failpoints.BEFORE_COMMIT, stamp)
        self.failpoint(failpoints.COMMITTED, stamp)

    @abstractmethod
    def _move_rows(self, connection: Connection, stage: Stage) -> int:
        """Move the stage's rows into the target; returns how many rows were inserted or updated."""


def _same(stamp: ReconStamp, other: ReconStamp) -> bool:
    return stamp.query_id == other.query_id and same_ranges(stamp.offsets_text, other.offsets_text)
