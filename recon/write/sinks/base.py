"""The interface of all sinks: write a micro-batch, confirm it, and list earlier writes where the sink records them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.base.errors import EvidenceError
from recon.model import (
    CommitRows,
    LedgerEntry,
    ReconStamp,
    RecordCount,
    SinkChanges,
    SinkLog,
    TableCommit,
    TableCount,
    TableLog,
    Unavailable,
    parse_offsets,
)
from recon.model.deletion import AskedDeletion, DeletedRows
from recon.model.offsets import OffsetSpan
from recon.model.sample import FoundRow, Place
from recon.model.wire.columns import BATCH_ID, SOURCE_COLUMNS
from recon.spark.frames import local_frame
from recon.spark.lazy import F
from recon.write.sinks.failpoints import Failpoint, no_failpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from recon.project import Project, Sink


@dataclass(frozen=True, kw_only=True)
class ConfirmedWrite:
    """A confirmed write.

    Attributes:
        version: the sink's version that holds it; None where the sink has none.
        rows: rows that the sink took in; None where unknown.
        given: rows that the sink was given, where it reduces them itself and reports it; the ledger counts the rest as
            filtered.
        computed_again: whether the write computed the rows in more than one Spark job. An Observation of them keeps
            the count of the first job that ended, failed or not.
        size: bytes that the write added to the sink, as the sink says; None where it does not.
    """

    version: int | None = None
    rows: int | None = None
    given: int | None = None
    computed_again: bool = False
    size: int | None = field(default=None, compare=False)


class BatchSink(ABC):
    """Writes the micro-batches of one sink.

    The hook calls `newest_number` and `log` when it starts, and `landed` for a micro-batch that the ledger knows; else
    it calls `write` and then `confirm`. What a retried `write` does is the `promise` of the sink's config class.
    """

    # Called at the sink's own moments of a write (recon.write.sinks.failpoints); a crash test's ends the process there.
    failpoint: Failpoint = staticmethod(no_failpoint)

    @classmethod
    @abstractmethod
    def of(cls, project: Project, pipeline: str, sink: Sink) -> BatchSink:
        """The writer for a sink of recon.yml.

        Raises:
            ConfigError: something that the sink needs (a driver, a variable) is missing.
        """

    def newest_number(self, pipeline: str, sink: str) -> int | None:
        """The number of the sink's newest write, 0 before the first; None where it numbers none.

        Called before the ledger and `log` are read, so that these have every write up to this number. The next write
        has one more. The sink must refuse a number that it has, also where two drivers write it at once.

        Raises:
            EvidenceError: the number cannot be read.
        """
        return None

    def repair_of(self, pipeline: str, sink: str, number: int) -> ReconStamp | None:
        """The stamp of the repair that took this number, for sinks that `recon repair` writes; None where none did.

        Raises:
            EvidenceError: the write of this number cannot be looked up.
        """
        return None

    @abstractmethod
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        """Write the micro-batch so that it can be found again by `stamp`; raises SinkError, or what Spark raises.

        What a failed attempt leaves behind, the next one repairs. Where another writer took its number first, and it
        is known that nothing was written, it is a RefusedError, here or in `confirm`.
        """

    @abstractmethod
    def confirm(self, stamp: ReconStamp) -> ConfirmedWrite:
        """Find what `write` just wrote.

        Raises:
            SinkError: nothing was written, or the sink holds another write under this micro-batch's name.
        """

    @abstractmethod
    def landed(self, stamp: ReconStamp, version: int | None) -> ConfirmedWrite | None:
        """What an earlier attempt of a micro-batch that the ledger knows wrote; `version` is the ledger's.

        Where it returns None, the hook writes the micro-batch again. A sink without a record of its own trusts the
        ledger.
        """

    def newest_native(self, query_id: str) -> int | None:
        """The newest batch_id of a query that Spark's own sink wrote into the same table; None where it wrote none.

        Raises:
            EvidenceError: the table cannot be read.
        """
        return None

    def added_since(self, at: datetime, *, apart_from: str) -> TableCommit | None:
        """The first commit without recon's stamp that added rows at an instant or later, and that no RESTORE undid.

        Those that Spark's own sink made of the query `apart_from` are left out. None where there is none, or where the
        sink keeps no record of them.

        Raises:
            EvidenceError: the record cannot be read.
        """
        return None

    def table_id(self, landed: ConfirmedWrite) -> str | None:
        """The id of the table that a confirmed write is in, for sinks whose tables have one; None where unknown."""
        return None

    def replaced(self, entry: LedgerEntry) -> str:
        """Why the sink is not the one that an entry was written into, in a clause; "" where it is, or nobody knows.

        Raises:
            EvidenceError: the sink cannot be read.
        """
        return ""

    @abstractmethod
    def log(self, after: int | None = None, since: datetime | None = None) -> SinkLog:
        """The sink's own record of recon's writes.

        Args:
            after: the version from which on commits are wanted, itself left out, for sinks that have versions.
            since: the instant from which on commits are wanted, for sinks that have none.

        Raises:
            EvidenceError: the record cannot be read.
        """

    def history(self, from_version: int | None, *, files: bool) -> TableLog:
        """Every commit of the table, others' too, for a sink with `has_history`.

        Args:
            from_version: the version from which on commits are wanted; None for all.
            files: look at the data files that the table consists of, too.

        Raises:
            EvidenceError: the table cannot be read.
        """
        raise EvidenceError("a sink of this kind keeps no history of its commits")

    def commit_rows(self, versions: Collection[int]) -> Mapping[int, CommitRows | Unavailable]:
        """The rows of the data files that versions of an Iceberg table added, or why they were not looked at."""
        return {}

    def deleted_rows(self, asked: Sequence[AskedDeletion]) -> Mapping[int, DeletedRows | Unavailable]:
        """The rows that commits of an Iceberg table deleted, or why they were not looked at."""
        return {}

    def other_rows(self) -> int | None:
        """How many rows the sink has besides those that its record accounts for, as of one moment.

        Negative where rows are gone that were written; None where that cannot be told cheaply.

        Raises:
            EvidenceError: the rows cannot be counted.
        """
        return None

    def record_count(self, up_to: int) -> RecordCount | None:
        """How many writes the sink's own record has of all that recon ever made, and how many up to a number.

        None where it does not number them, or where counting them takes too long.

        Raises:
            EvidenceError: the record cannot be read.
        """
        return None

    def count(self, topics: Collection[str], since: datetime | None = None, known: int = 0) -> TableCount | None:
        """The rows of a database table that is appended to, by topic, and what its record accounts for.

        None for a sink that is none, or that cannot count them cheaply as of one moment.

        Args:
            topics: those that the sink reads.
            since: the instant from which on the writes of other pipelines and sinks are wanted; None for all.
            known: the number of the newest of the sink's own writes of which the fingerprint is known.

        Raises:
            EvidenceError: the rows cannot be counted.
        """
        return None

    def changes(self, since: datetime | None = None) -> SinkChanges:
        """What happened to the sink besides recon's writes; nothing where that cannot be told without reading rows.

        Called after `log`, once in each audit. A sink that is too large to look at all of it looks at what was written
        from the instant `since` on.

        Raises:
            EvidenceError: the sink cannot be looked at.
        """
        return SinkChanges()

    def rows_at(self, places: Mapping[Place, Collection[int]]) -> Mapping[Place, Sequence[FoundRow]]:
        """The rows that the sink has of some source records now, looked up without Spark; none where it has none.

        `places` maps each record to the batch ids under which the ledger has it, for a sink that keeps micro-batches
        apart.

        Raises:
            EvidenceError: the rows cannot be looked at without Spark, or not all of them.
        """
        raise EvidenceError("rows of a sink of this kind are read by Spark alone")

    @abstractmethod
    def table(self, spark: SparkSession) -> DataFrame:
        """All rows that a reader of the sink sees now, with recon's columns.

        Raises:
            EvidenceError: the sink's rows cannot be read back.
        """

    def rows_left(self, spark: SparkSession) -> DataFrame:
        """The rows that `table` gives, also where others are gone that it insists on.

        Raises:
            EvidenceError: as `table`.
        """
        return self.table(spark)

    def rows_as_of(self, spark: SparkSession, version: int) -> DataFrame:
        """All rows at a version, for a sink with `has_history` that is no Delta table.

        Raises:
            EvidenceError: the version cannot be read back.
        """
        raise EvidenceError("a sink of this kind keeps no history of its rows")

    @abstractmethod
    def rows_of(self, spark: SparkSession, landed: ConfirmedWrite, stamp: ReconStamp) -> DataFrame:
        """Exactly the rows that one write left, for post-batch checks."""


class UnrecordedAppend(BatchSink):
    """Spark's own append, of which the sink keeps no record: the ledger is trusted, and a retry writes rows again."""

    _written: int | None = None  # rows that Spark counted during the last write

    @override
    def confirm(self, stamp: ReconStamp) -> ConfirmedWrite:
        return ConfirmedWrite(rows=self._written)

    @override
    def landed(self, stamp: ReconStamp, version: int | None) -> ConfirmedWrite | None:
        return ConfirmedWrite()

    @override
    def rows_of(self, spark: SparkSession, landed: ConfirmedWrite, stamp: ReconStamp) -> DataFrame:
        return rows_of_batch(self.table(spark), stamp)  # those of a failed attempt are among them


def rows_of_batch(rows: DataFrame, stamp: ReconStamp) -> DataFrame:
    """The rows of one micro-batch, by batch id and, where the rows have source columns, by its offset ranges.

    Batch ids start over with a new epoch: rows of an earlier epoch with the same number have other offsets.
    """
    mine = rows.filter(F.col(BATCH_ID) == stamp.batch_id)
    if not set(SOURCE_COLUMNS) <= set(rows.columns):
        return mine
    return rows_in_ranges(mine, parse_offsets(stamp.offsets_text))


def rows_in_ranges(rows: DataFrame, ranges: Iterable[OffsetSpan]) -> DataFrame:
    """The rows whose source columns lie in these ranges."""
    spans = [(s.topic, s.partition, s.start_offset, s.end_offset) for s in ranges if s.span.size]
    known = local_frame(rows.sparkSession, spans, "t string, p int, a long, b long")
    topic, partition, offset = (F.col(name) for name in SOURCE_COLUMNS)
    inside = (topic == F.col("t")) & (partition == F.col("p")) & (offset >= F.col("a")) & (offset < F.col("b"))
    return rows.join(F.broadcast(known), inside, "left_semi")
