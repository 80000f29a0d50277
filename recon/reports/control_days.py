"""Days of controls in words, and as strips of coloured days for the compliance report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from recon.model.controls import ControlDays, ControlRecord, DayState, Stretch
from recon.reports.words import sink_name
from recon.text import plural

WORDS: dict[DayState, str] = {
    "shown": "shown",
    "answered": "shown, but for answered exceptions",
    "not shown": "not shown",
    "no audit": "no audit",
    "refuted": "refuted",
}


@dataclass(frozen=True)
class Told:
    """Days of which the same is to be said: "not shown", "2026-03-05 to 2026-03-07", and why."""

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
    for one in control.sinks:
        alike.setdefault(one.stretches, []).append(one)
    return [
        Row(
            ", ".join(sink_name(one.pipeline, one.sink) for one in sinks),
            f"each {_said(sinks[0])}" if len(sinks) > 1 else _said(sinks[0]),
            _strip(sinks[0]),
            list(_told(sinks[0])),
        )
        for sinks in alike.values()
    ]


def summary(record: ControlRecord) -> str:
    """How many days of all sinks are in which state: "shown on 60 of 62 days of 2 sinks; no audit on 2"."""
    if not record.total:
        return "no day of the period is over, or there is no sink"
    of_sinks = f" of {plural(len(record.sinks), 'sink')}" if len(record.sinks) > 1 else ""
    return _counted({state: record.count(state) for state in WORDS}, record.total, of_sinks)


def reasons(record: ControlRecord) -> list[tuple[str, str, str]]:
    """Why a statement is not shown: (sinks, days, why), the same reason once."""
    of_reason: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in record.sinks:
        for told in _told(one):
            if told.state in ("not shown", "no audit", "refuted"):
                because = f"{WORDS[told.state]}{f': {told.because}' if told.because else ''}"
                of_reason[because, told.when].append(sink_name(one.pipeline, one.sink))
    every = len(record.sinks)
    return [
        ("every sink" if len(names) == every > 1 else ", ".join(names), when, because)
        for (because, when), names in of_reason.items()
    ]


def _said(days: ControlDays) -> str:
    return _counted({state: days.count(state) for state in WORDS}, days.total)


def _counted(counts: dict[DayState, int], total: int, of_sinks: str = "") -> str:
    shown = counts["shown"] + counts["answered"]
    parts = [f"shown on {shown:,} of {plural(total, 'day')}{of_sinks}"]
    if counts["answered"]:
        parts.append(f"{counts['answered']:,} of them but for answered exceptions")
    parts += [
        f"{WORDS[state]} on {counts[state]:,}" if state != "no audit" else f"no audit on {counts[state]:,}"
        for state in ("refuted", "not shown", "no audit")
        if counts[state]
    ]
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


def _told(days: ControlDays) -> list[Told]:
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
