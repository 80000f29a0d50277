"""What recon.yml may say of a database, how its URL is read, and what errors mean; no server."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo
from sqlalchemy.exc import OperationalError

from recon.base.errors import ConfigError
from recon.project import load
from recon.project.jdbc import parse_url
from recon.project.messages import BadValue
from recon.project.sinks import JdbcAppendSink, JdbcUpsertSink
from recon.write.sinks import open_sink
from recon.write.sinks.jdbc.database import Database
from recon.write.sinks.jdbc.errors import cause_of, reason
from recon.write.sinks.jdbc.writers import JdbcAppend, JdbcUpsert
from tests.support.messages import raises

FILE = """\
name: shop
ledger: ledger
pipelines:
  - name: orders
    checkpoint: checkpoint
    sinks:
      - name: orders
        kind: jdbc_upsert
        target: shop.orders
        connection:
          url: "{{ env_var('DB_URL') }}"
          user: "{{ env_var('DB_USER', 'recon') }}"
          password: "{{ env_var('DB_PASSWORD') }}"
        keys: [order_id]
"""
PASSWORD = "s3cret-words"


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.setenv("DB_URL", "jdbc:postgresql://db.example:5433/shop")
    monkeypatch.setenv("DB_PASSWORD", PASSWORD)

    def write(old: str = "", new: str = "") -> Path:
        assert old in FILE
        (tmp_path / "recon.yml").write_text(FILE.replace(old, new, 1) if old else FILE)
        return tmp_path

    return write


def test_a_sink_of_recon_yml(written: Callable[..., Path]) -> None:
    project = load(written())
    sink = project.pipelines[0].sinks[0]
    assert isinstance(sink, JdbcUpsertSink) and sink.rewrites and sink.guarantee == "exactly-once"
    assert (sink.retry.attempts, sink.stage_with, sink.update, project.location(sink)) == (
        6,
        "jdbc",
        None,
        "shop.orders",
    )
    assert PASSWORD not in repr(project) and "db.example" not in repr(sink)
    assert project.mask(f"cannot log in with {PASSWORD}") == "cannot log in with ***"
    writer = open_sink(project, "orders", sink)  # connects to nothing
    assert PASSWORD not in repr(vars(writer))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("\"{{ env_var('DB_PASSWORD') }}\"", PASSWORD, "password of sink 'orders' is written into the file"),
        ("\"{{ env_var('DB_PASSWORD') }}\"", f"\"{{{{ env_var('NO', '{PASSWORD}') }}}}\"", "is written into the file"),
        (
            "        keys:",
            "        options: {sslPassword: in-the-file}\n        keys:",
            "sslPassword of sink 'orders' is written",
        ),
        ("\"{{ env_var('DB_URL') }}\"", f"jdbc:postgresql://h/d?password={PASSWORD}", "must not hold a password"),
        ("\"{{ env_var('DB_URL') }}\"", f"jdbc:mysql://me:{PASSWORD}@h/d", "must not hold a password"),
        (
            "\"{{ env_var('DB_URL') }}\"",
            f"jdbc:sqlserver://h:1;databaseName=d;Password={PASSWORD}",
            "must not hold a password",
        ),
        ("\"{{ env_var('DB_URL') }}\"", "postgresql://h/d", "must be the JDBC URL of PostgreSQL, MariaDB, MySQL or"),
        ("\"{{ env_var('DB_URL') }}\"", "jdbc:oracle:thin:@h:1521/d", "must be the JDBC URL of"),
        ("          user:", "          usr: x\n          user:", "has no key 'usr'; did you mean 'user'?"),
        (
            "        keys:",
            "        options: {dbtable: x}\n        keys:",
            "'dbtable' in options of sink 'orders' belongs in connection",
        ),
        ("        keys: [order_id]\n", "        keys: []\n", "keys"),
        ("        keys:", "        update: [order_id]\n        keys:", "names 'order_id', which is one of the keys"),
        (
            "        keys:",
            "        newer_wins: order_id\n        keys:",
            "one of the keys; it has to tell rows of a key apart",
        ),
        ("        keys:", "        retry: {attempts: 0}\n        keys:", "attempts"),
        ("        keys:", "        retry: {tries: 3}\n        keys:", "unknown key 'tries'"),
    ],
)
def test_one_sentence_and_no_password(written: Callable[..., Path], old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(old, new))
    assert said in str(caught.value) and PASSWORD not in str(caught.value) and "\n" not in str(caught.value)


def test_copy_is_postgresqls(written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written("        keys:", "        stage_with: copy\n        keys:")
    assert load(folder).pipelines[0].sinks[0].stage_with == "copy"  # type: ignore[union-attr]
    monkeypatch.setenv("DB_URL", "jdbc:mariadb://db/shop")
    with raises(ConfigError):
        load(folder)


def test_an_append_says_what_guards_it() -> None:
    given: dict[str, Any] = {
        "name": "s",
        "kind": "jdbc_append",
        "target": "t",
        "connection": {"url": "jdbc:mysql://h/d"},
    }
    assert JdbcAppendSink.model_validate(given).guarantee == "exactly-once"
    assert JdbcAppendSink.model_validate({**given, "guard": False}).guarantee == "at-least-once"
    assert not JdbcAppendSink.rewrites


@pytest.mark.parametrize(
    ("url", "product", "hosts", "database"),
    [
        ("jdbc:postgresql://a:1,b/shop?sslmode=require", "postgresql", (("a", 1), ("b", 5432)), "shop"),
        ("jdbc:mariadb://a/shop", "mariadb", (("a", 3306),), "shop"),
        ("jdbc:mysql://a", "mysql", (("a", 3306),), ""),
        ("jdbc:sqlserver://a;databaseName=shop;encrypt=true", "sqlserver", (("a", 1433),), "shop"),
    ],
)
def test_urls(url: str, product: str, hosts: object, database: str) -> None:
    found = parse_url(url)
    assert (found.product, found.hosts, found.database) == (product, hosts, database)


@pytest.mark.parametrize("url", ["jdbc:postgresql://a:port/d", "jdbc:h2:mem:x", "", "jdbc:postgresql://u:p@h/d"])
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(BadValue):
        parse_url(url)


def _database(url: str, **more: str) -> Database:
    return Database.of({"url": url, "user": "me", "password": PASSWORD, **more})


def test_what_pythons_driver_is_called_with() -> None:
    found = _database(
        "jdbc:postgresql://a:1,b/shop?sslmode=verify-full&currentSchema=s&targetServerType=primary"
    ).arguments()
    assert found == {
        "host": "a,b",
        "port": "1,5432",
        "dbname": "shop",
        "user": "me",
        "password": PASSWORD,
        "connect_timeout": 10,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
        "sslmode": "verify-full",
        "options": "-csearch_path=s",
        "target_session_attrs": "read-write",
    }
    assert make_conninfo(**found)  # libpq knows each of them
    found = _database("jdbc:mysql://a/shop").arguments()
    assert (found["host"], found["port"], found["database"], "ssl" in found) == ("a", 3306, "shop", False)
    found = _database("jdbc:mariadb://a/shop?sslMode=verify-full&serverSslCert=/ca.pem").arguments()
    assert (found["ssl_ca"], found["ssl_verify_cert"], found["ssl_verify_identity"]) == ("/ca.pem", True, True)
    found = _database("jdbc:sqlserver://a:1434;databaseName=shop").arguments()
    assert (found["server"], found["port"], found["encryption"]) == ("a", "1434", "require")
    own = Database.of({"url": "jdbc:mysql://a/shop"}, {"connect_timeout": 3}).arguments()
    assert own["connect_timeout"] == 3 and "user" not in own


@pytest.mark.parametrize("url", ["jdbc:postgresql://127.0.0.1:1/d", "jdbc:mysql://127.0.0.1:1/d"])
def test_an_engine_connects_when_it_is_asked_and_not_before(url: str) -> None:
    from sqlalchemy.exc import OperationalError

    database = _database(url)
    engine = database.engine()
    with pytest.raises(OperationalError) as caught:
        engine.connect()
    assert cause_of(caught.value, database.kind) == "connection" and PASSWORD not in reason(caught.value, database)


def test_sql_server_is_reached_by_pymssql() -> None:
    engine = _database("jdbc:sqlserver://127.0.0.1:1;databaseName=d").engine()
    assert (engine.dialect.name, engine.dialect.driver) == ("mssql", "pymssql")


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pymysql", None)
    with raises(ConfigError):
        _database("jdbc:mariadb://a/shop").engine()
    monkeypatch.setitem(__import__("sys").modules, "sqlalchemy", None)
    with raises(ConfigError):
        _database("jdbc:postgresql://a/shop").engine()


HALF_IMPORTED = """\
import sys, threading
import sqlalchemy
from recon.write.sinks.jdbc.database import Database

half_through, seen = threading.Event(), []

class Slow:
    def find_spec(self, name, path, target=None):
        if name == "sqlalchemy.orm.interfaces":
            half_through.set()
            query.join(2)

def write():
    half_through.wait()
    Database.of({"url": "jdbc:postgresql://127.0.0.1:1/d"}).engine()
    seen.append(sqlalchemy.inspect(sqlalchemy.quoted_name("orders", None), raiseerr=False))

sqlalchemy.create_engine("postgresql+psycopg://")
sys.meta_path.insert(0, Slow())
query = threading.Thread(target=write)
query.start()
import sqlalchemy.orm
query.join()
assert seen == [None]
"""


def test_an_import_of_sqlalchemy_that_another_query_has_begun_is_awaited() -> None:
    subprocess.run([sys.executable, "-c", HALF_IMPORTED], check=True)


class StateError(Exception):
    def __init__(self, state: str) -> None:
        super().__init__("said")
        self.sqlstate = state


@pytest.mark.parametrize(
    ("kind", "error", "meaning"),
    [
        ("postgresql", StateError("40P01"), "conflict"),
        ("postgresql", StateError("08006"), "connection"),
        ("postgresql", StateError("57P01"), "connection"),
        ("postgresql", StateError("42501"), "denied"),
        ("postgresql", StateError("22001"), "value"),
        ("postgresql", StateError("23505"), "unique"),
        ("postgresql", StateError("42601"), "other"),
        ("mysql", Exception(1213, "Deadlock found"), "conflict"),
        ("mysql", Exception(2013, "Lost connection"), "connection"),
        ("mysql", Exception(1142, "INSERT command denied"), "denied"),
        ("mysql", Exception(1045, "Access denied"), "login"),
        ("mysql", Exception(1406, "Data too long"), "value"),
        ("mysql", Exception(1064, "syntax"), "other"),
        ("mssql", Exception(1205, b"deadlock victim"), "conflict"),
        ("mssql", Exception((20003, b"timed out")), "connection"),
        ("mssql", Exception(40613, b"Database is not currently available"), "connection"),
        ("mssql", Exception(229, b"The INSERT permission was denied"), "denied"),
        ("mssql", Exception(2627, b"Violation of PRIMARY KEY"), "unique"),
    ],
)
def test_what_an_error_of_a_driver_means(kind: Any, error: Exception, meaning: str) -> None:
    from sqlalchemy.exc import OperationalError

    assert cause_of(OperationalError("INSERT", {}, error), kind) == meaning


_JOB = "An error occurred while calling o9.save.\n: org.apache.spark.SparkException: Job aborted due to stage failure: "


@pytest.mark.parametrize(
    ("text", "meaning", "message"),
    [
        (
            f"{_JOB}Lost task 0.0: java.sql.BatchUpdateException: Batch entry 0 INSERT INTO s VALUES ('connection "
            "closed') was aborted: ERROR: value too long for type character varying(5)  Call getNextException to see "
            "other errors in the batch.\n\tat org.postgresql.Driver.x(Driver.java:1)",
            "value",
            "ERROR: value too long for type character varying(5)",
        ),
        (
            f"{_JOB}Lost: org.postgresql.util.PSQLException: Connection to 127.0.0.1:5 refused. Check the name\n",
            "connection",
            "PSQLException: Connection to 127.0.0.1:5 refused. Check the name",
        ),
        (
            f"{_JOB}x: java.sql.BatchUpdateException: (conn=7) Data too long for column 'a' at row 1\n\tat x",
            "value",
            None,
        ),
        (f"{_JOB}org.postgresql.util.PSQLException: FATAL: terminating connection due to crash\n", "connection", None),
        ("An error\n: java.lang.ClassNotFoundException: org.postgresql.Driver\n\tat", "jar", None),
        (f"{_JOB}PythonException: x\nModuleNotFoundError: No module named 'psycopg'\n", "python", None),
        (f"{_JOB}psycopg.errors.StringDataRightTruncation: value too long\nCONTEXT: COPY s\n", "value", None),
        (f"{_JOB}java.lang.ArithmeticException: divide by zero\n\tat Connection.closed(x)", "other", None),
    ],
)
def test_what_an_error_of_a_spark_job_means(text: str, meaning: str, message: str | None) -> None:
    assert cause_of(Exception(text), "postgresql") == meaning
    found = reason(Exception(text), _database("jdbc:postgresql://a/shop"))
    assert "\n" not in found and (message is None or found == message)


def test_no_reason_shows_a_password_or_a_url() -> None:
    told = Exception(f"ERROR: no {PASSWORD} at jdbc:postgresql://a/shop?x=1 today")
    assert reason(told, _database("jdbc:postgresql://a/shop")) == "ERROR: no *** at jdbc:*** today"


@pytest.mark.parametrize(
    "sink",
    [
        JdbcAppendSink(name="s", kind="jdbc_append", target="t", connection={"url": "jdbc:postgresql://127.0.0.1:1/x"}),
        JdbcUpsertSink(
            name="s", kind="jdbc_upsert", target="t", keys=["k"], connection={"url": "jdbc:postgresql://127.0.0.1:1/x"}
        ),
    ],
    ids=["append", "upsert"],
)
def test_a_writer_is_pickled_before_its_first_write_and_is_gone_after_its_last_reading(sink: Any) -> None:
    """Spark Connect sends it to the server with the function of foreachBatch; an audit makes one for each sink."""
    writer = (JdbcUpsert if isinstance(sink, JdbcUpsertSink) else JdbcAppend)("p", sink)
    sent = pickle.loads(pickle.dumps(writer))
    assert sent.database == writer.database
    with pytest.raises(OperationalError):  # nobody listens: it went as far as its database
        sent.engine.connect()
    assert writer.engine.pool.checkedin() == 0
    gone = weakref.ref(writer)
    gc.disable()
    try:
        del writer
        assert gone() is None
    finally:
        gc.enable()
