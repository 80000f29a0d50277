"""Upsert into, or append to, a database table: exactly once by one transaction with an entry of recon_ledger.

Spark's tasks write the micro-batch to a staging table of this attempt alone. One transaction of the driver then inserts
the micro-batch into `recon_ledger`, whose primary key it is, moves the stage's rows into the target and commits both. A
second driver waits at the key; a replay finds it. Before rows move, the stage is counted against the tasks' own
counts: this finds a task that Spark ran twice, and an unlogged table that a server lost.

The driver connects from Python (SQLAlchemy and a driver of the database), so nothing here needs the JVM gateway.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from recon._version import __version__
from recon.errors import EvidenceError, ReconError, SinkError
from recon.evidence import jdbc_ledger
from recon.evidence.jdbc_ledger import ledger_table
from recon.model import ReconStamp, SinkLog, same_ranges
from recon.model.wire.ledger_row import LEDGER_TABLE, JdbcEntry, dump_ledger_row, ledger_key
from recon.project.sinks import JdbcAppendSink, JdbcUpsertSink
from recon.sinks import failpoints
from recon.sinks.base import Landed
from recon.sinks.jdbc.database import trouble
from recon.sinks.jdbc.dialects import TableName
from recon.sinks.jdbc.rows import NESTED, as_texts, copier, instant
from recon.sinks.jdbc.table import AGAIN, JdbcWriter, Tries, of_database
from recon.spark.columns import quoted
from recon.spark.lazy import F
from recon.spark.observation import Counter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField
    from sqlalchemy.engine import Connection
    from sqlalchemy.types import TypeEngine

log = logging.getLogger("recon")


class _StageLostError(Exception):
    """The stage does not have the rows that the tasks wrote."""


class _AlreadyThereError(Exception):
    """recon_ledger has this micro-batch's key: another driver committed it meanwhile."""


@dataclass(frozen=True, kw_only=True)
class TargetColumn:
    """A column of the target as the database describes it."""

    name: str
    type: TypeEngine[Any]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A filled staging table: its rows as the tasks wrote them."""

    table: TableName
    columns: tuple[str, ...]
    rows: int


class StagedWriter(JdbcWriter):
    """A sink whose rows go through a stage, in one transaction with an entry of recon_ledger."""

    def __init__(self, pipeline: str, sink: JdbcUpsertSink | JdbcAppendSink) -> None:
        """The database is not contacted before the first call of a method."""
        super().__init__(pipeline, sink)
        digest = hashlib.sha256(f"{pipeline}\0{sink.name}".encode()).hexdigest()[:10]
        self._stages = f"recon_stage_{digest}_"
        self._columns: Mapping[str, TargetColumn] | None = None  # the target's, by name
        self._computed_again = False  # whether the last write staged its rows more than once
        self._tidy = False  # whether stages of crashed attempts were dropped

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
                    if self._entry(stamp) is None:
                        staged += stage is None
                        self._computed_again = staged > 1
                        stage = stage or self._stage(frame, stamp)
                        self._move(stage, stamp)
                    break
                except _AlreadyThereError as error:
                    if not tries.again():
                        raise self._refused(stamp, str(error), f"look at {LEDGER_TABLE}") from None
                except _StageLostError as lost:
                    self._drop(stage)
                    stage = None
                    if not tries.again():
                        raise self._refused(stamp, str(lost), "look at the database's log") from None
                except ReconError:
                    raise
                except Exception as error:
                    kind = trouble(error, self.database.kind)
                    if kind in ("other", "connection") and not of_database(error):
                        raise  # a Spark job failed for a reason of its own: a cast, a check, a source
                    if kind not in (*AGAIN, "no_table") or not tries.again():
                        raise self._failed(error, stamp, tries) from None
                    log.warning("%s: %s; trying again", stamp.label, self.database.reason(error))
                    if kind == "no_table":  # another driver committed first, and dropped our stage
                        stage = None
        except Exception:
            self._drop(stage)
            raise
        self._drop(stage)
        self._drop_what_crashes_left(stamp)

    @override
    def confirm(self, stamp: ReconStamp) -> Landed:
        entry = self._retried(lambda: self._entry(stamp), stamp)
        if entry is None:
            raise SinkError(
                f"{stamp.label} left no row in {LEDGER_TABLE} of the {self.database.label}, though its "
                "transaction was committed; look for a trigger, a rule or a restored backup, then restart the query"
            )
        return replace(self._as_landed(entry), computed_again=self._computed_again)

    @override
    def landed(self, stamp: ReconStamp, version: int | None) -> Landed | None:
        entry = self._retried(lambda: self._entry(stamp), stamp)
        return None if entry is None else self._as_landed(entry)

    @override
    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        from sqlalchemy.exc import SQLAlchemyError

        tries = Tries(self.sink.retry)
        while True:
            try:
                return jdbc_ledger.read(
                    self._engine,
                    schema=self._schema,
                    target=str(self.target),
                    pipeline=self.pipeline,
                    sink=self.sink.name,
                    since=since,
                )
            except SQLAlchemyError as error:
                if trouble(error, self.database.kind) not in AGAIN or not tries.again():
                    raise EvidenceError(
                        f"{LEDGER_TABLE} of the {self.database.label} cannot be read: {self.database.reason(error)}; "
                        f"check the connection and the user's right to read {LEDGER_TABLE}"
                    ) from error

    # -- recon_ledger ------------------------------------------------------------------------------

    def _entry(self, stamp: ReconStamp) -> JdbcEntry | None:
        """This micro-batch's entry; raises SinkError when another micro-batch has its name."""
        import sqlalchemy

        with self._engine.connect() as connection:
            self._prepared = self._prepared or sqlalchemy.inspect(connection).has_table(
                LEDGER_TABLE, schema=self._schema
            )
            if not self._prepared:
                return None
            entry = jdbc_ledger.find(connection, self._schema, stamp)
        if entry is not None and entry.target != str(self.target):
            raise SinkError(
                f"{stamp.label}: {LEDGER_TABLE} of the {self.database.label} has it for table {entry.target} "
                f"and not for {self.target}: another project, or an earlier one, has a pipeline and a sink of these "
                "names; give the sink another name"
            )
        if entry is not None and not same_ranges(entry.stamp.offsets_text, stamp.offsets_text):
            raise SinkError(
                f"{stamp.label}: {LEDGER_TABLE} of the {self.database.label} has it with other offsets than "
                "this micro-batch: two queries write as one sink, or the ledger was lost; stop one of them, or give "
                "the sink another name, then run `recon audit`"
            )
        return entry

    _prepared = False  # whether recon_ledger is known to exist

    def _prepare_ledger(self) -> None:
        if self._prepared:
            return
        table = ledger_table(self._schema)
        try:
            table.create(self._engine, checkfirst=True)
        except Exception:
            # Two first micro-batches at once: the other one made it.
            import sqlalchemy

            if not sqlalchemy.inspect(self._engine).has_table(LEDGER_TABLE, schema=self._schema):
                raise
        self._prepared = True

    def _retried(self, question: Callable[[], JdbcEntry | None], stamp: ReconStamp) -> JdbcEntry | None:
        tries = Tries(self.sink.retry)
        while True:
            try:
                return question()
            except ReconError:
                raise
            except Exception as error:
                if trouble(error, self.database.kind) not in AGAIN or not tries.again():
                    raise SinkError(
                        self._sentence(error, f"{stamp.label}: {LEDGER_TABLE} cannot be read")
                        + ", then restart the query"
                    ) from None

    def _as_landed(self, entry: JdbcEntry) -> Landed:
        return Landed(version=None, rows=entry.rows)

    # -- the stage ---------------------------------------------------------------------------------

    def _stage(self, frame: DataFrame, stamp: ReconStamp) -> Stage:
        self._prepare_ledger()
        columns = self._target_columns(frame, stamp)
        out, names = self._fit(frame, columns, stamp)
        token = secrets.token_hex(4)
        table = TableName(f"{self._stages}{stamp.epoch}_{stamp.batch_id}_{token}", self._schema)
        with self._engine.begin() as connection:
            connection.exec_driver_sql(self._dialect.create_stage(table, self.target, names))
        self.failpoint(failpoints.STAGE_CREATED, stamp)
        try:
            rows = self._copy(out, table, names) if self.sink.stage_with == "copy" else self._jdbc(out, table)
            stage = Stage(table=table, columns=tuple(names), rows=rows)
            self._require_usable(stage, stamp)
        except Exception:
            self._drop(Stage(table=table, columns=(), rows=0))
            raise
        self.failpoint(failpoints.STAGED, stamp)
        return stage

    def _require_usable(self, stage: Stage, stamp: ReconStamp) -> None:
        """Raises SinkError for rows that the sink does not accept."""

    def _jdbc(self, frame: DataFrame, table: TableName) -> int:
        """Spark's parallel JDBC append; returns how many rows the tasks wrote."""
        counter = Counter(frame)
        options = self._spark_options(self._dialect.table(table), writes=True)
        counter.frame.write.format("jdbc").mode("append").options(**options).save()
        rows = counter.rows()
        # Spark reports no count where its optimizer found the plan to be empty, and some servers never do.
        return frame.count() if rows is None else rows

    def _copy(self, frame: DataFrame, table: TableName, names: Sequence[str]) -> int:
        """COPY from each task by psycopg; returns how many rows they wrote."""
        into, columns = self._dialect.table(table), self._dialect.quoted(names)
        statement = f"COPY {into} ({columns}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')"
        counts = as_texts(frame).mapInArrow(copier(self.database.arguments(), statement), "rows long").collect()
        return sum(row.rows for row in counts)

    def _drop(self, stage: Stage | None) -> None:
        """Drop a stage; where that fails, it is dropped after a later micro-batch."""
        if stage is None:
            return
        try:
            with self._engine.begin() as connection:
                connection.exec_driver_sql(self._dialect.drop(stage.table))
        except Exception as error:
            log.warning("staging table %s was not dropped: %s", stage.table, self.database.reason(error))

    def _drop_what_crashes_left(self, stamp: ReconStamp) -> None:
        """Drop stages of micro-batches that are committed by now; done once."""
        if self._tidy:
            return
        self._tidy = True
        import sqlalchemy

        pattern = re.compile(re.escape(self._stages) + r"(\d+)_(\d+)_[0-9a-f]+")
        try:
            for name in sqlalchemy.inspect(self._engine).get_table_names(schema=self._schema):
                match = pattern.fullmatch(name)
                if match and (int(match[1]), int(match[2])) <= (stamp.epoch, stamp.batch_id):
                    self._drop(Stage(table=TableName(name, self._schema), columns=(), rows=0))
        except Exception as error:
            log.warning("staging tables of earlier attempts could not be listed: %s", self.database.reason(error))

    # -- the transaction ---------------------------------------------------------------------------

    def _move(self, stage: Stage, stamp: ReconStamp) -> None:
        """Insert the entry, then move the rows, in one transaction: a second driver waits at the entry's key."""
        import sqlalchemy
        from sqlalchemy import func, literal_column, select
        from sqlalchemy.exc import IntegrityError

        ledger = ledger_table(self._schema)
        entry = JdbcEntry(
            stamp=stamp,
            target=str(self.target),
            given=stage.rows,
            rows=0,
            at=datetime.now(UTC),
            recon_version=__version__,
        )
        row = {**dump_ledger_row(entry), "committed_at": literal_column(self._dialect.utc_now())}
        with self._engine.connect() as connection, connection.begin():
            try:
                connection.execute(ledger.insert().values(**row))
            except IntegrityError as error:
                raise _AlreadyThereError(self.database.reason(error)) from None
            self.failpoint(failpoints.TRANSACTION_OPEN, stamp)
            there = connection.execute(
                select(func.count()).select_from(sqlalchemy.table(stage.table.name, schema=stage.table.schema))
            ).scalar_one()
            if there != stage.rows:
                raise _StageLostError(
                    f"staging table {stage.table} holds {there} rows and the tasks wrote {stage.rows} (the server "
                    "restarted, or Spark ran a task twice)"
                )
            rows = self._move_rows(connection, stage)
            connection.execute(
                ledger.update()
                .where(*(ledger.c[key] == value for key, value in ledger_key(stamp).items()))
                .values(rows_written=rows, committed_at=literal_column(self._dialect.utc_now()))
            )
            self.failpoint(failpoints.BEFORE_COMMIT, stamp)
        self.failpoint(failpoints.COMMITTED, stamp)

    @abstractmethod
    def _move_rows(self, connection: Connection, stage: Stage) -> int:
        """Move the stage's rows into the target; returns how many rows were inserted or updated."""

    # -- the target's columns ----------------------------------------------------------------------

    def _target_columns(self, frame: DataFrame, stamp: ReconStamp) -> Mapping[str, TargetColumn]:
        """The target's columns, read once; with `create_table` a missing table is made."""
        import sqlalchemy
        from sqlalchemy.exc import NoSuchTableError

        if self._columns is not None:
            return self._columns
        inspector = sqlalchemy.inspect(self._engine)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of types that SQLAlchemy does not know
                described = inspector.get_columns(self.target.name, schema=self.target.schema)
        except NoSuchTableError:
            if not self.sink.create_table:
                raise self._refused(
                    stamp, "there is no such table", f"create {self.target}, or set create_table: true"
                ) from None
            self._create_target(frame, stamp)
            described = sqlalchemy.inspect(self._engine).get_columns(self.target.name, schema=self.target.schema)
        columns = {column["name"]: TargetColumn(name=column["name"], type=column["type"]) for column in described}
        self._require_fit(columns, stamp)
        self._columns = columns
        return columns

    def _create_target(self, frame: DataFrame, stamp: ReconStamp) -> None:
        from sqlalchemy import Column, MetaData, Table
        from sqlalchemy.exc import SQLAlchemyError

        keys = self._keys
        columns = [
            Column(
                field.name,
                self._type_of(field, stamp, key=field.name in keys),
                primary_key=field.name in keys,
                autoincrement=False,
            )
            for field in frame.schema.fields
        ]
        missing = [key for key in keys if key not in frame.columns]
        if missing:
            raise self._no_key_column(missing[0], frame.columns, stamp)
        table = Table(self.target.name, MetaData(), *columns, schema=self.target.schema, mysql_engine="InnoDB")
        try:
            table.create(self._engine, checkfirst=True)
        except SQLAlchemyError as error:
            raise self._failed(error, stamp) from None
        log.info("%s: made %s", stamp.label, self._where)

    @property
    def _keys(self) -> tuple[str, ...]:
        return ()

    def _type_of(self, field: StructField, stamp: ReconStamp, *, key: bool) -> TypeEngine[Any]:
        column_type = self._dialect.type_of(field.dataType, key=key)
        if column_type is None:
            raise self._no_type(field.name, field.dataType, stamp)
        return column_type

    def _no_type(self, name: str, data_type: DataType, stamp: ReconStamp) -> SinkError:
        return self._refused(
            stamp,
            f"column {name} is {data_type.simpleString()[:60]}, which a {self.database.product} column cannot hold",
            f"split it into columns or write it as text (to_json({name})) in the transform",
        )

    def _no_key_column(self, key: str, among: Sequence[str], stamp: ReconStamp) -> SinkError:
        return self._refused(
            stamp,
            f"the rows have no column {key}, which is one of the keys; they have {', '.join(among)}",
            "add it in the transform, or correct keys",
        )

    def _require_fit(self, columns: Mapping[str, TargetColumn], stamp: ReconStamp) -> None:
        """Raises SinkError for a table that this sink cannot write to."""
        from sqlalchemy import text

        if self.database.kind != "mysql":
            return
        with self._engine.connect() as connection:
            engine = connection.execute(
                text(
                    "SELECT t.ENGINE, e.TRANSACTIONS FROM information_schema.TABLES t "
                    "LEFT JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE "
                    "WHERE t.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND t.TABLE_NAME = :name"
                ),
                {"schema": self.target.schema, "name": self.target.name},
            ).first()
        if engine is not None and engine[1] == "NO":
            raise self._refused(
                stamp,
                f"its storage engine is {engine[0]}, which has no transactions",
                f"make it one that has: ALTER TABLE {self.target} ENGINE=InnoDB",
            )

    def _fit(
        self, frame: DataFrame, columns: Mapping[str, TargetColumn], stamp: ReconStamp
    ) -> tuple[DataFrame, list[str]]:
        """The rows with the target's column names, and timestamps as its columns' types need them; and those names."""
        folded: dict[str, list[str]] = {}
        for name in columns:
            folded.setdefault(name.lower(), []).append(name)
        names: dict[str, str] = {}
        absent: list[StructField] = []
        for field in frame.schema.fields:
            kind = field.dataType.typeName()
            if kind in NESTED or "interval" in kind or kind == "void":
                raise self._no_type(field.name, field.dataType, stamp)
            near = [field.name] if field.name in columns else folded.get(field.name.lower(), [])
            if len(near) != 1:
                absent.append(field)
            else:
                names[field.name] = near[0]
        if absent:
            types = [(f.name, self._type_of(f, stamp, key=False)) for f in absent]
            raise self._refused(
                stamp,
                f"the table has no column {', '.join(f.name for f in absent)}",
                f"add it: {self._dialect.add_columns(self.target, types)}",
            )
        for key in self._keys:
            if key not in names.values():
                raise self._no_key_column(key, frame.columns, stamp)
        out = [
            instant(F.col(quoted(old)), frame.schema[old].dataType, columns[new].type, self.database.kind).alias(new)
            for old, new in names.items()
        ]
        return frame.select(*out), list(names.values())
