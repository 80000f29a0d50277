"""The files of a file sink, held against its manifests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recon.base.errors import EvidenceError
from recon.base.storage import Storage
from recon.model import ReconStamp, SinkChanges, offsets_text
from recon.model.offsets import OffsetSpan
from recon.model.wire.manifests import (
    DataFile,
    Layout,
    Manifest,
    dump_layout,
    dump_manifest,
    folder_of,
    layout_path,
    manifest_path,
    name_of_layout,
)
from recon.witness import manifest_files, manifests

AT = datetime(2026, 11, 21, tzinfo=UTC)
LAYOUT = dump_layout(Layout(format="json", schema={"type": "struct", "fields": []}, partition_by=(), options={}))
NAME = name_of_layout(LAYOUT)


def put(
    target: Path, batch_id: int, *names: str, attempt: str = "a1", content: str = "0123456789", at: datetime = AT
) -> Path:
    """A micro-batch of these files; returns their folder."""
    folder = f"{folder_of(0, batch_id)}/_recon_attempt={attempt}"
    for name in (*names, "_SUCCESS", ".crc"):
        file = target / folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    fields: dict[str, Any] = {"pipeline": "p", "sink": "s", "epoch": 0, "batch_id": batch_id}
    ranges = offsets_text([OffsetSpan("t", None, 0, 10 * batch_id, 10 * batch_id + 10)])
    manifest = Manifest(
        stamp=ReconStamp(**fields, query_id="q", run_id=None, prev_hash="", offsets_text=ranges),
        attempt=attempt,
        at=at,
        rows=10,
        layout=NAME,
        files=tuple(DataFile(path=name, size=len(content)) for name in names),
    )
    Storage(str(target)).write(manifest_path(0, batch_id), dump_manifest(manifest).encode())
    Storage(str(target)).write(layout_path(NAME), LAYOUT)
    return target / folder


def changes(target: Path, kind: str = "json") -> SinkChanges:
    return manifest_files.changes(Storage(str(target)), kind)


def test_files_that_are_gone_or_others_than_were_written(tmp_path: Path) -> None:
    put(tmp_path, 0, "part-0.json", "land=eu/part-1.json")
    second = put(tmp_path, 1, "part-0.json", "land=eu/part-1.json")
    assert changes(tmp_path) == SinkChanges()

    (second / "part-0.json").unlink()
    (second / "land=eu" / "part-1.json").write_text("01234")
    (lost,) = changes(tmp_path).lost
    assert lost.stamp.batch_id == 1
    gone, other = lost.lacks.split(", ")
    assert gone.endswith("part-0.json is gone") and other.endswith("part-1.json has 5 bytes and was written with 10")
    found = manifest_files.left(Storage(str(tmp_path)))
    assert [[file.path for file in one.files] for one in found] == [
        ["part-0.json", "land=eu/part-1.json"],
        ["land=eu/part-1.json"],
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is missing or torn (FileNotFoundError)"),
        (LAYOUT[:20], "is missing or torn (JSONDecodeError)"),
        (LAYOUT.replace(b'"json"', b'"csv"'), "was edited"),
    ],
)
def test_a_layout_without_which_nobody_reads_the_files(tmp_path: Path, content: bytes | None, said: str) -> None:
    for batch_id in (0, 1):
        put(tmp_path, batch_id, "part-0.json")
    (put(tmp_path, 2, "part-0.json") / "part-0.json").unlink()
    file = tmp_path / layout_path(NAME)
    file.unlink() if content is None else file.write_bytes(content)
    lost = changes(tmp_path).lost
    assert sorted(one.stamp.batch_id for one in lost) == [0, 1, 2]
    assert [said in one.lacks for one in lost] == [False, True, True]  # of the one whose file is gone, that is said


def test_files_that_no_manifest_names(tmp_path: Path) -> None:
    folder = put(tmp_path, 0, "part-0.json")
    lawful = [
        f"{folder_of(0, 1)}/_recon_attempt=a7/part-0.json",  # being written, or what a crash left
        f"{folder_of(0, 0)}/_recon_attempt=a0/part-0.json",
        "checkpoint/offsets/0",  # of a query whose checkpoint is below the target
        "_spark_metadata/0.json",
        ".part-9.json.crc",
        f"{folder.relative_to(tmp_path)}/_temporary/0/part-0.json",
    ]
    foreign = ["part-9.json", "old/part-9.json.gz", f"{folder_of(0, 0)}/part-9", f"{folder.relative_to(tmp_path)}/x"]
    for name in lawful + foreign:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    assert changes(tmp_path) == SinkChanges(foreign=tuple(sorted(foreign)))


def test_a_micro_batch_that_is_written_again_while_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = put(tmp_path, 0, "part-0.json")
    listed = Storage.files

    def replaced_before(storage: Storage, folder: str = "") -> dict[str, int]:
        if first.exists():
            put(tmp_path, 0, "part-0.json", attempt="a2")
            storage.remove(str(first.relative_to(tmp_path)))
        return listed(storage, folder)

    monkeypatch.setattr(Storage, "files", replaced_before)
    assert changes(tmp_path) == SinkChanges()
    assert [manifest.attempt for manifest in manifests.read(Storage(str(tmp_path)))] == ["a2"]


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, 0, "part-0.json")
    walk = __import__("os").scandir

    def refuses(path: Any) -> Any:
        if str(path).endswith("_batch_id=0"):
            raise PermissionError(13, "Permission denied", path)
        return walk(path)

    monkeypatch.setattr("os.scandir", refuses)
    with pytest.raises(EvidenceError, match="cannot be listed"):
        changes(tmp_path)


@pytest.mark.parametrize(("groups", "looked_at"), [(100, [0, 99_000]), (101, [100_000])])
def test_of_a_large_sink_the_period_alone_is_looked_at(tmp_path: Path, groups: int, looked_at: Sequence[int]) -> None:
    newest = 1000 * (groups - 1)
    for batch_id in range(1000, newest, 1000):
        put(tmp_path, batch_id, "part-0.json")
    folders = [
        put(tmp_path, batch_id, "part-0.json", at=AT + timedelta(days=n)) for n, batch_id in enumerate((0, newest))
    ]
    for folder in folders:
        (folder / "part-0.json").unlink()
        (folder / "x").write_text("x")

    def found(since: datetime | None) -> list[int]:
        seen = manifest_files.changes(Storage(str(tmp_path)), "json", since)
        assert len(seen.foreign) == len(seen.lost)
        return [lost.stamp.batch_id for lost in seen.lost]

    assert found(None) == [0, newest] and found(AT + timedelta(hours=1)) == looked_at


def test_no_folder_at_all(tmp_path: Path) -> None:
    assert changes(tmp_path / "none") == SinkChanges()
