"""Manifests that lead out of their folder, or that unpack to gigabytes, are refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from recon.base.errors import EvidenceError
from recon.base.storage import Storage
from recon.model import ReconStamp, dump_stamp
from recon.model.wire.manifests import merged_path, parse_manifest
from recon.witness import manifests

STAMP = dump_stamp(
    ReconStamp(pipeline="p", sink="s", epoch=0, batch_id=0, query_id="q", run_id=None, prev_hash="", offsets_text="[]")
)
OUTSIDE = (
    "../../secret",
    "a/../../b",
    "/etc/passwd",
    "s3://other/bucket",
    "file:///etc/passwd",
    "..\\x",
    "a\x00b",
    "..",
)


def manifest(**changed: object) -> bytes:
    document = {
        "recon_manifest": 1,
        "stamp": STAMP,
        "attempt": "a1b2c3d4",
        "at": "2026-11-21T12:00:00+00:00",
        "rows": 1,
        "layout": "0123",
        "files": [["country=DE/part-0.parquet", 10, 1]],
    }
    return json.dumps(document | changed).encode()


def test_a_path_inside_is_read() -> None:
    assert parse_manifest(manifest(), "here").files[0].path == "country=DE/part-0.parquet"


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_path_that_leaves_the_folder_is_refused(path: str) -> None:
    with pytest.raises(EvidenceError, match="which is not in its folder"):
        parse_manifest(manifest(files=[[path, 10, 1]]), "here")


@pytest.mark.parametrize("name", [*OUTSIDE, "", ".", "a/b"])
@pytest.mark.parametrize("key", ["attempt", "layout"])
def test_a_name_that_is_a_path_is_refused(key: str, name: str) -> None:
    with pytest.raises(EvidenceError, match="is no manifest of recon"):
        parse_manifest(manifest(**{key: name}), "here")


def test_a_file_that_unpacks_to_more_than_is_ever_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "_MOST_BYTES", 1_000_000)
    file = tmp_path / merged_path(0, 0)
    file.parent.mkdir(parents=True)
    file.write_bytes(gzip.compress(b"\n" * 50_000_000))
    with pytest.raises(EvidenceError, match="unpacks to more than"):
        manifests.read(Storage(str(tmp_path)))
    file.write_bytes(gzip.compress(manifest() + b"\n"))
    assert len(manifests.read(Storage(str(tmp_path)))) == 1
