"""Where a micro-batch stands in the ledger: in its epoch, as a replay, or at the begin of a new epoch.

Batch ids start over with a new checkpoint, so nothing is ever known by its batch_id alone. `already processed` means:
the ledger has an entry of the same epoch, number and ranges.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from recon.errors import NewEpochError, SinkError
from recon.lazy import np
from recon.ledger import Ledger, coverage
from recon.model import LedgerEntry, RangeTable, offsets_text
from recon.model.offsets import OffsetSpan, Spans
from recon.project import Sink

log = logging.getLogger("recon")

CLOCKS_APART = timedelta(days=1)  # a sink's clock may differ from the ledger's by less than this
RECENT = 1000  # entries looked back at for a replay: Spark itself keeps 100 micro-batches


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A micro-batch, identified: who reads which ranges, as the checkpoint planned it."""

    query_id: str
    run_id: str | None
    batch_id: int
    ranges: tuple[OffsetSpan, ...]
    new_partitions: frozenset[tuple[int, str, int]] = frozenset()  # their starts are not in the checkpoint


@dataclass(frozen=True, kw_only=True)
class BatchPlacement:
    """Where a micro-batch stands in the ledger: its epoch, and the entry it replays, if it does."""

    epoch: int
    replays: LedgerEntry | None = None


class Epochs:
    """The lives of one sink's checkpoint, as its ledger tells them."""

    def __init__(
        self, ledger: Ledger, pipeline: str, sink: Sink, checkpoint: str, entries: Iterable[LedgerEntry]
    ) -> None:
        """`entries` are the newest ones; `checkpoint` names it in messages."""
        self._ledger, self._pipeline, self._sink, self._checkpoint = ledger, pipeline, sink, checkpoint
        self.front: LedgerEntry | None = None  # the entry that got furthest: highest (epoch, batch_id)
        self._recent: deque[LedgerEntry] = deque(maxlen=RECENT)
        self._held: dict[coverage.Key, Spans] | None = None  # what the ledger covers, where that is asked
        for entry in entries:
            self._took(entry)

    def entered(self, entry: LedgerEntry) -> None:
        """Takes note of an entry that was appended."""
        self._took(entry)
        if self._held is not None:
            self._held = coverage.plus(self._held, entry.offsets)

    def _took(self, entry: LedgerEntry) -> None:
        self.front = further(self.front, entry)
        self._recent.append(entry)

    def settle(self, batch: Batch) -> BatchPlacement:
        """Where a micro-batch stands.

        Raises:
            NewEpochError: it begins a new epoch whose ranges overlap or miss what the ledger holds, and `on_new_epoch`
                is `stop`.
        """
        front = self.front
        if front is None:
            return BatchPlacement(epoch=0)
        if front.query_id == batch.query_id:
            if batch.batch_id > front.batch_id:
                return BatchPlacement(epoch=front.epoch)
            known = self._known(front.epoch, batch)
            if known is not None:
                return BatchPlacement(epoch=front.epoch, replays=known)
        self._require_continuity(front, batch)
        return BatchPlacement(epoch=front.epoch + 1)

    def _covered(self) -> dict[coverage.Key, Spans]:
        """What the ledger covers, read once: only a new epoch needs to know it all."""
        if self._held is None:
            self._held = self._ledger.coverage(self._pipeline, self._sink.name)
        return self._held

    def _known(self, epoch: int, batch: Batch) -> LedgerEntry | None:
        """The newest entry of this very micro-batch: same epoch, same number, same ranges."""
        for entry in reversed(self._recent):
            if (entry.epoch, entry.batch_id) == (epoch, batch.batch_id):
                planned = offsets_text(_without_ids(entry.offsets))
                again = _starting_as(entry, batch)
                same = planned == offsets_text(_without_ids(again))
                return entry if same or planned == self._text_when_trimmed(entry, again) else None
        return None

    def _text_when_trimmed(self, entry: LedgerEntry, planned: Sequence[OffsetSpan]) -> str | None:
        """What the entry would hold if it were this micro-batch, less what the ledger held before it."""
        if not self._sink.trim_replayed_offsets:
            return None
        before = self._ledger.slice(self._pipeline, self._sink.name, to=entry.committed_at, operations=())
        mine = [(head.epoch, head.batch_id) == (entry.epoch, entry.batch_id) for head in before.heads]
        held = coverage.of(_without_entries(before.ranges, mine))
        return offsets_text(_without_ids(coverage.remainder(held, planned)))

    def _require_continuity(self, front: LedgerEntry, batch: Batch) -> None:
        """A new epoch may only go on where the ledger ends, unless the user accepted what it does instead."""
        overlaps, gaps = coverage.relation(self._covered(), batch.ranges)
        name = f"pipeline {self._pipeline}, sink {self._sink.name}"
        if self._sink.trim_replayed_offsets:
            overlaps = []
        if not (overlaps or gaps):
            log.warning("%s: query %s begins epoch %d", name, batch.query_id, front.epoch + 1)
            return
        said = []
        if overlaps:
            said.append(f"overlap what the ledger already holds ({coverage.told(overlaps)})")
        if gaps:
            said.append(f"leave a gap to the ledger's end ({coverage.told(gaps)})")
        message = (
            f"{name}: micro-batch {batch.batch_id} of checkpoint {self._checkpoint} begins a new epoch and its "
            f"ranges {' and '.join(said)}; either start a fresh checkpoint with the startingOffsets that "
            f"`recon offsets --pipeline {self._pipeline} --sink {self._sink.name}` prints, or accept it with "
            "`on_new_epoch: warn`"
            + (" (or drop what is already there with `trim_replayed_offsets: true`)" if overlaps else "")
        )
        if self._sink.on_new_epoch == "stop":
            raise NewEpochError(message)
        log.warning("%s", message)

    def effective(self, batch: Batch, epoch: int) -> tuple[OffsetSpan, ...]:
        """The ranges this write accounts for: all of them, or what the ledger does not hold yet."""
        if not self._sink.trim_replayed_offsets or epoch == 0:
            return batch.ranges
        held = self._covered()
        overlaps, _ = coverage.relation(held, batch.ranges)
        if not overlaps:
            return batch.ranges
        unknown = sorted(
            {span.topic for span in batch.ranges if span.topic_id is None} | {t for t, i, _ in held if not i}
        )
        if unknown:
            raise SinkError(
                f"pipeline {self._pipeline}: trim_replayed_offsets cannot tell whether topic {unknown[0]} is the "
                "one the ledger knows, because no broker gave its topic id, now or when it was written; set kafka: "
                "bootstrap.servers in recon.yml, or start where `recon offsets` says"
            )
        return coverage.remainder(held, batch.ranges)


def _without_ids(ranges: Sequence[OffsetSpan]) -> list[OffsetSpan]:
    # A replay may meet a broker that the first attempt did not, or the other way round.
    return [span._replace(topic_id=None) for span in ranges]


def _starting_as(entry: LedgerEntry, batch: Batch) -> list[OffsetSpan]:
    """The planned ranges; a partition that was new starts where the entry says, since only Kafka said it then."""
    starts = {(s.source, s.topic, s.partition): s.start_offset for s in entry.offsets}
    return [
        span._replace(start_offset=starts.get(where, span.start_offset)) if where in batch.new_partitions else span
        for span in batch.ranges
        for where in [(span.source, span.topic, span.partition)]
    ]


def _without_entries(table: RangeTable, left_out: Sequence[bool]) -> RangeTable:
    kept = ~np.array(left_out, dtype=bool)[table.entry]
    return RangeTable(
        entry=table.entry[kept],
        topic=table.topic[kept],
        partition=table.partition[kept],
        start=table.start[kept],
        end=table.end[kept],
        topics=table.topics,
    )


def further(front: LedgerEntry | None, entry: LedgerEntry) -> LedgerEntry | None:
    """Whichever got further; a replay of the same micro-batch replaces its earlier entry, a release counts not."""
    if entry.is_release:
        return front
    if front is None or (entry.epoch, entry.batch_id) >= (front.epoch, front.batch_id):
        return entry
    return front
