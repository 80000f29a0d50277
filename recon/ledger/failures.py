"""Failing rows kept beside the ledger, for checks with `store_failures`: appended by every audit, never dropped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recon.ledger import arrow
from recon.ledger.store import Filter, Store, open_store
from recon.model import plain
from recon.project import Project

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from recon.checks.bound import Bound

_TIME = "stored_at"
_MANY_FILES = 100


@dataclass(frozen=True, kw_only=True)
class FailingRows:
    """The failing rows of one check."""

    bound: Bound
    rows: Sequence[Mapping[str, Any]]


def failures_schema() -> pa.Schema:
    """One row per failing row of a check; `failing_row` is JSON."""
    import pyarrow as pa

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


def append_failures(
    store: Store, found: Iterable[FailingRows], *, invocation_id: str, project: str, at: datetime
) -> None:
    """Keeps the failing rows of a run, in one commit; none when there are none.

    Raises:
        LedgerError: the table cannot be written.
    """
    rows = [
        {
            "invocation_id": invocation_id,
            _TIME: at,
            "project": project,
            "pipeline": of.bound.pipeline,
            "sink": of.bound.sink,
            "unique_id": of.bound.unique_id,
            "name": of.bound.name,
            "check": of.bound.check.test,
            "row_number": number,
            "failing_row": json.dumps(plain(row), ensure_ascii=False, default=str),
            "date": at.date(),
        }
        for of in found
        for number, row in enumerate(of.rows, 1)
    ]
    if rows:
        store.append(arrow.table(rows, failures_schema()))
        if store.small_files() > _MANY_FILES:
            store.compact()


def stored_failures(store: Store, invocation_id: str | None = None) -> list[dict[str, Any]]:
    """The failing rows of one audit, of the newest that stored any when it is not said which; in their order.

    Raises:
        LedgerError: the table cannot be read.
    """
    found: list[dict[str, Any]] = []
    if invocation_id is not None:
        found = arrow.rows(store.read(Filter(equals=(("invocation_id", invocation_id),))))
    elif days := store.dates():
        newest = arrow.rows(store.read(Filter(dates=(days[-1],))))
        last = max(newest, key=lambda row: row[_TIME])["invocation_id"]
        found = [row for row in newest if row["invocation_id"] == last]
    for row in found:
        del row["date"]
        row["failing_row"] = json.loads(row["failing_row"])
    return sorted(found, key=lambda row: (row["unique_id"], row["row_number"]))
