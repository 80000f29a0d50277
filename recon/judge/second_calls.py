"""Calls of the hook for a micro-batch that the same run had written already: nothing of them was written.

Spark calls the function of foreachBatch once for each micro-batch of a run. Two entries of one micro-batch and one run
are therefore two calls by that function. Where they name two transforms, the sink lacks what the second one returned,
and what the first one filtered may be that. Where they name one, two functions may have this name. Where the run is
not known, another transform may be that of a new run, which lawfully replays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from recon.judge.coverage import Coverage
from recon.model import EntryHead
from recon.model.wire.processing_signature import parts_of

_TELL = ("committed", "already_committed")  # other entries do not say what their rows went through


class SecondCall(NamedTuple):
    """A micro-batch of which a call was not written.

    `entry` is the one that was written, `again` the newest one that was not. `differs` is whether they are known to be
    of one run and of two transforms; else they may be.
    """

    entry: int
    again: int
    differs: bool


def second_calls(covered: Coverage) -> Mapping[int, SecondCall]:
    """The micro-batches of which a call was not written, by the entry that was."""
    heads = covered.slice.heads
    calls: defaultdict[int, list[int]] = defaultdict(list)
    for again, first in covered.replays.items():
        if heads[again].status == "already_committed":
            calls[first].append(again)
    found: dict[int, SecondCall] = {}
    for first, replays in calls.items():
        runs: defaultdict[str | None, set[str | None]] = defaultdict(set)
        known_to_differ = False
        for entry in (first, *replays):
            differs = _differs(runs, heads[entry])
            if differs is not None:
                known_to_differ |= differs
                found[first] = SecondCall(first, entry, known_to_differ)
            runs[heads[entry].run_id] |= {heads[entry].transform} if heads[entry].status in _TELL else set()
    return found


def _differs(runs: Mapping[str | None, set[str | None]], head: EntryHead) -> bool | None:
    """Whether a call is a second one of its run, with another transform than those before it; None where it is none.

    `runs` are the transforms of the calls before it, by run.
    """
    if head.run_id in runs and head.run_id is not None:
        told = runs[head.run_id]
        return bool(told) and head.transform not in told
    unknown = [told for run, told in runs.items() if None in (run, head.run_id)]
    return False if any(told - {head.transform} for told in unknown) else None


def filtered_for_sure(covered: Coverage) -> Mapping[int, int | None]:
    """What the filter of an entry proves where a second call was not written, as `rows_filtered`; no others.

    0 where what it filtered is what the second call may have returned: nothing says that these rows are none of the
    sink's. None where that is not known, and of a route, whose entry counts the rows of other routes as filtered.
    """
    sure = {}
    for call in second_calls(covered).values():
        head = covered.slice.heads[call.entry]
        if head.rows_filtered:
            sure[call.entry] = 0 if call.differs and parts_of(head.transform)[1] is None else None
    return sure
