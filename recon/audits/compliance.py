"""The compliance report: what a period's ledger and the audits of it prove."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon._version import __version__
from recon.audits import summary
from recon.audits.anchor import Compared, compared, signed
from recon.audits.books import of_ledger
from recon.audits.control_days import ControlDaysOf, begin_of, unproved
from recon.audits.controls.catalog import catalog
from recon.audits.controls.days import Day, covered, days_of
from recon.audits.exception_history import actions, changes, config_versions, deletions, incidents, items_of
from recon.audits.exceptions import Sightings, exceptions
from recon.audits.extent import Extent
from recon.audits.gone import GoneSinks
from recon.audits.stored_audits import StoredAudit, audited
from recon.base.clock import utc_now
from recon.base.errors import ConfigError, LedgerError
from recon.base.instants import instant
from recon.base.lazy import np
from recon.checks.binding import bind
from recon.model import NOT_ANCHORED, Answer, Finding, LedgerSlice, Level
from recon.model.compliance import (
    AuditRecord,
    ChainHeads,
    ComplianceReport,
    EpochRecord,
    ExceptionRecord,
    SinkCompliance,
)
from recon.model.controls import FrameworkRecord
from recon.model.integrity import verify
from recon.model.offsets import Spans
from recon.model.proof import OpenFinding
from recon.project import Pipeline, Project, Sink, as_project
from recon.write.ledger import Ledger, open_ledger
from recon.write.ledger.results import Parameters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compliance(
    project: str | Path | Project,
    from_: datetime | date | str,
    to: datetime | date | str,
    *,
    spark: SparkSession | None = None,
) -> ComplianceReport:
    """What was proved and refuted, and what could not be proved, of the micro-batches committed in [from_, to).

    The verdicts are those of the audits, as stored beside the ledger; the hash chain is verified again.

    Args:
        project: where recon.yml is, or a `Project`.
        from_: begin of the period: a datetime, a date, or a text as `--from` takes it; UTC where it has no time zone.
        to: end of the period, excluded, but for a date, which includes that day.
        spark: the session, for a ledger that Spark writes.

    Raises:
        ConfigError: the period is empty, has not begun, or ends before anything was recorded, or `from_` or `to` is not
            a time.
        LedgerError: there is no ledger, or it cannot be read.
    """
    project, begin, end = as_project(project), instant("from_", from_), instant("to", to, ends=True)
    if begin is None or end is None:
        raise ConfigError("a compliance report needs the begin and the end of its period: from_ and to")
    if not begin < end:
        raise ConfigError(
            f"the period from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} is empty; give --from before --to"
        )
    ledger = open_ledger(project, spark)
    report = derive(project, begin, end, ledger)
    first = min(ledger.store.dates(), default=None)
    if first is not None and report.last_day < first and not (report.audits or report.exceptions):
        raise ConfigError(
            f"the period from {begin:%Y-%m-%d} to {report.last_day} ends before the ledger's first entry, which is of "
            f"{first}: nothing was recorded in it, so nothing can be reported; give a later period"
        )
    return report


def derive(
    project: Project,
    from_: datetime,
    to: datetime,
    ledger: Ledger,
    *,
    whole: Ledger | None = None,
    now: datetime | None = None,
) -> ComplianceReport:
    """The report of [from_, to), from a ledger and its results.

    As of an earlier time, `ledger` is that of this time, `whole` all of it as it is, and `now` the time.

    Raises:
        ConfigError: the period has not begun.
        LedgerError: there is no ledger, or it cannot be read.
    """
    wording = catalog(project)
    if not ledger.exists():
        raise LedgerError(
            f"there is no ledger at {ledger.location}; nothing was ever recorded, so nothing can be reported"
        )
    signed_until, now = now, now or utc_now()
    if from_ >= now:
        raise ConfigError(
            f"the period from {from_:%Y-%m-%d %H:%M} on has not begun (it is {now:%Y-%m-%d %H:%M} UTC now), so "
            "there is nothing to report; give an earlier --from"
        )
    until = to if to < now else None  # to the present: what a clock that runs ahead committed belongs to it as well
    chains = [(pipe.name, sink.name) for pipe in project.pipelines for sink in pipe.sinks]
    slices, left_out = ledger.slices(chains, from_, until)
    extents = {names: Extent.of(of_sink) for names, of_sink in slices.items()}
    stored = audited(ledger, [pipe.name for pipe in project.pipelines], from_, to)
    audits = {
        name: [cut for audit in found.audits if (cut := audit.of_period(to, _of_pipeline(extents, name))) is not None]
        for name, found in stored.items()
    }
    days = days_of(from_, to, now)
    begins = {names: begin_of(of_sink, audits[names[0]]) for names, of_sink in slices.items()}
    without, partly = (
        {names: tuple(_days_looked_at(days, audits[names[0]], begin, part=part)) for names, begin in begins.items()}
        for part in (False, True)
    )
    heads, of_heads = signed(project, signed_until), compared(project, lambda: whole or ledger)
    for (name, sink), why in of_heads.unknown.items():
        raise LedgerError(f"pipeline {name}, sink {sink}: the entries cannot be compared with their signed head: {why}")
    later = {
        name: [cut for audit in of.later if (cut := audit.within(_of_pipeline(extents, name))) is not None]
        for name, of in stored.items()
    }
    gone = GoneSinks(project, ledger)
    exceptions_of = {
        pipe.name: _found(
            project,
            ledger,
            gone,
            pipe,
            audits[pipe.name],
            later[pipe.name],
            (from_, to),
            _of_pipeline(extents, pipe.name),
        )
        for pipe in project.pipelines
    }
    sinks = [
        _anchored(
            replace(
                _sink(project, pipe, sink, slices[pipe.name, sink.name], audits[pipe.name], exceptions_of[pipe.name]),
                days_without_audit=without[pipe.name, sink.name],
                days_partly_audited=partly[pipe.name, sink.name],
            ),
            heads,
            of_heads,
        )
        for pipe in project.pipelines
        for sink in pipe.sinks
    ]
    found = [sightings for of_pipeline in exceptions_of.values() for sightings in of_pipeline]
    edited = [_edited(finding, now) for of_pipeline in stored.values() for finding in of_pipeline.edited]
    records = _records(audits)
    items = {names: items_of(exceptions_of[names[0]], *names) for names in chains}
    lines, without_books = of_ledger(project, ledger, slices, items, (from_, to))
    control_days = ControlDaysOf(days, sinks, slices, audits, [*found, *edited], begins)
    report = ComplianceReport(
        project=project.name,
        recon_version=__version__,
        generated_at=now,
        period_from=from_,
        period_to=to,
        sinks=tuple(sinks),
        exceptions=tuple(sightings.record for sightings in (*found, *edited)),
        audits=records,
        days_without_audit=tuple(sorted({day for of_sink in without.values() for day in of_sink})),
        days_partly_audited=tuple(sorted({day for of_sink in partly.values() for day in of_sink})),
        days_to_come=max(0, (to - timedelta(microseconds=1)).date().toordinal() - now.date().toordinal()),
        controls=tuple(control_days.record(control) for control in wording.controls),
        frameworks=tuple(
            FrameworkRecord(
                name=framework.name,
                title=framework.title,
                source=framework.source,
                statements=tuple(control_days.record(statement) for statement in framework.statements),
            )
            for framework in wording.frameworks
        ),
        incidents=incidents([*found, *edited]),
        actions=actions(slices, [state for of in stored.values() for state in of.states], from_, to),
        config_versions=config_versions(records),
        changes=changes(found, (of for of_pipeline in audits.values() for of in deletions(of_pipeline))),
        books=lines,
    )
    told = (*unproved(report, left_out, begins), *without_books)
    return project.masked(replace(report, unproved=told))


def _days_looked_at(
    days: Sequence[Day], audits: Sequence[StoredAudit], begin: datetime, *, part: bool
) -> Iterator[date]:
    """The days from `begin` on of which audits looked at nothing, or at a `part` only."""
    periods = [(audit.period_from, audit.period_to) for audit in audits]
    for day, looked in zip(days, covered(days, periods, begin), strict=True):
        if day.end > begin and not looked.whole and bool(looked.spans) == part:
            yield day.begin.date()


def _found(
    project: Project,
    ledger: Ledger,
    sinks_gone: GoneSinks,
    pipeline: Pipeline,
    audits: Sequence[StoredAudit],
    later: Sequence[StoredAudit],
    period: tuple[datetime, datetime],
    extents: Mapping[str, Extent],
) -> list[Sightings]:
    """The exceptions of a pipeline."""
    opened = [open_finding for sink in pipeline.sinks for open_finding in _open(ledger, pipeline.name, sink.name)]
    gone = list(sinks_gone.of(pipeline))
    opened_there = {names: _open(ledger, *names) for names in gone}
    opened += [open_finding for of_sink in opened_there.values() for open_finding in of_sink]
    owners = {"": pipeline.owned_by}
    if any(row["kind"] == "data" and row["status"] != "pass" for audit in audits for row in audit.rows):
        owners |= {bound.unique_id: str(bound.config.meta.get("owner") or "") for bound in bind(project)}
    found = list(exceptions(audits, period, opened, owners, later=later))
    found += _without_result(pipeline, opened, found, extents)
    for names, of_sink in ledger.slices(gone, *period)[0].items() if gone else ():
        found += _without_result(pipeline, opened_there[names], found, {names[1]: Extent.of(of_sink)})
    return found


def _without_result(
    pipeline: Pipeline, opened: Iterable[OpenFinding], found: Sequence[Sightings], extents: Mapping[str, Extent]
) -> Iterable[Sightings]:
    """What the proof has of the period and no stored result: those of the audit that found it are gone, or edited."""
    for open_finding in opened:
        sinks = [extent for sink, extent in extents.items() if open_finding.finding.sink in (None, sink)]
        if not any(extent.where(open_finding.finding) == "within" for extent in sinks):
            continue
        if any(open_finding.includes(told.record.finding) or told.record.id == open_finding.id for told in found):
            continue
        by = open_finding.accepted
        how = f"accepted by {by.by} on {by.at:%Y-%m-%d}: {by.reason}" if by is not None else ""
        record = ExceptionRecord(
            finding=open_finding.finding,
            first_seen=open_finding.first_seen,
            last_seen=open_finding.last_seen,
            audits=0,
            open=by is None,
            accepted=how,
            id=open_finding.id,
            checks=(open_finding.check,),
            owner=pipeline.owned_by,
            closed_at=by.at if by is not None else None,
            closed=how,
        )
        yield Sightings(record, (), answered=by is not None)


def _edited(finding: Finding, now: datetime) -> Sightings:
    """What this report found itself: stored results that were edited."""
    record = ExceptionRecord(finding=finding, first_seen=now, last_seen=now, audits=0, open=True)
    return Sightings(record, ())


def _anchored(sink: SinkCompliance, heads: Mapping[tuple[str, str], str], compared: Compared) -> SinkCompliance:
    """A sink with what is known of its chain's signed heads; a chain that contradicts one is broken.

    Where a place could not be compared, whether it contradicts one is not known.
    """
    names = (sink.pipeline, sink.sink)
    chain = replace(sink.chain, signed=heads.get(names, NOT_ANCHORED))
    if names in compared.contradicted:
        chain = replace(chain, verified=False, reason=compared.contradicted[names].sentence)
    elif compared.unread and chain.verified:
        chain = replace(chain, verified=None, reason=compared.unread)
    return replace(sink, chain=chain)


def _of_pipeline(extents: Mapping[tuple[str, str], Extent], name: str) -> dict[str, Extent]:
    """Extents by sink."""
    return {sink: extent for (pipeline, sink), extent in extents.items() if pipeline == name}


def _open(ledger: Ledger, pipeline: str, sink: str) -> Sequence[OpenFinding]:
    """What is open, or accepted, of a sink now; nothing where its state cannot be used, which `_edited` reports."""
    try:
        state = ledger.proofs.newest(pipeline, sink)
    except LedgerError:
        return ()
    return state.open if state is not None else ()


def _sink(
    project: Project,
    pipeline: Pipeline,
    sink: Sink,
    ledger: LedgerSlice,
    audits: Sequence[StoredAudit],
    exceptions_: Sequence[Sightings],
) -> SinkCompliance:
    """A sink's figures. What is open counts, whichever audit found it; what was accepted or repaired since does not."""
    answered = {sightings.record.finding.subject for sightings in exceptions_ if sightings.answered}
    open_ = (sightings.record.finding for sightings in exceptions_ if sightings.record.open)
    placed = (found for found in open_ if found.span is not None or found.batch_id is not None)
    findings = [finding for finding in placed if finding.sink in (None, sink.name)]
    findings += [
        finding
        for audit in audits
        for row in audit.rows
        if row["kind"] == "evidence"
        for finding in row["findings"]
        if finding.sink in (None, sink.name) and finding.subject not in answered
    ]
    proving = [audit for audit in audits if audit.proves(sink.name, answered)]
    # The replay of a micro-batch that was there read nothing further.
    reading = np.array([head.reads and head.status != "already_committed" for head in ledger.heads], np.bool_)
    places = [i for i in range(ledger.anchors, len(ledger.heads)) if reading[i]]
    batch_of = {i: (ledger.heads[i].epoch, ledger.heads[i].batch_id) for i in places}
    judged = Spans.of(span for audit in proving for span in audit.judged(sink.name))
    covered = {batch_of[i] for i in places if ledger.heads[i].sequence in judged}
    batches = {batch for batch in batch_of.values() if batch[0] >= 0}
    refuted = summary.touched_batches(ledger, findings, Level.FAIL) & batches
    proved = (covered & batches) - refuted - summary.touched_batches(ledger, findings, Level.UNPROVED)

    routed = pipeline.routes is not None and sink.name in pipeline.routes.sinks
    ranges = ledger.ranges
    in_period = (ranges.entry >= ledger.anchors) & reading[ranges.entry]
    ranges_refuted = summary.touched_ranges(ledger, findings, Level.FAIL) & in_period
    ranges_doubted = summary.touched_ranges(ledger, findings, Level.UNPROVED)
    of_covered = np.isin(ranges.entry, [i for i in places if batch_of[i] in covered])
    ranges_proved = of_covered & in_period & ~ranges_refuted & ~ranges_doubted
    return SinkCompliance(
        pipeline=pipeline.name,
        sink=sink.name,
        kind=sink.kind,
        target=project.location(sink),
        guarantee=sink.guarantee,
        topics=tuple(sorted({topic for _, topic, _ in ranges.topics})) or pipeline.source.names,
        batches=len(batches),
        batches_proved=len(proved),
        batches_refuted=len(refuted),
        batches_unproved=len(batches) - len(proved) - len(refuted),
        ranges=int(in_period.sum()),
        ranges_proved=int(ranges_proved.sum()),
        ranges_refuted=int(ranges_refuted.sum()),
        ranges_unproved=int((in_period & ~ranges_refuted & ~ranges_proved).sum()),
        offsets=int(ranges.sizes[in_period].sum()) if pipeline.of_kafka else None,
        rows_written=summary.rows_written(ledger.heads[ledger.anchors :]),
        rows_filtered=None if routed else summary.rows_filtered(ledger.heads[ledger.anchors :]),
        rows_quarantined=summary.rows_quarantined(ledger.heads[ledger.anchors :]),
        epochs=tuple(_epochs(ledger)),
        chain=_chain(ledger),
    )


def _epochs(ledger: LedgerSlice) -> Iterable[EpochRecord]:
    by_epoch: dict[int, list[Any]] = defaultdict(list)
    for head in ledger.heads[ledger.anchors :]:
        if head.is_micro_batch:
            by_epoch[head.epoch].append(head)
    for epoch, heads in sorted(by_epoch.items()):
        yield EpochRecord(
            epoch=epoch,
            query_id=heads[-1].query_id,
            first_batch_id=min(h.batch_id for h in heads),
            last_batch_id=max(h.batch_id for h in heads),
            first_commit=heads[0].committed_at,
            last_commit=heads[-1].committed_at,
        )


def _chain(ledger: LedgerSlice) -> ChainHeads:
    heads = ledger.heads[ledger.anchors :]
    if not heads:
        return ChainHeads(first=None, last=None, entries=0, verified=None, reason="no entry in the period")
    broken = [f for f in verify(replace(ledger, operations=())) if f.level is Level.FAIL]
    return ChainHeads(
        first=heads[0].entry_hash,
        last=heads[-1].entry_hash,
        entries=len(heads),
        verified=not broken,
        reason=broken[0].message if broken else "",
    )


def _records(audits: Mapping[str, Sequence[StoredAudit]]) -> tuple[AuditRecord, ...]:
    """One record per audit; an audit of several pipelines is one."""
    merged: dict[str, list[StoredAudit]] = defaultdict(list)
    for of_pipeline in audits.values():
        for audit in of_pipeline:
            merged[audit.invocation_id].append(audit)
    return tuple(sorted((_record(parts) for parts in merged.values()), key=lambda r: r.generated_at))


def _record(parts: Sequence[StoredAudit]) -> AuditRecord:
    rows = [row for part in parts for row in part.rows]
    counts = Counter(row["status"] for row in rows)
    failing = any(f.level is Level.FAIL for part in parts for f, _ in part.findings())
    outcome: Answer = "complete"
    if counts["fail"] or failing:
        outcome = "not complete"
    elif counts["error"] or counts["skipped"] or not all(p.proves_each() for p in parts):
        outcome = "could not be proved"
    parameters = parts[0].parameters
    return AuditRecord(
        invocation_id=parts[0].invocation_id,
        generated_at=parts[0].generated_at,
        period_from=summary.earliest(part.period_from for part in parts),
        period_to=parts[0].period_to,
        outcome=outcome,
        passed=counts["pass"],
        warned=counts["warn"],
        failed=counts["fail"],
        errored=counts["error"],
        skipped=counts["skipped"],
        partial=_partial(parts),
        by=parameters.record.by if parameters.record is not None else None,
        config_hash=parameters.record.config_hash if parameters.record is not None else None,
        options=_options(parameters) if parameters.record is not None else None,
        checks=tuple(sorted(Counter(row["check"] for row in rows).items())),
        pipelines=tuple(row["pipeline"] for row in (part.rows[0] for part in parts)),
        recon_version=str(rows[0]["recon_version"] or ""),
    )


def _partial(parts: Sequence[StoredAudit]) -> str:
    """Why an audit is a partial one; also where it ran all checks of some pipelines, and none of others."""
    told = [f"{part.rows[0]['pipeline']}: {part.partial}" for part in parts if part.partial]
    given = [
        f"--{name} {' '.join(map(str, parts[0].parameters.args[name]))}"
        for name in ("select", "exclude")
        if parts[0].parameters.args.get(name)
    ]
    return "; ".join(told) or (f"only what was selected: {' '.join(given)}" if given else "")


def _options(parameters: Parameters) -> str:
    """The options that an audit was given, as the command line writes them."""
    given = []
    for name, value in parameters.args.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            given.append(option)
        elif isinstance(value, (list, tuple)) and value:
            given.append(f"{option} {' '.join(map(str, value))}")
        elif isinstance(value, Mapping) and value:
            given.append(f"{option} {', '.join(f'{key}={of}' for key, of in value.items())}")
        elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
            given.append(f"{option} {value}")
    return " ".join(given)
