"""state_growth: whether the state of the query grows without end, or its watermark stands still."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import median
from typing import Any, ClassVar, NamedTuple

from typing_extensions import override

from recon.base.text import duration, plural
from recon.base.trend import trend
from recon.checks.period import Period
from recon.checks.progress_check import ProgressCheck, newest_query, seconds
from recon.model import Verdict, Witnesses
from recon.model.progress import BatchProgress, ProgressWitness

_DAY, _HOUR = Period(1, "day"), Period(1, "hour")


@dataclass(frozen=True, kw_only=True)
class StateGrowth(ProgressCheck):
    """The query's state grows without end, or its watermark stands still.

    State *grows* when the rows or the bytes of all stateful operators rise beyond chance (as `lag_trend` says it), over
    the whole period and over its second half: what fills up to its watermark and stays there is no growth. At the pace
    of the second half it doubles in a time that the limits are held against. A watermark *stands still* when it was the
    same in all micro-batches that read rows for `watermark_still`, or was never set: then no state is ever dropped.

    It needs the progress of micro-batches ([progress](progress.md)). A query without state, or with fewer than
    `min_batches`, is skipped.

    Args:
        warn_if_doubling_within: warn when the state doubles within this time, as `{count: 1, period: day}`.
        error_if_doubling_within: fail when it does.
        error_above_bytes: fail when the state's bytes in the last micro-batch are more.
        watermark_still: warn when the watermark has not moved for so long though rows were read; null turns this off.
        min_batches: so many micro-batches with state are needed for a verdict.

    Example:
        data_tests:
          - state_growth:
              arguments:
                error_if_doubling_within: {count: 6, period: hour}
                watermark_still: {count: 30, period: minute}
    """

    test: ClassVar[str] = "state_growth"
    judged: ClassVar[str] = "with state"
    fewest: ClassVar[int] = 6

    warn_if_doubling_within: Period | None = _DAY
    error_if_doubling_within: Period | None = None
    error_above_bytes: int | None = None
    watermark_still: Period | None = _HOUR

    @override
    def counts(self, batch: BatchProgress) -> bool:
        return batch.state_rows is not None

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        batches = newest_query(witnesses).batches
        if batches and not any(self.counts(batch) for batch in batches):
            return Verdict(skipped="the query keeps no state")
        return super().judge(witnesses)

    @override
    def verdict(self, batches: Sequence[BatchProgress], progress: ProgressWitness, witnesses: Witnesses) -> Verdict:
        last, growths = batches[-1], _growths(batches)
        evidence: dict[str, Any] = {
            "batches": len(batches),
            "state_rows": last.state_rows,
            "state_bytes": last.state_bytes,
            "watermark": None if last.watermark is None else last.watermark.isoformat(),
        }
        for growth in growths:
            evidence[f"{growth.what}_per_hour"] = growth.per_hour
            evidence[f"{growth.what}_double_in_seconds"] = growth.doubles_in
        failing = _within(growths, self.error_if_doubling_within)
        paces = _within(growths, self.warn_if_doubling_within)
        warning = [*(pace for pace in paces if pace not in failing), *self._still(batches)]
        rows, size = last.state_rows or 0, last.state_bytes or 0
        if self.error_above_bytes is not None and size > self.error_above_bytes:
            failing.append(f"the state holds {size:,} bytes, more than {self.error_above_bytes:,}")
        size_text = f"{rows:,} rows, {size:,} bytes in {plural(len(batches), 'micro-batch')}"
        message = "; ".join([*failing, *warning]) or f"the state does not grow: {size_text}"
        return Verdict(
            failures=len(failing), warnings=len(warning), message=message, evidence={**evidence, "said": size_text}
        )

    def _still(self, batches: Sequence[BatchProgress]) -> Iterator[str]:
        """Why the watermark drops no state, if it does not."""
        if self.watermark_still is None:
            return
        watermark = batches[-1].watermark
        # The first micro-batch of a query has none yet; its rows set that of the next.
        same = [batch for batch in reversed(batches) if batch.rows and batch.batch_id > 0]
        if watermark is not None:
            same = list(takewhile(lambda batch: batch.watermark == watermark, same))
        if not same or same[0].at - same[-1].at < self.watermark_still.length:
            return
        if watermark is None:
            yield (
                "the query keeps state and no watermark was ever set, so none of it is dropped; set withWatermark on "
                "its event time"
            )
        else:
            yield (
                f"the watermark stands at {watermark:%Y-%m-%d %H:%M:%S}Z since {same[-1].at:%Y-%m-%d %H:%M:%S}Z, "
                f"though {sum(batch.rows for batch in same):,} rows were read: their event times do not advance, and "
                "no state is dropped"
            )


class _Growth(NamedTuple):
    """How fast a figure of the state grows, by its second half; None where it does not."""

    what: str
    now: float
    per_hour: float | None = None
    doubles_in: float | None = None

    def within(self, limit: Period | None) -> bool:
        """Whether the figure doubles within a time."""
        return limit is not None and self.doubles_in is not None and self.doubles_in <= limit.length.total_seconds()

    def __str__(self) -> str:
        pace = f"{self.per_hour or 0:,.0f} an hour and double in {duration(self.doubles_in or 0)}"
        return f"state {self.what} grow by {pace} (now {self.now:,.0f})"


def _within(growths: Sequence[_Growth], limit: Period | None) -> list[str]:
    return [str(growth) for growth in growths if growth.within(limit)]


def _growths(batches: Sequence[BatchProgress]) -> Sequence[_Growth]:
    at = seconds(batches)
    rows, sizes = [float(b.state_rows or 0) for b in batches], [float(b.state_bytes or 0) for b in batches]
    return [_growth("rows", at, rows), _growth("bytes", at, sizes)]


def _growth(what: str, seconds: Sequence[float], values: Sequence[float]) -> _Growth:
    half = len(values) // 2
    whole, late = trend(seconds, values), trend(seconds[half:], values[half:])
    if whole is None or late is None or not (whole.rises and late.rises):
        return _Growth(what, values[-1])
    now = max(median(values[-3:]), 1.0)
    return _Growth(what, values[-1], late.line.slope * 3600, now / late.line.slope)
