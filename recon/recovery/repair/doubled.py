"""Doubled rows of a sink: several of one source offset, and the one of them to keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recon.model.wire.columns import BATCH_ID, SOURCE_COLUMNS
from recon.recovery.repair.missing import OWNER, with_owner
from recon.recovery.repair.plan import PlannedRange
from recon.spark.columns import quoted
from recon.spark.lazy import F
from recon.write.sinks.repair import DOUBLED, KEPT_ROW, DoubledRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def doubled_rows(table: DataFrame, ranges: Sequence[PlannedRange]) -> DoubledRows:
    """Looks at the rows of the ranges; one Spark job. The row to keep is one of the micro-batch that owns the range."""
    whole = F.struct(*(F.col(quoted(name)) for name in table.columns))
    owned = F.coalesce(F.col(BATCH_ID) == F.col(OWNER), F.lit(False))
    text = F.to_json(whole)
    grouped = (
        with_owner(table, ranges, "inner")
        .groupBy(*(F.col(name).alias(key) for name, key in zip(SOURCE_COLUMNS, DOUBLED, strict=True)))
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.max_by(whole, F.when(owned, 1).otherwise(0)).alias(KEPT_ROW),
            F.count_if(owned).alias("owned"),
            F.count_distinct(F.when(owned, text)).alias("of_owner"),
            F.count_distinct(text).alias("texts"),
        )
    )
    several = F.col("n") > 1
    differ = F.when(F.col("owned") > 0, F.col("of_owner") > 1).otherwise(F.col("texts") > 1)
    counts = grouped.agg(
        F.count(F.lit(1)).alias("held"),
        F.count_if(several).alias("kept"),
        F.coalesce(F.sum(F.when(several, F.col("n"))), F.lit(0)).alias("removed"),
        F.count_if(several & differ).alias("unclear"),
    ).collect()[0]
    frame = grouped.filter(several).select(*DOUBLED, KEPT_ROW)
    return DoubledRows(frame, *(int(counts[name]) for name in ("held", "kept", "removed", "unclear")))
