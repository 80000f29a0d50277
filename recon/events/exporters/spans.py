"""Spans of audits and micro-batches, as events say them; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recon.events.model import AuditFailed, AuditFinished, Event, MicroBatchFailed, MicroBatchWritten
from recon.model import CheckResult, LedgerEntry, PipelineFacts
from recon.model.positions import offsets_in


@dataclass(frozen=True, kw_only=True)
class Span:
    """A piece of work: from when to when, what it was about, and its parts.

    `error` says why it failed, None where it did not. Attributes that are None are left out.
    """

    name: str
    start: datetime
    end: datetime
    attributes: Mapping[str, Any]
    error: str | None = None
    parts: tuple[Span, ...] = ()


def span_of(event: Event) -> Span | None:
    """The span of what ended with this event; None for events that end nothing."""
    if isinstance(event, AuditFinished):
        return _of_audit(event)
    if isinstance(event, AuditFailed):
        return Span(
            name="audit",
            start=event.started_at,
            end=event.at,
            attributes={"recon.project": event.project, "recon.invocation_id": event.invocation_id},
            error=f"{event.error}: {event.message}",
        )
    if isinstance(event, MicroBatchWritten):
        return _of_batch(event.project, event.entry)
    if isinstance(event, MicroBatchFailed):
        return Span(
            name=f"micro-batch {event.sink}",
            start=event.started_at,
            end=event.at,
            attributes={
                "recon.project": event.project,
                "recon.pipeline": event.pipeline,
                "recon.sink": event.sink,
                "recon.batch_id": event.batch_id,
            },
            error=f"{event.error}: {event.message}",
        )
    return None


def _of_audit(event: AuditFinished) -> Span:
    run, counts = event.run, event.run.counts()
    failed = counts["fail"] + counts["error"]
    return Span(
        name="audit",
        start=event.started_at,
        end=run.generated_at,
        attributes={
            "recon.project": event.project,
            "recon.invocation_id": event.invocation_id,
            "recon.version": run.recon_version,
            "recon.exit_code": run.exit_code,
            **{f"recon.checks.{status}": count for status, count in counts.items()},
        },
        error=f"{failed} of {len(run.results)} checks failed or could not be evaluated" if failed else None,
        parts=tuple(_of_pipeline(event, facts) for facts in run.pipelines),
    )


def _of_pipeline(event: AuditFinished, facts: PipelineFacts) -> Span:
    checks = tuple(
        _of_check(result, result.started_at, result.completed_at)
        for result in event.run.results
        if result.pipeline == facts.name and result.started_at is not None and result.completed_at is not None
    )
    return Span(
        name=f"audit {facts.name}",
        start=min((check.start for check in checks), default=event.started_at),
        end=max((check.end for check in checks), default=event.run.generated_at),
        attributes={
            "recon.project": event.project,
            "recon.pipeline": facts.name,
            "recon.query_id": facts.query_id,
            "recon.answer": facts.answer,
            "recon.because": facts.because,
        },
        error=None if facts.answer == "complete" else f"{facts.answer}: {facts.because}",
        parts=checks,
    )


def _of_check(result: CheckResult, start: datetime, end: datetime) -> Span:
    return Span(
        name=f"check {result.name}",
        start=start,
        end=end,
        attributes={
            "recon.pipeline": result.pipeline,
            "recon.sink": result.sink,
            "recon.column": result.column,
            "recon.check": result.check,
            "recon.kind": result.kind,
            "recon.status": result.status,
            "recon.failures": result.failures,
            "recon.codes": tuple(dict.fromkeys(str(finding.code) for finding in result.findings)) or None,
        },
        error=result.message or result.status if result.status in ("fail", "error") else None,
    )


def _of_batch(project: str, entry: LedgerEntry) -> Span:
    return Span(
        name=f"micro-batch {entry.sink}",
        start=entry.started_at,
        end=max(entry.started_at, entry.committed_at),  # the driver's clock may have jumped
        attributes={
            "recon.project": project,
            "recon.pipeline": entry.pipeline,
            "recon.sink": entry.sink,
            "recon.query_id": entry.query_id,
            "recon.run_id": entry.run_id,
            "recon.epoch": entry.epoch,
            "recon.batch_id": entry.batch_id,
            "recon.attempt": entry.attempt,
            "recon.status": entry.status,
            "recon.rows_read": entry.rows_read,
            "recon.rows_written": entry.rows_written,
            "recon.sink_version": entry.sink_version,
            "recon.offsets": offsets_in(entry.offsets),
        },
    )
