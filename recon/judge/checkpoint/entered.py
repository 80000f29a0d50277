"""How a plan of the checkpoint compares with the ledger's entries of the same query and number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from recon.base.lazy import np
from recon.judge.checkpoint.plans import Planned, fits, planned_ranges, rest_of
from recon.judge.coverage import Coverage, Key, Ranges, bare, by_key, ranges_of
from recon.model import CheckpointBatch, CheckpointWitness
from recon.model.grouping import grouped
from recon.model.offsets import Span, Spans


@dataclass(frozen=True)
class Edit:
    """A file of the checkpoint that somebody changed after an entry was made of it.

    Attributes:
        batch: the plan as it is now.
        entry: the place of the entry that was made of the plan before.
        ahead: the offsets from the entry's end to the plan's, by topic partition.
        back: the offsets that the entry has, and that the next start reads again.
        lacks: the topic partitions that the entry read, and the plan does not have.
    """

    batch: CheckpointBatch
    entry: int
    ahead: Mapping[Key, Span]
    back: Mapping[Key, Span]
    lacks: Sequence[Key]

    @property
    def says(self) -> str:
        """What happened, in a clause."""
        number = self.batch.batch_id
        return f"offsets/{number} was edited after micro-batch {number} was entered"


@dataclass(frozen=True)
class Entered:
    """The plans of a checkpoint beside the entries of its query.

    A plan agrees with an entry (`entry_of`), or was edited after its entry was made (`edit_of`). A plan of neither kind
    belongs to another epoch, or has no entry.
    """

    covered: Coverage
    checkpoint: CheckpointWitness

    def entry_of(self, batch: CheckpointBatch) -> int | None:
        """The newest entry that accounts for this plan: same query, same number, same ranges.

        An entry may hold less than the plan where trimming dropped what earlier entries held.
        """
        exact = bare(batch.ranges)
        for entry in reversed(self.entries.get(batch.batch_id, ())):
            if exact == self._ranges[entry] and batch.starts_known and not batch.new_partitions:
                return entry  # as almost always; what follows is twenty times as slow
            plan, held = planned_ranges(batch), by_key(self._ranges[entry])
            if fits(plan, held, batch) and all(
                self._held_before(entry, key, rest) for key, rest in rest_of(plan, held)
            ):
                return entry
        return None

    def edit_of(self, batch: CheckpointBatch) -> Edit | None:
        """What was changed of a plan; None where it agrees with its entry, or was made after the entry.

        An edited file keeps the time at which Spark planned the micro-batch, which is before its entry. A micro-batch
        that Spark plans anew, with a copy of the checkpoint, has a later one.
        """
        accounts = self.entry_of(batch)
        made = (e for e in reversed(self.entries.get(batch.batch_id, ())) if e != accounts and self._made_of(batch, e))
        return next((edit for entry in made if (edit := self._edit(batch, entry)) is not None), None)

    def _made_of(self, batch: CheckpointBatch, entry: int) -> bool:
        head = self.covered.slice.heads[entry]
        return head.is_micro_batch and head.is_made_of(batch.planned_at)

    def _edit(self, batch: CheckpointBatch, entry: int) -> Edit | None:
        """How the plan's topic partitions and end offsets differ from those of an entry; None where they do not."""
        plan, held = planned_ranges(batch), by_key(self._ranges[entry])
        moved = _ends(plan, held)
        ahead = {key: Span(end, planned) for key, (end, planned) in moved.items() if planned > end}
        back = {key: Span(planned, end) for key, (end, planned) in moved.items() if planned < end}
        lacks = _lacking(batch, held)
        if not (ahead or back or lacks):
            return None
        return Edit(batch, entry, ahead, back if batch.committed else _again(plan, held), lacks)

    @cached_property
    def edits(self) -> Mapping[int, Edit]:
        """The plans that were edited, by the place of the entry that was made before."""
        found = (self.edit_of(batch) for batch in self.checkpoint.batches if batch.batch_id in self.entries)
        return {edit.entry: edit for edit in found if edit is not None}

    @cached_property
    def pending(self) -> Edit | None:
        """The edit that the next start of the query begins with; None where later micro-batches are in the ledger."""
        newest = self.covered.micro_batches[-1] if self.covered.micro_batches else None
        number = self.covered.slice.heads[newest].batch_id if newest is not None else None
        edits = (self.edit_of(batch) for batch in self.checkpoint.batches if batch.batch_id == number)
        return next((edit for edit in edits if edit is not None and edit.entry == newest), None)

    def ends_of(self, edit: Edit) -> Sequence[str]:
        """The end offsets that the file had when the entry was made, those that differ now."""
        ends = _ends(planned_ranges(edit.batch), by_key(self._ranges[edit.entry]))
        return [f"{end} for {key}" for key, (end, planned) in sorted(ends.items()) if planned != end]

    @cached_property
    def entries(self) -> Mapping[int, Sequence[int]]:
        """The query's ledger entries by batch_id, in reading order, replays left out."""
        heads = self.covered.slice.heads
        mine = (entry for entry in self.covered.order if heads[entry].query_id == self.checkpoint.query_id)
        return grouped((heads[entry].batch_id, entry) for entry in mine)

    def reads(self, batch_id: int) -> bool:
        """Whether the query has an entry with the batch_id that holds ranges."""
        return any(self._ranges.get(entry) for entry in self.entries.get(batch_id, ()))

    @cached_property
    def _ranges(self) -> Mapping[int, Ranges]:
        """Ranges of the entries that carry a batch_id of the checkpoint."""
        wanted = [entry for batch in self.checkpoint.batches for entry in self.entries.get(batch.batch_id, ())]
        return {entry: ranges_of(self.covered.slice, entry) for entry in wanted}

    def _held_before(self, entry: int, key: Key, rest: Spans) -> bool:
        """Whether entries read before this one hold the offsets that it left out, or what lies before the slice."""
        ledger, order = self.covered.slice, self.covered.order
        ranges, topics = ledger.ranges, [topic[:2] == key[:2] for topic in ledger.ranges.topics]
        mine = np.isin(ranges.entry, order[: order.index(entry)]) & (ranges.partition == key.partition)
        mine &= np.array(topics, np.bool_)[ranges.topic] & (ranges.start < ranges.end)
        held = Spans.of(zip(ranges.start[mine].tolist(), ranges.end[mine].tolist(), strict=True))
        if held and not ledger.complete:
            held = held.union(Spans.of([(0, next(iter(held)).start)]))
        return not rest.minus(held)


def _again(plan: Mapping[Key, Planned], held: Mapping[Key, Spans]) -> Mapping[Key, Span]:
    """What a micro-batch that Spark did not finish reads of its entry once more."""
    hulls = {key: Spans.of([plan[key].span]).intersect(spans).hull for key, spans in held.items() if key in plan}
    return {key: hull for key, hull in hulls.items() if hull is not None}


def _lacking(batch: CheckpointBatch, held: Mapping[Key, Spans]) -> Sequence[Key]:
    """The topic partitions of an entry that a plan does not have. One whose starts are not known may lack some."""
    return sorted(held.keys() - planned_ranges(batch).keys()) if batch.starts_known else ()


def _ends(plan: Mapping[Key, Planned], held: Mapping[Key, Spans]) -> Mapping[Key, tuple[int, int]]:
    """The end offset that an entry has, and the plan's, by topic partition."""
    hulls = ((key, spans.hull) for key, spans in held.items() if key in plan)
    return {key: (hull.end, plan[key].end) for key, hull in hulls if hull is not None}
