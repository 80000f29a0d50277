"""What incremental checks measured, stored beside the ledger: one row per sink and audit, the newest counts.

A row holds the whole state of a sink's checks, not what an audit added to it, so that two audits at once cannot count
anything twice: the later row counts. Rows are only appended; the newest is in the newest day that has any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from recon._version import __version__
from recon.base.errors import LedgerError
from recon.write.ledger import arrow
from recon.write.ledger.store import Filter, LedgerTable, Store

Document = Mapping[str, Any]

# One row per sink and audit; `checks` is JSON: the state of each check by its unique id.
STATE = LedgerTable(
    kind="state",
    time="kept_at",
    columns={"pipeline": str, "sink": str, "kept_at": datetime, "checks": str, "recon_version": str},
)


def newest(store: Store, pipeline: str, sink: str) -> Document:
    """The newest state of a sink's checks by their unique ids; empty when there is none.

    Raises:
        LedgerError: it cannot be read.
    """
    for day in reversed(store.dates()):
        rows = arrow.rows(store.read(Filter.of(pipeline, sink, dates=(day,)), ["kept_at", "checks"]))
        if rows:
            row = max(rows, key=lambda row: row["kept_at"])
            try:
                checks = json.loads(row["checks"])
            except (TypeError, ValueError) as error:
                checks = error
            if not isinstance(checks, dict):
                raise LedgerError(
                    f"the state of pipeline {pipeline}, sink {sink} in {store.location}, kept at {row['kept_at']}, is "
                    "no JSON object; the next audit reads the whole table and keeps a new one"
                )
            return checks
    return {}


def keep(store: Store, pipeline: str, sink: str, read: Document, measured: Document, at: datetime) -> set[str]:
    """Appends a sink's state: what other audits stored meanwhile, and what this one measured.

    `read` is the state that the measuring went on from, `measured` the new state of the checks that were measured.
    Returns the names of the checks whose state is now the measured one.

    Raises:
        LedgerError: the table cannot be written.
    """
    try:
        stored = newest(store, pipeline, sink)
    except LedgerError:
        stored = {}  # it will be replaced
    # A check whose state another audit has stored meanwhile keeps that state: both are right.
    mine = {name: state for name, state in measured.items() if stored.get(name) == read.get(name)}
    checks = {**stored, **mine}
    if checks == stored:
        return set(mine)
    row = {
        "pipeline": pipeline,
        "sink": sink,
        "kept_at": at,
        "checks": json.dumps(checks, separators=(",", ":")),
        "recon_version": __version__,
    }
    store.append_rows([row])
    store.tidy()
    store.vacuum()
    return set(mine)
