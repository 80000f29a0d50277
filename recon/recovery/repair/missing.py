"""Reads missing offsets again from Kafka, and writes them through the sink as a repair of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.base.errors import EvidenceError, SinkError
from recon.base.storage import Storage
from recon.judge.coverage import by_partition
from recon.judge.rows import sink_rows
from recon.model import RowGroup
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.model.wire.columns import BATCH_ID, KAFKA_COLUMNS, SOURCE_COLUMNS
from recon.project import Pipeline, Project, Sink
from recon.recovery.repair.plan import PlannedRange, TopicPartition
from recon.spark.columns import quoted
from recon.spark.errors import spark_error
from recon.spark.frames import local_frame
from recon.spark.lazy import F
from recon.spark.observation import Counter
from recon.spark.packages import kafka_package
from recon.witness import sink_rows as rows_of_sink
from recon.write.hook.epochs import BatchToWrite
from recon.write.hook.prepare import PreparedRows, Transform, WholeBatch, call, require_free, stamped, with_source
from recon.write.hook.read_kafka import source_options
from recon.write.hook.routing import ROUTE, Routing, Share
from recon.write.hook.row_counts import RowCounts
from recon.write.ledger import quarantined
from recon.write.quarantine import groups as quarantine_groups
from recon.write.sinks import ConfirmedWrite
from recon.write.sinks.base import rows_in_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Options that say what a stream reads, and how fast.
_OF_STREAMS = frozenset(
    (
        "subscribe",
        "subscribepattern",
        "assign",
        "startingoffsets",
        "startingtimestamp",
        "startingoffsetsbytimestamp",
        "endingoffsets",
        "endingtimestamp",
        "endingoffsetsbytimestamp",
        "failondataloss",
        "maxoffsetspertrigger",
        "minoffsetspertrigger",
        "maxtriggerdelay",
    )
)
OWNER = "_recon_owner"
_NEAR = 10_000  # offsets between two ranges that are read along, and left out afterwards


def present(
    spark: SparkSession,
    table: DataFrame | None,
    project: Project,
    pipeline: str,
    sink: Sink,
    ranges: Iterable[OffsetSpan],
) -> dict[TopicPartition, Spans]:
    """The offsets of the ranges of which the table has a row, whoever wrote it, or one waits in quarantine.

    Raises:
        EvidenceError: the rows cannot be read, or carry no source offsets.
    """
    ranges = list(ranges)
    groups: list[RowGroup] = []
    if table is not None:
        if not set(SOURCE_COLUMNS) <= set(table.columns):
            raise EvidenceError(
                f"{project.location(sink)} has no column {SOURCE_COLUMNS[0]}, so which offsets have a row is not "
                "known, and a repair could double rows: read the ranges once more through the hook"
            )
        rows = rows_in_ranges(table, ranges).withColumn(BATCH_ID, F.lit(0).cast("long"))
        groups += rows_of_sink.read(spark, rows, location=project.location(sink)).groups
    place = quarantined.location(project, pipeline, sink)
    if place is not None and quarantined.exists(Storage(place, project.storage_options)):
        groups += [group for group in quarantine_groups.read(spark, place) if group.release is None]
    return sink_rows.present(sink_rows.by_partition(groups))


def kafka_rows(
    spark: SparkSession,
    project: Project,
    pipeline: Pipeline,
    ranges: Sequence[OffsetSpan],
    options: Mapping[str, str],
) -> DataFrame:
    """Exactly the records of these ranges, as a batch read of Kafka gives them under the stream's isolation level.

    It connects as `recon.read_kafka` does; `options` are further ones of Spark's Kafka source, such as
    `includeHeaders`.
    """
    of_places = [[(where, span) for span in _joined(spans)] for where, spans in sorted(by_partition(ranges).items())]
    frames = [
        _read(spark, project, pipeline, [of_place for of_place in layer if of_place is not None], options)
        for layer in zip_longest(*of_places)
    ]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    kept = list(whole.columns)
    return rows_in_ranges(with_source(whole), ranges).select(*kept)


def _joined(spans: Spans) -> list[Span]:
    """Ranges that lie near each other, as one."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and start - joined[-1].end <= _NEAR:
            joined[-1] = Span(joined[-1].start, end)
        else:
            joined.append(Span(start, end))
    return joined


def _read(
    spark: SparkSession,
    project: Project,
    pipeline: Pipeline,
    layer: Sequence[tuple[TopicPartition, Span]],
    options: Mapping[str, str],
) -> DataFrame:
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, partition), span in layer:
        assigned.setdefault(topic, []).append(partition)
        starts.setdefault(topic, {})[str(partition)] = span.start
        ends.setdefault(topic, {})[str(partition)] = span.end
    known = source_options(project, pipeline, {**options, **({} if pipeline.source.topics else {"assign": "{}"})})
    of_reader = {
        **{name: value for name, value in known.items() if name.lower() not in _OF_STREAMS},
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "failOnDataLoss": "true",
    }
    try:
        return spark.read.format("kafka").options(**of_reader).load()
    except Exception as error:
        raise SinkError(
            f"Spark cannot read Kafka: {spark_error(error)}; nothing was written: where its connector is missing, "
            f"name {kafka_package(spark.version)} in recon.yml, below spark: packages"
        ) from error


class RepairRows(WholeBatch):
    """Records that were read again, after the transform; each row has the `_batch_id` of its micro-batch.

    Both are cached: where the sink refuses a write, the next one has the same rows, or fewer of them, and nothing is
    read twice.
    """

    def __init__(
        self,
        frame: DataFrame,
        sink: Sink,
        transform: Transform | None,
        ranges: Sequence[PlannedRange],
        columns: Callable[[Sequence[str]], Sequence[str]] | None,
        routing: Routing | None = None,
    ) -> None:
        """Nothing is read yet.

        Args:
            frame: the records.
            sink: the sink.
            transform: the query's.
            ranges: of which micro-batch the records are.
            columns: tells the table's columns that rows of these columns have to have; None: there is no table yet.
            routing: chooses the rows of the sink, where it is a route.
        """
        super().__init__(frame.persist(), sink, transform)
        self._ranges, self._columns, self._routing = ranges, columns, routing
        self._made: DataFrame | None = None
        self._split: DataFrame | None = None  # the rows of all routes
        self._share: Share | None = None
        self._records = 0

    @override
    def prepare(self, batch: BatchToWrite) -> PreparedRows:
        require_free(self.frame, batch.stamp.pipeline)
        if self._made is None:
            rows = with_source(self.frame)
            if self._transform is not None:
                # A transform that gets the batch_id is called for one micro-batch at a time.
                number = self._ranges[0].batch_id if self._ranges else None
                rows = with_source(call(self._transform, rows, number or 0))
            self._made = self._stamped(self._chosen(rows), batch).persist()
        # What is read from the cache does not pass the records: they are counted by a job of their own.
        read = Counter(rows_in_ranges(with_source(self.frame), batch.ranges), KAFKA_COLUMNS, same_again=True)
        self._records = read.frame.count()
        if self._split is not None and self._routing is not None:
            split = rows_in_ranges(self._split, batch.ranges)
            self._share = self._routing.shares(split, lambda: self._records)[self._sink.name]
        returned = Counter(rows_in_ranges(self._made, batch.ranges), SOURCE_COLUMNS)
        return PreparedRows(rows=returned.frame, read=read, returned=returned)

    def counted(self, batch: BatchToWrite) -> tuple[int, int | None]:
        """The records, and those without a row for the sink, counted before the write; None where they cannot be."""
        rows = self.prepare(batch).rows
        if self._share is not None:
            return self._share.read, self._share.elsewhere
        returned = rows.count()
        return self._records, self._records - returned if returned <= self._records else None

    def _chosen(self, rows: DataFrame) -> DataFrame:
        """The rows of this sink."""
        if self._routing is None:
            return rows
        self._split = self._routing.routed(rows).persist()
        return self._split.filter(F.col(ROUTE) == self._sink.name).drop(ROUTE)

    @override
    def counts_of_write(self, counts: RowCounts, landed: ConfirmedWrite, batch: BatchToWrite) -> RowCounts:
        if self._share is None:
            return counts
        return counts.of_route(landed, read=self._share.read, elsewhere=self._share.elsewhere)

    def close(self) -> None:
        """Frees the cached rows."""
        for cached in (self.frame, self._split, self._made):
            if cached is not None:
                cached.unpersist()

    @override
    def _stamped(self, rows: DataFrame, batch: BatchToWrite) -> DataFrame:
        rows = stamped(rows, batch.stamp, self._sink)
        self._require_columns(rows, batch)
        joined = with_owner(rows.drop(BATCH_ID), self._ranges, "left")
        return joined.withColumnRenamed(OWNER, BATCH_ID).select(*(quoted(name) for name in rows.columns))

    def _require_columns(self, rows: DataFrame, batch: BatchToWrite) -> None:
        """The rows have the columns of the table: a query may have changed them before foreachBatch."""
        if self._columns is None:
            return
        mine, theirs = ({name.lower() for name in names} for names in (rows.columns, self._columns(rows.columns)))
        if mine != theirs:
            apart = [f"column {name} is in the rows alone" for name in sorted(mine - theirs)]
            apart += [f"column {name} is in the table alone" for name in sorted(theirs - mine)]
            raise SinkError(
                f"pipeline {batch.stamp.pipeline}, sink {batch.stamp.sink}: the rows that were read again do not look "
                f"like those of the table ({'; '.join(apart[:4])}), and nothing was written: give the repair a "
                "transform that does all that the query does between Kafka and the sink"
            )


def with_owner(rows: DataFrame, ranges: Sequence[PlannedRange], how: str) -> DataFrame:
    """The rows with the column OWNER: the micro-batch of the range that they lie in; joined as `how` says."""
    spans = [(part.topic, part.partition, part.start_offset, part.end_offset, part.batch_id) for part in ranges]
    names = {"_recon_t": "string", "_recon_p": "int", "_recon_from": "long", "_recon_to": "long", OWNER: "long"}
    known = local_frame(rows.sparkSession, spans, ", ".join(f"{name} {of}" for name, of in names.items()))
    topic, partition, offset = (F.col(name) for name in SOURCE_COLUMNS)
    inside = (topic == F.col("_recon_t")) & (partition == F.col("_recon_p"))
    inside = inside & (offset >= F.col("_recon_from")) & (offset < F.col("_recon_to"))
    return rows.join(F.broadcast(known), inside, how)


def by_batch(ranges: Sequence[PlannedRange]) -> list[list[PlannedRange]]:
    """The ranges of each micro-batch."""
    groups: dict[int | None, list[PlannedRange]] = {}
    for part in ranges:
        groups.setdefault(part.batch_id, []).append(replace(part))
    return [groups[number] for number in sorted(groups, key=lambda n: -1 if n is None else n)]
