"""Events for tests, made of the sample run and of ledger entries, and a project that they are of."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

from recon.events import AuditFailed, AuditFinished, AuditStarted, MicroBatchFailed, MicroBatchWritten
from recon.project import Project, load
from tests.support.ledger_entries import AT, entry
from tests.support.sample_run import sample_run

PIPELINES = ("orders", "payments", "clicks")
YML = """
version: 2
name: lake
ledger: lake/_recon
kafka: {bootstrap.servers: "broker-1:9092,broker-2:9092"}
pipelines:
  - name: orders
    checkpoint: checkpoints/orders
    source: {topics: [orders]}
    sinks: [{name: orders, kind: delta, target: s3a://lake/orders}]
  - name: payments
    checkpoint: checkpoints/payments
    source: {topics: [payments]}
    data_tests: [checkpoint_commits]
    sinks: [{name: payments, kind: delta, target: lake/payments}]
  - name: clicks
    checkpoint: checkpoints/clicks
    source: {topics: [clicks]}
    sinks: [{name: clicks, kind: delta, target: lake/clicks}]
"""


def project_with(folder: Path, more: str = "", *, broker: bool = True) -> Project:
    """The project of the events, with further keys of recon.yml; without a broker, an audit waits for none."""
    yml = YML if broker else re.sub("^kafka:.*", "", YML, flags=re.MULTILINE)
    (folder / "recon.yml").write_text(yml + more, encoding="utf-8")
    return load(folder)


def audit_started() -> AuditStarted:
    run = sample_run()
    return AuditStarted(
        project="lake", invocation_id=run.invocation_id, checks=len(run.results), pipelines=PIPELINES, at=_begin()
    )


def audit_finished(**changes: Any) -> AuditFinished:
    run = sample_run()
    values = {"invocation_id": run.invocation_id, "started_at": _begin(), "kept": True, "goes_on": True, "run": run}
    return AuditFinished(project="lake", at=run.generated_at, **{**values, **changes})


def audit_failed() -> AuditFailed:
    run = sample_run()
    return AuditFailed(
        project="lake",
        invocation_id=run.invocation_id,
        pipelines=PIPELINES,
        started_at=_begin(),
        at=run.generated_at,
        error="LedgerError",
        message="the ledger cannot be read",
    )


def batch_written(
    batch_id: int = 0, *, seconds: float = 2.0, write_seconds: float = 1.5, size: int | None = 512, **changes: Any
) -> Any:
    values = {"committed_at": AT + timedelta(seconds=2), **changes}
    return MicroBatchWritten(
        project="lake",
        entry=entry(batch_id, **values),
        seconds=seconds,
        write_seconds=write_seconds,
        bytes_written=size,
    )


def batch_failed(batch_id: int = 1) -> MicroBatchFailed:
    return MicroBatchFailed(
        project="lake",
        pipeline="orders",
        sink="orders",
        batch_id=batch_id,
        started_at=AT,
        at=AT + timedelta(seconds=3),
        error="SinkError",
        message="the table is gone",
    )


def _begin() -> Any:
    return sample_run().generated_at - timedelta(seconds=sample_run().elapsed_time)
