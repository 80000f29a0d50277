"""State between source and sink: what Spark's progress says that stateful operators did with a micro-batch's rows.

A query that deduplicates, aggregates or joins gives foreachBatch other rows than it read. Rows and offsets are then
counted against each other only where Spark's own counts close the gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from recon.model import AuditTime, CheckpointWitness, EntryHead, ProgressWitness
from recon.model.progress import BatchProgress

# A listener gathers micro-batches before it records them; periods of audits overlap by as much.
_RECORDED_WITHIN = timedelta(minutes=5)


@dataclass(frozen=True)
class Operators:
    """A pipeline's stateful operators, as far as its checkpoint and Spark's progress show them.

    Args:
        stateful: query_ids of queries that keep state.
        progress: Spark's progress of each micro-batch, by (query_id, batch_id).
        newest: the highest batch_id of each query that has progress.
        making: query_ids of queries whose stateful operators do more than drop rows.
    """

    stateful: frozenset[str] = frozenset()
    progress: Mapping[tuple[str, int], BatchProgress] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)
    making: frozenset[str] = frozenset()

    def keeps_state(self, head: EntryHead) -> bool:
        """Whether the query that wrote the entry keeps state."""
        return head.is_micro_batch and head.query_id in self.stateful

    def dropped(self, head: EntryHead, given: int | None) -> int | None:
        """Rows of the micro-batch that stateful operators dropped as duplicates or as late.

        None when Spark's progress does not say, when an operator does more than drop rows, or when the numbers do not
        add up: rows read must be the rows given to the sink and the rows dropped. 0 where there is no state.
        """
        if not self.keeps_state(head):
            return 0
        batch = self.progress.get((head.query_id, head.batch_id))
        if batch is None or given is None or head.query_id in self.making:
            return None
        dropped = (batch.dropped_late or 0) + (batch.dropped_duplicates or 0)
        return dropped if batch.state_operators and given + dropped == batch.rows else None

    def makes_rows(self, head: EntryHead) -> bool:
        """Whether the operators give other rows than they read: aggregates, joins, functions of one's own."""
        return head.query_id in self.making

    def read_whole(self, head: EntryHead, width: int) -> bool:
        """Whether Spark says that the micro-batch read a record at each of its offsets."""
        batch = self.progress.get((head.query_id, head.batch_id))
        return batch is not None and batch.rows == width

    def awaited(self, head: EntryHead, time: AuditTime) -> bool:
        """Whether a listener is there and has not come to this micro-batch yet: the next audit looks at it again."""
        newest = self.newest.get(head.query_id)
        recent = head.committed_at > time.now - _RECORDED_WITHIN and not time.is_past
        return newest is not None and head.batch_id > newest and recent


def operators_of(recorded: ProgressWitness | None, checkpoint: CheckpointWitness | None) -> Operators:
    """Reads Spark's progress and the checkpoint; empty where neither could be read."""
    batches = recorded.batches if recorded is not None else []
    # A replay that found its rows in the sink computes nothing, and reports nothing.
    progress = {(batch.query_id, batch.batch_id): batch for batch in sorted(batches, key=lambda each: bool(each.rows))}
    names = [(batch.query_id, name) for batch in batches for name in batch.state_operators]
    keeping = {checkpoint.query_id} if checkpoint is not None and checkpoint.stateful else set()
    return Operators(
        stateful=frozenset(keeping.union(query_id for query_id, _ in names)),
        progress=progress,
        newest=dict(sorted(progress)),
        making=frozenset(query_id for query_id, name in names if not name.startswith("dedupe")),
    )
