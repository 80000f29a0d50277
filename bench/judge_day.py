"""Judging alone: every evidence check over the day of `evidence_audit_day`, 8,640 micro-batches x 200 partitions.

Ours: the processor time of all checks of the day's audit, from the witnesses as they were read to the verdicts. Every
check must pass, or there is no figure.
Floor: reading these witnesses, in the same process.
"""

from __future__ import annotations

import gc
import statistics
import time
from datetime import UTC, datetime
from typing import Any

from bench.evidence_audit import forget_audits, lake_of
from bench.evidence_lake import BATCHES, PARTITIONS, Lake
from recon.audits.collect import collect
from recon.audits.options import Options
from recon.audits.session import AuditSession
from recon.audits.sources import Sources
from recon.checks.binding import bind
from recon.checks.engine import runner
from recon.project import load

RUNS = 7


def run() -> dict[str, Any]:
    with lake_of(1) as lake:
        forget_audits(lake)
        taken = [_once(lake) for _ in range(RUNS + 1)][1:]  # the first warms the page cache
    floor, ours = (statistics.median(times) for times in zip(*taken, strict=True))
    return {"name": "judge_day", "ours": ours, "floor": floor, "ratio": ours / floor, "unit": "s", "peers": {}}


def _once(lake: Lake) -> tuple[float, float]:
    """The processor seconds that reading and judging took."""
    project, now = load(lake.path), datetime.now(UTC)
    bounds = [bound for bound in bind(project) if bound.kind == "evidence"]
    sources = Sources(project, project.pipelines[0], AuditSession(project, no_spark=True, spark=None))
    began = time.process_time()
    evidence = collect(sources, bounds, Options(), now)
    read = time.process_time() - began
    gc.collect()
    gc.freeze()  # as in the command, which collects hardly ever
    began = time.process_time()
    judged = runner.run_evidence(bounds, evidence.seen_by, lambda: now)
    statuses = {result.check: result.status for result in judged}
    spent = time.process_time() - began
    gc.unfreeze()
    assert set(statuses.values()) == {"pass"}, statuses
    ledgers = evidence.witnesses.ledgers
    assert isinstance(ledgers, dict) and len(ledgers["events"].ranges) >= BATCHES * PARTITIONS
    return read, spent
