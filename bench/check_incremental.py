"""The ten checks of `check_suite` after 1 % of new rows: those rows alone, against the whole table.

A table of 10 million orders, appended and entered into the ledger as the hook does it, grows by 100,000 a micro-batch.
After each, two audits in one session: one whose recon.yml says `incremental: true`, and the same without. The first
keeps its state, its results and its index of keys; the second keeps nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.check_suite import RECON_YML, WORK, audit_once, frame
from bench.peers import measure

PER_BATCH = measure.ROWS // 100
REPEATS = 5


def run() -> dict[str, Any]:
    """Medians in seconds of the audit of the new rows (ours) and of the whole table (floor)."""
    from recon.local.spark import spark_session

    folder = WORK / "check_incremental"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    whole = (
        RECON_YML.replace("TABLE", "orders").replace("no_ledger", "ledger").replace(f", max_value: {measure.ROWS}", "")
    )
    (folder / "whole.yml").write_text(whole)
    (folder / "new.yml").write_text(whole + "defaults: {incremental: true}\n")
    spark = spark_session("check_incremental", conf=measure.CONF)
    try:
        grow = _feed(spark, folder)
        grow(measure.ROWS)
        audit_once(spark, folder / "new.yml", keep=True)  # the first one reads the whole table

        def ours() -> None:
            audit_once(spark, folder / "new.yml", keep=True)

        taken = measure.alternate(
            {"ours": ours, "floor": lambda: audit_once(spark, folder / "whole.yml", keep=False)},
            REPEATS,
            before=lambda: grow(PER_BATCH),
        )
    finally:
        spark.stop()
    shutil.rmtree(folder)
    return {
        "name": "check_suite_incremental",
        **taken,
        "ratio": taken["ours"] / taken["floor"],
        "unit": "s",
        "peers": {},
    }


def _feed(spark: Any, folder: Path) -> Callable[[int], None]:
    """Appends so many further orders as the next micro-batch, with the hook's stamp and ledger entry."""
    from recon.model import LedgerEntry, ReconStamp, offsets_text
    from recon.model.offsets import OffsetSpan
    from recon.project import load
    from recon.write.ledger import open_ledger
    from recon.write.sinks.delta.append import DeltaAppend

    ledger = open_ledger(load(folder / "new.yml"))
    writer = DeltaAppend(str(folder / "orders"))
    sizes: list[int] = []

    def grow(rows: int) -> None:
        first, batch_id, now = sum(sizes), len(sizes), datetime.now(UTC)
        spans = (OffsetSpan("orders", None, 0, first, first + rows),)
        stamp = ReconStamp(
            pipeline="orders",
            sink="orders",
            epoch=0,
            batch_id=batch_id,
            query_id="bench",
            run_id=None,
            prev_hash="",
            offsets_text=offsets_text(spans),
            number=batch_id + 1,
        )
        writer.write(frame(spark, rows, first), stamp)
        entry = LedgerEntry(
            pipeline="orders",
            sink="orders",
            sequence=0,
            sink_kind="delta",
            target=str(folder / "orders"),
            guarantee="exactly-once",
            query_id="bench",
            run_id=None,
            epoch=0,
            batch_id=batch_id,
            attempt=1,
            status="committed",
            rows_read=None,
            rows_written=rows,
            rows_quarantined=None,
            rows_filtered=None,
            sink_version=writer.confirm(stamp).version,
            started_at=now,
            committed_at=now,
            spark_version=None,
            recon_version="bench",
            checks_fingerprint=None,
            prev_hash="",
            entry_hash="",
            offsets=spans,
        )
        ledger.append(entry)
        sizes.append(rows)

    return grow
