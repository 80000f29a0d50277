"""Repairs of tables in real databases: one transaction, wherever a repair is interrupted and whoever else writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from recon.audits.accept import open_findings
from recon.base.errors import SinkError
from recon.model import ReconStamp
from recon.recovery.repair.run import Repaired, repair
from recon.recovery.repair.witnesses import repair_plans
from recon.write.sinks.failpoints import (
    AFTER_WRITE,
    BEFORE_COMMIT,
    BEFORE_LEDGER,
    BEFORE_WRITE,
    COMMITTED,
    STAGED,
    TRANSACTION_OPEN,
)
from tests.cases.lake import failing, findings, told
from tests.cases.test_databases import DatabaseLake
from tests.cases.test_delta_merge import Change, unfiltered
from tests.support.failpoints import dies_at
from tests.support.kafka import LocalKafka

# tests/crash/test_killed_repair.py repairs such a sink in `make test`.
pytestmark = pytest.mark.long

FIRST: list[Change] = [("a", 1, 1, "u"), ("b", 1, 1, "u"), ("c", 1, 1, "u")]
SWALLOWED: list[Change] = [("a", 2, 5, "u"), ("b", 2, 5, "u"), ("n", 2, 5, "u"), ("n", 3, 6, "u")]
LAST: list[Change] = [("a", 3, 9, "u"), ("d", 3, 9, "u")]
UPSERTED = [("a", 3), ("b", 2), ("c", 1), ("d", 3), ("n", 3)]
ALL = sorted((k, v) for k, v, _, _ in (*FIRST, *SWALLOWED, *LAST))


@dataclass
class KeyedLake(DatabaseLake):
    """Its records are changes of keys; a table of the database is the sink."""

    database: Any = None
    of: dict[str, Any] = field(default_factory=dict)

    def send(self, changes: Sequence[Change], partition: int = 0) -> None:
        self.kafka.produce(self.topic, [(k, f"{v},{at},{op}", partition) for k, v, at, op in changes])

    def drain(self, **options: Any) -> None:
        self.run(self.hook(transform=unfiltered, **options))

    def swallow(self) -> None:
        """Lets the query read what was sent, and writes nothing."""
        self.run(lambda frame, batch_id: None)

    def keyed(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in self.database.sql(f"SELECT k, v FROM {self.sink['target']}"))

    def swallowing(self, last_partition: int = 0) -> None:
        """The second of three micro-batches is swallowed."""
        self.send(FIRST)
        self.drain()
        self.send(SWALLOWED)
        self.swallow()
        self.send(LAST, last_partition)
        self.drain()
        assert failing(self.audit()) == {"GAP"}

    def mend(self, **options: Any) -> Repaired:
        return repair(self.project, "p", "s", spark=self.spark, **{"transform": unfiltered, **options})

    def assert_repaired(self) -> None:
        run = self.audit()
        assert findings(run, "REPAIRED") and not failing(run) and not open_findings(self.project), told(run)
        assert [p.answer for p in run.pipelines] == ["complete"], run.pipelines[0].because
        assert not failing(self.audit(full=True))


Make = Callable[..., KeyedLake]


@pytest.fixture
def make(
    request: pytest.FixtureRequest,
    kafka: LocalKafka,
    spark: SparkSession,
    topic: Callable[..., str],
    tmp_path: Path,
) -> Iterator[Make]:
    made: list[KeyedLake] = []

    def make_lake(server: str, **sink: Any) -> KeyedLake:
        database: Any = request.getfixturevalue(server)
        table = f"repair_{topic('t').replace('-', '_')}"
        config = {"target": table, "connection": database.connection, "create_table": True, **sink}
        made.append(KeyedLake(tmp_path, kafka, spark, topic("r", 2), sink=config, database=database))
        return made[-1]

    yield make_lake
    for lake in made:
        lake.database.sql(
            f"DROP TABLE IF EXISTS {lake.sink['target']}",
            "DELETE FROM recon_ledger WHERE pipeline = 'p' AND sink = 's'",
        )


UPSERT = {"kind": "jdbc_upsert", "keys": ["k"]}
KINDS = [
    ("postgres", {**UPSERT, "newer_wins": "at"}),
    ("mariadb", {**UPSERT, "newer_wins": "at"}),
    ("postgres", UPSERT),
    ("mariadb", UPSERT),
    ("postgres", {"kind": "jdbc_append"}),
    ("mariadb", {"kind": "jdbc_append"}),
]


@pytest.mark.parametrize(("server", "sink"), KINDS)
def test_a_swallowed_micro_batch_wherever_its_repair_ends(make: Make, server: str, sink: dict[str, Any]) -> None:
    lake = make(server, **sink)
    lake.swallowing()
    (plan,) = repair_plans(lake.project)
    assert [(one.action, one.batch_id) for one in plan.ranges] == [("read", 1)]
    before = lake.keyed()
    for point in (BEFORE_WRITE, STAGED, TRANSACTION_OPEN, BEFORE_COMMIT):
        with pytest.raises(RuntimeError, match=point):
            lake.mend(failpoint=dies_at(point))
        assert lake.keyed() == before and not any(one.is_repair for one in lake.entries())
    point = {"jdbc_append": AFTER_WRITE}.get(sink["kind"], COMMITTED if "newer_wins" in sink else BEFORE_LEDGER)
    with pytest.raises(RuntimeError, match=point):
        lake.mend(failpoint=dies_at(point))
    after = ALL if sink["kind"] == "jdbc_append" else UPSERTED
    assert lake.keyed() == after and not any(one.is_repair for one in lake.entries())
    done = lake.mend()
    assert (done.finished, done.entries, done.incomplete) == (("repair 0",), (), ())
    assert lake.keyed() == after
    lake.assert_repaired()
    # The query goes on, under the next number.
    lake.send([("b", 9, 9, "u")])
    lake.drain()
    assert ("b", 9) in lake.keyed() and not failing(lake.audit())


def test_offsets_do_not_order_records_of_two_partitions(make: Make) -> None:
    lake = make("postgres", **UPSERT)
    lake.swallowing(last_partition=1)
    before = lake.keyed()
    with pytest.raises(SinkError, match=r"1 record to be read again have a key whose row came through another topic"):
        lake.mend()
    assert lake.keyed() == before and failing(lake.audit()) == {"GAP"}


def test_equally_old_records_are_ordered_by_offset(make: Make) -> None:
    lake = make("mariadb", **UPSERT, newer_wins="at")
    lake.send([("a", 1, 5, "u"), ("b", 1, 5, "u")])
    lake.drain()
    lake.send([("a", 2, 5, "u"), ("b", 2, 5, "u")])
    lake.swallow()
    lake.send([("a", 3, 5, "u")])
    lake.drain()
    assert failing(lake.audit()) == {"GAP"}
    done = lake.mend()
    assert done.incomplete == () and lake.keyed() == [("a", 3), ("b", 2)]
    lake.assert_repaired()


def test_the_query_may_write_other_offsets_meanwhile(make: Make) -> None:
    lake = make("postgres", kind="jdbc_append")
    lake.swallowing()

    def write(point: str, stamp: ReconStamp) -> None:
        if point == STAGED:
            lake.send([("z", 7, 7, "u")])
            lake.drain()

    done = lake.mend(failpoint=write)
    assert done.incomplete == () and lake.keyed() == sorted([*ALL, ("z", 7)])
    lake.assert_repaired()


def test_whoever_reads_the_same_offsets_meanwhile_comes_first(make: Make) -> None:
    lake = make("mariadb", kind="jdbc_append", on_new_epoch="warn")
    lake.swallowing()
    start = {0: len(FIRST)}

    def write(point: str, stamp: ReconStamp) -> None:
        if point == STAGED:
            lake.checkpoint_name = "another"
            lake.run(
                lake.hook(transform=unfiltered),
                starting=f'{{"{lake.topic}": {{"0": {start[0]}, "1": 0}}}}',
            )
            lake.checkpoint_name = "checkpoint"

    with pytest.raises(SinkError, match="has a write of its offsets that was committed after this repair"):
        lake.mend(failpoint=write)
    again = sorted([*ALL, *((k, v) for k, v, _, _ in LAST)])  # the other query read the last ones twice
    assert lake.keyed() == again
    done = lake.mend()
    assert done.entries == () and lake.keyed() == again


def test_a_transform_that_lacks_a_column_is_refused(make: Make) -> None:
    lake = make("postgres", kind="jdbc_append")
    lake.swallowing()
    lake.database.sql(f"ALTER TABLE {lake.sink['target']} ADD COLUMN loaded TIMESTAMP DEFAULT now()")

    def without(frame: DataFrame) -> DataFrame:
        return unfiltered(frame).drop("v")

    with pytest.raises(SinkError, match="column v is in the table alone"):
        lake.mend(transform=without, other_transform=True)
    assert lake.mend().incomplete == () and lake.keyed() == ALL


@pytest.mark.parametrize("server", ["postgres", "mariadb"])
def test_doubled_rows_are_removed_but_one(make: Make, server: str) -> None:
    lake = make(server, kind="jdbc_append", on_new_epoch="warn")
    lake.send(FIRST)
    lake.drain()
    lake.forget_checkpoint()
    lake.drain()
    lake.send(LAST)
    lake.drain()
    twice = sorted((k, v) for k, v, _, _ in (*FIRST, *FIRST, *LAST))
    once = sorted((k, v) for k, v, _, _ in (*FIRST, *LAST))
    assert lake.keyed() == twice and "DUPLICATE" in failing(lake.audit())
    for point in (BEFORE_WRITE, TRANSACTION_OPEN, BEFORE_COMMIT):
        with pytest.raises(RuntimeError, match=point):
            lake.mend(failpoint=dies_at(point))
        assert lake.keyed() == twice
    with pytest.raises(RuntimeError, match=AFTER_WRITE):
        lake.mend(failpoint=dies_at(AFTER_WRITE))
    assert lake.keyed() == once
    done = lake.mend()
    assert done.finished == ("removal 0 of doubled rows",) and lake.keyed() == once
    (entry,) = (one for one in lake.entries() if one.is_removal)
    assert (entry.rows_read, entry.rows_removed, entry.rows_written) == (3, 3, 0)
    run = lake.audit()
    assert not failing(run) and findings(run, "REPAIRED"), told(run)
    assert not open_findings(lake.project) and not failing(lake.audit(full=True))
    # A row that goes with its copies is found.
    lake.database.sql(f"DELETE FROM {lake.sink['target']} WHERE k = 'a'")
    assert "GAP" in failing(lake.audit(full=True))


def test_rows_that_differ_are_not_removed(make: Make) -> None:
    lake = make("mariadb", kind="jdbc_append", on_new_epoch="warn")
    lake.send(FIRST)
    lake.drain()
    lake.forget_checkpoint()
    lake.drain()
    table = lake.sink["target"]
    lake.database.sql(f"UPDATE {table} SET v = 7, _batch_id = 5 WHERE k = 'a' LIMIT 1")
    lake.database.sql(f"UPDATE {table} SET _batch_id = 5 WHERE k = 'a'")
    assert "DUPLICATE" in failing(lake.audit())
    done = lake.mend()
    assert done.entries == () and "have rows that differ" in done.incomplete[0] and len(lake.keyed()) == 6


def test_a_micro_batch_that_is_under_way_is_refused_and_not_doubled(make: Make) -> None:
    lake = make("postgres", **UPSERT, newer_wins="at")
    lake.swallowing()
    lake.send([("z", 7, 7, "u"), ("a", 1, 1, "u")])

    def mends(point: str, stamp: ReconStamp) -> None:
        if point == STAGED:
            assert lake.mend().incomplete == ()

    with pytest.raises(StreamingQueryException, match="another driver committed after this one had read the ledger"):
        lake.drain(failpoint=mends)
    assert lake.keyed() == UPSERTED
    lake.run(lake.hook(transform=unfiltered))
    assert lake.keyed() == sorted([*UPSERTED, ("z", 7)])
    lake.assert_repaired()
