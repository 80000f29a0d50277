"""The account of every offset, without a JVM.

`account_day`: the account of the day of `evidence_audit_day`, 8,640 micro-batches x 200 partitions, from the witnesses
as an audit read them to 1.7 million lines; processor time. Its floor is reading these witnesses, in the same process.
`account_year`: `recon.account` of one pipeline of `compliance_year` over its year, an entry an hour in a ledger that 20
pipelines share, from recon.yml to the sums; its floor is a reading of that ledger with deltalake.
"""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

import recon
from bench.compliance_year import year
from bench.evidence_audit import forget_audits, lake_of
from bench.evidence_lake import BATCHES, PARTITIONS, Lake
from recon.audits.collect import collect
from recon.audits.options import Options
from recon.audits.session import AuditSession
from recon.audits.sources import Sources
from recon.checks.binding import bind
from recon.checks.engine import runner
from recon.judge.account.lines import account_of
from recon.project import load

TURNS = 5


def day() -> dict[str, Any]:
    """The account of a day beside reading its witnesses."""
    with lake_of(1) as lake:
        forget_audits(lake)
        turns = [_day(lake) for _ in range(TURNS + 1)][1:]
    return _result("account_day", turns)


def _day(lake: Lake) -> tuple[float, float]:
    project, now = load(lake.path), datetime.now(UTC)
    bounds = [bound for bound in bind(project) if bound.kind == "evidence"]
    sources = Sources(project, project.pipelines[0], AuditSession(project, no_spark=True, spark=None))
    began = time.process_time()
    evidence = collect(sources, bounds, Options(), now)
    read = time.process_time() - began
    list(runner.run_evidence(bounds, evidence.seen_by, lambda: now))
    (sink,) = project.pipelines[0].sinks
    began = time.process_time()
    account = account_of(evidence.of_sink(sink.name))
    spent = time.process_time() - began
    assert account is not None and len(account) >= BATCHES * PARTITIONS
    assert {str(of) for of, count in account.sums.items() if count} == {"in a row"}
    return spent, read


def of_year() -> dict[str, Any]:
    """The account of a year beside reading its ledger."""
    with year() as folder:
        turns = [_year(folder) for _ in range(TURNS)][1:]
    return _result("account_year", turns)


def _year(folder: Path) -> tuple[float, float]:
    began = time.perf_counter()
    account = recon.account(folder, pipeline="p00", no_spark=True)
    spent = time.perf_counter() - began
    assert sum(account.sums.values()) == account.offsets and account.offsets
    began = time.perf_counter()
    DeltaTable(str(folder / "_recon" / "ledger")).to_pyarrow_table()
    return spent, time.perf_counter() - began


def _result(name: str, turns: list[tuple[float, float]]) -> dict[str, Any]:
    ours, floor = (statistics.median(times) for times in zip(*turns, strict=True))
    return {"name": name, "ours": ours, "floor": floor, "ratio": ours / floor, "unit": "s", "peers": {}}
