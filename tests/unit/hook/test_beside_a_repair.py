"""The hook meets a repair's commit: it forgets what it read, looks anew, and writes its micro-batch once.

Without a JVM: the sink is Delta's; deltalake makes its commits as Spark would, and drops one whose number is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from typing_extensions import override

from recon.base.clock import utc_now
from recon.base.errors import NewEpochError, RefusedError
from recon.base.storage import Storage
from recon.model import REMOVALS, REPAIRS, ReconStamp, SinkCommit, dump_stamp, offsets_text
from recon.model.offsets import OffsetSpan
from recon.model.wire.app_ids import app_id
from recon.project import DeltaSink, LedgerConfig, Pipeline, Project
from recon.witness import delta_log
from recon.write.hook import ForeachBatch, foreach_batch
from recon.write.ledger import open_ledger
from recon.write.ledger.rebuild import entry_of
from recon.write.sinks.delta.append import DeltaAppend
from recon.write.sinks.failpoints import BEFORE_WRITE
from tests.support.messages import raises
from tests.unit.hook.test_writer import Rows, plan_three

Hook = Callable[..., ForeachBatch]


def commit(table: Path, stamp: ReconStamp) -> None:
    """What Spark commits of a stamped write; nothing where the table has its number."""
    app, number = app_id(stamp.pipeline, stamp.sink), stamp.number or 0
    if (delta_log.transaction_version(Storage(str(table)), app) or 0) < number:
        write_deltalake(
            table,
            pa.table({"n": [1]}),
            mode="append",
            commit_properties=CommitProperties(
                custom_metadata={"userMetadata": dump_stamp(stamp)}, app_transactions=[Transaction(app, number)]
            ),
        )


class Sink(DeltaAppend):
    """Appends without Spark."""

    @override
    def write(self, frame: Any, stamp: ReconStamp) -> None:
        self._seen = -1
        commit(Path(self.target), stamp)


class Table(DeltaSink):
    writer = f"{__name__}:Sink"


@pytest.fixture
def make_hook(tmp_path: Path) -> Hook:
    plan_three(tmp_path / "cp")
    pipeline = Pipeline(name="p", checkpoint="cp", sinks=(Table(name="s", kind="delta", target="t"),))
    project = Project(name="x", ledger=LedgerConfig(location="l"), pipelines=(pipeline,), project_dir=tmp_path)

    def make(**options: Any) -> ForeachBatch:
        hook = foreach_batch(project, pipeline="p", **options)
        assert isinstance(hook, ForeachBatch)
        hook.entry_within_s = 0.01
        return hook

    return make


class Repairs:
    """Commits of repairs, each between the hook's look at the sink and its write."""

    def __init__(self, folder: Path, *epochs: int, start: int = 900, entered: bool = True) -> None:
        self.folder, self.epochs, self.entered = folder, list(epochs), entered
        self.offsets = (OffsetSpan("orders", None, 0, start, start + 5),)
        self.hook: ForeachBatch | None = None
        self.seen: list[int | None] = []

    def failpoint(self, point: str, stamp: ReconStamp) -> None:
        if point == BEFORE_WRITE and stamp.batch_id == 1:
            self.seen.append(stamp.number)
            if self.epochs:
                self.write(stamp, self.epochs.pop(0))

    def write(self, stamp: ReconStamp, epoch: int) -> None:
        query = "repair-1" if epoch < 0 else "q-2"
        mine = replace(stamp, epoch=epoch, batch_id=len(self.seen), query_id=query)
        mine = replace(mine, offsets_text=offsets_text(self.offsets))
        commit(self.folder / "t", mine)
        if self.entered:
            assert self.hook is not None
            version = DeltaTable(self.folder / "t").version()
            made = SinkCommit(version=version, stamp=mine, rows=1, at=utc_now())
            open_ledger(self.hook.project).append(entry_of(made, self.hook.sink, target="t"))


def beside(make_hook: Hook, repairs: Repairs) -> ForeachBatch:
    """A hook that has written micro-batch 0, and meets these repairs in micro-batch 1."""
    hook = repairs.hook = make_hook(failpoint=repairs.failpoint)
    hook.write(Rows(read=10), 0)
    return hook


def entries(hook: ForeachBatch) -> list[tuple[int, int, str]]:
    return [(one.epoch, one.batch_id, one.status) for one in open_ledger(hook.project).entries("p", "s")]


def written(folder: Path) -> list[tuple[int, int, int | None]]:
    stamps = [one.stamp for one in delta_log.stamped(Storage(str(folder / "t"))).commits]
    return [(stamp.epoch, stamp.batch_id, stamp.number) for stamp in stamps]


@pytest.mark.parametrize("epoch", [REPAIRS, REMOVALS])
def test_a_micro_batch_that_delta_drops_because_of_a_repair_is_written_again(
    make_hook: Hook, tmp_path: Path, epoch: int
) -> None:
    repairs = Repairs(tmp_path, epoch)
    hook = beside(make_hook, repairs)
    hook.write(Rows(read=10), 1)
    hook.write(Rows(read=10), 2)
    assert repairs.seen == [2, 3]
    assert written(tmp_path) == [(0, 0, 1), (epoch, 1, 2), (0, 1, 3), (0, 2, 4)]
    assert entries(hook) == [(0, 0, "committed"), (epoch, 1, "rebuilt"), (0, 1, "committed"), (0, 2, "committed")]


def test_a_commit_that_delta_refuses_because_of_a_repair_is_made_again(make_hook: Hook, tmp_path: Path) -> None:
    repairs = Repairs(tmp_path, REPAIRS)
    attempts: list[int | None] = []

    def refuses(point: str, stamp: ReconStamp) -> None:
        repairs.failpoint(point, stamp)
        if point == BEFORE_WRITE:
            attempts.append(stamp.number)
        if point == BEFORE_WRITE and attempts == [1, 2]:
            raise RefusedError("Delta raised ConcurrentTransactionException", stamp.number)

    hook = repairs.hook = make_hook(failpoint=refuses)
    hook.write(Rows(read=10), 0)
    hook.write(Rows(read=10), 1)
    assert attempts == [1, 2, 3]
    assert written(tmp_path) == [(0, 0, 1), (REPAIRS, 1, 2), (0, 1, 3)]


def test_as_often_as_a_repair_comes_first(make_hook: Hook, tmp_path: Path) -> None:
    repairs = Repairs(tmp_path, REPAIRS, REPAIRS, REMOVALS)
    beside(make_hook, repairs).write(Rows(read=10), 1)
    assert written(tmp_path)[1:] == [(REPAIRS, 1, 2), (REPAIRS, 2, 3), (REMOVALS, 3, 4), (0, 1, 5)]


def test_the_entry_of_a_repair_that_died_is_restored(make_hook: Hook, tmp_path: Path) -> None:
    hook = beside(make_hook, Repairs(tmp_path, REPAIRS, entered=False))
    hook.write(Rows(read=10), 1)
    assert entries(hook) == [(0, 0, "committed"), (REPAIRS, 1, "rebuilt"), (0, 1, "committed")]


def test_a_repair_that_read_the_same_offsets_stops_the_query(make_hook: Hook, tmp_path: Path) -> None:
    hook = beside(make_hook, Repairs(tmp_path, REPAIRS, start=12))
    with raises(NewEpochError):
        hook.write(Rows(read=10), 1)
    assert written(tmp_path) == [(0, 0, 1), (REPAIRS, 1, 2)]


def test_another_driver_stops_the_query(make_hook: Hook, tmp_path: Path) -> None:
    repairs = Repairs(tmp_path, 1)
    hook = beside(make_hook, repairs)
    with raises(RefusedError):
        hook.write(Rows(read=10), 1)
    assert repairs.seen == [2] and written(tmp_path) == [(0, 0, 1), (1, 1, 2)]


def test_the_write_of_a_number_is_found_from_the_newest_one_back(make_hook: Hook, tmp_path: Path) -> None:
    hook = beside(make_hook, Repairs(tmp_path, REPAIRS))
    hook.write(Rows(read=10), 1)
    storage, app = Storage(str(tmp_path / "t")), app_id("p", "s")
    found = [delta_log.numbered(storage, app, number) for number in range(5)]
    assert [None if one is None else one.version for one in found] == [None, 0, 1, 2, None]
    assert delta_log.numbered(storage, "another", 1) is None
    assert delta_log.numbered(Storage(str(tmp_path / "none")), app, 1) is None
    sink = DeltaAppend(str(tmp_path / "t"))
    assert [sink.repair_of("p", "s", number) is not None for number in (1, 2, 3)] == [False, True, False]
