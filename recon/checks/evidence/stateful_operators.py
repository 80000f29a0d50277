"""State between source and sink: what Spark itself said that its stateful operators did with a micro-batch's rows.

A query that deduplicates, aggregates or joins gives foreachBatch other rows than it read. Rows and offsets are then
counted against each other only where Spark's own counts close the gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from recon.model import EntryHead, Unavailable, Witnesses
from recon.model.progress import BatchProgress

# A listener gathers micro-batches before it records them; periods of audits overlap by as much.
_RECORDED_WITHIN = timedelta(minutes=5)


@dataclass(frozen=True)
class Operators:
    """What is known of a pipeline's stateful operators.

    Args:
        stateful: query_ids of queries that keep state.
        told: what Spark said of each micro-batch, by (query_id, batch_id).
        newest: the highest batch_id told of each query.
        making: query_ids of queries whose state does more than to let rows fall.
    """

    stateful: frozenset[str] = frozenset()
    told: Mapping[tuple[str, int], BatchProgress] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)
    making: frozenset[str] = frozenset()

    def keeps_state(self, head: EntryHead) -> bool:
        """Whether the query that wrote the entry keeps state."""
        return not head.is_release and head.query_id in self.stateful

    def fell(self, head: EntryHead, given: int | None) -> int | None:
        """Rows of the micro-batch that the state let fall as duplicates or late.

        None when Spark did not say, when an operator does more than to let rows fall, or when what it says does not add
        up: rows read must be those that were given to the sink and those that fell.
        """
        batch = self.told.get((head.query_id, head.batch_id))
        if batch is None or given is None or head.query_id in self.making:
            return None
        fell = (batch.dropped_late or 0) + (batch.dropped_duplicates or 0)
        return fell if batch.state_operators and given + fell == batch.rows else None

    def makes_rows(self, head: EntryHead) -> bool:
        """Whether the operators give other rows than they read: aggregates, joins, functions of one's own."""
        return head.query_id in self.making

    def read_whole(self, head: EntryHead, width: int) -> bool:
        """Whether Spark says that the micro-batch read a record at each of its offsets."""
        batch = self.told.get((head.query_id, head.batch_id))
        return batch is not None and batch.rows == width

    def awaited(self, head: EntryHead, witnesses: Witnesses) -> bool:
        """Whether a listener is there and has not come to this micro-batch yet: the next audit looks at it again."""
        newest = self.newest.get(head.query_id)
        recent = head.committed_at > witnesses.now - _RECORDED_WITHIN and witnesses.period_to >= witnesses.now
        return newest is not None and head.batch_id > newest and recent


def operators_of(witnesses: Witnesses) -> Operators:
    """What checkpoint and progress tell; nothing where neither could be asked."""
    progress, checkpoint = witnesses.progress, witnesses.checkpoint
    batches = [] if isinstance(progress, Unavailable) else progress.batches
    told: dict[tuple[str, int], BatchProgress] = {}
    newest: dict[str, int] = {}
    for batch in batches:
        key = (batch.query_id, batch.batch_id)
        # A replay that found its rows in the sink computes nothing, and reports nothing.
        if key not in told or batch.rows:
            told[key] = batch
        newest[batch.query_id] = max(batch.batch_id, newest.get(batch.query_id, -1))
    stateful = {batch.query_id for batch in batches if batch.state_operators}
    making = {b.query_id for b in batches if not all(name.startswith("dedupe") for name in b.state_operators)}
    if not isinstance(checkpoint, Unavailable) and checkpoint.stateful:
        stateful.add(checkpoint.query_id)
    return Operators(frozenset(stateful), told, newest, frozenset(making))


__all__ = ["Operators", "operators_of"]
