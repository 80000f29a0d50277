"""Databases and file sinks that lose rows beside what others add, with recon's own record of them, or as a whole."""

# ruff: noqa: F811 - pytest finds fixtures by their names

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from recon import read_batches
from recon.audits.accept import accept, open_findings
from recon.base.errors import EvidenceError
from recon.model.wire.columns import SOURCE_COLUMNS
from recon.recovery.repair.run import repair
from tests.cases.lake import complete, failing, findings, ranges, told
from tests.cases.test_databases import DatabaseLake, Table, keyed, lake, table  # noqa: F401 - fixtures
from tests.cases.test_repair import parse
from tests.support.kafka import LocalKafka
from tests.support.marks import long

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.database]

Earlier = Callable[[timedelta], AbstractContextManager[None]]


def ran(lake: DatabaseLake, transform: Any = keyed) -> None:
    lake.produce(10)
    lake.run(transform=transform)


def old_and_new(lake: DatabaseLake, earlier: Earlier, table: Table | None = None, transform: Any = keyed) -> None:
    """Two micro-batches of three days ago, audited; and one of today, audited."""
    with earlier(timedelta(days=3)):
        for _ in range(2):
            ran(lake, transform)
    then = time.time() - 3 * 86400
    for path in lake.checkpoint.rglob("*"):
        os.utime(path, (then, then))
    if table is not None:
        days = "3 DAY" if table.database.product == "MariaDB" else "'3 days'"
        table.database.sql(
            f"UPDATE recon_ledger SET committed_at = committed_at - INTERVAL {days} WHERE target = '{table.name}'"
        )
    assert complete(lake.audit())
    ran(lake, transform)
    assert complete(lake.audit())


def mend(lake: DatabaseLake, transform: Any = keyed) -> None:
    repair(lake.project, "p", "s", spark=lake.spark, transform=transform)


def accept_all(lake: DatabaseLake) -> None:
    for one in open_findings(lake.project):
        accept(lake.project, one.id, by="Ada Lovelace", reason="known")


# -- a row is removed, and a stranger adds one -------------------------------------------------------------------------


@pytest.mark.parametrize("stranger", ["NULL, NULL, NULL", *long("'other', 0, 3", "'{topic}', 0, 99999")])
def test_a_row_is_removed_and_a_stranger_adds_one(
    lake: DatabaseLake,
    table: Table,
    stranger: str,
) -> None:
    for _ in range(2):
        ran(lake)
    assert complete(lake.audit())
    table.remove(3)
    table.database.sql(
        f"INSERT INTO {table.name} (k, v, _source_topic, _source_partition, _source_offset) "
        f"VALUES ('z', 'z', {stranger.format(topic=lake.topic)})"
    )
    for full in (False, True):
        run = lake.audit(full=full)
        assert not complete(run), ("offset 3 is lost", told(run))


@pytest.mark.long
def test_a_row_of_an_old_micro_batch_is_removed_and_a_stranger_adds_five(
    lake: DatabaseLake,
    table: Table,
    written_earlier: Earlier,
) -> None:
    old_and_new(lake, written_earlier, table)
    table.remove(3)
    table.database.sql(*[f"INSERT INTO {table.name} (k, v) VALUES ('z', '{i}')" for i in range(5)])
    run = lake.audit()
    assert not complete(run), ("offset 3 is lost", told(run))


# -- a row is removed, another doubled, and the doubled one is removed as the audit advises ----------------------------


@pytest.mark.long
def test_a_filtered_stream_one_row_is_removed_and_another_doubled(
    lake: DatabaseLake,
    table: Table,
    written_earlier: Earlier,
) -> None:
    old_and_new(lake, written_earlier, table, parse)
    table.remove(15)
    table.double(5)
    run = lake.audit()
    assert ranges(findings(run, "DUPLICATE")) == {(0, 5, 6)}
    table.remove(5, only=1)  # "remove all but one"
    run = lake.audit()
    assert not complete(run), ("offset 15 is lost", told(run))
    assert not complete(lake.audit(full=True))


@pytest.mark.long
def test_the_same_behind_a_repair(lake: DatabaseLake, table: Table, written_earlier: Earlier) -> None:
    old_and_new(lake, written_earlier, table)
    table.double(7)
    lake.audit()
    mend(lake)
    assert complete(lake.audit())
    table.remove(15)
    table.double(5)
    assert "DUPLICATE" in failing(lake.audit())
    mend(lake)
    run = lake.audit()
    assert not complete(run), ("offset 15 is lost; --full says GAP", told(run))


# -- the record in the database is edited together with the rows -------------------------------------------------------


@pytest.mark.parametrize("how", ["removed", *long("edited")])
def test_rows_and_their_record_go_together(
    lake: DatabaseLake,
    table: Table,
    written_earlier: Earlier,
    how: str,
) -> None:
    old_and_new(lake, written_earlier, table)
    mine = f"target = '{table.name}' AND batch_id = 0"
    if how == "removed":
        table.remove(*range(10))
        table.database.sql(f"DELETE FROM recon_ledger WHERE {mine}")
    else:
        table.remove(3)
        table.database.sql(f"UPDATE recon_ledger SET rows_written = 9, rows_given = 9 WHERE {mine}")
    ran(lake)
    run = lake.audit()
    assert not complete(run), ("rows of micro-batch 0 are lost; --full says LEDGER_ORPHAN", told(run))


# -- manifests ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(kafka: LocalKafka, spark: SparkSession, topic: Callable[..., str], tmp_path: Path) -> DatabaseLake:
    return DatabaseLake(tmp_path, kafka, spark, topic("t"), sink={"kind": "parquet", "target": "files"})


@pytest.mark.parametrize("with_files", [True, *long(False)])
def test_an_old_manifest_is_gone(files: DatabaseLake, written_earlier: Earlier, with_files: bool) -> None:
    """As a bucket's lifecycle rule leaves it: manifests and data files of old micro-batches expire alike."""
    old_and_new(files, written_earlier)
    target = files.path / "files"
    for name in ("0/0/0.json", "writes/1.json"):
        (target / "_recon_manifests" / name).unlink()
    if with_files:
        shutil.rmtree(target / "_recon_epoch=0/_batch_id=0")
    assert read_batches(files.spark, str(target)).count() == 20
    run = files.audit()
    assert not complete(run), ("10 of 30 rows are gone; --full says LEDGER_ORPHAN", told(run))


@pytest.mark.long
def test_an_old_manifest_says_fewer_rows(files: DatabaseLake, written_earlier: Earlier) -> None:
    old_and_new(files, written_earlier)
    manifest = files.path / "files" / "_recon_manifests/0/0/0.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "files": [], "rows": 0}))
    assert read_batches(files.spark, str(files.path / "files")).count() == 20
    run = files.audit()
    assert "MUTATED" in failing(run), ("10 of 30 rows are not read any more", told(run))


def test_a_manifest_names_a_file_less(files: DatabaseLake) -> None:
    for _ in range(2):
        ran(files)
    assert complete(files.audit())
    target = files.path / "files"
    manifest = target / "_recon_manifests/0/0/1.json"
    edited = json.loads(manifest.read_text())
    assert edited["rows"] == 10 and len(edited["files"]) == 1
    manifest.write_text(json.dumps({**edited, "files": []}))
    with pytest.raises(EvidenceError, match="says 10 rows, and the files that it names have 0"):
        read_batches(files.spark, str(target))
    run = files.audit()
    assert not complete(run), ("10 of 20 rows are gone", told(run))


# -- what was accepted, and another fault ------------------------------------------------------------------------------


@pytest.mark.long
def test_an_accepted_row_comes_back_and_another_goes(lake: DatabaseLake, table: Table) -> None:
    for _ in range(2):
        ran(lake)
    lake.audit()
    table.database.sql(f"CREATE TABLE {table.name}_kept AS SELECT * FROM {table.name} WHERE _source_offset = 3")
    try:
        table.remove(3)
        lake.audit()
        accept_all(lake)
        assert not failing(lake.audit())
        table.database.sql(f"INSERT INTO {table.name} SELECT * FROM {table.name}_kept")
    finally:
        table.database.sql(f"DROP TABLE {table.name}_kept")
    table.remove(15)
    run = lake.audit(full=True)
    assert failing(run), ("offset 15 is lost, 3 was accepted", run.pipelines[0].says, told(run))


@pytest.mark.long
def test_an_accepted_double_is_removed_and_another_row_doubled(lake: DatabaseLake, table: Table) -> None:
    for _ in range(2):
        ran(lake)
    table.double(5)
    lake.audit()
    accept_all(lake)
    assert not failing(lake.audit())
    table.remove(5, only=1)
    table.double(12)
    ran(lake)
    run = lake.audit()
    assert "MUTATED" in failing(run) and (0, 12, 13) in ranges(findings(run, "DUPLICATE")), told(run)


@pytest.mark.long
@pytest.mark.parametrize("no_spark", [False, *long(True)])
def test_what_was_accepted_is_no_other_change(
    lake: DatabaseLake, table: Table, written_earlier: Earlier, no_spark: bool
) -> None:
    """An audit without Spark proves nothing, so that the next one compares with what the one before it saw."""
    old_and_new(lake, written_earlier, table, parse)
    columns = "k, v, _source_topic, _source_partition, _source_offset, _batch_id"

    def put(offset: int) -> None:
        row = f"'k{offset}', 'v', '{lake.topic}', 0, {offset}, 0"
        table.database.sql(f"INSERT INTO {table.name} ({columns}) VALUES ({row})")

    table.remove(3)
    if not no_spark:
        put(90001)
    assert "MUTATED" in failing(run := lake.audit(no_spark=no_spark)), told(run)
    accept_all(lake)
    put(3 if no_spark else 90002)
    table.remove(5)
    for full in (False, True):
        run = lake.audit(full=full)
        assert "MUTATED" in failing(run), ("offset 5 is lost, and another change was accepted", told(run))


# -- as many rows, and others ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_row_is_removed_and_a_stranger_adds_one_of_our_micro_batch(lake: DatabaseLake, table: Table) -> None:
    for _ in range(2):
        ran(lake)
    table.remove(3)
    table.database.sql(
        f"INSERT INTO {table.name} (k, v, _source_topic, _source_partition, _source_offset, _batch_id) "
        f"VALUES ('z', 'z', '{lake.topic}', 0, 99999, 0)"
    )
    run = lake.audit()
    assert "MUTATED" in failing(run) and (0, 3, 4) in ranges(findings(run, "GAP")), told(run)


@pytest.mark.long
def test_rows_without_a_source_are_written_and_none_is_gone(lake: DatabaseLake, table: Table) -> None:
    lake.explodes = True

    def headed(frame: Any) -> Any:
        rows = keyed(frame)
        nothing = {name: F.lit(None).cast(rows.schema[name].dataType) for name in SOURCE_COLUMNS}
        return rows.unionByName(rows.limit(1).withColumns(nothing))

    for _ in range(3):
        ran(lake, headed)
        assert "MUTATED" not in failing(run := lake.audit()), told(run)
    table.database.sql(f"ALTER TABLE {table.name} RENAME COLUMN _source_offset TO away")
    lake.audit(keep=False)
    assert "lacks" not in " ".join(message for _, message in told(lake.audit(no_spark=True)))
    table.database.sql(f"ALTER TABLE {table.name} RENAME COLUMN away TO _source_offset")
    assert "MUTATED" not in failing(run := lake.audit()), told(run)


@pytest.mark.long
def test_rows_of_one_offset_are_lawful_and_one_takes_the_place_of_another(lake: DatabaseLake, table: Table) -> None:
    lake.explodes = True
    for _ in range(2):
        ran(lake, lambda frame: keyed(frame).unionByName(keyed(frame)))
    assert complete(run := lake.audit()), told(run)
    ran(lake, lambda frame: keyed(frame).unionByName(keyed(frame)))
    table.remove(3, only=1)
    table.double(5)  # both rows
    table.remove(5, only=1)
    run = lake.audit()
    assert "MUTATED" in failing(run), told(run)


# -- clocks and repairs ------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("kind", ["lake", *long("files")])
def test_the_drivers_clock_was_behind_and_is_set_right(
    request: pytest.FixtureRequest, postgres: Any, topic: Callable[..., str], written_earlier: Earlier, kind: str
) -> None:
    of: DatabaseLake = request.getfixturevalue("files")
    name = f"clock_{topic('t').replace('-', '_')}"
    if kind == "lake":
        of.sink = {"kind": "jdbc_append", "target": name, "connection": postgres.connection, "create_table": True}
    with written_earlier(timedelta(hours=2)):
        for _ in range(3):
            ran(of)
    assert complete(of.audit())
    ran(of)
    assert complete(of.audit())
    run = of.audit()
    entries = [entry.batch_id for entry in of.entries()]
    if kind == "lake":
        postgres.sql(f"DROP TABLE {name}", f"DELETE FROM recon_ledger WHERE target = '{name}'")
    assert entries == [0, 1, 2, 3]
    assert not findings(run, "LEDGER_MISSING"), told(run)  # "micro-batch 0 ... has no ledger entry"


@pytest.mark.long
def test_a_repaired_row_is_not_doubled(
    lake: DatabaseLake,
    table: Table,
    written_earlier: Earlier,
) -> None:
    with written_earlier(timedelta(days=3)):
        for _ in range(2):
            ran(lake)
    lake.audit()
    table.remove(3)
    lake.audit()
    mend(lake)
    lake.audit()
    accept_all(lake)
    lake.audit()
    table.double(5)
    run = lake.audit()
    assert ranges(findings(run, "DUPLICATE")) == {(0, 5, 6)}, ("offset 3 has one row", told(run))


# -- tables and records that are not there -----------------------------------------------------------------------------


def test_the_table_is_dropped(lake: DatabaseLake, table: Table) -> None:
    for _ in range(2):
        ran(lake)
    assert complete(lake.audit())
    table.database.sql(f"DROP TABLE {table.name}")
    for full in (False, True):
        run = lake.audit(full=full)
        assert not complete(run), ("all 20 rows are lost", told(run))


@pytest.mark.long
def test_the_upserted_table_is_dropped(lake: DatabaseLake, table: Table) -> None:
    lake.sink = {**lake.sink, "kind": "jdbc_upsert", "keys": ["k"]}
    ran(lake)
    assert complete(lake.audit())
    table.database.sql(f"DROP TABLE {table.name}")
    run = lake.audit()
    assert not complete(run), ("the table is not there", told(run))


@pytest.mark.long
def test_what_is_not_there_is_named(lake: DatabaseLake, table: Table) -> None:
    ran(lake)
    table.database.sql("ALTER TABLE recon_ledger RENAME TO recon_ledger_away")
    try:
        run = lake.audit()
    finally:
        table.database.sql("ALTER TABLE recon_ledger_away RENAME TO recon_ledger")
    (orphan,) = findings(run, "LEDGER_ORPHAN")
    assert table.count() == 10 and f"{table.name} is not there" not in orphan.message, orphan.message


@pytest.mark.long
def test_what_is_not_there_is_named_of_files(files: DatabaseLake) -> None:
    ran(files)
    target = files.path / "files"
    shutil.rmtree(target / "_recon_manifests")
    (orphan,) = findings(files.audit(), "LEDGER_ORPHAN")
    assert list(target.rglob("part-*.parquet")) and f"{target} is not there" not in orphan.message, orphan.message
