"""Restores ledger entries from a sink's own record: the ledger is a view of the stamped commits.

A crash between the data commit and the ledger row leaves a commit without an entry; its stamp holds everything that the
entry needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from recon.base.storage import Storage
from recon.model import LedgerEntry, ReconStamp, SinkCommit, SinkLog, parse_offsets
from recon.project import Project, Sink
from recon.write.ledger import arrow, quarantined
from recon.write.ledger.entries import new_entry
from recon.write.ledger.ledger import Ledger
from recon.write.ledger.store import Filter

CLOCKS_APART = timedelta(days=1)  # a sink's clock may differ from the ledger's by less than this


def entry_of(commit: SinkCommit, sink: Sink, *, target: str, quarantined: int | None = None) -> LedgerEntry:
    """The entry that a stamped commit stands for, status `rebuilt`, not yet chained.

    `quarantined` is what the quarantine table's own log says, None where it says nothing. `started_at` and
    `committed_at` are the commit's own time: an audit of that period judges it, whenever it was restored.
    """
    stamp = commit.stamp
    restored = new_entry(
        stamp,
        sink,
        "rebuilt",
        target=target,
        offsets=parse_offsets(stamp.offsets_text),
        read=stamp.rows_read,
        written=commit.rows,
        quarantined=quarantined,
        filtered=_filtered(commit, sink),
        version=commit.version,
        started_at=commit.at,
        removed=stamp.removed,
    )
    return replace(restored, committed_at=commit.at)


def _filtered(commit: SinkCommit, sink: Sink) -> int | None:
    """Rows of a commit that are not in the sink.

    The sink's record counts the rows that the sink left out, as a later row has the same key. Only the stamp of a
    repair counts those that the transform left out.
    """
    given, rows, of_repair = commit.stamp.given, commit.rows, commit.stamp.filtered
    if not sink.rewrites:
        return of_repair
    return None if given is None or rows is None else max(given - rows, 0) + (of_repair or 0)


def unrecorded(stamp: ReconStamp | None, pipeline: str, sink: str, entries: Collection[tuple[int, int]]) -> bool:
    """Whether a commit with this stamp is of a (pipeline, sink) and none of its entries, by (epoch, batch_id)."""
    return (
        stamp is not None
        and (stamp.pipeline, stamp.sink) == (pipeline, sink)
        and (stamp.epoch, stamp.batch_id) not in entries
    )


def recorded(ledger: Ledger, pipeline: str, sink: str) -> set[tuple[int, int]]:
    """The (epoch, batch_id) of every entry of a (pipeline, sink)."""
    key = ("epoch", "batch_id")
    return set(arrow.tuples(ledger.store.read(Filter.of(pipeline, sink), key), *key))


def missing(
    ledger: Ledger, pipeline: str, sink: str, recent: Sequence[LedgerEntry], read_log: Callable[..., SinkLog]
) -> list[SinkCommit]:
    """The commits of a sink's own record that have no entry.

    The record is read with `read_log`, the sink's `BatchSink.log`, from the newest of the `recent` entries on; without
    such, all of it.

    Raises:
        EvidenceError: the record cannot be read.
    """
    # A release or a repair may have written while the query was down: commits before it may still lack their entry.
    of_batches = [entry for entry in recent if entry.is_micro_batch]
    versions = [entry.sink_version for entry in of_batches if entry.sink_version is not None]
    since = max((entry.committed_at - CLOCKS_APART for entry in of_batches), default=None)
    # The newest entry's version, not the highest: a table that was made anew counts from 0.
    sink_log = read_log(after=versions[-1] if versions else None, since=since)
    newest = {(entry.epoch, entry.batch_id) for entry in recent}
    commits = [commit for commit in sink_log.commits if unrecorded(commit.stamp, pipeline, sink, newest)]
    # The record of a sink without versions goes further back than the newest entries.
    entries = recorded(ledger, pipeline, sink) if commits else ()
    return [commit for commit in commits if unrecorded(commit.stamp, pipeline, sink, entries)]


def restore(
    project: Project, ledger: Ledger, pipeline: str, sink: Sink, commits: Sequence[SinkCommit]
) -> list[LedgerEntry]:
    """Appends an entry for each commit; returns the entries, oldest first."""
    rows = _rows_quarantined(project, pipeline, sink) if commits else {}
    return [
        ledger.append(
            entry_of(
                commit,
                sink,
                target=project.location(sink),
                quarantined=rows.get((commit.stamp.epoch, commit.stamp.batch_id)),
            )
        )
        for commit in commits
    ]


def _rows_quarantined(project: Project, pipeline: str, sink: Sink) -> Mapping[tuple[int, int], int]:
    """Quarantined rows per (epoch, batch_id); empty where the sink has no quarantine table."""
    place = quarantined.location(project, pipeline, sink)
    return (
        {} if place is None else quarantined.rows_by_batch(Storage(place, project.storage_options), pipeline, sink.name)
    )
