"""Computes what the report shows of earlier audits: a calendar strip each, bars per day, and the same as tables."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from recon.base.text import duration, plural
from recon.model.past import Detection, PastAudit, PastAudits, Spell
from recon.model.past import Strip as StripFacts
from recon.reports import picture
from recon.reports.words import number

FEW = 6  # pipelines that have a strip each; of more, those that were not complete every day
MAX_STRIPS = 20
MAX_AUDITS = 60

NO_AUDIT = "no audit"
# The legend's order; a strip shows those that occur.
_STATES = ("complete", "pass", "not complete", "fail", "could not be proved", "error", "warn", "skipped", NO_AUDIT)


class Box(NamedTuple):
    """Days on end of one state, per cent of the calendar's width."""

    x: float
    width: float
    state: str
    title: str


class Strip(NamedTuple):
    """A calendar: a row with its name, what it says in words, its days, and the days as rows of a table."""

    name: str
    says: str
    boxes: tuple[Box, ...]
    spells: tuple[Spell, ...]


class Bar(NamedTuple):
    """A day's value: its height in per cent; None where nobody knows it."""

    x: float
    width: float
    height: float | None
    title: str


class Bars(NamedTuple):
    """Values per day. `rows` are the same in words: the day, the value."""

    name: str
    says: str
    bars: tuple[Bar, ...]
    levels: tuple[tuple[float, str], ...]
    rows: tuple[tuple[str, ...], ...]


class Found(NamedTuple):
    """A detection: `took` in words, `share` per cent of the longest."""

    detection: Detection
    took: str
    share: float


class Trends(NamedTuple):
    """Everything about earlier audits. `separator` is the width of a day in parts of the calendar."""

    past: PastAudits
    separator: float
    ticks: tuple[picture.Tick, ...]
    answers: tuple[Strip, ...]
    left_out: str
    checks: tuple[Strip, ...]
    states: tuple[str, ...]
    check_states: tuple[str, ...]
    days_without: str
    cost: Bars | None
    lags: tuple[Bars, ...]
    found: tuple[Found, ...]
    found_says: str
    recent: tuple[tuple[PastAudit, str], ...]


def trends(past: PastAudits | None) -> Trends | None:
    """What the report draws; None where nobody looked at earlier audits."""
    if past is None:
        return None
    calendar = _Calendar(past.first_day, past.last_day)
    answers, left_out = _answers(calendar, past)
    checks = tuple(_strip(calendar, strip.name, strip.days, _of_check(strip)) for strip in past.checks)
    found = _found(past.detections)
    lags = tuple(
        _bars(
            calendar,
            lag.pipeline,
            {day.day: day.lag for day in lag.days},
            lambda value: plural(round(value), "offset"),
        )
        for lag in past.lags
    )
    return Trends(
        past=past,
        separator=round(1 / calendar.count, 6),
        ticks=calendar.ticks(),
        answers=answers,
        left_out=left_out,
        checks=checks,
        states=_states(answers),
        check_states=_states(checks),
        days_without=_days_without(calendar, past.project),
        cost=_cost(calendar, past),
        lags=lags,
        found=found,
        found_says=_found_says(past.detections),
        recent=tuple((audit, _worst(audit)) for audit in past.recent[:MAX_AUDITS]),
    )


class _Calendar:
    """The days that are shown, as places on an axis."""

    def __init__(self, first: date, last: date) -> None:
        self.first, self.last = first, last
        self.count = (last - first).days + 1

    def place(self, first: date, last: date) -> tuple[float, float]:
        """Where days begin and how wide they are, in per cent; what lies before the calendar is cut off."""
        begin = max((first - self.first).days, 0)
        end = min((last - self.first).days + 1, self.count)
        return round(begin / self.count * 100, 3), round((end - begin) / self.count * 100, 3)

    def ticks(self) -> tuple[picture.Tick, ...]:
        """At most six days, each in the middle of its place."""
        step = -(-self.count // 6)
        days = [self.first + timedelta(days=n) for n in range(0, self.count, step)]
        places = [(self.place(day, day), day) for day in days]
        return tuple(
            picture.Tick(
                round(x + width / 2, 3),
                f"{day:%m-%d}",
                f"{day:%Y}" if n == 0 else "",
                "start" if n == 0 and self.count > 6 else "middle",
            )
            for n, ((x, width), day) in enumerate(places)
        )

    def without(self, spells: Sequence[Spell]) -> list[tuple[date, date]]:
        """The days between and around spells."""
        gaps, at = [], self.first
        for spell in spells:
            if spell.first > at:
                gaps.append((at, spell.first - timedelta(days=1)))
            at = max(at, spell.last + timedelta(days=1))
        if at <= self.last:
            gaps.append((at, self.last))
        return gaps


def _answers(calendar: _Calendar, past: PastAudits) -> tuple[tuple[Strip, ...], str]:
    """The project's strip, those of pipelines, and a sentence about the others."""
    project = _strip(calendar, "All pipelines", past.project, "the worst answer of each day")
    if len(past.pipelines) <= FEW:
        shown = past.pipelines
    else:
        shown = tuple(s for s in past.pipelines if any(spell.state != "complete" for spell in s.days))[:MAX_STRIPS]
    others = len(past.pipelines) - len(shown)
    troubled = sum(any(spell.state != "complete" for spell in strip.days) for strip in past.pipelines) - len(shown)
    says = ""
    if others and troubled > 0:
        says = f"{plural(others, 'pipeline')} more, of which {troubled} were not complete on some day, have no strip."
    elif others:
        says = f"{plural(others, 'pipeline')} more: complete on every day on which they were audited."
    strips = tuple(_strip(calendar, strip.name, strip.days, _days_of(strip.days)) for strip in shown)
    return (project, *strips) if len(past.pipelines) > 1 else strips, says


def _strip(calendar: _Calendar, name: str, spells: Sequence[Spell], says: str) -> Strip:
    boxes = [Box(*calendar.place(s.first, s.last), s.state, f"{name}: {_spell(s)}") for s in spells]
    boxes += [
        Box(*calendar.place(first, last), NO_AUDIT, f"{name}: {_span(first, last)}: {NO_AUDIT}")
        for first, last in calendar.without(spells)
    ]
    return Strip(name, says, tuple(sorted(boxes)), tuple(spells))


def _spell(spell: Spell) -> str:
    return f"{_span(spell.first, spell.last)}: {spell.state}, {plural(spell.audits, 'audit')}"


def _span(first: date, last: date) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _days_of(spells: Iterable[Spell]) -> str:
    """How many days had which answer, the worst first."""
    days: Counter[str] = Counter()
    for spell in spells:
        days[spell.state] += (spell.last - spell.first).days + 1
    order = ("not complete", "could not be proved", "complete")
    return ", ".join(f"{state} on {plural(days[state], 'day')}" for state in order if days[state])


def _of_check(strip: StripFacts) -> str:
    audits = sum(spell.audits for spell in strip.days)
    most = "" if strip.failures is None else f", at most {plural(strip.failures, 'failure')}"
    if not strip.failed:
        return f"warned in some of {plural(audits, 'audit')}{most}"
    return f"failed in {strip.failed} of {plural(audits, 'audit')}{most}"


def _states(strips: Iterable[Strip]) -> tuple[str, ...]:
    seen = {box.state for strip in strips for box in strip.boxes}
    return tuple(state for state in _STATES if state in seen)


def _days_without(calendar: _Calendar, spells: Sequence[Spell]) -> str:
    gaps = calendar.without(spells)
    days = sum((last - first).days + 1 for first, last in gaps)
    if not days:
        return f"On each of the {plural(calendar.count, 'day')} there was an audit."
    return f"On {days} of {plural(calendar.count, 'day')} there was no audit."


def _cost(calendar: _Calendar, past: PastAudits) -> Bars | None:
    if not past.costs:
        return None
    days = {cost.day: cost.longest for cost in past.costs}
    audits = {cost.day: f"{plural(cost.audits, 'audit')}, {cost.seconds:.1f} s together" for cost in past.costs}
    return _bars(calendar, "Seconds of the longest audit's checks", days, lambda value: f"{value:.1f} s", audits)


def _bars(
    calendar: _Calendar,
    name: str,
    days: Mapping[date, float | None],
    words: Callable[[float], str],
    more: Mapping[date, str] | None = None,
) -> Bars:
    known = {day: value for day, value in days.items() if value is not None}
    top, levels = picture.scale(math.ceil(max(known.values(), default=0)))
    bars, rows = [], []
    for day, value in sorted(days.items()):
        x, width = calendar.place(day, day)
        said = "unknown" if value is None else words(value)
        also = (more or {}).get(day, "")
        height = None if value is None else round(max(value / top * 100, 1.0 if value else 0.0), 2)
        bars.append(Bar(x, width, height, f"{day}: {said}{f' ({also})' if also else ''}"))
        rows.append((f"{day}", said, *((also,) if more else ())))
    newest = days[max(days)]
    largest = max(known.values(), default=None)
    says = f"last {'unknown' if newest is None else words(newest)}"
    says += "" if largest is None else f", at most {words(largest)}"
    return Bars(name, says, tuple(bars), levels, tuple(rows))


def _found(detections: Sequence[Detection]) -> tuple[Found, ...]:
    longest = max((detection.seconds or 0.0 for detection in detections), default=0.0)
    return tuple(
        Found(
            detection,
            "unknown" if detection.seconds is None else duration(detection.seconds),
            round(max((detection.seconds or 0.0) / longest * 100, 0.6 if detection.seconds else 0.0), 2)
            if longest
            else 0.0,
        )
        for detection in detections
    )


def _found_says(detections: Sequence[Detection]) -> str:
    known = [detection.seconds for detection in detections if detection.seconds is not None]
    if not known:
        return ""
    middle = duration(statistics.median(known))
    longest = duration(max(known))
    if len(known) == 1:
        return f"It was found after {longest}."
    return f"Of the {number(len(known))} whose time is known half were found within {middle}, all within {longest}."


def _worst(audit: PastAudit) -> str:
    order = ("not complete", "could not be proved", "complete")
    if audit.edited and not audit.answers.get("not complete"):
        return "could not be proved"
    return next((answer for answer in order if audit.answers.get(answer)), "could not be proved")
