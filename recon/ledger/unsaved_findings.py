"""What an audit refuted and left no state of: it ended before it stored one, or the newest state was removed.

Its results, which are stored first, have it still. So a refutation stays though the proof was put back by one state,
of which the results of the next audit say nothing yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from recon.ledger.proofs import ProofTable
from recon.ledger.results import findings_of
from recon.model import RUNNING, Level
from recon.model.proof import OpenFinding, SinkProof, stays_open

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
) -> SinkProof | None:
    """The newest state of a sink's proof with what later audits refuted that left none; None where there is neither.

    Args:
        state: the newest state; None where there is none, and one in which nothing is proved is made.
        pipeline: the pipeline's name.
        sink: the sink's name.
        found: stored results of the pipeline with findings, oldest first.
        table: the table of the states.
        now: the audit's clock.
        others: whether other sinks of the pipeline have a state. These have what was found of the whole pipeline, and
            to a sink without one, which may have been added to the pipeline, only its own findings are added.

    Raises:
        LedgerError: a table cannot be read, or a stored result does not hold what an audit writes there.
    """
    since = state.audited_at if state is not None else None
    of_sinks = (sink,) if state is None and others else (None, sink)
    later = [r for r in found if r["sink"] in of_sinks and (since is None or r["generated_at"] > since)]
    refuted = [one for row in later for one in _refuted(row)]
    if not refuted:
        return state
    states, _ = table.since([pipeline], refuted[0].first_seen)
    stored = {one.invocation_id for _, one in states[pipeline] if one.sink == sink}
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
            for one in _refuted(row):
                proof = _with(proof, one)
    return proof if proof.open else state


def _refuted(row: Row) -> Iterator[OpenFinding]:
    """What a stored result refutes, and an audit would keep open."""
    check, at = row["check"], row["generated_at"]
    for finding in findings_of(row):
        if check not in RUNNING and finding.level is Level.FAIL and stays_open(check, finding):
            yield OpenFinding(finding=finding, check=check, first_seen=at, last_seen=at)


def _with(proof: SinkProof, one: OpenFinding) -> SinkProof:
    """The state with a finding more, where it is none that is open or accepted: these are told with their age."""
    told = replace(one, finding=one.finding.as_said)
    if any(known.check == told.check and known.includes(told.finding) for known in proof.open):
        return proof
    return replace(proof, open=(*proof.open, told))
