"""One micro-batch split between several sinks, each with its own chain, epoch, stamp and idempotence.

The transform runs once, then `routes.by` decides where each row goes. Before anything is written, one aggregate counts
the rows of each route and refuses rows without one. The rows that each sink took in are compared with that count. A
retry finds the routes that were committed in their ledgers and writes only the others.

In a route's ledger entry `rows_read` is the whole micro-batch, and `rows_filtered` counts the records that have no row
in this route: those the transform dropped and those of other routes. So a route's own rows and offsets add up, and a
row that was lost shows up as one offset too few.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.base.counts import sum_of
from recon.events import Emitter
from recon.model.wire.columns import SOURCE_COLUMNS
from recon.project import Pipeline, Project, Routes, Sink
from recon.spark.lazy import F
from recon.spark.observation import Counter
from recon.write.hook.epochs import BatchToWrite
from recon.write.hook.prepare import (
    BatchRows,
    PreparedRows,
    Transform,
    call,
    require_free,
    stamped,
    trimmed,
    with_source,
)
from recon.write.hook.routing import ROUTE, Routing, Share
from recon.write.hook.row_counts import RowCounts, reduced
from recon.write.hook.version_guard import Sent
from recon.write.hook.writer import ForeachBatch
from recon.write.sinks import ConfirmedWrite, Failpoint
from recon.write.sinks.failpoints import no_failpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("recon")


class RoutedForeachBatch(Sent):
    """One pipeline's writer into the sinks of its routes; call it as `foreachBatch` does."""

    def __init__(
        self,
        project: Project,
        pipeline: Pipeline,
        routes: Routes,
        transform: Transform | None = None,
        *,
        failpoint: Failpoint = no_failpoint,
    ) -> None:
        """Nothing is read or written before the first micro-batch.

        Raises:
            ConfigError: a sink cannot be used.
        """
        self.project, self.pipeline, self.routes = project, pipeline, routes
        self._transform = transform
        sinks = [sink for sink in pipeline.sinks if sink.name in routes.sinks]
        emitter = Emitter(project)
        self.parts = [
            ForeachBatch(project, pipeline, sink, transform, routes=routes, failpoint=failpoint, emitter=emitter)
            for sink in sinks
        ]

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch, route by route, and enter each in the ledger.

        The first route that fails ends the attempt; Spark tries the micro-batch again, and routes that were committed
        are recognised then.

        Raises:
            SinkError: a row has no route, before anything was written; or what `ForeachBatch` raises for one route.
        """
        split = Split(frame, batch_id, self.pipeline, self.routes, self._transform)
        try:
            for part in self.parts:
                part.write(RouteRows(frame, split, part.sink), batch_id)
        except BaseException:
            for part in self.parts:
                part.forget()
            raise
        finally:
            split.close()


class RouteRows(BatchRows):
    """The rows of one route."""

    def __init__(self, frame: DataFrame, split: Split, sink: Sink) -> None:
        self.frame, self._split, self._sink = frame, split, sink

    @override
    def prepare(self, batch: BatchToWrite) -> PreparedRows:
        rows = trimmed(self._split.rows(self._sink.name), batch)
        if not self._sink.stamp_source_offsets and self._split.of_kafka:
            rows = rows.drop(*SOURCE_COLUMNS)
        return PreparedRows(rows=stamped(rows, batch.stamp, self._sink))

    @override
    def counts_of_write(self, counts: RowCounts, landed: ConfirmedWrite, batch: BatchToWrite) -> RowCounts:
        share = self._share(batch)
        taken = sum_of((landed.rows, reduced(landed), counts.quarantined))
        if taken not in (None, share.routed):
            log.error(
                "pipeline %s, sink %s, micro-batch %d: %d rows were routed to it and %d are in the sink or in "
                "quarantine: `by` or the transform does not give the same each time it runs (rand(), a changing "
                "lookup); make it deterministic, and audit: atomicity and source_rows report what is missing",
                batch.stamp.pipeline,
                batch.stamp.sink,
                batch.stamp.batch_id,
                share.routed,
                taken,
            )
        return counts.of_route(landed, read=share.read, elsewhere=share.elsewhere)

    @override
    def counts_of_replay(self, counts: RowCounts, landed: ConfirmedWrite, batch: BatchToWrite) -> RowCounts:
        # A restored entry has the number of written rows only, so the others are counted again. Not so where the sink
        # reduces rows and no longer reports what it was given: then the earlier entry's counts are the better ones.
        if self._sink.rewrites and landed.given is None and counts.read is not None:
            return counts
        return self.counts_of_write(counts, landed, batch)

    def _share(self, batch: BatchToWrite) -> Share:
        share = self._split.share(self._sink.name)
        if not batch.trimmed:
            return share
        # The share of the offsets that the ledger does not have yet.
        read = trimmed(self._split.whole, batch).count()
        rows = trimmed(self._split.rows(self._sink.name), batch)
        routed = rows.count()
        records = rows.select(*SOURCE_COLUMNS).distinct().count() if share.makes_rows else routed
        return Share(read=read, routed=routed, elsewhere=max(read - records, 0), makes_rows=share.makes_rows)


class Split:
    """A micro-batch split by route; transformed, counted and persisted when a route first needs it."""

    def __init__(
        self, frame: DataFrame, batch_id: int, pipeline: Pipeline, routes: Routes, transform: Transform | None
    ) -> None:
        self._frame, self._batch_id, self._pipeline = frame, batch_id, pipeline
        self._routes, self._transform = routes, transform
        self._split_rows: DataFrame | None = None
        self._shares: Mapping[str, Share] = {}
        self._routing = Routing(
            routes=routes,
            name=f"pipeline {pipeline.name}, micro-batch {batch_id}",
            step="restart the query, which reads the micro-batch again",
        )

    @property
    def of_kafka(self) -> bool:
        """Whether the rows are records of Kafka; those of a Delta table keep the columns that they have."""
        return self._pipeline.of_kafka

    @property
    def whole(self) -> DataFrame:
        """The micro-batch as it was read, with the source's coordinates."""
        return self._with_source(self._frame)

    def rows(self, sink: str) -> DataFrame:
        """The rows of one route."""
        return self._split().filter(F.col(ROUTE) == sink).drop(ROUTE)

    def share(self, sink: str) -> Share:
        """The counts of one route."""
        self._split()
        return self._shares[sink]

    def close(self) -> None:
        """Frees the persisted rows."""
        if self._split_rows is not None and self._routes.persist:
            self._split_rows.unpersist()
        self._split_rows = None

    def _with_source(self, rows: DataFrame) -> DataFrame:
        return with_source(rows) if self.of_kafka else rows

    def _split(self) -> DataFrame:
        if self._split_rows is None:
            if self.of_kafka:
                require_free(self._frame, self._pipeline.name)
            read = None
            if self._transform is None:
                rows = self.whole
            else:
                read = Counter(self._frame, same_again=True)
                rows = self._with_source(call(self._transform, self._with_source(read.frame), self._batch_id))
            self._split_rows = self._routing.routed(rows)
            if self._routes.persist:
                self._split_rows.persist()
            self._shares = self._routing.shares(self._split_rows, None if read is None else partial(self._read, read))
        return self._split_rows

    def _read(self, counter: Counter) -> int:
        observed_count = counter.rows()
        return self._frame.count() if observed_count is None else observed_count
