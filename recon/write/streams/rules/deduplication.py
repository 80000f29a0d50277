"""Duplicates dropped by state (watermark and dropDuplicates) or by the sink's MERGE: which window fits into state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from recon.base.text import duration
from recon.model.progress import BatchProgress
from recon.write.streams.facts import FEWEST, Advice, Facts, unknown
from recon.write.streams.units import size

_BUDGET = 1 << 30  # bytes of state that a query may keep
# 60 short keys took 12,032 bytes of the state store on the heap (Spark 4.0).
_ASSUMED_BYTES = 200.0


@dataclass(frozen=True)
class _Window:
    """The state that deduplication needs: rows per second, bytes of each, the seconds that fill the budget."""

    rows_per_second: float
    bytes_each: float
    measured_on: int  # micro-batches; 0 for an assumed size

    @property
    def seconds(self) -> float:
        return _BUDGET / (self.bytes_each * self.rows_per_second)

    def __str__(self) -> str:
        origin = (
            f"measured over {self.measured_on} micro-batches"
            if self.measured_on
            else "assumed, as the query keeps no such state"
        )
        examples = ", ".join(
            f"{name} takes {size(self.bytes_each * self.rows_per_second * seconds)}"
            for name, seconds in (("1 hour", 3600), ("1 day", 86400), ("7 days", 604800))
        )
        return (
            f"{self.rows_per_second:,.0f} rows/s of {self.bytes_each:,.0f} bytes of state each ({origin}) fill "
            f"{size(_BUDGET)} in {duration(self.seconds)}: {examples}"
        )

    @property
    def figures(self) -> dict[str, Any]:
        return {
            "rows_per_second": self.rows_per_second,
            "bytes_per_key": self.bytes_each,
            "measured": bool(self.measured_on),
            "window_seconds": self.seconds,
            "budget_bytes": _BUDGET,
        }


def deduplication(facts: Facts) -> Advice:
    """Whether state or MERGE suits the time that lies between duplicates."""
    arrives = facts.rows_per_second
    if arrives is None or len(facts.settled) < FEWEST:
        missing = f"{len(facts.settled)} micro-batches with rows are recorded, and {FEWEST} are needed for a rate"
        return unknown(facts, missing)
    stateful = [b for b in facts.batches if any(name.startswith("dedupe") for name in b.state_operators)]
    stored = [b for b in stateful if b.state_rows and b.state_bytes]
    each = median([(b.state_bytes or 0) / (b.state_rows or 1) for b in stored]) if stored else _ASSUMED_BYTES
    window = _Window(arrives, each, len(stored))
    if stateful:
        return _of_state(stateful, window)
    longest = duration(window.seconds)
    merges = [kind for kind in facts.kinds if kind in ("delta_merge", "jdbc_upsert")]
    return Advice(
        decision="keep",
        recommendation=(
            f"{merges[0]} drops duplicates of any age; if they are never more than {longest} apart, withWatermark and "
            "dropDuplicates before a plain append cost less"
            if merges
            else "nothing drops duplicates here; if the producer sends any, withWatermark and dropDuplicates drop "
            f"those at most {longest} apart, and a delta_merge sink drops older ones"
        ),
        because=str(window),
        figures=window.figures,
    )


def _of_state(stateful: Sequence[BatchProgress], window: _Window) -> Advice:
    """The advice for a query that deduplicates in its state."""
    last = stateful[-1]
    figures = {**window.figures, "state_bytes": last.state_bytes, "state_rows": last.state_rows}
    longest = duration(window.seconds)
    if last.watermark is None:
        return Advice(
            decision="change",
            recommendation=(
                f"set withWatermark before dropDuplicates, of at most {longest}: now every key is kept for ever"
            ),
            because=f"no watermark in {len(stateful)} micro-batches, {last.state_rows or 0:,} keys kept; {window}",
            setting="withWatermark",
            value=window.seconds,
            figures=figures,
        )
    delays = [(b.at - b.watermark).total_seconds() for b in stateful if b.watermark is not None]
    delay = median(delays)
    figures["window_now_seconds"] = delay
    arithmetic = f"{window}; the watermark lies {duration(delay)} back (median of {len(delays)})"
    if delay > window.seconds:
        return Advice(
            decision="change",
            recommendation=(
                f"use MERGE on the key for a window of {duration(delay)}, and keep state for at most {longest}"
            ),
            because=arithmetic,
            setting="kind",
            value="delta_merge",
            figures=figures,
        )
    return Advice(
        decision="keep",
        recommendation=f"watermark and dropDuplicates suit a window of {duration(delay)}",
        because=arithmetic,
        figures=figures,
    )
