"""Which entries of a sink its findings are about, and how many rows or offsets they name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from recon.audits.incidents import Item, grouped, ranges_of
from recon.judge.coverage import Coverage, Key, TopicIncarnation
from recon.judge.row_counts import cut
from recon.model import Code, HarmedRange, LedgerSlice
from recon.model.delta_offsets import is_delta
from recon.model.incident import Harm
from recon.model.offsets import Span
from recon.model.positions import is_kafka

LOST: Sequence[Harm] = ("lost", "missing", "removed")
TWICE: Sequence[Harm] = ("twice",)
# Codes that count no rows, and after which the counts of an entry say nothing.
_DOUBTS = frozenset({Code.PHANTOM_ROWS, Code.NONDETERMINISTIC, Code.MUTATED, Code.RECREATED})


class Named(NamedTuple):
    """How many rows, or offsets, of an entry a finding names; None where it does not say.

    `of_table` is whether they are rows of a Delta table that is read.
    """

    entry: int
    rows: int | None
    of_table: bool


@dataclass(frozen=True)
class Harmed:
    """Finds the entries of findings in the judged part of a slice; findings that were repaired are left out.

    Offsets count for the entries that read them. Where none did, they count for the first entry that read what is
    behind them, else for the last entry. A finding that names neither offsets nor a micro-batch counts for the last
    entry that was there when it was first seen.
    """

    ledger: LedgerSlice
    covered: Coverage
    items: Sequence[Item]

    def named(self, harms: Sequence[Harm]) -> Iterator[Named]:
        """What findings of some harms name."""
        mine = [item for item in self.items if item.harm in harms and item.state != "repaired"]
        for group in grouped(mine) if self._judged else ():
            of_table = any(is_delta(item.finding.topic or "") for item in group)
            ranges = [harmed for harmed in ranges_of(group) if is_kafka(harmed.topic)]
            for harmed in ranges:
                for entry, offsets in self._readers(harmed, again=harmed.harm in TWICE):
                    yield Named(entry, offsets, of_table)
            if not ranges:
                yield from (Named(entry, count, of_table) for entry, count in self._counted(group).items())

    def doubted(self) -> Iterator[tuple[int, str]]:
        """Entries of which an open finding leaves unknown what became of rows, and why."""
        for item in self.items if self._judged else ():
            if item.state != "open":
                continue
            if item.finding.code is Code.TAMPERED:
                yield from ((entry, "the ledger was edited") for entry in self._judged)
            elif item.harm == "undecided" or (item.harm == "other" and item.finding.code in _DOUBTS):
                yield from ((entry, f"a finding is open: {item.finding.code}") for entry in self._entries_of(item))
        yield from ((entry, "the entry was edited") for entry in self.ledger.broken if entry in self._judged)

    def _entries_of(self, item: Item) -> Iterator[int]:
        ranges = [harmed for harmed in ranges_of([item]) if is_kafka(harmed.topic)]
        for harmed in ranges:
            yield from (entry for entry, _ in self._readers(harmed, again=False))
        entry = self._entry_of(item) if not ranges else None
        if entry is not None:
            yield entry

    def _counted(self, group: Sequence[Item]) -> Mapping[int, int | None]:
        """The rows that findings without offsets of Kafka count; several of one micro-batch count the same rows."""
        rows: dict[int, int | None] = {}
        for item in group:
            entry = self._entry_of(item)
            if entry is not None:
                counts = [count for count in (rows.get(entry), item.finding.rows) if count is not None]
                rows[entry] = max(counts, default=None)
        return rows

    def _entry_of(self, item: Item) -> int | None:
        """The entry that a finding is about, by its micro-batch, a version or its time; None for another period's."""
        found, heads = item.finding, self.ledger.heads
        if found.batch_id is not None:
            of_number = self._by_number.get((found.epoch, found.batch_id))
            return of_number if of_number is not None else self._by_number.get((None, found.batch_id))
        versions = set(found.changed_by or ())
        of_version = (at for at in self._judged if versions and heads[at].sink_version in versions)
        before = (at for at in reversed(self._judged) if heads[at].committed_at <= item.first_seen)
        return next(of_version, next(before, None))

    @cached_property
    def _judged(self) -> Sequence[int]:
        return range(self.ledger.anchors, len(self.ledger.heads))

    @cached_property
    def _by_number(self) -> Mapping[tuple[int | None, int], int]:
        """The entries by (epoch, batch_id); for findings without an epoch by (None, batch_id), the newest epoch's."""
        heads = self.ledger.heads
        found: dict[tuple[int | None, int], int] = {(None, heads[at].batch_id): at for at in self._judged}
        return found | {(heads[at].epoch, heads[at].batch_id): at for at in self._judged}

    def _readers(self, harmed: HarmedRange, *, again: bool) -> Iterator[tuple[int, int]]:
        """The entries that a range counts for, each with its part of it.

        What was read before these entries is not of the period, but for what one of them read `again`.
        """
        start, end = harmed.start_offset, harmed.end_offset
        for key, incarnation in self._incarnations.get((harmed.topic, harmed.partition), ()):
            if None not in (incarnation.topic_id, harmed.topic_id) and incarnation.topic_id != harmed.topic_id:
                continue
            judged = [stretch for stretch in incarnation.stretches if self.covered.judged(stretch.first)]
            if not again:
                start = max(start, *(s.end for s in incarnation.stretches if not self.covered.judged(s.first)), 0)
            for stretch in (stretch for stretch in judged if start < stretch.end > stretch.start):
                if start >= end:
                    return
                if stretch.start >= end:  # offsets that no entry read before count for this one
                    yield stretch.first, end - start
                    return
                for piece in cut(self.covered, key, stretch, Span(max(start, stretch.start), min(end, stretch.end))):
                    yield piece.entry, piece.end - start
                    start = piece.end
        if start < end:
            yield self._judged[-1], end - start

    @cached_property
    def _incarnations(self) -> Mapping[tuple[str, int], Sequence[tuple[Key, TopicIncarnation]]]:
        found: dict[tuple[str, int], list[tuple[Key, TopicIncarnation]]] = defaultdict(list)
        for key, incarnations in self.covered.incarnations.items():
            found[key.topic, key.partition] += ((key, incarnation) for incarnation in incarnations)
        return found
