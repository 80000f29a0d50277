"""Failing rows of checks with `store_failures`, stored beside the ledger: every audit appends, nothing is dropped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from recon.base.storage import Storage, make_private_folder
from recon.model import RunResult, plain
from recon.write.ledger import arrow
from recon.write.ledger.store import Filter, LedgerTable, Store

# One row per failing row of a check; `failing_row` is JSON.
FAILURES = LedgerTable(
    kind="failures",
    time="stored_at",
    columns={
        "invocation_id": str,
        "stored_at": datetime,
        "project": str,
        "pipeline": str,
        "sink": str,
        "unique_id": str,
        "name": str,
        "check": str,
        "row_number": int,
        "failing_row": str,
    },
)


def append_failures(store: Store, run: RunResult, failing_rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Appends failing rows of a run, by the unique_id of their check, in one commit; none when there are none.

    Raises:
        LedgerError: the table cannot be written.
    """
    rows = [
        {
            "invocation_id": run.invocation_id,
            "stored_at": run.generated_at,
            "project": run.project,
            "pipeline": result.pipeline,
            "sink": result.sink,
            "unique_id": result.unique_id,
            "name": result.name,
            "check": result.check,
            "row_number": number,
            "failing_row": json.dumps(plain(row), ensure_ascii=False, default=str),
        }
        for result in run.results
        for number, row in enumerate(failing_rows.get(result.unique_id, ()), 1)
    ]
    if rows:
        folder = Storage(store.location).local
        if folder is not None and folder.is_absolute():  # a catalog's name is no path
            make_private_folder(folder)
        store.append_rows(rows)
        store.tidy()
        store.vacuum()


def stored_failures(store: Store, invocation_id: str | None = None) -> list[dict[str, Any]]:
    """The failing rows of one audit, by default of the newest that stored any, in their order.

    Raises:
        LedgerError: the table cannot be read.
    """
    rows: list[dict[str, Any]] = []
    if invocation_id is not None:
        rows = arrow.rows(store.read(Filter(equals=(("invocation_id", invocation_id),))))
    elif days := store.dates():
        newest = arrow.rows(store.read(Filter(dates=(days[-1],))))
        last = max(newest, key=lambda row: row["stored_at"])["invocation_id"]
        rows = [row for row in newest if row["invocation_id"] == last]
    for row in rows:
        del row["date"]
        row["failing_row"] = json.loads(row["failing_row"])
    return sorted(rows, key=lambda row: (row["unique_id"], row["row_number"]))
