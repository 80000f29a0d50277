"""state_growth: whether the state of the query grows without end, or its watermark stands still."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Any, ClassVar, NamedTuple

from typing_extensions import override

from recon.checks.period import Period
from recon.checks.progress_check import ProgressCheck, newest_query, seconds
from recon.judge.trend import trend
from recon.model import Verdict, Witnesses
from recon.model.progress import BatchProgress, ProgressWitness
from recon.text import duration, plural

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
        last = batches[-1]
        evidence: dict[str, Any] = {
            "batches": len(batches),
            "state_rows": last.state_rows,
            "state_bytes": last.state_bytes,
            "watermark": None if last.watermark is None else last.watermark.isoformat(),
        }
        failing: list[str] = []
        warning: list[str] = []
        for what, values in (
            ("rows", [float(batch.state_rows or 0) for batch in batches]),
            ("bytes", [float(batch.state_bytes or 0) for batch in batches]),
        ):
            growth = _growth(seconds(batches), values)
            evidence[f"{what}_per_hour"] = None if growth is None else growth.per_hour
            evidence[f"{what}_double_in_seconds"] = None if growth is None else growth.doubles_in
            if growth is None:
                continue
            pace = (
                f"state {what} grow by {growth.per_hour:,.0f} an hour and double in {duration(growth.doubles_in)} "
                f"(now {values[-1]:,.0f})"
            )
            if _within(growth.doubles_in, self.error_if_doubling_within):
                failing.append(pace)
            elif _within(growth.doubles_in, self.warn_if_doubling_within):
                warning.append(pace)
        if self.error_above_bytes is not None and (last.state_bytes or 0) > self.error_above_bytes:
            failing.append(f"the state holds {last.state_bytes:,} bytes, more than {self.error_above_bytes:,}")
        warning.extend(self._still(batches))
        size_text = (
            f"{last.state_rows or 0:,} rows, {last.state_bytes or 0:,} bytes in {plural(len(batches), 'micro-batch')}"
        )
        message = "; ".join([*failing, *warning]) or f"the state does not grow: {size_text}"
        return Verdict(
            failures=len(failing), warnings=len(warning), message=message, evidence={**evidence, "said": size_text}
        )

    def _still(self, batches: Sequence[BatchProgress]) -> Iterator[str]:
        """Why the watermark drops no state, if it does not."""
        if self.watermark_still is None:
            return
        last = batches[-1]
        # The first micro-batch of a query has none yet; its rows set that of the next.
        reading = [batch for batch in batches if batch.rows and batch.batch_id > 0]
        span = timedelta(0) if not reading else reading[-1].at - reading[0].at
        if last.watermark is None:
            if reading and span >= self.watermark_still.length:
                yield (
                    "the query keeps state and no watermark was ever set, so none of it is dropped; set withWatermark "
                    "on its event time"
                )
            return
        same = []
        for batch in reversed(reading):
            if batch.watermark != last.watermark:
                break
            same.append(batch)
        if same and same[0].at - same[-1].at >= self.watermark_still.length:
            yield (
                f"the watermark stands at {last.watermark:%Y-%m-%d %H:%M:%S}Z since {same[-1].at:%Y-%m-%d %H:%M:%S}Z, "
                f"though {sum(batch.rows for batch in same):,} rows were read: their event times do not advance, and "
                "no state is dropped"
            )


class _Growth(NamedTuple):
    per_hour: float
    doubles_in: float


def _growth(seconds: Sequence[float], values: Sequence[float]) -> _Growth | None:
    """How fast a figure grows, by its second half; None when it does not."""
    half = len(values) // 2
    whole, late = trend(seconds, values), trend(seconds[half:], values[half:])
    if whole is None or late is None or not (whole.rises and late.rises):
        return None
    now = max(median(values[-3:]), 1.0)
    return _Growth(late.line.slope * 3600, now / late.line.slope)


def _within(seconds: float, limit: Period | None) -> bool:
    return limit is not None and seconds <= limit.length.total_seconds()
