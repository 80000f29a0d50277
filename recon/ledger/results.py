"""Audit results kept beside the ledger, so that one audit can see what the last one saw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recon.model import CheckResult, Finding, PreviousAudit, RunResult, plain

if TYPE_CHECKING:
    import pyarrow as pa

    from recon.ledger.store import Store

RESULTS_TIME = "generated_at"


def results_schema() -> pa.Schema:
    """One row per check of an audit; `findings` and `evidence` are JSON."""
    import pyarrow as pa

    instant = pa.timestamp("us", tz="UTC")
    text = pa.string()
    return pa.schema(
        [
            ("invocation_id", text),
            ("generated_at", instant),
            ("project", text),
            ("pipeline", text),
            ("sink", text),
            ("unique_id", text),
            ("name", text),
            ("check", text),
            ("kind", text),
            ("status", text),
            ("severity", text),
            ("failures", pa.int64()),
            ("message", text),
            ("findings", text),
            ("evidence", text),
            ("period_from", instant),
            ("period_to", instant),
            ("execution_time", pa.float64()),
            ("recon_version", text),
            ("date", pa.date32()),
        ]
    )


def append_run(store: Store, run: RunResult) -> None:
    """Keep every result of a run, in one commit."""
    import pyarrow as pa

    begins = {facts.name: facts.period_from for facts in run.pipelines}
    rows = [_row(run, result, begins.get(result.pipeline or "", run.period_from)) for result in run.results]
    if rows:
        store.append(pa.Table.from_pylist(rows, schema=results_schema()))


def _row(run: RunResult, result: CheckResult, period_from: datetime | None) -> dict[str, Any]:
    return {
        "invocation_id": run.invocation_id,
        "generated_at": run.generated_at,
        "project": run.project,
        "pipeline": result.pipeline,
        "sink": result.sink,
        "unique_id": result.unique_id,
        "name": result.name,
        "check": result.check,
        "kind": result.kind,
        "status": result.status,
        "severity": result.severity,
        "failures": result.failures,
        "message": result.message,
        "findings": json.dumps([f.as_dict() for f in result.findings]),
        "evidence": json.dumps(plain(result.evidence), default=str),
        "period_from": period_from,
        "period_to": run.period_to,
        "execution_time": result.execution_time,
        "recon_version": run.recon_version,
        "date": run.generated_at.date(),
    }


def findings_of(row: Mapping[str, Any]) -> list[Finding]:
    """The findings a stored row carries."""
    return [Finding(**item) for item in json.loads(row["findings"] or "[]")]


def previous_audit(store: Store, pipeline: str) -> PreviousAudit | None:
    """What the newest audit of a pipeline left: chain heads and Kafka's log ends; None when there was none."""
    from recon.ledger.store import Filter

    heads: dict[str, str] = {}
    ends: dict[tuple[str, int], int] = {}
    newest: datetime | None = None
    version: int | None = None
    wanted = ["generated_at", "sink", "check", "evidence", "period_to"]
    for day in reversed(store.dates()):
        which = Filter(equals=(("pipeline", pipeline),), dates=(day,))
        rows = store.read(which, wanted).sort_by([("generated_at", "ascending")]).to_pylist()
        for row in rows:
            evidence = json.loads(row["evidence"] or "{}")
            if evidence.get("chain_head"):
                heads[row["sink"]] = evidence["chain_head"]
            for topic, partition, end in evidence.get("log_ends", ()):
                ends[(topic, partition)] = end
            version = evidence.get("ledger_version", version)
            newest = row["period_to"]
        if rows:
            break
    if newest is None:
        return None
    return PreviousAudit(generated_at=newest, chain_heads=heads, log_ends=ends, ledger_version=version)
