"""Delta tables on a local disk are read through Arrow's own filesystem: one made in Python may abort the process."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow.fs import PyFileSystem

from recon.base.storage import arrow_filesystem

ROOT = Path(__file__).parents[3]


def test_a_local_table_is_read_as_delta_rs_reads_it(tmp_path: Path) -> None:
    location = str(tmp_path / "a table")
    rows = pa.table({"p": ["a b:c/d", "ü%20x", "2026-01-01 10:00:00"], "v": [1, 2, 3]})
    write_deltalake(location, rows, partition_by=["p"])
    ours = DeltaTable(location).to_pyarrow_dataset(filesystem=arrow_filesystem(location))
    theirs = DeltaTable(location).to_pyarrow_dataset()
    assert not isinstance(ours.filesystem, PyFileSystem) and isinstance(theirs.filesystem, PyFileSystem)
    assert ours.to_table().sort_by("v") == theirs.to_table().sort_by("v")
    assert {f.path for f in ours.get_fragments()} == {f.path for f in theirs.get_fragments()}


def test_a_folder_named_from_here_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({"v": [1]}))
    monkeypatch.chdir(tmp_path)
    assert DeltaTable("t").to_pyarrow_table(filesystem=arrow_filesystem("t")).num_rows == 1


def test_another_store_keeps_what_delta_rs_gives() -> None:
    assert arrow_filesystem("s3://bucket/table") is None


def test_no_table_is_read_without_it() -> None:
    calls = [
        (path.name, call)
        for path in (ROOT / "recon").rglob("*.py")
        for call in re.findall(r"\.to_pyarrow_(?:dataset|table)\((.*?)\)\n", path.read_text(), re.DOTALL)
    ]
    assert calls and [call for call in calls if "filesystem=" not in call[1]] == []
