"""What audits refuted, or could not decide, and nobody has answered yet; and accepting one of these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from recon.audits.audit_events import FINISH_S, changed
from recon.base.clock import utc_now
from recon.base.decision import stated
from recon.base.errors import ConfigError, LedgerError
from recon.events import Emitter
from recon.model.proof import Acceptance, OpenFinding, with_id
from recon.project import Project, as_project
from recon.write.ledger import open_ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_findings(project: str | Path | Project, *, spark: SparkSession | None = None) -> list[OpenFinding]:
    """What is open of each pipeline and sink, the oldest first; among it what somebody accepted.

    What is open of a sink that recon.yml no longer has is among it, too.

    Args:
        project: where recon.yml is, or a `Project`.
        spark: the session, for a ledger that Spark writes.

    Raises:
        LedgerError: a state of the proof cannot be read, or was edited.
    """
    project = as_project(project)
    table = open_ledger(project, spark).proofs
    named = [(pipe.name, sink.name) for pipe in project.pipelines for sink in pipe.sinks]
    states = (table.newest(*names) for names in dict.fromkeys((*named, *table.chains())))
    found = [open_finding for state in states if state is not None for open_finding in state.open]
    return sorted(found, key=lambda open_finding: (open_finding.first_seen, open_finding.id))


def proved_names(project: Project, *, spark: SparkSession | None = None) -> list[tuple[str, str]]:
    """Every (pipeline, sink) of which an audit stored a state; among them those that recon.yml no longer has.

    Args:
        project: a loaded recon.yml.
        spark: the session, for a ledger that Spark writes.

    Raises:
        LedgerError: the proof cannot be read.
    """
    return open_ledger(project, spark).proofs.chains()


def accept(
    project: str | Path | Project, finding: str, *, reason: str, by: str, spark: SparkSession | None = None
) -> list[OpenFinding]:
    """Accepts an open finding: from now on it explains, and refutes nothing. Who, why and when stay in the proof.

    Args:
        project: where recon.yml is, or a `Project`.
        finding: its id, or at least the first four characters, as `open_findings` and messages give it.
        reason: why it is accepted.
        by: who accepts it.
        spark: the session, for a ledger that Spark writes.

    Returns:
        what was accepted: several checks may report one loss.

    Raises:
        ConfigError: there is no such finding, it is accepted already, or `reason` or `by` is empty.
        LedgerError: the proof cannot be read or written.
    """
    reason, by = stated("reason", reason), stated("by", by)
    project, now = as_project(project), utc_now()
    emitter = Emitter(project)
    known = open_findings(project, spark=spark)
    chosen = with_id(known, finding)
    ids = {open_finding.id for open_finding in chosen}
    done = next((open_finding.accepted for open_finding in chosen if open_finding.accepted is not None), None)
    if done is not None and all(open_finding.accepted is not None for open_finding in chosen):
        raise ConfigError(f"finding {finding} was accepted by {done.by} on {done.at:%Y-%m-%d}: {done.reason}")
    acceptance = Acceptance(by=by, reason=reason, at=now)
    table = open_ledger(project, spark).proofs
    pipeline, sink = chosen[0].finding.pipeline or "", chosen[0].finding.sink or ""
    state = table.newest(pipeline, sink)
    assert state is not None, "its open findings were just read"
    accepted = [
        replace(open_finding, accepted=acceptance)
        for open_finding in state.open
        if open_finding.id in ids and open_finding.accepted is None
    ]
    others = [
        open_finding for open_finding in state.open if open_finding.id not in ids or open_finding.accepted is not None
    ]
    stored = table.append(
        replace(state, open=(*others, *accepted)),
        after=state.sequence,
        prev_hash=state.entry_hash,
        cause="accept",
        at=now,
    )
    if not stored:
        raise LedgerError("an audit advanced the proof meanwhile, and nothing was accepted; accept the finding again")
    emitter.emit_each(lambda: [changed(project.name, "accepted", open_finding, pipeline) for open_finding in accepted])
    emitter.close(FINISH_S)
    return accepted


__all__ = ["accept", "open_findings"]
