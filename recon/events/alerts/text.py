"""The words of a message: which pipeline, what, how many, since when, the next command."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from recon.base.text import plural
from recon.events.alerts.problems import Remembered, rank

_SHOWN = 5  # problems of one message
_LONGEST = 300  # characters of a sentence
_WORDS = {"new": "new", "more": "grown", "worse": "worse", "over": "over"}
_MARKS = {"failure": "FAIL", "unproved": "NOT PROVED", "warning": "WARN", "stream": "STREAM"}

Kind = Literal["failure", "warning", "success", "info"]


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message, and the problems that it tells, by key."""

    title: str
    body: str
    kind: Kind
    tells: Mapping[str, Remembered] = field(default_factory=dict)


def messages(news: Sequence[Remembered], project: str, most: int, report_url: str | None) -> list[Message]:
    """One message for each pipeline with news; where these are too many, the last one is a digest of the others."""
    if most <= 0 or not news:
        return []
    of_pipeline: dict[str, list[Remembered]] = defaultdict(list)
    for remembered in sorted(news, key=lambda new: (new.news == "over", rank(new.problem.severity))):
        of_pipeline[remembered.problem.pipeline].append(remembered)
    groups = list(of_pipeline.items())
    alone = groups if len(groups) <= most else groups[: most - 1]
    listed = [_of_pipeline(project, pipeline, ones, report_url) for pipeline, ones in alone]
    rest = dict(groups[len(alone) :])
    return [*listed, _digest(project, rest, report_url)] if rest else listed


def _of_pipeline(project: str, pipeline: str, news: Sequence[Remembered], report_url: str | None) -> Message:
    name = f"{project}, pipeline {pipeline}" if pipeline else project
    lines: list[str] = []
    groups = _alike(news)
    for group in groups[:_SHOWN]:
        lines += _lines(group)
    left = sum(len(group) for group in groups[_SHOWN:])
    if left:
        lines.append(f"{left} more")
    return _message(f"{name}: {_summary(news)}", lines, news, report_url)


def _digest(project: str, rest: Mapping[str, Sequence[Remembered]], report_url: str | None) -> Message:
    """Pipelines that got no message of their own, because the channel gets no more of them."""
    news = [remembered for ones in rest.values() for remembered in ones]
    lines = [f"{pipeline or project}: {_summary(ones)}" for pipeline, ones in list(rest.items())[: 4 * _SHOWN]]
    if len(rest) > 4 * _SHOWN:
        lines.append(f"{len(rest) - 4 * _SHOWN} more pipelines")
    lines.append("next: recon findings")
    return _message(f"{project}: {plural(len(rest), 'more pipeline')}: {_summary(news)}", lines, news, report_url)


def _message(title: str, lines: Sequence[str], news: Sequence[Remembered], report_url: str | None) -> Message:
    open_ = [remembered.problem.severity for remembered in news if remembered.news != "over"]
    kind: Kind = "success"
    if open_:
        kind = "failure" if {"failure", "stream"} & set(open_) else "warning"
    ending = [f"report: {report_url}"] if report_url else []
    tells = {remembered.problem.key: remembered for remembered in news}
    return Message(title=_printable(title), body="\n".join(map(_printable, [*lines, *ending])), kind=kind, tells=tells)


def _summary(news: Sequence[Remembered]) -> str:
    counts = Counter(remembered.news for remembered in news)
    return ", ".join(f"{counts[word]} {said}" for word, said in _WORDS.items() if counts[word])


def _alike(news: Sequence[Remembered]) -> list[list[Remembered]]:
    """Those that say the same together: six checks without a broker are one line."""
    groups: dict[tuple[str, ...], list[Remembered]] = defaultdict(list)
    for remembered in news:
        problem = remembered.problem
        groups[remembered.news, problem.severity, problem.says, remembered.ended].append(remembered)
    return list(groups.values())


def _lines(group: Sequence[Remembered]) -> Iterator[str]:
    first, problem = group[0], group[0].problem
    about = problem.about + (f" and {len(group) - 1} more" if len(group) > 1 else "")
    what = f"{about}: {problem.says}" if about else problem.says
    count = f" ({problem.count})" if problem.count and len(group) == 1 else ""
    if first.news == "over":
        since = f"told {first.told:%Y-%m-%d %H:%M} UTC" if first.told is not None else ""
        yield f"OVER {_short(what)}{count}, {since}: {_short(first.ended)}"
        return
    word = f" {_WORDS[first.news]}" if first.news != "new" else ""
    yield f"{_MARKS[problem.severity]}{word} {_short(what)}{count}, first seen {problem.first_seen:%Y-%m-%d %H:%M} UTC"
    yield f"  next: {problem.step}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _printable(text: str) -> str:
    """Without what a terminal or a mail program would obey: names of topics are others' text."""
    return "".join(c if c.isprintable() else " " for c in text)
