"""What is wrong, as events tell it: a problem begins, grows, ends. No I/O.

Only what was looked at ends a problem: a check that was skipped, or could not see all it needed, says nothing of it.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from recon.base.text import plural
from recon.events.model import (
    AuditFailed,
    AuditFinished,
    Event,
    FindingChanged,
    MicroBatchFailed,
    MicroBatchWritten,
    StreamProgressed,
    StreamResumed,
    StreamStalled,
    StreamTerminated,
)
from recon.model import CheckResult, Incident, Level, PipelineFacts
from recon.project.alerts import Severity

_SEVERITIES: Mapping[str, Severity] = {"fail": "failure", "error": "unproved", "warn": "warning"}
_WORST = ("failure", "stream", "unproved", "warning")
_FORGOTTEN_AFTER = timedelta(days=90)  # a problem without events, such as of a check that is not in recon.yml any more
_AUDIT = "audit"
_NUMBER = re.compile(r"(?<![\w.-])\d[\d,.:TZ-]*")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that is wrong.

    Attributes:
        key: the same as long as it lasts.
        pipeline: "" for the project as a whole.
        about: what it is about, such as a check; "" where `says` tells that.
        says: a sentence.
        count: how many, in words.
        step: the next command.
        ids: of findings, as `recon findings` lists them.
        checks: that report it.
        sink: of which they are; "" where it is about the whole pipeline.
    """

    key: str
    pipeline: str
    severity: Severity
    about: str
    says: str
    first_seen: datetime
    step: str
    count: str = ""
    ids: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    sink: str = ""


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """A problem and what the channel was told of it.

    `told` is when, None for not yet; `told_ids` and `told_severity` are as they were then. `ended` says how it ended,
    "" while it lasts. `claimed` is when a process began to send it; `heard` is when the last event about it came.
    """

    problem: Problem
    heard: datetime
    told: datetime | None = None
    told_ids: tuple[str, ...] = ()
    told_severity: str = ""
    ended: str = ""
    claimed: datetime | None = None

    @property
    def news(self) -> str:
        """What the channel does not know: "new", "more", "worse", "over"; "" for nothing."""
        if self.ended:
            return "over" if self.told is not None else ""
        if self.told is None:
            return "new"
        if set(self.problem.ids) - set(self.told_ids):
            return "more"
        return "worse" if rank(self.problem.severity) < rank(self.told_severity) else ""


def rank(severity: str) -> int:
    """0 for the worst."""
    return _WORST.index(severity)


Known = Mapping[str, Remembered]


def after(event: Event, known: Known) -> Known:
    """What is known after an event."""
    problems = dict(known)
    if isinstance(event, AuditFinished):
        _audited(event, problems)
    elif isinstance(event, AuditFailed):
        says = f"the audit ended by an error: {event.error}: {event.message}"
        _begin(problems, _problem(_AUDIT, "", "failure", "", says, event.at, "recon audit"), event.at)
    elif isinstance(event, FindingChanged) and event.change == "accepted":
        _accepted(event, problems)
    elif isinstance(event, MicroBatchFailed):
        says = f"micro-batch {event.batch_id} failed: {event.error}: {event.message}"
        key = _of_sink(event.pipeline, event.sink)
        about = f"sink {event.sink}"
        _begin(problems, _running(key, event.pipeline, about, says, event.at), event.at)
    elif isinstance(event, MicroBatchWritten):
        how = f"micro-batch {event.entry.batch_id} was written"
        _end(problems, _of_sink(event.entry.pipeline, event.entry.sink), how, event.at)
    elif isinstance(event, (StreamProgressed, StreamResumed, StreamStalled, StreamTerminated)):
        _streamed(event, problems)
    return problems


def is_routine(event: Event, known: Known) -> bool:
    """Whether an event says that a stream goes on as it did: nothing that is known changes by it."""
    return isinstance(event, (MicroBatchWritten, StreamProgressed)) and after(event, known) == known


def _problem(
    key: str, pipeline: str, severity: Severity, about: str, says: str, first_seen: datetime, step: str
) -> Problem:
    return Problem(
        key=key, pipeline=pipeline, severity=severity, about=about, says=says, first_seen=first_seen, step=step
    )


def _running(key: str, pipeline: str, about: str, says: str, at: datetime) -> Problem:
    return _problem(key, pipeline, "stream", about, says, at, f"recon explain --pipeline {shlex.quote(pipeline)}")


def _of_sink(pipeline: str, sink: str) -> str:
    return f"micro-batch:{pipeline}:{sink}"


def _begin(problems: dict[str, Remembered], problem: Problem, at: datetime) -> None:
    """A problem is there; it keeps the time when it was first seen, and what was told of it."""
    before = problems.get(problem.key)
    if before is None or (before.ended and before.told is None):
        problems[problem.key] = Remembered(problem=problem, heard=at)
        return
    # What ended and begins again before that was told never ended for the channel.
    problem = replace(problem, first_seen=min(problem.first_seen, before.problem.first_seen))
    problems[problem.key] = replace(before, problem=problem, heard=at, ended="")


def _end(problems: dict[str, Remembered], key: str, how: str, at: datetime) -> None:
    before = problems.get(key)
    if before is not None and not before.ended:
        problems[key] = replace(before, ended=how, heard=at)


# -- streams ----------------------------------------------------------------------------------------------------------


def _streamed(
    event: StreamProgressed | StreamResumed | StreamStalled | StreamTerminated, problems: dict[str, Remembered]
) -> None:
    ended, stalled = f"query:{event.pipeline}", f"stalled:{event.pipeline}"
    if isinstance(event, StreamProgressed):
        _end(problems, ended, f"the query runs: micro-batch {event.batch_id} is done", event.at)
        _end(problems, stalled, f"micro-batch {event.batch_id} is done", event.at)
    elif isinstance(event, StreamResumed):
        _end(problems, stalled, "the query reports again", event.at)
    elif isinstance(event, StreamStalled):
        says = f"the query runs, and has reported nothing since {event.last_seen:%Y-%m-%d %H:%M} UTC"
        _begin(problems, _running(stalled, event.pipeline, "", says, event.at), event.at)
    else:
        _end(problems, stalled, "the query ended", event.at)
        of_sinks = (remembered for key, remembered in problems.items() if key.startswith(_of_sink(event.pipeline, "")))
        # A micro-batch that failed ends its query: that is one problem.
        if event.error and all(remembered.ended for remembered in of_sinks):
            says = f"the query ended by an error: {event.error}"
            _begin(problems, _running(ended, event.pipeline, "", says, event.at), event.at)


# -- audits -----------------------------------------------------------------------------------------------------------


def _accepted(event: FindingChanged, problems: dict[str, Remembered]) -> None:
    for key, remembered in list(problems.items()):
        if remembered.problem.pipeline == event.pipeline and event.finding in remembered.problem.ids:
            left = tuple(id_ for id_ in remembered.problem.ids if id_ != event.finding)
            problems[key] = replace(remembered, problem=replace(remembered.problem, ids=left), heard=event.at)
            if not left:
                _end(problems, key, f"accepted by {event.by}: {event.reason}", event.at)


def _audited(event: AuditFinished, problems: dict[str, Remembered]) -> None:
    if not event.kept:
        return
    if event.goes_on and not event.partial:
        _end(problems, _AUDIT, "an audit has a result", event.at)
    for facts in event.run.pipelines:
        results = [result for result in event.run.results if result.pipeline == facts.name]
        still = _incidents(facts, results, event, problems)
        still |= _checks(facts, results, event, problems)
        still |= _answer(facts, results, event, problems, still)
        for key in still:
            problems[key] = replace(problems[key], heard=event.at)
    for key, remembered in list(problems.items()):
        if event.at - remembered.heard > _FORGOTTEN_AFTER:
            del problems[key]


def _incidents(
    facts: PipelineFacts, results: Sequence[CheckResult], event: AuditFinished, problems: dict[str, Remembered]
) -> set[str]:
    """Begins those that are open, ends those that are not; the keys of the open ones."""
    mine = {key: remembered for key, remembered in problems.items() if _is_incident_of(facts.name, key)}
    told = {id_ for remembered in mine.values() if remembered.told is not None for id_ in remembered.told_ids}
    still: set[str] = set()
    nameless = _nameless(facts, mine)
    for incident in facts.incidents:
        if incident.state != "open":
            continue
        # The same cause with more, or fewer, findings is the same problem.
        known_as = (
            key
            for key, remembered in mine.items()
            if key not in still and set(remembered.problem.ids) & set(incident.findings)
        )
        problem = _of_incident(facts.name, incident)
        key = nameless.get(id(incident)) or next(known_as, problem.key)
        _begin(problems, replace(problem, key=key), event.at)
        still.add(key)
        remembered = problems[key]
        if remembered.told is None and incident.findings and told.issuperset(incident.findings):
            # It was told as a part of another one.
            problems[key] = replace(
                remembered, told=event.at, told_ids=incident.findings, told_severity=problem.severity
            )
    open_ids = {id_ for key in still for id_ in problems[key].problem.ids}
    for key, remembered in mine.items():
        if key not in still and not remembered.ended:
            if open_ids & set(remembered.problem.ids):
                del problems[key]  # it is a part of another one now
            else:
                how = _how_ended(remembered.problem, facts, results, event)
                if how:
                    _end(problems, key, how, event.at)
    return still


def _nameless(facts: PipelineFacts, mine: Known) -> Mapping[int, str]:
    """The keys of open incidents that have no id, by their identity: two of one code, such as of two topics, are two.

    One that says the same, but for numbers, as a known one is that one; else one of the same checks and codes is.
    """
    found = [
        incident
        for incident in facts.incidents
        if incident.state == "open" and not incident.id and not incident.findings
    ]
    keys: dict[int, str] = {}
    for exactly in (True, False):
        for incident in found:
            problem = _of_incident(facts.name, incident)
            alike = (
                key
                for key, known in mine.items()
                if (key == problem.key or key.startswith(f"{problem.key}#"))
                and key not in keys.values()
                and (not exactly or _NUMBER.sub("", known.problem.says) == _NUMBER.sub("", problem.says))
            )
            if id(incident) not in keys and (key := next(alike, "")):
                keys[id(incident)] = key
    for incident in found:
        name = _of_incident(facts.name, incident).key
        if id(incident) not in keys:
            names = (name if n == 1 else f"{name}#{n}" for n in itertools.count(1))
            free = (key for key in names if key not in keys.values() and key not in mine)
            keys[id(incident)] = next(free)
    return keys


def _is_incident_of(pipeline: str, key: str) -> bool:
    return key.startswith(f"incident:{pipeline}:")


def _of_incident(pipeline: str, incident: Incident) -> Problem:
    of_sink = f"sink {incident.sink}" if incident.sink is not None else ""
    # What is not carried to the next audit has no id.
    name = incident.id or f"{incident.sink or ''}/{'+'.join(incident.codes)}/{'+'.join(incident.checks)}"
    return Problem(
        key=f"incident:{pipeline}:{name}",
        pipeline=pipeline,
        severity="unproved" if incident.harm == "undecided" else "failure",
        about=" ".join([", ".join(incident.codes), of_sink]).strip(),
        says=_said(incident),
        count=", ".join(_counted(incident)),
        first_seen=incident.first_seen,
        step=incident.steps[0].command if incident.steps else f"recon findings --pipeline {shlex.quote(pipeline)}",
        ids=incident.findings,
        checks=incident.checks,
        sink=incident.sink or "",
    )


def _said(incident: Incident) -> str:
    """The cause, what the offsets have in common, and the likely cause that takes least to check."""
    pattern = incident.pattern
    if pattern is None:
        return incident.cause
    likely = f"; likely: {pattern.causes[0].says}; look at {pattern.causes[0].look}" if pattern.causes else ""
    return f"{incident.cause}; {pattern.says}{likely}"


def _counted(incident: Incident) -> Iterator[str]:
    for count in incident.counts:
        if count.rows is not None:
            yield f"{plural(count.rows, 'row')} {count.harm}"
        elif count.offsets:
            yield f"{plural(count.offsets, 'offset')} {count.harm}"


def _how_ended(problem: Problem, facts: PipelineFacts, results: Sequence[CheckResult], event: AuditFinished) -> str:
    """How an incident ended that is not open any more; "" where that is not known."""
    for incident in facts.incidents:
        if set(incident.findings) & set(problem.ids):
            return incident.accepted or ("repaired" if incident.state == "repaired" else "")
    if not event.goes_on or (not problem.sink and facts.name in event.partial):
        return ""
    mine = [result for result in results if not problem.sink or result.sink in (None, problem.sink)]
    looked = {result.check for result in mine if result.unique_id in event.evaluated}
    looked -= {result.check for result in mine if result.unique_id not in event.evaluated}
    return "its checks find it no more" if looked.issuperset(problem.checks) else ""


def _checks(
    facts: PipelineFacts, results: Sequence[CheckResult], event: AuditFinished, problems: dict[str, Remembered]
) -> set[str]:
    """Begins a problem of each check that failed, errored or warned, ends those of checks that passed."""
    still: set[str] = set()
    for result in results:
        key = f"check:{result.unique_id}"
        severity = _SEVERITIES.get(result.status)
        if result.status == "pass" and result.unique_id in event.evaluated:
            _end(problems, key, "passed", event.at)
        elif severity is not None and not (severity != "warning" and _is_explained(result, facts)):
            problem = Problem(
                key=key,
                pipeline=facts.name,
                severity=severity,
                about=result.name,
                says=result.message or result.status,
                count=plural(result.failures, "failure") if result.failures and severity != "unproved" else "",
                first_seen=event.at,
                step=f"recon audit --select {shlex.quote(result.name)}",
                checks=(result.check,),
            )
            _begin(problems, problem, event.at)
            still.add(key)
    return still


def _is_explained(result: CheckResult, facts: PipelineFacts) -> bool:
    """Whether open incidents say what a check failed on; one that could not be evaluated left a question, or none."""
    mine = [
        incident
        for incident in facts.incidents
        if incident.state == "open" and result.check in incident.checks and incident.sink in (None, result.sink)
    ]
    if result.status == "error" and not any(finding.level is Level.UNPROVED for finding in result.findings):
        return False
    return bool(mine)


def _answer(
    facts: PipelineFacts,
    results: Sequence[CheckResult],
    event: AuditFinished,
    problems: dict[str, Remembered],
    still: Collection[str],
) -> set[str]:
    """The answer is a problem of its own where nothing else says why; checks that were left out are no problem."""
    key = f"answer:{facts.name}"
    if facts.answer == "complete":
        _end(problems, key, "complete", event.at)
        return set()
    # What this audit found, and no less: a test that is not in recon.yml any more, or a question, explains no loss.
    explaining = ("failure",) if facts.answer == "not complete" else ("failure", "unproved")
    if any(problems[name].problem.severity in explaining for name in still):
        return set()
    if facts.answer == "could not be proved" and any(result.status == "skipped" for result in results):
        return set()
    severity: Severity = "failure" if facts.answer == "not complete" else "unproved"
    step = f"recon findings --pipeline {shlex.quote(facts.name)}"
    _begin(problems, _problem(key, facts.name, severity, facts.answer, facts.because, event.at, step), event.at)
    return {key}
