"""The processing-time trigger: an interval in which fixed costs are a small share, and that keeps up."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from recon.write.streams.cost import FULL, cost
from recon.write.streams.facts import Advice, Facts, unknown
from recon.write.streams.units import next_interval

_FIXED_SHARE = 0.2  # of the time may go to fixed costs
_SETTING = "trigger(processingTime=…)"


def trigger_interval(facts: Facts) -> Advice:
    """A processing-time trigger whose fixed costs are a small share of the time, and that keeps up."""
    line = cost(facts.settled)
    if isinstance(line, str):
        return unknown(facts, line, _SETTING)
    arrives = facts.rows_per_second
    if arrives is None:
        return unknown(facts, "no run has two micro-batches to compute a rate from", _SETTING)
    gaps = [(b.at - a.at).total_seconds() for run in facts.runs for a, b in pairwise(run)]
    interval = median(gaps)
    busy = line.per_row * arrives
    share = line.fixed / interval if interval else 1.0
    figures = {
        **line.figures,
        "rows_per_second": arrives,
        "interval_seconds": interval,
        "busy_share_of_rows": busy,
        "fixed_share": share,
    }
    if busy >= FULL:
        return Advice(
            decision="change",
            recommendation="no trigger interval helps: give the query more cores, or make the work per row cheaper",
            because=f"{line}; {arrives:,.0f} rows/s take {busy:.0%} of the time, and {FULL:.0%} can be planned",
            figures=figures,
        )
    keeps_up, cheap = line.fixed / (FULL - busy), line.fixed / _FIXED_SHARE
    best = next_interval(max(keeps_up, cheap))
    suits = interval >= max(keeps_up, cheap) * 0.99
    return Advice(
        decision="keep" if suits else "change",
        recommendation=(
            f"the interval of about {interval:.3g} s is right; {best:g} s would do, too"
            if suits
            else f"set the trigger to processingTime='{best:g} seconds'"
        ),
        because=(
            f"{line}; at {arrives:,.0f} rows/s rows take {busy:.0%} of the time; fixed costs stay below "
            f"{_FIXED_SHARE:.0%} from {cheap:.1f} s on, and a micro-batch is done in {FULL:.0%} of its interval from "
            f"{keeps_up:.1f} s on; now a micro-batch starts every {interval:.1f} s (median of {len(gaps)}), "
            f"{min(share, 1):.0%} of it fixed costs"
        ),
        setting=_SETTING,
        value=best,
        figures={**figures, "value": best},
    )
