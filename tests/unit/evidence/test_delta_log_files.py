"""Delta logs written by deltalake, and commit files made by hand for what it does not write."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from recon.base.errors import EvidenceError
from recon.base.storage import Storage
from recon.model import ReconStamp, dump_stamp, offsets_text
from recon.model.offsets import OffsetSpan
from recon.witness import delta_log
from tests.support.messages import raises
from tests.support.remote import Remote

AT = 1_795_255_097_583
STAMP = ReconStamp(
    pipeline="orders",
    sink="lake",
    epoch=0,
    batch_id=7,
    query_id="q-1",
    run_id=None,
    prev_hash="",
    offsets_text=offsets_text([OffsetSpan("orders", None, 0, 0, 3)]),
)


def rows(*values: int) -> pa.Table:
    return pa.table({"a": list(values), "b": [f"x {v}" for v in values]})


def append(path: Path, data: pa.Table, batch_id: int, *, stamp: ReconStamp | None = None, **more: Any) -> None:
    properties = CommitProperties(
        custom_metadata={"userMetadata": dump_stamp(stamp)} if stamp else None,
        app_transactions=[Transaction("recon:orders:lake", batch_id)],
    )
    write_deltalake(str(path), data, mode="append", commit_properties=properties, **more)


def hand_made(path: Path, version: int, *actions: dict[str, Any]) -> Storage:
    log = path / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020d}.json").write_text("\n".join(json.dumps(a) for a in actions) + "\n")
    return Storage(str(path))


def info(**more: Any) -> dict[str, Any]:
    return {"commitInfo": {"timestamp": AT, "operation": "WRITE", **more}}


def add(path: str, records: int | None = None, *, change: bool = True, **more: Any) -> dict[str, Any]:
    stats = {"stats": json.dumps({"numRecords": records, "minValues": {}})} if records is not None else {}
    return {"add": {"path": path, "dataChange": change, "modificationTime": AT, **stats, **more}}


def remove(path: str, records: int | None = None, *, change: bool = True, **more: Any) -> dict[str, Any]:
    return {"remove": add(path, records, change=change, **more)["add"]}


METADATA = {"metaData": {"id": "x", "configuration": {}, "createdTime": AT}}


def test_commits_of_a_table_written_by_deltalake(tmp_path: Path) -> None:
    table = tmp_path / "orders"
    write_deltalake(
        str(table),
        rows(1, 2),
        partition_by=["b"],
        configuration={
            "delta.logRetentionDuration": "interval 10 days",
            "delta.deletedFileRetentionDuration": "interval 36 hours",
        },
    )
    append(table, rows(3, 4, 5), 7, stamp=STAMP)
    DeltaTable(str(table)).delete("a = 3")
    append(table, rows(1), 8)
    DeltaTable(str(table)).optimize.compact()

    witness = delta_log.read(Storage(str(table)))

    assert (witness.exists, witness.first_retained, witness.last) == (True, 0, 4)
    assert witness.log_retention_days == 10.0
    assert witness.txns == {"recon:orders:lake": 8}
    assert list(witness.commits) == [0, 1, 2, 3, 4]
    history = {h["version"]: h for h in DeltaTable(str(table)).history()}
    for version, commit in witness.commits.items():
        assert commit.version == version
        assert commit.operation == history[version]["operation"]
        assert commit.timestamp == datetime.fromtimestamp(history[version]["timestamp"] / 1000, UTC)
        assert commit.operation_metrics == history[version]["operationMetrics"]
        assert commit.operation_parameters == history[version]["operationParameters"]
    append_, delete, optimize = witness.commits[1], witness.commits[2], witness.commits[4]
    assert (append_.txn, append_.stamp) == ({"recon:orders:lake": 7}, STAMP)
    assert append_.user_metadata == dump_stamp(STAMP)
    assert (append_.files_added, append_.rows_added, append_.rows_removed) == (3, 3, 0)
    assert append_.data_change
    # delta-rs writes no statistics on remove actions: they come from the add action of the same file
    assert (delete.operation, delete.files_removed, delete.rows_removed) == ("DELETE", 1, 1)
    assert (delete.stamp, delete.user_metadata, delete.txn) == (None, None, {})
    assert (optimize.operation, optimize.data_change, optimize.files_added) == ("OPTIMIZE", False, 0)


def test_a_commit_that_changes_no_data_says_how_many_rows_it_wrote_into_other_files(tmp_path: Path) -> None:
    of_two = add("b", 9, change=False), remove("a", change=False)
    marked = {"deletionVector": {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 2}}
    hand_made(tmp_path, 0, METADATA, info(), add("a", 10))
    hand_made(tmp_path, 1, info(), *of_two)
    hand_made(tmp_path, 2, info(operation="COMPUTE STATS"), add("b", 9, change=False))  # the same file
    hand_made(tmp_path, 3, info(), add("c", 7, change=False), remove("b", 9, change=False, **marked))
    hand_made(tmp_path, 4, info(), add("d", change=False), remove("c", change=False))
    commits = delta_log.read(hand_made(tmp_path, 5, info(), *of_two, add("e", 1))).commits
    rewrote = [commit.rewrote for commit in commits.values()]
    assert rewrote == [None, (9, 10), None, (7, 7), (None, 7), None]
    assert {(commit.rows_added, commit.rows_removed) for commit in list(commits.values())[1:5]} == {(0, 0)}


def test_only_the_versions_asked_for_are_read(tmp_path: Path) -> None:
    table = tmp_path / "orders"
    write_deltalake(str(table), rows(1), configuration={"delta.logRetentionDuration": "interval 2 weeks"})
    for batch_id in range(1, 6):
        append(table, rows(batch_id), batch_id)
    (table / "_delta_log" / f"{1:020d}.json").write_text("torn")
    storage = Storage(str(table))

    # version 1 is torn and never opened; the properties, set at version 0, are those of the table
    witness = delta_log.read(storage, from_version=2, to_version=4)
    assert list(witness.commits) == [2, 3, 4]
    assert (witness.first_retained, witness.last, witness.log_retention_days) == (0, 5, 14.0)
    with raises(EvidenceError):
        delta_log.read(storage)


def test_properties_before_the_versions_read_are_found(tmp_path: Path) -> None:
    table = tmp_path / "orders"
    write_deltalake(str(table), rows(1), configuration={"delta.logRetentionDuration": "interval 2 weeks"})
    append(table, rows(2), 1)
    storage = Storage(str(table))
    assert delta_log.read(storage, from_version=1).log_retention_days == 14.0
    DeltaTable(str(table)).alter.set_table_properties({"delta.logRetentionDuration": "interval 3 weeks"})
    append(table, rows(3), 2)
    assert delta_log.read(storage, from_version=3).log_retention_days == 21.0
    assert delta_log.read(storage, to_version=1).log_retention_days == 21.0
    assert delta_log.read(storage).log_retention_days == 21.0
    # behind a checkpoint the old commits may be gone
    DeltaTable(str(table)).create_checkpoint()
    append(table, rows(4), 3)
    for version in range(3):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    assert delta_log.read(storage, from_version=4).log_retention_days == 21.0
    assert delta_log.read(storage, from_version=4).first_retained == 3


def test_a_checksum_file_tells_of_the_whole_table(tmp_path: Path) -> None:
    hand_made(tmp_path, 0, METADATA, info())
    storage = hand_made(tmp_path, 1, info(), {"txn": {"appId": "mine", "version": 3}})
    checksum = {
        "metadata": {"configuration": {"delta.logRetentionDuration": "interval 3 days"}},
        "setTransactions": [{"appId": "old", "version": 9}, {"appId": "mine", "version": 3}],
    }
    (tmp_path / "_delta_log" / f"{1:020d}.crc").write_text(json.dumps(checksum))
    witness = delta_log.read(storage, from_version=1)
    assert witness.log_retention_days == 3.0
    assert witness.txns == {"old": 9, "mine": 3}


def features(*names: str) -> dict[str, Any]:
    given = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": list(names), "writerFeatures": list(names)}
    return {"protocol": given}


def test_a_table_whose_commits_a_catalog_takes_is_not_read(tmp_path: Path) -> None:
    storage = hand_made(tmp_path, 0, info(), features("catalogManaged", "inCommitTimestamp"))
    hand_made(tmp_path, 1, info(), add("a.parquet", 1))
    with raises(EvidenceError):
        delta_log.read(storage)
    # Of the newer version alone the checksum file tells, or what a catalog has not published yet.
    assert delta_log.read(storage, from_version=1).last == 1, "nothing tells"
    checksum = tmp_path / "_delta_log" / f"{1:020d}.crc"
    checksum.write_text(json.dumps({"metadata": {"id": "t"}, **features("catalogManaged")}))
    with pytest.raises(EvidenceError, match="a catalog takes the commits"):
        delta_log.read(storage, from_version=1)
    checksum.unlink()
    staged = tmp_path / "_delta_log" / "_staged_commits"
    staged.mkdir()
    assert delta_log.read(storage, from_version=1).last == 1, "Spark makes the folder in every log"
    (staged / f"{2:020d}.5cef7f1e-2b9f-4c0e-8a37-7c8b6ad0f5a1.json").write_text("{}")
    with pytest.raises(EvidenceError, match="a catalog takes the commits"):
        delta_log.read(storage, from_version=1)


def test_a_table_that_was_taken_back_from_a_catalog_is_read(tmp_path: Path) -> None:
    hand_made(tmp_path, 0, info(), features("catalogManaged"))
    storage = hand_made(tmp_path, 1, info(), features("inCommitTimestamp"))
    assert delta_log.read(storage).last == 1


def test_a_deleted_version_is_absent(tmp_path: Path) -> None:
    for version in range(5):
        storage = hand_made(tmp_path, version, METADATA, info(), add(f"{version}.parquet", 1))
    (tmp_path / "_delta_log" / f"{2:020d}.json").unlink()
    witness = delta_log.read(storage, from_version=1)
    assert list(witness.commits) == [1, 3, 4]
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    assert delta_log.read(storage).first_retained == 1


def test_deletion_vectors_reduce_the_rows(tmp_path: Path) -> None:
    """A DELETE by deletion vector removes and adds the same file; the difference is what was deleted."""
    hand_made(tmp_path, 0, METADATA, info(), add("a.parquet", 100))
    first = {"storageType": "u", "cardinality": 30}
    hand_made(
        tmp_path,
        1,
        info(operation="DELETE"),
        remove("a.parquet", 100),
        add("a.parquet", 100, deletionVector=first),
    )
    storage = hand_made(
        tmp_path,
        2,
        info(operation="DELETE"),
        remove("a.parquet", deletionVector=first),
        add("a.parquet", 100, deletionVector={"storageType": "u", "cardinality": 35}),
    )
    commits = delta_log.read(storage).commits
    assert (commits[1].rows_removed, commits[1].rows_added) == (30, 0)
    assert (commits[2].rows_removed, commits[2].rows_added) == (5, 0)


@pytest.mark.parametrize(
    ("operation", "metrics", "removed", "added"),
    [
        ("DELETE", {"numCopiedRows": "18", "numDeletedRows": "2"}, 2, 0),
        ("DELETE", {"num_copied_rows": 18}, 2, 0),
        ("MERGE", {"numTargetRowsCopied": "18", "numTargetRowsInserted": "0"}, 2, 0),
        ("UPDATE", {"numCopiedRows": "16", "numUpdatedRows": "2"}, 20, 18),
        ("DELETE", {"numCopiedRows": "36"}, 20, 18),
        ("DELETE", {}, 20, 18),
    ],
    ids=["DELETE", "DELETE of delta-rs", "MERGE that deletes", "UPDATE", "counted twice by a retry", "no metrics"],
)
def test_rows_that_were_copied_are_not_added(
    tmp_path: Path, operation: str, metrics: dict[str, Any], removed: int, added: int
) -> None:
    hand_made(tmp_path, 0, METADATA, info(), add("a.parquet", 20))
    storage = hand_made(
        tmp_path, 1, info(operation=operation, operationMetrics=metrics), remove("a.parquet", 20), add("b.parquet", 18)
    )
    commit = delta_log.read(storage).commits[1]
    assert (commit.rows_removed, commit.rows_added) == (removed, added)


def test_rows_without_statistics_are_unknown_not_zero(tmp_path: Path) -> None:
    hand_made(tmp_path, 0, METADATA, info(), add("a.parquet"), add("b.parquet", 3))
    storage = hand_made(tmp_path, 1, info(operation="DELETE"), remove("a.parquet"))
    commits = delta_log.read(storage).commits
    assert (commits[0].files_added, commits[0].rows_added, commits[0].rows_removed) == (2, None, 0)
    assert (commits[1].files_removed, commits[1].rows_added, commits[1].rows_removed) == (1, 0, None)


def test_numrecords_is_the_files_own_not_a_columns(tmp_path: Path) -> None:
    stats = '{"minValues":{"numRecords":900},"maxValues":{"numRecords":999},"numRecords":4}'
    storage = hand_made(tmp_path, 0, METADATA, info(), add("a.parquet", stats=stats))
    assert delta_log.read(storage).commits[0].rows_added == 4


def test_a_commit_without_commitinfo_is_dated_by_its_files(tmp_path: Path) -> None:
    storage = hand_made(tmp_path, 0, METADATA, add("a.parquet", 1))
    commit = delta_log.read(storage).commits[0]
    assert commit.timestamp == datetime.fromtimestamp(AT / 1000, UTC)
    assert (commit.operation, commit.operation_metrics, commit.user_metadata) == ("", {}, None)


def test_in_commit_timestamps_are_the_authority(tmp_path: Path) -> None:
    storage = hand_made(tmp_path, 0, METADATA, info(inCommitTimestamp=AT + 5000))
    assert delta_log.read(storage).commits[0].timestamp == datetime.fromtimestamp((AT + 5000) / 1000, UTC)


def test_other_files_of_the_log_are_no_commits(tmp_path: Path) -> None:
    storage = hand_made(tmp_path, 0, METADATA, info(), features())
    log = tmp_path / "_delta_log"
    for name in (
        f"{0:020d}.{9:020d}.compacted.json",
        f"{9:020d}.checkpoint.parquet",
        f"{9:020d}.checkpoint.80a083e8-7026.json",
        f".{1:020d}.json.crc",
        f"{1:020d}.json.tmp",
        "_last_checkpoint",
    ):
        (log / name).write_bytes(b"junk")
    (log / "_staged_commits").mkdir()
    (log / "_staged_commits" / f"{1:020d}.3a0d65cd-4056.json").write_text("junk")
    witness = delta_log.read(storage)
    assert (list(witness.commits), witness.last) == ([0], 0)
    assert delta_log.latest_version(storage) == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b'{"commitInfo":{"timestamp":1}}\n{"add":{"path":"a","da',
        b'{"commitInfo":',
        b'["commitInfo"]',
        b'{"commitInfo":{"timestamp":"today"}}',
        b'{"add":"a.parquet"}',
        b'{"add":{"dataChange":true,"stats":"{\\"numRecords\\":1}"}}',
        b'{"add":{"path":"a","dataChange":true,"stats":"{\\"num"}}',
        b'{"txn":{"appId":"a"}}',
        b"\xff\xfe{}",
    ],
)
def test_a_torn_commit_is_named(tmp_path: Path, content: bytes) -> None:
    storage = hand_made(tmp_path, 0, METADATA, info())
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_bytes(content)
    with raises(EvidenceError):
        delta_log.read(storage)
    with raises(EvidenceError):
        delta_log.find_stamped(storage, "a", 1, after=0)


@pytest.mark.parametrize("depth", [300, 940, 1015, 1020, 5000])
@pytest.mark.parametrize("action", ['{"txn":{"appId":"a","version":%s}}', '{"commitInfo":{"operation":%s}}'])
def test_an_action_that_is_nested_too_deep_is_named(tmp_path: Path, action: str, depth: int) -> None:
    storage = hand_made(tmp_path, 0, METADATA, info())
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text(action % ("[" * depth + "]" * depth))
    with pytest.raises(EvidenceError, match="cannot be understood"):
        delta_log.read(storage)


def test_statistics_may_hold_numbers_that_are_none(tmp_path: Path) -> None:
    stats = '{"minValues":{"amount":NaN},"maxValues":{"amount":Infinity},"numRecords":5}'
    storage = hand_made(tmp_path, 0, METADATA, info(), {"add": {"path": "a", "dataChange": True, "stats": stats}})
    assert delta_log.read(storage).commits[0].rows_added == 5


def test_a_torn_mark_is_named(tmp_path: Path) -> None:
    storage = hand_made(tmp_path, 0, METADATA, info(userMetadata=dump_stamp(STAMP)[:60]))
    with raises(EvidenceError):
        delta_log.read(storage)


def test_no_table_does_not_exist(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "absent"))
    witness = delta_log.read(storage)
    assert (witness.exists, witness.first_retained, witness.last, dict(witness.commits)) == (False, None, None, {})
    assert delta_log.latest_version(storage) is None
    assert delta_log.transaction_version(storage, "a") is None
    assert delta_log.find_stamped(storage, "a", 1, after=-1) is None


def test_the_stamped_commit_is_found_behind_others(tmp_path: Path) -> None:
    table = tmp_path / "orders"
    storage = Storage(str(table))
    append(table, rows(1), 6)
    append(table, rows(2), 7, stamp=STAMP)
    write_deltalake(str(table), rows(3), mode="append")
    found = delta_log.find_stamped(storage, "recon:orders:lake", 7, after=-1)
    assert found is not None
    assert (found.version, found.stamp, found.rows_added) == (1, STAMP, 1)
    assert delta_log.find_stamped(storage, "recon:orders:lake", 7, after=0) == found
    assert delta_log.find_stamped(storage, "recon:orders:lake", 7, after=1) is None
    assert delta_log.find_stamped(storage, "recon:orders:lake", 8, after=-1) is None
    assert delta_log.find_stamped(storage, "recon:orders:other", 7, after=-1) is None


def test_the_latest_version_with_and_without_a_checkpoint(tmp_path: Path) -> None:
    table = tmp_path / "orders"
    storage = Storage(str(table))
    for batch_id in range(4):
        append(table, rows(batch_id), batch_id)
    assert delta_log.latest_version(storage) == 3
    DeltaTable(str(table)).create_checkpoint()
    assert delta_log.latest_version(storage) == 3
    append(table, rows(9), 9)
    assert delta_log.latest_version(storage) == 4
    # cleaned up: only the checkpoint still tells of versions 0 to 3
    for version in range(4):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    assert delta_log.latest_version(storage) == 4
    assert delta_log.read(storage).first_retained == 4
    assert delta_log.transaction_version(storage, "recon:orders:lake") == 9
    assert delta_log.transaction_version(storage, "nobody") is None


def test_added_files_are_whole_decoded_paths(tmp_path: Path) -> None:
    table = tmp_path / "orders"
    write_deltalake(str(table), rows(1, 2), partition_by=["b"])
    files = delta_log.added_files(Storage(str(table)), 0)
    assert len(files) == 2
    assert all(Path(f).is_file() for f in files)
    for file, action in delta_log.added_files(Storage(str(table)), 0).items():
        assert unquote(Path(file).parent.name) == f"b={action['partitionValues']['b']}"
    assert delta_log.added_files(Storage(f"file:{table}"), 0) == files
    with raises(EvidenceError):
        delta_log.added_files(Storage(str(table)), 5)


def test_added_files_leave_out_rearranged_ones_and_keep_foreign_paths(tmp_path: Path) -> None:
    storage = hand_made(
        tmp_path,
        0,
        METADATA,
        info(),
        add("part%20one.parquet", 1),
        add("moved.parquet", 1, change=False),
        add("s3://other/table/a%2520b.parquet", 1),
        remove("gone.parquet", 1),
    )
    assert list(delta_log.added_files(storage, 0)) == [
        f"{tmp_path}/part one.parquet",
        "s3://other/table/a%20b.parquet",
    ]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("interval 30 days", 30.0),
        ("30 days", 30.0),
        ("INTERVAL 1 WEEK 2 DAYS", 9.0),
        ("interval 720 hours", 30.0),
        ("interval 0 hours", 0.0),
        ("interval 1 day", 1.0),
    ],
)
def test_retention_intervals(tmp_path: Path, text: str, days: float) -> None:
    properties = {"metaData": {"id": "x", "configuration": {"delta.logRetentionDuration": text}}}
    witness = delta_log.read(hand_made(tmp_path, 0, properties, info()))
    assert witness.log_retention_days == days


@pytest.mark.parametrize("text", ["", "soon", "interval 2 months", "interval 3"])
def test_a_retention_that_is_no_interval_is_named(tmp_path: Path, text: str) -> None:
    properties = {"metaData": {"id": "x", "configuration": {"delta.logRetentionDuration": text}}}
    with raises(EvidenceError):
        delta_log.read(hand_made(tmp_path, 0, properties, info()))


def test_a_store_that_is_not_local_gives_the_same(tmp_path: Path) -> None:
    """The way of every scheme but local paths, through pyarrow.fs, here on a file:// URI."""
    table = tmp_path / "orders"
    for batch_id in range(40):
        append(table, rows(batch_id), batch_id)
    storage, direct = Remote(f"file://{table}"), delta_log.read(Storage(f"file://{table}"))
    assert delta_log.read(storage) == direct
    assert list(delta_log.read(storage).commits) == list(range(40))
    assert delta_log.latest_version(storage) == 39
    assert delta_log.find_stamped(storage, "recon:orders:lake", 5, after=3) == direct.commits[5]
    assert next(iter(delta_log.added_files(storage, 0))).startswith(f"file://{table}/part-")


def test_who_made_a_commit_as_far_as_the_log_says(tmp_path: Path) -> None:
    by = {
        "userName": "ada@example.org",
        "userId": "42",
        "job": {"jobId": "17", "jobName": "nightly", "jobRunId": 9, "jobOwnerId": None},
        "notebook": {"notebookId": "88"},
        "clusterId": "0912-x",
        "engineInfo": "Databricks-Runtime/16.4",
    }
    hand_made(tmp_path, 0, info(), METADATA)
    hand_made(tmp_path, 1, info(**{**by, "operation": "DELETE"}))
    hand_made(tmp_path, 2, info(job="no object", userName=["x"], notebook={"notebookId": True}))
    hand_made(tmp_path, 3, info(**by, userMetadata=dump_stamp(STAMP)))
    commits = delta_log.read(Storage(str(tmp_path))).commits
    assert commits[1].made_by == {
        "user": "ada@example.org",
        "user id": "42",
        "job": "nightly",
        "job id": "17",
        "job run": "9",
        "notebook id": "88",
        "cluster": "0912-x",
        "engine": "Databricks-Runtime/16.4",
    }
    assert [commits[version].made_by for version in (0, 2, 3)] == [{}, {}, {}]
