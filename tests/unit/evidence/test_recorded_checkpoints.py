"""Checkpoints that real queries left, of each Spark: recon reads from them what Spark itself reported.

`scripts/record_checkpoints.py` recorded them: two Kafka sources; one begins empty, and partitions are added.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recon.base.storage import Storage
from recon.witness import checkpoint

RECORDED = Path(__file__).parent / "checkpoints"


def scenes() -> Iterator[Any]:
    for file in sorted(RECORDED.glob("*.json")):
        for name, recorded in json.loads(file.read_text(encoding="utf-8")).items():
            yield pytest.param(recorded["files"], recorded["progress"], id=f"{file.stem}-{name}")


def written(files: dict[str, str], folder: Path) -> Storage:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Storage(str(folder))


def reported(progress: list[Any]) -> tuple[set[Any], set[Any]]:
    """Ranges, and partitions without a start: new ones, and all of a source whose start Spark leaves out."""
    ranges, without_start = set(), set()
    for start, end in progress:
        for topic, partitions in end.items():
            for partition, offset in partitions.items():
                at = (start or {}).get(topic, {}).get(partition)
                (without_start if at is None else ranges).add((topic, int(partition), at, offset))
    return ranges, without_start


@pytest.mark.parametrize(("files", "progress"), [*scenes()])
def test_ranges_are_those_that_spark_reported(
    files: dict[str, str], progress: dict[str, list[Any]], tmp_path: Path
) -> None:
    storage = written(files, tmp_path)
    witness = checkpoint.read(storage)
    assert witness.sources == 2 and not witness.flaws
    assert [batch.batch_id for batch in witness.batches] == [int(n) for n in progress]
    for batch in witness.batches:
        ranges, without_start = reported(progress[str(batch.batch_id)])
        found = {(r.topic, r.partition, r.start_offset, r.end_offset) for r in batch.ranges}
        if batch.batch_id == 0:  # Spark reports no start of it; the checkpoint has one in sources/
            assert {at for *_, at, _ in found} == {0}
            found, without_start = {(topic, n, None, end) for topic, n, _, end in found}, set()
            ranges = reported(progress["0"])[1]
        assert found == ranges
        assert {(topic, partition, None, end) for _, topic, partition, end in batch.new_partitions} == without_start
        assert batch.committed and batch.starts_known
        one = checkpoint.read_batch(storage, batch.batch_id)
        assert (one.ranges, one.new_partitions) == (batch.ranges, batch.new_partitions)


@pytest.mark.parametrize(("files", "progress"), [*scenes()])
def test_each_source_is_kept_apart(files: dict[str, str], progress: dict[str, list[Any]], tmp_path: Path) -> None:
    witness = checkpoint.read(written(files, tmp_path))
    topics = {(r.source, r.topic) for batch in witness.batches for r in batch.ranges}
    assert len(topics) == 2 == len({source for source, _ in topics})


def test_the_formats_that_newer_versions_write_are_among_them() -> None:
    first_lines = {
        (name.split("/")[0], text.split("\n")[0])
        for file in RECORDED.glob("*.json")
        for scene in json.loads(file.read_text(encoding="utf-8")).values()
        for name, text in scene["files"].items()
        if name.startswith(("offsets/", "commits/"))
    }
    assert first_lines == {
        ("offsets", "v1"),
        ("offsets", "v2"),
        ("commits", "v1"),
        ("commits", "v2"),
        ("commits", "v3"),
    }
