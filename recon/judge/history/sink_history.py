"""What happened to a sink, whatever its kind: recon's own writes, and what its log or record shows of the entries.

`TableHistory` is the log of a Delta or Iceberg table, which numbers its versions, knows RESTORE and rollback, and shows
what others did. `RecordHistory` is the own record of every other sink, which counts rows. What both have is judged once
(`recon.judge.history.recon_commits`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from recon.judge.coverage import by_partition, widths
from recon.model import (
    AuditTime,
    CheckpointWitness,
    Code,
    EntryHead,
    LedgerSlice,
    ReconStamp,
    SinkCommit,
    SinkLog,
    TableLog,
    offsets_text,
    parse_offsets,
    same_ranges,
)
from recon.model.ledger import Numbered
from recon.model.offsets import OffsetSpan, Spans

Number = tuple[int, int]  # (epoch, batch_id)
BEFORE_ALL = (0, -1)  # before any micro-batch's; the numbers of releases and repairs are lower
_EDGE = timedelta(minutes=5)  # how long after its write a ledger entry may come


class Claim(NamedTuple):
    """What a sink shows of an entry: a code where it is not what the entry says, and why.

    `is_there` is whether the write that belongs to the entry is there.
    """

    code: Code | None
    reason: str = ""
    is_there: bool = False


class Repeated(NamedTuple):
    """Writes of the same offsets, oldest first; `versions` are theirs, where the sink has any."""

    writes: Sequence[ReconStamp]
    versions: Sequence[int] = ()


class SinkHistory(ABC):
    """What happened to a sink, as one sees it who knows the ledger's entries."""

    log: TableLog | SinkLog
    pipeline: str
    sink: str | None
    ledger: LedgerSlice

    @property
    def location(self) -> str:
        """The sink, in messages."""
        return self.log.location

    @property
    def exists(self) -> bool:
        """Whether there is a log, or a record."""
        return self.log.exists

    @property
    @abstractmethod
    def own_writes(self) -> Sequence[SinkCommit]:
        """Recon's own writes of this pipeline's sink, in order."""

    @abstractmethod
    def shown(self, entry: int) -> Claim:
        """What is shown of an entry."""

    @abstractmethod
    def repeated(self) -> Iterator[Repeated]:
        """Writes whose rows are doubled: several of one micro-batch, or of the same ranges."""

    @abstractmethod
    def _is_asked(self, write: SinkCommit, time: AuditTime, checkpoint: CheckpointWitness | None) -> bool:
        """Whether a write ought to have an entry by now, and no earlier audit looked at it."""

    # -- the same of every kind --------------------------------------------------------------------------------------

    @property
    def heads(self) -> Sequence[EntryHead]:
        """The entries."""
        return self.ledger.heads

    @property
    def anchors(self) -> Sequence[EntryHead]:
        """The entries before the period."""
        return self.heads[: self.ledger.anchors]

    @property
    def is_complete(self) -> bool:
        """Whether no entry stands before these."""
        return self.ledger.complete

    @cached_property
    def width(self) -> Sequence[int]:
        """How many offsets the ranges of each entry hold."""
        return widths(self.ledger)

    @cached_property
    def newest(self) -> Mapping[Number, SinkCommit]:
        """The newest write of each micro-batch."""
        return {number_of(write.stamp): write for write in self.own_writes}

    def claims(self) -> Mapping[int, Claim]:
        """What is shown of each judged entry."""
        return {entry: self.shown(entry) for entry in range(len(self.anchors), len(self.heads))}

    def unrecorded(self, time: AuditTime, checkpoint: CheckpointWitness | None) -> Sequence[SinkCommit]:
        """The writes that no entry records: the newest of each micro-batch.

        Left out are those that earlier audits looked at, and those so late that their entry may follow: it is not known
        yet what the hook counted, nor whether failing rows are in quarantine.
        """
        recorded = ((epoch, batch_id) for epoch, batch_id, _ in self.ledger.recorded)
        entered = {*map(number_of, self.heads), *recorded}
        missing = (write for number, write in self.newest.items() if number not in entered)
        return [write for write in missing if self._is_asked(write, time, checkpoint)]

    def is_in_progress(self, write: SinkCommit, now: datetime, checkpoint: CheckpointWitness | None) -> bool:
        """Whether a write is of the micro-batch that the query is in, so that its entry follows in a moment.

        The checkpoint has it planned and not finished. Minutes later the query stopped there.
        """
        last = checkpoint.last if checkpoint is not None else None
        if checkpoint is None or last is None or last.committed or write.at <= now - _EDGE:
            return False
        return (checkpoint.query_id, last.batch_id) == (write.stamp.query_id, write.stamp.batch_id)

    def has_ranges_of(self, entry: int, stamp: ReconStamp) -> bool:
        """Whether a write carries the ranges of an entry."""
        texts = self.ledger.offsets_texts
        text = texts[entry] if texts else offsets_text(self.ledger.ranges.of(entry))
        return stamp.offsets_text == text or same_ranges(stamp.offsets_text, text)


def number_of(write: Numbered) -> Number:
    """The (epoch, batch_id) of an entry or a write."""
    return write.epoch, write.batch_id


def entry_may_follow(write: SinkCommit, time: AuditTime) -> bool:
    """Whether a write was so late that its entry need not be in this audit's slice of the ledger."""
    return write.at > time.now or (time.is_past and write.at > time.end - _EDGE)


def looked_at_all(spans: Sequence[OffsetSpan], stamp: ReconStamp) -> bool:
    """Whether repairs that looked for doubled rows in these ranges, if any did, saw every offset of a write."""
    looked_at = by_partition(spans)
    read = by_partition(parse_offsets(stamp.offsets_text)).items()
    return bool(spans) and not any(offsets.minus(looked_at.get(where, Spans())) for where, offsets in read)
