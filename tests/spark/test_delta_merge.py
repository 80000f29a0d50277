"""The MERGE sink on real Delta tables: what it merges, what it refuses, and what it leaves in the session."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from recon.base.errors import SinkError
from recon.model import ReconStamp, offsets_text
from recon.model.offsets import OffsetSpan
from recon.project import DeltaMergeSink
from recon.spark.frames import local_frame
from recon.write.sinks import ConfirmedWrite
from recon.write.sinks.delta import statements
from recon.write.sinks.delta.merge import DeltaMerge
from recon.write.sinks.reduce import MergeRows
from tests.support.messages import raises

pytestmark = pytest.mark.usefixtures("interpreted")

CONF = "spark.databricks.delta."
SETTINGS = [CONF + name for name in ("write.txnAppId", "write.txnVersion", "commitInfo.userMetadata")]
SCHEMA = (
    "k string, v int, at int, op string, day string, _source_topic string, _source_partition int, "
    "_source_offset bigint, _batch_id bigint"
)
Row = tuple[Any, ...]  # (k, v, at, op, day), perhaps followed by the source partition


class Stop(Exception):
    """A crash at a named point."""


@dataclass
class Merging:
    """A sink and its table; `offset` is the next source offset of each partition."""

    spark: SparkSession
    path: Path
    options: dict[str, Any]
    offsets: dict[int, int] = field(default_factory=dict)
    writer: DeltaMerge = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, **options: Any) -> None:
        self.options |= options
        keys = {"name": "s", "kind": "delta_merge", "target": "t", "keys": ["k"], **self.options}
        self.writer = DeltaMerge(str(self.path), DeltaMergeSink.model_validate(keys))

    def frame(self, batch_id: int, rows: Iterable[Row], shuffled: bool = False) -> DataFrame:
        made = []
        for row in rows:
            partition = row[5] if len(row) > 5 else 0
            offset = self.offsets.get(partition, 0)
            self.offsets[partition] = offset + 1
            made.append((*row[:5], "topic", partition, offset, batch_id))
        if shuffled:
            made.reverse()
        return local_frame(self.spark, made, SCHEMA)

    def stamp(self, batch_id: int, epoch: int = 0) -> ReconStamp:
        spans = [OffsetSpan("topic", None, p, 0, end, 0) for p, end in self.offsets.items()]
        return ReconStamp(
            pipeline="p", sink="s", epoch=epoch, batch_id=batch_id, query_id="q", run_id=None, prev_hash="",
            offsets_text=offsets_text(spans), number=batch_id + 1,
        )  # fmt: skip

    def batch(self, batch_id: int, *rows: Row) -> ConfirmedWrite:
        frame = self.frame(batch_id, rows)
        self.writer.write(frame, self.stamp(batch_id))
        return self.writer.confirm(self.stamp(batch_id))

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        table = self.spark.read.format("delta").load(str(self.path))
        return sorted(tuple(row) for row in table.select(*(columns or ("k", "v"))).collect())

    def commit(self, version: int) -> dict[str, Any]:
        lines = (self.path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
        found: dict[str, Any] = {}
        for line in lines:
            found |= json.loads(line)
        return found

    def versions(self) -> int:
        return len(list((self.path / "_delta_log").glob("*.json")))


@pytest.fixture
def merging(spark: SparkSession, tmp_path: Path) -> Any:
    def make(name: str = "t", **options: Any) -> Merging:
        return Merging(spark, tmp_path / name, options)

    return make


def row(k: str | None, v: int, at: int = 0, op: str = "u", day: str = "d1", partition: int = 0) -> Row:
    return (k, v, at, op, day, partition)


def unset(spark: SparkSession) -> bool:
    return all(spark.conf.get(key, None) is None for key in SETTINGS)


@pytest.mark.long
def test_the_latest_of_a_key_is_merged_once_and_the_session_is_left_as_it_was(merging: Any, spark: Any) -> None:
    table = merging()
    spark.conf.set(CONF + "commitInfo.userMetadata", "somebody else's")
    try:
        landed = table.batch(0, row("a", 1), row("a", 2), row("b", 1), row("b", 9, partition=1), row("b", 2))
        assert spark.conf.get(CONF + "commitInfo.userMetadata") == "somebody else's"
    finally:
        spark.conf.unset(CONF + "commitInfo.userMetadata")
    assert unset(spark)
    # b has offset 3 in partition 0 and offset 0 in partition 1: the higher offset wins.
    assert table.rows() == [("a", 2), ("b", 2)]
    assert landed == ConfirmedWrite(version=1, rows=2, given=5)
    found = table.commit(1)
    assert found["txn"]["appId"] == "recon:p:s" and found["txn"]["version"] == 1
    log = table.writer.log()
    assert [(c.version, c.rows, c.stamp.given) for c in log.commits] == [(1, 2, 5)]

    # Other writers of the session are neither dropped nor marked as recon's.
    table.frame(7, [row("x", 7)]).write.format("delta").mode("append").save(str(table.path))
    spark.sql(f"UPDATE delta.`{table.path}` SET v = 8 WHERE k = 'x'")
    assert table.rows() == [("a", 2), ("b", 2), ("x", 8)] and table.versions() == 4
    assert "txn" not in table.commit(3) and "userMetadata" not in table.commit(3)["commitInfo"]

    landed = table.batch(1, row("a", 3), row("c", 1))
    assert landed == ConfirmedWrite(version=4, rows=2, given=2)
    rows = table.writer.rows_of(spark, landed, table.stamp(1))
    # MERGE wrote b and x once more, into the same file; they are not of this micro-batch.
    assert sorted((r["k"], r["v"]) for r in rows.collect()) == [("a", 3), ("c", 1)]
    reduced = MergeRows(table.writer.sink, table.frame(2, [row("a", 1)]), "m").reduced()
    assert reduced._jdf.queryExecution().executedPlan().toString().count("Exchange") == 1
    metrics = table.commit(4)["commitInfo"]["operationMetrics"]
    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]) == ("1", "1")


@pytest.mark.long
def test_a_skipped_merge_and_one_that_changes_nothing(merging: Any, spark: Any) -> None:
    table = merging(newer_wins="at")
    first = table.batch(0, row("a", 5, at=5), row("a", 4, at=4))
    assert table.rows() == [("a", 5)]
    again = table.frame(0, [row("a", 9, at=9)])
    table.restart()
    table.writer.write(again, table.stamp(0))  # Delta knows the txn and says nothing
    with raises(SinkError):
        table.writer.confirm(table.stamp(0))
    assert table.rows() == [("a", 5)] and table.versions() == 2
    assert unset(spark)

    table.restart()
    nothing = table.batch(1, row("a", 1, at=1), row("a", 5, at=5))  # older, and as old
    assert (nothing.version, nothing.rows, nothing.given) == (2, 0, 2)
    empty = table.batch(2)
    assert (empty.version, empty.rows, empty.given) == (3, 0, 0)
    assert table.rows() == [("a", 5)]
    table.restart()
    # What an earlier attempt left is told as it was told then.
    stamp = json.loads(table.commit(1)["commitInfo"]["userMetadata"])
    assert (stamp["batch_id"], stamp["given"]) == (0, 2)
    assert table.writer.landed(table.stamp(2), empty.version) == empty
    assert table.writer.landed(table.stamp(2), first.version) is None
    assert [(c.stamp.batch_id, c.rows, c.stamp.given) for c in table.writer.log().commits] == [
        (0, 1, 2),
        (1, 0, 2),
        (2, 0, 0),
    ]


def test_conditions_and_tombstones(merging: Any) -> None:
    table = merging(
        newer_wins="at", update_when="s.v <> t.v", insert_when="s.v >= 0", delete_when="op = 'd'", order_by=["v"]
    )
    table.batch(0, row("a", 1, at=1), row("b", 1, at=1), row("c", -1, at=1), row("d", 1, at=1), row("d", 7, at=1))
    assert table.rows() == [("a", 1), ("b", 1), ("d", 7)]
    landed = table.batch(
        1,
        row("a", 0, at=2, op="d"),
        row("b", 0, at=0, op="d"),  # a tombstone older than the row
        row("c", 0, at=9, op="d"),  # of a key that is not there
        row("d", 7, at=3),  # nothing new
        row("e", 5, at=1),
        row("e", 4, at=2),
    )
    assert table.rows("k", "v", "at") == [("b", 1, 1), ("d", 7, 1), ("e", 4, 2)]
    assert (landed.rows, landed.given) == (2, 6)


def test_what_cannot_be_merged_is_refused_in_a_sentence(merging: Any, spark: Any, ansi: None) -> None:
    table = merging()
    stamp = table.stamp(0)
    with pytest.raises(SinkError) as caught:
        table.batch(0, row("a", 1), row(None, 2), row(None, 3, partition=4), row("c", 1))
    assert "key column k is NULL in 2 of 4 rows (such as topic-0 offset 1, topic-4 offset 0)" in str(caught.value)
    assert not table.path.exists()
    with raises(SinkError):
        table.restart(partition_by=["day"])
        table.writer.write(table.frame(0, [row("a", 1)]).drop("k", "day"), stamp)
    with raises(SinkError):
        table.restart(partition_by=[], delete_when="nosuch = 1")
        table.batch(0, row("a", 1))
    assert not table.path.exists()

    # A crash between the new table and its first MERGE leaves an empty table, and the next attempt goes on with it.
    table.restart(delete_when=None)
    table.writer.failpoint = stop_at("table_created")
    with pytest.raises(Stop):
        table.batch(0, row("a", 1))
    assert table.rows() == []
    # A MERGE that fails leaves no settings behind: the next writes are Delta's own again.
    table.restart(update_when="1 / (s.v - 2) < 9")
    assert table.batch(0, row("a", 1)).rows == 1
    with pytest.raises(Exception, match=r"DIVIDE_BY_ZERO"):
        table.batch(1, row("a", 2))
    assert unset(spark)
    with raises(SinkError):
        table.restart(update_when="s.nosuch > 1")
        table.batch(1, row("a", 2))
    assert unset(spark)

    table.restart(update_when=None)
    wide = table.frame(1, [row("a", 2)]).selectExpr("*", "'n' AS note")
    with raises(SinkError):
        table.writer.write(wide, table.stamp(1))
    assert table.rows() == [("a", 1)]
    table.restart(evolve_schema=True)
    table.writer.write(wide, table.stamp(1))
    assert table.writer.confirm(table.stamp(1)).rows == 1
    assert table.rows("k", "v", "note") == [("a", 2, "n")]
    assert not [column for column in spark.read.format("delta").load(str(table.path)).columns if "recon" in column]


def stop_at(name: str) -> Any:
    def failpoint(point: str, stamp: ReconStamp) -> None:
        if point == name:
            raise Stop(point)

    return failpoint


@pytest.mark.long
def test_a_merge_leaves_partitions_alone_that_its_rows_cannot_be_in(
    merging: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prune = {"column": "day", "immutable": True}
    table = merging(prune_by=[prune], partition_by=["day"], delete_when="op = 'd'")
    table.batch(0, *(row(f"k{n}", n, day=f"d{n}") for n in range(1, 6)))
    # Only files that nobody opens can be missing unnoticed.
    shutil.rmtree(table.path / "day=d1")
    shutil.rmtree(table.path / "day=d5")
    assert table.batch(1, row("k2", 22, day="d2"), row("k3", 33, day="d3")).rows == 2
    monkeypatch.setattr(statements, "MOST_VALUES", 1)  # more values than are listed: their range
    assert table.batch(2, row("k2", 222, day="d2"), row("k4", 444, day="d4")).rows == 2
    unpruned = (*row("k3", 0, op="d")[:4], None)
    with pytest.raises(Exception, match=r"d1|d5|FILE_NOT_EXIST|does not exist"):
        table.batch(3, unpruned)  # a NULL says nothing of the old row's partition: the table is read
    table.restart(prune_by=[])
    with pytest.raises(Exception, match=r"d1|d5|FILE_NOT_EXIST|does not exist"):
        table.batch(3, row("k2", 0, day="d2"))
    with raises(SinkError):
        table.restart(prune_by=[{"column": "day", "immutable": True}], keys=["k"])
        table.writer.write(
            table.frame(3, [row("k2", 0)]).selectExpr("*", "now() AS t").withColumn("day", _now()), table.stamp(3)
        )


def _now() -> Any:
    from pyspark.sql import functions as F

    return F.current_timestamp()


@pytest.mark.long
def test_deletion_vectors_and_the_change_data_feed(merging: Any, spark: Any) -> None:
    options = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
    table = merging(options=options, delete_when="op = 'd'")
    assert table.batch(0, *(row(f"k{n:02d}", n) for n in range(20))).rows == 20
    landed = table.batch(1, row("k01", 100), row("k02", 0, op="d"), row("k99", 99))
    assert (landed.rows, landed.given) == (3, 3)
    assert "deletionVector" in json.dumps((table.path / "_delta_log" / f"{2:020d}.json").read_text())
    assert sorted(r["k"] for r in table.writer.rows_of(spark, landed, table.stamp(1)).collect()) == ["k01", "k99"]
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2)
    kinds = sorted(r["_change_type"] for r in changes.load(str(table.path)).collect())
    assert kinds == ["delete", "insert", "update_postimage", "update_preimage"]
    assert len(table.rows()) == 20


@pytest.mark.long
def test_history_is_the_same_whatever_order_versions_come_in(merging: Any) -> None:
    table = merging(scd2={"effective": "at"}, delete_when="op = 'd'")
    shape = ("k", "v", "valid_from", "valid_to", "is_current")
    landed = table.batch(0, row("a", 1, at=10), row("a", 2, at=20), row("b", 1, at=10), row("a", 3, at=20))
    assert table.rows(*shape) == [("a", 1, 10, 20, False), ("a", 3, 20, None, True), ("b", 1, 10, None, True)]
    assert (landed.rows, landed.given) == (3, 4)  # two of one instant: the later record
    landed = table.batch(1, row("a", 9, at=15), row("b", 0, at=30, op="d"), row("a", 4, at=40))
    assert table.rows(*shape) == [
        ("a", 1, 10, 15, False),
        ("a", 3, 20, 40, False),
        ("a", 4, 40, None, True),
        ("a", 9, 15, 20, False),
        ("b", 1, 10, 30, False),
    ]
    assert (landed.rows, landed.given) == (3, 3)
    # Late, before b was deleted; and after it.
    table.batch(2, row("b", 2, at=25), row("b", 3, at=50), row("a", 0, at=20, op="d"))
    assert table.rows(*shape) == [
        ("a", 1, 10, 15, False),
        ("a", 4, 40, None, True),
        ("a", 9, 15, 20, False),
        ("b", 1, 10, 25, False),
        ("b", 2, 25, 30, False),
        ("b", 3, 50, None, True),
    ]
    assert [c.rows for c in table.writer.log().commits] == [3, 3, 3]


@pytest.mark.long
def test_any_history(merging: Any) -> None:
    dice = random.Random(7)
    changes = [
        row(k, n, at=at) for n, (k, at) in enumerate(dice.sample([(k, at) for k in "abcd" for at in range(10)], 30))
    ]
    table = merging(scd2={"effective": "at"})  # a tombstone that finds no version to end leaves nothing behind
    for batch_id in range(3):
        table.batch(batch_id, *changes[batch_id * 10 : batch_id * 10 + 10])
    assert table.rows("k", "v", "valid_from", "valid_to", "is_current") == sorted(history_of(changes))


def history_of(changes: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Each version until the next change of its key."""
    found = []
    for k, v, at, op, *_ in changes:
        later = [other for other in changes if other[0] == k and other[2] > at]
        until = min((other[2] for other in later), default=None)
        if op != "d":
            found.append((k, v, at, until, until is None))
    return found
