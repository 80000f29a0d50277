"""The MERGE statements of a Delta table: the newest row of each key, or every version of it."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from recon.sinks.reduce import DELETED, ROW, ROWS, MergeRows, ReducedCounts
from recon.spark.columns import quoted
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Columns of a version: its begin, its end in the table, its end now, whether it is new, whether the table has it.
_AT, _END, _UNTIL, _NEW, _OLD = "_recon_at", "_recon_end", "_recon_until", "_recon_new", "_recon_old"
MOST_VALUES = 1000  # values of a prune column that are listed one by one; of more, the range


def newest(rows: MergeRows, table: Any, reduced: DataFrame, counts: ReducedCounts) -> Any:
    """The MERGE that keeps one row per key."""
    sink, pruned = rows.sink, _pruned(rows, reduced, counts)
    deleted, newer = _of("s", DELETED), F.lit(True)
    if sink.newer_wins is not None:
        column = rows.column(sink.newer_wins)
        newer = (_of("s", column) > _of("t", column)) | _of("t", column).isNull()
    update, insert = newer & ~deleted, ~deleted
    if sink.update_when is not None:
        update = update & F.expr(sink.update_when)
    if sink.insert_when is not None:
        insert = insert & F.expr(sink.insert_when)
    values = {quoted(column): _of("s", column) for column in rows.frame.columns}
    merging = table.alias("t").merge(reduced.drop(ROWS).alias("s"), _matches(rows, pruned))
    if sink.delete_when is not None:
        merging = merging.whenMatchedDelete(deleted & newer)
    return merging.whenMatchedUpdate(update, values).whenNotMatchedInsert(insert, values)


def history(rows: MergeRows, table: Any, reduced: DataFrame, counts: ReducedCounts) -> Any:
    """The MERGE that keeps every version of a key, whatever order they come in.

    The versions of the micro-batch's keys that the table has, and the new ones, are sorted by time; each is valid until
    the next begins. Only versions that are new, or whose end changes, are merged.
    """
    from pyspark.sql import Window

    scd2, pruned = rows.sink.scd2, _pruned(rows, reduced, counts)
    assert scd2 is not None
    keys = [F.col(quoted(key)) for key in rows.keys]
    effective = F.col(quoted(rows.column(scd2.effective)))
    touched = reduced.select(*keys).distinct()
    old = (
        table.toDF()
        .alias("t")
        .filter(pruned)
        .join(touched, rows.keys, "left_semi")
        .select(*keys, F.col(quoted(scd2.valid_from)).alias(_AT), F.col(quoted(scd2.valid_to)).alias(_END))
    )
    whole = F.struct(*(F.col(quoted(column)) for column in rows.frame.columns), DELETED)
    new = reduced.select(*keys, effective.alias(_AT), whole.alias(ROW))
    # A version that ended and that none follows was ended by a tombstone: that instant stays an end.
    ends = old.filter(F.col(_END).isNotNull()).select(*keys, F.col(_END).alias(_AT))
    line = old.withColumn(_OLD, F.lit(True)).unionByName(new, allowMissingColumns=True)
    points = (
        line.unionByName(ends, allowMissingColumns=True)
        .groupBy(*keys, _AT)
        .agg(
            F.max_by(F.col(ROW), F.when(F.col(ROW).isNotNull(), 1)).alias(ROW),
            F.coalesce(F.bool_or(_OLD), F.lit(False)).alias(_OLD),
            F.max(_END).alias(_END),
        )
        .withColumn(_UNTIL, F.lead(_AT).over(Window.partitionBy(*keys).orderBy(_AT)))
    )
    is_new = F.col(ROW).isNotNull()
    deleted = is_new & F.col(f"{ROW}.{DELETED}")
    ended = ~F.col(_UNTIL).eqNullSafe(F.col(_END))
    changed = (is_new & ~deleted) | (F.col(_OLD) & (deleted | ended))
    others = [column for column in rows.frame.columns if column not in rows.keys]
    source = points.filter(changed).select(
        *keys,
        *(F.col(f"{ROW}.{quoted(column)}").alias(column) for column in others),
        _AT,
        _UNTIL,
        is_new.alias(_NEW),
        deleted.alias(DELETED),
    )
    until = {quoted(scd2.valid_to): _of("s", _UNTIL), quoted(scd2.is_current): _of("s", _UNTIL).isNull()}
    row = {quoted(column): _of("s", column) for column in rows.frame.columns}
    version = row | {quoted(scd2.valid_from): _of("s", _AT)} | until
    matches = _matches(rows, pruned) & (_of("t", scd2.valid_from) == _of("s", _AT))
    merging = table.alias("t").merge(source.alias("s"), matches)
    return (
        merging.whenMatchedDelete(_of("s", DELETED))
        .whenMatchedUpdate(_of("s", _NEW), version)
        .whenMatchedUpdate(~_of("s", _NEW), until)
        .whenNotMatchedInsert(_of("s", _NEW) & ~_of("s", DELETED), version)
    )


def _matches(rows: MergeRows, pruned: Column) -> Column:
    pairs = [_of("t", key) == _of("s", key) for key in rows.keys]
    return reduce(lambda a, b: a & b, pairs) & pruned


def _pruned(rows: MergeRows, reduced: DataFrame, counts: ReducedCounts) -> Column:
    """A condition on the target alone: its rows may have no other values than the micro-batch's rows.

    A NULL there (a tombstone may carry nothing but its key) does not say which value the old row has: then that column
    does not prune.
    """
    condition = F.lit(True)
    known = [column for column in rows.pruning if not counts.extents[column][2]]
    some = reduced.select(*map(quoted, known)).distinct().limit(MOST_VALUES + 1).collect() if known else []
    for i, column in enumerate(known):
        target, (least, greatest, _) = _of("t", column), counts.extents[column]
        few = len(some) <= MOST_VALUES
        values = sorted({row[i] for row in some})
        condition = condition & (target.isin(values) if few else target.between(least, greatest))
    return condition


def _of(side: str, column: str) -> Column:
    return F.col(f"{side}.{quoted(column)}")
