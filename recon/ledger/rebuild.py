"""Restores ledger entries from a sink's own record: the ledger is a view of the stamped commits.

A crash between the data commit and the ledger row leaves a commit without an entry; its stamp holds everything that the
entry needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from recon.ledger import quarantined
from recon.ledger.entries import new_entry
from recon.ledger.ledger import Ledger
from recon.ledger.store import Filter
from recon.model import LedgerEntry, ReconStamp, SinkCommit, parse_offsets
from recon.project import Project, Sink
from recon.storage import Storage


def entry_of(commit: SinkCommit, sink: Sink, *, target: str, quarantined: int | None = None) -> LedgerEntry:
    """The entry that a stamped commit stands for, status `rebuilt`, not yet chained.

    `quarantined` is what the quarantine table's own log says, None where it says nothing. `started_at` is the commit's
    own time. `committed_at` is the time of the restoration, which keeps the chain in the order of time and lets the
    next audit judge the micro-batch.
    """
    stamp = commit.stamp
    # What the sink itself left out, because a later row has the same key; what the transform left out nobody knows.
    reduces = sink.rewrites and stamp.given is not None and commit.rows is not None
    return new_entry(
        stamp,
        sink,
        "rebuilt",
        target=target,
        offsets=parse_offsets(stamp.offsets_text),
        read=None,
        written=commit.rows,
        quarantined=quarantined,
        filtered=max((stamp.given or 0) - (commit.rows or 0), 0) if reduces else None,
        version=commit.version,
        started_at=commit.at,
    )


class Stamped(Protocol):
    """A commit, of a Delta log or any other record, that may be ours."""

    @property
    def stamp(self) -> ReconStamp | None:
        """Our mark, if it has one."""


S = TypeVar("S", bound=Stamped)


def unrecorded(commits: Iterable[S], pipeline: str, sink: str, known: Collection[tuple[int, int]]) -> list[S]:
    """Stamped commits of a (pipeline, sink) that no entry, by (epoch, batch_id), records; in the order given."""
    return [
        commit
        for commit in commits
        if commit.stamp is not None
        and (commit.stamp.pipeline, commit.stamp.sink) == (pipeline, sink)
        and (commit.stamp.epoch, commit.stamp.batch_id) not in known
    ]


def recorded(ledger: Ledger, pipeline: str, sink: str) -> set[tuple[int, int]]:
    """The (epoch, batch_id) of every entry of a (pipeline, sink)."""
    entries = ledger.store.read(Filter.of_sink(pipeline, sink), ["epoch", "batch_id"])
    return set(zip(entries["epoch"].to_pylist(), entries["batch_id"].to_pylist(), strict=True))


def restore(
    ledger: Ledger,
    pipeline: str,
    sink: Sink,
    commits: Iterable[SinkCommit],
    *,
    target: str,
    known: Collection[tuple[int, int]],
    quarantine: Callable[[], Mapping[tuple[int, int], int]] = dict,
) -> list[LedgerEntry]:
    """Append an entry for every commit that the ledger does not know.

    `quarantine` reads the quarantined rows per (epoch, batch_id); it is called only when an entry is missing.
    Returns the entries it appended, oldest first.
    """
    missing = unrecorded(commits, pipeline, sink.name, known)
    rows = quarantine() if missing else {}
    return [
        ledger.append(
            entry_of(commit, sink, target=target, quarantined=rows.get((commit.stamp.epoch, commit.stamp.batch_id)))
        )
        for commit in missing
    ]


def quarantine_of(project: Project, pipeline: str, sink: Sink) -> Mapping[tuple[int, int], int]:
    """Quarantined rows of a sink per (epoch, batch_id); empty where it has no quarantine table."""
    place = quarantined.location(project, pipeline, sink)
    storage = None if place is None else Storage(place, project.storage_options)
    return {} if storage is None else quarantined.rows_by_batch(storage, pipeline, sink.name)
