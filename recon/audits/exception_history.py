"""What became of exceptions: by cause, who answered them, which versions of recon.yml and changes lie behind them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal

from recon.audits.exceptions import Sightings
from recon.audits.incidents import Item, cause_of, counts_of, grouped, ranges_of
from recon.audits.stored_audits import StoredAudit
from recon.base.text import plural
from recon.model import Code, EntryHead, LedgerSlice
from recon.model.compliance import ActionRecord, AuditRecord, ChangeRecord, ConfigVersion, IncidentRecord
from recon.model.proof import OpenFinding, SinkProof

_STATES = ("open", "accepted", "closed")
_OF_TESTS = (Code.VIOLATION, Code.VIOLATION_WARN)
_BY_OTHERS = (Code.MUTATED, Code.UNSTAMPED, Code.RECREATED)


def incidents(exceptions: Iterable[Sightings]) -> tuple[IncidentRecord, ...]:
    """The exceptions by their causes: open ones first, the worst and the oldest first."""
    by_sink: dict[tuple[str | None, str | None], list[Sightings]] = defaultdict(list)
    for sightings in exceptions:
        by_sink[sightings.record.finding.pipeline, sightings.record.finding.sink].append(sightings)
    found = []
    for of_sink in by_sink.values():
        items = [_item(sightings) for sightings in of_sink]
        of_item = {id(item): sightings for item, sightings in zip(items, of_sink, strict=True)}
        found += [_incident(group, [of_item[id(item)] for item in group]) for group in grouped(items)]
    return tuple(
        sorted(
            found,
            key=lambda incident: (
                _STATES.index(incident.state),
                incident.level.rank,
                incident.detected_at,
                incident.pipeline or "",
                incident.cause,
            ),
        )
    )


def items_of(exceptions: Iterable[Sightings], pipeline: str, sink: str) -> list[Item]:
    """The exceptions of a sink, as incidents are made of them: its own, and those of its whole pipeline."""
    return [
        _item(sightings)
        for sightings in exceptions
        if sightings.record.finding.pipeline == pipeline and sightings.record.finding.sink in (None, sink)
    ]


def _item(sightings: Sightings) -> Item:
    record = sightings.record
    finding = record.finding
    if finding.code in _OF_TESTS:  # the rows that a test counts are others in each audit; the test is the same
        finding = replace(finding, message=finding.message.partition(": ")[0])
    state: Literal["open", "accepted", "repaired"] = (
        "open" if record.open else "accepted" if record.accepted else "repaired"
    )
    return Item(finding, ", ".join(record.checks), finding.sink, record.first_seen, state, record.id, record.accepted)


def _incident(items: Sequence[Item], sightings: Sequence[Sightings]) -> IncidentRecord:
    records = [sighting.record for sighting in sightings]
    worst = records[0]
    open_ = any(record.open for record in records)
    state: Literal["open", "accepted", "closed"] = (
        "open" if open_ else "accepted" if any(record.accepted for record in records) else "closed"
    )
    closed = [record.closed_at for record in records if record.closed_at is not None]
    cause = cause_of(items, (), None)
    if worst.finding.code in _OF_TESTS:
        cause = worst.finding.message
    return IncidentRecord(
        id=next((record.id for record in records if record.id), ""),
        pipeline=worst.finding.pipeline,
        sink=worst.finding.sink,
        cause=cause,
        codes=tuple(dict.fromkeys(record.finding.code for record in records)),
        state=state,
        owner=next((record.owner for record in records if record.owner), ""),
        detected_at=min(record.first_seen for record in records),
        last_seen=max(record.last_seen for record in records),
        closed_at=None if open_ else max(closed, default=None),
        ended="" if open_ else "; ".join(dict.fromkeys(record.closed for record in records if record.closed)),
        exceptions=len(records),
        counts=tuple(count for count in counts_of(items, ranges_of(items), ()) if count.rows or count.offsets),
    )


def actions(
    slices: Mapping[tuple[str, str], LedgerSlice],
    states: Iterable[tuple[str, SinkProof]],
    from_: datetime,
    to: datetime,
) -> tuple[ActionRecord, ...]:
    """What somebody did in the period about rows or findings, oldest first."""
    found = [action for ledger in slices.values() for action in _of_ledger(ledger)]
    accepted: dict[tuple[str, str, str, datetime], ActionRecord] = {}
    for _, state in states:
        for open_finding in state.open:
            if open_finding.accepted is not None and from_ <= open_finding.accepted.at < to:
                accepted[state.pipeline, state.sink, open_finding.id, open_finding.accepted.at] = _accepted(
                    state, open_finding
                )
    return tuple(sorted((*found, *accepted.values()), key=lambda action: (action.at, action.pipeline, action.sink)))


def _accepted(state: SinkProof, open_finding: OpenFinding) -> ActionRecord:
    assert open_finding.accepted is not None
    what = f"finding {open_finding.id}, {open_finding.finding.code}: {open_finding.finding.message}"
    return ActionRecord(
        kind="accepted",
        at=open_finding.accepted.at,
        pipeline=state.pipeline,
        sink=state.sink,
        what=what,
        by=open_finding.accepted.by,
        reason=open_finding.accepted.reason,
    )


def _of_ledger(ledger: LedgerSlice) -> Iterator[ActionRecord]:
    for head in ledger.heads[ledger.anchors :]:
        kind = _kind(head)
        if kind is not None:
            yield ActionRecord(
                kind=kind,
                at=head.committed_at,
                pipeline=head.pipeline,
                sink=head.sink,
                what=_what(head, kind),
                by=head.by or "",
                reason=head.reason or "",
            )


_Done = Literal["released", "repaired", "removed", "restored"]


def _kind(head: EntryHead) -> _Done | None:
    if head.is_micro_batch:
        return "restored" if head.status == "rebuilt" else None
    return "released" if head.is_release else "repaired" if head.is_repair else "removed"


def _what(head: EntryHead, kind: _Done) -> str:
    restored = ", its ledger entry restored from the sink's own record" if head.status == "rebuilt" else ""
    number = f"number {head.batch_id}{restored}"
    if kind == "restored":
        return f"the ledger entry of micro-batch {head.batch_id}, epoch {head.epoch}, from the sink's own record"
    if kind == "released":
        return f"{_rows(head.rows_written)} from quarantine, {number}"
    if kind == "removed":
        return f"{_rows(head.rows_removed)} that were doubled, {number}"
    return f"missing offsets read again, {_rows(head.rows_written)} written, {number}"


def _rows(count: int | None) -> str:
    return "an unknown number of rows" if count is None else plural(count, "row")


def config_versions(audits: Sequence[AuditRecord]) -> tuple[ConfigVersion, ...]:
    """The versions of recon.yml that audits ran with, in the order of their first use; one that came back, twice."""
    found: list[ConfigVersion] = []
    for audit in audits:
        if found and found[-1].config_hash == audit.config_hash:
            found[-1] = replace(found[-1], last_used=audit.generated_at, audits=found[-1].audits + 1)
        else:
            at = audit.generated_at
            found.append(ConfigVersion(config_hash=audit.config_hash, first_used=at, last_used=at, audits=1))
    return tuple(found)


def deletions(audits: Iterable[StoredAudit]) -> Iterator[ChangeRecord]:
    """What audits reported of deletions that recon.yml declares, each once."""
    seen: set[tuple[object, ...]] = set()
    for audit in audits:
        for found in (found for row in audit.rows for found in row["findings"] if found.code is Code.DELETED):
            subject = (found.pipeline, found.sink, found.about)
            if subject not in seen:
                seen.add(subject)
                yield ChangeRecord(
                    pipeline=found.pipeline or "",
                    sink=found.sink,
                    code=found.code,
                    what=found.message,
                    reported_at=audit.generated_at,
                    versions=found.changed_by or (),
                )


def changes(exceptions: Iterable[Sightings], declared: Iterable[ChangeRecord] = ()) -> tuple[ChangeRecord, ...]:
    """What audits reported of commits by others, oldest first; `declared` are those that recon.yml declares."""
    found = [
        ChangeRecord(
            pipeline=sightings.record.finding.pipeline or "",
            sink=sightings.record.finding.sink,
            code=sightings.record.finding.code,
            what=sightings.record.finding.message,
            reported_at=sightings.record.first_seen,
            versions=sightings.record.finding.changed_by or (),
        )
        for sightings in exceptions
        if sightings.record.finding.code in _BY_OTHERS or sightings.record.finding.changed_by is not None
    ]
    return tuple(
        sorted(
            [*found, *declared],
            key=lambda change: (change.reported_at, change.pipeline, change.sink or "", change.what),
        )
    )
