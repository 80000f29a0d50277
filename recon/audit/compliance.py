"""The compliance report: what a period's ledger and the audits of it prove."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon._version import __version__
from recon.audit import summary
from recon.audit.anchor import contradictions, signed
from recon.audit.extent import Extent
from recon.errors import ConfigError, LedgerError
from recon.instants import instant
from recon.lazy import np
from recon.ledger import Ledger, open_ledger
from recon.ledger.ledger import utc_now
from recon.ledger.results import RUN, findings_of, hash_of, is_sealed, typed_row
from recon.ledger.store import Filter
from recon.model import NOT_ANCHORED, RUNNING, Answer, Code, Finding, LedgerSlice, Level
from recon.model.compliance import (
    AuditRecord,
    ChainHeads,
    ComplianceReport,
    EpochRecord,
    ExceptionRecord,
    SinkCompliance,
)
from recon.model.integrity import verify
from recon.model.offsets import Spans
from recon.model.proof import OpenFinding
from recon.project import Pipeline, Project, Sink, as_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JUDGED = ("pass", "warn", "fail")


@dataclass(frozen=True)
class _Audit:
    """One audit's results for one pipeline, as rows of the results table, with the period that it covered there."""

    invocation_id: str
    generated_at: datetime
    period_from: datetime | None
    period_to: datetime
    rows: tuple[Mapping[str, Any], ...]

    def judged(self, sink: str) -> Iterable[tuple[int, int]]:
        """The sequences of the sink's entries that it judged: a clock that jumped says nothing."""
        for row in self.rows:
            if row["sink"] == sink and row["check"] == "ledger_integrity" and row["evidence"].get("judged"):
                first, last = row["evidence"]["judged"]
                yield first, last + 1

    def of_period(self, to: datetime, extents: Mapping[str, Extent]) -> _Audit | None:
        """The audit with what it found about a period that ends at `to`; None of one that says nothing about it.

        What it found during the period belongs there, whatever it is about.
        """
        if self.generated_at < to:
            return self
        if all(extent.is_empty for extent in extents.values()):
            return None
        rows = tuple({**row, "findings": [f for f in row["findings"] if _is_of(f, extents)]} for row in self.rows)
        return replace(self, rows=rows)

    def proves(self, sink: str) -> bool:
        """Whether every check that a proof rests on could be evaluated for this sink."""
        rows = [row for row in self.rows if row["sink"] == sink]
        return summary.proved_by({row["check"]: summary.evaluated(row["status"], row["evidence"]) for row in rows})

    def findings(self) -> Iterable[Finding]:
        for row in self.rows:
            yield from (f for f in row["findings"] if f.level is not Level.INFO)
            if row["kind"] == "data" and row["status"] in ("fail", "warn", "error"):
                yield Finding(
                    code=Code.INCONCLUSIVE if row["status"] == "error" else Code.VIOLATION,
                    message=f"{row['name']}: {row['message']}",
                    pipeline=row["pipeline"],
                    sink=row["sink"],
                )


def _is_of(finding: Finding, extents: Mapping[str, Extent]) -> bool:
    """Whether a finding may be about a period: in one of the sinks it is about, no other one has its place."""
    return any(
        extent.where(finding) not in ("before", "after")
        for sink, extent in extents.items()
        if finding.sink in (None, sink)
    )


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
        ConfigError: the period is empty, or has not begun, or `from_` or `to` is not a time.
        LedgerError: there is no ledger, or it cannot be read.
    """
    project, begin, end = as_project(project), instant("from_", from_), instant("to", to, ends=True)
    if begin is None or end is None:
        raise ConfigError("a compliance report needs the begin and the end of its period: from_ and to")
    if not begin < end:
        raise ConfigError(
            f"the period from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} is empty; give --from before --to"
        )
    return _compliance(project, begin, end, spark)


def _compliance(project: Project, from_: datetime, to: datetime, spark: SparkSession | None) -> ComplianceReport:
    ledger = open_ledger(project, spark)
    if not ledger.exists():
        raise LedgerError(
            f"there is no ledger at {ledger.location}; nothing was ever recorded, so nothing can be reported"
        )
    now = utc_now()
    if from_ >= now:
        raise ConfigError(
            f"the period from {from_:%Y-%m-%d %H:%M} on has not begun (it is {now:%Y-%m-%d %H:%M} UTC now), so "
            "there is nothing to report; give an earlier --from"
        )
    until = to if to < now else None  # to the present: what a clock that runs ahead committed belongs to it as well
    slices = {
        (pipe.name, sink.name): ledger.slice(pipe.name, sink.name, from_, until)
        for pipe in project.pipelines
        for sink in pipe.sinks
    }
    extents = {names: Extent.of(of_sink) for names, of_sink in slices.items()}
    read = {pipe.name: _audits(ledger, pipe.name, from_, to) for pipe in project.pipelines}
    audits = {
        name: [one for audit in found if (one := audit.of_period(to, _of_pipeline(extents, name))) is not None]
        for name, (found, _) in read.items()
    }
    unaudited = {name: _unaudited_days(from_, min(to, now), found) for name, found in audits.items()}
    opened = [one for pipe in project.pipelines for sink in pipe.sinks for one in _open(ledger, pipe, sink)]
    heads, broken = signed(project), contradictions(project, ledger)
    edited = [finding for _, findings in read.values() for finding in findings]
    return ComplianceReport(
        project=project.name,
        recon_version=__version__,
        generated_at=now,
        period_from=from_,
        period_to=to,
        sinks=tuple(
            _anchored(
                replace(
                    _sink(project, pipe, sink, slices[pipe.name, sink.name], audits[pipe.name]),
                    days_without_audit=unaudited[pipe.name],
                ),
                heads,
                broken,
            )
            for pipe in project.pipelines
            for sink in pipe.sinks
        ),
        exceptions=(
            *(e for of_pipeline in audits.values() for e in _exceptions(of_pipeline, from_, opened)),
            *(ExceptionRecord(finding=f, first_seen=now, last_seen=now, audits=0, open=True) for f in edited),
        ),
        audits=_records(audits),
        days_without_audit=tuple(sorted({day for days in unaudited.values() for day in days})),
        days_to_come=max(0, (to - timedelta(microseconds=1)).date().toordinal() - now.date().toordinal()),
    )


def _anchored(
    sink: SinkCompliance, heads: Mapping[tuple[str, str], str], broken: Mapping[tuple[str, str], str]
) -> SinkCompliance:
    """A sink with what is known of its chain's signed heads; a chain that contradicts one is broken."""
    chain = replace(sink.chain, signed=heads.get((sink.pipeline, sink.sink), NOT_ANCHORED))
    if (sink.pipeline, sink.sink) in broken:
        chain = replace(chain, verified=False, reason=broken[sink.pipeline, sink.sink])
    return replace(sink, chain=chain)


def _of_pipeline(extents: Mapping[tuple[str, str], Extent], name: str) -> dict[str, Extent]:
    """Extents by sink."""
    return {sink: extent for (pipeline, sink), extent in extents.items() if pipeline == name}


def _open(ledger: Ledger, pipeline: Pipeline, sink: Sink) -> Sequence[OpenFinding]:
    """What is open, or accepted, of a sink now; nothing where its state cannot be used, which `_edited` reports."""
    try:
        state = ledger.proofs.newest(pipeline.name, sink.name)
    except LedgerError:
        return ()
    return state.open if state is not None else ()


def _edited(
    ledger: Ledger, pipeline: str, from_: datetime, rows: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    """What was changed in the stored results since audits wrote them: (invocation_id, a sentence)."""
    by_audit: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_audit[row["invocation_id"]].append(row)
        if not is_sealed(row):
            yield row["invocation_id"], f"the stored result {row['name']} of audit {row['invocation_id']} was edited"
    try:
        proving = ledger.proofs.audits(pipeline, from_)
    except LedgerError as error:
        yield "", str(error)
        return
    for invocation_id, expected in proving.items():
        if expected and hash_of(by_audit.get(invocation_id, ())) != expected:
            yield (
                invocation_id,
                f"the stored results of audit {invocation_id} are not those that it proved with: some were removed, "
                "added or edited",
            )


def _audits(ledger: Ledger, pipeline: str, from_: datetime, to: datetime) -> tuple[list[_Audit], list[Finding]]:
    """The audits whose period overlaps this one, oldest first, and what was edited in their results.

    Some run after it, as its last day is audited then. Audits whose results were edited prove nothing.
    """
    results = ledger.results.read(Filter.of(pipeline, from_=from_)).to_pylist()
    edited = list(_edited(ledger, pipeline, from_, results))
    untrusted = {invocation_id for invocation_id, _ in edited}
    runs: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in map(typed_row, (row for row in results if row["invocation_id"] not in untrusted)):
        if row["check"] in RUNNING or row["kind"] == RUN:
            continue  # how fast a stream ran proves nothing about its data
        if row["period_to"] > from_ and (row["period_from"] is None or row["period_from"] < to):
            runs[row["invocation_id"]].append({**row, "findings": findings_of(row)})
    audits = [
        _Audit(name, rows[0]["generated_at"], rows[0]["period_from"], rows[0]["period_to"], tuple(rows))
        for name, rows in runs.items()
    ]
    findings = [Finding(code=Code.TAMPERED, pipeline=pipeline, message=sentence) for _, sentence in edited]
    return sorted(audits, key=lambda audit: audit.generated_at), findings


def _key(finding: Finding) -> tuple[Any, ...]:
    where = (finding.code, finding.pipeline, finding.sink, finding.topic, finding.topic_id, finding.partition)
    place = (finding.start_offset, finding.end_offset, finding.batch_id, finding.epoch)
    # Findings without a place differ by their messages.
    return where + place + ((finding.message,) if place == (None,) * 4 else ())


def _exceptions(audits: Sequence[_Audit], since: datetime, opened: Sequence[OpenFinding]) -> Iterator[ExceptionRecord]:
    seen: dict[tuple[Any, ...], list[tuple[_Audit, Finding]]] = defaultdict(list)
    for audit in audits:
        for finding in {_key(f): f for f in audit.findings()}.values():
            seen[_key(finding)].append((audit, finding))
    for sightings in seen.values():
        finding = sightings[-1][1]
        known_as = [one for one in opened if one.includes(finding)]
        by = next((one.accepted for one in known_as if one.accepted is not None), None)
        accepted = by is not None and all(one.accepted is not None for one in known_as)
        repeated = any(_repeats(later, *sightings[-1], since) for later in audits)
        yield ExceptionRecord(
            finding=finding,
            first_seen=sightings[0][0].generated_at,
            last_seen=sightings[-1][0].generated_at,
            audits=len(sightings),
            open=not accepted and (bool(known_as) or not (repeated or _is_repaired(finding, audits))),
            accepted=f"accepted by {by.by} on {by.at:%Y-%m-%d}: {by.reason}" if by is not None and accepted else "",
        )


def _is_repaired(finding: Finding, audits: Sequence[_Audit]) -> bool:
    """Whether an audit found all offsets of a finding repaired."""
    if finding.span is None:
        return False
    repairs = [f for audit in audits for row in audit.rows for f in row["findings"] if f.code is Code.REPAIRED]
    place = (finding.sink, finding.topic, finding.topic_id, finding.partition)
    mine = [f.span for f in repairs if (f.sink, f.topic, f.topic_id, f.partition) == place]
    return not Spans.of([finding.span]).minus(Spans.of(span for span in mine if span is not None))


# These are about the present, not about a range of the past: that the same check ran again is enough.
_PRESENT = {
    Code.LAG,
    Code.STALLED,
    Code.TOPIC_ID_UNKNOWN,
    Code.INCONCLUSIVE,
    Code.RETENTION_NEAR,
    Code.STALE_CHECKPOINT,
    Code.LEDGER_MISSING,
    Code.VIOLATION,
}


def _repeats(later: _Audit, earlier: _Audit, finding: Finding, since: datetime) -> bool:
    """Whether a later audit evaluated the same checks of the same range, so that a finding it lacks is gone."""
    if later.generated_at <= earlier.generated_at:
        return False
    judged = {row["unique_id"] for row in later.rows if row["status"] in _JUDGED}
    before = {
        row["unique_id"]
        for row in earlier.rows
        if row["status"] in _JUDGED or any(f.code == finding.code for f in row["findings"])
    }
    reaches = max(later.period_from or since, since) <= max(earlier.period_from or since, since)
    return judged >= before and (reaches or finding.code in _PRESENT)


def _sink(
    project: Project, pipeline: Pipeline, sink: Sink, ledger: LedgerSlice, audits: Sequence[_Audit]
) -> SinkCompliance:
    findings = [
        finding
        for audit in audits
        for row in audit.rows
        if row["kind"] == "evidence"
        for finding in row["findings"]
        if finding.sink in (None, sink.name)
    ]
    proving = [audit for audit in audits if audit.proves(sink.name)]
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
        topics=tuple(sorted({topic for _, topic, _ in ranges.topics})) or pipeline.source.topics,
        batches=len(batches),
        batches_proved=len(proved),
        batches_refuted=len(refuted),
        batches_unproved=len(batches) - len(proved) - len(refuted),
        ranges=int(in_period.sum()),
        ranges_proved=int(ranges_proved.sum()),
        ranges_refuted=int(ranges_refuted.sum()),
        ranges_unproved=int((in_period & ~ranges_refuted & ~ranges_proved).sum()),
        offsets=int((ranges.end - ranges.start)[in_period].sum()),
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


def _records(audits: Mapping[str, Sequence[_Audit]]) -> tuple[AuditRecord, ...]:
    """One record per audit; an audit of several pipelines is one."""
    merged: dict[str, list[_Audit]] = defaultdict(list)
    for of_pipeline in audits.values():
        for audit in of_pipeline:
            merged[audit.invocation_id].append(audit)
    return tuple(sorted((_record(parts) for parts in merged.values()), key=lambda r: r.generated_at))


def _record(parts: Sequence[_Audit]) -> AuditRecord:
    rows = [row for part in parts for row in part.rows]
    counts = {status: sum(row["status"] == status for row in rows) for status in (*_JUDGED, "error", "skipped")}
    failing = any(f.level is Level.FAIL for part in parts for f in part.findings())
    sinks = {row["sink"] for row in rows if row["sink"]}
    outcome: Answer = "complete"
    if counts["fail"] or failing:
        outcome = "not complete"
    elif counts["error"] or counts["skipped"] or not all(any(p.proves(s) for p in parts) for s in sinks):
        outcome = "could not be proved"
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
    )


def _unaudited_days(from_: datetime, to: datetime, audits: Sequence[_Audit]) -> tuple[date, ...]:
    """The days with a part that no audit of a pipeline covers; today counts up to its last audit."""
    missing: list[date] = []
    day = from_.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    while day < to:
        begin, end = max(day, from_), min(day + timedelta(days=1), to)
        if end == to and end < day + timedelta(days=1):
            # What is committed after today's last audit is audited tomorrow; that is no hole in today.
            end = max((audit.period_to for audit in audits if begin < audit.period_to <= end), default=end)
        if not _covered(begin, end, audits):
            missing.append(day.date())
        day += timedelta(days=1)
    return tuple(missing)


def _covered(begin: datetime, end: datetime, audits: Sequence[_Audit]) -> bool:
    """Whether the audits' periods together cover [begin, end)."""
    at = begin
    for audit in sorted(audits, key=lambda a: a.period_to):
        if (audit.period_from is None or audit.period_from <= at) and audit.period_to > at:
            at = audit.period_to
    return at >= end
