"""Audit results kept beside the ledger, so that one audit can see what the last one saw."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
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


def previous_audit(store: Store, pipeline: str, not_before: datetime) -> PreviousAudit | None:
    """What the newest audits of a pipeline left; None when there was none.

    Chain heads and log ends are those of the newest audit. `audited_to` is looked for further back, but not
    before an instant: it is the end of the newest audit in which every evidence check could be evaluated.
    """
    from recon.ledger.store import Filter

    found: PreviousAudit | None = None
    wanted = ["invocation_id", "generated_at", "sink", "check", "kind", "status", "evidence", "period_to"]
    for day in reversed(store.dates()):
        which = Filter(equals=(("pipeline", pipeline),), dates=(day,))
        rows = store.read(which, wanted).sort_by([("generated_at", "ascending")]).to_pylist()
        if rows and found is None:
            found = _left_by(rows)
        if found is not None:
            audited_to = _audited_to(rows)
            if audited_to is not None:
                return replace(found, audited_to=audited_to)
            if day < not_before.date():
                return found
    return found


def _left_by(rows: Sequence[Mapping[str, Any]]) -> PreviousAudit:
    """What a day's audits, oldest first, left for the next one."""
    heads: dict[str, str] = {}
    ends: dict[tuple[str, int], int] = {}
    version: int | None = None
    for row in rows:
        evidence = json.loads(row["evidence"] or "{}")
        if evidence.get("chain_head"):
            heads[row["sink"]] = evidence["chain_head"]
        for topic, partition, end in evidence.get("log_ends", ()):
            ends[(topic, partition)] = end
        version = evidence.get("ledger_version", version)
    return PreviousAudit(generated_at=rows[-1]["period_to"], chain_heads=heads, log_ends=ends, ledger_version=version)


def _audited_to(rows: Sequence[Mapping[str, Any]]) -> datetime | None:
    """The end of the day's newest audit that left no question open; a partial one (--select) does not count."""
    audits: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["kind"] == "evidence":
            audits.setdefault(row["invocation_id"], []).append(row)
    ends = [
        evidence[0]["period_to"]
        for evidence in audits.values()
        if all(row["status"] in ("pass", "warn", "fail") for row in evidence)
        and any(row["check"] == "ledger_integrity" for row in evidence)
    ]
    return max(ends, default=None)
