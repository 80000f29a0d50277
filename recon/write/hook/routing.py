"""Where the routes of a pipeline send each row, and how many rows each of them gets.

The hook splits micro-batches by it, and a repair the records that it reads again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recon.base.errors import SinkError
from recon.base.text import first_line
from recon.model.wire.columns import SOURCE_COLUMNS
from recon.model.wire.processing_signature import ROUTED
from recon.project import Pipeline, Routes, Sink
from recon.spark.columns import expression
from recon.spark.connect import analysed
from recon.spark.lazy import F
from recon.write.hook.prepare import Transform, name_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROUTE = "_recon_route"
_NAMED_VALUES = 5  # values without a route that a message names


@dataclass(frozen=True, kw_only=True)
class Share:
    """One route's share of the records that were read.

    Attributes:
        read: all records.
        routed: rows that `routes.by` gives this route.
        elsewhere: records without a row in this route; None where they cannot be counted.
        makes_rows: whether the transform makes more rows than it reads.
    """

    read: int
    routed: int
    elsewhere: int | None
    makes_rows: bool = False


@dataclass(frozen=True, kw_only=True)
class Routing:
    """Splits rows by the routes of a pipeline.

    Attributes:
        routes: those of recon.yml.
        name: what is split, in messages.
        step: what to do once a row without a route has one, in messages.
    """

    routes: Routes
    name: str
    step: str

    def routed(self, rows: DataFrame) -> DataFrame:
        """The rows with the column ROUTE; NULL where they have none.

        Raises:
            SinkError: `by` cannot be evaluated.
        """
        if ROUTE in rows.columns:
            raise SinkError(f"{self.name} has a column {ROUTE}, which recon writes itself; rename it in the transform")
        chosen = F.lit(self.routes.otherwise)
        try:
            value = self._value()
            for known, sink in self.routes.to.items():
                chosen = F.when(value == known, F.lit(sink)).otherwise(chosen)
            return analysed(rows.withColumn(ROUTE, chosen.cast("string")))
        except Exception as error:  # AnalysisException, ParseException
            raise SinkError(
                f"{self.name}: routes: by: {self.routes.by!r} cannot be evaluated on it ({first_line(error)}); name "
                f"a column of the transform's result, which has {', '.join(rows.columns)}; nothing was written"
            ) from error

    def _value(self) -> Column:
        return expression(self.routes.by, "by").cast("string")

    def shares(self, rows: DataFrame, read: Callable[[], int] | None) -> Mapping[str, Share]:
        """The share of each route, counted before anything is written.

        Args:
            rows: rows with their routes.
            read: tells the number of records, once the rows were counted; None where each record is a row.

        Raises:
            SinkError: some rows have no route.
        """
        routed = {row[ROUTE]: int(row["count"]) for row in rows.groupBy(ROUTE).count().collect()}
        if None in routed:
            raise SinkError(self._unrouted(rows, routed[None]))
        every = sum(routed.values())
        records_read = every if read is None else read()
        records: dict[str, int | None] = {sink: routed.get(sink, 0) for sink in self.routes.sinks}
        if every > records_read:  # the transform makes rows of one record: what has none here is counted by records
            if set(SOURCE_COLUMNS) <= set(rows.columns):
                distinct = rows.groupBy(ROUTE).agg(F.count_distinct(*SOURCE_COLUMNS).alias("records")).collect()
                records |= {row[ROUTE]: int(row["records"]) for row in distinct}
            else:
                records = dict.fromkeys(records)
        return {
            sink: Share(
                read=records_read,
                routed=routed.get(sink, 0),
                elsewhere=None if count is None else max(records_read - count, 0),
                makes_rows=every > records_read,
            )
            for sink, count in records.items()
        }

    def _unrouted(self, rows: DataFrame, count: int) -> str:
        """The sentence about rows without a route."""
        missing = rows.filter(F.col(ROUTE).isNull()).withColumn("value", self._value())
        of_value = missing.groupBy("value")
        has_source = set(SOURCE_COLUMNS) <= set(rows.columns)
        first = F.min(F.struct(*SOURCE_COLUMNS)) if has_source else F.lit(None)
        counted = of_value.agg(F.count(F.lit(1)).alias("rows"), first.alias("first"))
        worst = counted.orderBy(F.desc("rows"), "value").limit(_NAMED_VALUES + 1).collect()
        values = []
        for value, number, at in worst[:_NAMED_VALUES]:
            where = f", such as offset {at[2]} of {at[0]}-{at[1]}" if at is not None else ""
            values.append(f"{'NULL' if value is None else repr(value)} ({number:,}{where})")
        more = " and others" if len(worst) > _NAMED_VALUES else ""
        return (
            f"{self.name}: {count:,} of its rows have no route by {self.routes.by}: {', '.join(values)}{more}; "
            "nothing was written: name a sink for them in `to` or `otherwise` of the pipeline's routes, or drop them "
            f"in the transform, then {self.step}"
        )


def routes_to(pipeline: Pipeline, sink: Sink) -> Routes | None:
    """The routes of the pipeline, where the sink is one of them."""
    return pipeline.routes if pipeline.routes is not None and sink.name in pipeline.routes.sinks else None


def passed(transform: Transform | None, routes: Routes | None = None) -> str | None:
    """What rows go through on their way to a sink, as ledger entries name it; None where it is nothing.

    A transform is named `module:function`, routes by a hash of what they say: `orders_job:parse routes:5f0c2a9b`.
    """
    parts = [] if transform is None else [name_of(transform)]
    if routes is not None:
        said = json.dumps([routes.by, sorted(routes.to.items()), routes.otherwise])
        parts.append(ROUTED + hashlib.sha256(said.encode()).hexdigest()[:8])
    return " ".join(parts) or None
