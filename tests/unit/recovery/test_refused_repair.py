"""A repair that another writer refuses: it looks anew, a bounded number of times, and leaves what others have read.

Without a JVM: the table is made by deltalake, and what Spark and Kafka do is stood in for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from recon.base.clock import utc_now
from recon.base.errors import RefusedError
from recon.base.storage import Storage
from recon.model import REPAIRS, LedgerEntry, ReconStamp, SinkCommit, offsets_text
from recon.model.offsets import OffsetSpan, Spans
from recon.project import Project, Sink
from recon.recovery.repair.plan import PlannedRange
from recon.witness import delta_log
from recon.write.hook.epochs import BatchToWrite
from recon.write.ledger import Ledger, open_ledger
from recon.write.ledger.rebuild import entry_of
from tests.support.broker import Broker
from tests.support.ledger_entries import project as project_of
from tests.support.messages import raises
from tests.support.repairs import Given, repaired
from tests.unit.hook.test_beside_a_repair import commit


def span(start: int, end: int) -> OffsetSpan:
    return OffsetSpan("orders", "id-1", 0, start, end)


def stamp(number: int, *offsets: OffsetSpan, epoch: int = 1) -> ReconStamp:
    """A micro-batch of another query."""
    return ReconStamp(
        pipeline="orders",
        sink="orders",
        epoch=epoch,
        batch_id=number,
        query_id="q-2",
        run_id=None,
        prev_hash="",
        offsets_text=offsets_text(offsets),
        number=number,
    )


def entered(of: ReconStamp, sink: Sink) -> LedgerEntry:
    return entry_of(SinkCommit(version=0, stamp=of, rows=1, at=utc_now()), sink, target="t")


@dataclass(kw_only=True)
class World(Given):
    """A sink whose rows are offsets, and what happens before each write of the repair."""

    project: Project
    happens: list[Callable[[], None]] = field(default_factory=list)
    writes: list[tuple[int | None, int, list[tuple[int, int]]]] = field(default_factory=list)
    always: bool = False

    @property
    def ledger(self) -> Ledger:
        return open_ledger(self.project)

    @property
    def table(self) -> Path:
        return self.project.project_dir / "orders"

    def micro_batch(self, number: int, *offsets: OffsetSpan, rows: Iterable[tuple[int, int]], entry: bool) -> None:
        commit(self.table, stamp(number, *offsets))
        self.rows = self.rows.union(Spans.of(rows))
        if entry:
            self.ledger.append(entered(stamp(number, *offsets), self.project.pipelines[0].sinks[0]))

    def write_repair(self, rows: Any, batch: BatchToWrite, ledger: Ledger) -> LedgerEntry:
        """As ForeachBatch does: refused where the number is taken."""
        made = batch.stamp
        self.writes.append((made.number, made.batch_id, [tuple(one.span) for one in batch.ranges]))
        if self.happens:
            self.happens[0]() if self.always else self.happens.pop(0)()
        commit(self.table, made)
        mine = [one.stamp for one in delta_log.stamped(Storage(str(self.table))).commits]
        if made not in mine:
            raise RefusedError("another writer came first", made.number)
        return ledger.append(entered(made, self.project.pipelines[0].sinks[0]))


@pytest.fixture
def world(tmp_path: Path, broker: Broker) -> World:
    """Offsets 10 to 30 were found missing; the sink has one write."""
    kafka = {"kafka": {"bootstrap.servers": "localhost:1"}}
    made = World(project=project_of(tmp_path).model_copy(update=kafka))
    made.micro_batch(1, span(0, 10), rows=[(0, 10)], entry=True)
    one = PlannedRange(
        action="read",
        topic="orders",
        topic_id="id-1",
        partition=0,
        start_offset=10,
        end_offset=30,
        source=0,
        batch_id=1,
        findings=(),
        why="",
    )
    made.missing = [one]
    made.counted = (20, 2)
    return made


def of_repairs(world: World) -> Sequence[tuple[int, ...]]:
    return [(*one.span,) for entry in world.ledger.entries("orders") if entry.epoch == REPAIRS for one in entry.offsets]


def test_it_commits_under_the_next_number(world: World) -> None:
    assert repaired(world.project, world).offsets == 20
    assert world.writes == [(2, 0, [(10, 30)])] and of_repairs(world) == [(10, 30)]
    assert [(one.rows_read, one.rows_filtered) for one in world.ledger.entries("orders")][1:] == [(20, 2)]


def test_a_query_that_reads_further_on_refuses_it_once(world: World) -> None:
    world.happens = [lambda: world.micro_batch(2, span(30, 40), rows=[(30, 40)], entry=True)]
    assert repaired(world.project, world).offsets == 20
    assert world.writes == [(2, 0, [(10, 30)]), (3, 0, [(10, 30)])]
    assert world.reads == 1, "what was read is written again"


def test_what_another_query_read_meanwhile_is_left_out(world: World) -> None:
    """Also offsets without a row, which its transform dropped."""
    world.happens = [lambda: world.micro_batch(2, span(10, 20), rows=[(10, 18)], entry=True)]
    done = repaired(world.project, world)
    assert world.writes == [(2, 0, [(10, 30)]), (3, 0, [(20, 30)])]
    assert (done.offsets, of_repairs(world)) == (10, [(20, 30)])


def test_so_is_a_commit_whose_entry_is_still_to_come(world: World) -> None:
    """Its failing rows may not be in quarantine yet."""
    world.happens = [lambda: world.micro_batch(2, span(10, 20), rows=[(10, 18)], entry=False)]
    done = repaired(world.project, world)
    assert of_repairs(world) == [(20, 30)]
    (sentence,) = (one for one in done.incomplete if "Kafka has" not in one)
    assert sentence.startswith("micro-batch 2 (epoch 1) was committed beside this repair")


def test_another_repair_read_everything(world: World) -> None:
    def other() -> None:
        made = replace(stamp(2, span(10, 30)), epoch=REPAIRS, batch_id=0, query_id="repair-2")
        commit(world.table, made)
        world.rows = Spans.of([(0, 30)])
        world.ledger.append(entered(made, world.project.pipelines[0].sinks[0]))

    world.happens = [other]
    done = repaired(world.project, world)
    assert (done.entries, done.incomplete) == ((), ()) and of_repairs(world) == [(10, 30)]


def test_its_number_among_repairs_is_free(world: World) -> None:
    made = replace(stamp(2, span(5, 6)), epoch=REPAIRS, batch_id=4, query_id="repair-2")
    commit(world.table, made)  # died before its entry, which the next repair adds
    done = repaired(world.project, world)
    assert done.finished == ("repair 4",)
    assert world.writes == [(3, 5, [(10, 30)])]


def test_it_ends_when_it_is_refused_ten_times(world: World) -> None:
    world.always = True
    world.happens = [lambda: commit(world.table, stamp(world.writes[-1][0] or 0, span(40, 41)))]
    with raises(RefusedError):
        repaired(world.project, world)
    assert [number for number, _, _ in world.writes] == list(range(2, 12))
    assert of_repairs(world) == [] and world.reads == 1
