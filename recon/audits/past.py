"""The audits of the last month as their results were stored, day by day: the trends of a report. No Spark job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any

from recon.audits import summary
from recon.base.errors import EvidenceError, LedgerError
from recon.base.storage import Storage
from recon.base.text import first_line, some
from recon.model import CheckResult, Finding, Level
from recon.model.past import DayCost, DayLag, Detection, PastAudit, PastAudits, PipelineLag, Spell, Strip
from recon.model.proof import OpenFinding
from recon.project import Pipeline, Project
from recon.witness import delta_commits
from recon.write.ledger import Ledger, arrow
from recon.write.ledger.results import RUN, evidence_of, findings_of, is_sealed
from recon.write.ledger.store import Filter

DAYS = 30  # of a report that nobody asked for more
MAX_DAYS = 92  # of a calendar
MAX_ROWS = 50_000  # results that are read; each takes some 40 µs
MAX_RECENT = 60
MAX_STRIPS = 200
MAX_CHECKS = 20
MAX_LAGS = 12
MAX_DETECTIONS = 40
_EARLIER_BATCHES = timedelta(days=7)  # before the first day, micro-batches are looked for that its findings name

Row = Mapping[str, Any]
Batch = tuple[str, str, int, int]  # pipeline, sink, epoch, batch id

_ANSWERS = ("complete", "could not be proved", "not complete")  # a later one outweighs those before it
_STATUSES = ("skipped", "pass", "warn", "error", "fail")
_TROUBLE = ("warn", "error", "fail")


def result_of(row: Row) -> CheckResult:
    """A stored result.

    Raises:
        LedgerError: the row does not hold what an audit writes there.
    """
    return CheckResult(
        unique_id=row["unique_id"],
        name=row["name"],
        check=row["check"],
        kind=row["kind"],
        status=row["status"],
        failures=row["failures"],
        message=row["message"] or "",
        severity=row["severity"] or "error",
        pipeline=row["pipeline"],
        sink=row["sink"],
        findings=tuple(findings_of(row)),
        evidence=evidence_of(row),
        execution_time=row["execution_time"] or 0.0,
    )


def past_audits(
    project: Project, opened: Callable[[], Ledger], until: datetime, *, since: datetime | None = None
) -> PastAudits:
    """The audits up to `until`, that one included, since an instant or in the last 30 days.

    Where their results cannot be read, it has a reason and nothing else.

    Args:
        project: a loaded recon.yml.
        opened: gives its ledger.
        until: when the newest of them was made.
        since: how far back to look; not further than a calendar of 92 days.
    """
    last = _day(until)
    first = last - timedelta(days=DAYS - 1) if since is None else max(_day(since), last - timedelta(days=MAX_DAYS - 1))
    begin = datetime(first.year, first.month, first.day, tzinfo=UTC) if since is None else since
    empty = PastAudits(first_day=first, last_day=last)
    try:
        ledger = opened()
        days = [day for day in ledger.results.dates() if day <= last] if ledger.results.exists() else []
        rows, read_from = _rows(ledger, [day for day in days if day >= first], begin, until)
        return replace(_of(project, ledger, rows, begins=not any(day < first for day in days), empty=empty),
                       read_from=read_from)  # fmt: skip
    except Exception as error:  # a report without trends says why, and is a report
        return replace(empty, unknown=str(error) if isinstance(error, LedgerError) else first_line(error))


def _rows(ledger: Ledger, days: Sequence[date], begin: datetime, until: datetime) -> tuple[list[Row], date | None]:
    """The results of these days, and the first that was read where earlier ones are too many."""
    store = ledger.results
    if not store.quick:  # each read is a Spark job
        return [*arrow.rows(store.read(Filter(from_=begin, to=until + timedelta(microseconds=1))))], None
    counts, chosen, expected = store.rows_by_day(), list[date](), 0
    for day in sorted(days, reverse=True):
        if expected >= MAX_ROWS:
            break
        chosen.append(day)
        expected += counts.get(day, MAX_ROWS)
    if not chosen:
        return [], None
    rows = arrow.rows(store.read(Filter(dates=tuple(chosen), from_=begin)))
    return [row for row in rows if row["generated_at"] <= until], chosen[-1] if len(chosen) < len(days) else None


@dataclass
class _Audit:
    """One audit's results; `edited` are the pipelines of which one is not what the audit stored."""

    invocation_id: str
    at: datetime
    results: list[CheckResult] = field(default_factory=list)
    edited: set[str] = field(default_factory=set)

    @property
    def of_pipeline(self) -> dict[str, list[CheckResult]]:
        """The results of each pipeline."""
        results: dict[str, list[CheckResult]] = defaultdict(list)
        for result in self.results:
            if result.pipeline is not None:
                results[result.pipeline].append(result)
        return results


@dataclass(frozen=True)
class _Seen:
    """What one audit says of a pipeline; a partial one did not run all checks that prove it."""

    answer: str
    partial: bool


def _of(project: Project, ledger: Ledger, rows: Iterable[Row], *, begins: bool, empty: PastAudits) -> PastAudits:
    """`begins` is whether no audit was made before the first day."""
    audits = _audits(rows)
    answers: dict[str, dict[date, list[_Seen]]] = defaultdict(lambda: defaultdict(list))
    recent = []
    known = {pipeline.name: pipeline for pipeline in project.pipelines}
    for audit in audits:
        counted: Counter[str] = Counter()
        for name, results in audit.of_pipeline.items():
            if name in known:
                seen = _seen(known[name], results, name in audit.edited)
                answers[name][_day(audit.at)].append(seen)
                counted[seen.answer] += 1
        recent.append(_recent(audit, counted))
    pipelines = [Strip(name=name, days=_spells(_of_days(days))) for name, days in sorted(answers.items())]
    together: dict[date, list[_Seen]] = defaultdict(list)
    for of_pipeline in answers.values():
        for day, of_day in of_pipeline.items():
            together[day].append(_Seen(_worst(of_day), False))
    counts = Counter(_day(audit.at) for audit in audits)
    checks = _checks(audits)
    return replace(
        empty,
        audits=len(audits),
        project=_spells({day: (_worst(seen), counts[day]) for day, seen in together.items()}),
        pipelines=tuple(sorted(pipelines, key=_trouble, reverse=True)[:MAX_STRIPS]),
        checks=tuple(checks[:MAX_CHECKS]),
        checks_total=len(checks),
        recent=tuple(reversed(recent[-MAX_RECENT:])),
        costs=_costs(recent),
        lags=_lags(audits),
        detections=_detections(project, ledger, audits, begins=begins, first=empty.first_day),
    )


def _audits(rows: Iterable[Row]) -> list[_Audit]:
    """The audits, oldest first. A row that is stored twice is one; an edited or malformed one is no result."""
    audits: dict[str, _Audit] = {}
    seen: set[tuple[str, str]] = set()
    for row in rows:
        audit = audits.setdefault(row["invocation_id"], _Audit(row["invocation_id"], row["generated_at"]))
        if (row["invocation_id"], row["row_hash"]) in seen:
            continue
        seen.add((row["invocation_id"], row["row_hash"]))
        try:
            result = result_of(row) if is_sealed(row) else None
        except LedgerError:
            result = None
        if result is None:
            audit.edited.add(row["pipeline"])
        elif row["kind"] != RUN:
            audit.results.append(result)
    return sorted(audits.values(), key=lambda audit: (audit.at, audit.invocation_id))


def _seen(pipeline: Pipeline, results: Sequence[CheckResult], edited: bool) -> _Seen:
    sinks = [sink.name for sink in pipeline.sinks]
    outcome, _ = summary.answer(results, sinks, reads=pipeline.source.kind)
    if edited and outcome == "complete":
        return _Seen("could not be proved", False)
    return _Seen(outcome, any(summary.lacking(results, sink, pipeline.source.kind) for sink in sinks))


def _worst(seen: Iterable[_Seen]) -> str:
    """The worst answer of a day; one that a partial audit could not give counts where no other was given."""
    listed = list(seen)
    whole = [verdict for verdict in listed if not verdict.partial or verdict.answer == "not complete"]
    return max((verdict.answer for verdict in whole or listed), key=_ANSWERS.index)


def _of_days(days: Mapping[date, Sequence[_Seen]]) -> dict[date, tuple[str, int]]:
    return {day: (_worst(seen), len(seen)) for day, seen in days.items()}


def _spells(days: Mapping[date, tuple[str, int]]) -> tuple[Spell, ...]:
    """Days on end with one state, joined."""
    ordered = sorted(days)
    spells = []
    for _, members in groupby(enumerate(ordered), key=lambda item: (item[1].toordinal() - item[0], days[item[1]][0])):
        run = [day for _, day in members]
        spells.append(Spell(first=run[0], last=run[-1], state=days[run[0]][0], audits=sum(days[d][1] for d in run)))
    return tuple(spells)


def _trouble(strip: Strip) -> tuple[int, int]:
    """How many days were not complete, and how many could not be proved, to sort by."""
    days = Counter[str]()
    for spell in strip.days:
        days[spell.state] += (spell.last - spell.first).days + 1
    return days["not complete"], days["could not be proved"]


def _recent(audit: _Audit, answers: Mapping[str, int]) -> PastAudit:
    failing = [result.name for result in audit.results if result.status in ("fail", "error")]
    counts = Counter(result.status for result in audit.results)
    return PastAudit(
        invocation_id=audit.invocation_id,
        generated_at=audit.at,
        answers=dict(answers),
        counts={status: counts[status] for status in ("fail", "error", "warn", "skipped", "pass")},
        seconds=round(sum(result.execution_time for result in audit.results), 3),
        failing=some(failing) if failing else "",
        edited=bool(audit.edited),
    )


def _checks(audits: Sequence[_Audit]) -> list[Strip]:
    """The checks that had trouble, the one that had it in most audits first."""
    statuses: dict[tuple[str | None, str], dict[date, list[str]]] = defaultdict(lambda: defaultdict(list))
    failures: dict[tuple[str | None, str], list[int]] = defaultdict(list)
    for audit in audits:
        for result in audit.results:
            key = (result.pipeline, result.name)
            statuses[key][_day(audit.at)].append(result.status)
            if result.failures and result.status in _TROUBLE:
                failures[key].append(result.failures)
    found = []
    for (pipeline, name), days in statuses.items():
        every = Counter(status for of_day in days.values() for status in of_day)
        if any(every[status] for status in _TROUBLE):
            worst = {day: (max(of, key=_STATUSES.index), len(of)) for day, of in days.items()}
            found.append(
                Strip(
                    name=name,
                    pipeline=pipeline,
                    days=_spells(worst),
                    failed=every["fail"] + every["error"],
                    failures=max(failures[pipeline, name], default=None),
                )
            )
    return sorted(found, key=lambda strip: (-strip.failed, strip.pipeline or "", strip.name))


def _costs(audits: Sequence[PastAudit]) -> tuple[DayCost, ...]:
    costs = []
    for day, members in groupby(audits, key=lambda audit: _day(audit.generated_at)):
        seconds = [audit.seconds for audit in members]
        costs.append(DayCost(day=day, audits=len(seconds), seconds=round(sum(seconds), 3), longest=max(seconds)))
    return tuple(costs)


def _lags(audits: Sequence[_Audit]) -> tuple[PipelineLag, ...]:
    """The largest lag of each day by pipeline; of those that lagged, or of which nobody could tell."""
    days: dict[str, dict[date, list[int | None]]] = defaultdict(lambda: defaultdict(list))
    for audit in audits:
        for result in audit.results:
            if result.check == "kafka_end_offsets" and result.pipeline is not None:
                lag = result.evidence.get("lag")
                whole = isinstance(lag, int) and not isinstance(lag, bool) and result.status != "error"
                days[result.pipeline][_day(audit.at)].append(lag if whole else None)
    lags = []
    for pipeline, of_pipeline in days.items():
        largest = [
            DayLag(day=day, lag=max((lag for lag in seen if lag is not None), default=None))
            for day, seen in sorted(of_pipeline.items())
        ]
        if any(day.lag != 0 for day in largest):
            lags.append(PipelineLag(pipeline=pipeline, days=tuple(largest)))
    newest = sorted(lags, key=lambda lag: (-(lag.days[-1].lag or 0), -max(day.lag or 0 for day in lag.days)))
    return tuple(newest[:MAX_LAGS])


def _detections(
    project: Project, ledger: Ledger, audits: Sequence[_Audit], *, begins: bool, first: date
) -> tuple[Detection, ...]:
    """What was found first in this time: reported by an audit, and not by the one of the pipeline before it.

    What the first audit reports may have been found before, unless there was none before it (`begins`).
    """
    looked = {pipeline.name for pipeline in project.pipelines} if begins else set()
    known: set[str] = set()
    found: list[tuple[str, Finding, datetime]] = []
    for audit in audits:
        for name, results in audit.of_pipeline.items():
            for result in results:
                for finding in result.findings:
                    if result.kind != "evidence" or finding.level is not Level.FAIL:
                        continue
                    open_finding = OpenFinding(
                        finding=finding, check=result.check, first_seen=audit.at, last_seen=audit.at
                    )
                    if open_finding.id not in known and name in looked:
                        found.append((name, finding, audit.at))
                    known.add(open_finding.id)
            looked.add(name)
    at = _CommitTimes(project, ledger, [finding for _, finding, _ in found], first)
    together: dict[tuple[Any, ...], list[tuple[str, Finding, datetime]]] = defaultdict(list)
    for name, finding, seen in found:
        together[name, finding.sink, seen, at(finding)].append((name, finding, seen))
    detections = [
        Detection(
            pipeline=name,
            sink=sink,
            codes=tuple(sorted({str(finding.code) for _, finding, _ in members})),
            findings=len(members),
            happened_at=happened,
            first_seen=seen,
        )
        for (name, sink, seen, happened), members in together.items()
    ]
    return tuple(sorted(detections, key=lambda detection: detection.first_seen, reverse=True)[:MAX_DETECTIONS])


class _CommitTimes:
    """When the commit was made that a finding is about: that of its micro-batch, or the one that changed the sink."""

    def __init__(self, project: Project, ledger: Ledger, findings: Sequence[Finding], first: date) -> None:
        self._project = project
        self._batches: dict[Batch, datetime] = {}
        wanted = {key for finding in findings if (key := _batch(finding)) is not None}
        since = datetime(first.year, first.month, first.day, tzinfo=UTC) - _EARLIER_BATCHES
        for pipeline, sink in sorted({key[:2] for key in wanted}):
            rows = ledger.store.read(Filter.of(pipeline, sink, since), ["epoch", "batch_id", "committed_at"])
            for epoch, batch_id, at in arrow.tuples(rows, "epoch", "batch_id", "committed_at"):
                if (pipeline, sink, epoch, batch_id) in wanted:
                    self._batches.setdefault((pipeline, sink, epoch, batch_id), at)
        self._commits: dict[tuple[str, str, int], datetime | None] = {}

    def __call__(self, finding: Finding) -> datetime | None:
        """None where it is not known."""
        if finding.changed_by and finding.pipeline and finding.sink:
            times = [self._commit(finding.pipeline, finding.sink, version) for version in finding.changed_by[:5]]
            return min((at for at in times if at is not None), default=None)
        key = _batch(finding)
        return None if key is None or finding.changed_by is not None else self._batches.get(key)

    def _commit(self, pipeline: str, sink: str, version: int) -> datetime | None:
        key = (pipeline, sink, version)
        if key not in self._commits:
            self._commits[key] = self._read(*key)
        return self._commits[key]

    def _read(self, pipeline: str, sink: str, version: int) -> datetime | None:
        _, of = self._project.find_sink(pipeline, sink)
        if of.kind != "delta":
            return None
        log = Storage(self._project.location(of), self._project.storage_options).child("_delta_log")
        with suppress(EvidenceError):  # torn: an audit says so
            for _, raw in delta_commits.contents(log, [version]):
                return delta_commits.parse_commit(log, version, raw, {})[0].timestamp
        return None


def _batch(finding: Finding) -> Batch | None:
    if finding.pipeline is None or finding.sink is None or finding.epoch is None or finding.batch_id is None:
        return None
    return finding.pipeline, finding.sink, finding.epoch, finding.batch_id


def _day(at: datetime) -> date:
    return at.astimezone(UTC).date()
