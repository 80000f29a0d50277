"""What audits showed of a control on each day of a period. No I/O; the cost grows with days, audits and exceptions."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from recon.base.lazy import np
from recon.base.text import plural
from recon.model.controls import Control, DayState, Stretch

if TYPE_CHECKING:
    import numpy.typing as npt

T = TypeVar("T", int, datetime)

_EVER = datetime.min.replace(tzinfo=UTC)
Groups = Sequence[Sequence[str]]


class Day(NamedTuple):
    """A day of the period as far as that reaches, in UTC; `goes_on` where that is now."""

    begin: datetime
    end: datetime
    goes_on: bool = False


def days_of(from_: datetime, to: datetime, now: datetime) -> list[Day]:
    """The days of [from_, to), up to now."""
    days, begin, until = [], from_.astimezone(UTC), min(to, now)
    while begin < until:
        end = min(begin.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1), until)
        days.append(Day(begin, end, goes_on=end == now))
        begin = end
    return days


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One audit of one sink: its period, and the checks that it ran.

    `checks` says of each whether it was evaluated whole, and why not. `judged` are the sequences [first, end) of the
    ledger entries that it judged. `partial` is whether not all checks of recon.yml were selected. `limited` is whether
    unread records were compared with a limit.
    """

    begin: datetime | None
    end: datetime
    checks: Mapping[str, tuple[bool, str]]
    judged: Sequence[tuple[int, int]] = ()
    partial: bool = False
    limited: bool = False

    def lacks(self, groups: Groups, controls: Sequence[Control]) -> str:
        """Why the audit shows nothing of what rests on these checks; "" where it does."""
        for names in groups:
            ran = [self.checks[name] for name in names if name in self.checks]
            if not any(evaluated for evaluated, _ in ran):
                why = next((why for _, why in ran if why), "")
                what = " or ".join(names)
                if not ran:
                    return f"{what} did not run" + (", as the audit was a partial one" if self.partial else "")
                return f"{what} could not be evaluated" + (f": {why}" if why else "")
            if "timeliness" in controls and "kafka_end_offsets" in names and not self.limited:
                return "kafka_end_offsets has no limit (warn_after or error_after) to hold unread records against"
        return ""


@dataclass(frozen=True, kw_only=True)
class Against:
    """An exception as far as it matters for a control: the days that it is about, and what it makes of them.

    `days` are pairs of places in the list of days, the end excluded.
    """

    code: str
    state: DayState
    how: str
    days: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class SinkDays:
    """What is known of one sink: its audits by their ends, and its ledger entries of the period.

    `entries` are (day, sequence) of each, the day as a place in `days`. `begin` is the time of its first ledger entry:
    what a day holds before that is nothing to show, and nothing that is not shown.
    """

    days: Sequence[Day]
    runs: Sequence[Ran]
    entries: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
    begin: datetime = _EVER
    _seen: dict[tuple[bool, ...], tuple[Sequence[Looked], Sequence[int]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def stretches(
        self, groups: Groups, controls: Sequence[Control], against: Sequence[Against], whole: str = ""
    ) -> tuple[Stretch, ...]:
        """The state of each day.

        Args:
            groups: the checks that the control rests on, of each group one.
            controls: which ones it is.
            against: the exceptions that concern it.
            whole: why nothing is shown of any day; "" for no reason.
        """
        alike, places_of_runs = self._alike
        of_alike = [run.lacks(groups, controls) for run in alike]
        lacking = [of_alike[at] for at in places_of_runs]
        audited, _ = self._seen_by((True,) * len(alike))
        shown, unjudged = self._seen_by(tuple(not why for why in of_alike))
        found = _by_day(len(self.days), against)
        ends = [run.end for run in self.runs]

        def of_day(place: int) -> tuple[DayState, str]:
            told = {state: ", ".join(sorted(codes)) for state, codes in found[place].items()}
            seen, left = shown[place], plural(unjudged[place], "ledger entry")
            if "refuted" in told:
                return "refuted", told["refuted"]
            if self.days[place].end <= self.begin:
                state: DayState = next((state for state in ("not shown", "answered") if state in told), "not yet there")
                return state, told.get(state, "")
            if not audited[place].spans:
                return "no audit", ""
            if not seen.whole and seen != audited[place]:
                return "not shown", self._why(place, lacking, ends)
            if unjudged[place] and seen.whole:
                return "not shown", f"{left} judged by no such audit"
            if whole or "not shown" in told:
                return "not shown", whole or told["not shown"]
            if not seen.whole:
                unseen = f"{left} judged by no audit" if unjudged[place] else ""
                return "partly covered", "; ".join(filter(None, (str(seen), unseen, told.get("answered"))))
            return ("answered", told["answered"]) if "answered" in told else ("shown", "")

        said = [(day.begin.date(), *of_day(place)) for place, day in enumerate(self.days)]
        return tuple(
            Stretch(first=(of_run := list(run))[0][0], last=of_run[-1][0], state=state, because=because)
            for (state, because), run in groupby(said, key=lambda row: (row[1], row[2]))
        )

    @cached_property
    def _alike(self) -> tuple[Sequence[Ran], Sequence[int]]:
        """The audits that differ in what they ran, one for all that are alike; and the place there of each audit's.

        Most audits of a year ran the same checks.
        """
        known: dict[object, int] = {}
        alike: list[Ran] = []
        places_of_runs: list[int] = []
        for run in self.runs:
            kind = (run.partial, run.limited, tuple(run.checks.items()))
            if kind not in known:
                known[kind] = len(alike)
                alike.append(run)
            places_of_runs.append(known[kind])
        return alike, places_of_runs

    def _seen_by(self, which: tuple[bool, ...]) -> tuple[Sequence[Looked], Sequence[int]]:
        """What audits cover of each day, and how many entries of it none of them judged.

        `which` says of each kind of audits whether they count. Controls rest on few such choices.
        """
        if which not in self._seen:
            _, places_of_runs = self._alike
            runs = [run for run, at in zip(self.runs, places_of_runs, strict=True) if which[at]]
            periods = [(run.begin, run.end) for run in runs]
            self._seen[which] = covered(self.days, periods, self.begin), self._unjudged(runs)
        return self._seen[which]

    def _unjudged(self, showing: Sequence[Ran]) -> list[int]:
        """How many entries of each day none of these audits judged."""
        at, sequences = self.entries
        spans = merged(span for run in showing for span in run.judged)
        starts, ends = (np.array([span[side] for span in spans], np.int64) for side in (0, 1))
        place = np.searchsorted(starts, sequences, side="right") - 1
        inside = place >= 0
        inside[inside] = sequences[inside] < ends[place[inside]]
        return [int(count) for count in np.bincount(at[~inside], minlength=len(self.days))]

    def _why(self, place: int, lacking: Sequence[str], ends: Sequence[datetime]) -> str:
        """Why audits of a day show nothing of it: by the first one behind it that lacks something."""
        day = self.days[place]
        for at in range(bisect_right(ends, day.begin), len(ends)):
            if lacking[at] and (self.runs[at].begin or _EVER) < day.end:
                return lacking[at]
        return "the checks were evaluated for a part of the day only"


def _by_day(count: int, against: Sequence[Against]) -> list[dict[str, set[str]]]:
    """What exceptions make of each day: state → codes."""
    found: list[dict[str, set[str]]] = [{} for _ in range(count)]
    for exception in against:
        for first, end in exception.days:
            for place in range(first, end):
                found[place].setdefault(exception.state, set()).add(f"{exception.code} {exception.how}".strip())
    return found


def merged(spans: Iterable[tuple[T, T]]) -> list[tuple[T, T]]:
    """Half-open spans joined where they meet or overlap, ascending."""
    joined: list[tuple[T, T]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


class Looked(NamedTuple):
    """The parts of a day that audits looked at, and whether that is all of it."""

    spans: Sequence[tuple[datetime, datetime]]
    whole: bool

    def __str__(self) -> str:
        """The parts as text.

        >>> begin = datetime(2026, 3, 1, 6, 30, tzinfo=UTC)
        >>> str(Looked([(begin, begin + timedelta(hours=17, minutes=30))], whole=False))
        'from 06:30 to 24:00 UTC'
        """
        return f"from {' and from '.join(_hours(*span) for span in self.spans)} UTC"


def _hours(begin: datetime, end: datetime) -> str:
    hours = "%H:%M:%S" if end - begin < timedelta(minutes=1) else "%H:%M"
    until = "24:00" if end.date() > begin.date() else format(end, hours)
    return f"{begin:{hours}} to {until}"


def covered(
    days: Sequence[Day], periods: Sequence[tuple[datetime | None, datetime]], since: datetime = _EVER
) -> list[Looked]:
    """What the periods together cover of each day, as far as that is behind `since`; of today up to its last audit.

    What is committed after today's last audit is audited tomorrow; that is no hole in today.
    """
    ends = sorted(end for _, end in periods)
    spans = merged((begin or _EVER, end) for begin, end in periods)
    until = [end for _, end in spans]

    def of(day: Day) -> Looked:
        begin, end = max(day.begin, min(since, day.end)), day.end
        if day.goes_on:
            last = bisect_right(ends, end) - 1
            end = ends[last] if last >= 0 and ends[last] > begin else end
        parts = []
        for at in range(bisect_right(until, begin), len(spans)):
            if spans[at][0] >= end:
                break
            if (part := (max(begin, spans[at][0]), min(end, spans[at][1])))[0] < part[1]:
                parts.append(part)
        return Looked(parts, parts == [(begin, end)])

    return [of(day) for day in days]


def places(days: Sequence[Day], spans: Iterable[tuple[datetime | None, datetime]]) -> list[tuple[int, int]]:
    """The days that half-open times reach into, as places in the list."""
    begins = [day.begin for day in days]

    def of(begin: datetime | None, end: datetime) -> tuple[int, int]:
        first = max(0, bisect_right(begins, begin) - 1) if begin is not None else 0
        if begin is not None and days and begin >= days[-1].end:
            first = len(days)
        return first, bisect_left(begins, end)

    return merged(pair for begin, end in spans if (pair := of(begin, end))[0] < pair[1])


def place_of(days: Sequence[Day], at: date) -> int | None:
    """The place of a day; None where it is not of the period."""
    if not days:
        return None
    place = (at - days[0].begin.date()).days
    return place if 0 <= place < len(days) else None
