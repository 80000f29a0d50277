"""A proof that an entry is in a ledger of three million: `recon ledger prove`, with and without kept hashes.

The ledger has a year of one chain in a file a day, as a merge of small files leaves it. One entry has a real seal, the
others random hashes, which a tree does not tell apart. Its head is signed once, which keeps the hashes; then the entry
is proved.

Ours: the proof with kept hashes. Floor: the same proof when all hashes are read from the ledger again.
"""

from __future__ import annotations

import base64
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from recon.model import LedgerEntry
from recon.model.offsets import OffsetSpan
from recon.project import DeltaSink, Heads, LedgerConfig, Pipeline, Project
from recon.write.ledger import columns, open_ledger
from recon.write.ledger.chain import link
from recon.write.ledger.heads import proving, signing

DAYS, A_DAY = 365, 8_220
PROVED = 1_234_567
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
CHAIN = ("orders", "orders")


def run() -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="recon-heads-"))
    try:
        project = _project(folder)
        _fill(project)
        ledger, keys = open_ledger(project), signing.public_keys(project)
        begun = time.perf_counter()
        assert signing.sign(project, ledger, datetime.now(UTC)).document is not None
        print(f"  signed for the first time in {time.perf_counter() - begun:.1f} s", file=sys.stderr)
        begun = time.perf_counter()
        assert signing.sign(project, ledger, datetime.now(UTC)).document is not None
        print(f"  signed again in {time.perf_counter() - begun:.2f} s", file=sys.stderr)

        def prove() -> int:
            return len(proving.dump(proving.prove(project, open_ledger(project), keys, CHAIN, str(PROVED))))

        ours = [_seconds(prove) for _ in range(5)]
        print(f"  {prove()} bytes", file=sys.stderr)
        shutil.rmtree(folder / "_recon/heads/hashes")
        floor = [_seconds(prove) for _ in range(2)]
    finally:
        shutil.rmtree(folder)
    result = {"name": "heads_proof", "ours": statistics.median(ours), "floor": statistics.median(floor), "unit": "s"}
    return {**result, "ratio": result["ours"] / result["floor"], "peers": {}}


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _project(folder: Path) -> Project:
    return Project(
        name="lake",
        ledger=LedgerConfig(location="_recon"),
        heads=Heads(key=base64.b64encode(bytes(32)).decode()),
        pipelines=(Pipeline(name="orders", checkpoint="cp", sinks=(DeltaSink(name="orders", target="orders"),)),),
        project_dir=folder,
    )


def _fill(project: Project) -> None:
    ledger, random = open_ledger(project), np.random.default_rng(1)
    for day in range(DAYS):
        at = BEGIN + timedelta(days=day)
        first = day * A_DAY + 1
        rows = columns.to_table([_entry(first, at)]).take(pa.array([0] * A_DAY))
        digits = random.bytes(32 * A_DAY).hex()
        hashes = [digits[at : at + 64] for at in range(0, len(digits), 64)]
        sequences = pa.array(range(first, first + A_DAY), pa.int64())
        parts = {"sequence": sequences, "entry_hash": pa.array(hashes)}
        for name, values in parts.items():
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
        if first <= PROVED < first + A_DAY:
            place = PROVED - first
            real = columns.to_table([_entry(PROVED, at)])
            rows = pa.concat_tables([rows.slice(0, place), real, rows.slice(place + 1)])
        write_deltalake(ledger.store.location, rows, mode="append", partition_by=["date"],
                        description="recon ledger, schema version 1")  # fmt: skip


def _entry(sequence: int, at: datetime) -> LedgerEntry:
    span = OffsetSpan("orders", "id-1", 0, sequence * 10, sequence * 10 + 10)
    values: dict[str, Any] = {
        "pipeline": "orders", "sink": "orders", "sequence": sequence, "sink_kind": "delta", "target": "/lake/orders",
        "guarantee": "exactly-once", "query_id": "q-1", "run_id": None, "epoch": 0, "batch_id": sequence, "attempt": 1,
        "status": "committed", "rows_read": 10, "rows_written": 10, "rows_quarantined": 0, "rows_filtered": 0,
        "sink_version": sequence, "started_at": at, "committed_at": at, "spark_version": None, "recon_version": "0",
        "checks_fingerprint": None, "prev_hash": "", "entry_hash": "", "offsets": (span,),
    }  # fmt: skip
    return link(LedgerEntry(**values), "0" * 64)
