"""The MERGE statements of a Delta table: the newest row of each key, or every version of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recon.spark.columns import literal, quoted
from recon.spark.delta_tables import Merge
from recon.spark.lazy import F
from recon.spark.merge import Clause
from recon.write.sinks.newest import newest_clauses, of, same_keys
from recon.write.sinks.reduce import DELETED, ROW, ROWS, MergeRows, ReducedCounts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Columns of a version: its begin, its end in the table, its end now, whether it is new, whether the table has it.
_AT, _END, _UNTIL, _NEW, _OLD = "_recon_at", "_recon_end", "_recon_until", "_recon_new", "_recon_old"
MOST_VALUES = 1000  # values of a prune column that are listed one by one; of more, the range


def newest(rows: MergeRows, table: DataFrame, reduced: DataFrame, counts: ReducedCounts, target: str) -> Merge:
    """The MERGE that keeps one row per key."""
    return Merge(
        target=target,
        source=reduced.drop(ROWS),
        on=_matches(rows, _pruned(rows, reduced, counts)),
        clauses=newest_clauses(rows),
        evolve_schema=rows.sink.evolve_schema,
    )


def history(rows: MergeRows, table: DataFrame, reduced: DataFrame, counts: ReducedCounts, target: str) -> Merge:
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
        table.alias("t")
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
    until = {quoted(scd2.valid_to): of("s", _UNTIL), quoted(scd2.is_current): f"{of('s', _UNTIL)} IS NULL"}
    row = {quoted(column): of("s", column) for column in rows.frame.columns}
    version = row | {quoted(scd2.valid_from): of("s", _AT)} | until
    return Merge(
        target=target,
        source=source,
        on=f"{_matches(rows, pruned)} AND {of('t', scd2.valid_from)} = {of('s', _AT)}",
        clauses=[
            Clause(matched=True, condition=of("s", DELETED)),
            Clause(matched=True, condition=of("s", _NEW), values=version),
            Clause(matched=True, condition=f"NOT {of('s', _NEW)}", values=until),
            Clause(matched=False, condition=f"{of('s', _NEW)} AND NOT {of('s', DELETED)}", values=version),
        ],
        evolve_schema=rows.sink.evolve_schema,
    )


def _matches(rows: MergeRows, pruned: str) -> str:
    return f"{same_keys(rows)} AND {pruned}"


def _pruned(rows: MergeRows, reduced: DataFrame, counts: ReducedCounts) -> str:
    """A condition on the target alone: its rows may have no other values than the micro-batch's rows.

    A NULL there does not say which value the old row has (a tombstone may carry nothing but its key): then that column
    does not prune.
    """
    conditions = []
    known = [column for column in rows.pruning if not counts.extents[column][2]]
    some = reduced.select(*map(quoted, known)).distinct().limit(MOST_VALUES + 1).collect() if known else []
    for i, column in enumerate(known):
        target, (least, greatest, _) = of("t", column), counts.extents[column]
        if len(some) <= MOST_VALUES:
            values = ", ".join(map(literal, sorted({row[i] for row in some})))
            conditions.append(f"{target} IN ({values})")
        else:
            conditions.append(f"{target} BETWEEN {literal(least)} AND {literal(greatest)}")
    return " AND ".join(conditions) or "true"
