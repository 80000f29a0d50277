"""Classifies a micro-batch by the ledger: new in its epoch, a replay, or the first of a new epoch.

Batch ids start over with a new checkpoint, so no micro-batch is identified by its batch_id alone. `already_processed`
means that the ledger has an entry of the same epoch, batch_id and ranges.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from recon.base.errors import NewEpochError, SinkError
from recon.base.lazy import np
from recon.base.text import command, some
from recon.model import LedgerEntry, ReconStamp, offsets_text
from recon.model.file_offsets import is_files
from recon.model.offsets import OffsetSpan, Spans
from recon.model.positions import is_kafka, partition_name
from recon.project import Sink
from recon.write.ledger import Ledger, coverage

log = logging.getLogger("recon")

RECENT = 1000  # the newest entries, among which a replay is searched: Spark itself keeps 100 micro-batches


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A micro-batch: its query and its offset ranges, as the checkpoint planned them."""

    query_id: str
    run_id: str | None
    batch_id: int
    ranges: tuple[OffsetSpan, ...]
    new_partitions: frozenset[tuple[int, str, int]] = frozenset()  # their starts are not in the checkpoint
    planned_at: datetime | None = None  # None where the checkpoint does not say
    files_digest: str | None = None  # as in LedgerEntry


@dataclass(frozen=True, kw_only=True)
class BatchPlacement:
    """A micro-batch's epoch, and the ledger entry that it replays; None where it is new."""

    epoch: int
    replays: LedgerEntry | None = None


@dataclass(frozen=True, kw_only=True)
class BatchToWrite:
    """A micro-batch to write into one sink.

    Attributes:
        stamp: of the write.
        ranges: the offset ranges to write; fewer than the micro-batch's where trim_replayed_offsets leaves out some.
        trimmed: whether they are fewer.
        replays: the ledger entry of an earlier write of it; None where it is new.
    """

    stamp: ReconStamp
    ranges: tuple[OffsetSpan, ...]
    trimmed: bool
    replays: LedgerEntry | None


class Epochs:
    """The epochs of one sink's checkpoint, from its ledger; classifies a micro-batch by them."""

    def __init__(
        self, ledger: Ledger, pipeline: str, sink: Sink, checkpoint: str, entries: Iterable[LedgerEntry]
    ) -> None:
        """`entries` are the newest ones; `checkpoint` names it in messages."""
        self._ledger, self._pipeline, self._sink, self._checkpoint = ledger, pipeline, sink, checkpoint
        self.front: LedgerEntry | None = None  # the entry that got furthest: highest (epoch, batch_id)
        self._recent: deque[LedgerEntry] = deque(maxlen=RECENT)
        self._covered: dict[coverage.Key, Spans] | None = None  # the offsets in the ledger; read when first needed
        self._others: tuple[int, dict[coverage.Key, Spans]] | None = None  # those of all epochs but this one
        self._ends: dict[
            tuple[int, coverage.Key], int
        ] = {}  # how far the newest epoch came in each source's partitions
        self._accepted = False  # whether an overlap was logged already, because the user accepts it
        for entry in entries:
            self.add(entry)

    def add(self, entry: LedgerEntry) -> None:
        """Adds an entry that was appended to the ledger."""
        before, self.front = self.front, further(self.front, entry)
        self._recent.append(entry)
        if self.front is entry:
            if before is None or before.epoch != entry.epoch:
                self._ends = {}
            self._ends |= {_place(span): span.end_offset for span in entry.offsets if span.span.size}
        if self._covered is not None:
            self._covered = coverage.plus(self._covered, entry.offsets)
        if self._others is not None and self._others[0] != entry.epoch:
            self._others = (self._others[0], coverage.plus(self._others[1], entry.offsets))

    def place(self, batch: Batch) -> BatchPlacement:
        """Classifies a micro-batch as new, a replay, or the first of an epoch.

        One that goes on with its epoch may come to offsets that another epoch or a repair has. Its checkpoint began in
        a hole between them, or was restored to a point before micro-batches that Spark committed without a write.

        Raises:
            NewEpochError: it would write offsets that other epochs or repairs have, or begins a new epoch with a gap to
                the ledger's end, and `on_new_epoch` is `stop`.
        """
        front = self.front
        if front is None or (front.query_id == batch.query_id and batch.batch_id > front.batch_id):
            epoch = 0 if front is None else front.epoch
            self._require_unread(epoch, batch)
            return BatchPlacement(epoch=epoch)
        if front.query_id == batch.query_id:
            replayed = self._replayed(front.epoch, batch)
            if replayed is not None and batch.files_digest in (None, replayed.files_digest or batch.files_digest):
                return BatchPlacement(epoch=front.epoch, replays=replayed)
            if replayed is None:
                self._require_not_edited(front.epoch, batch)
            else:
                self._stop_or_warn(
                    f"{self._name}: micro-batch {batch.batch_id} of checkpoint {self._checkpoint} is in the ledger, "
                    "and its log of files has other files than were read then: an older copy of the checkpoint was put "
                    "in its place; restore the newest one, or start a fresh checkpoint with the files that are in no "
                    "sink, and accept what is read again with `on_new_epoch: warn`"
                )
        self._require_continuity(front.epoch + 1, batch)
        return BatchPlacement(epoch=front.epoch + 1)

    def _require_not_edited(self, epoch: int, batch: Batch) -> None:
        """Requires that a micro-batch was planned after its entry, where their ranges differ."""
        of_number = (e for e in reversed(self._recent) if (e.epoch, e.batch_id) == (epoch, batch.batch_id))
        entry = next(of_number, None)
        if entry is None or self._sink.trim_replayed_offsets or not entry.is_made_of(batch.planned_at):
            return
        planned = {_place(span): span.end_offset for span in batch.ranges}
        ends = [
            f"{span.end_offset} for {partition_name(span.topic, span.partition)}"
            for span in entry.offsets
            if planned.get(_place(span)) != span.end_offset
        ]
        if ends:
            self._stop_or_warn(
                f"{self._name}: offsets/{batch.batch_id} of checkpoint {self._checkpoint} was edited after micro-batch "
                f"{batch.batch_id} was entered: it has other end offsets than the ledger; put these end offsets back: "
                f"{some(ends)}, or accept what is read again with `on_new_epoch: warn`"
            )

    def _elsewhere(self, epoch: int) -> dict[coverage.Key, Spans]:
        """The offsets that entries of all other epochs cover, and of repairs; read once.

        What others write meanwhile is not among them: the sink refuses the next write then, or their entries are found.
        """
        if self._others is None or self._others[0] != epoch:
            self._others = (epoch, self._ledger.coverage(self._pipeline, self._sink.name, apart_from=epoch))
        return self._others[1]

    def _read_before(self, epoch: int, batch: Batch) -> list[OffsetSpan]:
        """What a micro-batch that goes on with its epoch would read again.

        Of its own epoch it goes on where the newest entries end, unless a copy of its checkpoint wrote them.
        """
        others = self._elsewhere(epoch)
        # A broker that gives no id now does not make the topic another one.
        ids = {} if self.front is None else {span.topic: span.topic_id for span in self.front.offsets}
        known = [span if span.topic_id else span._replace(topic_id=ids.get(span.topic)) for span in batch.ranges]
        behind = [
            span._replace(end_offset=min(span.end_offset, end))
            for span in known
            for end in [self._ends.get(_place(span), 0)]
            if span.start_offset < min(span.end_offset, end)
        ]
        return behind or (coverage.relation(others, known)[0] if others else [])

    def _coverage(self) -> dict[coverage.Key, Spans]:
        """The offsets that the ledger's entries cover, read once: only a new epoch needs all of them."""
        if self._covered is None:
            self._covered = self._ledger.coverage(self._pipeline, self._sink.name)
        return self._covered

    def _replayed(self, epoch: int, batch: Batch) -> LedgerEntry | None:
        """The newest entry of this micro-batch: same epoch, same batch_id, same ranges."""
        for entry in reversed(self._recent):
            if (entry.epoch, entry.batch_id) == (epoch, batch.batch_id):
                recorded = offsets_text(_without_ids(entry.offsets))
                planned = _starting_as(entry, batch)
                same = recorded == offsets_text(_without_ids(planned))
                return entry if same or recorded == self._text_when_trimmed(entry, planned) else None
        return None

    def _text_when_trimmed(self, entry: LedgerEntry, planned: Sequence[OffsetSpan]) -> str | None:
        """The planned offsets, without those that the ledger had before the entry: what the entry would have."""
        if not self._sink.trim_replayed_offsets:
            return None
        whole = self._ledger.slice(self._pipeline, self._sink.name, operations=())
        number = (entry.epoch, entry.batch_id)
        others = [h.sequence < entry.sequence and (h.epoch, h.batch_id) != number for h in whole.heads]
        covered = coverage.of(whole.ranges.take(np.array(others, dtype=bool)[whole.ranges.entry]))
        return offsets_text(_without_ids(coverage.remainder(covered, planned)))

    def _require_unread(self, epoch: int, batch: Batch) -> None:
        """Requires that the ledger has no offsets of a micro-batch that goes on with its epoch."""
        overlaps = self._read_before(epoch, batch)
        if overlaps and not self._sink.trim_replayed_offsets:
            self._refuse(batch, f"goes on with epoch {epoch}", overlaps, [])

    def _require_continuity(self, epoch: int, batch: Batch) -> None:
        """Requires that a new epoch starts where the ledger ends, unless the user accepts an overlap or a gap."""
        self._others = (epoch, self._coverage())
        self._require_same_files(batch)
        overlaps, gaps = coverage.relation(self._others[1], batch.ranges)
        if self._sink.trim_replayed_offsets:
            overlaps = []
        if overlaps or gaps:
            self._refuse(batch, "begins a new epoch", overlaps, gaps)
        else:
            log.warning("%s: query %s begins epoch %d", self._name, batch.query_id, epoch)

    @property
    def _name(self) -> str:
        return f"pipeline {self._pipeline}, sink {self._sink.name}"

    def _require_same_files(self, batch: Batch) -> None:
        """A query with a log of files of its own reads every file again: no offset says that it was read before."""
        known = {topic for topic, _, _ in self._coverage() if is_files(topic)}
        new = {span.topic for span in batch.ranges if is_files(span.topic)} - known
        if known and new:
            self._stop_or_warn(
                f"{self._name}: micro-batch {batch.batch_id} of checkpoint {self._checkpoint} begins a new epoch with "
                "a log of files of its own, so that it reads every file in the folder again, also those that the query "
                "before it had read; either restore the checkpoint of that query, or move the files that it had read "
                "out of the folder, start a fresh checkpoint, and accept the rest with `on_new_epoch: warn`"
            )

    def _refuse(self, batch: Batch, does: str, overlaps: Sequence[OffsetSpan], gaps: Sequence[OffsetSpan]) -> None:
        """Raises NewEpochError, or logs what the user accepts: an overlap once, not with every micro-batch."""
        faults = []
        if overlaps:
            faults.append(f"overlap what the ledger already holds ({coverage.described(overlaps)})")
        if gaps:
            faults.append(f"leave a gap to the ledger's end ({coverage.described(gaps)})")
        of_table = any(not is_kafka(span.topic) for span in batch.ranges)
        option, drop = "startingVersion" if of_table else "startingOffsets", ""
        if overlaps and not of_table:
            drop = " (or drop what is already there with `trim_replayed_offsets: true`)"
        message = (
            f"{self._name}: micro-batch {batch.batch_id} of checkpoint {self._checkpoint} {does} and its "
            f"ranges {' and '.join(faults)}; either start a fresh checkpoint with the {option} that "
            f"`{command('recon offsets', self._pipeline, self._sink.name)}` prints, or accept it with "
            f"`on_new_epoch: warn`{drop}"
        )
        self._stop_or_warn(message, always=bool(gaps))

    def _stop_or_warn(self, message: str, *, always: bool = False) -> None:
        if self._sink.on_new_epoch == "stop":
            raise NewEpochError(message)
        if always or not self._accepted:
            log.warning("%s", message)
        self._accepted = True

    def effective(self, batch: Batch, epoch: int) -> tuple[OffsetSpan, ...]:
        """The ranges of this write: all of the micro-batch's, or with trim_replayed_offsets those not in the ledger.

        Raises:
            SinkError: a topic id is not known, so that nobody can say whether the ledger's topic is the same.
        """
        if not self._sink.trim_replayed_offsets or (epoch == 0 and not self._read_before(epoch, batch)):
            return batch.ranges
        covered = self._coverage()
        overlaps, _ = coverage.relation(covered, batch.ranges)
        if not overlaps:
            return batch.ranges
        unknown = sorted(
            {span.topic for span in batch.ranges if span.topic_id is None} | {t for t, i, _ in covered if not i}
        )
        if unknown:
            raise SinkError(
                f"pipeline {self._pipeline}: trim_replayed_offsets cannot decide whether topic {unknown[0]} is "
                "still the one in the ledger, because no broker gave its topic id, now or when the entry was written; "
                "set kafka: bootstrap.servers in recon.yml, or start at the offsets that "
                f"`{command('recon offsets', self._pipeline, self._sink.name)}` prints"
            )
        return coverage.remainder(covered, batch.ranges)


def _place(span: OffsetSpan) -> tuple[int, coverage.Key]:
    return span.source, coverage.key_of(span)


def _without_ids(ranges: Sequence[OffsetSpan]) -> list[OffsetSpan]:
    # A replay may meet a broker that the first attempt did not, or the other way round.
    return [span._replace(topic_id=None) for span in ranges]


def _starting_as(entry: LedgerEntry, batch: Batch) -> list[OffsetSpan]:
    """The planned ranges; a partition that was new starts at the entry's offset, which only Kafka had then."""
    starts = {(s.source, s.topic, s.partition): s.start_offset for s in entry.offsets}
    return [
        span._replace(start_offset=starts.get(where, span.start_offset)) if where in batch.new_partitions else span
        for span in batch.ranges
        for where in [(span.source, span.topic, span.partition)]
    ]


def further(front: LedgerEntry | None, entry: LedgerEntry) -> LedgerEntry | None:
    """The one that is further ahead; a replay replaces its micro-batch's earlier entry; only micro-batches count."""
    if not entry.is_micro_batch:
        return front
    if front is None or (entry.epoch, entry.batch_id) >= (front.epoch, front.batch_id):
        return entry
    return front
