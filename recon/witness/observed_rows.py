"""Which micro-batch each commit of a function for foreachBatch is of, where only its rows say so.

The function puts no number on its commits, and Delta drops none that is written again. A commit is of a micro-batch if
it came after the micro-batch's plan and before the next one, and each row has an offset that the micro-batch read. What
somebody else appends in that time has other offsets, or the same ones, which are then doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from recon.base.errors import EvidenceError
from recon.model import (
    CheckpointBatch,
    CheckpointWitness,
    CommitRows,
    EntryHead,
    TableCommit,
    TableLog,
    Unavailable,
)
from recon.model.offsets import OffsetSpan
from recon.witness.observed import is_of_entry, is_of_plan, ranges_of

# The rows of versions as if one commit had added them; raises EvidenceError where they may be read another time.
ReadRows = Callable[[Sequence[int]], CommitRows | Unavailable]


@dataclass(frozen=True)
class Placed:
    """What the rows of commits say.

    Attributes:
        numbers: the batch_id of each version that a micro-batch is known to have written. Two versions have the same
            batch_id where their rows have the same offsets: these are in the table twice.
        unread: versions whose rows could not be read this time, with the reason.
        unfit: versions that were committed in the time of a micro-batch and are not known to be of it, with the reason.
    """

    numbers: Mapping[int, int] = field(default_factory=dict)
    unread: Mapping[int, str] = field(default_factory=dict)
    unfit: Mapping[int, str] = field(default_factory=dict)


def placed(
    log: TableLog,
    checkpoint: CheckpointWitness | None,
    heads: Iterable[EntryHead],
    read: ReadRows,
    *,
    explodes: bool = False,
) -> Placed:
    """Places the commits of a log that name no micro-batch and that no entry names.

    Args:
        log: the table's log.
        checkpoint: the query's; without it nothing is placed.
        heads: the ledger's entries.
        read: reads the rows of some of the log's versions.
        explodes: whether the query makes several rows of one record: two commits with the same offsets may then be
            parts of one write.
    """
    if checkpoint is None:
        return Placed()
    entered = {
        head.sink_version: head.batch_id
        for head in heads
        if head.is_observed and head.sink_version is not None and head.query_id == checkpoint.query_id
        if (commit := log.commits.get(head.sink_version)) is None or is_of_entry(commit, head)
    }
    numbers: dict[int, int] = {}
    unread: dict[int, str] = {}
    unfit: dict[int, str] = {}
    for batch, commits in _in_time(log, checkpoint):
        held: list[int] = []
        for version in (commit.version for commit in commits if commit.version not in entered):
            try:
                rows = read([version])
            except EvidenceError as error:
                unread[version] = str(error)
                continue
            if isinstance(rows, Unavailable):
                unfit[version] = rows.reason
            elif are_within(rows.spans, ranges_of(batch)):
                held.append(version)
        of_batch = [version for version, number in entered.items() if number == batch.batch_id]
        try:
            several = sorted({*held, *of_batch})
            parts = bool(held) and len(several) > 1 and (explodes or _are_parts(several, read))
        except EvidenceError as error:
            unread.update(dict.fromkeys(held, str(error)))
            continue
        if parts:
            reason = f"it has a part of the rows of micro-batch {batch.batch_id}, and other versions have others"
            unfit.update(dict.fromkeys(held, reason))
        else:
            numbers.update(dict.fromkeys(held, batch.batch_id))
    return Placed(numbers, unread, unfit)


def are_within(spans: Iterable[OffsetSpan], ranges: Iterable[OffsetSpan]) -> bool:
    """Whether all offsets of rows are among those that were read, whatever the topics' ids."""
    of_place: dict[tuple[str, int], list[OffsetSpan]] = {}
    for span in ranges:
        of_place.setdefault((span.topic, span.partition), []).append(span)
    return all(
        any(
            read.start_offset <= span.start_offset and span.end_offset <= read.end_offset
            for read in of_place.get((span.topic, span.partition), ())
        )
        for span in spans
    )


def _in_time(log: TableLog, checkpoint: CheckpointWitness) -> Iterator[tuple[CheckpointBatch, Sequence[TableCommit]]]:
    """The commits of new rows alone between the plan of each micro-batch and the next plan.

    They append, or overwrite the table. Without those that say what they are of, and those that a RESTORE undid.
    """
    planned = {batch.batch_id: batch for batch in checkpoint.batches}
    undone = {
        version
        for commit in log.commits.values()
        if (target := commit.restored_version) is not None
        for version in range(target + 1, commit.version)
    }
    writes = [
        commit
        for version, commit in log.commits.items()
        if (commit.overwrites or (commit.adds_rows and not commit.files_removed))
        if commit.stamp is None and commit.wrote is None and version not in undone
    ]
    for number, batch in planned.items():
        following = planned.get(number + 1)
        if not batch.starts_known or batch.planned_at is None:
            continue
        if following is not None and following.planned_at is None:
            continue
        of_batch = [
            commit
            for commit in writes
            if is_of_plan(commit, batch) and not (following is not None and is_of_plan(commit, following))
        ]
        if of_batch:
            yield batch, of_batch


def _are_parts(versions: Sequence[int], read: ReadRows) -> bool:
    """Whether several versions have no offset in common, so that each is a part of what a micro-batch wrote."""
    alone, together = [read([version]) for version in versions], read(versions)
    if isinstance(together, Unavailable):
        return True  # whether rows are doubled is not known: the rows of the table show it
    return together.offsets == sum(rows.offsets for rows in alone if isinstance(rows, CommitRows))
