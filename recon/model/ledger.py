"""Ledger entries, single and in columns.

An entry is one sink write: who wrote (pipeline, sink, query_id, epoch, batch_id), what was read (offset ranges) and
what was written (rows, sink_version). `prev_hash` and `entry_hash` chain it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from recon.base.lazy import np
from recon.model.offsets import OffsetSpan
from recon.model.once import Derived, kept
from recon.model.positions import is_kafka

if TYPE_CHECKING:
    import numpy.typing as npt

EntryStatus = Literal["committed", "already_committed", "rebuilt", "observed", "released", "repaired"]

# Epochs of entries that no micro-batch wrote; batch_id is then the number of the release, the repair or the removal.
RELEASES = -1  # `recon quarantine release`: offsets are ()
REPAIRS = -2  # `recon repair apply` read missing offsets again: offsets are those
REMOVALS = -3  # `recon repair apply` removed doubled rows: offsets are those whose rows were doubled

# Codes of topic partitions below it are places in a table. An edited ledger may name any partition: no table is made of
# all below that.
DENSE = 2**22


class CountedRows(NamedTuple):
    """Rows, and the fingerprint of their source offsets (recon.model.fingerprint); None where it is unknown."""

    rows: int
    fingerprint: int | None


@dataclass(frozen=True, kw_only=True)
class EntryHead:
    """A ledger entry without its offset ranges; times are UTC, and None is unknown.

    Rows are counted at three points during the write itself, each with a fingerprint of their source offsets:
    `rows_read` before the transform, `rows_returned` by it, `rows_given` to the sink.

    Attributes:
        sequence: place in the chain of its (pipeline, sink), from 1 on and without holes; 0 before it is chained.
        status: `committed` by the hook, `already_committed` where it met a retry, `rebuilt` from recon's stamped
            commit, `observed` where the stream wrote without recon, `released` and `repaired` by a command.
        rows_read: of a removal, the offsets of its ranges that had a row before.
        rows_written: those that the sink itself says it took in; of a removal, those that it put back.
        rows_removed: those that a removal took out of the sink; None for every other write.
        isolation_level: the one with which the running query reads Kafka, as Spark's plan has it.
        kafka_state: what the broker said of the topics' logs (recon.model.wire.kafka_state), asked after an earlier
            entry, while nothing waits; None where no answer came since the entry before.
        sink_table_id: the id of the Delta table that the commit is in.
        sink_version: the Delta version of the data commit.
        committed_at: by the driver's clock, which may jump: the order of entries is that of `sequence`.
        transform: the function, as `module:function`, and in a route a hash of the pipeline's routes behind it
            (recon.write.hook.routing.passed); None also where there was nothing.
        by: who released or repaired; None in entries of micro-batches. `reason` is why.
        files_digest: of a query that reads files, the checksum of its log of files (recon.witness.source_files).
        prev_hash: the entry_hash of the entry before it in the chain, "" for the first.
    """

    pipeline: str
    sink: str
    sequence: int
    sink_kind: str
    target: str
    guarantee: str
    query_id: str
    run_id: str | None
    epoch: int
    batch_id: int
    attempt: int
    status: EntryStatus
    rows_read: int | None
    rows_written: int | None
    rows_quarantined: int | None
    rows_filtered: int | None
    rows_returned: int | None = None
    rows_given: int | None = None
    fingerprint_read: int | None = None
    fingerprint_returned: int | None = None
    fingerprint_given: int | None = None
    rows_removed: int | None = None
    isolation_level: str | None = None
    kafka_state: str | None = None
    sink_table_id: str | None = None
    sink_version: int | None
    started_at: datetime
    committed_at: datetime
    spark_version: str | None
    recon_version: str
    checks_fingerprint: str | None
    transform: str | None = None
    by: str | None = None
    reason: str | None = None
    files_digest: str | None = None
    prev_hash: str
    entry_hash: str

    @property
    def date(self) -> date:
        """The ledger's partition: the UTC day of `committed_at`."""
        return self.committed_at.date()

    @property
    def is_release(self) -> bool:
        """Whether the entry is a release from quarantine, not a micro-batch."""
        return self.epoch == RELEASES

    @property
    def is_repair(self) -> bool:
        """Whether the entry is a repair that read missing offsets again."""
        return self.epoch == REPAIRS

    @property
    def is_removal(self) -> bool:
        """Whether the entry is a repair that removed doubled rows."""
        return self.epoch == REMOVALS

    @property
    def is_micro_batch(self) -> bool:
        """Whether a micro-batch of the query wrote it, and no command of recon's."""
        return self.epoch >= 0

    def is_made_of(self, planned_at: datetime | None) -> bool:
        """Whether a plan of its query and number, made at that time, was there when the micro-batch was written.

        Ranges that differ were then changed in the file since: Spark plans a number again at a later time only.
        """
        return planned_at is not None and planned_at <= self.started_at

    @property
    def is_observed(self) -> bool:
        """Whether the stream wrote without recon, and recon entered what checkpoint and sink showed afterwards."""
        return self.status == "observed"

    @property
    def makes_rows(self) -> bool:
        """Whether counts show that the transform made more rows than were read; those that the sink made are none."""
        made = self.rows_written if self.returned is None else self.returned.rows
        return self.rows_read is not None and (made or 0) > self.rows_read

    @property
    def is_uncounted(self) -> bool:
        """Whether nothing was counted during the write: the entry was made from the sink's own record afterwards."""
        return self.status in ("rebuilt", "observed")

    @property
    def reads(self) -> bool:
        """Whether its offsets were read from the source for it: by a micro-batch, or by a repair."""
        return self.epoch >= 0 or self.epoch == REPAIRS

    @property
    def read(self) -> CountedRows | None:
        """The rows as they were counted before the transform; None where they were not."""
        return _counted(self.rows_read, self.fingerprint_read)

    @property
    def returned(self) -> CountedRows | None:
        """The rows that the transform returned."""
        return _counted(self.rows_returned, self.fingerprint_returned)

    @property
    def given(self) -> CountedRows | None:
        """The rows that the sink was given."""
        return _counted(self.rows_given, self.fingerprint_given)


def _counted(rows: int | None, fingerprint: int | None) -> CountedRows | None:
    return None if rows is None else CountedRows(rows, fingerprint)


class Numbered(Protocol):
    """What has the number of a micro-batch: an entry, or the stamp of a commit."""

    @property
    def epoch(self) -> int:
        """The epoch."""

    @property
    def batch_id(self) -> int:
        """The micro-batch of the epoch."""


def named(write: Numbered) -> str:
    """A micro-batch, a release from quarantine or a repair, in messages."""
    if write.epoch == RELEASES:
        return f"release {write.batch_id} from quarantine"
    if write.epoch == REPAIRS:
        return f"repair {write.batch_id}"
    if write.epoch == REMOVALS:
        return f"removal {write.batch_id} of doubled rows"
    return f"micro-batch {write.batch_id} (epoch {write.epoch})"


@dataclass(frozen=True, kw_only=True)
class LedgerEntry(EntryHead):
    """A ledger entry with its offset ranges; `offsets` is sorted by (source, topic, partition)."""

    offsets: tuple[OffsetSpan, ...]


@dataclass(frozen=True)
class RangeTable:
    """The offset ranges of many entries in columns, so that a day of 8,640 x 200 ranges is judged by NumPy.

    All arrays have the same length. `entry` indexes the heads of the slice and ascends; `topic` indexes `topics`, whose
    items are (source, topic, topic_id).
    """

    entry: npt.NDArray[np.int64]
    topic: npt.NDArray[np.int32]
    partition: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    topics: Sequence[tuple[int, str, str | None]]

    def __len__(self) -> int:
        return len(self.entry)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """How many offsets each range holds; 0 of a Delta table, whose offsets are positions."""
        of_kafka = np.array([is_kafka(name) for _, name, _ in self.topics] or [True], np.bool_)
        return np.where(of_kafka[self.topic], np.maximum(self.end - self.start, 0), 0)

    def of(self, entry: int) -> list[OffsetSpan]:
        """The ranges of one entry."""
        low, high = np.searchsorted(self.entry, (entry, entry + 1)).tolist()  # entries ascend
        columns = (self.topic, self.partition, self.start, self.end)
        ranges = []
        for topic, partition, start, end in zip(*(column[low:high].tolist() for column in columns), strict=True):
            source, name, topic_id = self.topics[topic]
            ranges.append(OffsetSpan(name, topic_id, partition, start, end, source))
        return ranges

    def take(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice) -> RangeTable:
        """The ranges where `which` is True, in the order of its places, or of a slice, which copies nothing."""
        return RangeTable(
            self.entry[which], self.topic[which], self.partition[which], self.start[which], self.end[which], self.topics
        )


def sortable(code: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | npt.NDArray[np.uint16]:
    """Codes of topic partitions in sixteen bits, if they fit: NumPy sorts these by radix, in linear time."""
    fit = len(code) and int(code.min()) >= 0 and int(code.max()) < 2**16
    return code.astype(np.uint16) if fit else code


def firsts(code: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where each distinct code of topic partitions occurs first, by code."""
    if int(code.min()) < 0 or int(code.max()) >= DENSE:
        return np.unique(code, return_index=True)[1]
    places = np.full(int(code.max()) + 1, -1)
    places[code[::-1]] = np.arange(len(code))[::-1]  # of the places of one code the last that is written stays
    return places[places >= 0]


@dataclass(frozen=True)
class LedgerSlice:
    """Entries of one (pipeline, sink) in the order of the chain.

    Anchors, `heads[:anchors]`, are entries before the period: the first audited micro-batch is compared with them, and
    they are not judged themselves. `broken` are the indexes of heads whose stored entry_hash does not match their
    content. `later` are the (query_id, batch_id) of entries that were committed after the period. `transforms_later` is
    whether their counts show a transform that drops or makes rows, None where none was counted. `recorded` are the
    (epoch, batch_id, sink_version) of all entries, read only where the sink has commits that no entry here explains.
    """

    pipeline: str
    sink: str
    heads: Sequence[EntryHead]
    ranges: RangeTable
    anchors: int = 0
    broken: Sequence[int] = ()
    operations: Sequence[tuple[int, str]] = ()  # (version, operation) of the ledger table's own history
    complete: bool = True  # False: the slice starts somewhere in the chain, not at its first entry
    later: Collection[tuple[str, int]] = ()
    transforms_later: bool | None = None
    recorded: Collection[tuple[int, int, int | None]] = ()
    offsets_texts: Sequence[str] = ()  # canonical text of each head's ranges (recon.model.wire.stamp)
    derived: Derived = field(default_factory=dict, init=False, repr=False, compare=False)  # see `kept`

    def keeps(self, sequence: int, entry_hash: str) -> bool:
        """Whether its entry of this number in the chain has this hash; True where it has no such entry."""
        return _hashes(self).get(sequence, entry_hash) == entry_hash

    @classmethod
    def empty(cls, pipeline: str = "", sink: str = "") -> LedgerSlice:
        """The slice of a ledger that has no entry of a sink."""
        nothing = np.zeros(0, np.int64)
        ranges = RangeTable(nothing, nothing.astype(np.int32), nothing, nothing, nothing, ())
        return cls(pipeline, sink, (), ranges)


@kept
def _hashes(ledger: LedgerSlice) -> Mapping[int, str]:
    return {head.sequence: head.entry_hash for head in ledger.heads}
