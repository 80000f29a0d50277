"""What all JDBC sinks have in common: how Spark and Python reach the table, reading it back, retries, errors."""

from __future__ import annotations

import re
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from recon.base.errors import EvidenceError, ReconError, SinkError
from recon.base.limits import STATEMENT_S
from recon.model import ReconStamp, TableCount, Unavailable
from recon.model.fingerprint import PRIME, of_sums
from recon.model.sample import FoundRow, Place
from recon.model.wire.columns import BATCH_ID, SOURCE_COLUMNS
from recon.project import Project, Sink
from recon.project.sinks import JdbcAppendSink, JdbcUpsertSink, Retry
from recon.spark.observation import Counter
from recon.write.sinks.base import BatchSink, ConfirmedWrite, rows_of_batch
from recon.write.sinks.jdbc.database import Database
from recon.write.sinks.jdbc.dialects import Dialect, TableName, dialect_of
from recon.write.sinks.jdbc.errors import RETRIED, cause_of, reason, reason_and_step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from sqlalchemy.engine import Connection, CursorResult, Engine

T = TypeVar("T")
# An audit gives the whole count up after this and a little more: what was counted until then is known all the same.
_COUNTED_WITHIN_S = STATEMENT_S - 10
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # what Kafka allows as a name


def _of_kafka(topics: Collection[str]) -> list[str]:
    return sorted(topic for topic in topics if _TOPIC.fullmatch(topic))


class Tries:
    """A bounded number of attempts, with pauses that double."""

    def __init__(self, retry: Retry) -> None:
        self._retry, self._made, self._began = retry, 1, time.monotonic()

    def again(self) -> bool:
        """Pause and return True; False when the bounds are reached."""
        pause = self._retry.pause * 2 ** (self._made - 1)
        spent = time.monotonic() - self._began
        if self._made >= self._retry.attempts or spent + pause > self._retry.within:
            return False
        time.sleep(pause)
        self._made += 1
        return True

    @property
    def label(self) -> str:
        """The number of attempts and the time they took."""
        return f"{self._made} attempt{'s' if self._made > 1 else ''} in {time.monotonic() - self._began:.0f} s"


class JdbcWriter(BatchSink):
    """A sink that writes a table of a database."""

    def __init__(self, pipeline: str, sink: JdbcUpsertSink | JdbcAppendSink) -> None:
        """The database is not contacted before the first call of a method."""
        self.pipeline, self.sink = pipeline, sink
        self.database = Database.of(sink.connection, sink.driver_options)
        self.target = TableName.parse(sink.target)
        self.work_schema = sink.work_schema or self.target.schema  # where recon_ledger and the staging tables are

    @classmethod
    @override
    def of(cls, project: Project, pipeline: str, sink: Sink) -> JdbcWriter:
        assert isinstance(sink, (JdbcUpsertSink, JdbcAppendSink))
        return cls(pipeline, sink)

    @cached_property
    def engine(self) -> Engine:
        """Connects Python to the database, until the writer is gone."""
        engine = self.database.engine()
        # SQLAlchemy's engine is part of reference cycles, so its connections stay open until the garbage collector
        # runs. A process that audits many sinks would use up the connections that the server allows.
        weakref.finalize(self, engine.dispose)
        return engine

    @cached_property
    def dialect(self) -> Dialect:
        """The database's SQL."""
        self.engine  # noqa: B018 - raises where SQLAlchemy is not installed
        return dialect_of(self.database.kind)

    def append_by_spark(self, frame: DataFrame, table: TableName) -> int | None:
        """Spark's parallel JDBC append; the rows that its tasks wrote, None where Spark does not report the number."""
        counter = Counter(frame)
        options = self._spark_options(table, writes=True)
        counter.frame.write.format("jdbc").mode("append").options(**options).save()
        return counter.rows()

    # -- read back ---------------------------------------------------------------------------------

    @override
    def rows_at(self, places: Mapping[Place, Collection[int]]) -> Mapping[Place, Sequence[FoundRow]]:
        if not self.sink.stamp_source_offsets:
            raise EvidenceError(f"{self.where} has no column {SOURCE_COLUMNS[0]}, so its rows name no source record")
        try:
            return self._rows_at(places)
        except ReconError as error:
            raise EvidenceError(str(error)) from None
        except Exception as error:  # whatever a driver raises: nothing was looked at
            raise EvidenceError(self.sentence(error, f"{self.where} cannot be read")) from None

    def _rows_at(self, places: Collection[Place]) -> dict[Place, list[FoundRow]]:
        from sqlalchemy import text

        names, table = (BATCH_ID, *SOURCE_COLUMNS), self.dialect.table(self.target)
        batch, *source = (self.dialect.quote(name) for name in names)
        where = " AND ".join(f"{column} = :{name}" for column, name in zip(source, ("t", "p", "o"), strict=True))
        found: dict[Place, list[FoundRow]] = {}
        with self.engine.connect() as connection:
            for place in places:
                values = dict(zip(("t", "p", "o"), place, strict=True))
                rows = connection.execute(text(f"SELECT {batch} FROM {table} WHERE {where}"), values).all()
                if rows:
                    found[place] = [FoundRow(f"row of {self.target}", row[0]) for row in rows]
        return found

    @override
    def table(self, spark: SparkSession) -> DataFrame:
        try:
            options = self._spark_options(self.target, writes=False)
            return spark.read.format("jdbc").options(**options).load()
        except ReconError:
            raise
        except Exception as error:
            raise EvidenceError(self.sentence(error, f"{self.where} cannot be read by Spark")) from None

    @override
    def rows_of(self, spark: SparkSession, landed: ConfirmedWrite, stamp: ReconStamp) -> DataFrame:
        return rows_of_batch(self.table(spark), stamp)

    def _spark_options(self, table: TableName, *, writes: bool) -> dict[str, str]:
        """Options of Spark's JDBC source for a table."""
        database, options = self.database, dict(self.sink.options)
        url = database.url
        if database.product == "mariadb" and database.java_driver.startswith("org.mariadb."):
            # Spark knows how MySQL quotes names, and for `jdbc:mariadb:` would read "name" as a text.
            url = url.replace("jdbc:mariadb:", "jdbc:mysql:", 1) + ("&" if "?" in url else "?") + "permitMysqlScheme"
        if database.kind == "mysql":
            # Values that are too long are errors whatever the server's setting is; instants are in UTC.
            settings = "sql_mode=CONCAT(@@sql_mode,',STRICT_ALL_TABLES'),time_zone='+00:00'"
            options["sessionVariables"] = ",".join(filter(None, (options.get("sessionVariables"), settings)))
        if writes and database.product == "mysql":
            options.setdefault("rewriteBatchedStatements", "true")
        if writes and database.kind == "postgresql":
            # The server converts texts to json, uuid, enums and so on; one INSERT has several rows.
            options.setdefault("stringtype", "unspecified")
            options.setdefault("reWriteBatchedInserts", "true")
        if writes:
            options.setdefault("batchsize", "10000")
        login = {"user": database.user, "password": database.password}
        options |= {key: value for key, value in login.items() if value}
        return {**options, "url": url, "dbtable": self.dialect.table(table), "driver": database.java_driver}

    # -- count its rows ----------------------------------------------------------------------------

    @override
    def count(self, topics: Collection[str], since: datetime | None = None, known: int = 0) -> TableCount | None:
        """Counted in one snapshot with the record, where the database has them; None where rows are merged by keys.

        Raises:
            EvidenceError: the database does not count the rows.
        """
        from sqlalchemy.exc import SQLAlchemyError

        if self.sink.rewrites or not self.dialect.reads_snapshots:
            return None
        try:
            return self._retried(lambda: self._count(frozenset(topics), since, known))
        except SQLAlchemyError as error:
            raise EvidenceError(
                f"the rows of the {self.where} cannot be counted: {reason(error, self.database)}; check the connection "
                "and the user's right to read the table"
            ) from error

    def _count(self, topics: frozenset[str], since: datetime | None, known: int) -> TableCount:
        began = time.monotonic()

        def left() -> int:
            return max(int(_COUNTED_WITHIN_S - (time.monotonic() - began)), 1)

        with self.engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
            source, batch = self._own_columns(connection)
            counted = connection.exec_driver_sql(self.dialect.count_rows(self.target, source, batch)).all()
            numbered = {topic: int(number) for topic, _, number in counted}
            count = TableCount(
                rows={topic: int(number) for topic, number, _ in counted},
                numbered=numbered if source and self.sink.stamp_source_offsets else {},
                topics=topics,
                repeated=0,
            )
            count = self._with_record(count, connection, since, known)
            if count.written is not None and source and batch is not None:
                count = replace(count, fingerprint=self._fingerprint(connection, source, topics, batch, left()))
            # Last: where it fails, the database takes no further statement of the transaction.
            repeated = self._repeated(connection, source, topics, left())
            if since is not None and isinstance(repeated, int) and repeated:
                count = self._with_record(count, connection, None, known)
            return replace(count, repeated=repeated)

    def _is_gone(self) -> bool:
        """Whether the database says that there is no such table; any other error is left to the count of the rows."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with self.engine.connect() as connection:
                connection.exec_driver_sql(f"SELECT 1 FROM {self.dialect.table(self.target)} WHERE 1 = 0")
        except SQLAlchemyError as error:
            return cause_of(error, self.database.kind) == "no_table"
        return False

    def _own_columns(self, connection: Connection) -> tuple[Sequence[str], str | None]:
        """The table's own names of the columns that say which record a row was made of, and of `_batch_id`.

        The first is empty where the table lacks one of the columns.
        """
        import sqlalchemy
        from sqlalchemy.exc import NoSuchTableError

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of types that SQLAlchemy does not know
            try:
                columns = sqlalchemy.inspect(connection).get_columns(self.target.name, schema=self.target.schema)
            except NoSuchTableError:
                return [], None  # the count says so in the database's words
        by_name = {column["name"].lower(): column["name"] for column in reversed(columns)}
        source = [by_name[wanted] for wanted in SOURCE_COLUMNS if wanted in by_name]
        return source if len(source) == len(SOURCE_COLUMNS) else [], by_name.get(BATCH_ID)

    def _repeated(
        self, connection: Connection, source: Sequence[str], topics: Collection[str], seconds: int
    ) -> int | Unavailable:
        from sqlalchemy.exc import SQLAlchemyError

        if isinstance(self.sink, JdbcAppendSink) and not self.sink.count_offsets:
            return Unavailable("sink_logs", "recon.yml says count_offsets: false", skipped=True)
        if not source:
            return Unavailable("sink_logs", f"it has no columns {', '.join(SOURCE_COLUMNS)}")
        of_kafka = _of_kafka(topics)
        if not of_kafka:
            return Unavailable("sink_logs", "it has no rows of a topic of Kafka's")
        query = self.dialect.count_repeated(self.target, source, of_kafka)
        try:
            return int(self._limited(connection, query, seconds).scalar_one())
        except SQLAlchemyError as error:
            if cause_of(error, self.database.kind) == "connection":
                raise
            why = f"its rows were not compared by their source offsets within {seconds} s"
            return Unavailable("sink_logs", f"{why}: {reason(error, self.database)}")

    def _fingerprint(
        self, connection: Connection, source: Sequence[str], topics: Collection[str], batch: str, seconds: int
    ) -> int | Unavailable | None:
        """That of the source offsets; None where no topic of Kafka's is read."""
        from sqlalchemy.exc import SQLAlchemyError

        names = _of_kafka(topics)
        if not names:
            return None
        query = self.dialect.sum_offsets(self.target, source, names, batch)
        try:
            with connection.begin_nested():  # where it fails, the transaction goes on
                sums = [tuple(map(int, row)) for row in self._limited(connection, query, seconds)]
        except SQLAlchemyError as error:
            if cause_of(error, self.database.kind) == "connection":
                raise
            why = f"the fingerprint of its source offsets was not computed within {seconds} s"
            return Unavailable("sink_logs", f"{why}: {reason(error, self.database)}")
        return sum(of_sums(names[number], *of_place) for number, *of_place in sums) % PRIME

    def _limited(self, connection: Connection, query: str, seconds: int) -> CursorResult[Any]:
        """The result of a query, which the database gives up after so many seconds."""
        mariadb = bool(getattr(connection.dialect, "is_mariadb", False))
        *before, last = self.dialect.limited(query, seconds, mariadb=mariadb)
        for statement in before:
            connection.exec_driver_sql(statement)
        return connection.exec_driver_sql(last)

    def _with_record(self, count: TableCount, connection: Connection, since: datetime | None, known: int) -> TableCount:
        """Adds what the table's record accounts for, where there is one."""
        return count

    def _retried(self, read: Callable[[], T]) -> T:
        """What `read` returns, called again, within bounds, where that may help."""
        tries = Tries(self.sink.retry)
        while True:
            try:
                return read()
            except ReconError:
                raise
            except Exception as error:
                if not self.may_retry(error) or not tries.again():
                    raise

    # -- errors ------------------------------------------------------------------------------------

    @property
    def where(self) -> str:
        """The table, in messages."""
        return f"table {self.target} of the {self.database.label}"

    def refused(self, stamp: ReconStamp, why: str, then: str) -> SinkError:
        """The error that nothing of a micro-batch was written."""
        return SinkError(
            f"{stamp.label} was not written to {self.where}: {why}; {then}, then restart the query: nothing of "
            "the micro-batch is there, and it is written again"
        )

    def failed(self, error: BaseException, stamp: ReconStamp, tries: Tries | None = None) -> SinkError:
        """`refused`, for a reason that the database names."""
        why, then = self.reason_and_step(error)
        if tries is not None and self.may_retry(error):
            why = f"{why} ({tries.label})"
        return self.refused(stamp, why, then)

    def sentence(self, error: BaseException, what: str) -> str:
        """What went wrong, why, and the next step."""
        why, then = self.reason_and_step(error)
        return f"{what}: {why}; {then}"

    def reason_and_step(self, error: BaseException) -> tuple[str, str]:
        """The reason of an error, and the next step."""
        return reason_and_step(error, self.database, str(self.target), self.work_schema)

    def may_retry(self, error: BaseException) -> bool:
        """Whether the same may succeed now."""
        return cause_of(error, self.database.kind) in RETRIED
