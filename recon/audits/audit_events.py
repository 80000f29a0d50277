"""Tells what an audit did as events (recon.events). No event changes a result or the exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal

from recon.audits.options import Options
from recon.audits.proof import looked
from recon.events import (
    AuditFailed,
    AuditFinished,
    AuditStarted,
    Emitter,
    Event,
    FindingChanged,
    IncidentChanged,
)
from recon.events.errors import sentence
from recon.model import PipelineFacts, RunResult, Witnesses
from recon.model.proof import OpenFinding

FINISH_S = 30.0  # an audit waits so long for what takes its events


@dataclass(frozen=True)
class AuditEvents:
    """The events of one audit.

    Args:
        emitter: takes them.
        project: the project's name.
        invocation_id: the audit's.
        started_at: when it began, UTC; what it saw first has this as its time.
        pipelines: that it is about.
        partial: those of them of which it evaluates some checks only.
    """

    emitter: Emitter
    project: str
    invocation_id: str
    started_at: datetime
    pipelines: tuple[str, ...]
    partial: tuple[str, ...]

    def started(self, checks: int) -> None:
        """The audit begins."""
        self.emitter.emit(
            lambda: AuditStarted(
                project=self.project,
                at=self.started_at,
                invocation_id=self.invocation_id,
                checks=checks,
                pipelines=self.pipelines,
            )
        )

    def failed(self, error: Exception) -> None:
        """The audit ended by an error."""
        self.emitter.emit(
            lambda: AuditFailed(
                project=self.project,
                invocation_id=self.invocation_id,
                pipelines=self.pipelines,
                started_at=self.started_at,
                error=type(error).__name__,
                message=sentence(error),
            )
        )
        self.emitter.close(FINISH_S)

    def finished(self, run: RunResult, witnesses: Mapping[str, Witnesses], options: Options) -> RunResult:
        """The audit has a result, masked; the run with a note on each consumer that did not take all events."""
        if not self.emitter.active:
            return run
        for facts in run.pipelines:
            self.emitter.emit_each(partial(self._of_pipeline, facts, witnesses[facts.name], run))
        self.emitter.emit(
            lambda: AuditFinished(
                project=self.project,
                invocation_id=self.invocation_id,
                started_at=self.started_at,
                kept=options.keep,
                goes_on=options.goes_on,
                partial=self.partial,
                run=run,
                evaluated=frozenset(result.unique_id for result in run.results if looked(result)),
            ),
            masked=True,  # as the run is; a large one takes seconds
        )
        notes = self.emitter.close(FINISH_S)
        return replace(run, notes=(*run.notes, *notes)) if notes else run

    def _of_pipeline(self, facts: PipelineFacts, witnesses: Witnesses, run: RunResult) -> Iterator[Event]:
        for incident in facts.incidents:
            opened = incident.first_seen >= witnesses.now
            yield IncidentChanged(
                project=self.project,
                invocation_id=self.invocation_id,
                pipeline=facts.name,
                change=incident.state if incident.state != "open" else "opened" if opened else "still_open",
                incident=incident,
            )
        repaired = {id_ for incident in facts.incidents if incident.state == "repaired" for id_ in incident.findings}
        for open_finding in recovered(witnesses, run):
            if open_finding.id not in repaired:
                yield changed(self.project, "recovered", open_finding, facts.name)


def changed(
    project: str, change: Literal["accepted", "recovered"], open_finding: OpenFinding, pipeline: str
) -> FindingChanged:
    """The event of a finding that is open no more."""
    return FindingChanged(
        project=project,
        change=change,
        pipeline=pipeline,
        sink=open_finding.finding.sink,
        finding=open_finding.id,
        code=str(open_finding.finding.code),
        check=open_finding.check,
        message=open_finding.finding.message,
        first_seen=open_finding.first_seen,
        by=open_finding.accepted.by if open_finding.accepted is not None else "",
        reason=open_finding.accepted.reason if open_finding.accepted is not None else "",
    )


def recovered(witnesses: Witnesses, run: RunResult) -> list[OpenFinding]:
    """The findings that were open, and that their check does not report any more, in part either.

    A check that was not evaluated, or did not see all it needed, says nothing of them.
    """
    results = [r for r in run.results if r.pipeline == witnesses.pipeline and looked(r)]
    gone = []
    for sink, proof in witnesses.proofs.of_sink.items():
        for open_finding in proof.open:
            mine = [r for r in results if r.check == open_finding.check and r.sink in (None, sink)]
            reported = (f for r in mine for f in r.findings)
            if (
                mine
                and open_finding.accepted is None
                and not any(open_finding.finding.subject.meets(f.subject) for f in reported)
            ):
                gone.append(open_finding)
    return gone
