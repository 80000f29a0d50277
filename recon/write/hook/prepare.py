"""Prepares the rows that one sink writes of a micro-batch: transform, trim, stamp."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.base.errors import SinkError
from recon.model import ReconStamp
from recon.model.wire.columns import BATCH_ID, KAFKA_COLUMNS, SOURCE_COLUMNS, SOURCE_OFFSET, STAMPED_COLUMNS
from recon.project import Sink
from recon.spark.columns import with_columns
from recon.spark.lazy import F
from recon.spark.observation import Counter
from recon.write.hook.epochs import BatchToWrite
from recon.write.hook.row_counts import RowCounts
from recon.write.sinks import ConfirmedWrite
from recon.write.sinks.base import rows_in_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Transform = Callable[..., "DataFrame"]


@dataclass(frozen=True, kw_only=True)
class PreparedRows:
    """The stamped rows to write.

    `read` counts the rows read, where their number may differ from the rows' own; `returned` counts the rows
    themselves, None where nothing does.
    """

    rows: DataFrame
    read: Counter | None = None
    returned: Counter | None = None


class BatchRows(ABC):
    """What one sink writes of one micro-batch, and how its ledger entry counts it. `frame` is the micro-batch."""

    frame: DataFrame

    @abstractmethod
    def prepare(self, batch: BatchToWrite) -> PreparedRows:
        """The rows to write."""

    def counts_of_write(self, counts: RowCounts, landed: ConfirmedWrite, batch: BatchToWrite) -> RowCounts:
        """The counts for the ledger entry, from those of the write itself."""
        return counts

    def counts_of_replay(self, counts: RowCounts, landed: ConfirmedWrite, batch: BatchToWrite) -> RowCounts:
        """The counts for the entry of a replay that found its rows in the sink, from those of the earlier entry."""
        return counts


class WholeBatch(BatchRows):
    """All rows of the micro-batch, after the user's transform."""

    def __init__(self, frame: DataFrame, sink: Sink, transform: Transform | None, *, of_table: bool = False) -> None:
        """`of_table` is whether the rows come from a Delta table: recon's columns there are of the stream before."""
        self.frame, self._sink, self._transform, self._of_table = frame, sink, transform, of_table

    @override
    def prepare(self, batch: BatchToWrite) -> PreparedRows:
        if not self._of_table:
            require_free(self.frame, batch.stamp.pipeline)
        # Of a micro-batch that is trimmed, more rows are read than the entry's ranges hold: no fingerprint is expected.
        source = () if batch.trimmed else SOURCE_COLUMNS if self._of_table else KAFKA_COLUMNS
        untouched = self._transform is None and not batch.trimmed
        read = None if untouched else Counter(self.frame, source, same_again=True)
        rows = trimmed(self._with_source(self.frame if read is None else read.frame), batch)
        if self._transform is not None:
            rows = self._with_source(self._transformed(rows, self._transform, batch))
        stamped_rows = self._stamped(rows, batch)
        returned = Counter(stamped_rows, source_of(stamped_rows), same_again=untouched)
        return PreparedRows(rows=returned.frame, read=read, returned=returned)

    def _transformed(self, rows: DataFrame, transform: Transform, batch: BatchToWrite) -> DataFrame:
        return call(transform, rows, batch.stamp.batch_id)

    def _stamped(self, rows: DataFrame, batch: BatchToWrite) -> DataFrame:
        return stamped(rows, batch.stamp, self._sink)

    def _with_source(self, rows: DataFrame) -> DataFrame:
        return with_source(rows) if self._sink.stamp_source_offsets else rows


def require_free(frame: DataFrame, pipeline: str) -> None:
    """Raises SinkError where the micro-batch has a column of a name that recon writes."""
    reserved = [column for column in STAMPED_COLUMNS if column in frame.columns]
    if reserved:
        raise SinkError(
            f"pipeline {pipeline}: the micro-batch already has a column {reserved[0]}, which recon "
            "writes itself; rename it before the sink"
        )


def with_source(frame: DataFrame) -> DataFrame:
    """The rows with the source columns, where the columns of Spark's Kafka source are there to take them from."""
    columns = set(frame.columns)
    if not columns.issuperset(KAFKA_COLUMNS):
        return frame
    names = zip(SOURCE_COLUMNS, KAFKA_COLUMNS, strict=True)
    return with_columns(frame, {ours: F.col(kafka) for ours, kafka in names if ours not in columns})


def source_of(frame: DataFrame) -> Sequence[str]:
    """The columns that say which record each row was made of: recon's, or Kafka's own where recon stamps none."""
    if set(SOURCE_COLUMNS) <= set(frame.columns):
        return SOURCE_COLUMNS
    # Columns of these names and of other types are the user's own.
    types = dict(frame.dtypes)
    return KAFKA_COLUMNS if [types.get(name) for name in KAFKA_COLUMNS] == ["string", "int", "bigint"] else ()


def call(transform: Transform, frame: DataFrame, batch_id: int) -> DataFrame:
    """What the user's transform returns, called with the batch_id if it has two required parameters."""
    return transform(frame, batch_id) if takes_batch_id(transform) else transform(frame)


def takes_batch_id(transform: Transform) -> bool:
    """Whether the user's transform has two required parameters: the micro-batch and its batch_id."""
    required = [
        p
        for p in inspect.signature(transform).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    return len(required) > 1


def name_of(transform: Transform) -> str:
    """A transform as ledger entries name it: `module:function`, or its type where it is another callable."""
    named = transform if hasattr(transform, "__qualname__") else type(transform)
    return f"{named.__module__}:{named.__qualname__}"


def trimmed(frame: DataFrame, batch: BatchToWrite) -> DataFrame:
    """The rows whose offsets are to be written.

    Raises:
        SinkError: rows are to be left out by their offsets, and have no offsets.
    """
    if not batch.trimmed:
        return frame
    if SOURCE_OFFSET not in frame.columns:
        raise SinkError(
            f"pipeline {batch.stamp.pipeline}: trim_replayed_offsets needs the Kafka columns topic, partition and "
            "offset in the micro-batch; do not drop them before foreachBatch"
        )
    return rows_in_ranges(frame, batch.ranges)


def stamped(rows: DataFrame, stamp: ReconStamp, sink: Sink) -> DataFrame:
    """The rows with `_batch_id`.

    Raises:
        SinkError: the sink stamps source offsets, and the rows have no source columns.
    """
    missing = [column for column in SOURCE_COLUMNS if column not in rows.columns]
    if sink.stamp_source_offsets and missing:
        raise SinkError(
            f"pipeline {stamp.pipeline}: the rows to write have no column {missing[0]} and no Kafka columns "
            "to take it from; keep _source_topic, _source_partition and _source_offset in your transform, or set "
            f"stamp_source_offsets: false for sink {sink.name} (row-level proofs are then not possible)"
        )
    return rows.withColumn(BATCH_ID, F.lit(stamp.batch_id).cast("long"))
