"""Rows of the `recon_ledger` table of a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from recon.base.errors import EvidenceError
from recon.model.evidence import ReconStamp
from recon.model.wire.values import checked

LEDGER_TABLE = "recon_ledger"
KEY = ("pipeline", "sink", "epoch", "batch_id")  # the primary key


@dataclass(frozen=True, kw_only=True)
class JdbcEntry:
    """A micro-batch in the database's own ledger.

    `given` counts the rows that were staged, `rows` those that the target took in; `at` is the time of the commit. Of a
    repair that removed doubled rows, `given` counts the offsets that had a row, and `rows` those that were removed.
    """

    stamp: ReconStamp
    target: str
    given: int
    rows: int
    at: datetime
    recon_version: str


def ledger_key(stamp: ReconStamp) -> dict[str, Any]:
    """The primary key of a micro-batch's row."""
    return {name: getattr(stamp, name) for name in KEY}


def dump_ledger_row(entry: JdbcEntry) -> dict[str, Any]:
    """The columns of an entry; times in the table are UTC without a zone."""
    stamp = entry.stamp
    return {
        **ledger_key(stamp),
        "write_number": stamp.number,
        "query_id": stamp.query_id,
        "run_id": stamp.run_id,
        "target": entry.target,
        "offsets": stamp.offsets_text,
        "prev_hash": stamp.prev_hash,
        "rows_given": entry.given,
        "rows_written": entry.rows,
        "committed_at": entry.at.astimezone(UTC).replace(tzinfo=None),
        "recon_version": entry.recon_version,
    }


def parse_ledger_row(row: Mapping[str, Any]) -> JdbcEntry:
    """The entry that a row stands for.

    Raises:
        EvidenceError: a column does not hold what recon writes there.
    """
    try:
        stamp = ReconStamp(
            **{name: row[name] for name in KEY},
            number=row["write_number"],
            query_id=row["query_id"],
            run_id=row["run_id"],
            prev_hash=row["prev_hash"],
            offsets_text=row["offsets"],
        )
        entry = JdbcEntry(
            stamp=checked(stamp),
            target=row["target"],
            given=row["rows_given"],
            rows=row["rows_written"],
            recon_version=row["recon_version"],
            at=row["committed_at"].replace(tzinfo=UTC),
        )
        return checked(entry)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EvidenceError(
            f"a row of {LEDGER_TABLE} with the key {[row.get(name) for name in KEY]} does not hold what recon writes "
            f"there ({error}); restore the row, or the table, from a backup"
        ) from error
