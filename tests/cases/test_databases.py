"""Streams into real databases through the hook, with a crash between the database's commit and the ledger, audited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recon.project import CheckSpec
from recon.sinks.failpoints import BEFORE_LEDGER
from tests.cases.lake import Lake, failing, findings, listed, statuses
from tests.support.failpoints import dies_at
from tests.support.kafka import LocalKafka

CHECKS = ("offset_continuity", "kafka_end_offsets", "checkpoint_commits", "sink_commits", "source_rows")


@dataclass
class DatabaseLake(Lake):
    """A pipeline whose sink is a table of a database."""

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
    assert failing(run) == {"LEDGER_ORPHAN"}, [f.message for f in findings(run)]
    database.sql(f"DROP TABLE {table}", "DELETE FROM recon_ledger WHERE pipeline = 'p' AND sink = 's'")


@pytest.mark.parametrize("server", ["postgres", "mariadb"])
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
        assert double.batch_id == 0 and double.span is not None and double.span.start <= 5 < double.span.end, double
    finally:
        database.sql(f"DROP TABLE {table}", "DELETE FROM recon_ledger WHERE pipeline = 'p' AND sink = 's'")
