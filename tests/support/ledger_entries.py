"""Ledger entries for tests, without a stream."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from recon.base.clock import clock
from recon.model import LedgerEntry
from recon.model.offsets import OffsetSpan
from recon.project import DeltaSink, LedgerConfig, Pipeline, Project
from recon.write.ledger import open_ledger
from recon.write.ledger.store import Housekeeping

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def entry(batch_id: int = 0, *, at: datetime = AT, **changes: Any) -> LedgerEntry:
    values: dict[str, Any] = {
        "pipeline": "orders",
        "sink": "orders",
        "sequence": 0,
        "sink_kind": "delta",
        "target": "/lake/orders",
        "guarantee": "exactly-once",
        "query_id": "q-1",
        "run_id": None,
        "epoch": 0,
        "batch_id": batch_id,
        "attempt": 1,
        "status": "committed",
        "rows_read": 20,
        "rows_written": 20,
        "rows_quarantined": 0,
        "rows_filtered": 0,
        "sink_version": batch_id,
        "started_at": at,
        "committed_at": at,
        "spark_version": "4.0.0",
        "recon_version": "0.1.0",
        "checks_fingerprint": None,
        "prev_hash": "",
        "entry_hash": "",
        "offsets": tuple(OffsetSpan("orders", "id-1", p, batch_id * 10, batch_id * 10 + 10) for p in range(2)),
    }
    return LedgerEntry(**{**values, **changes})


def project(folder: Path, **ledger: Any) -> Project:
    return Project(
        name="lake",
        ledger=LedgerConfig(**(ledger or {"location": "_recon"})),
        pipelines=(Pipeline(name="orders", checkpoint="cp", sinks=(DeltaSink(name="orders", target="orders"),)),),
        project_dir=folder,
    )


def data_files(table: Path) -> list[Path]:
    """Every data file in the folder of one of the ledger's tables, live or not."""
    return list(table.glob("date=*/*.parquet"))


def later(**by: float) -> AbstractContextManager[None]:
    """Lets recon's clock run ahead, by a `timedelta`."""
    return clock(lambda: datetime.now(UTC) + timedelta(**by))


def tidy(folder: Path, **sizes: int) -> None:
    """What an audit does to the files of the ledger of `project`, with the sizes of its `Housekeeping`."""
    open_ledger(project(folder), housekeeping=Housekeeping(**sizes)).tidy()


def merged_days_ago(table: Path, days: int) -> None:
    """Lets the log of a table say so of every file that was removed from it."""
    for commit in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] -= days * 86_400_000
        commit.write_text("\n".join(map(json.dumps, actions)))
