"""Where a sink's quarantine table is, and how many rows of each micro-batch its own log counts."""

from __future__ import annotations

from collections.abc import Mapping

from recon.base.storage import Storage
from recon.model import RELEASES
from recon.project import Project, Sink
from recon.witness import delta_log


def location(project: Project, pipeline: str, sink: Sink) -> str | None:
    """The path or URI of a sink's quarantine table; None where recon.yml names no place for one.

    By default one table per sink in the ledger's folder; a ledger that is a catalog table has no folder.
    """
    if sink.quarantine.target is not None:
        return project.table_location(sink.quarantine.target)
    if project.ledger.location is None:
        return None
    return f"{project.resolve(project.ledger.location).rstrip('/')}/quarantine/{pipeline}/{sink.name}"


def exists(storage: Storage) -> bool:
    """Whether there is a Delta table."""
    return bool(storage.child("_delta_log").names())


def rows_by_batch(storage: Storage, pipeline: str, sink: str) -> Mapping[tuple[int, int], int]:
    """Quarantined rows per (epoch, batch_id), as far back as the table's log reaches; empty without a table."""
    rows: dict[tuple[int, int], int] = {}
    for commit in delta_log.read(storage).commits.values():
        stamp = commit.stamp
        ours = stamp is not None and (stamp.pipeline, stamp.sink) == (pipeline, sink)
        if stamp is not None and ours and stamp.epoch != RELEASES and commit.rows_added is not None:
            rows[stamp.epoch, stamp.batch_id] = commit.rows_added
    return rows
