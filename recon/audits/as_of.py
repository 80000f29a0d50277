"""A compliance report derived again as of its own time: what came later is left out, and named.

What came later is not found by clocks alone. An entry, or a state of the proof, is left out where two things are so:
its hashed time is after the report's, and its place in the chain is behind all that the report has or that was there
before. Results of audits that the report does not list are left out, too. Whatever is in doubt stays, and is a
difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

from recon.audits.compliance import derive
from recon.base.clock import utc_now
from recon.base.errors import LedgerError
from recon.base.text import plural
from recon.model.compliance import ComplianceReport, SinkCompliance
from recon.project import Project
from recon.write.ledger import Ledger, arrow
from recon.write.ledger.store import SEQUENCE, Filter
from recon.write.ledger.view import ledger_up_to

_Chain = tuple[str, str]
_TICK = timedelta(microseconds=1)  # the ledger's clock


def as_of(project: Project, ledger: Ledger, report: ComplianceReport) -> ComplianceReport:
    """What the report would have said at its own time, by ledger and proof.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    at = report.generated_at
    if not report.period_from < at <= utc_now():
        return derive(project, report.period_from, report.period_to, ledger)
    listed = {audit.invocation_id for audit in report.audits}
    states, kept = _states(ledger, report, listed)
    later = ledger.results.read(Filter.of(from_=at), ["invocation_id", "generated_at"])
    without = {name for name, when in arrow.tuples(later, "invocation_id", "generated_at") if when > at}
    entries = {
        (sink.pipeline, sink.sink): last for sink in report.sinks if (last := _last(ledger, sink, report)) is not None
    }
    entries |= _others(ledger, report)
    view = ledger_up_to(ledger, entries, states, without - listed - kept)
    return derive(project, report.period_from, report.period_to, view, whole=ledger, now=at)


def _last(ledger: Ledger, sink: SinkCompliance, report: ComplianceReport) -> int | None:
    """The last entry that was there; None where none came later, or where the report has no position to say so."""
    names = (sink.pipeline, sink.sink)
    before = ledger.position_before(*names, report.generated_at + _TICK)
    if sink.chain.last is None or before >= ledger.position(*names):
        return None
    rows = ledger.store.read(Filter.of(*names, from_=report.period_from), ["entry_hash", SEQUENCE])
    known = [sequence for name, sequence in arrow.tuples(rows, "entry_hash", SEQUENCE) if name == sink.chain.last]
    return max(before, known[0]) if len(known) == 1 else None


def _others(ledger: Ledger, report: ComplianceReport) -> dict[_Chain, int]:
    """The last entry that was there of each chain that the report only names, by its clock alone."""
    names = ("pipeline", "sink")
    chains = set(arrow.tuples(ledger.store.read(Filter.of(from_=report.period_from), names), *names))
    others = chains - {(sink.pipeline, sink.sink) for sink in report.sinks}
    before = report.generated_at + _TICK
    return {(pipeline, sink): ledger.position_before(pipeline, sink, before) for pipeline, sink in others}


def _states(ledger: Ledger, report: ComplianceReport, listed: set[str]) -> tuple[dict[_Chain, int], set[str]]:
    """The last state of each proof that was there, where others came later; and the audits of those before it."""
    at = report.generated_at
    names = ("pipeline", "sink", SEQUENCE, "at")
    try:
        earlier = list(arrow.tuples(ledger.proofs.store.read(Filter.of(to=at + _TICK), names), *names))
        later = arrow.rows(ledger.proofs.store.read(Filter.of(from_=at + _TICK)))
    except LedgerError:  # the report says so
        return {}, set()
    last: dict[_Chain, int] = {}
    for pipeline, sink, sequence, _ in earlier:
        last[pipeline, sink] = max(sequence, last.get((pipeline, sink), 0))
    audits: dict[tuple[str, str, int], str] = {}
    for row in later:
        chain = (row["pipeline"], row["sink"])
        audits[*chain, row[SEQUENCE]] = name = _audit_of(row["state"]) if row["cause"] == "audit" else ""
        if name in listed:  # the clock of that audit was ahead
            last[chain] = max(row[SEQUENCE], last.get(chain, 0))
    cut = {(pipeline, sink) for pipeline, sink, _ in audits}
    kept = {name for (pipeline, sink, number), name in audits.items() if number <= last.get((pipeline, sink), 0)}
    return {chain: last.get(chain, 0) for chain in cut}, kept


def _audit_of(state: str) -> str:
    try:
        return str(json.loads(state)["invocation_id"])
    except (ValueError, KeyError, TypeError):  # edited: the report says so
        return ""


def since(before: ComplianceReport, now: ComplianceReport) -> Iterator[str]:
    """What came after a report of the same period, in sentences, as far as it says something about the period."""
    for sink in now.sinks:
        chains = [
            of_sink.chain for of_sink in before.sinks if (of_sink.pipeline, of_sink.sink) == (sink.pipeline, sink.sink)
        ]
        more = sink.chain.entries - sum(chain.entries for chain in chains)
        if more:
            yield f"{plural(more, 'ledger entry')} of the period, of pipeline {sink.pipeline}, sink {sink.sink}"
    known = {audit.invocation_id for audit in before.audits}
    for audit in now.audits:
        if audit.invocation_id not in known:
            yield f"audit {audit.invocation_id} of {audit.generated_at:%Y-%m-%d %H:%M} UTC: {audit.outcome}"
    records = {exception.finding.subject: exception for exception in before.exceptions}
    for exception in now.exceptions:
        name = f"finding {exception.id}" if exception.id else "a finding"
        what = f"{name}, {exception.finding.code}: {exception.finding.message}"
        earlier = records.get(exception.finding.subject)
        if earlier is None:
            yield f"{what}; reported first on {exception.first_seen:%Y-%m-%d %H:%M} UTC"
        elif earlier.closed != exception.closed:
            yield f"{what}; {exception.closed or 'open again'}"
    if before.answer != now.answer:
        yield f"the answer is {now.answer} now, and was {before.answer}"


__all__ = ["as_of", "since"]
