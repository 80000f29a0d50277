"""The sinks of the model of two drivers: what each does between the stamp and the ledger entry, move by move.

Each is there in the form that recon has, and in forms that are not enough, which the model must refute.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from typing_extensions import override

from recon.model import REPAIRS
from tests.model import repairs
from tests.model.two_drivers import Driver, Move, Setting, State, Write, same, stopped, written


@dataclass(frozen=True)
class SinkModel(ABC):
    """A sink.

    Attributes:
        reopens: whether a driver asks the sink first, then reads ledger and record, and does so again when another one
            has extended the ledger.
        counts: whether writes have numbers: the newest one that the driver knows, and one more.
        numbers_repairs: whether the writes of repairs have such numbers, too; a driver that a repair's commit refuses
            then reads everything anew and writes its micro-batch again.
        repairs_late: whether a repair reads the number behind the rows.
    """

    reopens: bool = True
    counts: bool = True
    numbers_repairs: bool = True
    repairs_late: bool = False

    first: ClassVar[str]  # the first step of a write
    empty: ClassVar[Any] = ()

    def newest(self, state: State, who: int) -> tuple[State, int | None]:
        """What the driver asks the sink before it reads the ledger: the number of the newest write."""
        return state, max((row.number for row in state.rows), default=0)

    def log(self, state: State) -> tuple[Write, ...]:
        """The sink's own record of its writes."""
        return state.rows

    def is_ours(self, there: Write, write: Write) -> bool:
        """Whether a write of the same epoch and batch id is taken for ours."""
        return there == write if self.reopens else there.span == write.span

    @abstractmethod
    def moves(self, setting: Setting, state: State, who: int) -> Iterator[Move]:
        """The moves of a write, the driver's step being one of the sink's."""


def _landed(state: State, who: int, text: str) -> Move:
    return text, state.with_driver(who, written(state.drivers[who]))


def _written(state: State, who: int, **changes: Any) -> Move:
    write = state.drivers[who].write
    assert write is not None
    after = state._replace(rows=(*state.rows, write), **changes)
    return f"commits {write.name}", after.with_driver(who, written(state.drivers[who]))


def _next(state: State, who: int, step: str, text: str, notes: Any = None) -> Move:
    return text, state.with_driver(who, state.drivers[who]._replace(step=step, notes=notes))


def _refused(state: State, who: int, why: str) -> Move:
    return f"stops with SinkError: {why}", stopped(state, who)


def _refused_by(state: State, who: int, other: Write, why: str) -> Move:
    """What a repair's commit refuses is tried again; a driver forgets everything, and reads anew."""
    if who == repairs.WHO:
        return repairs.refused(state, who, why)
    if other.epoch != REPAIRS:
        return _refused(state, who, why)
    driver = state.drivers[who]
    again = Driver(step="number", checkpoint=driver.checkpoint, batch=driver.batch, recovers=driver.recovers)
    return f"reads everything anew: {why}, because of a repair", state.with_driver(who, again)


@dataclass(frozen=True)
class Delta(SinkModel):
    """Append and MERGE: a transaction that carries (app id, version).

    Delta drops a write, without an error, when the table has its version or a later one at the transaction's begin, and
    refuses the commit when another one of the app id was made since.
    """

    first = "begin"
    by: str = "number"  # what the txn's version is; "batch": in an app id per epoch; "epoch and batch"

    def txn(self, write: Write) -> tuple[int, int]:
        """(app id, version)."""
        if write.epoch == REPAIRS and not self.numbers_repairs:
            return REPAIRS - write.batch, write.batch
        if self.by == "batch":
            return write.epoch, write.batch
        return 0, write.number if self.by == "number" else 1000 * write.epoch + write.batch

    def _taker(self, state: State, write: Write) -> Write:
        """What has the txn of a write, or, where versions are no numbers, a later one."""
        app, version = self.txn(write)
        return next(row for row in state.rows if self.txn(row)[0] == app and self.txn(row)[1] >= version)

    @override
    def moves(self, setting: Setting, state: State, who: int) -> Iterator[Move]:
        driver = state.drivers[who]
        assert driver.write is not None
        app, version = self.txn(driver.write)
        if driver.step == "begin":
            taken = [self.txn(row)[1] for row in state.rows if self.txn(row)[0] == app]
            if max(taken, default=-1) < version:
                yield _next(state, who, "end", "begins Delta's transaction", len(state.rows))
            elif any(self.txn(row) == (app, version) and same(row, driver.write) for row in state.rows):
                yield _landed(state, who, "finds its micro-batch committed by the other")
            else:
                yield _refused_by(state, who, self._taker(state, driver.write), "Delta drops the write")
        elif any(self.txn(row)[0] == app for row in state.rows[driver.notes :]):
            yield _refused_by(state, who, self._taker(state, driver.write), "Delta refuses the commit")
        else:
            yield _written(state, who)


@dataclass(frozen=True)
class Database(SinkModel):
    """Rows, and a row of recon_ledger with unique keys, in one transaction."""

    first = "transaction"

    @override
    def moves(self, setting: Setting, state: State, who: int) -> Iterator[Move]:
        write = state.drivers[who].write
        assert write is not None
        batch = next((row for row in state.rows if (row.epoch, row.batch) == (write.epoch, write.batch)), None)
        if batch is not None and self.is_ours(batch, write):
            yield _landed(state, who, "finds its micro-batch committed by the other")
        elif batch is not None:
            yield _refused(state, who, "recon_ledger has another write of the micro-batch")
        elif self.counts and any(row.number == write.number for row in state.rows):
            yield _refused(state, who, "recon_ledger has the number")
        else:
            yield _written(state, who)


@dataclass(frozen=True)
class Files(SinkModel):
    """Files, then a file of the write's number, made exclusively, then the manifest.

    `state.sink` has the numbers' files. Without numbers, the manifest alone. `shared`: a micro-batch's folder has no
    part that is the driver's own, so that another driver's overwriting removes its files.
    """

    first = "files"
    shared: bool = False

    @override
    def newest(self, state: State, who: int) -> tuple[State, int | None]:
        """A number's file without a manifest is completed first."""
        behind = tuple(write for write in state.sink[-1:] if write not in state.rows)
        newest = max((write.number for write in state.sink), default=0)
        return state._replace(rows=state.rows + behind), newest

    def _manifest(self, state: State, write: Write) -> Write | None:
        return next((row for row in state.rows if (row.epoch, row.batch) == (write.epoch, write.batch)), None)

    @override
    def moves(self, setting: Setting, state: State, who: int) -> Iterator[Move]:
        driver = state.drivers[who]
        write = driver.write
        assert write is not None
        manifest = self._manifest(state, write)
        if driver.step in ("files", "commit files") and manifest is not None and not self.is_ours(manifest, write):
            yield _refused_by(state, who, manifest, "another manifest is there")
        elif driver.step == "files" and manifest is not None:
            yield _landed(state, who, "finds its micro-batch committed by the other")
        elif driver.step == "files":
            yield _next(state, who, "overwrite", "finds no manifest")
        elif driver.step == "overwrite":
            left = state
            if self.shared:
                kept = (row for row in state.rows if (row.epoch, row.batch) != (write.epoch, write.batch))
                left = state._replace(rows=tuple(kept))
            yield _next(left, who, "commit files", "writes its files")
        elif driver.step == "commit files" and not self.counts:
            rows = tuple(row for row in state.rows if row != manifest)
            yield _written(state._replace(rows=rows), who)
        elif driver.step == "commit files":
            taker = next((taken for taken in state.sink if taken.number >= write.number), None)
            if taker is not None:
                yield _refused_by(state, who, taker, "the number is taken")
            else:
                numbered = state._replace(sink=(*state.sink, write))
                yield _next(numbered, who, "manifest", f"makes the file of write {write.number}")
        elif write in state.rows:
            yield _landed(state, who, "finds its manifest")
        else:
            yield _written(state, who)


class Plan(NamedTuple):
    """A plan, and those that were never completed when it was committed."""

    write: Write
    behind: tuple[Write, ...] = ()


class Topic(NamedTuple):
    """What Kafka has beside the rows: the newest producers, the newest plan, and the batch markers."""

    driver: int = -1  # whose producer of the driver's transactional.id is the newest
    task: int = -1  # the same of the task's
    plan: Plan | None = None
    plans: int = 0
    marked: tuple[Write, ...] = ()

    @property
    def unfinished(self) -> tuple[Write, ...]:
        if self.plan is None or any(_same_numbers(marker, self.plan.write) for marker in self.marked):
            return ()
        return (self.plan.write, *self.plan.behind)


class Notes(NamedTuple):
    """What a driver notes: unfinished plans of other micro-batches, and its own plan's place."""

    others: tuple[Write, ...] = ()
    place: int = 0


def _same_numbers(first: Write, second: Write) -> bool:
    return (first.epoch, first.batch) == (second.epoch, second.batch)


@dataclass(frozen=True)
class Kafka(SinkModel):
    """Plan, one task's transaction, batch marker. The newest driver fences the others: when it opens the ledger, or,
    with `late`, when it writes for the first time. With `forgets`, a plan does not name those that it puts aside."""

    counts: bool = False
    first = "fence"
    empty: ClassVar[Any] = Topic()
    late: bool = False
    forgets: bool = False

    @override
    def newest(self, state: State, who: int) -> tuple[State, int | None]:
        return (state if self.late else state._replace(sink=state.sink._replace(driver=who))), None

    @override
    def log(self, state: State) -> tuple[Write, ...]:
        topic: Topic = state.sink
        return topic.marked

    @override
    def moves(self, setting: Setting, state: State, who: int) -> Iterator[Move]:
        driver, topic = state.drivers[who], state.sink
        write = driver.write
        assert write is not None
        if driver.step == "fence":
            # A driver that is fenced does not know it before it commits.
            fences = driver.notes is None and not driver.wrote
            fenced = topic._replace(driver=who) if self.late and fences else topic
            if fences and fenced.unfinished:
                fenced = fenced._replace(task=who)
            text, after = self._read(state._replace(sink=fenced), who, write)
            yield text, after
        elif driver.step == "plan records":
            if topic.driver != who:
                yield _refused(state, who, "fenced")
                return
            behind = () if self.forgets else driver.notes.others
            planned = topic._replace(plan=Plan(write, behind), plans=topic.plans + 1)
            notes = Notes(driver.notes.others, planned.plans)
            step = "fence tasks" if notes.others else "task"
            yield _next(state._replace(sink=planned), who, step, "commits its plan", notes)
        elif driver.step == "fence tasks":
            fenced = state._replace(sink=topic._replace(task=who))
            if self._repeats(state, driver.notes.others, write):
                yield _refused(state, who, "it would write records again")
            else:
                yield _next(fenced, who, "task", "fences the tasks of unfinished plans", driver.notes)
        elif driver.step == "task":
            if topic.plans > driver.notes.place:
                yield _refused(state, who, "its task finds a newer plan")
            elif any(same(row, write) for row in state.rows):
                yield _next(state, who, "mark", "finds its task committed")
            else:
                yield _next(state._replace(sink=topic._replace(task=who)), who, "commit task", "writes its records")
        elif driver.step == "commit task":
            if topic.task != who:
                yield _refused(state, who, "its task is fenced")
            else:
                text = f"commits the records of {write.name}"
                yield _next(state._replace(rows=(*state.rows, write)), who, "mark", text)
        elif topic.driver != who:
            yield _refused(state, who, "fenced")
        else:
            marked = state._replace(sink=topic._replace(marked=(*topic.marked, write)))
            yield _landed(marked, who, "commits its batch marker")

    def _repeats(self, state: State, others: tuple[Write, ...], write: Write) -> bool:
        """Whether records that tasks of other plans have committed would be written again."""
        return any(
            other in state.rows and other.span.start < write.span.end and write.span.start < other.span.end
            for other in others
        )

    def _read(self, state: State, who: int, write: Write) -> Move:
        """The markers decide: complete, to be resumed, or behind unfinished plans of other micro-batches."""
        topic: Topic = state.sink
        complete = next((marker for marker in topic.marked if _same_numbers(marker, write)), None)
        if complete is not None and self.is_ours(complete, write):
            return _landed(state, who, "finds its micro-batch committed by the other")
        if complete is not None:
            return _refused(state, who, "a batch marker has another write of it")
        others = tuple(other for other in topic.unfinished if other != write)
        if self._repeats(state, others, write):
            return _refused(state, who, "it would write records again")
        return _next(state, who, "plan records", "reads the markers", Notes(others))
