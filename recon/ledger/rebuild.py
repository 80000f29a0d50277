"""Restore ledger entries from the Delta log: the ledger is a view of the stamped commits.

A crash between the data commit and the ledger row leaves a commit nobody recorded; its user_metadata holds
everything the entry needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

from recon._version import __version__
from recon.evidence import delta_log
from recon.ledger import quarantined
from recon.ledger.ledger import Ledger, open_ledger, utc_now
from recon.ledger.store import Filter
from recon.model import DeltaCommit, LedgerEntry, parse_offsets
from recon.project import Pipeline, Project, Sink
from recon.storage import Storage


def entry_of(
    commit: DeltaCommit,
    *,
    target: str,
    kind: str,
    guarantee: str,
    restored_at: datetime,
    rows_quarantined: int | None = None,
) -> LedgerEntry:
    """The entry that a stamped commit stands for, status `rebuilt`, not yet chained.

    `rows_quarantined` is what the quarantine table's own log says, None where it says nothing. `started_at` is the
    commit's own time. `committed_at` is the time of the restoration, which keeps the chain in the order of time and
    lets the next audit judge the micro-batch.
    """
    stamp = commit.stamp
    assert stamp is not None
    return LedgerEntry(
        pipeline=stamp.pipeline,
        sink=stamp.sink,
        sink_kind=kind,
        target=target,
        guarantee=guarantee,
        query_id=stamp.query_id,
        run_id=stamp.run_id,
        epoch=stamp.epoch,
        batch_id=stamp.batch_id,
        attempt=1,
        status="rebuilt",
        offsets=parse_offsets(stamp.offsets_text),
        rows_read=None,
        rows_written=commit.rows_added,
        rows_quarantined=rows_quarantined,
        rows_filtered=None,
        sink_version=commit.version,
        started_at=commit.timestamp,
        committed_at=restored_at,
        spark_version=None,
        recon_version=__version__,
        checks_fingerprint=None,
        prev_hash="",
        entry_hash="",
    )


def unrecorded(
    commits: Iterable[DeltaCommit], pipeline: str, sink: str, known: Collection[tuple[int, int]]
) -> list[DeltaCommit]:
    """Stamped commits of a (pipeline, sink) that no entry, by (epoch, batch_id), records; oldest first."""
    return [
        commit
        for commit in sorted(commits, key=lambda c: c.version)
        if commit.stamp is not None
        and (commit.stamp.pipeline, commit.stamp.sink) == (pipeline, sink)
        and (commit.stamp.epoch, commit.stamp.batch_id) not in known
    ]


def recorded(ledger: Ledger, pipeline: str, sink: str) -> set[tuple[int, int]]:
    """The (epoch, batch_id) of every entry of a (pipeline, sink)."""
    which = Filter(equals=(("pipeline", pipeline), ("sink", sink)))
    found = ledger.store.read(which, ["epoch", "batch_id"])
    return set(zip(found["epoch"].to_pylist(), found["batch_id"].to_pylist(), strict=True))


def restore(
    ledger: Ledger,
    pipeline: str,
    sink: str,
    *,
    target: str,
    storage: Storage,
    kind: str,
    guarantee: str,
    after_version: int | None,
    known: Collection[tuple[int, int]],
    quarantine: Callable[[], Mapping[tuple[int, int], int]] = dict,
) -> list[LedgerEntry]:
    """Append an entry for every stamped commit after a version that the ledger does not know.

    `quarantine` tells the rows put aside per (epoch, batch_id); it is asked only when an entry is missing.
    Returns the entries it appended, oldest first.
    """
    witness = delta_log.read(storage, from_version=None if after_version is None else after_version + 1)
    missing = unrecorded(witness.commits.values(), pipeline, sink, known)
    aside = quarantine() if missing else {}
    return [
        ledger.append(
            entry_of(
                commit,
                target=target,
                kind=kind,
                guarantee=guarantee,
                restored_at=utc_now(),
                rows_quarantined=aside.get((commit.stamp.epoch, commit.stamp.batch_id)) if commit.stamp else None,
            )
        )
        for commit in missing
    ]


def quarantine_of(project: Project, pipeline: str, sink: Sink) -> Mapping[tuple[int, int], int]:
    """Rows of a sink put aside per (epoch, batch_id); empty where it has no quarantine table."""
    place = quarantined.location(project, pipeline, sink)
    storage = None if place is None else Storage(place, project.storage_options)
    return {} if storage is None else quarantined.rows_by_batch(storage, pipeline, sink.name)


def rebuild(project: Project, pipeline: str | None = None, sink: str | None = None) -> list[LedgerEntry]:
    """Restore what is missing for every (or the named) pipeline and sink, as far as the Delta log reaches.

    Raises:
        LedgerError: the ledger cannot be written.
        EvidenceError: a Delta log cannot be read.
    """
    ledger = open_ledger(project)
    restored: list[LedgerEntry] = []
    for pipe, out in _chosen(project, pipeline, sink):
        target = project.resolve(out.target)
        restored += restore(
            ledger,
            pipe.name,
            out.name,
            target=target,
            storage=Storage(target, project.storage_options),
            kind=out.kind,
            guarantee=out.guarantee,
            after_version=None,
            known=recorded(ledger, pipe.name, out.name),
            quarantine=lambda pipe=pipe, out=out: quarantine_of(project, pipe.name, out),  # type: ignore[misc]
        )
    return restored


def _chosen(project: Project, pipeline: str | None, sink: str | None) -> Iterable[tuple[Pipeline, Sink]]:
    for pipe in project.pipelines:
        for out in pipe.sinks:
            if pipeline in (None, pipe.name) and sink in (None, out.name):
                yield pipe, out
