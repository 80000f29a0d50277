"""What a micro-batch costs: a fixed time and a time for each row, fitted to recorded micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from recon.base.trend import Line, quantile, theil_sen
from recon.model.progress import BatchProgress
from recon.write.streams.facts import FEWEST

FULL = 0.8  # of the target time is planned; the rest is left for slower micro-batches


@dataclass(frozen=True)
class Cost:
    """What a micro-batch costs: `fixed` seconds and `per_row` seconds for each row, over `count` micro-batches.

    `worst` is the 95th percentile of measured over expected time, `least` and `most` the 5th and 95th of rows.
    """

    fixed: float
    per_row: float
    worst: float
    count: int
    least: float
    most: float

    def of(self, rows: float) -> float:
        """The expected seconds of a micro-batch of so many rows."""
        return self.fixed + self.per_row * rows

    def __str__(self) -> str:
        return (
            f"a micro-batch takes {self.fixed:.2f} s + {self.per_row * 1e6:,.2f} µs a row (robust line through "
            f"{self.count} micro-batches of {self.least:,.0f} to {self.most:,.0f} rows; the 95th percentile takes "
            f"{self.worst:.2f} times that)"
        )

    @property
    def figures(self) -> dict[str, Any]:
        """The numbers of the sentence."""
        return {
            "fixed_seconds": self.fixed,
            "seconds_per_row": self.per_row,
            "p95_over_expected": self.worst,
            "batches": self.count,
            "rows_p5": self.least,
            "rows_p95": self.most,
        }


def cost(batches: Sequence[BatchProgress]) -> Cost | str:
    """The line through micro-batches' rows and seconds, or why none can be fitted."""
    if len(batches) < FEWEST:
        return f"{len(batches)} micro-batches with rows are recorded after each run's first, and {FEWEST} are needed"
    rows, seconds = [float(b.rows) for b in batches], [b.seconds for b in batches]
    least, most = quantile(rows, 0.05), quantile(rows, 0.95)
    if most < 1.5 * max(least, 1.0):
        return (
            f"all {len(batches)} micro-batches have about the same rows ({least:,.0f} to {most:,.0f}), so fixed cost "
            "and cost per row cannot be separated; run the query once with another maxOffsetsPerTrigger, or on a "
            "backlog"
        )
    line = theil_sen(rows, seconds)
    if line is None or line.slope <= 0:
        return (
            f"over {len(batches)} micro-batches of {least:,.0f} to {most:,.0f} rows, more rows did not take longer, so "
            "only the fixed cost is known; larger micro-batches would show the cost of a row"
        )
    # A negative fixed cost is noise: then the line goes through the origin.
    line = line if line.intercept >= 0 else Line(median([s / r for s, r in zip(seconds, rows, strict=True)]), 0.0)
    ratios = [s / max(line.at(r), 1e-9) for s, r in zip(seconds, rows, strict=True)]
    return Cost(line.intercept, line.slope, max(1.0, quantile(ratios, 0.95)), len(batches), least, most)


def offsets_per_row(batches: Iterable[BatchProgress]) -> float:
    """The median number of offsets for a row; transaction markers and compaction make it more than 1."""
    known = [b.offsets / b.rows for b in batches if b.offsets and b.rows]
    return max(1.0, median(known)) if known else 1.0
