"""One micro-batch split between several sinks, each with its own chain, epoch, stamp and idempotence.

The transform runs once, then `routes.by` decides where each row goes. Before anything is written one aggregate counts
the rows of each route and refuses rows without one; what each sink then takes in is held against that count. A retry
finds the routes that landed in their ledgers and writes only the others.

In a route's ledger entry `rows_read` is the whole micro-batch, and `rows_filtered` counts the records that have no row
in this route: those the transform dropped and those of other routes. So a route's own rows and offsets add up, and a
row that got lost on the way shows up as one offset too few.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from recon.errors import SinkError
from recon.hook.epochs import Batch
from recon.hook.writer import Done, ForeachBatch, Transform, call, require_free, with_source
from recon.model import ReconStamp
from recon.model.offsets import OffsetSpan
from recon.model.wire.columns import SOURCE_COLUMNS
from recon.project import Pipeline, Project, Routes, Sink
from recon.sinks.failpoints import Failpoint, no_failpoint
from recon.spark.lazy import F
from recon.spark.observation import observed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logging.getLogger("recon")

ROUTE = "_recon_route"
_TOLD = 5  # values without a route that are named


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a route gets of a micro-batch: records read, rows it is given, records of which it has no row."""

    read: int
    given: int
    elsewhere: int | None
    makes_rows: bool = False


class RoutedForeachBatch:
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
        self.parts = [Route(project, pipeline, sink, failpoint) for sink in sinks]

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch, route by route, and enter each in the ledger.

        The first route that fails ends the attempt; Spark tries the micro-batch again, and routes that landed are
        recognised then.

        Raises:
            SinkError: a row has no route, before anything was written; or what `ForeachBatch` raises for one route.
        """
        split = Split(frame, batch_id, self.pipeline, self.routes, self._transform)
        try:
            for part in self.parts:
                part.write(split, frame, batch_id)
        except BaseException:
            for part in self.parts:
                part.forget()
            raise
        finally:
            split.close()


class Route(ForeachBatch):
    """The writer of one route: a `ForeachBatch` that is given a part of what was read, and knows which."""

    def __init__(self, project: Project, pipeline: Pipeline, sink: Sink, failpoint: Failpoint) -> None:
        """The sink is one of the pipeline's; the transform was done before rows came here."""
        super().__init__(project, pipeline, sink, failpoint=failpoint)
        self._split: Split | None = None

    def write(self, split: Split, frame: DataFrame, batch_id: int) -> None:
        """Write this route's rows of the micro-batch."""
        self._split = split
        try:
            self(frame, batch_id)
        finally:
            self._split = None

    def _prepare(self, frame: DataFrame, batch: Batch, ranges: Sequence[OffsetSpan]) -> tuple[DataFrame, None]:
        assert self._split is not None
        part = self._split.part(self.sink.name)
        if tuple(ranges) != tuple(batch.ranges):
            part = self._trimmed(part, ranges)
        if not self.sink.stamp_source_offsets:
            part = part.drop(*SOURCE_COLUMNS)
        return self._stamped(part, batch), None

    def _land(
        self, frame: DataFrame, batch: Batch, ranges: Sequence[OffsetSpan], stamp: ReconStamp, *, again: bool
    ) -> Done:
        return self._counted(super()._land(frame, batch, ranges, stamp, again=again), batch, ranges)

    def _recounted(self, done: Done, batch: Batch, ranges: Sequence[OffsetSpan]) -> Done:
        # A restored entry knows only what landed; and where a retry counts otherwise, the split is not deterministic.
        # Of a sink that reduces rows, what it was given is not known any more.
        reduces = self.sink.rewrites and done.landed.given is None
        return done if reduces and done.rows_read is not None else self._counted(done, batch, ranges)

    def _counted(self, done: Done, batch: Batch, ranges: Sequence[OffsetSpan]) -> Done:
        """With the whole micro-batch as read, and the records of other routes as filtered."""
        share = self._share(batch, ranges)
        rows, given = done.landed.rows, done.landed.given
        reduced = given - rows if given is not None and rows is not None else 0
        taken = None if rows is None or done.rows_quarantined is None else rows + reduced + done.rows_quarantined
        if taken not in (None, share.given):
            log.error(
                "%s: %d rows were routed to it and %d are in the sink or aside: `by` or the transform does not give "
                "the same each time it runs (rand(), a changing lookup); make it deterministic, and audit: atomicity "
                "and source_rows tell what is missing",
                self._of_batch(batch.batch_id),
                share.given,
                taken,
            )
        filtered = None if share.elsewhere is None else share.elsewhere + reduced
        return replace(done, rows_read=share.read, rows_filtered=filtered)

    def _share(self, batch: Batch, ranges: Sequence[OffsetSpan]) -> Share:
        assert self._split is not None
        share = self._split.share(self.sink.name)
        if tuple(ranges) == tuple(batch.ranges):
            return share
        # Of what the ledger does not hold yet.
        read = self._trimmed(self._split.whole, ranges).count()
        part = self._trimmed(self._split.part(self.sink.name), ranges)
        given = part.count()
        records = part.select(*SOURCE_COLUMNS).distinct().count() if share.makes_rows else given
        return replace(share, read=read, given=given, elsewhere=max(read - records, 0))


class Split:
    """A micro-batch by routes; transformed, counted and kept when the first route asks."""

    def __init__(
        self, frame: DataFrame, batch_id: int, pipeline: Pipeline, routes: Routes, transform: Transform | None
    ) -> None:
        """Nothing is read yet."""
        self._frame, self._batch_id, self._pipeline = frame, batch_id, pipeline
        self._routes, self._transform = routes, transform
        self._rows: DataFrame | None = None
        self._shares: Mapping[str, Share] = {}

    @property
    def whole(self) -> DataFrame:
        """The micro-batch as it was read, with the source's coordinates."""
        return with_source(self._frame)

    def part(self, sink: str) -> DataFrame:
        """The rows of one route."""
        return self._split().filter(F.col(ROUTE) == sink).drop(ROUTE)

    def share(self, sink: str) -> Share:
        """The counts of one route."""
        self._split()
        return self._shares[sink]

    def close(self) -> None:
        """Let go of what was kept."""
        if self._rows is not None and self._routes.persist:
            self._rows.unpersist()
        self._rows = None

    def _split(self) -> DataFrame:
        if self._rows is None:
            from pyspark.sql import Observation

            require_free(self._frame, self._pipeline.name)
            frame, reading = self._frame, None
            if self._transform is not None:
                reading = Observation()
                frame = frame.observe(reading, F.count(F.lit(1)).alias("rows"))
            out = with_source(frame)
            if self._transform is not None:
                out = with_source(call(self._transform, out, self._batch_id))
            self._rows = self._routed(out)
            if self._routes.persist:
                self._rows.persist()
            self._count(self._rows, reading)
        return self._rows

    def _routed(self, rows: DataFrame) -> DataFrame:
        """The rows with their route; NULL where they have none."""
        if ROUTE in rows.columns:
            raise SinkError(f"{self._said} has a column {ROUTE}, which recon writes itself; rename it in the transform")
        value = self._value()
        chosen = F.lit(self._routes.otherwise)
        for known, sink in self._routes.to.items():
            chosen = F.when(value == known, F.lit(sink)).otherwise(chosen)
        try:
            return rows.withColumn(ROUTE, chosen.cast("string"))
        except Exception as error:  # AnalysisException; Spark Connect has others
            said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise SinkError(
                f"{self._said}: routes: by: {self._routes.by!r} cannot be evaluated on it ({said}); name a column of "
                f"the transform's result, which has {', '.join(rows.columns)}; nothing was written"
            ) from error

    def _value(self) -> Column:
        return F.expr(self._routes.by).cast("string")

    def _count(self, rows: DataFrame, reading: Any) -> None:
        """The shares of all routes; refuses rows without one."""
        found = {row[ROUTE]: int(row["count"]) for row in rows.groupBy(ROUTE).count().collect()}
        if None in found:
            raise SinkError(self._unrouted(rows, found[None]))
        given = sum(found.values())
        read: int = given
        if reading is not None:
            told = observed(reading)
            read = self._frame.count() if told is None else int(told["rows"])
        records: dict[str, int | None] = {sink: found.get(sink, 0) for sink in self._routes.sinks}
        if given > read:  # the transform makes rows of one record: what has none here is counted by records
            if set(SOURCE_COLUMNS) <= set(rows.columns):
                distinct = rows.groupBy(ROUTE).agg(F.count_distinct(*SOURCE_COLUMNS).alias("records")).collect()
                records |= {row[ROUTE]: int(row["records"]) for row in distinct}
            else:
                records = dict.fromkeys(records)
        self._shares = {
            sink: Share(
                read=read,
                given=found.get(sink, 0),
                elsewhere=None if count is None else max(read - count, 0),
                makes_rows=given > read,
            )
            for sink, count in records.items()
        }

    def _unrouted(self, rows: DataFrame, count: int) -> str:
        """The sentence about rows without a route."""
        missing = rows.filter(F.col(ROUTE).isNull()).withColumn("value", self._value())
        of_value = missing.groupBy("value")
        placed = set(SOURCE_COLUMNS) <= set(rows.columns)
        first = F.min(F.struct(*SOURCE_COLUMNS)) if placed else F.lit(None)
        counted = of_value.agg(F.count(F.lit(1)).alias("rows"), first.alias("first"))
        worst = counted.orderBy(F.desc("rows"), "value").limit(_TOLD + 1).collect()
        told = []
        for value, number, at in worst[:_TOLD]:
            where = f", such as offset {at[2]} of {at[0]}-{at[1]}" if at is not None else ""
            told.append(f"{'NULL' if value is None else repr(value)} ({number:,}{where})")
        more = " and others" if len(worst) > _TOLD else ""
        return (
            f"{self._said}: {count:,} of its rows have no route by {self._routes.by}: {', '.join(told)}{more}; nothing "
            "was written: name a sink for them in `to` or `otherwise` of the pipeline's routes, or drop them in the "
            "transform, then restart the query, which reads the micro-batch again"
        )

    @property
    def _said(self) -> str:
        return f"pipeline {self._pipeline.name}, micro-batch {self._batch_id}"
