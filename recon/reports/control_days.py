"""Days of controls in words, and as strips of coloured days for the compliance report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from recon.base.text import plural
from recon.model.controls import ControlDays, ControlRecord, DayState, Stretch
from recon.reports.words import sink_name

# In the order in which a reader is told of them.
WORDS: dict[DayState, str] = {
    "shown": "shown",
    "answered": "found, and answered",
    "refuted": "refuted",
    "partly covered": "partly covered",
    "not shown": "not shown",
    "no audit": "no audit",
    "not yet there": "not yet there",
}
_FOUND: tuple[DayState, ...] = ("refuted", "answered")


@dataclass(frozen=True)
class Told:
    """Days of which the same is to be said: "not shown", 3, "2026-03-05 to 2026-03-07", and why."""

    state: DayState
    days: int
    when: str
    because: str


@dataclass(frozen=True)
class Row:
    """Sinks of a control whose days are alike: names, a sentence, the strip as (state, days), and what is not shown."""

    name: str
    said: str
    strip: Sequence[tuple[DayState, int]]
    told: Sequence[Told]


def rows(control: ControlRecord) -> list[Row]:
    """A control sink by sink; those whose days are alike are one row, where the first of them is."""
    alike: dict[tuple[Stretch, ...], list[ControlDays]] = {}
    for days in control.sinks:
        alike.setdefault(days.stretches, []).append(days)
    return [
        Row(
            ", ".join(sink_name(days.pipeline, days.sink) for days in sinks),
            f"{'each ' if len(sinks) > 1 else ''}{_counted(sinks[0])}",
            _strip(sinks[0]),
            list(_other_days(sinks[0])),
        )
        for sinks in alike.values()
    ]


def summary(record: ControlRecord) -> str:
    """How many days of all sinks are in which state: "shown on 60 of 62 days of 2 sinks; no audit on 2"."""
    if not record.total:
        return "no day of the period is over, or there is no sink"
    return _counted(record, f" of {plural(len(record.sinks), 'sink')}" if len(record.sinks) > 1 else "")


def said(record: ControlRecord) -> tuple[str, str]:
    """What the report says of a control or a statement: what was found and what was not shown; and its sentence.

    The sentence is only of days on which every check behind it was evaluated and nothing contradicts it; "" where there
    is no such day. What was found or not shown comes first, "" where there is nothing.
    """
    there, shown = record.total - record.count("not yet there"), record.count("shown")
    if there == shown:
        return ("", record.shown) if there else ("There is no day to say it of.", "")
    others = [_other(record, state) for state in WORDS if state not in ("shown", "not yet there")]
    rest = "" if not shown else "Of the other day:" if shown == 1 else f"Of the other {plural(shown, 'day')}:"
    return " ".join(filter(None, (*others, rest))), record.shown if shown else ""


def _other(record: ControlRecord, state: DayState) -> str:
    """Days of a state in a sentence: "Found on 2 days: MUTATED accepted."; "" where there are none."""
    if not (count := record.count(state)):
        return ""
    if state not in _FOUND:
        return f"{WORDS[state].capitalize()} on {plural(count, 'day')}."
    told = {s.because for sink in record.sinks for s in sink.stretches if s.state == state}
    codes = sorted({code for text in told for code in text.split(", ")})
    return f"Found on {plural(count, 'day')}{', and open' if state == 'refuted' else ''}: {', '.join(codes)}."


def reasons(record: ControlRecord) -> list[tuple[str, str, str]]:
    """Why a statement is not shown, or what was answered: (sinks, days, why), the same reason once."""
    of_reason: dict[tuple[str, str], list[str]] = defaultdict(list)
    for control in record.sinks:
        for told in _other_days(control):
            if told.state != "not yet there":
                because = f"{WORDS[told.state]}{f': {told.because}' if told.because else ''}"
                of_reason[because, told.when].append(sink_name(control.pipeline, control.sink))
    every = len(record.sinks)
    return [
        ("every sink" if len(names) == every > 1 else ", ".join(names), when, because)
        for (because, when), names in of_reason.items()
    ]


def _counted(days: ControlDays | ControlRecord, of_sinks: str = "") -> str:
    parts = [f"shown on {days.count('shown'):,} of {plural(days.total, 'day')}{of_sinks}"]
    parts += [f"{WORDS[state]} on {count:,}" for state in WORDS if state != "shown" and (count := days.count(state))]
    return "; ".join(parts)


def _strip(days: ControlDays) -> list[tuple[DayState, int]]:
    """Days in a row of one state, whatever the reason."""
    found: list[tuple[DayState, int]] = []
    for stretch in days.stretches:
        if found and found[-1][0] == stretch.state:
            found[-1] = (stretch.state, found[-1][1] + stretch.days)
        else:
            found.append((stretch.state, stretch.days))
    return found


def _other_days(days: ControlDays) -> list[Told]:
    """Every day that is not simply shown, the same reason once."""
    of_reason: dict[tuple[DayState, str], list[tuple[date, date]]] = defaultdict(list)
    for stretch in days.stretches:
        if stretch.state != "shown":
            of_reason[stretch.state, stretch.because].append((stretch.first, stretch.last))
    return [
        Told(state, sum((last - first).days + 1 for first, last in spans), when(spans), because)
        for (state, because), spans in of_reason.items()
    ]


def when(spans: Sequence[tuple[date, date]]) -> str:
    """Spans of days as text; those that meet are one."""
    joined: list[tuple[date, date]] = []
    for first, last in sorted(spans):
        if joined and first - joined[-1][1] <= timedelta(days=1):
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in joined)
