"""The Iceberg witness and its judge, on real tables that pyiceberg writes into a SQLite catalog: no JVM."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import RemoveSnapshotRefUpdate

from recon.base.errors import ConfigError, EvidenceError, RefusedError, SinkError
from recon.checks.evidence.iceberg_history import IcebergHistory
from recon.model import Code, CommitRows, KnownTable, PreviousAudit, ReconStamp, Verdict, dump_stamp, offsets_text
from recon.model.wire.iceberg import MERGED, STAMP, number_property
from recon.project import IcebergSink
from recon.testing.evidence import PIPELINE, SINK, Entry, ledger
from recon.witness import iceberg
from recon.witness.iceberg import IcebergTable
from recon.write.sinks.iceberg.append import IcebergAppend
from recon.write.sinks.iceberg.publish import new_branch, published, staged
from tests.support.messages import raises, same_message
from tests.support.witnesses import witnesses

NAME = "lake.sales.orders"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("_batch_id", pa.int64()),
        ("_source_topic", pa.string()),
        ("_source_partition", pa.int32()),
        ("_source_offset", pa.int64()),
    ]
)


class Orders:
    """The table `sales.orders` of a catalog in a folder, and what is done to it."""

    def __init__(self, folder: Path) -> None:
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
        self.catalog: Catalog = load_catalog("lake", **self.properties)
        self.catalog.create_namespace("sales")
        self.make()

    @property
    def source(self) -> IcebergTable:
        return IcebergTable(NAME, self.properties)

    def make(self) -> None:
        self.catalog.create_table("sales.orders", SCHEMA, properties={"format-version": "2"})

    def table(self) -> Table:
        return self.catalog.load_table("sales.orders")

    def write(self, entry: Entry, branch: str = "main") -> int:
        """A stamped append of an entry's rows; its version."""
        properties = {STAMP: dump_stamp(stamp_of(entry))}
        table = self.table()
        table.append(rows_of(entry), snapshot_properties=properties, branch=branch)
        snapshot = self.table().snapshot_by_name(branch)
        assert snapshot is not None and snapshot.sequence_number is not None
        return snapshot.sequence_number

    def witness(self, *, files: bool = True) -> Any:
        return iceberg.read(NAME, self.source.find(), files=files)

    def roll_back(self, version: int) -> None:
        table = self.table()
        target = next(s for s in table.metadata.snapshots if s.sequence_number == version)
        with table.manage_snapshots() as snapshots:
            snapshots.set_current_snapshot(snapshot_id=target.snapshot_id)

    def expire(self, *versions: int) -> None:
        table = self.table()
        ids = [s.snapshot_id for s in table.metadata.snapshots if s.sequence_number in versions]
        table.maintenance.expire_snapshots().by_ids(ids).commit()

    def judge(self, *entries: Entry, **more: Any) -> Verdict:
        return IcebergHistory().judge(witnesses(ledger(*entries), delta=self.witness(), **more))


def stamp_of(entry: Entry, **fields: Any) -> ReconStamp:
    made = {
        "pipeline": PIPELINE,
        "sink": SINK,
        "epoch": 0,
        "batch_id": entry.batch_id,
        "query_id": "q-1",
        "run_id": None,
        "prev_hash": "",
        "offsets_text": offsets_text(entry.ranges),
        "number": entry.batch_id + 1,
    }
    return ReconStamp(**{**made, **fields})


def rows_of(entry: Entry) -> pa.Table:
    rows = [
        (offset, entry.batch_id, of.topic, of.partition, offset)
        for of in entry.ranges
        for offset in range(of.start_offset, of.end_offset)
    ]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def codes(verdict: Verdict) -> set[str]:
    return {finding.code.value for finding in verdict.findings}


def at(entry: Entry, version: int, **head: Any) -> Entry:
    now = datetime.now(UTC)
    times = {"started_at": now, "committed_at": now}
    return Entry(entry.batch_id, *entry.ranges, **{**times, "sink_version": version, **entry.head, **head})


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


@pytest.fixture
def written(orders: Orders) -> Sequence[Entry]:
    """Three micro-batches of ten rows, in the table and as entries."""
    entries = [Entry(n, (n * 10, n * 10 + 10)) for n in range(3)]
    return [at(entry, orders.write(entry)) for entry in entries]


def test_a_catalog_is_left_with_its_reader(orders: Orders) -> None:
    source = orders.source
    assert source.find() is not None
    pool = source.catalog.engine.pool  # type: ignore[attr-defined]
    assert pool.checkedin() == 1
    gc.disable()
    try:
        del source
        assert pool.checkedin() == 0
    finally:
        gc.enable()


def test_the_history_is_the_line_of_snapshots(orders: Orders, written: Sequence[Entry]) -> None:
    witness = orders.witness()
    assert (witness.first_retained, witness.last, witness.highest) == (1, 3, 3)
    commits = [witness.commits[version] for version in (1, 2, 3)]
    assert [(c.rows_added, c.rows_removed, c.rows_taken, c.left_nothing) for c in commits] == [
        (10, 0, 10, False),
        (10, 0, 10, False),
        (10, 0, 10, False),
    ]
    assert [c.stamp.batch_id for c in commits] == [0, 1, 2]
    assert (witness.files.files, witness.files.rows, witness.files.gone) == (3, 30, [])
    verdict = orders.judge(*written)
    assert (verdict.unproved, codes(verdict)) == (None, set())
    assert verdict.evidence["versions"] == [1, 3]


def test_an_entry_without_its_snapshot_and_a_snapshot_without_its_entry(
    orders: Orders, written: Sequence[Entry]
) -> None:
    assert "LEDGER_ORPHAN" in codes(orders.judge(*written, at(Entry(3, (30, 40)), 4)))
    old = datetime.now(UTC) + timedelta(hours=1)
    verdict = orders.judge(*written[:2], now=old, period_to=old)
    assert codes(verdict) >= {"LEDGER_MISSING"}
    verdict = orders.judge(*written[:2], at(Entry(2, (20, 31)), 3))
    assert "LEDGER_ORPHAN" in codes(verdict)


def test_a_rollback_undoes_what_came_after(orders: Orders, written: Sequence[Entry]) -> None:
    orders.roll_back(1)
    verdict = orders.judge(*written)
    assert codes(verdict) == {"MUTATED", "GAP"}
    gaps = [finding for finding in verdict.findings if finding.code is Code.GAP]
    assert [(f.start_offset, f.end_offset) for f in gaps] == [(10, 30)]
    for finding in verdict.findings:
        assert same_message(finding.message)
    # What is written afterwards does not bring them back; the snapshots that were left behind may be expired.
    later = at(Entry(3, (30, 40)), orders.write(Entry(3, (30, 40))))
    orders.expire(2, 3)
    assert codes(orders.judge(*written, later)) == {"MUTATED", "GAP"}


def test_a_rollback_that_was_taken_back_counts_for_nothing(orders: Orders, written: Sequence[Entry]) -> None:
    orders.roll_back(1)
    orders.roll_back(3)
    assert codes(orders.judge(*written)) == set()


def test_a_branch_is_no_part_of_the_table(orders: Orders, written: Sequence[Entry]) -> None:
    table = orders.table()
    with table.manage_snapshots() as snapshots:
        snapshots.create_branch(table.current_snapshot().snapshot_id, "left")  # type: ignore[union-attr]
    orders.write(Entry(3, (30, 40)), branch="left")
    later = at(Entry(4, (40, 50)), orders.write(Entry(4, (40, 50))))
    assert orders.witness().last == 5
    assert codes(orders.judge(*written, later)) == set()


def test_rows_that_somebody_deleted(orders: Orders, written: Sequence[Entry]) -> None:
    orders.table().delete("id < 5")
    verdict = orders.judge(*written)
    assert codes(verdict) == {"MUTATED", "GAP"}
    (gap,) = [finding for finding in verdict.findings if finding.code is Code.GAP]
    assert (gap.rows, gap.start_offset) == (5, None)


def test_an_overwrite_of_everything(orders: Orders, written: Sequence[Entry]) -> None:
    orders.table().overwrite(rows_of(Entry(0, (0, 2))))
    verdict = orders.judge(*written)
    gaps = [(f.start_offset, f.end_offset) for f in verdict.findings if f.code is Code.GAP]
    assert ("MUTATED" in codes(verdict), gaps) == (True, [(0, 30)])


def test_rows_of_a_stranger(orders: Orders, written: Sequence[Entry]) -> None:
    orders.table().append(rows_of(Entry(9, (900, 905))))
    assert codes(orders.judge(*written)) == {"UNSTAMPED"}


def test_expired_snapshots_are_attested_by_the_ledger_alone(orders: Orders, written: Sequence[Entry]) -> None:
    orders.expire(1, 2)
    witness = orders.witness()
    assert (witness.first_retained, list(witness.commits)) == (3, [3])
    verdict = orders.judge(*written)
    assert "ATTESTED_ONLY" in codes(verdict)
    assert not codes(verdict) & {"MUTATED", "GAP", "LEDGER_ORPHAN"}
    for finding in verdict.findings:
        assert same_message(finding.message)


def test_rows_that_were_deleted_before_snapshots_expired_are_missed(orders: Orders, written: Sequence[Entry]) -> None:
    orders.table().delete("id < 5")
    later = at(Entry(3, (30, 40)), orders.write(Entry(3, (30, 40))))
    orders.expire(1, 2, 3, 4)
    verdict = orders.judge(*written, later)
    assert codes(verdict) >= {"MUTATED", "GAP", "ATTESTED_ONLY"}
    assert [f.rows for f in verdict.findings if f.code is Code.GAP] == [5]


def test_a_table_that_was_replaced_after_an_audit(orders: Orders, written: Sequence[Entry]) -> None:
    """CREATE OR REPLACE TABLE keeps the table's id and its old snapshots, and begins a new line."""
    table, before = orders.table(), orders.witness()
    known = KnownTable(table_id=before.table_id, version=3, read_at=datetime.now(UTC), counted=(3, 30))
    previous = PreviousAudit(generated_at=datetime.now(UTC), tables={SINK: known})
    assert codes(orders.judge(*written, previous=previous)) == set()
    table.catalog.commit_table(table, (), (RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"}),))
    later = at(Entry(3, (30, 40)), orders.write(Entry(3, (30, 40))))
    assert orders.table().metadata.table_uuid == table.metadata.table_uuid
    assert (orders.witness().whole, list(orders.witness().commits)) == (True, [4])
    verdict = orders.judge(*written, later)
    assert codes(verdict) >= {"MUTATED", "GAP"}
    # So it is where the audit goes on behind the micro-batches that were proved.
    of_period = ledger(written[2], later, anchors=1, complete=False)
    verdict = IcebergHistory().judge(witnesses(of_period, delta=orders.witness(), previous=previous))
    assert codes(verdict) >= {"MUTATED", "GAP"}
    assert [f.rows for f in verdict.findings if f.code is Code.GAP] == [30]


def test_rows_of_a_merge_on_read_table_are_not_counted(orders: Orders, written: Sequence[Entry]) -> None:
    """The summary of a snapshot that only adds delete files, as Spark writes it."""
    counts = {"added-delete-files": "1", "added-position-deletes": "4", "total-records": "30"}
    snapshot = orders.table().current_snapshot()
    assert snapshot is not None
    summary = Summary(Operation.OVERWRITE, **counts)
    commit = iceberg.commit_of(snapshot.model_copy(update={"summary": summary}))
    assert (commit.files_removed, commit.rows_removed, commit.left_nothing, commit.stamp) == (1, 4, False, None)
    torn = Summary(Operation.OVERWRITE, **{"added-records": "many"})
    with raises(EvidenceError):
        iceberg.commit_of(snapshot.model_copy(update={"summary": torn, "snapshot_id": 1}))


def test_a_data_file_that_is_gone(orders: Orders, written: Sequence[Entry]) -> None:
    snapshot = iceberg.snapshot_of(orders.table(), 2)
    assert snapshot is not None
    (file,) = iceberg.added_files(orders.table(), snapshot)
    Path(file.file_path.removeprefix("file://")).unlink()
    (gone,) = orders.witness().files.gone
    assert (gone.rows, gone.batch_ids, gone.topic, gone.partition, gone.offsets) == (10, (1, 1), "orders", 0, (10, 20))
    verdict = orders.judge(*written)
    assert codes(verdict) == {"MUTATED", "GAP"}
    assert [(f.start_offset, f.end_offset) for f in verdict.findings if f.code is Code.GAP] == [(10, 20)]


def test_a_table_that_was_made_anew(orders: Orders, written: Sequence[Entry]) -> None:
    orders.catalog.drop_table("sales.orders")
    assert "LEDGER_ORPHAN" in codes(orders.judge(*written))
    orders.make()
    assert orders.witness().last is None
    assert codes(orders.judge(*written)) >= {"LEDGER_ORPHAN"}


def test_a_merge_is_two_snapshots_and_one_commit(orders: Orders, written: Sequence[Entry]) -> None:
    table = orders.table()
    table.overwrite(rows_of(Entry(3, (0, 12))))  # a delete, and an append: the rows of a MERGE come from the last
    merged = orders.table().current_snapshot()
    assert merged is not None
    stamp = stamp_of(Entry(3, (30, 40)), given=10, taken=7)
    with orders.table().transaction() as transaction:
        properties = {STAMP: dump_stamp(stamp), MERGED: str(merged.snapshot_id)}
        transaction.update_snapshot(snapshot_properties=properties).fast_append().commit()
    witness = orders.witness()
    assert (witness.last, merged.sequence_number in witness.commits) == (merged.sequence_number + 1, False)  # type: ignore[operator]
    newest = witness.commits[witness.last]
    assert (newest.rows_added, newest.rows_taken, newest.stamp.given) == (12, 7, 10)


def test_source_offsets_of_the_rows_of_a_snapshot(orders: Orders, written: Sequence[Entry]) -> None:
    found = iceberg.rows_of(orders.table(), [2, 9])
    rows = found[2]
    assert isinstance(rows, CommitRows)
    assert (rows.held.rows, rows.offsets, [tuple(s)[3:5] for s in rows.spans]) == (10, 10, [(10, 20)])
    assert not isinstance(found[9], CommitRows)


def test_the_record_lists_the_stamped_snapshots(orders: Orders, written: Sequence[Entry]) -> None:
    log = iceberg.stamped(NAME, orders.table(), after=1)
    assert [(c.version, c.stamp.batch_id, c.rows) for c in log.commits] == [(2, 1, 10), (3, 2, 10)]
    assert not iceberg.stamped(NAME, None).exists


# -- publication --------------------------------------------------------------------------------------------------


def stage(orders: Orders, entry: Entry) -> Any:
    """A branch with the entry's rows, as Spark would write it: (branch, snapshot, stamp)."""
    stamp = stamp_of(entry)
    branch = new_branch(orders.table(), stamp)
    orders.write(entry, branch=branch.name)
    return branch, staged(orders.source, branch, stamp), stamp


def test_one_commit_publishes_the_branch_and_sets_the_number(orders: Orders) -> None:
    branch, newest, stamp = stage(orders, Entry(0, (0, 10)))
    assert iceberg.newest_number(orders.table(), PIPELINE, SINK) == 0
    before = orders.table()
    assert published(orders.source, branch, newest, stamp)
    table = orders.table()
    assert iceberg.newest_number(table, PIPELINE, SINK) == 1
    assert set(table.metadata.refs) == {"main"}
    assert table.metadata.current_snapshot_id == newest.snapshot_id
    assert len(table.metadata.metadata_log) == len(before.metadata.metadata_log) + 1
    assert published(orders.source, branch, newest, stamp)  # an answer that got lost: asked again, nothing is done


def test_of_two_drivers_one_publishes(orders: Orders) -> None:
    first = stage(orders, Entry(0, (0, 10)))
    second = stage(orders, Entry(0, (0, 10)))
    assert published(orders.source, *first)
    with raises(RefusedError):
        published(orders.source, *second)
    assert orders.witness().files.rows == 10


def test_the_number_stays_taken_when_its_snapshot_is_gone(orders: Orders) -> None:
    assert published(orders.source, *stage(orders, Entry(0, (0, 10))))
    second = stage(orders, Entry(1, (10, 20)))
    orders.roll_back(1)  # to the empty snapshot that the first branch began with
    orders.expire(2)
    with pytest.raises(RefusedError):
        new_branch(orders.table(), stamp_of(Entry(0, (0, 10))))
    # main is no longer what the second one was written on.
    assert not published(orders.source, *second)


def test_a_stranger_who_commits_during_the_write_makes_it_begin_anew(orders: Orders) -> None:
    branch, newest, stamp = stage(orders, Entry(0, (0, 10)))
    orders.table().append(rows_of(Entry(9, (900, 905))))
    assert not published(orders.source, branch, newest, stamp)
    assert published(orders.source, *stage(orders, Entry(0, (0, 10))))
    table = orders.table()
    assert (set(table.metadata.refs), table.scan().to_arrow().num_rows) == ({"main"}, 15)


def test_what_main_says_about_retention_stays(orders: Orders) -> None:
    orders.write(Entry(0, (0, 10)))
    table = orders.table()
    from pyiceberg.table.update import SetSnapshotRefUpdate

    keeps = {"ref-name": "main", "type": "branch", "snapshot-id": table.metadata.current_snapshot_id}
    update = SetSnapshotRefUpdate.model_validate({**keeps, "min-snapshots-to-keep": 7})
    table.catalog.commit_table(table, (), (update,))
    assert published(orders.source, *stage(orders, Entry(1, (10, 20))))
    assert orders.table().metadata.refs["main"].min_snapshots_to_keep == 7


# -- the sink without Spark ---------------------------------------------------------------------------------------


def sink(orders: Orders, **keys: Any) -> IcebergAppend:
    of = {"kind": "iceberg", "name": SINK, "target": NAME, "catalog": orders.properties}
    return IcebergAppend(IcebergSink.model_validate({**of, **keys}))


def test_confirm_and_landed(orders: Orders) -> None:
    with raises(EvidenceError):
        sink(orders, target="lake.sales.others").confirm(stamp_of(Entry(0, (0, 10))))
    assert published(orders.source, *stage(orders, Entry(0, (0, 10))))
    writer, stamp = sink(orders), stamp_of(Entry(0, (0, 10)))
    landed = writer.confirm(stamp)
    assert (landed.version, landed.rows, writer.newest_number(PIPELINE, SINK)) == (2, 10, 1)
    assert writer.landed(stamp, 2) == landed
    assert writer.landed(stamp_of(Entry(0, (0, 11))), 2) is None
    with pytest.raises(RefusedError):
        writer.confirm(stamp_of(Entry(0, (0, 10)), query_id="q-2", offsets_text="[]"))
    orders.write(Entry(1, (10, 20)))
    orders.roll_back(1)
    assert writer.landed(stamp, 2) == landed  # as after a RESTORE: a restart does not write it again
    orders.expire(2)
    assert writer.landed(stamp, 2) is not None
    assert writer.landed(stamp, 99) is None


def test_a_table_without_the_commit(orders: Orders) -> None:
    with raises(SinkError):
        sink(orders).confirm(stamp_of(Entry(0, (0, 10))))


def test_a_catalog_that_refuses(tmp_path: Path) -> None:
    nowhere = IcebergTable(NAME, {"type": "sql", "uri": "postgresql+psycopg://u:p@127.0.0.1:1/db", "warehouse": "x"})
    with pytest.raises(EvidenceError, match=r"^the Iceberg (catalog lake|table lake\.sales\.orders) cannot be"):
        nowhere.find()
    with raises(EvidenceError):
        IcebergTable(NAME, {"type": "nothing"}).find()


def test_a_table_of_format_version_1(orders: Orders) -> None:
    orders.catalog.create_table("sales.old", SCHEMA, properties={"format-version": "1"})
    with raises(EvidenceError):
        IcebergTable("lake.sales.old", orders.properties).find()


def test_a_number_that_somebody_changed(orders: Orders) -> None:
    with orders.table().transaction() as transaction:
        transaction.set_properties({number_property(PIPELINE, SINK): "many"})
    with raises(EvidenceError):
        sink(orders).newest_number(PIPELINE, SINK)


def test_pyiceberg_is_not_installed(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyiceberg.catalog", None)
    with raises(ConfigError):
        sink(orders).newest_number(PIPELINE, SINK)


def test_a_target_without_catalog_or_namespace() -> None:
    for target in ("orders", "lake.orders", "s3://bucket/orders"):
        with pytest.raises(ValueError, match="catalog and namespace"):
            IcebergSink.model_validate({"kind": "iceberg", "name": "a", "target": target})
