"""The rows of single commits of a Delta table, read from their data files without Spark."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from recon.base.errors import EvidenceError
from recon.base.storage import Storage
from recon.model import CommitRows, CountedRows, Unavailable
from recon.model.fingerprint import PRIME, of_offsets
from recon.model.offsets import OffsetSpan
from recon.witness import commit_rows, delta_rows
from recon.witness.delta_log import added_files
from tests.support.column_mapping import rename_columns


def rows(*places: tuple[str, int | None, int | None]) -> pa.Table:
    topics, partitions, offsets = zip(*places, strict=True)
    return pa.table(
        {
            "_source_topic": pa.array(topics),
            "_source_partition": pa.array(partitions, pa.int32()),
            "_source_offset": pa.array(offsets, pa.int64()),
            "value": [f"v{n}" for n in range(len(places))],
        }
    )


def read(table: Path, version: int) -> CommitRows | Unavailable:
    return commit_rows.read(Storage(str(table)), [version])[version]


def why(table: Path, version: int = 0) -> str:
    found = read(table, version)
    assert isinstance(found, Unavailable)
    return found.reason


ONE = [("orders", 0, offset) for offset in (3, 4, 4, 7)]
OTHER = [("orders", 12, 2**40), ("payments", 0, 5), ("payments", 0, 6)]


@pytest.mark.parametrize("partitioned", [[], ["physical 2"]])
def test_columns_have_other_names_in_the_files_than_in_the_table(tmp_path: Path, partitioned: list[str]) -> None:
    """As under column mapping; there a column that was renamed may leave its name to another one."""
    physical = ["physical 1", "physical 2", "_source_topic", "value"]
    names = dict(zip(physical, ["_source_topic", "_source_partition", "_source_offset", "value"], strict=True))
    for _ in range(2):
        write_deltalake(str(tmp_path), rows(*ONE).rename_columns(physical), partition_by=partitioned, mode="append")
    assert why(tmp_path).startswith("data files have no ")
    rename_columns(tmp_path, names)
    storage, place = Storage(str(tmp_path)), ("orders", 0, 4)
    both = commit_rows.together(storage, [0, 1])
    assert isinstance(both, CommitRows) and both.held.rows == 8
    assert both.spans == [OffsetSpan("orders", None, 0, 3, 8)]
    assert list(delta_rows.in_commit(storage, 1, [place])[place].values()) == [2]
    if partitioned:  # deltalake looks for the partition's column by its name in the table
        with pytest.raises(EvidenceError, match="cannot be read without Spark"):
            delta_rows.find(storage, [place], numbered=False)
    else:
        assert len(delta_rows.find(storage, [place], numbered=False)[place]) == 4


def test_rows_are_counted_with_their_different_offsets(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), rows(*ONE, *OTHER))
    fingerprint = of_offsets("orders", 0, (3, 4, 4, 7)) + of_offsets("orders", 12, [2**40])
    assert read(tmp_path, 0) == CommitRows(
        version=0,
        held=CountedRows(7, (fingerprint + of_offsets("payments", 0, (5, 6))) % PRIME),
        offsets=6,
        spans=[
            OffsetSpan("orders", None, 0, 3, 8),
            OffsetSpan("orders", None, 12, 2**40, 2**40 + 1),
            OffsetSpan("payments", None, 0, 5, 7),
        ],
    )


def test_only_the_files_of_the_commit_are_read_whatever_later_ones_did(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), rows(*ONE))
    write_deltalake(str(tmp_path), rows(*OTHER), mode="append")
    before = [read(tmp_path, version) for version in (0, 1)]
    DeltaTable(str(tmp_path)).delete("_source_offset < 6")
    DeltaTable(str(tmp_path)).optimize.compact()
    assert [read(tmp_path, version) for version in (0, 1)] == before
    DeltaTable(str(tmp_path)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert why(tmp_path) == "data files are no longer in the store"


def test_offsets_that_lie_far_apart(tmp_path: Path) -> None:
    far = [("orders", 0, offset) for offset in (0, 2**45, 2**45, 2**50)]
    write_deltalake(str(tmp_path), rows(*far))
    found = read(tmp_path, 0)
    assert isinstance(found, CommitRows) and (found.held.rows, found.offsets) == (4, 3)


@pytest.mark.parametrize("by", ["_source_topic", "_source_partition"])
def test_a_column_by_which_the_table_is_partitioned_stands_in_the_log(tmp_path: Path, by: str) -> None:
    plain, parted = tmp_path / "plain", tmp_path / "parted"
    write_deltalake(str(plain), rows(*ONE, *OTHER))
    write_deltalake(str(parted), rows(*ONE, *OTHER), partition_by=[by])
    assert len(added_files(Storage(str(parted)), 0)) == 2
    assert read(parted, 0) == read(plain, 0)


def test_a_commit_of_no_rows(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), rows(*ONE).slice(0, 0))
    assert read(tmp_path, 0) == CommitRows(version=0, held=CountedRows(0, 0), offsets=0)


def test_rows_without_source_offsets_are_not_looked_at(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "a"), rows(*ONE).select(["_source_topic", "_source_offset", "value"]))
    assert "have no _source_partition" in why(tmp_path / "a")
    write_deltalake(str(tmp_path / "b"), rows(*ONE, ("orders", 0, None)))
    assert why(tmp_path / "b") == "rows have no source offset"
    names = {"_source_topic": "a", "_source_partition": 1.5, "_source_offset": 3}
    write_deltalake(str(tmp_path / "c"), pa.table({name: [value] for name, value in names.items()}))
    assert why(tmp_path / "c")


def test_files_with_deletion_vectors_torn_ones_and_missing_commits_are_not_looked_at(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), rows(*ONE))
    write_deltalake(str(tmp_path), rows(*ONE), mode="append")
    log = tmp_path / "_delta_log" / f"{1:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["deletionVector"] = {"storageType": "i", "pathOrInlineDv": "x", "cardinality": 1}
    log.write_text("\n".join(map(json.dumps, actions)))
    assert why(tmp_path, 1) == "data files have deletion vectors"
    (path,) = map(Path, added_files(Storage(str(tmp_path)), 0))
    path.write_bytes(path.read_bytes()[:40])
    assert why(tmp_path)
    assert "no commit file for version 9" in why(tmp_path, 9)


def test_a_store_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_rows, "STORE_S", 0.5)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        options = {
            "aws_access_key_id": "a",
            "aws_secret_access_key": "b",
            "aws_region": "us-east-1",
            "aws_endpoint_url": f"http://127.0.0.1:{listening.getsockname()[1]}",
        }
        began = time.monotonic()
        found = commit_rows.read(Storage("s3a://bucket/table", options), range(100))
        assert time.monotonic() - began < 5
    assert len(found) == 100 and all(isinstance(one, Unavailable) for one in found.values())
