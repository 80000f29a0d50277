"""What became of every offset that a stream read: classes, how each is known, and the lines of the account.

Every offset of a topic partition is in exactly one line, so that the lines of a sink add up to what was read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from recon.base.lazy import np

if TYPE_CHECKING:
    import numpy.typing as npt


class OffsetClass(StrEnum):
    """What became of an offset, in order of precedence: the first class that is known of it counts."""

    IN_A_ROW = "in a row"  # of a sink that replaces rows, or a query that keeps state: it was taken in
    QUARANTINED = "quarantined"
    RELEASED = "released"  # from quarantine, and the release dropped its row
    FILTERED = "filtered"
    MARKER = "transaction marker"
    ABORTED = "aborted"
    COMPACTED = "compacted"
    WITHOUT_RECORD = "without a record when read"  # an earlier audit saw it; Kafka no longer tells which kind
    DELETED = "deleted before it was read"
    REMOVED = "removed since"
    LOST = "lost"
    NOT_KNOWN = "not known"


class HowKnown(StrEnum):
    """How the class of an offset is known."""

    COUNTED = "counted during the write"
    ROWS = "read from rows"
    FILES = "read from data files"
    KAFKA = "said by Kafka"
    SPARK = "said by Spark"
    LOG = "said by the log"
    REMEMBERED = "remembered"  # an earlier audit saw it
    ACCEPTED = "accepted"
    DECLARED = "declared deletion"  # by a commit that recon.yml names
    NOTHING = "no witness"


CLASSES, KNOWN = tuple(OffsetClass), tuple(HowKnown)
COLUMNS = ("topic", "partition", "start", "end", "offsets", "offset_class", "how", "entry")


class AccountLine(NamedTuple):
    """Offsets of one class.

    `topic` indexes the account's topics and `entry` its writes. -1 where that is not known: a count does not say of
    which offsets it is, and what no micro-batch read has no write. `start` and `end` are the range [start, end); both
    -1 where only the number of `offsets` is known.
    """

    topic: int
    partition: int
    start: int
    end: int
    offsets: int
    offset_class: OffsetClass
    how: HowKnown
    entry: int


class Write(NamedTuple):
    """A write of the sink: a micro-batch, or a repair; `version` is the sink's, None where it has none."""

    epoch: int
    batch_id: int
    version: int | None


@dataclass(frozen=True)
class SinkAccount:
    """The account of one sink in columns, all of the same length; a day of 1.7 million ranges has as many lines.

    Args:
        pipeline: its name.
        sink: its name.
        topics: (source, topic, topic id), indexed by `topic`.
        writes: indexed by `entry`.
        topic: see `AccountLine`, as the columns after it.
        partition: of the topic; -1 where only a count is known.
        start: the first offset.
        end: behind the last offset.
        offsets: how many there are.
        offset_class: index in `CLASSES`.
        how: index in `KNOWN`.
        entry: index in `writes`.
        partitions: the topic partitions that were read, also those of which only numbers are known.
        doubled: offsets with several rows: (topic, partition, start, end, rows of each).
        doubts: why the sink may have other rows by now than the lines say, a sentence each.
    """

    pipeline: str
    sink: str
    topics: Sequence[tuple[int, str, str | None]]
    writes: Sequence[Write]
    topic: npt.NDArray[np.int64]
    partition: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    offset_class: npt.NDArray[np.int8]
    how: npt.NDArray[np.int8]
    entry: npt.NDArray[np.int64]
    partitions: Sequence[tuple[str, int]] = field(default=(), kw_only=True)
    doubled: Sequence[tuple[str, int, int, int, int]] = field(default=(), kw_only=True)
    doubts: Sequence[str] = field(default=(), kw_only=True)

    def __len__(self) -> int:
        return len(self.offsets)

    @cached_property
    def read(self) -> int:
        """How many offsets there are."""
        return int(self.offsets.sum())

    @cached_property
    def sums(self) -> Mapping[OffsetClass, int]:
        """How many offsets each class has; the values add up to `read`."""
        of_class = np.zeros(len(CLASSES), np.int64)
        np.add.at(of_class, self.offset_class, self.offsets)
        return dict(zip(CLASSES, of_class.tolist(), strict=True))

    def take(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> SinkAccount:
        """The account of some lines."""
        return self.replace(**{name: getattr(self, name)[which] for name in COLUMNS})

    def replace(self, **fields: Any) -> SinkAccount:
        """The account with other values of some fields."""
        return dataclasses.replace(self, **fields)

    def ordered(self) -> SinkAccount:
        """The account by topic, partition and offset; lines without a range by their micro-batch, behind these."""
        counted = self.topic < 0
        return self.take(np.lexsort((self.start, self.entry * counted, self.partition, self.topic, counted)))

    def lines(self) -> Iterator[AccountLine]:
        """The lines one by one, in no order."""
        columns = (
            self.topic,
            self.partition,
            self.start,
            self.end,
            self.offsets,
            self.offset_class,
            self.how,
            self.entry,
        )
        for topic, partition, start, end, offsets, of, how, entry in zip(*(c.tolist() for c in columns), strict=True):
            yield AccountLine(topic, partition, start, end, offsets, CLASSES[of], KNOWN[how], entry)
