"""The log of a Delta table that a stream reads, held against a model of what Spark's source does with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from recon.base.storage import Storage
from recon.model import SourceTable
from recon.model.delta_offsets import BEGINNING, offset_of, topic_of
from recon.model.offsets import OffsetSpan
from recon.witness import source_table

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]})


def spans(*ranges: tuple[int, int], table_id: str = "id-1") -> list[OffsetSpan]:
    return [OffsetSpan(topic_of(table_id), table_id, 0, *span) for span in ranges]


@dataclass
class Table:
    """A Delta log by hand; `live` are the files of each version, in the order in which a new stream reads them."""

    folder: Path
    commits: list[list[int]] = field(default_factory=list)
    live: list[list[int]] = field(default_factory=list)
    numbers: Any = field(default_factory=count)

    def commit(self, rows: Sequence[int], *, changes: bool = True) -> None:
        version = len(self.commits)
        actions: list[dict[str, Any]] = [
            {"commitInfo": {"timestamp": 1_700_000_000_000 + version, "operation": "WRITE"}}
        ]
        if not version:
            actions += [
                {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
                {
                    "metaData": {
                        "id": "id-1",
                        "format": {"provider": "parquet", "options": {}},
                        "schemaString": SCHEMA,
                        "partitionColumns": [],
                        "configuration": {},
                        "createdTime": 1_700_000_000_000,
                    }
                },
            ]
        for of_file in rows:
            add = {
                "path": f"part-{next(self.numbers):05d}.parquet",
                "partitionValues": {},
                "size": 10,
                "modificationTime": 1_700_000_000_000 + version,
                "dataChange": changes,
                "stats": json.dumps({"numRecords": of_file}),
            }
            actions.append({"add": add})
        log = self.folder / "_delta_log"
        log.mkdir(exist_ok=True)
        (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))
        self.commits.append(list(rows) if changes else [])
        self.live.append([*(self.live[-1] if self.live else []), *rows])

    def read(self, *ranges: tuple[int, int]) -> SourceTable:
        return source_table.read(Storage(str(self.folder)), spans(*ranges))


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=2, max_size=6),
    st.integers(0, 3),
    st.lists(st.integers(1, 5), min_size=1, max_size=12),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_every_micro_batch_of_a_stream(commits: list[list[int]], begins: int, steps: list[int], whole: bool) -> None:
    """Files are read a few at a time, as with maxFilesPerTrigger: each micro-batch has their rows, and no others."""
    with TemporaryDirectory() as folder:
        table = Table(Path(folder))
        for rows in commits:
            table.commit(rows)
        first = min(begins, len(commits) - 1)
        # All files in reading order, each with the offset behind it; an end of a version is its own position.
        files: list[tuple[int, int]] = []
        if whole:
            snapshot = table.live[first]
            files += [(rows, offset_of(first, n, in_snapshot=True)) for n, rows in enumerate(snapshot, 1)]
            files.append((0, offset_of(first + 1, 0)))
        for version in range(first + 1 if whole else first, len(commits)):
            files += [(rows, offset_of(version, n)) for n, rows in enumerate(table.commits[version], 1)]
            files.append((0, offset_of(version + 1, 0)))
        start, at, batches = BEGINNING if whole else offset_of(first, 0), 0, []
        for step in [*steps, len(files)]:
            read = files[at : at + step]
            if read:
                batches.append(((start, read[-1][1]), sum(rows for rows, _ in read)))
                start, at = read[-1][1], at + len(read)
        log = table.read(*(span for span, _ in batches))
        assert [log.records(*span) for span, _ in batches] == [rows for _, rows in batches]


def test_compaction_gives_a_stream_nothing(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.commit([3])
    table.commit([4])
    table.commit([7], changes=False)
    span = (offset_of(1, 0), offset_of(3, 0))
    assert table.read(span).records(*span) == 4


def test_what_the_log_no_longer_has(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for rows in ([3], [4], [5]):
        table.commit(rows)
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    span = (offset_of(0, 0), offset_of(3, 0))
    log = table.read(span, (BEGINNING, offset_of(2, 0)))
    assert isinstance(log.records(*span), str)
    assert log.records(offset_of(2, 0), offset_of(3, 0)) == 5
    assert isinstance(log.records(BEGINNING, offset_of(2, 0)), str)


def test_files_without_statistics(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.commit([3])
    file = tmp_path / "_delta_log" / f"{0:020d}.json"
    file.write_text(file.read_text().replace("numRecords", "nullCount"))
    span = (offset_of(0, 0), offset_of(1, 0))
    log = table.read(span, (BEGINNING, offset_of(1, 0)))
    assert isinstance(log.records(*span), str)
    assert isinstance(log.records(BEGINNING, offset_of(1, 0)), str)


def test_what_recon_yml_says_of_commits_that_replace_rows(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([1, 2, 3], pa.int64())})
    write_deltalake(str(tmp_path), rows)
    table = DeltaTable(str(tmp_path))
    table.update(updates={"a": "9"}, predicate="a = 1")
    table.delete("a = 2")
    table.delete()
    replaced, deleted = (offset_of(1, 0), offset_of(2, 0)), (offset_of(3, 0), offset_of(4, 0))
    storage, read = Storage(str(tmp_path)), spans(replaced, deleted, table_id=str(table.metadata().id))
    answers = {
        passes: source_table.read(storage, read, passes).records(*replaced)
        for passes in ("", "skip", "changes", "deletes")
    }
    assert (answers["skip"], answers["changes"]) == (0, 3)
    assert isinstance(answers[""], str)
    assert isinstance(answers["deletes"], str)
    log = source_table.read(storage, read)
    assert (log.records(*deleted), log.commits[3].removes) == (0, True)
    assert [(log.commits[v].adds_new, log.commits[v].copied) for v in (1, 2)] == [(True, 2), (False, 2)]


def test_a_change_data_feed(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([1, 2, 3, 4], pa.int64())})
    write_deltalake(str(tmp_path), rows, configuration={"delta.enableChangeDataFeed": "true"})
    table = DeltaTable(str(tmp_path))
    table.update(updates={"a": "9"}, predicate="a = 1")  # the row before and after
    table.delete("a = 2")
    write_deltalake(str(tmp_path), rows, mode="append")
    storage = Storage(str(tmp_path))
    read = spans((BEGINNING, offset_of(1, 0)), (offset_of(1, 0), offset_of(4, 0)), table_id=str(table.metadata().id))
    log = source_table.read(storage, read, "feed")
    assert [log.commits[version].files for version in (1, 2, 3)] == [(2,), (1,), (4,)]
    assert [log.records(*one.span) for one in read] == [4, 7]
    for file in (tmp_path / "_change_data").rglob("*.parquet"):
        file.unlink()
    assert isinstance(source_table.read(storage, read, "feed").records(*read[1].span), str)


def test_a_table_of_which_other_ranges_are(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.commit([3])
    table.commit([4])
    log = source_table.read(Storage(str(tmp_path)), spans((BEGINNING, offset_of(1, 0)), table_id="id-2"))
    assert (log.topic, sorted(log.commits), log.snapshots) == ("delta:id-1", [1], {})


def test_no_table(tmp_path: Path) -> None:
    assert not source_table.read(Storage(str(tmp_path / "nowhere")), []).exists
