"""The repair in the model of two drivers: it reads again what Spark took for done and no sink has.

It reads the number of the newest write, then what is missing, and commits under the next number. A refused one looks
anew, `TRIES` times in all. In the model every offset that was read has a row, so the rows alone say what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from recon.model import REPAIRS
from tests.model.two_drivers import Driver, Move, Setting, Span, State, Write, stopped

WHO = 2  # its place among the drivers
TRIES = 2
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
    state, _ = setting.sink.newest(state, who)  # which may complete a write
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
    yield f"plans {write.span}", state.with_driver(who, Driver(step="number repair", batch=1, write=write))


def _number(setting: Setting, state: State, who: int) -> Iterator[Move]:
    state, newest = setting.sink.newest(state, who)
    number = newest or 0
    text = f"reads the number of the newest write: {number}"
    yield text, state.with_driver(who, state.drivers[who]._replace(step="look up rows", number=number, notes=None))


def _number_late(setting: Setting, state: State, who: int) -> Iterator[Move]:
    driver = state.drivers[who]
    assert driver.write is not None
    number = _newest(state)
    found = driver._replace(step=setting.sink.first, write=driver.write._replace(number=number + 1))
    yield f"reads the number of the newest write: {number}", state.with_driver(who, found)


def _newest(state: State) -> int:
    return max((row.number for row in state.rows), default=0)


def refused(state: State, who: int, why: str) -> Move:
    """Its commit was refused: it looks anew, a bounded number of times."""
    driver = state.drivers[who]
    if driver.batch == TRIES:
        return f"stops: {why}", stopped(state, who)
    return f"looks anew: {why}", state.with_driver(who, driver._replace(step="number repair", batch=driver.batch + 1))


def _look_up(setting: Setting, state: State, who: int) -> Iterator[Move]:
    """Reads the table at its newest version: what is missing there."""
    driver = state.drivers[who]
    write = driver.write
    assert write is not None
    there = {offset for row in state.rows for offset in range(*row.span)}
    missing = [offset for offset in range(*write.span) if offset not in there]
    if not missing:
        yield "finds the rows there", stopped(state, who)
        return
    # One stretch of them: the next repair does the others.
    end = next(n for n in range(missing[0] + 1, write.span.end + 1) if n not in missing)
    mine = {known.batch for known in (*state.rows, *state.ledger) if known.epoch == REPAIRS}
    number = driver.number + 1 if setting.sink.numbers_repairs else 0
    found = write._replace(batch=len(mine), span=Span(missing[0], end), number=number)
    step = "number late" if setting.sink.repairs_late else setting.sink.first
    driver = driver._replace(step=step, write=found)
    yield f"finds [{found.span.start}, {found.span.end}) missing", state.with_driver(who, driver)


def _append(setting: Setting, state: State, who: int) -> Iterator[Move]:
    write = state.drivers[who].write
    assert write is not None
    # Where the hook has restored it, the ledger has it twice, as it has a micro-batch that was tried again.
    yield "appends its entry", stopped(state._replace(ledger=(*state.ledger, write._replace(number=0))), who)


STEPS: dict[str, Callable[[Setting, State, int], Iterator[Move]]] = {
    "finish": _finish,
    "plan repair": _plan,
    "number repair": _number,
    "look up rows": _look_up,
    "number late": _number_late,
    "append": _append,
}
