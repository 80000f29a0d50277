"""Upsert into, or append to, a database table: exactly once by one transaction with an entry of our own.

Spark's tasks write the micro-batch to a staging table of this attempt alone. One transaction of the driver then enters
the micro-batch in `recon_ledger`, whose primary key it is, moves the stage's rows into the target and commits both. A
second driver waits at the key; a replay meets it. Before anything moves, the stage is counted against what the tasks
wrote: a task that Spark ran twice, or a server that lost an unlogged table, is found there.

The driver's part speaks Python (SQLAlchemy and a driver of the database), so nothing here needs the JVM gateway.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import threading
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from recon._version import __version__
from recon.errors import EvidenceError, ReconError, SinkError
from recon.evidence import jdbc_ledger
from recon.evidence.database import Database, Trouble, trouble
from recon.evidence.jdbc_ledger import JdbcEntry, ledger_table
from recon.model import ReconStamp, SinkLog, offsets_text, parse_offsets
from recon.project import Project, Sink
from recon.project.sinks import JdbcAppendSink, JdbcUpsertSink, Retry
from recon.sinks.base import BatchSink, Landed
from recon.sinks.dialects import Dialect, TableName, Upsert, dialect_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField
    from sqlalchemy.engine import Connection, Engine
    from sqlalchemy.types import TypeEngine

log = logging.getLogger("recon")

_BATCH_ID = "_batch_id"
_SOURCE = ("_source_topic", "_source_partition", "_source_offset")
_OBSERVED_WITHIN_S = 10.0
# Types of Spark's that no column of a database holds as they are.
_NESTED = {"array", "map", "struct", "variant"}
_AGAIN: frozenset[Trouble] = frozenset({"again", "connection"})


class _StageLostError(Exception):
    """The stage does not hold what the tasks wrote."""


class _MetError(Exception):
    """recon_ledger has this micro-batch's key: somebody committed it meanwhile."""


@dataclass(frozen=True, kw_only=True)
class _Column:
    """A column of the target as the database describes it."""

    name: str
    type: TypeEngine[Any]


@dataclass(frozen=True, kw_only=True)
class _Stage:
    """A filled staging table: its rows as the tasks wrote them."""

    table: TableName
    columns: tuple[str, ...]
    rows: int


class _Tries:
    """Bounded tries with a growing pause."""

    def __init__(self, retry: Retry) -> None:
        self._retry, self._made, self._began = retry, 1, time.monotonic()

    def again(self) -> bool:
        """Pauses and says True, or False when the bounds are reached."""
        pause = self._retry.pause * 2 ** (self._made - 1)
        spent = time.monotonic() - self._began
        if self._made >= self._retry.attempts or spent + pause > self._retry.within:
            return False
        time.sleep(pause)
        self._made += 1
        return True

    @property
    def said(self) -> str:
        """How many there were."""
        return f"{self._made} attempt{'s' if self._made > 1 else ''} in {time.monotonic() - self._began:.0f} s"


class JdbcSink(BatchSink):
    """What upsert and append share: where the table is, how Spark reads it, what the database remembers."""

    def __init__(self, pipeline: str, sink: JdbcUpsertSink | JdbcAppendSink) -> None:
        """Nothing is connected before the first write or question."""
        self.pipeline, self.sink = pipeline, sink
        self.database = Database.of(sink.connection, sink.driver_options)
        self.target = TableName.parse(sink.target)
        self._columns: Mapping[str, _Column] | None = None  # the target's, by name

    @cached_property
    def _engine(self) -> Engine:
        return self.database.engine()

    @cached_property
    def _dialect(self) -> Dialect:
        self._engine  # noqa: B018 - says what is missing, if SQLAlchemy is
        return dialect_of(self.database.kind)

    @property
    def _schema(self) -> str | None:
        """Where recon_ledger and the staging tables are."""
        return self.sink.work_schema or self.target.schema

    # -- what a reader sees ------------------------------------------------------------------------

    def table(self, spark: SparkSession) -> DataFrame:
        """The target through Spark's JDBC reader."""
        try:
            quoted = self._dialect.table(self.target)
            return spark.read.format("jdbc").options(**self._spark_options(quoted, writes=False)).load()
        except ReconError:
            raise
        except Exception as error:
            raise EvidenceError(self._sentence(error, f"{self._where} cannot be read by Spark")) from None

    def rows_of(self, spark: SparkSession, landed: Landed, stamp: ReconStamp) -> DataFrame:
        """Rows with this batch_id whose offsets lie in the micro-batch's ranges."""
        from pyspark.sql import functions as F

        rows = self.table(spark).filter(F.col(_BATCH_ID) == stamp.batch_id)
        if not set(_SOURCE) <= set(rows.columns):
            return rows
        kept = [(s.topic, s.partition, s.start_offset, s.end_offset) for s in parse_offsets(stamp.offsets_text)]
        spans = spark.createDataFrame(kept, "t string, p int, a long, b long")
        topic, partition, offset = (F.col(name) for name in _SOURCE)
        inside = (topic == F.col("t")) & (partition == F.col("p")) & (offset >= F.col("a")) & (offset < F.col("b"))
        return rows.join(F.broadcast(spans), inside, "left_semi")

    def _spark_options(self, table: str, *, writes: bool) -> dict[str, str]:
        """Options of Spark's JDBC source for a table whose name is quoted already."""
        database, options = self.database, dict(self.sink.options)
        url = database.url
        if database.product == "mariadb" and database.java_driver.startswith("org.mariadb."):
            # Spark knows how MySQL quotes names, and for `jdbc:mariadb:` would take "name" for a text.
            url = url.replace("jdbc:mariadb:", "jdbc:mysql:", 1) + ("&" if "?" in url else "?") + "permitMysqlScheme"
        if database.kind == "mysql":
            # No server setting makes it cut off what is too long; instants are told in UTC.
            ours = "sql_mode=CONCAT(@@sql_mode,',STRICT_ALL_TABLES'),time_zone='+00:00'"
            options["sessionVariables"] = ",".join(filter(None, (options.get("sessionVariables"), ours)))
        if writes and database.product == "mysql":
            options.setdefault("rewriteBatchedStatements", "true")
        if writes and database.kind == "postgresql":
            # Texts become json, uuid, enums and so on as the column is; several rows go in one INSERT.
            options.setdefault("stringtype", "unspecified")
            options.setdefault("reWriteBatchedInserts", "true")
        if writes:
            options.setdefault("batchsize", "10000")
        login = {"user": database.user, "password": database.password}
        given = {key: value for key, value in login.items() if value}
        return {**options, **given, "url": url, "dbtable": table, "driver": database.java_driver}

    # -- what went wrong ---------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return f"table {self.target} of the {self.database.said}"

    def _name(self, stamp: ReconStamp) -> str:
        return f"pipeline {stamp.pipeline}, sink {stamp.sink}: micro-batch {stamp.batch_id} (epoch {stamp.epoch})"

    def _refused(self, stamp: ReconStamp, why: str, then: str) -> SinkError:
        return SinkError(
            f"{self._name(stamp)} was not written to {self._where}: {why}; {then}, then restart the query: nothing of "
            "the micro-batch is there, and it is written again"
        )

    def _failed(self, error: BaseException, stamp: ReconStamp, tries: _Tries | None = None) -> SinkError:
        why, then = self._told(error)
        if tries is not None and trouble(error, self.database.kind) in _AGAIN:
            why = f"{why} ({tries.said})"
        return self._refused(stamp, why, then)

    def _sentence(self, error: BaseException, what: str) -> str:
        why, then = self._told(error)
        return f"{what}: {why}; {then}"

    def _told(self, error: BaseException) -> tuple[str, str]:
        """What went wrong, and the next step."""
        database, reason = self.database, self.database.reason(error)
        jar = f"the Java class {database.java_driver} is not on Spark's class path"
        steps: Mapping[Trouble, tuple[str, str]] = {
            "connection": (reason, "make the database reachable (host, port, network, or wait until it is up)"),
            "again": (reason, "look for other transactions that hold these rows"),
            "login": (reason, "correct url, user or password of the sink's connection (in the environment)"),
            "denied": (
                f"permission denied: {reason}",
                f"grant user {database.user} SELECT, INSERT and UPDATE on {self.target}, and the right to create "
                f"tables in {self._schema or 'its schema'} (or set work_schema)",
            ),
            "no_table": (reason, f"create {self.target}, or set create_table: true"),
            "null": (reason, "give the column a value in the transform, or a default in the table"),
            "value": (f"a value does not fit its column: {reason}", "convert it in the transform, or widen the column"),
            "unique": (
                f"a unique key of the table is violated: {reason}",
                "remove the doubles in the transform, or name the columns of that key as keys",
            ),
            "arbiter": (
                f"the table has no unique key on exactly the keys: {reason}",
                "add a unique index or primary key on them",
            ),
            "jar": (jar, f"add {database.maven}:<version> to spark.jars.packages (spark: packages in recon.yml)"),
            "python": (
                f"the executors' Python cannot load what COPY needs: {reason}",
                f"install spark-recon[{database.extra}] on the executors, or set stage_with: jdbc",
            ),
            "other": (reason, "correct what the database says"),
        }
        return steps[trouble(error, database.kind)]


class _Recorded(JdbcSink):
    """A sink whose rows go through a stage, in one transaction with an entry of recon_ledger."""

    def __init__(self, pipeline: str, sink: JdbcUpsertSink | JdbcAppendSink) -> None:
        """Nothing is connected before the first write or question."""
        super().__init__(pipeline, sink)
        digest = hashlib.sha256(f"{pipeline}\0{sink.name}".encode()).hexdigest()[:10]
        self._stages = f"recon_stage_{digest}_"
        self._tidy = False  # whether what crashed attempts left was looked for

    # -- the interface -----------------------------------------------------------------------------

    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Stage, then one transaction; what can be tried again safely is tried again, within bounds."""
        tries, stage = _Tries(self.sink.retry), None
        try:
            while True:
                try:
                    # An earlier attempt, or another driver, may have committed it.
                    if self._entry(stamp) is None:
                        stage = stage or self._staged(frame, stamp)
                        self._move(stage, stamp)
                    break
                except _MetError as met:
                    if not tries.again():
                        raise self._refused(stamp, str(met), f"look at {jdbc_ledger.NAME}") from None
                except _StageLostError as lost:
                    self._dropped(stage)
                    stage = None
                    if not tries.again():
                        raise self._refused(stamp, str(lost), "look at the database's log") from None
                except ReconError:
                    raise
                except Exception as error:
                    what = trouble(error, self.database.kind)
                    if what == "other" and not _of_database(error):
                        raise  # a Spark job failed for a reason of its own: a cast, a check, a source
                    if what not in (*_AGAIN, "no_table") or not tries.again():
                        raise self._failed(error, stamp, tries) from None
                    log.warning("%s: %s; trying again", self._name(stamp), self.database.reason(error))
                    if what == "no_table":  # another driver that was faster tidied up our stage
                        stage = None
        except Exception:
            self._dropped(stage)
            raise
        self._dropped(stage)
        self._drop_what_crashes_left(stamp)

    def confirm(self, stamp: ReconStamp) -> Landed:
        """The entry that `write` committed, with its ranges compared."""
        entry = self._asked(lambda: self._entry(stamp), stamp)
        if entry is None:
            raise SinkError(
                f"{self._name(stamp)} left no row in {jdbc_ledger.NAME} of the {self.database.said}, though its "
                "transaction was committed; look for a trigger, a rule or a restored backup, then restart the query"
            )
        return self._as_landed(entry)

    def landed(self, stamp: ReconStamp, version: int | None) -> Landed | None:
        """What recon_ledger says of an earlier attempt."""
        entry = self._asked(lambda: self._entry(stamp), stamp)
        return None if entry is None else self._as_landed(entry)

    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        """The rows of recon_ledger for this sink."""
        tries = _Tries(self.sink.retry)
        while True:
            try:
                return jdbc_ledger.read(
                    self.database,
                    self._engine,
                    schema=self._schema,
                    target=str(self.target),
                    pipeline=self.pipeline,
                    sink=self.sink.name,
                    since=since,
                )
            except EvidenceError as error:
                reason = error.__cause__ or error
                if trouble(reason, self.database.kind) not in _AGAIN or not tries.again():
                    raise

    # -- recon_ledger ------------------------------------------------------------------------------

    def _entry(self, stamp: ReconStamp) -> JdbcEntry | None:
        """This micro-batch's entry; raises SinkError when another micro-batch has its name."""
        import sqlalchemy

        with self._engine.connect() as connection:
            self._prepared = self._prepared or sqlalchemy.inspect(connection).has_table(
                jdbc_ledger.NAME, schema=self._schema
            )
            if not self._prepared:
                return None
            entry = jdbc_ledger.find(connection, self._schema, stamp)
        if entry is not None and _without_ids(entry.stamp) != _without_ids(stamp):
            raise SinkError(
                f"{self._name(stamp)}: {jdbc_ledger.NAME} of the {self.database.said} has it with other offsets than "
                "this micro-batch: two queries write as one sink, or the ledger was lost; stop one of them, or give "
                "the sink another name, then run `recon audit`"
            )
        if entry is not None and entry.target != str(self.target):
            raise SinkError(
                f"{self._name(stamp)}: {jdbc_ledger.NAME} of the {self.database.said} has it for table {entry.target} and "
                f"not for {self.target}: another project, or an earlier one, has a pipeline and a sink of these names; "
                "give the sink another name"
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

            if not sqlalchemy.inspect(self._engine).has_table(jdbc_ledger.NAME, schema=self._schema):
                raise
        self._prepared = True

    def _asked(self, question: Callable[[], JdbcEntry | None], stamp: ReconStamp) -> JdbcEntry | None:
        tries = _Tries(self.sink.retry)
        while True:
            try:
                return question()
            except ReconError:
                raise
            except Exception as error:
                if trouble(error, self.database.kind) not in _AGAIN or not tries.again():
                    raise SinkError(
                        self._sentence(error, f"{self._name(stamp)}: {jdbc_ledger.NAME} cannot be read")
                        + ", then restart the query"
                    ) from None

    def _as_landed(self, entry: JdbcEntry) -> Landed:
        return Landed(version=None, rows=entry.rows)

    # -- the stage ---------------------------------------------------------------------------------

    def _staged(self, frame: DataFrame, stamp: ReconStamp) -> _Stage:
        self._prepare_ledger()
        columns = self._target_columns(frame, stamp)
        out, names = self._fitted(frame, columns, stamp)
        token = secrets.token_hex(4)
        table = TableName(f"{self._stages}{stamp.epoch}_{stamp.batch_id}_{token}", self._schema)
        with self._engine.begin() as connection:
            connection.exec_driver_sql(self._dialect.create_stage(table, self.target, names))
        self.reached("stage_created")
        try:
            rows = self._copied(out, table, names) if self.sink.stage_with == "copy" else self._jdbc(out, table)
            stage = _Stage(table=table, columns=tuple(names), rows=rows)
            self._require_usable(stage, stamp)
        except Exception:
            self._dropped(_Stage(table=table, columns=(), rows=0))
            raise
        self.reached("staged")
        return stage

    def _require_usable(self, stage: _Stage, stamp: ReconStamp) -> None:
        """Raises SinkError for rows that must not be moved."""

    def _jdbc(self, frame: DataFrame, table: TableName) -> int:
        """Spark's parallel JDBC append; returns how many rows the tasks wrote."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        observation = Observation()
        observed = frame.observe(observation, F.count(F.lit(1)).alias("rows"))
        options = self._spark_options(self._dialect.table(table), writes=True)
        observed.write.format("jdbc").mode("append").options(**options).save()
        rows = _observed(observation)
        # A plan that Spark emptied beforehand, or a server that reports nothing: then they are counted.
        return frame.count() if rows is None else rows

    def _copied(self, frame: DataFrame, table: TableName, names: Sequence[str]) -> int:
        """COPY from each task by psycopg; returns how many rows they wrote."""
        into, columns = self._dialect.table(table), self._dialect.quoted(names)
        statement = f"COPY {into} ({columns}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')"
        told = _as_texts(frame).mapInArrow(_copier(self.database.arguments(), statement), "rows long").collect()
        return sum(row.rows for row in told)

    def _dropped(self, stage: _Stage | None) -> None:
        """Drops a stage as well as may be; what stays is dropped after a later micro-batch."""
        if stage is None:
            return
        try:
            with self._engine.begin() as connection:
                connection.exec_driver_sql(self._dialect.drop(stage.table))
        except Exception as error:
            log.warning("staging table %s was not dropped: %s", stage.table, self.database.reason(error))

    def _drop_what_crashes_left(self, stamp: ReconStamp) -> None:
        """Stages of micro-batches that are committed by now; looked for once."""
        if self._tidy:
            return
        self._tidy = True
        import sqlalchemy

        pattern = re.compile(re.escape(self._stages) + r"(\d+)_(\d+)_[0-9a-f]+")
        try:
            for name in sqlalchemy.inspect(self._engine).get_table_names(schema=self._schema):
                found = pattern.fullmatch(name)
                if found and (int(found[1]), int(found[2])) <= (stamp.epoch, stamp.batch_id):
                    self._dropped(_Stage(table=TableName(name, self._schema), columns=(), rows=0))
        except Exception as error:
            log.warning("staging tables of earlier attempts were not looked for: %s", self.database.reason(error))

    # -- the transaction ---------------------------------------------------------------------------

    def _move(self, stage: _Stage, stamp: ReconStamp) -> None:
        """Entry and rows in one transaction. The entry comes first: a second driver waits at its key."""
        import sqlalchemy
        from sqlalchemy import func, literal_column, select
        from sqlalchemy.exc import IntegrityError

        ledger = ledger_table(self._schema)
        keys = {"pipeline": stamp.pipeline, "sink": stamp.sink, "epoch": stamp.epoch, "batch_id": stamp.batch_id}
        with self._engine.connect() as connection, connection.begin():
            try:
                connection.execute(
                    ledger.insert().values(
                        **keys,
                        query_id=stamp.query_id,
                        run_id=stamp.run_id,
                        target=str(self.target),
                        offsets=stamp.offsets_text,
                        prev_hash=stamp.prev_hash,
                        rows_given=stage.rows,
                        rows_written=0,
                        committed_at=literal_column(self._dialect.utc_now()),
                        recon_version=__version__,
                    )
                )
            except IntegrityError as error:
                raise _MetError(self.database.reason(error)) from None
            self.reached("transaction_open")
            there = connection.execute(
                select(func.count()).select_from(sqlalchemy.table(stage.table.name, schema=stage.table.schema))
            ).scalar_one()
            if there != stage.rows:
                raise _StageLostError(
                    f"staging table {stage.table} holds {there} rows and the tasks wrote {stage.rows} (the server "
                    "restarted, or Spark ran a task twice)"
                )
            rows = self._moved(connection, stage)
            connection.execute(
                ledger.update()
                .where(*(ledger.c[key] == value for key, value in keys.items()))
                .values(rows_written=rows, committed_at=literal_column(self._dialect.utc_now()))
            )
            self.reached("before_commit")
        self.reached("committed")

    @abstractmethod
    def _moved(self, connection: Connection, stage: _Stage) -> int:
        """Moves the stage's rows into the target; returns how many the target took in."""

    # -- the target's columns ----------------------------------------------------------------------

    def _target_columns(self, frame: DataFrame, stamp: ReconStamp) -> Mapping[str, _Column]:
        """The target's columns, looked up once; a table that is missing is made, where that is asked for."""
        import sqlalchemy
        from sqlalchemy.exc import NoSuchTableError

        if self._columns is not None:
            return self._columns
        inspector = sqlalchemy.inspect(self._engine)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of types that SQLAlchemy does not know
                found = inspector.get_columns(self.target.name, schema=self.target.schema)
        except NoSuchTableError:
            if not self.sink.create_table:
                raise self._refused(
                    stamp, "there is no such table", f"create {self.target}, or set create_table: true"
                ) from None
            self._create_target(frame, stamp)
            found = sqlalchemy.inspect(self._engine).get_columns(self.target.name, schema=self.target.schema)
        columns = {column["name"]: _Column(name=column["name"], type=column["type"]) for column in found}
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
        log.info("%s: made %s", self._name(stamp), self._where)

    @property
    def _keys(self) -> tuple[str, ...]:
        return ()

    def _type_of(self, field: StructField, stamp: ReconStamp, *, key: bool) -> TypeEngine[Any]:
        found = self._dialect.type_of(field.dataType, key=key)
        if found is None:
            raise self._no_type(field.name, field.dataType, stamp)
        return found

    def _no_type(self, name: str, data_type: DataType, stamp: ReconStamp) -> SinkError:
        return self._refused(
            stamp,
            f"column {name} is {data_type.simpleString()[:60]}, which a {self.database.product} column cannot hold",
            f"take it apart or write it as text (to_json({name})) in the transform",
        )

    def _no_key_column(self, key: str, among: Sequence[str], stamp: ReconStamp) -> SinkError:
        return self._refused(
            stamp,
            f"the rows have no column {key}, which is one of the keys; they have {', '.join(among)}",
            "add it in the transform, or correct keys",
        )

    def _require_fit(self, columns: Mapping[str, _Column], stamp: ReconStamp) -> None:
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

    def _fitted(
        self, frame: DataFrame, columns: Mapping[str, _Column], stamp: ReconStamp
    ) -> tuple[DataFrame, list[str]]:
        """The rows under the target's names and with instants as its columns tell them."""
        from pyspark.sql import functions as F

        folded: dict[str, list[str]] = {}
        for name in columns:
            folded.setdefault(name.lower(), []).append(name)
        names: dict[str, str] = {}
        absent: list[StructField] = []
        for field in frame.schema.fields:
            kind = field.dataType.typeName()
            if kind in _NESTED or "interval" in kind or kind == "void":
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
            self._instant(F.col(f"`{old}`"), frame.schema[old].dataType, columns[new].type).alias(new)
            for old, new in names.items()
        ]
        return frame.select(*out), list(names.values())

    def _instant(self, column: Column, data_type: DataType, to: TypeEngine[Any]) -> Column:
        """A timestamp as its column means it: an instant, or the wall clock of the session's time zone."""
        from pyspark.sql import functions as F

        if data_type.typeName() != "timestamp":
            return column
        visit = str(getattr(to, "__visit_name__", "")).upper()
        if self.database.kind == "mysql" and visit == "TIMESTAMP":
            # An instant, told in the connection's time zone, which is UTC. The driver only tells wall clocks.
            seconds = F.unix_micros(column).cast("decimal(24,6)") / F.lit(1_000_000)
            zero = F.lit(0)
            return F.lit("1970-01-01").cast("timestamp_ntz") + F.make_dt_interval(zero, zero, zero, seconds)
        with_zone = bool(getattr(to, "timezone", False)) or visit == "DATETIMEOFFSET"
        wall_clock = visit in ("TIMESTAMP", "DATETIME", "DATETIME2", "SMALLDATETIME")
        return column.cast("timestamp_ntz") if wall_clock and not with_zone else column


class JdbcUpsert(_Recorded):
    """New keys are inserted, keys that are there are updated."""

    sink: JdbcUpsertSink

    @classmethod
    def of(cls, project: Project, pipeline: str, sink: Sink) -> JdbcUpsert:
        """The writer for a sink of recon.yml."""
        assert isinstance(sink, JdbcUpsertSink)
        return cls(pipeline, sink)

    @property
    def _keys(self) -> tuple[str, ...]:
        return self.sink.keys

    def _as_landed(self, entry: JdbcEntry) -> Landed:
        return Landed(version=None, rows=entry.rows, given=entry.given)

    def _what(self, stage: _Stage) -> Upsert:
        sink = self.sink
        given = set(stage.columns)
        # What tells where a row came from goes with it, whatever else an update takes over.
        ours = [c for c in (_BATCH_ID, *_SOURCE) if c in given]
        chosen = sink.update if sink.update is not None else [c for c in stage.columns if c not in sink.keys]
        decides = [sink.newer_wins] if sink.newer_wins else []
        latest = [*decides, *sink.order_by, *(c for c in _SOURCE if c in given)]
        return Upsert(
            target=self.target,
            stage=stage.table,
            columns=stage.columns,
            keys=sink.keys,
            update=tuple(dict.fromkeys((*chosen, *decides, *ours))),
            latest=tuple(dict.fromkeys(latest)),
            newer_wins=sink.newer_wins,
        )

    def _require_fit(self, columns: Mapping[str, _Column], stamp: ReconStamp) -> None:
        super()._require_fit(columns, stamp)
        for key in self.sink.keys:
            if key not in columns:
                raise self._refused(
                    stamp,
                    f"it has no column {key}, which is one of the keys; it has {', '.join(columns)}",
                    "correct keys, whose names are the table's",
                )
        unique = list(self._unique_keys())
        if not any(set(found) == set(self.sink.keys) for found in unique):
            quoted = self._dialect.quoted(self.sink.keys)
            name = self._dialect.quote(f"{self.target.name}_recon_key")
            raise self._refused(
                stamp,
                f"it has no primary key or unique index on exactly {', '.join(self.sink.keys)}",
                f"add one: CREATE UNIQUE INDEX {name} ON {self._dialect.table(self.target)} ({quoted})",
            )
        self._other_keys = [found for found in unique if set(found) != set(self.sink.keys)]

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

    def _fitted(
        self, frame: DataFrame, columns: Mapping[str, _Column], stamp: ReconStamp
    ) -> tuple[DataFrame, list[str]]:
        out, names = super()._fitted(frame, columns, stamp)
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

    def _require_usable(self, stage: _Stage, stamp: ReconStamp) -> None:
        """NULL keys are refused, and doubles of which nothing tells the latest."""
        dialect, keys = self._dialect, self.sink.keys
        nulls = ", ".join(f"SUM(CASE WHEN {dialect.quote(key)} IS NULL THEN 1 ELSE 0 END)" for key in keys)
        with self._engine.connect() as connection:
            found = connection.exec_driver_sql(f"SELECT {nulls} FROM {dialect.table(stage.table)}").one()
            for key, count in zip(keys, found, strict=True):
                if count:
                    raise self._refused(
                        stamp,
                        f"{int(count)} of {stage.rows} rows have NULL in the key column {key}",
                        "filter them or put them aside (a post-batch not_null with on_failure: quarantine)",
                    )
            if self._what(stage).latest:
                return
            doubles = stage.rows - self._distinct_keys(connection, stage)
            if doubles:
                raise self._refused(
                    stamp,
                    f"{doubles} rows repeat a key and nothing tells which is the latest",
                    "set order_by, or keep stamp_source_offsets: true",
                )

    def _distinct_keys(self, connection: Connection, stage: _Stage) -> int:
        names = self._dialect.quoted(self.sink.keys)
        inner = f"SELECT {names} FROM {self._dialect.table(stage.table)} GROUP BY {names}"
        return int(connection.exec_driver_sql(f"SELECT COUNT(*) FROM ({inner}) AS recon_keys").scalar_one())

    def _moved(self, connection: Connection, stage: _Stage) -> int:
        what = self._what(stage)
        affected = connection.exec_driver_sql(self._dialect.upsert(what)).rowcount
        if self._dialect.counts_updates_once:
            return affected
        if not what.newer_wins:
            return self._distinct_keys(connection, stage)
        identity = [c for c in (_BATCH_ID, *_SOURCE) if c in stage.columns]
        return int(connection.exec_driver_sql(self._dialect.taken(what, identity)).scalar_one())


class JdbcAppend(_Recorded):
    """All rows are inserted."""

    sink: JdbcAppendSink

    @classmethod
    def of(cls, project: Project, pipeline: str, sink: Sink) -> JdbcSink:
        """The writer for a sink of recon.yml: through a stage, or by Spark alone where nothing guards it."""
        assert isinstance(sink, JdbcAppendSink)
        return cls(pipeline, sink) if sink.guard else JdbcPlainAppend(pipeline, sink)

    def _moved(self, connection: Connection, stage: _Stage) -> int:
        return connection.exec_driver_sql(self._dialect.insert(self.target, stage.table, stage.columns)).rowcount


class JdbcPlainAppend(JdbcSink):
    """Spark's own JDBC append: tasks commit one by one, so a retry writes rows again. The sink remembers nothing."""

    sink: JdbcAppendSink
    _written: int | None = None

    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Spark's JDBC append; it makes a table that is missing."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        for field in frame.schema.fields:
            if field.dataType.typeName() in _NESTED and self.database.kind != "postgresql":
                raise self._plain_refused(stamp, f"column {field.name} is {field.dataType.simpleString()[:60]}")
        observation = Observation()
        try:
            options = self._spark_options(self._dialect.table(self.target), writes=True)
            observed = frame.observe(observation, F.count(F.lit(1)).alias("rows"))
            observed.write.format("jdbc").mode("append").options(**options).save()
        except ReconError:
            raise
        except Exception as error:
            why, then = self._told(error)
            raise self._plain_refused(stamp, why, then) from None
        self._written = _observed(observation)

    def _plain_refused(self, stamp: ReconStamp, why: str, then: str = "write it as text in the transform") -> SinkError:
        return SinkError(
            f"{self._name(stamp)} was not wholly written to {self._where}: {why}; {then}, then restart the query: the "
            "micro-batch is written again, beside what its tasks may have committed (at-least-once)"
        )

    def confirm(self, stamp: ReconStamp) -> Landed:
        """What Spark counted; nobody else knows."""
        return Landed(version=None, rows=self._written)

    def landed(self, stamp: ReconStamp, version: int | None) -> Landed | None:
        """The ledger is trusted."""
        return Landed(version=None, rows=None)

    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        """No record."""
        return SinkLog(location=self.sink.target, exists=True, recorded=False)


def _of_database(error: BaseException) -> bool:
    """Whether the driver's part failed, or a task at what the database said."""
    from sqlalchemy.exc import SQLAlchemyError

    words = ("java.sql.", "SQLException", "SQLServerException", "psycopg")
    return isinstance(error, SQLAlchemyError) or any(word in str(error) for word in words)


def _without_ids(stamp: ReconStamp) -> str:
    # A replay may meet a broker that the first attempt did not, or the other way round.
    return offsets_text([span._replace(topic_id=None) for span in parse_offsets(stamp.offsets_text)])


def _observed(observation: Any) -> int | None:
    """The rows that Spark counted on the way; None when it does not say in time."""
    answer: list[Any] = []
    # Observation.get waits forever where Spark never reports.
    asking = threading.Thread(target=lambda: answer.append(observation.get), daemon=True)
    asking.start()
    asking.join(_OBSERVED_WITHIN_S)
    rows = answer[0].get("rows") if answer else None
    return None if rows is None else int(rows)


def _as_texts(frame: DataFrame) -> DataFrame:
    """Columns as PostgreSQL reads them from CSV; numbers and booleans are read as they are."""
    from pyspark.sql import functions as F

    out = []
    for field in frame.schema.fields:
        column, kind = F.col(f"`{field.name}`"), field.dataType.typeName()
        if kind == "timestamp":
            column = F.date_format(column, "yyyy-MM-dd HH:mm:ss.SSSSSSXXX")
        elif kind == "binary":
            column = F.concat(F.lit("\\x"), F.hex(column))
        elif kind not in ("boolean", "byte", "short", "integer", "long", "float", "double", "string"):
            column = column.cast("string")
        out.append(column.alias(field.name))
    return frame.select(*out)


def _copier(arguments: Mapping[str, Any], statement: str) -> Any:
    """What each task runs. Made here so that it is pickled whole: the executors need psycopg, and not recon."""

    def copy(batches: Any) -> Any:
        import io

        import psycopg
        import pyarrow
        import pyarrow.csv

        rows = 0
        with psycopg.connect(**arguments) as connection, connection.cursor().copy(statement) as into:
            for batch in batches:
                if batch.num_rows:
                    lines = io.BytesIO()
                    pyarrow.csv.write_csv(batch, lines, pyarrow.csv.WriteOptions(include_header=False))
                    into.write(lines.getvalue())
                    rows += batch.num_rows
        yield pyarrow.RecordBatch.from_pydict({"rows": [rows]}, schema=pyarrow.schema([("rows", pyarrow.int64())]))

    return copy


__all__ = ["JdbcAppend", "JdbcPlainAppend", "JdbcSink", "JdbcUpsert"]
