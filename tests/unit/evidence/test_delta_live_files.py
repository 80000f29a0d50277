"""The files that a Delta table consists of, of tables that deltalake wrote and of logs made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from recon.base.storage import Storage, read_file
from recon.model import DataFile, LiveFiles, Unavailable
from recon.model.offsets import Span
from recon.witness import delta_files, delta_log
from recon.witness.delta_commits import num_records
from tests.support.remote import Remote

_STATISTICS = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["{", "{ ", "{\n", '{"tightBounds":true,']),
        st.sampled_from(['"numRecords":', '"numRecords" : ', '"rows":']),
        st.integers(0, 2**63 - 1).map(str),
        st.sampled_from(["}", ',"minValues":{}}', " }"]),
    ),
) | st.sampled_from(["", "{}", '{"numRecords":null}'])


def rows(batch_id: int, *, partitions: int = 1) -> pa.Table:
    count = 10 * partitions
    return pa.table(
        {
            "_batch_id": pa.array([batch_id] * count, pa.int64()),
            "_source_topic": ["orders"] * count,
            "_source_partition": [i % partitions for i in range(count)],
            "_source_offset": pa.array([10 * batch_id + i // partitions for i in range(count)], pa.int64()),
        }
    )


def written(table: Path, batches: int, **options: Any) -> Storage:
    for batch_id in range(batches):
        write_deltalake(str(table), rows(batch_id), mode="append", **options)
    return Storage(str(table))


def live(storage: Storage, **bounds: int) -> LiveFiles:
    files = delta_log.read(storage, files=True, **bounds).files
    assert isinstance(files, LiveFiles), files
    return files


def only_gone(storage: Storage) -> DataFile:
    gone = live(storage).gone
    assert not isinstance(gone, Unavailable)
    (file,) = gone
    return file


def cleaned(table: Path, upto: int) -> None:
    for version in range(upto):
        (table / "_delta_log" / f"{version:020d}.json").unlink()


def commit(table: Path, version: int, *actions: dict[str, Any]) -> Storage:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020d}.json").write_text("\n".join(json.dumps(action) for action in actions))
    return Storage(str(table))


def add(path: str, count: int | None, **more: Any) -> dict[str, Any]:
    stats = {} if count is None else {"stats": json.dumps({"numRecords": count})}
    return {
        "add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
        | stats
        | more
    }


def test_files_are_looked_at_only_when_asked_for(tmp_path: Path) -> None:
    storage = written(tmp_path, 2)
    assert isinstance(delta_log.read(storage).files, Unavailable)
    assert live(storage) == LiveFiles(files=2, rows=20)


def test_a_file_that_is_gone_is_described_by_its_statistics(tmp_path: Path) -> None:
    storage = written(tmp_path, 3)
    before = sorted(tmp_path.rglob("*"))
    (path,) = delta_log.added_files(storage, 1)
    Path(path).unlink()
    described = DataFile(
        path=Path(path).name, rows=10, batch_ids=(1, 1), topic="orders", partition=0, offsets=Span(10, 20)
    )
    assert only_gone(storage) == described
    # The log still counts its rows, from the commits or from a checkpoint.
    DeltaTable(str(tmp_path)).create_checkpoint()
    cleaned(tmp_path, 2)
    assert only_gone(storage) == described
    assert live(storage, from_version=2).rows == 30
    assert {*before} >= {file for file in tmp_path.rglob("*") if "_delta_log" not in file.parts}


def test_a_file_of_several_partitions_names_none(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), rows(0, partitions=2))
    storage = Storage(str(tmp_path))
    (path,) = delta_log.added_files(storage, 0)
    Path(path).unlink()
    assert only_gone(storage) == DataFile(path=Path(path).name, rows=20, batch_ids=(0, 0))


def test_commits_after_a_checkpoint_and_what_they_removed(tmp_path: Path) -> None:
    storage = written(tmp_path, 3)
    DeltaTable(str(tmp_path)).create_checkpoint()
    cleaned(tmp_path, 2)
    DeltaTable(str(tmp_path)).delete("_batch_id = 0")
    DeltaTable(str(tmp_path)).optimize.compact()
    write_deltalake(str(tmp_path), rows(7), mode="append")
    table = DeltaTable(str(tmp_path))
    assert live(storage) == live(storage, from_version=table.version()) == LiveFiles(files=2, rows=30)
    assert len(table.file_uris()) == 2


def test_partitions_and_paths_that_are_encoded(tmp_path: Path) -> None:
    data = rows(0).append_column("day", pa.array(["2026 11/22 %41"] * 5 + ["ü"] * 5))
    write_deltalake(str(tmp_path), data, partition_by=["day"])
    storage = Storage(str(tmp_path))
    assert live(storage) == LiveFiles(files=2, rows=10)
    paths = [Path(path) for path in delta_log.added_files(storage, 0)]
    paths[0].unlink()
    assert only_gone(storage).path == str(paths[0].relative_to(tmp_path))
    paths[0].parent.rmdir()
    assert only_gone(storage).path == str(paths[0].relative_to(tmp_path))


def test_files_outside_of_the_tables_folder(tmp_path: Path) -> None:
    elsewhere = tmp_path / "other table"
    elsewhere.mkdir()
    for name in ("a.parquet", "b.parquet"):
        (elsewhere / name).touch()
    quoted = str(elsewhere).replace(" ", "%20")
    table = tmp_path / "clone"
    storage = commit(
        table, 0, {"metaData": {"id": "x"}}, add(f"file:{quoted}/a.parquet", 1), add(f"file://{quoted}/b.parquet", 2)
    )
    assert live(storage) == LiveFiles(files=2, rows=3)
    (elsewhere / "b.parquet").unlink()
    assert only_gone(storage).rows == 2
    # A store that this machine cannot open is no answer.
    commit(table, 1, add("nosuch://host/c.parquet", 1))
    gone = live(storage).gone
    assert isinstance(gone, Unavailable) and "nosuch://host" in gone.reason


def test_deletion_vectors_take_rows_away(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").touch()
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
    commit(tmp_path, 0, {"metaData": {"id": "x"}}, add("a.parquet", 10))
    removed = {"remove": {"path": "a.parquet", "dataChange": True}}
    first = commit(tmp_path, 1, removed, add("a.parquet", 10, deletionVector={**vector, "cardinality": 3}))
    assert live(first) == LiveFiles(files=1, rows=7)
    again = {"remove": {**removed["remove"], "deletionVector": {**vector, "cardinality": 3}}}
    more = {**vector, "offset": 50, "cardinality": 8}
    assert live(commit(tmp_path, 2, add("a.parquet", 10, deletionVector=more), again)).rows == 2


def test_rows_are_unknown_where_one_file_has_no_statistics(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet"):
        (tmp_path / name).touch()
    storage = commit(tmp_path, 0, {"metaData": {"id": "x"}}, add("a.parquet", 1), add("b.parquet", None))
    assert live(storage) == LiveFiles(files=2, rows=None, without_statistics=1)


@pytest.mark.parametrize("top", ["parquet", "json"])
def test_a_v2_checkpoint_with_sidecars(tmp_path: Path, top: str) -> None:
    log = tmp_path / "_delta_log"
    (log / "_sidecars").mkdir(parents=True)
    for n in range(3):
        (tmp_path / f"{n}.parquet").touch()
    adds = [{**add(f"{n}.parquet", None)["add"], "stats_parsed": {"numRecords": 5}} for n in range(2)]
    for one in adds:
        del one["partitionValues"]
    pq.write_table(pa.Table.from_pylist([{"add": one} for one in adds]), log / "_sidecars" / "side.parquet")
    name = f"{4:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.{top}"
    metadata, sidecar = {"id": "t-1"}, {"path": "side.parquet", "sizeInBytes": 1}
    if top == "parquet":
        lines = [{"metaData": metadata, "sidecar": None}, {"metaData": None, "sidecar": sidecar}]
        pq.write_table(pa.Table.from_pylist(lines), log / name)
    else:
        (log / name).write_text("\n".join(map(json.dumps, [{"metaData": metadata}, {"sidecar": sidecar}])))
    commit(tmp_path, 4, {"commitInfo": {"operation": "WRITE"}})
    witness = delta_log.read(commit(tmp_path, 5, add("2.parquet", 7)), from_version=5, files=True)
    assert (witness.table_id, witness.files) == ("t-1", LiveFiles(files=3, rows=17))


def test_a_checkpoint_without_all_its_parts_is_no_checkpoint(tmp_path: Path) -> None:
    storage = written(tmp_path, 2)
    (tmp_path / "_delta_log" / f"{1:020d}.checkpoint.{1:010d}.{2:010d}.parquet").touch()
    assert live(storage).files == 2


def test_why_the_files_are_not_known(tmp_path: Path) -> None:
    storage = written(tmp_path / "a", 3)
    (tmp_path / "a/_delta_log" / f"{1:020d}.json").unlink()
    files = delta_log.read(storage, files=True).files
    assert isinstance(files, Unavailable) and "no commit file for version 1" in files.reason
    storage = written(tmp_path / "b", 3)
    (tmp_path / "b/_delta_log" / f"{2:020d}.checkpoint.parquet").write_bytes(b"torn")
    files = delta_log.read(storage, files=True).files
    assert isinstance(files, Unavailable) and "checkpoint 2" in files.reason


def test_the_tables_id_and_where_it_changed(tmp_path: Path) -> None:
    storage = written(tmp_path, 2)
    witness = delta_log.read(storage)
    made = DeltaTable(str(tmp_path)).metadata().id
    assert witness.table_id == str(made)
    assert [commit.table_id for commit in witness.commits.values()] == [str(made), None]
    # It stands in what precedes the commits read: in a checkpoint, in a checksum file.
    assert delta_log.read(storage, from_version=1, files=True).table_id == str(made)
    checksum = {"metadata": {"id": "from-crc", "configuration": {}}}
    (tmp_path / "_delta_log" / f"{1:020d}.crc").write_text(json.dumps(checksum))
    assert delta_log.read(storage, from_version=1).table_id == "from-crc"


def test_a_file_that_a_commit_removed_meanwhile_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the reading of the log and the listing, OPTIMIZE and VACUUM ran."""
    storage = written(tmp_path, 3)
    names, listed = Storage.names, []

    def vacuumed_meanwhile(self: Storage, folder: str = "") -> list[str]:
        if self.uri == storage.uri and not listed:
            listed.append(folder)
            table = DeltaTable(str(tmp_path))
            table.optimize.compact()
            table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        return names(self, folder)

    monkeypatch.setattr(Storage, "names", vacuumed_meanwhile)
    assert live(storage) == LiveFiles(files=3, rows=30)
    assert listed == [""]


@pytest.mark.parametrize("folders", [12, 101])  # of more than a hundred the whole table is listed at once
def test_a_store_that_is_not_local_gives_the_same(tmp_path: Path, folders: int) -> None:
    """The way of every scheme but local paths, through pyarrow.fs, here on a file:// URI."""
    data = pa.concat_tables([rows(n) for n in range(folders)])
    write_deltalake(str(tmp_path), data.append_column("day", data["_batch_id"]), partition_by=["day"])
    paths = sorted(delta_log.added_files(Storage(str(tmp_path)), 0))
    Path(paths[0]).unlink()
    uri = f"file://{tmp_path}"
    assert only_gone(Remote(uri)) == only_gone(Storage(uri))


@pytest.mark.parametrize("count", [0, 1, 65_535, 65_536, 65_537, 200_000])
def test_a_file_is_read_whole(tmp_path: Path, count: int) -> None:
    content = bytes(range(256)) * (count // 256) + b"x" * (count % 256)
    (tmp_path / "file").write_bytes(content)
    assert read_file(str(tmp_path / "file")) == content


@given(st.lists(st.one_of(st.none(), _STATISTICS), max_size=20))
def test_the_rows_of_a_checkpoints_files_are_counted_as_one_by_one(texts: list[str | None]) -> None:
    assert delta_files.numbers_of_records(pa.array(texts, pa.string())) == [num_records(text) for text in texts]


@pytest.mark.parametrize("text", ["no JSON", '{"numRecords":-1}', '{"numRecords":99999999999999999999}'])
def test_statistics_that_are_damaged_are_refused_as_one_by_one(text: str) -> None:
    for counted in (lambda: delta_files.numbers_of_records(pa.array([None, text])), lambda: num_records(text)):
        with pytest.raises(ValueError):
            counted()
