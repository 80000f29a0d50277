"""What a stream wrote without recon: which micro-batch each commit of its table is of, and what it read.

Spark's own Delta sink puts the query_id and the batch_id on a commit, and nothing else. A user's function for
foreachBatch may put an application id and the batch_id there (Delta's options txnAppId and txnVersion). Where it puts
nothing there, the rows of a commit say it (recon.witness.observed_rows). The offsets of a micro-batch are in the
checkpoint as long as Spark keeps its plan. Afterwards they are in the ledger, if they were entered in time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from recon.model import (
    CheckpointBatch,
    CheckpointWitness,
    EntryHead,
    LedgerSlice,
    ReconStamp,
    TableCommit,
    TableLog,
    Unstamped,
    offsets_text,
)
from recon.model.delta_offsets import BEGINNING, is_delta, table_of
from recon.model.offsets import OffsetSpan

# How long an audit may take from reading the checkpoint to reading the log: what is older was not written meanwhile.
_READING = timedelta(minutes=10)


class Front(NamedTuple):
    """The micro-batch of a sink that was entered last: the next one of the same query goes on with its epoch."""

    epoch: int
    query_id: str
    batch_id: int

    def epoch_of(self, query_id: str, batch_id: int) -> int:
        """The epoch of a micro-batch that was written after this one."""
        goes_on = query_id == self.query_id and batch_id > self.batch_id
        return self.epoch if goes_on else self.epoch + 1


def front_of(head: EntryHead | None) -> Front:
    """The front after an entry of a micro-batch; before the first entry the next micro-batch begins epoch 0."""
    return Front(-1, "", -1) if head is None else Front(head.epoch, head.query_id, head.batch_id)


def attributed(
    log: TableLog,
    app_id: str | None,
    checkpoint: CheckpointWitness | None,
    heads: Iterable[EntryHead] = (),
    by_rows: Mapping[int, int] | None = None,
) -> TableLog:
    """The log, in which commits of the user's own function for foreachBatch say what they wrote, as Spark's own do.

    Such a commit has the batch_id, and not the query_id. It is of the query that an entry of the ledger names for its
    version. Without an entry it is of the checkpoint's query, if it was committed after this batch_id was planned there
    and before the next one was. If not, another query wrote it, such as one whose checkpoint is lost, or its numbers
    are no batch ids.

    Args:
        log: a Delta table's log.
        app_id: the application id of its function; None for a query that writes otherwise, or did once.
        checkpoint: the query's; None where it cannot be read.
        heads: the ledger's entries.
        by_rows: the batch_id of versions of which the rows say it.
    """
    by_rows = by_rows or {}
    entered = {head.sink_version: head for head in heads if head.is_observed and head.sink_version is not None}
    planned = {} if checkpoint is None else {batch.batch_id: batch for batch in checkpoint.batches}
    commits = dict(log.commits)
    for version, commit in log.commits.items():
        if commit.stamp is not None or commit.wrote is not None:
            continue
        head = entered.get(version)
        if head is not None and is_of_entry(commit, head):
            wrote = (head.query_id, head.batch_id)
        elif app_id is not None and checkpoint is not None and app_id in commit.txn:
            number = commit.txn[app_id]
            batch, following = planned.get(number), planned.get(number + 1)
            early = batch is not None and not is_of_plan(commit, batch)
            late = following is not None and is_of_plan(commit, following) and following.planned_at is not None
            wrote = ("" if early or late else checkpoint.query_id, number)
        elif version in by_rows and checkpoint is not None:
            wrote = (checkpoint.query_id, by_rows[version])
        else:
            continue
        commits[version] = replace(commit, wrote=wrote)
    return replace(log, commits=commits)


def written(log: TableLog, *, after: int = -1) -> Iterator[tuple[TableCommit, tuple[str, int]]]:
    """The commits newer than a version that name their micro-batch, with (query_id, batch_id), oldest first."""
    for version, commit in sorted(log.commits.items()):
        if version > after and commit.wrote is not None:
            yield commit, commit.wrote


def plans(checkpoint: CheckpointWitness) -> Mapping[tuple[str, int], CheckpointBatch]:
    """The micro-batches that a checkpoint still has whole, by (query_id, batch_id)."""
    return {(checkpoint.query_id, batch.batch_id): batch for batch in checkpoint.batches if batch.starts_known}


def is_of_plan(commit: TableCommit, batch: CheckpointBatch) -> bool:
    """Whether a commit may be of a plan: Spark plans a micro-batch before it writes it.

    A checkpoint that was made anew by hand may have plans for numbers that the table has from before.
    """
    return batch.planned_at is None or batch.planned_at <= commit.timestamp


def is_of_entry(commit: TableCommit, head: EntryHead) -> bool:
    """Whether a commit is the one that an observed entry was made of, where its version is the entry's.

    Such an entry has the time of its commit, which is all that a commit without a number has in common with it.
    """
    same = head.batch_id in commit.txn.values() if commit.txn else head.committed_at == commit.timestamp
    own = commit.wrote is None and commit.stamp is None and same
    return own or commit.wrote == (head.query_id, head.batch_id)


def is_by_rows(commit: TableCommit) -> bool:
    """Whether a commit says which micro-batch it is of by its rows alone: then Delta drops no second one."""
    return commit.wrote is not None and commit.wrote[1] not in commit.txn.values()


def ranges_of(
    batch: CheckpointBatch, beginning: int = BEGINNING, starts: Mapping[tuple[str, int], int] | None = None
) -> tuple[OffsetSpan, ...]:
    """What a micro-batch read, without the ids of Kafka's topics.

    Spark reads a partition that is new in it from its log start, which is not in the checkpoint. `starts` has it where
    it is known; else it is taken as 0, so that offsets without a row are reported as missing. One that went back read
    nothing. `beginning` is where the query begins with a Delta table.
    """
    ranges = [span._replace(start_offset=min(span.start_offset, span.end_offset)) for span in batch.ranges]
    for source, topic, partition, end in batch.new_partitions:
        if is_delta(topic):
            ranges.append(OffsetSpan(topic, table_of(topic), partition, min(beginning, end), end, source))
        else:
            start = (starts or {}).get((topic, partition), 0)
            ranges.append(OffsetSpan(topic, None, partition, min(start, end), end, source))
    return tuple(ranges)


def with_stamps(
    log: TableLog,
    ledger: LedgerSlice | None,
    checkpoint: CheckpointWitness | None,
    pipeline: str,
    sink: str,
    now: datetime,
    beginning: int = BEGINNING,
) -> TableLog:
    """The log with a stamp on each commit of a micro-batch, written without recon, of which it is known what it read.

    So the ledger's entries say, or, of those that have no entry yet, the plans in the checkpoint. Of the others of the
    same queries it says why nothing is known.

    Args:
        log: a Delta table's log, attributed.
        ledger: the sink's entries.
        checkpoint: the checkpoint of a query that writes without recon; None for one that recon writes now.
        pipeline: the pipeline's name.
        sink: the sink's name.
        now: the audit's clock, UTC.
        beginning: where the query begins with a Delta table, as an offset.
    """
    entered = dict(_entered(ledger)) if ledger is not None else {}
    planned = plans(checkpoint) if checkpoint is not None else {}
    front = _front(ledger)
    known = _numbers(ledger)
    queries = {query_id for query_id, _ in known} | ({checkpoint.query_id} if checkpoint is not None else set())
    commits = dict(log.commits)
    unstamped: dict[int, Unstamped] = {}
    first = {(query_id, batch_id): stamp for (_, query_id, batch_id), stamp in entered.items()}
    for commit, (query_id, batch_id) in written(log):
        if commit.files_removed:
            continue  # it replaced rows, as in outputMode complete: judged as anybody's commit that does
        stamp = entered.get((commit.version, query_id, batch_id))
        plan = planned.get((query_id, batch_id))
        if stamp is None and plan is not None and is_by_rows(commit):
            if not plan.committed:
                unstamped[commit.version] = Unstamped.LATER  # Spark tries the micro-batch again, and writes it again
                continue
            stamp = first.get((query_id, batch_id))  # as of the same micro-batch: it was committed twice
        if stamp is None and plan is not None and (query_id, batch_id) not in known and is_of_plan(commit, plan):
            epoch = front.epoch_of(query_id, batch_id)
            front = Front(epoch, query_id, batch_id)
            stamp = _stamp(pipeline, sink, front, offsets_text(ranges_of(plan, beginning)))
        if stamp is not None:
            commits[commit.version] = replace(commit, stamp=stamp)
            first.setdefault((query_id, batch_id), stamp)
        elif query_id in queries:
            unstamped[commit.version] = _why_unstamped(commit, (query_id, batch_id), ledger, checkpoint, now)
    return replace(log, commits=commits, unstamped=unstamped)


def _why_unstamped(
    commit: TableCommit,
    wrote: tuple[str, int],
    ledger: LedgerSlice | None,
    checkpoint: CheckpointWitness | None,
    now: datetime,
) -> Unstamped:
    last = checkpoint.last if checkpoint is not None and checkpoint.query_id == wrote[0] else None
    if last is not None and wrote[1] > last.batch_id and commit.timestamp > now - _READING:
        return Unstamped.LATER
    if ledger is None:
        return Unstamped.UNSEEN
    if any(version == commit.version for _, _, version in ledger.recorded):
        return Unstamped.ELSEWHERE
    versions = [head.sink_version for head in ledger.heads if head.sink_version is not None]
    return Unstamped.BEFORE if ledger.complete and commit.version < min(versions, default=0) else Unstamped.UNSEEN


def _entered(ledger: LedgerSlice) -> Iterator[tuple[tuple[int, str, int], ReconStamp]]:
    """The stamps of entries, by (version, query_id, batch_id): an entry names the commit that it was made of."""
    for place, head in enumerate(ledger.heads):
        if head.is_observed and head.sink_version is not None:
            ranges = ledger.offsets_texts[place] if ledger.offsets_texts else offsets_text(ledger.ranges.of(place))
            front = Front(head.epoch, head.query_id, head.batch_id)
            yield (head.sink_version, head.query_id, head.batch_id), _stamp(ledger.pipeline, ledger.sink, front, ranges)


def _front(ledger: LedgerSlice | None) -> Front:
    heads = [] if ledger is None else [head for head in ledger.heads if head.is_micro_batch]
    return front_of(max(heads, key=lambda head: (head.epoch, head.batch_id), default=None))


def _numbers(ledger: LedgerSlice | None) -> Collection[tuple[str, int]]:
    return set() if ledger is None else {(head.query_id, head.batch_id) for head in ledger.heads}


def _stamp(pipeline: str, sink: str, at: Front, ranges: str) -> ReconStamp:
    """Nothing in such a commit names a ledger entry: it follows none."""
    return ReconStamp(
        pipeline=pipeline,
        sink=sink,
        epoch=at.epoch,
        batch_id=at.batch_id,
        query_id=at.query_id,
        run_id=None,
        prev_hash="",
        offsets_text=ranges,
    )
