"""Failing rows of checks with `store_failures`, stored beside the ledger: every audit appends, nothing is dropped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recon.lazy import pa
from recon.ledger import arrow
from recon.ledger.store import Filter, Store, open_store
from recon.model import RunResult, plain
from recon.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIME = "stored_at"
_MANY_FILES = 100


def failures_schema() -> pa.Schema:
    """One row per failing row of a check; `failing_row` is JSON."""
    text = pa.string()
    return pa.schema(
        [
            ("invocation_id", text),
            (_TIME, pa.timestamp("us", tz="UTC")),
            ("project", text),
            ("pipeline", text),
            ("sink", text),
            ("unique_id", text),
            ("name", text),
            ("check", text),
            ("row_number", pa.int64()),
            ("failing_row", text),
            ("date", pa.date32()),
        ]
    )


def open_failures(project: Project, spark: SparkSession | None = None) -> Store:
    """The table of failing rows of the project's ledger; nothing is created until the first append.

    Raises:
        ConfigError: `ledger` names neither a location nor a table.
    """
    return open_store(project, "failures", failures_schema(), _TIME, spark)


def append_failures(store: Store, run: RunResult, failing_rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Appends failing rows of a run, by the unique_id of their check, in one commit; none when there are none.

    Raises:
        LedgerError: the table cannot be written.
    """
    rows = [
        {
            "invocation_id": run.invocation_id,
            _TIME: run.generated_at,
            "project": run.project,
            "pipeline": result.pipeline,
            "sink": result.sink,
            "unique_id": result.unique_id,
            "name": result.name,
            "check": result.check,
            "row_number": number,
            "failing_row": json.dumps(plain(row), ensure_ascii=False, default=str),
            "date": run.generated_at.date(),
        }
        for result in run.results
        for number, row in enumerate(failing_rows.get(result.unique_id, ()), 1)
    ]
    if rows:
        store.append(arrow.table(rows, failures_schema()))
        if store.small_files() > _MANY_FILES:
            store.compact()


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
        last = max(newest, key=lambda row: row[_TIME])["invocation_id"]
        rows = [row for row in newest if row["invocation_id"] == last]
    for row in rows:
        del row["date"]
        row["failing_row"] = json.loads(row["failing_row"])
    return sorted(rows, key=lambda row: (row["unique_id"], row["row_number"]))
