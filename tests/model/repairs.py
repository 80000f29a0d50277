"""The repair in the model of two drivers: it reads again what Spark took for done and no sink has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from recon.model import REPAIRS
from tests.model.two_drivers import Driver, Move, Setting, Span, State, Write, stopped

WHO = 2  # its place among the drivers
_QUERY = -1


def waits(state: State, who: int) -> bool:
    """Whether another one runs beside which it may not be started: a driver beside a repair, or a repair."""
    runs = [place for place, driver in enumerate(state.drivers) if driver.step != "start"]
    return bool(runs) if who == WHO else WHO in runs


def start(setting: Setting, state: State, who: int) -> Iterator[Move]:
    """A repair is started; there is one at a time."""
    begun = state._replace(repairs=state.repairs - 1)
    yield "starts", begun.with_driver(who, Driver(step="finish"))


def _finish(setting: Setting, state: State, who: int) -> Iterator[Move]:
    """Adds the entries of repairs that died behind their commit."""
    behind = tuple(
        w for w in setting.sink.log(state) if w.epoch == REPAIRS and w._replace(number=0) not in state.ledger
    )
    after = state._replace(ledger=(*state.ledger, *(w._replace(number=0) for w in behind)))
    yield f"restores {len(behind)} entries of its own", after.with_driver(who, Driver(step="plan repair"))


def _plan(setting: Setting, state: State, who: int) -> Iterator[Move]:
    """What the checkpoints have done and the ledger does not have; `known` keeps it as one write to be."""
    done = (checkpoint.planned[: checkpoint.committed] for checkpoint in state.checkpoints)
    offsets = {offset for spans in done for span in spans for offset in range(*span)}
    offsets -= {offset for entry in state.ledger for offset in range(*entry.span)}
    if not offsets:
        yield "finds nothing to do", stopped(state, who)
        return
    write = Write(_QUERY, REPAIRS, 0, Span(min(offsets), max(offsets) + 1))
    yield f"plans {write.span}", state.with_driver(who, Driver(step="look up rows", write=write))


def _look_up(setting: Setting, state: State, who: int) -> Iterator[Move]:
    """Reads the table at its newest version: what is missing there, and which numbers are free."""
    write = state.drivers[who].write
    assert write is not None
    there = {offset for row in state.rows for offset in range(*row.span)}
    missing = [offset for offset in range(*write.span) if offset not in there]
    if not missing:
        yield "finds the rows there", stopped(state, who)
        return
    # One stretch of them: the next repair does the others.
    end = next(n for n in range(missing[0] + 1, write.span.end + 1) if n not in missing)
    mine = {one.batch for one in (*state.rows, *state.ledger) if one.epoch == REPAIRS}
    newest = max((row.number for row in state.rows), default=0)
    number = newest + 1 if setting.sink.numbers_repairs else 0
    found = write._replace(batch=len(mine), span=Span(missing[0], end), number=number)
    driver = Driver(step=setting.sink.first, write=found)
    yield f"finds [{found.span.start}, {found.span.end}) missing", state.with_driver(who, driver)


def _append(setting: Setting, state: State, who: int) -> Iterator[Move]:
    write = state.drivers[who].write
    assert write is not None
    entry = write._replace(number=0)
    added = () if entry in state.ledger else (entry,)  # the hook may have restored it
    yield "appends its entry", stopped(state._replace(ledger=(*state.ledger, *added)), who)


STEPS: dict[str, Callable[[Setting, State, int], Iterator[Move]]] = {
    "finish": _finish,
    "plan repair": _plan,
    "look up rows": _look_up,
    "append": _append,
}
