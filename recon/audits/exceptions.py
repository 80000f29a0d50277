"""The exceptions of a period: what audits found, each once, whether it is open, and how it ended."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from recon.audits.stored_audits import StoredAudit
from recon.model import Code, Finding
from recon.model.compliance import ExceptionRecord
from recon.model.offsets import Span, Spans
from recon.model.proof import Acceptance, OpenFinding
from recon.model.subject import Subject

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
    Code.VIOLATION_WARN,
}

_Where = tuple[str | None, str | None, str | None, int | None]


@dataclass(frozen=True)
class Sightings:
    """An exception with the audits that reported it, oldest first.

    `answered` is whether somebody accepted it, or a later audit found all of it in order. Then it refutes no
    micro-batch and leaves none in doubt, as in the answer of an audit. One that is no longer reported, by an audit that
    looked elsewhere, is closed and not answered.
    """

    record: ExceptionRecord
    audits: Sequence[StoredAudit]
    answered: bool = False


def exceptions(
    audits: Sequence[StoredAudit],
    period: tuple[datetime, datetime],
    opened: Sequence[OpenFinding],
    owners: Mapping[str, str],
    *,
    later: Sequence[StoredAudit] = (),
) -> Iterator[Sightings]:
    """The exceptions of a pipeline.

    Args:
        audits: of the pipeline, oldest first.
        period: its begin and its end.
        opened: what is open, or accepted, of the pipeline's sinks now.
        owners: of tests by unique_id, and of the pipeline by "".
        later: audits of later periods, with what they found about this one; they end only what they saw repaired.
    """
    history = _History(audits, period, later)
    seen: dict[Subject, list[tuple[StoredAudit, Finding]]] = defaultdict(list)
    reported_by: dict[Subject, dict[str, str]] = defaultdict(dict)
    for audit in (*audits, *later):
        of_audit = {}
        for finding, row in audit.findings():
            of_audit[finding.subject] = finding
            reported_by[finding.subject][row["check"]] = row["unique_id"]
        for key, finding in of_audit.items():
            seen[key].append((audit, finding))
    by_kind: dict[tuple[str, str | None], list[OpenFinding]] = defaultdict(list)
    for open_finding in opened:
        by_kind[open_finding.finding.subject.kind, open_finding.finding.sink].append(open_finding)
    for key, sightings in seen.items():
        finding, last = sightings[-1][1], sightings[-1][0]
        known_as = [
            open_finding
            for open_finding in by_kind[finding.subject.kind, finding.sink]
            if open_finding.includes(finding)
        ]
        by = next((open_finding.accepted for open_finding in known_as if open_finding.accepted is not None), None)
        accepted = by is not None and all(open_finding.accepted is not None for open_finding in known_as)
        closed, how, answered = _end(history, finding, last, by if accepted else None, still_known=bool(known_as))
        names = reported_by[key]
        yield Sightings(
            ExceptionRecord(
                finding=finding,
                first_seen=sightings[0][0].generated_at,
                last_seen=last.generated_at,
                audits=len(sightings),
                open=closed is None,
                accepted=how if accepted else "",
                id=next((open_finding.id for open_finding in known_as), ""),
                checks=tuple(sorted(names)),
                owner=next((owners[name] for name in names.values() if owners.get(name)), owners.get("", "")),
                closed_at=closed,
                closed=how,
            ),
            [audit for audit, _ in sightings],
            answered,
        )


def _end(
    history: _History, finding: Finding, last: StoredAudit, by: Acceptance | None, *, still_known: bool
) -> tuple[datetime | None, str, bool]:
    """When and how an exception ended, None while it is open; and whether it is answered."""
    if by is not None:
        return by.at, f"accepted by {by.by} on {by.at:%Y-%m-%d}: {by.reason}", True
    if still_known:
        return None, "", False
    repaired = history.repaired(finding, last)
    if repaired is not None:
        return repaired, f"repaired, as the audit of {repaired:%Y-%m-%d %H:%M} found", True
    gone = history.gone(finding, last)
    if gone is not None:
        how = f"the audit of {gone:%Y-%m-%d %H:%M} evaluated the same checks and found nothing of it"
        return gone, how, history.gone(finding, last, whole=True) is not None
    return None, "", False


class _History:
    """What later audits say of what earlier ones found."""

    def __init__(
        self, audits: Sequence[StoredAudit], period: tuple[datetime, datetime], behind: Sequence[StoredAudit]
    ) -> None:
        self._audits, self._behind = audits, behind
        self._from, self._to = period
        self._times = [audit.generated_at for audit in audits]

    @cached_property
    def _repairs(self) -> Mapping[_Where, Sequence[tuple[datetime, Span]]]:
        found: dict[_Where, list[tuple[datetime, Span]]] = defaultdict(list)
        for audit in (*self._audits, *self._behind):
            for row in audit.rows:
                for finding in row["findings"]:
                    if finding.code is Code.REPAIRED and finding.span is not None:
                        found[_where(finding)].append((audit.generated_at, finding.span))
        return found

    def repaired(self, finding: Finding, last: StoredAudit) -> datetime | None:
        """When all offsets of a finding were found repaired after it was reported last; None where they were not."""
        if finding.span is None:
            return None
        left = Spans.of([finding.span])
        for at, span in self._repairs.get(_where(finding), ()):
            if at <= last.generated_at:  # of what happened to the same offsets before
                continue
            left = left.minus(Spans.of([span]))
            if not left:
                return at
        return None

    def gone(self, finding: Finding, last: StoredAudit, *, whole: bool = False) -> datetime | None:
        """When a later audit first evaluated the same checks of the same range, and had nothing of it.

        What is about the present may be of another range, unless the `whole` range is asked for.
        """
        before = last.judged_checks | {
            row["unique_id"] for row in last.rows if any(f.code == finding.code for f in row["findings"])
        }
        begin, end = self._looked_at(last)
        for later in self._audits[bisect_right(self._times, last.generated_at) :]:
            since, until = self._looked_at(later)
            reaches = since <= begin and until >= end
            if (reaches or (finding.code in _PRESENT and not whole)) and later.judged_checks >= before:
                return later.generated_at
        return None

    def _looked_at(self, audit: StoredAudit) -> tuple[datetime, datetime]:
        """The part of the period that an audit looked at; what one of a later period found may be of any part."""
        if audit.is_behind(self._to):
            return self._from, self._to
        return max(audit.period_from or self._from, self._from), min(audit.period_to, self._to)


def _where(finding: Finding) -> _Where:
    return finding.sink, finding.topic, finding.topic_id, finding.partition
