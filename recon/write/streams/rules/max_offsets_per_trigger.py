"""maxOffsetsPerTrigger: micro-batches that finish within the target time."""

from __future__ import annotations

from functools import partial

from recon.write.streams.cost import FULL, cost, offsets_per_row
from recon.write.streams.facts import Advice, Facts, unknown
from recon.write.streams.units import next_interval, rounded_down

_FARTHEST = 3  # times the largest recorded micro-batch: the line is extrapolated no farther
_SETTING = "maxOffsetsPerTrigger"


def max_offsets_per_trigger(facts: Facts) -> Advice:
    """How many offsets a micro-batch may read so that it finishes within the target time."""
    line = cost(facts.settled)
    if isinstance(line, str):
        return unknown(facts, line, _SETTING)
    advice = partial(Advice, decision="change")
    target = facts.target.total_seconds()
    planned = target * min(FULL, 1 / line.worst)
    figures = {**line.figures, "target_seconds": target, "planned_seconds": planned}
    if line.fixed >= planned:
        longer = next_interval(line.fixed / FULL * 2)
        return advice(
            recommendation=f"choose a longer target than {target:g} s: at least {longer:g} s",
            because=f"{line}; its fixed cost alone takes the {planned:.1f} s that can be planned of {target:g} s",
            setting="--target-batch-time",
            value=longer,
            figures=figures,
        )
    per_row = offsets_per_row(facts.settled)
    fits = (planned - line.fixed) / line.per_row
    farthest = _FARTHEST * max(float(batch.rows) for batch in facts.settled)
    rows = min(fits, farthest)
    value = rounded_down(rows * per_row)
    arithmetic = (
        f"{line}; of {target:g} s {planned:.1f} s are planned, so ({planned:.1f} - {line.fixed:.2f}) / "
        f"{line.per_row * 1e6:,.2f} µs = {fits:,.0f} rows"
    )
    if rows < fits:
        arithmetic += (
            f"; no recorded micro-batch was larger than a third of {farthest:,.0f}, and the line is extrapolated no "
            "farther"
        )
    if per_row > 1.005:
        arithmetic += f"; a row takes {per_row:.2f} offsets (transaction markers, compaction)"
    figures |= {"rows": rows, "offsets_per_row": per_row, "value": value}
    arrives = facts.rows_per_second
    if arrives is not None:
        able = rows / target
        figures |= {"rows_per_second_arriving": arrives, "rows_per_second_able": able}
        arithmetic += f"; that is {able:,.0f} rows/s where {arrives:,.0f} arrive"
        if able < arrives:
            arithmetic += (
                ", which is too little: lag would grow; take a longer target, or more cores and partitions"
                if rows == fits
                else ", which is too little: raise it again when such micro-batches have been recorded"
            )
    return advice(
        recommendation=f"set maxOffsetsPerTrigger to {value:,} for micro-batches of at most {target:g} s",
        because=arithmetic,
        setting=_SETTING,
        value=value,
        figures=figures,
    )
