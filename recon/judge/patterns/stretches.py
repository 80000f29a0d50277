"""Offsets that repeat with a period. Pure integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from recon.base.text import plural
from recon.model.offsets import Span, Spans

LEAST = 4  # ranges of a stretch: fewer may be a coincidence
_MOST = 8  # ranges of one period

_ORDINALS = {2: "second", 3: "third", 4: "fourth", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth", 9: "ninth"}


class Stretch(NamedTuple):
    """Offsets from `first` to `last` that repeat every `period` offsets: of these `taken` each time, the others never.

    At its two ends a range may be cut.
    """

    first: int
    last: int
    period: int
    taken: int

    @property
    def rule(self) -> str:
        """Which offsets these are.

        >>> Stretch(3, 399, 4, 1).rule, Stretch(0, 398, 4, 3).rule, Stretch(1, 394, 10, 2).rule
        ('every fourth offset', 'all but every fourth offset', '2 of every 10 offsets')
        """
        if self.taken == 1:
            return f"every {_nth(self.period)} offset"
        if self.taken == self.period - 1:
            return f"all but every {_nth(self.period)} offset"
        return f"{self.taken} of every {plural(self.period, 'offset')}"


def _nth(number: int) -> str:
    if number in _ORDINALS:
        return _ORDINALS[number]
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def stretches(offsets: Spans) -> list[Stretch]:
    """The stretches that hold all of these offsets and no others; none where some are in no stretch.

    >>> stretches(Spans.of_offsets(range(3, 40, 4)))
    [Stretch(first=3, last=39, period=4, taken=1)]
    >>> stretches(Spans.of_offsets([3, 7, 11, 15, 16]))
    []
    """
    found, at, ranges = [], 0, offsets.ranges
    while at < len(ranges):
        each, beyond = max(
            (_reach(ranges, at, each) for each in range(1, _MOST + 1)), key=lambda run: (run[1], -run[0])
        )
        if beyond - at < max(LEAST, 3 * each):
            return []
        period = ranges[at + 1 + each].start - ranges[at + 1].start
        taken = sum(span.size for span in ranges[at + 1 : at + 1 + each])
        found.append(Stretch(ranges[at].start, ranges[beyond - 1].end - 1, period, taken))
        at = beyond
    return found


def _reach(ranges: Sequence[Span], at: int, each: int) -> tuple[int, int]:
    """How far the ranges from `at` on repeat with so many ranges each time: (each, the first range behind them)."""
    if at + 1 + each >= len(ranges):
        return each, at
    period = ranges[at + 1 + each].start - ranges[at + 1].start
    if ranges[at + each].end - ranges[at].end != period or ranges[at].start < ranges[at + each].start - period:
        return each, at
    beyond = at + 1 + each
    while beyond < len(ranges):
        before, span = ranges[beyond - each], ranges[beyond]
        if span.start - before.start != period or span.end - before.end > period:
            break
        beyond += 1
        if span.end - before.end < period:  # cut at its end: the stretch ends here
            break
    return each, beyond
