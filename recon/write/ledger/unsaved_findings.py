"""What an audit refuted and left no state of: it ended before it stored one, or the newest state was removed.

Its results, which are stored first, have it still. So a refutation stays though the proof was put back by one state,
of which the results of the next audit say nothing yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from recon.model import RUNNING, Code, Level
from recon.model.proof import OpenFinding, SinkProof, stays_open
from recon.write.ledger.proofs import ProofTable
from recon.write.ledger.results import findings_of

Row = Mapping[str, Any]


def with_unstored(
    state: SinkProof | None,
    pipeline: str,
    sink: str,
    found: Sequence[Row],
    table: ProofTable,
    now: datetime,
    *,
    others: bool,
    gone: bool = False,
) -> SinkProof | None:
    """The newest state of a sink's proof with what later audits refuted that left none; None where there is neither.

    Args:
        state: the newest state; None where there is none, and one in which nothing is proved is made.
        pipeline: the pipeline's name.
        sink: the sink's name.
        found: stored results of the pipeline with findings, oldest first.
        table: the table of the states.
        now: the audit's clock.
        others: whether other sinks of the pipeline have a state. These then have the findings of the whole pipeline, so
            that a sink without a state gets its own findings only.
        gone: whether these audits left states that are gone. These had what could not be decided, too, and no longer
            what was repaired.

    Raises:
        LedgerError: a table cannot be read, or a stored result does not hold what an audit writes there.
    """
    since = state.audited_at if state is not None else None
    of_sinks = (sink,) if state is None and others else (None, sink)
    later = [r for r in found if r["sink"] in of_sinks and (since is None or r["generated_at"] > since)]
    refuted = [open_finding for row in later for open_finding in _open(row, asked=gone)]
    if not refuted and not gone:
        return state
    states, _ = table.since([pipeline], later[0]["generated_at"]) if later else ({pipeline: []}, {})
    stored = {newer.invocation_id for _, newer in states[pipeline] if newer.sink == sink}
    proof = state or SinkProof(
        pipeline=pipeline,
        sink=sink,
        at=now,
        invocation_id="",
        position=0,
        chain_head="",
        first_epoch=0,
        first_batch_id=0,
        sequence=table.length(pipeline, sink),
    )
    for row in later:
        if row["invocation_id"] not in stored:
            proof = _without_repaired(proof, row) if gone else proof
            for open_finding in _open(row, asked=gone):
                proof = _with(proof, open_finding)
    return proof if proof.open or state is not None else None


def _open(row: Row, *, asked: bool) -> Iterator[OpenFinding]:
    """What a stored result refutes, and with `asked` what it could not decide, as far as an audit keeps it open."""
    check, at = row["check"], row["generated_at"]
    levels = (Level.FAIL, Level.UNPROVED) if asked else (Level.FAIL,)
    for finding in findings_of(row):
        if check not in RUNNING and finding.level in levels and stays_open(check, finding):
            yield OpenFinding(finding=finding, check=check, first_seen=at, last_seen=at)


def _without_repaired(proof: SinkProof, row: Row) -> SinkProof:
    """The state without the findings that a stored result calls repaired, all of their offsets."""
    repaired = [finding for finding in findings_of(row) if finding.code is Code.REPAIRED]

    def is_repaired(known: OpenFinding) -> bool:
        told = (replace(finding, code=known.finding.code).subject for finding in repaired)
        return known.check == row["check"] and any(subject.includes(known.finding.subject) for subject in told)

    return replace(proof, open=tuple(o for o in proof.open if o.accepted is not None or not is_repaired(o)))


def _with(proof: SinkProof, open_finding: OpenFinding) -> SinkProof:
    """The state with this finding, unless it is open or accepted there: then it is reported with its age."""
    told = replace(open_finding, finding=open_finding.finding.as_said)
    if any(known.check == told.check and known.includes(told.finding) for known in proof.open):
        return proof
    return replace(proof, open=(*proof.open, told))
