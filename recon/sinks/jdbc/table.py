"""A table of a database: how Spark and Python reach it, reading it back, and errors in one sentence."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.errors import EvidenceError, ReconError, SinkError
from recon.model import ReconStamp
from recon.project import Project, Sink
from recon.project.sinks import JdbcAppendSink, JdbcUpsertSink, Retry
from recon.sinks.base import BatchSink, Landed, rows_of_batch
from recon.sinks.jdbc.database import Database, Trouble, trouble
from recon.sinks.jdbc.dialects import Dialect, TableName, dialect_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from sqlalchemy.engine import Engine

# Errors after which a retry may succeed.
AGAIN: frozenset[Trouble] = frozenset({"again", "connection"})


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
    """What all JDBC sinks have in common: the table, how Spark reads it, and errors."""

    def __init__(self, pipeline: str, sink: JdbcUpsertSink | JdbcAppendSink) -> None:
        """The database is not contacted before the first call of a method."""
        self.pipeline, self.sink = pipeline, sink
        self.database = Database.of(sink.connection, sink.driver_options)
        self.target = TableName.parse(sink.target)

    @classmethod
    @override
    def of(cls, project: Project, pipeline: str, sink: Sink) -> JdbcWriter:
        assert isinstance(sink, (JdbcUpsertSink, JdbcAppendSink))
        return cls(pipeline, sink)

    @cached_property
    def _engine(self) -> Engine:
        return self.database.engine()

    @cached_property
    def _dialect(self) -> Dialect:
        self._engine  # noqa: B018 - raises where SQLAlchemy is not installed
        return dialect_of(self.database.kind)

    @property
    def _schema(self) -> str | None:
        """Where recon_ledger and the staging tables are."""
        return self.sink.work_schema or self.target.schema

    # -- read back ---------------------------------------------------------------------------------

    @override
    def table(self, spark: SparkSession) -> DataFrame:
        try:
            quoted = self._dialect.table(self.target)
            return spark.read.format("jdbc").options(**self._spark_options(quoted, writes=False)).load()
        except ReconError:
            raise
        except Exception as error:
            raise EvidenceError(self._sentence(error, f"{self._where} cannot be read by Spark")) from None

    @override
    def rows_of(self, spark: SparkSession, landed: Landed, stamp: ReconStamp) -> DataFrame:
        return rows_of_batch(self.table(spark), stamp)

    def _spark_options(self, table: str, *, writes: bool) -> dict[str, str]:
        """Options of Spark's JDBC source for a table whose name is quoted already."""
        database, options = self.database, dict(self.sink.options)
        url = database.url
        if database.product == "mariadb" and database.java_driver.startswith("org.mariadb."):
            # Spark knows how MySQL quotes names, and for `jdbc:mariadb:` would read "name" as a text.
            url = url.replace("jdbc:mariadb:", "jdbc:mysql:", 1) + ("&" if "?" in url else "?") + "permitMysqlScheme"
        if database.kind == "mysql":
            # Values that are too long are errors whatever the server's setting is; instants are in UTC.
            ours = "sql_mode=CONCAT(@@sql_mode,',STRICT_ALL_TABLES'),time_zone='+00:00'"
            options["sessionVariables"] = ",".join(filter(None, (options.get("sessionVariables"), ours)))
        if writes and database.product == "mysql":
            options.setdefault("rewriteBatchedStatements", "true")
        if writes and database.kind == "postgresql":
            # The server converts texts to json, uuid, enums and so on; one INSERT has several rows.
            options.setdefault("stringtype", "unspecified")
            options.setdefault("reWriteBatchedInserts", "true")
        if writes:
            options.setdefault("batchsize", "10000")
        login = {"user": database.user, "password": database.password}
        login_options = {key: value for key, value in login.items() if value}
        return {**options, **login_options, "url": url, "dbtable": table, "driver": database.java_driver}

    # -- errors ------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return f"table {self.target} of the {self.database.label}"

    def _refused(self, stamp: ReconStamp, why: str, then: str) -> SinkError:
        return SinkError(
            f"{stamp.label} was not written to {self._where}: {why}; {then}, then restart the query: nothing of "
            "the micro-batch is there, and it is written again"
        )

    def _failed(self, error: BaseException, stamp: ReconStamp, tries: Tries | None = None) -> SinkError:
        why, then = self._reason_and_step(error)
        if tries is not None and trouble(error, self.database.kind) in AGAIN:
            why = f"{why} ({tries.label})"
        return self._refused(stamp, why, then)

    def _sentence(self, error: BaseException, what: str) -> str:
        why, then = self._reason_and_step(error)
        return f"{what}: {why}; {then}"

    def _reason_and_step(self, error: BaseException) -> tuple[str, str]:
        """The reason of an error, and the next step."""
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
                "remove duplicates in the transform, or name the columns of that key as keys",
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
            "other": (reason, "correct the cause that the database names"),
        }
        return steps[trouble(error, database.kind)]


def of_database(error: BaseException) -> bool:
    """Whether the error is one of the database, on the driver or in a task."""
    from sqlalchemy.exc import SQLAlchemyError

    words = ("java.sql.", "SQLException", "SQLServerException", "psycopg")
    return isinstance(error, SQLAlchemyError) or any(word in str(error) for word in words)
