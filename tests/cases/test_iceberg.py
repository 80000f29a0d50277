"""Streams written to Iceberg tables through the hook, and what others do to them; audited."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from recon.recovery.rebuild import rebuild
from tests.cases.lake import Lake, complete, failing, findings, listed, ranges, refuted, statuses, told
from tests.cases.test_delta_merge import swapping
from tests.support import iceberg
from tests.support.drivers import ICEBERG
from tests.support.failpoints import dies_at
from tests.support.kafka import LocalKafka
from tests.support.postgres import LocalPostgres

CHECKS = ("ledger_integrity", "offset_continuity", "checkpoint_commits", "iceberg_history", "source_rows")


@dataclass
class IcebergLake(Lake):
    """A pipeline whose sink is an Iceberg table."""

    of: iceberg.Lake = field(kw_only=True)
    kind: str = "iceberg"

    @property
    def sink_of_project(self) -> dict[str, Any]:
        catalog = dict(self.of.properties)
        at = {"name": "s", "kind": self.kind, "target": self.of.target, "catalog": catalog}
        return {**at, "data_tests": listed(CHECKS), **self.sink}

    def rows(self) -> list[Any]:
        self.spark.catalog.refreshTable(self.of.target)
        return self.spark.table(self.of.target).collect()

    def sql(self, statement: str) -> None:
        self.spark.catalog.refreshTable(self.of.target)
        self.spark.sql(statement.format(table=self.of.target))

    def maintenance(self, action: str) -> Any:
        """An action of Iceberg's on the table; the procedures of SQL need its extensions on Spark 3.5."""
        jvm, session = self.spark._jvm, self.spark._jsparkSession
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, self.of.target)  # type: ignore[union-attr]
        return getattr(jvm.org.apache.iceberg.spark.actions.SparkActions.get(session), action)(table)  # type: ignore[union-attr]

    def roll_back(self, version: int) -> None:
        table = self.of.table()
        target = next(s for s in table.metadata.snapshots if s.sequence_number == version)
        with table.manage_snapshots() as snapshots:
            snapshots.set_current_snapshot(snapshot_id=target.snapshot_id)

    def looked_at(self, **options: Any) -> Any:
        """An audit that leaves nothing for the next one."""
        return self.audit(keep=False, **options)


Make = Callable[..., IcebergLake]
WrittenEarlier = Callable[[timedelta], AbstractContextManager[None]]


@pytest.fixture
def make(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], postgres: LocalPostgres, tmp_path: Path
) -> Make:
    if not ICEBERG:
        pytest.skip("Iceberg has no build for this Spark")

    def made(**fields: Any) -> IcebergLake:
        of = iceberg.lake_of_postgres(f"lake_{uuid.uuid4().hex[:8]}", tmp_path / "iceberg", postgres)
        iceberg.add_to(spark, iceberg.spark_conf(of, postgres))
        return IcebergLake(tmp_path, kafka, spark, topic("iceberg"), of=of, **fields)

    return made


def test_a_stream_and_what_others_do_to_its_table(make: Make) -> None:
    after_each = [{"unique": {"arguments": {"column_name": "_source_offset"}}}]
    tests = [*CHECKS, {"not_null": {"arguments": {"column_name": "value"}}}]
    lake = make(sink={"post_batch": after_each, "data_tests": tests})
    lake.produce(20)
    lake.run(per_trigger=10)
    versions = [entry.sink_version for entry in lake.entries()]
    run = lake.looked_at()
    assert complete(run), told(run)
    assert set(statuses(run).values()) == {"pass"}
    assert complete(lake.looked_at(no_spark=True))
    assert versions == [2, 3]

    lake.sql("INSERT INTO {table} SELECT * FROM {table} WHERE _source_offset < 5")
    assert failing(run := lake.looked_at()) == {"DUPLICATE"}, told(run)
    assert findings(run, "UNSTAMPED")
    lake.roll_back(3)

    lake.sql("DELETE FROM {table} WHERE _source_offset = 7")
    run = lake.looked_at()
    assert failing(run) == {"MUTATED", "GAP"}, told(run)
    assert (0, 7, 8) in ranges(findings(run, "GAP"))
    lake.roll_back(3)
    assert complete(lake.looked_at())

    lake.roll_back(2)
    run = lake.looked_at(no_spark=True)
    assert failing(run) == {"MUTATED", "GAP"}, told(run)
    assert (0, 10, 20) in ranges(findings(run, "GAP"))
    lake.roll_back(3)

    lake.maintenance("rewriteDataFiles").execute()
    assert complete(run := lake.audit()), told(run)
    lake.maintenance("expireSnapshots").expireOlderThan(4_102_444_800_000).execute()  # of before 2100
    run = lake.looked_at(full=True)
    assert (failing(run), len(lake.of.table().metadata.snapshots)) == (set(), 1), told(run)
    assert findings(run, "ATTESTED_ONLY"), told(run)
    lake.produce(5)
    lake.run()
    assert complete(run := lake.audit()), told(run)


@pytest.mark.long
def test_a_stranger_adds_a_record_that_the_query_reads_when_the_snapshot_is_expired(
    make: Make, written_earlier: WrittenEarlier
) -> None:
    """The audit that saw the snapshot found the record once; the next one has nothing but what that one remembers.

    It does not look at the ledger's first entry any more, from which on the table's rows could be counted.
    """
    lake = make()
    lake.produce(5)
    with written_earlier(timedelta(hours=2)):
        lake.run()
    lake.produce(5)
    lake.run()
    lake.produce(5)
    lake.sql(
        "INSERT INTO {table} BY NAME SELECT * EXCEPT (_batch_id, _source_offset), CAST(NULL AS BIGINT) AS _batch_id, "
        "_source_offset + 10 AS _source_offset FROM {table} WHERE _source_offset = 2"
    )
    run = lake.audit()
    assert complete(run) and findings(run, "UNSTAMPED"), told(run)
    lake.maintenance("rewriteDataFiles").option("rewrite-all", "true").execute()  # its snapshot is the current one
    lake.maintenance("expireSnapshots").expireOlderThan(4_102_444_800_000).execute()  # of before 2100
    assert len(lake.of.table().metadata.snapshots) == 1
    lake.run()
    assert lake.values().count((0, 12)) == 2
    run = lake.audit()
    assert refuted(run, "DUPLICATE"), told(run)
    assert ranges(findings(run, "DUPLICATE")) == {(0, 12, 13)}, told(run)


@pytest.mark.long
def test_the_table_is_dropped_and_made_anew(make: Make, written_earlier: WrittenEarlier) -> None:
    """Version 3 of the new table has ten rows; that of the former one had three, and none of them was doubled.

    The later audit does not look at the ledger's first entry any more, whose rows are gone as well.
    """
    lake = make(sink={"on_new_epoch": "warn"})
    lake.produce(10)
    with written_earlier(timedelta(hours=2)):
        lake.run()
    lake.produce(3)
    lake.run()
    assert complete(run := lake.audit()), told(run)
    lake.sql("DROP TABLE {table}")
    for _ in range(2):
        lake.produce(10)
        lake.run()
    assert [entry.rows_written for entry in lake.entries() if entry.sink_version == 3] == [3, 10]
    run = lake.audit()
    assert refuted(run, "MUTATED", "GAP"), told(run)
    assert ranges(findings(run, "GAP")) == {(0, 0, 13), (None, None, None)}, told(run)
    assert any("before the period are gone with the table that was there" in message for _, message in told(run))


def test_a_crash_before_the_entry_and_a_ledger_that_is_gone(make: Make) -> None:
    lake = make()
    lake.produce(10)
    with pytest.raises(StreamingQueryException, match="died at published"):
        lake.run(lake.hook(failpoint=dies_at("published")))
    assert lake.entries() == []
    lake.produce(5)
    lake.run()
    assert [(e.batch_id, e.status, e.rows_written) for e in lake.entries()] == [
        (0, "rebuilt", 10),
        (0, "already_committed", 10),
        (1, "committed", 5),
    ]
    assert lake.values() == [(0, offset) for offset in range(15)]
    assert complete(run := lake.audit()), told(run)
    for file in sorted((lake.path / "recon").rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    restored = rebuild(lake.project)
    assert [(e.batch_id, e.rows_written) for e in restored] == [(0, 10), (1, 5)]


def test_a_stream_that_is_merged(make: Make) -> None:
    lake = make(kind="iceberg_merge", sink={"keys": ["key"]})
    lake.produce(20)
    lake.produce(10)
    lake.run(per_trigger=12)
    assert sorted((bytes(r["key"]), r["_source_offset"]) for r in lake.rows())[0] == (b"k0", 20)
    assert [(e.rows_read, e.rows_written, e.rows_filtered) for e in lake.entries()] == [
        (12, 12, 0),
        (12, 12, 0),
        (6, 6, 0),
    ]
    assert complete(run := lake.looked_at()), told(run)
    assert complete(lake.looked_at(no_spark=True))
    lake.sql("UPDATE {table} SET _source_offset = 3 WHERE _source_offset = 20")
    assert failing(lake.looked_at()) == {"MUTATED"}


@pytest.mark.long
def test_a_transform_loses_a_record_and_doubles_another_before_a_merge(make: Make) -> None:
    lake = make(kind="iceberg_merge", sink={"keys": ["k"]})
    lake.kafka.produce(lake.topic, [(f"k{i}", "1,1,u", 0) for i in range(10)])
    lake.run(lake.hook(transform=swapping))
    assert refuted(run := lake.audit(), "GAP"), told(run)


def rewritten(lake: IcebergLake, condition: str, again: str = "false") -> None:
    """A rewrite of all data files by the rows that meet a condition, and once more some, as a broken compaction."""
    jvm, session = lake.spark._jvm, lake.spark._jsparkSession
    side = f"{lake.of.target}_{uuid.uuid4().hex[:6]}"
    rows = f"SELECT * FROM {{table}} WHERE {condition} UNION ALL SELECT * FROM {{table}} WHERE {again}"
    lake.sql(f"CREATE TABLE {side} USING iceberg AS {rows}")

    def load(name: str) -> Any:
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, name)  # type: ignore[union-attr]

    rewrite = load(lake.of.target).newRewrite()
    for name, put in ((lake.of.target, rewrite.deleteFile), (side, rewrite.addFile)):
        tasks = load(name).newScan().planFiles().iterator()
        while tasks.hasNext():
            put(tasks.next().file())
    rewrite.commit()


@pytest.mark.long
def test_a_rewrite_loses_a_row(make: Make) -> None:
    lake = make()
    for _ in range(2):
        lake.produce(10)
        lake.run()
    assert complete(lake.audit())
    rewritten(lake, "_source_offset >= 0")
    assert complete(run := lake.looked_at()), told(run)
    rewritten(lake, "_source_offset <> 13")
    for full in (False, True):
        run = lake.looked_at(full=full)
        assert refuted(run, "MUTATED", "GAP") and (0, 13, 14) in ranges(findings(run, "GAP")), told(run)


@pytest.mark.long
@pytest.mark.xfail(strict=True, reason="docs/limits.md: rewrites of data files")
def test_a_rewrite_loses_a_row_and_doubles_another(make: Make) -> None:
    lake = make()
    lake.produce(10)
    lake.run()
    rewritten(lake, "_source_offset <> 3", again="_source_offset = 4")
    assert not complete(run := lake.audit()), told(run)


@pytest.mark.long
def test_a_compaction_of_rows_that_are_marked_as_deleted_takes_none_away(make: Make) -> None:
    lake = make()
    for _ in range(2):
        lake.produce(10)
        lake.run()
    lake.sql("ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    lake.sql("DELETE FROM {table} WHERE _source_offset = 13")
    before = {message for code, message in told(lake.looked_at()) if code in ("MUTATED", "GAP")}
    lake.maintenance("rewriteDataFiles").option("rewrite-all", "true").execute()
    assert lake.of.table().current_snapshot().summary.operation.value == "replace"
    run = lake.looked_at()
    assert {message for code, message in told(run) if code in ("MUTATED", "GAP")} == before, told(run)


@pytest.mark.long
def test_a_merge_is_rolled_back_and_its_snapshot_expired(make: Make) -> None:
    lake = make(kind="iceberg_merge", sink={"keys": ["key"]})
    for keys in ("k", "other"):
        lake.kafka.produce(lake.topic, [(f"{keys}{i}", "v", 0) for i in range(5)])
        lake.run()
    assert complete(lake.audit())
    lake.roll_back(3)
    lake.produce(1)
    lake.run()
    lake.maintenance("expireSnapshots").expireOlderThan(4_102_444_800_000).execute()  # of before 2100
    assert not complete(run := lake.audit()), told(run)
