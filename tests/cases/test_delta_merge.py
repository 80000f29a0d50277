"""Streams merged into a Delta table through the hook: crashes, a new epoch, transactions, history; audited."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recon.project import CheckSpec
from recon.recovery.starting_offsets import starting_offsets
from tests.cases.lake import EVIDENCE, Lake, complete, failing, findings, listed, refuted, statuses, told
from tests.cases.test_table_files import accepted, cleaned_up
from tests.support.failpoints import dies_at
from tests.support.kafka import LocalKafka
from tests.support.marks import long

COUNTS = ("epoch", "batch_id", "status", "rows_read", "rows_written", "rows_filtered")
Change = tuple[str, int, int, str]  # key, value, instant, "u" or "d"


@dataclass
class MergedLake(Lake):
    """A pipeline whose sink is merged by key; the stream reads committed records."""

    isolation_level: str = "read_committed"

    @property
    def sink_of_project(self) -> dict[str, Any]:
        incremental = {"test": "not_null", "column": "k", "config": {"incremental": True}}
        return {
            "name": "s",
            "kind": "delta_merge",
            "target": "table",
            "keys": ["k"],
            "delete_when": "op = 'd'",
            "data_tests": (*listed((*EVIDENCE, "ledger_integrity")), CheckSpec.model_validate(incremental)),
            **self.sink,
        }

    def send(self, changes: Iterable[Change], outcome: Any = "commit", partition: int = 0) -> None:
        records = [(k, f"{v},{at},{op}", partition) for k, v, at, op in changes]
        self.kafka.transaction(self.topic, records, outcome)

    def drain(self, **options: Any) -> None:
        self.run(self.hook(transform=parsed), **options)

    def drain_until(self, point: str) -> None:
        """A run that ends at a seam of the hook or the sink, as a killed process would."""
        with pytest.raises(StreamingQueryException, match=f"died at {point}"):
            self.run(self.hook(transform=parsed, failpoint=dies_at(point)))

    def merged(self, *columns: str) -> list[tuple[Any, ...]]:
        table = self.spark.read.format("delta").load(str(self.table))
        return sorted((tuple(row) for row in table.select(*columns).collect()), key=str)

    def told(self) -> list[tuple[Any, ...]]:
        return [tuple(getattr(entry, name) for name in COUNTS) for entry in self.entries()]


def parsed(frame: DataFrame) -> DataFrame:
    """The rows of `unfiltered`; records of the key `skip` are none of ours."""
    return unfiltered(frame).filter("k <> 'skip'")


def unfiltered(frame: DataFrame) -> DataFrame:
    """`v,at,op` of the record's value, and where it came from."""
    part = F.split(F.col("value").cast("string"), ",")
    source = ("_source_topic", "_source_partition", "_source_offset")
    columns = [part[0].cast("int").alias("v"), part[1].cast("int").alias("at"), part[2].alias("op")]
    return frame.select(F.col("key").cast("string").alias("k"), *columns, *source)


def swapping(frame: DataFrame) -> DataFrame:
    """The rows of `unfiltered`, but that of offset 4 is lost and that of offset 5 is there twice."""
    rows = unfiltered(frame)
    return rows.where("_source_offset <> 4").union(rows.where("_source_offset = 5"))


def assert_complete(lake: Lake) -> Any:
    run = lake.audit()
    assert failing(run) == set(), [f.message for f in findings(run)]
    assert set(statuses(run).values()) == {"pass"}, {r.name: (r.status, r.message) for r in run.results}
    assert [p.answer for p in run.pipelines] == ["complete"], run.pipelines[0].because
    return run


@pytest.fixture
def make(
    kafka: LocalKafka, spark: SparkSession, topic: Callable[..., str], tmp_path: Path
) -> Callable[..., MergedLake]:
    return lambda **sink: MergedLake(tmp_path, kafka, spark, topic("m", 2), sink=sink)


def test_a_life_of_a_merged_table(make: Callable[..., MergedLake], spark: SparkSession) -> None:
    lake = make(newer_wins="at")
    lake.send([("a", 1, 1, "u"), ("a", 2, 2, "u"), ("b", 1, 5, "u"), ("skip", 0, 0, "u"), ("c", 1, 1, "u")])
    lake.drain_until("table_created")  # a table without rows, and nothing is entered
    assert lake.merged("k") == [] and lake.told() == []
    lake.drain()
    assert lake.told() == [(0, 0, "committed", 5, 3, 2)]
    run = assert_complete(lake)
    assert "1 control" in " ".join(f.message for f in findings(run, "EXPLAINED"))
    of = {r.check: r for r in run.results}
    assert of["source_rows"].evidence["offsets_without_row"] == 1
    assert run.pipelines[0].sinks[0].guarantee == "exactly-once"

    # An update, an older row, a tombstone, a new key; and a transaction that came to nothing.
    lake.send([("a", 9, 9, "u"), ("b", 0, 4, "u"), ("c", 0, 2, "d"), ("d", 1, 1, "u")], partition=1)
    lake.send([("a", 666, 99, "u")] * 3, "abort")
    lake.drain_until("after_write")  # the MERGE is committed, the ledger knows nothing
    assert len(lake.entries()) == 1
    after = [("a", 9), ("b", 1), ("d", 1)]
    assert lake.merged("k", "v") == after
    lake.drain()
    assert lake.merged("k", "v") == after
    assert lake.told()[1:] == [(0, 1, "rebuilt", None, 3, 1), (0, 1, "already_committed", None, 3, 1)]
    run = assert_complete(lake)
    assert "3 aborted" in " ".join(f.message for f in findings(run, "EXPLAINED"))
    # Rows change in place, so that what was measured before does not hold any more: all of them are measured.
    assert any("incremental: true measured all rows of this one (delta_merge)" in note for note in run.notes)

    # A new checkpoint goes on where the ledger ends, batch ids start over; then a micro-batch that changes nothing.
    starting = starting_offsets(lake.project, "p", "s")
    lake.forget_checkpoint()
    lake.send([("e", 1, 1, "u"), ("a", 10, 10, "u")])
    lake.drain(starting=starting)
    lake.send([("a", 3, 3, "u"), ("e", 0, 0, "d")])
    lake.drain()
    assert lake.told()[3:] == [(1, 0, "committed", 2, 2, 0), (1, 1, "committed", 2, 0, 2)]
    assert lake.merged("k", "v") == [("a", 10), ("b", 1), ("d", 1), ("e", 1)]
    assert_complete(lake)
    settings = ("write.txnAppId", "write.txnVersion", "commitInfo.userMetadata")
    assert [spark.conf.get(f"spark.databricks.delta.{name}", None) for name in settings] == [None] * 3

    # A NULL key stops the stream before anything is written.
    lake.kafka.produce(lake.topic, [(None, "1,1,u", 0)])
    with pytest.raises(StreamingQueryException, match=r"key column k is NULL in 1 of 1 rows \(such as .* offset \d+\)"):
        lake.run(lake.hook(transform=unfiltered))
    assert len(lake.entries()) == 5

    # Somebody else's MERGE is no micro-batch of ours.
    lake.sql("MERGE INTO {table} t USING (SELECT 'a' AS k) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = 0")
    run = lake.audit()
    assert failing(run) == {"MUTATED"} and run.pipelines[0].answer == "not complete"
    assert statuses(run)["source_rows"] == "error"


@pytest.mark.long
def test_history_right_after_a_replay(make: Callable[..., MergedLake]) -> None:
    lake = make(scd2={"effective": "at"})
    lake.send([("a", 1, 10, "u"), ("a", 2, 20, "u"), ("b", 1, 10, "u")])
    lake.drain()
    lake.send([("a", 3, 15, "u"), ("a", 4, 30, "u"), ("b", 0, 40, "d"), ("a", 5, 30, "u")], partition=1)
    lake.drain_until("after_write")
    lake.drain()
    history = lake.merged("k", "v", "valid_from", "valid_to", "is_current")
    assert history == [
        ("a", 1, 10, 15, False),
        ("a", 2, 20, 30, False),
        ("a", 3, 15, 20, False),
        ("a", 5, 30, None, True),
        ("b", 1, 10, 40, False),
    ]
    assert lake.told() == [
        (0, 0, "committed", 3, 3, 0),
        (0, 1, "rebuilt", None, 3, 1),
        (0, 1, "already_committed", None, 3, 1),
    ]
    assert_complete(lake)


def test_a_transform_loses_a_record_and_doubles_another(make: Callable[..., MergedLake]) -> None:
    lake = make(delete_when=None)
    lake.kafka.produce(lake.topic, [(f"k{i}", "1,1,u", 0) for i in range(10)])
    lake.run(lake.hook(transform=swapping))
    assert sorted(offset for _, offset in lake.values()) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert lake.told() == [(0, 0, "committed", 10, 9, 1)]
    assert refuted(run := lake.audit(), "GAP"), told(run)


@pytest.mark.long
def test_a_restore_is_undone_by_another(make: Callable[..., MergedLake]) -> None:
    lake = make(delete_when=None)
    for n in range(2):
        lake.kafka.produce(lake.topic, [("a", "1,1,u", 0), (f"b{n}", "1,1,u", 0)])
        lake.run(lake.hook(transform=unfiltered))
    assert_complete(lake)
    lake.sql("RESTORE {table} TO VERSION AS OF 1")
    lake.sql("RESTORE {table} TO VERSION AS OF 2")
    assert_complete(lake)


@pytest.mark.long
@pytest.mark.parametrize("gone", [False, *long(True)])
def test_the_log_is_cleaned_up_before_an_audit(make: Callable[..., MergedLake], gone: bool) -> None:
    """The versions between two audits are the query's own, or one is somebody's who deleted a key."""
    lake = make(delete_when=None)
    for n in range(2):
        lake.kafka.produce(lake.topic, [(f"k{i}", "1,1,u", 0) for i in range(10 * n, 10 * n + 10)])
        lake.run(lake.hook(transform=unfiltered))
        if not n:
            assert_complete(lake)
            if gone:
                lake.sql("DELETE FROM {table} WHERE k = 'k3'")
    cleaned_up(lake)
    run = lake.audit()
    assert (run.pipelines[0].answer == "could not be proved") == gone and complete(run) != gone, told(run)
    if gone:
        assert [str(code) for code, _ in told(run)].count("INCONCLUSIVE") == 1, told(run)
        assert run.pipelines[0].answer == lake.audit().pipelines[0].answer == lake.audit(full=True).pipelines[0].answer
        assert accepted(lake) == "complete", told(lake.audit())
        run = lake.audit(full=True)
        assert complete(run), told(run)
