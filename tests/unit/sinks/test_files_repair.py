"""Repairs in a folder of files: manifests of their own, with rows of another micro-batch, beside a query. No Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typing_extensions import override

from recon.base.errors import NewEpochError, RefusedError
from recon.base.storage import Storage
from recon.model import REPAIRS, ReconStamp, SinkChanges, offsets_text
from recon.model.offsets import OffsetSpan
from recon.model.wire.manifests import (
    DataFile,
    Manifest,
    dump_manifest,
    layout_path,
    manifest_path,
    parse_manifest,
    write_path,
)
from recon.project import FileSink, LedgerConfig, Pipeline, Project
from recon.recovery.repair.plan import PlannedRange
from recon.witness import manifest_files, manifests
from recon.write.hook import ForeachBatch, foreach_batch
from recon.write.ledger import open_ledger
from recon.write.sinks.failpoints import BEFORE_WRITE
from recon.write.sinks.files.repair import FileStore
from recon.write.sinks.files.replace import FileReplace, merge
from tests.support.messages import raises
from tests.unit.evidence.test_manifest_files import LAYOUT, NAME
from tests.unit.hook.test_writer import Rows, plan_three

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)


def stamp(number: int, start: int, *, epoch: int = 0, batch_id: int = 0, query: str = "q-1") -> ReconStamp:
    spans = [OffsetSpan("orders", None, 0, start, start + 10)]
    fields: dict[str, Any] = {"pipeline": "p", "sink": "s", "epoch": epoch, "batch_id": batch_id, "number": number}
    return ReconStamp(**fields, query_id=query, run_id=None, prev_hash="", offsets_text=offsets_text(spans))


class Files(FileReplace):
    """Commits manifests without files, of rows that nobody counted."""

    @override
    def write(self, frame: Any, stamp: ReconStamp) -> None:
        self.made(stamp, at=datetime.now(UTC))

    def made(self, stamp: ReconStamp, *, at: datetime = AT, attempt: str = "a1") -> Manifest:
        made = Manifest(stamp=stamp, attempt=attempt, at=at, rows=None, layout=NAME, files=(), owner=self.owner)
        self._commit(made)
        return made


class Folder(FileSink):
    writer = f"{__name__}:Files"


def sink(folder: Path, owner: int | None = None) -> Files:
    made = Files(str(folder / "t"), "parquet")
    made.owner = owner
    return made


@pytest.fixture
def project(tmp_path: Path) -> Project:
    pipeline = Pipeline(name="p", checkpoint="cp", sinks=(Folder(name="s", kind="parquet", target="t"),))
    return Project(name="x", ledger=LedgerConfig(location="l"), pipelines=(pipeline,), project_dir=tmp_path)


def test_rows_of_a_repair_lie_in_a_folder_of_the_micro_batch_that_read_past_them(tmp_path: Path) -> None:
    made = sink(tmp_path, owner=41).made(stamp(1, 0, epoch=REPAIRS, batch_id=3))
    assert made.folder == "_recon_epoch=-2/_batch_id=41/_recon_attempt=a1"
    target = Storage(str(tmp_path / "t"))
    found = manifests.find(target, REPAIRS, 3)
    assert found == made and manifests.numbered(target, 1) == made
    of_batch = sink(tmp_path).made(stamp(2, 10, batch_id=5))
    assert of_batch.folder == "_recon_epoch=0/_batch_id=5/_recon_attempt=a1"
    assert '"owner"' not in dump_manifest(of_batch) and parse_manifest(dump_manifest(of_batch), "here") == of_batch


def test_repairs_are_read_whatever_their_place_among_the_micro_batches(tmp_path: Path) -> None:
    target = Storage(str(tmp_path / "t"))
    for batch_id in (0, 1000, 2000):
        sink(tmp_path).made(
            stamp(batch_id + 1, 10 * batch_id, batch_id=batch_id), at=AT + timedelta(days=batch_id / 1000)
        )
    late = sink(tmp_path, owner=1000).made(stamp(2002, 5, epoch=REPAIRS), at=AT + timedelta(days=9))

    def numbers(**wanted: Any) -> list[tuple[int, int]]:
        return [(one.stamp.epoch, one.stamp.batch_id) for one in manifests.read(target, **wanted)]

    assert numbers() == [(REPAIRS, 0), (0, 0), (0, 1000), (0, 2000)]
    assert numbers(since=AT + timedelta(days=1.5)) == [(REPAIRS, 0), (0, 2000)]
    assert numbers(batches=[1000]) == [(REPAIRS, 0), (0, 1000)] and numbers(batches=[0]) == [(0, 0)]
    # A repair may be writing while the query merges what is older.
    assert merge(target, keep=(0, 2)) == 2
    assert manifests.loose(target, REPAIRS) == [0] and manifests.find(target, REPAIRS, 0) == late


def test_a_file_of_a_repair_that_is_gone_is_found(tmp_path: Path) -> None:
    made = sink(tmp_path, owner=41).made(stamp(1, 0, epoch=REPAIRS, batch_id=3))
    target = Storage(str(tmp_path / "t"))
    named = replace(made, files=(DataFile("part-0.parquet", 9, 10),))
    target.write(manifest_path(REPAIRS, 3), dump_manifest(named).encode())
    lost = manifest_files.changes(target, "parquet").lost
    assert [(one.stamp.epoch, one.stamp.batch_id) for one in lost] == [(REPAIRS, 3)]
    target.write(f"{made.folder}/part-0.parquet", b"012345678")
    target.write(layout_path(NAME), LAYOUT)
    target.write(f"{made.folder.replace('a1', 'a2')}/part-0.parquet", b"of a repair that was killed")
    assert manifest_files.changes(target, "parquet") == SinkChanges()
    target.write(f"{made.folder}/part-1.parquet", b"")
    assert manifest_files.changes(target, "parquet").foreign == (f"{made.folder}/part-1.parquet",)


def test_of_a_query_and_a_repair_with_one_number_one_commits(tmp_path: Path) -> None:
    query, repair = sink(tmp_path), sink(tmp_path, owner=0)
    repair.made(stamp(1, 0, epoch=REPAIRS, query="repair-1"))
    with raises(RefusedError) as refused:
        query.made(stamp(1, 10, batch_id=1))
    assert refused.value.number == 1
    found = query.repair_of("p", "s", 1)
    assert found is not None and found.epoch == REPAIRS
    assert query.repair_of("p", "another", 1) is None and query.repair_of("p", "s", 2) is None
    query.made(stamp(2, 10, batch_id=1))
    assert query.repair_of("p", "s", 2) is None, "a micro-batch"
    with pytest.raises(RefusedError):
        repair.made(stamp(2, 20, epoch=REPAIRS, batch_id=1, query="repair-1"))


def test_a_repair_that_died_before_its_manifest_is_found(tmp_path: Path, project: Project) -> None:
    died = sink(tmp_path, owner=7).made(stamp(1, 0, epoch=REPAIRS, query="repair-1"))
    target = Storage(str(tmp_path / "t"))
    target.remove(manifest_path(REPAIRS, 0))
    store = FileStore(project, "p", project.pipelines[0].sinks[0])
    assert [one.stamp for one in store.commits()] == [died.stamp] and manifests.find(target, REPAIRS, 0) == died
    look = store.snapshot()
    assert (look.newest, look.next) == (1, 2)
    other = replace(died.stamp, query_id="repair-2")
    assert store.was_taken(other) and not store.was_taken(died.stamp)
    assert not store.was_taken(replace(other, batch_id=1))


def test_the_writer_of_a_repair_and_the_columns_that_its_rows_need(tmp_path: Path, project: Project) -> None:
    store = FileStore(project, "p", project.pipelines[0].sinks[0])
    fields: dict[str, Any] = {
        "topic": "orders",
        "topic_id": None,
        "partition": 0,
        "source": 0,
        "findings": (),
        "why": "",
    }
    one = PlannedRange(action="read", start_offset=0, end_offset=9, batch_id=12, **fields)
    assert store.of_one_batch
    for batch_id, owner in ((12, 12), (None, 0)):
        made: Any = store.writer([replace(one, batch_id=batch_id)], store.snapshot(), lambda point, stamp: None)
        assert made.owner == owner
    table: Any = SimpleNamespace(columns=["v", "_batch_id", "_recon_epoch"])
    assert store.columns(table, ["v", "_batch_id"]) == ["v", "_batch_id"]


@pytest.fixture
def hook(tmp_path: Path, project: Project) -> ForeachBatch:
    plan_three(tmp_path / "cp")
    made = foreach_batch(project, pipeline="p", failpoint=lambda point, stamp: beside(tmp_path, point, stamp))
    assert isinstance(made, ForeachBatch)
    made.entry_within_s = 0.01
    return made


START = 900  # of the offsets that the repair beside a hook reads


def beside(folder: Path, point: str, of_hook: ReconStamp) -> None:
    """A repair commits between the look of micro-batch 1 at the sink and its write."""
    target = Storage(str(folder / "t"))
    if point == BEFORE_WRITE and of_hook.batch_id == 1 and manifests.find(target, REPAIRS, 0) is None:
        made = stamp(of_hook.number or 0, START, epoch=REPAIRS, query="repair-1")
        sink(folder, owner=0).made(made, at=datetime.now(UTC))
        target.remove(manifest_path(REPAIRS, 0))  # and dies before its manifest


def test_a_query_goes_on_beside_a_repair(hook: ForeachBatch, tmp_path: Path) -> None:
    for batch_id in range(3):
        hook.write(Rows(read=10), batch_id)
    target = Storage(str(tmp_path / "t"))
    written = {one.stamp.number: (one.stamp.epoch, one.stamp.batch_id) for one in manifests.read(target)}
    assert written == {1: (0, 0), 2: (REPAIRS, 0), 3: (0, 1), 4: (0, 2)}
    entries = [(one.epoch, one.batch_id, one.status) for one in open_ledger(hook.project).entries("p", "s")]
    assert entries == [(0, 0, "committed"), (REPAIRS, 0, "rebuilt"), (0, 1, "committed"), (0, 2, "committed")]
    assert target.find(write_path(2)) is not None


def test_a_repair_that_read_the_same_offsets_stops_the_query(
    hook: ForeachBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "START", 12)
    hook.write(Rows(read=10), 0)
    with pytest.raises(NewEpochError):
        hook.write(Rows(read=10), 1)
