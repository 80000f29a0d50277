"""Shared fixtures. Real parts start only when a test asks for them, once a run."""

from __future__ import annotations

import gc
import itertools
import os
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from recon.base.errors import ConfigError
from tests.support import advice, died_processes, fault_cases, recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.kafka import LocalKafka
    from tests.support.mariadb import LocalMariaDB
    from tests.support.postgres import LocalPostgres

# Every JVM of the tests runs for minutes at most: the optimising compiler would take more CPU than it saves. Without it
# the JVM keeps 48 MB for compiled code, which Spark's generated classes fill: it would discard and compile without end.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC")

# How long an example takes, or is made, says how busy the machine is: speed is measured in bench/, never by a test.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")

_HERE = Path(__file__).parent
# Two processes end at about the same time when the files that take minutes come first.
_LONG = (
    "crash/test_killed.py",
    "cases/test_quarantine.py",
    "spark/test_incremental.py",
    "cluster/test_cluster_audit.py",
    "kafka/test_kafka_sink.py",
    "crash/test_killed_repair.py",
    "crash/test_outages.py",
    "cases/test_delta_merge.py",
    "cases/test_incremental_stream.py",
)
# A folder's tests carry its marker, and a fixture's tests the fixture's.
_MARKED_FOLDERS = {"spark", "kafka", "browser", "cluster", "connect", "demo", "crash"}
_MARKED_FIXTURES = {
    "spark": "spark",
    "kafka": "kafka",
    "topic": "kafka",
    "postgres": "database",
    "mariadb": "database",
}


_COLLECTED_EVERY = 8
_tests_with_spark = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {_HERE / file: place for place, file in enumerate(_LONG)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    for item in items:
        folder = item.path.relative_to(_HERE).parts[0] if item.path.is_relative_to(_HERE) else ""
        marks = {folder} & _MARKED_FOLDERS
        marks |= {_MARKED_FIXTURES[f] for f in getattr(item, "fixturenames", ()) if f in _MARKED_FIXTURES}
        for mark in sorted(marks):
            item.add_marker(mark)


@pytest.hookimpl(trylast=True)  # after pytest's own faulthandler
def pytest_configure(config: pytest.Config) -> None:
    died_processes.watch(config)


def pytest_deselected(items: list[pytest.Item]) -> None:
    from tests.support.messages import not_run

    not_run(item.nodeid for item in items)


_RECORDER = recorded.recorder()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    ran = yield
    if _RECORDER is not None:
        _RECORDER.write(item.nodeid)
    return ran


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    ran = yield from fault_cases.watched(item)
    advice.require_taken(step for mark in item.iter_markers("advice") for step in mark.args)
    return ran


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Lets Spark's driver forget what a test made.

    Python holds the driver's frames alive, and its own full collections come ever more rarely as the process grows:
    after some hundred tests the driver would only collect garbage. A full collection takes half a second.
    """
    torn_down = yield
    with_spark = any(item.iter_markers("spark")) or "spark" in getattr(item, "fixturenames", ())
    if with_spark and next(_tests_with_spark) % _COLLECTED_EVERY == 0:
        gc.collect()
    return torn_down


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    fault_cases.note(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # xdist: its processes report to this one
        fault_cases.keep()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """One real broker for the whole run; `kafka.log_file` has its log. Do not stop it: start your own."""
    from tests.support.kafka import LocalKafka

    with LocalKafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def topic(kafka: LocalKafka) -> Iterator[Callable[..., str]]:
    """A factory of topics with unique names: `topic("orders", partitions=2, config={...})` → name."""
    made: list[str] = []

    def make(prefix: str = "topic", partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        kafka.create_topic(name, partitions, config)
        made.append(name)
        return name

    yield make
    for name in made:
        # A test may have deleted it.
        if kafka.offsets(name):
            kafka.delete_topic(name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[LocalPostgres]:
    """One real PostgreSQL server for the whole run. Do not stop it: start your own."""
    from tests.support.postgres import LocalPostgres, find_postgres

    _or_skip(find_postgres)
    with LocalPostgres() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[LocalMariaDB]:
    """One real MariaDB server for the whole run. Do not stop it: start your own."""
    from tests.support.mariadb import LocalMariaDB, find_mariadb

    _or_skip(find_mariadb)
    with LocalMariaDB() as server:
        yield server


def _or_skip(find: Callable[[], Path]) -> None:
    try:
        find()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One real session for the whole run, with Delta, the Kafka connector and the JDBC drivers."""
    from recon.local.spark import spark_session
    from tests.support.checkpoints import CHECKPOINTS
    from tests.support.drivers import ICEBERG, JDBC_DRIVERS

    warehouse = tmp_path_factory.mktemp("warehouse")
    conf = {"spark.sql.warehouse.dir": str(warehouse), "spark.driver.memory": "2g", **CHECKPOINTS}
    session = spark_session("recon-tests", extra_packages=(*JDBC_DRIVERS, *ICEBERG), conf=conf)
    gc.collect()
    gc.freeze()  # the modules and the collected tests: later collections need not look at them
    yield session
    session.stop()


@pytest.fixture(scope="module")
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Lets Spark interpret plans, for a file whose queries read a few rows each; other files have them compiled."""
    from tests.support.interpreted import interpreted as of_session

    with of_session(spark):
        yield


@pytest.fixture
def ansi(spark: SparkSession) -> Iterator[None]:
    """ANSI SQL, where what cannot be cast or divided is an error: Spark's own default since 4.0."""
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    yield
    assert before is not None
    spark.conf.set("spark.sql.ansi.enabled", before)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """An empty folder for a test's tables, checkpoints and ledger."""
    return tmp_path
