"""A model of the hook, the ledger and the sinks, in which two drivers, and a repair, write one sink at the same time.

A move is what the code does in one piece: one read, one commit, one append. Between any two moves of a driver the other
one may move, and a driver may die and be started again, on its checkpoint or on a fresh one. `explore` visits every
state that can be reached so, breadth first: the first violation that it finds has the shortest story.

Epochs and replays are decided by the hook's own code (`recon.write.hook.epochs`); what the sinks do is in
`tests.model.sinks`, what a repair does in `tests.model.repairs`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from recon.base.errors import ReconError
from recon.model import LedgerEntry
from recon.model.offsets import OffsetSpan
from recon.project import DeltaSink
from recon.write.hook.epochs import Batch, Epochs
from recon.write.ledger import coverage
from tests.support.ledger_entries import entry

if TYPE_CHECKING:
    from tests.model.sinks import SinkModel


class Span(NamedTuple):
    """A half-open range of the one partition that is read."""

    start: int
    end: int


class Write(NamedTuple):
    """A micro-batch as it is stamped; `number` is that of the write in its sink, 0 where it has none."""

    query: int
    epoch: int
    batch: int
    span: Span
    number: int = 0

    @property
    def name(self) -> str:
        number = f", write {self.number}" if self.number else ""
        return f"micro-batch {self.batch} (epoch {self.epoch}{number}) [{self.span.start}, {self.span.end})"


class Checkpoint(NamedTuple):
    """A checkpoint: where it starts (None: not made yet), `offsets/N`, and how many `commits/N` there are."""

    start: int | None = None
    planned: tuple[Span, ...] = ()
    committed: int = 0


class Driver(NamedTuple):
    """A driver between two of its moves; `step` is the next one.

    `known` are the entries that its Epochs has, `end` the length of the ledger when it read or extended it last,
    `number` the newest write of the sink that it knows, `wrote` whether it has written, `notes` what the sink's
    moves remember.
    """

    step: str = "start"
    checkpoint: int = 0
    batch: int = -1
    recovers: bool = True
    open: bool = False
    known: tuple[Write, ...] = ()
    end: int = 0
    number: int = 0
    missing: tuple[Write, ...] = ()
    write: Write | None = None
    wrote: bool = False
    notes: Any = None


class State(NamedTuple):
    """Everything that survives a driver, and the drivers, the repair behind them.

    `rows` are the writes that a reader of the sink sees. `swallowed` are micro-batches that did not reach the hook, and
    that Spark took for done; `repairs` is how often a repair may still be started.
    """

    ledger: tuple[Write, ...]
    rows: tuple[Write, ...]
    sink: Any
    checkpoints: tuple[Checkpoint, ...]
    drivers: tuple[Driver, ...]
    starts: int
    swallowed: tuple[Span, ...] = ()
    repairs: int = 0

    def with_driver(self, who: int, driver: Driver) -> State:
        return self._replace(drivers=(*self.drivers[:who], driver, *self.drivers[who + 1 :]))

    def with_checkpoint(self, which: int, checkpoint: Checkpoint) -> State:
        return self._replace(checkpoints=(*self.checkpoints[:which], checkpoint, *self.checkpoints[which + 1 :]))


Move = tuple[str, State]  # what a driver does, and the state after it


@dataclass(frozen=True)
class Setting:
    """What is explored.

    Attributes:
        sink: the sink, and the protocol by which it is written.
        checkpoints: "one" that both drivers have; "two", each with a query of its own; "copied": the second driver has
            a copy of the first one's, made when it starts.
        offsets: how many offsets there are; a micro-batch takes one of them or all that are left.
        starts: how often drivers are started, the first time included.
        repairs: how often a repair is started; with any, one micro-batch may be swallowed, at the end.
        alone: whether no driver runs while a repair does.
        holes: whether a micro-batch may be swallowed anywhere, and a fresh checkpoint start at any offset up to the
            ledger's end: also in the hole that was left so.
    """

    sink: SinkModel
    checkpoints: Literal["one", "two", "copied"]
    offsets: int = 2
    starts: int = 3
    repairs: int = 0
    alone: bool = False
    holes: bool = False

    @property
    def swallows(self) -> bool:
        """Whether a micro-batch may be swallowed."""
        return self.holes or self.repairs > 0


@dataclass(frozen=True)
class Explored:
    """How many states there were, and the shortest story of a violation; None where there is none."""

    states: int
    violation: str | None = None
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        steps = [f"  {number}. {step}" for number, step in enumerate(self.story, 1)]
        return "\n".join([f"{self.states:,} states: {self.violation or 'nothing lost, nothing doubled'}", *steps])


def explore(setting: Setting, limit: int = 2_000_000) -> Explored:
    """Visits every state that can be reached; raises RuntimeError where there are more than `limit`."""
    checkpoints = (Checkpoint(),) * (1 if setting.checkpoints == "one" else 2)
    drivers = (Driver(),) * (3 if setting.repairs else 2)
    first = State((), (), setting.sink.empty, checkpoints, drivers, setting.starts, repairs=setting.repairs)
    came_from: dict[State, tuple[State, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        for text, after in moves(setting, state):
            here = (state, text)
            if came_from.setdefault(after, here) is not here:
                continue
            violation = violated(after)
            if violation is not None:
                return Explored(len(came_from), violation, tuple(_story(came_from, after)))
            if len(came_from) > limit:
                raise RuntimeError(f"more than {limit:,} states")
            waiting.append(after)
    return Explored(len(came_from))


def _story(came_from: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    story = []
    while (before := came_from[state]) is not None:
        state, text = before
        story.append(text)
    return story[::-1]


def violated(state: State) -> str | None:
    """What a state must not have: an offset in two writes, or one that is accounted for and in none."""
    held: set[int] = set()
    for write in state.rows:
        mine = set(range(*write.span))
        if held & mine:
            return f"doubled: offset {min(held & mine)}"
        held |= mine
    done = [span for checkpoint in state.checkpoints for span in checkpoint.planned[: checkpoint.committed]]
    done = [span for span in done if span not in state.swallowed]
    for where, spans in (("an entry has it", [w.span for w in state.ledger]), ("Spark has committed it", done)):
        for span in spans:
            if not set(range(*span)) <= held:
                return f"lost: [{span.start}, {span.end}), {where}"
    return None


def moves(setting: Setting, state: State) -> Iterator[Move]:
    """Every move that a driver may make, and its death before it."""
    from tests.model import repairs

    for who, driver in enumerate(state.drivers):
        name = ("A", "B", "the repair")[who]
        if driver.step == "start":
            begins = repairs.start if who == repairs.WHO else _start
            left = state.repairs if who == repairs.WHO else state.starts
            if left and not (setting.alone and repairs.waits(state, who)):
                yield from ((f"{name} {text}", after) for text, after in begins(setting, state, who))
            continue
        steps = repairs.STEPS if who == repairs.WHO else _STEPS
        made = list(steps.get(driver.step, setting.sink.moves)(setting, state, who))
        if setting.swallows and who != repairs.WHO and driver.step in ("number", "look") and not state.swallowed:
            made += _swallow(setting, state, who)
        yield from ((f"{name} {text}", after) for text, after in made)
        if made or setting.alone:  # a query that has read everything, too, is stopped for a repair
            yield f"{name} dies", stopped(state, who)


def stopped(state: State, who: int) -> State:
    """The driver has died, or stopped with an error."""
    return state.with_driver(who, Driver(checkpoint=state.drivers[who].checkpoint))


# -- Spark -----------------------------------------------------------------------------------------


def _start(setting: Setting, state: State, who: int) -> Iterator[Move]:
    which = 0 if setting.checkpoints == "one" else who
    begun = state._replace(starts=state.starts - 1)
    checkpoint = state.checkpoints[which]
    if checkpoint.start is None and setting.checkpoints == "copied" and which:
        copy = state.checkpoints[0]
        if copy.start is not None:
            driver = Driver(step="plan", checkpoint=which, batch=copy.committed - 1)
            yield "starts on a copy of A's checkpoint", begun.with_checkpoint(which, copy).with_driver(who, driver)
        return
    if checkpoint.start is None:
        end = max((write.span.end for write in state.ledger), default=0)
        # startingOffsets: earliest, or what `recon offsets` prints
        for start in range(end + 1) if setting.holes else sorted({0, end}):
            driver = Driver(step="plan", checkpoint=which)
            made = begun.with_checkpoint(which, Checkpoint(start))
            yield f"starts on a fresh checkpoint, at offset {start}", made.with_driver(who, driver)
        return
    driver = Driver(step="plan", checkpoint=which, batch=checkpoint.committed - 1)
    yield "starts on its checkpoint", begun.with_driver(who, driver)


def _plan(setting: Setting, state: State, who: int) -> Iterator[Move]:
    """`offsets/N`: there already after a crash, else made exclusively."""
    driver = state.drivers[who]
    checkpoint, batch = state.checkpoints[driver.checkpoint], driver.batch + 1
    assert checkpoint.start is not None
    planned = driver._replace(step="look" if driver.open else "number", batch=batch, recovers=False)
    if batch < len(checkpoint.planned):
        if driver.recovers:
            yield f"runs micro-batch {batch} again", state.with_driver(who, planned)
        else:
            yield f"finds micro-batch {batch} planned by the other, and stops", stopped(state, who)
        return
    start = checkpoint.planned[-1].end if checkpoint.planned else checkpoint.start
    for end in sorted({start + 1, setting.offsets}):
        if start < end <= setting.offsets:
            grown = checkpoint._replace(planned=(*checkpoint.planned, Span(start, end)))
            after = state.with_checkpoint(driver.checkpoint, grown).with_driver(who, planned)
            yield f"plans micro-batch {batch} [{start}, {end})", after


def _commit(setting: Setting, state: State, who: int) -> Iterator[Move]:
    """`commits/N`."""
    driver = state.drivers[who]
    checkpoint = state.checkpoints[driver.checkpoint]
    if checkpoint.committed != driver.batch:
        yield f"finds micro-batch {driver.batch} committed by the other, and stops", stopped(state, who)
        return
    after = state.with_checkpoint(driver.checkpoint, checkpoint._replace(committed=driver.batch + 1))
    yield f"writes commits/{driver.batch}", after.with_driver(who, driver._replace(step="plan"))


def _swallow(setting: Setting, state: State, who: int) -> Iterator[Move]:
    """What the user's function does not give to the hook: Spark takes the micro-batch for done.

    Without `holes` it is one that reaches the end.
    """
    driver = state.drivers[who]
    span = state.checkpoints[driver.checkpoint].planned[driver.batch]
    if setting.holes or span.end == setting.offsets:
        after = state._replace(swallowed=(*state.swallowed, span)).with_driver(who, driver._replace(step="commit"))
        yield f"swallows micro-batch {driver.batch}", after


# -- the hook --------------------------------------------------------------------------------------


def _number(setting: Setting, state: State, who: int) -> Iterator[Move]:
    sink, driver = setting.sink, state.drivers[who]
    if not sink.reopens:
        yield from _ledger(setting, state, who)
        return
    state, number = sink.newest(state, who)
    text = "fences the other" if number is None else f"reads the number of the newest write: {number}"
    yield text, state.with_driver(who, driver._replace(step="ledger", number=number or 0))


def _ledger(setting: Setting, state: State, who: int) -> Iterator[Move]:
    driver = state.drivers[who]
    read = driver._replace(step="log", known=state.ledger, end=len(state.ledger))
    yield f"reads the ledger: {len(state.ledger)} entries", state.with_driver(who, read)


def _log(setting: Setting, state: State, who: int) -> Iterator[Move]:
    driver = state.drivers[who]
    missing = tuple(w for w in setting.sink.log(state) if not _has(driver.known, w))
    step = "restore" if missing else "look"
    text = f"reads the sink's record: {len(missing)} without an entry"
    yield text, state.with_driver(who, driver._replace(step=step, missing=missing, open=True))


def _restore(setting: Setting, state: State, who: int) -> Iterator[Move]:
    driver = state.drivers[who]
    restored = tuple(w._replace(number=0) for w in driver.missing if not _has(state.ledger, w))
    ledger = state.ledger + restored
    opened = driver._replace(step="look", known=driver.known + restored, end=len(ledger), missing=())
    if setting.sink.reopens and len(state.ledger) != driver.end:
        opened = driver._replace(step="number", open=False, known=(), missing=())
    yield f"restores {len(restored)} entries", state._replace(ledger=ledger).with_driver(who, opened)


def _has(entries: Iterable[Write], write: Write) -> bool:
    return any((entry.epoch, entry.batch) == (write.epoch, write.batch) for entry in entries)


def _look(setting: Setting, state: State, who: int) -> Iterator[Move]:
    """Look for entries of others, place the micro-batch, and stamp it."""
    driver, sink = state.drivers[who], setting.sink
    if len(state.ledger) > driver.end:
        if sink.reopens:
            yield "finds entries of the other", state.with_driver(who, driver._replace(step="number", open=False))
            return
        driver = driver._replace(known=driver.known + state.ledger[driver.end :], end=len(state.ledger))
    span = state.checkpoints[driver.checkpoint].planned[driver.batch]
    query = driver.checkpoint if setting.checkpoints == "two" else 0
    placed = place(driver.known, query, driver.batch, span)
    if placed is None:
        yield "stops with NewEpochError", stopped(state, who)
        return
    epoch, replays = placed
    write = Write(query, epoch, driver.batch, span, driver.number + 1 if sink.counts else 0)
    landed = replays and any(same(write, row) for row in sink.log(state))
    step = "append" if landed else sink.first
    text = f"finds {write.name} written" if landed else f"stamps {write.name}"
    yield text, state.with_driver(who, driver._replace(step=step, write=write))


def same(first: Write, second: Write) -> bool:
    """Whether both are the same micro-batch of the same query."""
    return first[:4] == second[:4]


def written(driver: Driver) -> Driver:
    """The driver after its sink has confirmed the write."""
    assert driver.write is not None
    return driver._replace(step="append", number=driver.write.number or driver.number, wrote=True, notes=None)


def _append(setting: Setting, state: State, who: int) -> Iterator[Move]:
    driver = state.drivers[who]
    assert driver.write is not None
    own = driver.write._replace(number=0)
    ledger = (*state.ledger, own)
    appended = driver._replace(step="commit", known=(*driver.known, own), end=len(ledger), write=None)
    if setting.sink.reopens and len(state.ledger) != driver.end:
        # The entry does not follow the one that its stamp names.
        appended = appended._replace(open=False, known=())
    yield f"appends its entry {len(ledger)}", state._replace(ledger=ledger).with_driver(who, appended)


_STEPS = {
    "plan": _plan,
    "number": _number,
    "ledger": _ledger,
    "log": _log,
    "restore": _restore,
    "look": _look,
    "append": _append,
    "commit": _commit,
}


# -- the hook's own decisions ------------------------------------------------------------------------

_SINK = DeltaSink(name="s", kind="delta", target="lake/s")


class _Entries:
    """Stands for the ledger, of which Epochs asks the covered offsets alone."""

    def __init__(self, entries: Iterable[LedgerEntry]) -> None:
        self.entries = entries

    def coverage(self, pipeline: str, sink: str, *, apart_from: int | None = None) -> dict[coverage.Key, Any]:
        return coverage.plus({}, [s for stored in self.entries if stored.epoch != apart_from for s in stored.offsets])


@cache
def _entry(write: Write) -> LedgerEntry:
    return entry(query_id=f"q-{write.query}", epoch=write.epoch, batch_id=write.batch, offsets=(_span(write.span),))


def _span(span: Span) -> OffsetSpan:
    return OffsetSpan("orders", "id-1", 0, span.start, span.end)


@cache
def place(known: tuple[Write, ...], query: int, batch: int, span: Span) -> tuple[int, bool] | None:
    """The epoch of a micro-batch and whether the ledger has it, as the hook decides; None where the hook stops."""
    entries = [_entry(write) for write in known]
    epochs = Epochs(_Entries(entries), "p", _SINK, "checkpoint", entries)  # type: ignore[arg-type]
    try:
        placed = epochs.place(Batch(query_id=f"q-{query}", run_id=None, batch_id=batch, ranges=(_span(span),)))
    except ReconError:
        return None
    return placed.epoch, placed.replays is not None
