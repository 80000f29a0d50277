"""The calls of the hook in one run of a query: a micro-batch has one for each sink.

Spark calls the function of foreachBatch once for each micro-batch of a run, and tries one again in a new run. A second
call within a run comes from the function itself. One that gives the same rows is a retry. Any other would lose its
rows: recon would take them for those that the sink has already.

A Connect server runs the function of each run in a process of its own, so that what this process knows is enough there,
too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recon.project import Routes
from recon.write.hook.prepare import Transform
from recon.write.hook.routing import passed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Place = tuple[str, str, str]  # ledger, pipeline, sink
_newest: dict[Place, Call] = {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Call:
    """One call: the run and the micro-batch, (epoch, batch_id), and the rows that it gives to the sink."""

    run_id: str | None
    number: tuple[int, int]
    frame: DataFrame
    transform: Transform | None
    routes: Routes | None

    def gives_same_rows(self, other: Call) -> bool:
        """Whether both read the same rows and send them through the same functions."""
        if self.transform != other.transform or self.routes != other.routes:
            return False
        return self.frame is other.frame or _is_same_plan(self.frame, other.frame)

    def difference(self, other: Call) -> str:
        """What this call gives otherwise than the other one, in a clause."""
        mine, others = (passed(call.transform, call.routes) or "no transform" for call in (self, other))
        if mine != others:
            return f"with {others}, and this call has {mine}"
        if self.transform != other.transform:
            return f"with another transform of the same name ({mine})"
        return "with another DataFrame"


def before(place: Place, call: Call) -> Call | None:
    """The call of the same run that has the micro-batch already; None for none, and where the run is not known."""
    newest = _newest.get(place)
    if newest is None or call.run_id is None:
        return None
    return newest if (newest.run_id, newest.number) == (call.run_id, call.number) else None


def remember(place: Place, call: Call) -> None:
    """From now on the micro-batch is this call's."""
    _newest[place] = call


def _is_same_plan(frame: DataFrame, other: DataFrame) -> bool:
    try:
        return frame.sameSemantics(other)
    except Exception:  # frames of two sessions, or of one that ended: each kind of session fails in its own way
        return False
