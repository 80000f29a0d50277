"""Which ledger entry, or commit of the sink, belongs to which plan of the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from recon.judge.checkpoint.entered import Entered
from recon.judge.checkpoint.plans import fits, planned_ranges, rest_of, stamped_ranges
from recon.judge.checkpoint.transactions import Transactions
from recon.judge.coverage import Coverage, Key, coverage
from recon.judge.history.table_history import TableHistory
from recon.judge.second_calls import second_calls
from recon.model import (
    CheckpointBatch,
    CheckpointWitness,
    EntryHead,
    ReconStamp,
    TableCommit,
)
from recon.model.grouping import grouped
from recon.model.offsets import Spans


@dataclass
class Writes:
    """What one sink holds of one query: its ledger entries, its stamped commits and its transaction numbers.

    `observed` is whether the query writes without recon, `own_function` whether a function of the user's own does,
    `placed_by_rows` whether nothing but rows says of which micro-batch its commits are.
    """

    history: TableHistory
    checkpoint: CheckpointWitness
    observed: bool = False
    own_function: bool = False
    placed_by_rows: bool = False

    @cached_property
    def entered(self) -> Entered:
        """How plans compare with the entries of the same number."""
        return Entered(self.covered, self.checkpoint)

    def commit_of(self, batch: CheckpointBatch) -> TableCommit | None:
        """The newest commit without an entry that accounts for this plan."""
        plan = planned_ranges(batch)
        for commit, stamp in reversed(self.stamped.get((self.checkpoint.query_id, batch.batch_id), ())):
            if (stamp.epoch, stamp.batch_id) in self._recorded:
                continue  # it belongs to an entry, which is not this plan's
            if commit.version <= self.history.looked_up_to:
                continue  # earlier audits looked at it
            held = stamped_ranges(stamp)
            rest = rest_of(plan, held)
            if fits(plan, held, batch) and all(not left.minus(self.held(key)) for key, left in rest):
                return commit
        return None

    def held(self, key: Key) -> Spans:
        """All offsets that the ledger covers of a topic partition's present incarnation."""
        incarnation = self.covered.newest(key)
        return incarnation.walked.covered if incarnation is not None else Spans()

    def topic_id(self, key: Key) -> str | None:
        """The topic id under which a topic partition was read last; None where it is not known.

        A partition that no entry has is one of the topic that the other partitions are of.
        """
        incarnation = self.covered.newest(key)
        if incarnation is not None:
            return incarnation.topic_id
        of_topic = (of[-1] for other, of in self.covered.incarnations.items() if other.topic == key.topic)
        ids = {of_partition.topic_id for of_partition in of_topic}
        return ids.pop() if len(ids) == 1 else None

    @cached_property
    def first_judged(self) -> int | None:
        """The batch_id of this query from which on micro-batches are the business of this audit; None for all."""
        anchors = self.history.anchors
        # What lies before the newest anchor of this query was judged by earlier audits.
        before = [head.batch_id for head in anchors if self._is_own(head)]
        if before:
            return max(before) + 1
        own = [head.batch_id for head in self.heads if self._is_own(head)]
        if not self.heads:
            own = [batch_id for query_id, batch_id in self.stamped if query_id == self.checkpoint.query_id]
        return min(own, default=None)

    @cached_property
    def first_entry(self) -> EntryHead | None:
        """The first entry of the whole ledger; None where earlier ones are not in the slice."""
        if not self.history.is_complete:
            return None
        return min(
            (head for head in self.heads if head.is_micro_batch), key=lambda h: (h.epoch, h.batch_id), default=None
        )

    def _is_own(self, head: EntryHead) -> bool:
        return head.query_id == self.checkpoint.query_id and head.is_micro_batch

    def skipping_app(self, batch: CheckpointBatch, *, new_epoch: bool) -> str | None:
        """The app id under which Delta takes this write for one that the table has already; None for none."""
        beyond = batch.batch_id > max(self.entered.entries, default=-1)
        return self.transactions.skipping(batch.batch_id, new_epoch=new_epoch, beyond=beyond)

    @cached_property
    def covered(self) -> Coverage:
        """The ledger's ranges."""
        return coverage(self.history.ledger)

    @cached_property
    def stamped(self) -> Mapping[tuple[str, int], Sequence[tuple[TableCommit, ReconStamp]]]:
        """This sink's commits by (query_id, batch_id), newest last."""
        return grouped(((stamp.query_id, stamp.batch_id), (commit, stamp)) for commit, stamp in self.history.own)

    @cached_property
    def unseen(self) -> Mapping[int, int]:
        """The versions of this query's micro-batches that Spark's own sink wrote, by batch_id."""
        versions: dict[int, int] = {}
        for version, commit in self.history.log.commits.items():
            if commit.stamp is None and commit.wrote is not None and commit.wrote[0] == self.checkpoint.query_id:
                versions.setdefault(commit.wrote[1], version)
        return versions

    def unplaced(self, batch: CheckpointBatch) -> TableCommit | None:
        """A commit that may be a micro-batch's, or another's, where a function of the user's own writes.

        It has the number under some application id and was taken for no micro-batch, or adds rows between this plan and
        the next one and has no number at all. Where rows alone say which micro-batch a commit is of, it may be of any
        time since the first entry.
        """
        first, planned = min(self._entered_versions, default=0), batch.planned_at
        until = next((b.planned_at for b in self.checkpoint.batches if b.batch_id == batch.batch_id + 1), None)
        for commit in self._of_nobody:
            in_time = planned is not None and planned <= commit.timestamp <= (until or commit.timestamp)
            in_time |= self.placed_by_rows and commit.version > first
            if batch.batch_id in commit.txn.values() or (in_time and commit.adds_rows):
                return commit
        return None

    @cached_property
    def _of_nobody(self) -> Sequence[TableCommit]:
        """The commits since the last audit that were taken for no micro-batch, and name no query."""
        commits = (c for c in self.history.of_no_pipeline if c.version not in self._entered_versions)
        later = (commit for commit in commits if commit.version > self.history.looked_up_to)
        return [commit for commit in later if commit.wrote is None or not commit.wrote[0]]

    def unplaced_since(self) -> Sequence[int]:
        """The versions since the last entry of which it is not known what the query read into them, if anything."""
        last = self.history.last_entered
        found = {commit.version for commit in self.history.unseen(last)}
        if self.own_function:  # Spark's own sink names the query
            later = (commit for commit in self.history.of_no_pipeline if commit.version > last)
            found |= {commit.version for commit in later if commit.adds_rows}
        return sorted(found)

    @cached_property
    def _entered_versions(self) -> set[int]:
        """The versions of the sink that entries name."""
        recorded = (version for _, _, version in self.history.ledger.recorded)
        return {version for version in (*recorded, *(head.sink_version for head in self.heads)) if version is not None}

    @cached_property
    def lacks_commits(self) -> bool:
        """Whether a commit file is missing between others."""
        versions = self.history.log.commits
        return len(versions) <= max(versions, default=-1) - min(versions, default=0)

    @cached_property
    def oldest(self) -> datetime | None:
        """When the sink's oldest commit was made, of those that its log still has."""
        return min((commit.timestamp for commit in self.history.log.commits.values()), default=None)

    def entered_later(self, batch: CheckpointBatch) -> bool:
        """Whether the entry of a plan stands behind the audited period."""
        return (self.checkpoint.query_id, batch.batch_id) in self.history.ledger.later

    @cached_property
    def tried_again(self) -> set[int]:
        """Entries that a micro-batch of the period repeats; those of which a second call was not written left out."""
        unwritten = {call.entry for call in second_calls(self.covered).values() if call.differs}
        repeated = {first for replay, first in self.covered.replays.items() if self.covered.judged(replay)}
        return repeated - unwritten

    @property
    def heads(self) -> Sequence[EntryHead]:
        """The entries of the ledger."""
        return self.history.heads

    def numbers(self, batch_id: int) -> bool:
        """Whether this query has an entry with the batch_id."""
        return batch_id in self.entered.entries

    @cached_property
    def _recorded(self) -> set[tuple[int, int]]:
        """The (epoch, batch_id) of every entry."""
        return {(head.epoch, head.batch_id) for head in self.heads}

    @cached_property
    def transactions(self) -> Transactions:
        """The transaction numbers of the sink's table."""
        commits = [commit for commits in self.stamped.values() for commit, _ in commits]
        observed_query = self.checkpoint.query_id if self.observed else None
        return Transactions.of(self.history.log, commits, self.history.pipeline, self.history.sink, observed_query)
