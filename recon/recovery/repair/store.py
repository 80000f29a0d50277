"""What a repair needs of the sink that it writes: how it looks now, a writer, and what its own record has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recon.errors import SinkError
from recon.judge.coverage import by_partition
from recon.model import ReconStamp, SinkCommit, parse_offsets
from recon.model.offsets import OffsetSpan, Spans
from recon.project import Project, Sink
from recon.recovery.repair.doubled import DoubledRows
from recon.recovery.repair.plan import PlannedRange, TopicPartition
from recon.sinks import BatchSink, Failpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class SinkSnapshot:
    """A sink as it was at one moment: the repair's write is refused if another one of recon's came since.

    Attributes:
        newest: the number of its newest write.
        next: the number of the repair's write; None where its transaction decides that.
        table: its rows, or None where there is no table yet.
        begun: micro-batches that are written in part, or may be, with their offsets: their query completes them.
    """

    newest: int
    next: int | None
    table: Callable[[SparkSession], DataFrame | None]
    begun: Sequence[tuple[str, Sequence[OffsetSpan]]] = ()


@dataclass(frozen=True, kw_only=True)
class Removed:
    """A removal of doubled rows: rows taken out, those of them that were put back, and the version that did it."""

    rows: int
    put_back: int
    version: int | None = None


class RepairStore(ABC):
    """One sink, as a repair sees it."""

    puts_back = True  # whether a removal takes out all rows of an offset and puts one back
    # Whether later rows replace earlier ones, so that what was read is known from the sink's record and not from rows.
    rewrites = False
    expires = False  # whether rows go by themselves, so that what was read is known from the sink's record, too
    of_one_batch = False  # whether a write has rows of one micro-batch only

    def __init__(self, project: Project, pipeline: str, sink: Sink) -> None:
        """Nothing is read yet."""
        self.project, self.pipeline, self.sink = project, pipeline, sink
        self.name = f"pipeline {pipeline}, sink {sink.name}"

    def unfit(self) -> str:
        """Why nothing may be written into the sink as it is now, in a clause; "" where it may. Starts no Spark.

        Raises:
            EvidenceError: the sink cannot be looked at.
        """
        return ""

    @abstractmethod
    def commits(self) -> Sequence[SinkCommit]:
        """Recon's writes of this sink in the sink's own record, oldest first."""

    @abstractmethod
    def look(self) -> SinkSnapshot:
        """The sink now; it is looked at before the ledger is read. Starts no Spark."""

    @abstractmethod
    def writer(self, ranges: Sequence[PlannedRange], look: SinkSnapshot, failpoint: Failpoint) -> BatchSink:
        """Writes the repair of these ranges, once."""

    def was_taken(self, stamp: ReconStamp) -> bool:
        """Whether another repair has the batch_id of this one, of which nothing was written."""
        mine = (stamp.epoch, stamp.batch_id)
        of_number = [one.stamp for one in self.commits() if (one.stamp.epoch, one.stamp.batch_id) == mine]
        return any(one.query_id != stamp.query_id for one in of_number)

    def columns(self, table: DataFrame, rows: Collection[str]) -> Sequence[str]:
        """The columns of the table that rows have to have; `rows` are those of the rows."""
        return table.columns

    def require_order(self, rows: DataFrame, table: DataFrame | None) -> None:  # noqa: B027 - appended rows replace none
        """Requires that none of these records could replace a row of a later one.

        Raises:
            SinkError: what orders a record and the row in the table does not decide between them.
        """

    def comparable(self, table: DataFrame) -> DataFrame:
        """The table without columns that tell two copies of one row apart, because the sink numbers its rows."""
        return table

    def remove(
        self,
        rows: DoubledRows,
        ranges: Sequence[PlannedRange],
        stamp: ReconStamp,
        look: SinkSnapshot,
        failpoint: Failpoint,
    ) -> Removed:
        """Removes all rows but one of each doubled offset of the ranges, in one commit.

        Raises:
            SinkError: somebody wrote meanwhile, or no repair removes rows of this sink; nothing was changed.
        """
        raise SinkError(f"{self.name}: a repair removes no rows of a sink of kind {self.sink.kind}")

    def read(self) -> dict[TopicPartition, Spans]:
        """The offsets that the sink's own record says were read into it."""
        return by_partition(read for commit in self.commits() for read in parse_offsets(commit.stamp.offsets_text))
