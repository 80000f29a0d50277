"""What a repair needs of the sink that it writes: how it looks now, a writer, and what its own record has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Protocol

from recon.base.errors import ConfigError, SinkError
from recon.judge.coverage import by_partition
from recon.model import ReconStamp, SinkCommit, parse_offsets
from recon.model.offsets import OffsetSpan, Spans
from recon.project import Project, Sink
from recon.write.sinks import BatchSink, Failpoint, open_sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Columns of `DoubledRows.frame`: the source offset, as SOURCE_COLUMNS, and the row to keep, as a struct.
DOUBLED = ("_recon_topic", "_recon_partition", "_recon_offset")
KEPT_ROW = "_recon_row"


class RangeToRepair(Protocol):
    """Offsets that are read again, or cleaned, and the micro-batch that read past them; None where none did."""

    @property
    def span(self) -> OffsetSpan: ...  # noqa: D102 - the class says it

    @property
    def batch_id(self) -> int | None: ...  # noqa: D102 - the class says it


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


@dataclass(frozen=True)
class DoubledRows:
    """The doubled rows of some ranges, as a table has them at one version.

    Attributes:
        frame: a row per doubled offset, with the row to keep.
        held: offsets of the ranges that have a row.
        kept: offsets that have several, of each of which one row is kept.
        removed: rows of these offsets.
        unclear: offsets whose rows differ, so that which one is right is not known.
    """

    frame: DataFrame
    held: int
    kept: int
    removed: int
    unclear: int


@dataclass(frozen=True, kw_only=True)
class Removed:
    """A removal of doubled rows: rows taken out, those of them that were put back, and the version that did it."""

    rows: int
    put_back: int
    version: int | None = None


class RepairStore:
    """One sink, as a repair sees it; as it is, for a sink whose writer numbers its writes, records them and appends.

    What a repair can do for the sink at all is `repair_ability` of its config class.
    """

    puts_back = True  # whether a removal takes out all rows of an offset and puts one back
    expires = False  # whether rows go by themselves, so that what was read is known from the sink's record
    of_one_batch = False  # whether a write has rows of one micro-batch only

    def __init__(self, project: Project, pipeline: str, sink: Sink) -> None:
        """Nothing is read yet."""
        self.project, self.pipeline, self.sink = project, pipeline, sink
        self.name = f"pipeline {pipeline}, sink {sink.name}"
        self.reader = self.opened()

    def opened(self) -> BatchSink:
        """A new writer of the sink; `reader` is one that writes nothing."""
        return open_sink(self.project, self.pipeline, self.sink)

    def unfit(self) -> str:
        """Why nothing may be written into the sink as it is now, in a clause; "" where it may. Starts no Spark.

        Raises:
            EvidenceError: the sink cannot be looked at.
        """
        return ""

    def commits(self) -> Sequence[SinkCommit]:
        """Recon's writes of this sink in the sink's own record, oldest first."""
        return [commit for commit in self.reader.log().commits if commit.stamp.is_of(self.pipeline, self.sink.name)]

    def newest_number(self) -> int:
        """The number of the sink's newest write, 0 before the first.

        Raises:
            SinkError: the sink numbers none.
        """
        number = self.reader.newest_number(self.pipeline, self.sink.name)
        if number is None:
            raise SinkError(
                f"{self.name}: its writer numbers no writes (newest_number), so of two repairs at once none would be "
                "refused, and nothing was written: number its writes, or read the ranges once more through the hook"
            )
        return number

    def snapshot(self) -> SinkSnapshot:
        """The sink now; it is looked at before the ledger is read. Starts no Spark."""
        number = self.newest_number()
        return SinkSnapshot(newest=number, next=number + 1, table=self.table)

    def table(self, spark: SparkSession) -> DataFrame | None:
        """Its rows, or None where there is no table yet."""
        return self.reader.table(spark) if self.commits() else None

    def writer(self, ranges: Sequence[RangeToRepair], snapshot: SinkSnapshot, failpoint: Failpoint) -> BatchSink:
        """Writes the repair of these ranges, once; the `_batch_id` of a row is that of its range."""
        writer = self.opened()
        writer.failpoint = failpoint
        return writer

    def was_taken(self, stamp: ReconStamp) -> bool:
        """Whether another repair has the batch_id of this one, of which nothing was written."""
        return any(
            (other.epoch, other.batch_id) == (stamp.epoch, stamp.batch_id) and other.query_id != stamp.query_id
            for other in (commit.stamp for commit in self.commits())
        )

    def columns(self, table: DataFrame, rows: Collection[str]) -> Sequence[str]:
        """The columns of the table that rows have to have; `rows` are those of the rows."""
        return table.columns

    def require_order(self, rows: DataFrame, table: DataFrame | None) -> None:
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
        ranges: Sequence[RangeToRepair],
        stamp: ReconStamp,
        snapshot: SinkSnapshot,
        failpoint: Failpoint,
    ) -> Removed:
        """Removes all rows but one of each doubled offset of the ranges, in one commit.

        Raises:
            SinkError: somebody wrote meanwhile, or no repair removes rows of this sink; nothing was changed.
        """
        raise SinkError(f"{self.name}: a repair removes no rows of a sink of kind {self.sink.kind}")

    def read(self) -> dict[tuple[str, int], Spans]:
        """The offsets of each topic partition that the sink's own record says were read into it."""
        return by_partition(read for commit in self.commits() for read in parse_offsets(commit.stamp.offsets_text))


def open_repair(project: Project, pipeline: str, sink: Sink) -> RepairStore:
    """The store of a sink that can be repaired, by `repairs` of its config class.

    Raises:
        ConfigError: it cannot be imported, or the writer cannot be opened.
    """
    try:
        store: type[RepairStore] = resolve_name(sink.repairs)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"pipeline {pipeline}, sink {sink.name}: {sink.repairs}, by which a repair writes kind {sink.kind}, cannot "
            f"be imported ({error}); correct `repairs` of {type(sink).__name__}, or install what it needs"
        ) from error
    return store(project, pipeline, sink)
