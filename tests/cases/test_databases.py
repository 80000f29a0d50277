"""Streams into real databases through the hook, with a crash between the database's commit and the ledger, audited."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recon.project import CheckSpec, Project
from recon.project.model import Rows
from recon.write.hook import foreach_batch
from recon.write.sinks.failpoints import BEFORE_LEDGER
from tests.cases.lake import Lake, complete, failing, findings, listed, ranges, refuted, statuses, told
from tests.support import fault_cases
from tests.support.failpoints import dies_at
from tests.support.kafka import LocalKafka
from tests.support.marks import long

CHECKS = ("offset_continuity", "kafka_end_offsets", "checkpoint_commits", "sink_commits", "source_rows")


@dataclass
class DatabaseLake(Lake):
    """A pipeline whose sink is a table of a database."""

    explodes: bool | None = None  # as recon.yml declares it

    @property
    def project(self) -> Project:
        of = super().project
        (mine,) = of.pipelines
        declared = mine.model_copy(update={"rows": Rows(explodes=self.explodes)})
        return of.model_copy(update={"pipelines": (declared,)})

    @property
    def sink_of_project(self) -> dict[str, Any]:
        return {"name": "s", "data_tests": listed(CHECKS), **self.sink}


def keyed(frame: DataFrame) -> DataFrame:
    source = ("_source_topic", "_source_partition", "_source_offset")
    return frame.select(F.col("key").cast("string").alias("k"), F.col("value").cast("string").alias("v"), *source)


@pytest.mark.case(25, answer="complete")
@pytest.mark.parametrize(("server", "kind"), [("postgres", "jdbc_upsert"), ("mariadb", "jdbc_append")])
def test_a_stream_into_a_database(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    kafka: LocalKafka,
    topic: Callable[..., str],
    tmp_path: Path,
    server: str,
    kind: str,
) -> None:
    database: Any = request.getfixturevalue(server)
    table = f"stream_{topic('t').replace('-', '_')}"
    sink: dict[str, Any] = {"kind": kind, "target": table, "connection": database.connection, "create_table": True}
    if kind == "jdbc_upsert":
        sink |= {"keys": ["k"], "post_batch": (CheckSpec(test="row_count", arguments={"min_value": 1}),)}
    lake = DatabaseLake(tmp_path, kafka, spark, topic("orders", partitions=2), sink=sink)
    lake.produce(30)
    lake.run(per_trigger=20, transform=keyed)
    lake.produce(8, partition=1)  # the same keys again

    with pytest.raises(StreamingQueryException, match="died"):
        lake.run(transform=keyed, failpoint=dies_at(BEFORE_LEDGER))
    assert [e.batch_id for e in lake.entries()] == [0, 1]
    lake.run(transform=keyed)

    entries = lake.entries()
    assert [(e.batch_id, e.status) for e in entries[2:]] == [(2, "rebuilt"), (2, "already_committed")]
    assert {e.guarantee for e in entries} == {"exactly-once"} and {e.target for e in entries} == {table}
    upsert = kind == "jdbc_upsert"
    assert database.sql(f"SELECT COUNT(*) FROM {table}") == [(30 if upsert else 38,)]
    assert database.sql(f"SELECT COUNT(*) FROM {table} WHERE _batch_id = 2 AND _source_partition = 1") == [(8,)]
    assert sum(e.rows_written or 0 for e in entries[:3]) == 38

    run = lake.audit()
    assert failing(run) == set(), [f.message for f in findings(run)]
    assert set(statuses(run).values()) == {"pass"}, {r.name: (r.status, r.message) for r in run.results}

    # An entry whose micro-batch the database no longer remembers.
    database.sql(
        f"DELETE FROM recon_ledger WHERE pipeline = 'p' AND sink = 's' AND batch_id = 1 AND target = '{table}'"
    )
    run = lake.audit()
    # The record had it when the last audit counted its writes.
    assert failing(run) == {"LEDGER_ORPHAN", "MUTATED"}, [f.message for f in findings(run)]
    database.sql(f"DROP TABLE {table}", "DELETE FROM recon_ledger WHERE pipeline = 'p' AND sink = 's'")


@pytest.mark.parametrize("server", ["postgres", *long("mariadb")])
def test_rows_that_somebody_removes_from_a_database_or_adds_to_it(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    kafka: LocalKafka,
    topic: Callable[..., str],
    tmp_path: Path,
    server: str,
) -> None:
    """A database has no history: the number of its rows says that somebody changed them, and the rows say which."""
    database: Any = request.getfixturevalue(server)
    table = f"changed_{topic('t').replace('-', '_')}"
    sink = {"kind": "jdbc_append", "target": table, "connection": database.connection, "create_table": True}
    lake = DatabaseLake(tmp_path, kafka, spark, topic("orders"), sink=sink)
    try:
        for _ in range(2):
            lake.produce(10)
            lake.run(transform=keyed)
        run = lake.audit()
        assert run.pipelines[0].answer == "complete" and failing(run) == set()

        database.sql(f"DELETE FROM {table} WHERE _source_offset IN (3, 14)")
        run = lake.audit()
        assert run.pipelines[0].answer == "not complete" and failing(run) == {"MUTATED", "GAP"}
        assert sorted((f.start_offset, f.end_offset) for f in findings(run, "GAP")) == [(3, 4), (14, 15)]
        assert "lacks 2 rows that had been written" in findings(run, "MUTATED")[0].message
        again = lake.audit()
        assert len(findings(again, "MUTATED")) == 1, "reported once, and open since"

        database.sql(
            f"INSERT INTO {table} (k, v, _source_topic, _source_partition, _source_offset, _batch_id) "
            f"SELECT k, v, _source_topic, _source_partition, _source_offset, _batch_id FROM {table} "
            "WHERE _source_offset = 5"
        )
        run = lake.audit()
        (double,) = findings(run, "DUPLICATE")
        assert double.batch_id == 0 and double.span == (5, 6), double
    finally:
        database.sql(f"DROP TABLE {table}", "DELETE FROM recon_ledger WHERE pipeline = 'p' AND sink = 's'")


# -- the whole table, and whoever else writes it -----------------------------------------------------------------------


class Table:
    """A table of a database that pipelines append to."""

    def __init__(self, database: Any, name: str) -> None:
        self.database, self.name = database, name

    def sink(self, **more: Any) -> dict[str, Any]:
        connection = self.database.connection
        return {"kind": "jdbc_append", "target": self.name, "connection": connection, "create_table": True, **more}

    def remove(self, *offsets: int, only: int | None = None) -> None:
        """Removes the rows of some offsets; with `only`, so many rows of one that do not differ."""
        numbers = ", ".join(map(str, offsets))
        if only is None:
            self.database.sql(f"DELETE FROM {self.name} WHERE _source_offset IN ({numbers})")
        elif self.database.product == "MariaDB":
            self.database.sql(f"DELETE FROM {self.name} WHERE _source_offset = {numbers} LIMIT {only}")
        else:
            those = f"SELECT ctid FROM {self.name} WHERE _source_offset = {numbers} LIMIT {only}"
            self.database.sql(f"DELETE FROM {self.name} WHERE ctid IN ({those})")

    def double(self, *offsets: int) -> None:
        """Inserts rows of some offsets once more."""
        columns, numbers = (
            "k, v, _source_topic, _source_partition, _source_offset, _batch_id",
            ", ".join(map(str, offsets)),
        )
        rows = f"SELECT {columns} FROM {self.name} WHERE _source_offset IN ({numbers})"
        self.database.sql(f"INSERT INTO {self.name} ({columns}) {rows}")

    def count(self) -> int:
        return int(self.database.sql(f"SELECT COUNT(*) FROM {self.name}")[0][0])


@pytest.fixture(params=["postgres", *long("mariadb")])
def table(request: pytest.FixtureRequest, topic: Callable[..., str]) -> Iterator[Table]:
    made = Table(request.getfixturevalue(request.param), f"whole_{topic('t').replace('-', '_')}")
    yield made
    made.database.sql(f"DROP TABLE IF EXISTS {made.name}", f"DELETE FROM recon_ledger WHERE target = '{made.name}'")


@pytest.fixture
def lake(
    table: Table, spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> DatabaseLake:
    return DatabaseLake(tmp_path, kafka, spark, topic("orders"), sink=table.sink())


def _as(lake: Lake, pipeline: str) -> Project:
    """The lake's project with its pipeline under another name."""
    (mine,) = lake.project.pipelines
    return lake.project.model_copy(update={"pipelines": (mine.model_copy(update={"name": pipeline}),)})


def another(lake: DatabaseLake, **changes: Any) -> DatabaseLake:
    """Runs another pipeline, `p2`, into the same table."""
    other = replace(lake, checkpoint_name="other", **changes)
    other.run(foreach_batch(_as(other, "p2"), pipeline="p2", sink="s", transform=keyed))
    return other


@pytest.mark.case(43, "OVERLAP", "DUPLICATE")
@pytest.mark.parametrize("first", [True, False])
def test_two_pipelines_write_one_topic_into_one_table(lake: DatabaseLake, first: bool) -> None:
    lake.produce(30)
    if not first:
        another(lake)
    lake.run(transform=keyed)
    if first:
        assert complete(lake.audit())
        another(lake)
    run = lake.audit()
    assert refuted(run, "DUPLICATE", "OVERLAP"), told(run)
    assert ranges(findings(run, "DUPLICATE", "OVERLAP")) == {(0, 0, 30)}
    assert "pipeline p2, sink s" in findings(run, "OVERLAP")[0].message
    # Without Spark it is known all the same, by the database's own count.
    run = lake.audit(no_spark=True, full=True, keep=False)
    assert "DUPLICATE" in failing(run), told(run)


def test_two_pipelines_write_two_topics_into_one_table(
    lake: DatabaseLake, table: Table, topic: Callable[..., str]
) -> None:
    """Each is judged by the rows of its own topic."""
    lake.produce(30)
    lake.run(transform=keyed)
    assert complete(lake.audit(no_spark=True))
    other = another(lake, topic=topic("payments"))
    other.produce(20)
    another(lake, topic=other.topic)
    assert table.count() == 50
    audits = {
        "p": lambda: lake.audit(no_spark=True),
        "p2": lambda: fault_cases.audit(_as(other, "p2"), spark=lake.spark, no_spark=True),
    }
    for audit in audits.values():
        assert complete(run := audit()), told(run)
    table.database.sql(f"DELETE FROM {table.name} WHERE _source_topic = '{other.topic}' AND _source_offset = 3")
    assert complete(run := lake.audit(no_spark=True)), told(run)
    run = fault_cases.audit(_as(other, "p2"), spark=lake.spark)
    assert refuted(run, "MUTATED", "GAP") and ranges(findings(run, "GAP")) == {(0, 3, 4)}, told(run)


@pytest.mark.long
def test_two_pipelines_write_the_partitions_of_one_topic_into_one_table(
    lake: DatabaseLake, table: Table, topic: Callable[..., str]
) -> None:
    """Another pipeline's rows of our topic double none of ours."""
    lake.topic = topic("shared", partitions=2)
    halves = [{"assign": json.dumps({lake.topic: [partition]})} for partition in (0, 1)]
    lake.stream_options = halves[0]
    for partition, records in ((0, 10), (1, 15)):
        lake.produce(records, partition)
    lake.run(transform=keyed)
    another(lake, stream_options=halves[1])
    assert table.count() == 25
    run = lake.audit(no_spark=True)
    assert "sink_commits" in statuses(run) and not failing(run), told(run)
    assert {statuses(run)[check] for check in ("sink_commits", "source_rows")} == {"pass"}, told(run)


@pytest.mark.long
def test_a_transform_that_makes_several_rows_of_a_record(lake: DatabaseLake, table: Table) -> None:
    """Rows of one offset are lawful there, and how many there are is known all the same."""
    lake.explodes = True

    def twice(frame: DataFrame) -> DataFrame:
        return keyed(frame).withColumn("v", F.explode(F.array(F.col("v"), F.lit("again"))))

    for _ in range(2):
        lake.produce(10)
        lake.run(transform=twice)
        run = lake.audit()
        assert not failing(run), told(run)
    assert table.count() == 40
    table.remove(12, only=1)
    assert "MUTATED" in failing(run := lake.audit()), told(run)


@pytest.mark.long
def test_one_row_is_removed_and_another_doubled(lake: DatabaseLake, table: Table) -> None:
    """As many rows as were written, and fewer source offsets."""
    uncounted = replace(lake, sink={**lake.sink, "count_offsets": False})
    for _ in range(2):
        lake.produce(10)
        lake.run(transform=keyed)
    assert complete(lake.audit())
    (of_commits,) = (r for r in uncounted.audit(no_spark=True, keep=False).results if r.check == "sink_commits")
    assert "was not counted (recon.yml says count_offsets: false)" in of_commits.message
    table.remove(3)
    table.double(14)
    assert table.count() == 20
    # Whoever leaves the comparison out is told that rows were replaced, and not which.
    run = uncounted.audit(no_spark=True, keep=False)
    assert refuted(run, "MUTATED") and "of other source offsets" in findings(run, "MUTATED")[0].message, told(run)
    run = lake.audit(no_spark=True, keep=False)
    assert refuted(run, "DUPLICATE", "MUTATED"), told(run)
    assert "20 rows of 19 different source offsets: 1 row doubled" in findings(run, "DUPLICATE")[0].message
    assert "lacks 1 row" in findings(run, "MUTATED")[0].message
    run = lake.audit()
    assert refuted(run, "DUPLICATE", "MUTATED", "GAP"), told(run)
    assert ranges(findings(run, "GAP")) == {(0, 3, 4)} and ranges(findings(run, "DUPLICATE")) == {(0, 14, 15)}
    # Somebody removes the doubled row, as the audit said.
    table.remove(14, only=1)
    run = lake.audit(no_spark=True)
    assert ranges(findings(run, "REPAIRED")) == {(0, 14, 15)}, told(run)
    assert len(findings(run, "MUTATED")) == 1 and "DUPLICATE" not in failing(run), told(run)


@pytest.mark.long
def test_a_row_is_doubled_long_after_it_was_judged(
    lake: DatabaseLake, table: Table, audits_later: Callable[[timedelta], None]
) -> None:
    for _ in range(2):
        lake.produce(10)
        lake.run(transform=keyed)
    assert complete(lake.audit())
    audits_later(timedelta(days=3))
    table.double(4)
    run = lake.audit()
    assert refuted(run, "DUPLICATE") and ranges(findings(run, "DUPLICATE")) == {(0, 4, 5)}, told(run)
    table.remove(4, only=1)
    run = lake.audit()
    assert complete(run) and ranges(findings(run, "REPAIRED")) == {(0, 4, 5)}, told(run)


@pytest.mark.long
def test_the_table_is_truncated_and_its_topic_read_again(lake: DatabaseLake, table: Table) -> None:
    """That its rows are gone and were read twice is said; doubled is none of them."""
    lake.sink = {**lake.sink, "on_new_epoch": "warn"}
    lake.produce(20)
    lake.run(transform=keyed)
    assert complete(lake.audit())
    table.database.sql(f"TRUNCATE TABLE {table.name}")
    lake.forget_checkpoint()
    lake.run(transform=keyed)
    assert table.count() == 20
    run = lake.audit()
    assert refuted(run, "MUTATED", "OVERLAP"), told(run)
    assert "lacks 20 rows" in findings(run, "MUTATED")[0].message


@pytest.mark.long
def test_a_plain_append_whose_rows_are_doubled(lake: DatabaseLake, table: Table) -> None:
    """Spark's own append keeps no record, and its guarantee allows doubled rows: they are named all the same."""
    lake.sink = {**lake.sink, "guard": False}
    lake.produce(10)
    lake.run(transform=keyed)
    lake.audit()
    lake.produce(10)
    lake.run(transform=keyed)
    lake.audit()
    table.double(2)
    run = lake.audit()
    assert ranges(findings(run, "REPEATED")) == {(0, 2, 3)} and not failing(run), told(run)
