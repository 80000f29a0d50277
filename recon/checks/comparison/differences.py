"""Second pass: which rows differ, and in which columns, by value.

The rows of the buckets that differ are grouped by their values. Rows that occur equally often on both sides are
removed; the remaining rows of a key are paired.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from recon.checks.comparison.align import Alignment
from recon.checks.comparison.result import ColumnDifference, Comparison, RowDifference
from recon.checks.comparison.sides import Sides, key_names, value_names
from recon.checks.comparison.sweep import within_buckets
from recon.checks.comparison.tolerance import Tolerance
from recon.checks.comparison.values import distance, shown, tolerated
from recon.spark.columns import with_columns
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KINDS = ("missing", "extra", "changed")


def with_differences(
    comparison: Comparison,
    sides: Sides,
    alignment: Alignment,
    bounds: Mapping[str, Tolerance],
    buckets: Sequence[int],
    samples: int,
) -> Comparison:
    """The comparison with its counts and examples, by one Spark query.

    The query's two branches, counts and examples, read the same shuffle, which Spark runs once.
    """
    left, right = (within_buckets(side, alignment, buckets) for side in sides)
    pairs = _paired((left, right), alignment, bounds)
    judged = _judged(pairs, alignment, bounds)
    answers = _totals(judged, alignment).select(F.lit("totals").alias("what"), F.to_json("totals").alias("body"))
    if samples > 0:
        answers = answers.unionAll(_examples(judged, alignment, samples))
    bodies: dict[str, list[dict[str, Any]]] = {}
    for row in answers.collect():
        bodies.setdefault(row["what"], []).append(json.loads(row["body"]))
    (totals,) = bodies["totals"]
    columns = [
        ColumnDifference(
            column=pair.name,
            rows=totals[f"c{i}"],
            max_difference=_finite(totals.get(f"d{i}")),
            samples=tuple(_row_difference(body, alignment, {f"v{i}"}) for body in bodies.get(f"v{i}", ())),
        )
        for i, pair in enumerate(alignment.columns)
        if totals[f"c{i}"]
    ]
    return replace(
        comparison,
        **{name: totals[name] for name in (*_KINDS, "tolerated", "duplicate_keys_left", "duplicate_keys_right")},
        columns=tuple(sorted(columns, key=lambda c: -c.rows)),
        samples=tuple(
            _row_difference(body, alignment, set(body["changed"]) if kind == "changed" else set(value_names(alignment)))
            for kind in _KINDS
            for body in bodies.get(kind, ())
        ),
    )


def _paired(sides: Sides, alignment: Alignment, bounds: Mapping[str, Tolerance]) -> DataFrame:
    """The rows of each key without an equal on the other side, one left and one right row side by side.

    Columns: the key; `at`, the place among the key's pairs; `left` and `right`, structs of values, NULL where that side
    has no row left; `left_rows` and `right_rows`, the number of all rows of the key on each side.
    """
    from pyspark.sql import Window

    keys, values = key_names(alignment), value_names(alignment)
    both = (
        sides[0]
        .select("*", F.lit(1).alias("l"), F.lit(0).alias("r"))
        .unionAll(sides[1].select("*", F.lit(0).alias("l"), F.lit(1).alias("r")))
    )
    # One shuffle by key: everything below stays in its partition.
    counted = both.repartition(*keys).groupBy(*keys, *values).agg(F.sum("l").alias("l"), F.sum("r").alias("r"))
    whole = Window.partitionBy(*keys)
    remaining = (
        counted.withColumns({"left_rows": F.sum("l").over(whole), "right_rows": F.sum("r").over(whole)})
        .where("l != r")
        .withColumn("on_left", F.expr("l > r"))
        .withColumn("copy", F.explode(F.expr("sequence(1, CAST(abs(l - r) AS INT))")))
    )
    # Columns that must be equal come first, so that tolerances are put to rows that are equal in all others.
    exact = [v for v, p in zip(values, alignment.columns, strict=True) if p.name not in bounds]
    order = [*exact, *(v for v in values if v not in exact)] or keys
    place = F.row_number().over(Window.partitionBy(*keys, "on_left").orderBy(*order))
    # The constant makes the struct of a row that exists not NULL, even without columns to compare.
    row = F.struct(F.lit(True).alias("there"), *values)
    return (
        remaining.withColumn("at", place)
        .groupBy(*keys, "at")
        .agg(
            F.first(F.when(F.col("on_left"), row), ignorenulls=True).alias("left"),
            F.first(F.when(~F.col("on_left"), row), ignorenulls=True).alias("right"),
            F.max("left_rows").alias("left_rows"),
            F.max("right_rows").alias("right_rows"),
        )
    )


def _judged(pairs: DataFrame, alignment: Alignment, bounds: Mapping[str, Tolerance]) -> DataFrame:
    """Adds `kind`, and for changed rows each column's `c<i>` (whether it differs) and `d<i>` (by how much)."""
    both = F.col("left").isNotNull() & F.col("right").isNotNull()
    differs: dict[str, Column] = {}
    distances: dict[str, Column] = {}
    for i, pair in enumerate(alignment.columns):
        left, right = F.col(f"left.v{i}"), F.col(f"right.v{i}")
        apart = distance(left, right, pair)
        unequal = ~left.eqNullSafe(right)
        if pair.name in bounds:
            unequal = unequal & ~tolerated(left, right, apart, pair, bounds[pair.name])
        differs[f"c{i}"] = both & unequal
        distances[f"d{i}"] = F.when(
            F.col(f"c{i}"), F.lit(None).cast("double") if apart is None else apart.cast("double")
        )
    changed = reduce(lambda a, b: a | b, (F.col(name) for name in differs), F.lit(False))
    kind = (
        F.when(F.col("right").isNull(), "missing").when(F.col("left").isNull(), "extra").when(changed, "changed")
    ).otherwise("tolerated")
    return with_columns(pairs, differs).withColumns({"kind": kind, **distances})


def _totals(judged: DataFrame, alignment: Alignment) -> DataFrame:
    """One row, one struct: the counts. Keys are counted by grouping once more in the same partitions."""
    columns = range(len(alignment.columns))
    kinds = (*_KINDS, "tolerated")
    of_key = [
        *(F.count_if(F.col("kind") == F.lit(kind)).alias(kind) for kind in kinds),
        *(F.count_if(F.col(f"c{i}")).alias(f"c{i}") for i in columns),
        *(F.max(f"d{i}").alias(f"d{i}") for i in columns),
        *(F.max(f"{side}_rows").alias(f"{side}_rows") for side in ("left", "right")),
    ]
    differing = F.expr(" + ".join(_KINDS)) > F.lit(0)
    whole = [
        *(F.coalesce(F.sum(kind), F.lit(0)).alias(kind) for kind in kinds),
        *(F.coalesce(F.sum(f"c{i}"), F.lit(0)).alias(f"c{i}") for i in columns),
        *(F.max(f"d{i}").alias(f"d{i}") for i in columns),
        *(
            F.count_if(differing & (F.col(f"{side}_rows") > F.lit(1))).alias(f"duplicate_keys_{side}")
            for side in ("left", "right")
        ),
    ]
    counted = judged.groupBy(*key_names(alignment)).agg(*of_key).agg(*whole)
    return counted.select(F.struct("*").alias("totals"))


def _examples(judged: DataFrame, alignment: Alignment, samples: int) -> DataFrame:
    """The first rows, by key, of each kind and of each column that differs."""
    from pyspark.sql import Window

    keys = key_names(alignment)
    columns = [F.when(F.col(f"c{i}"), F.lit(f"v{i}")) for i in range(len(alignment.columns))]
    what = F.filter(F.array(F.col("kind"), *columns), lambda name: name.isNotNull())
    place = F.row_number().over(Window.partitionBy("what").orderBy(*keys, "at"))
    body = F.struct(
        F.struct(*(shown(F.col(k), p.type).alias(k) for k, p in zip(keys, alignment.key, strict=True))).alias("key"),
        *(
            F.when(
                F.col(side).isNotNull(),
                F.struct(
                    F.lit(True).alias("there"),
                    *(shown(F.col(f"{side}.v{i}"), p.type).alias(f"v{i}") for i, p in enumerate(alignment.columns)),
                ),
            ).alias(side)
            for side in ("left", "right")
        ),
        "left_rows",
        "right_rows",
        "kind",
        F.array(*columns).alias("changed"),
    )
    return (
        judged.where(F.col("kind") != F.lit("tolerated"))
        .withColumn("what", F.explode(what))
        .withColumn("place", place)
        .where(F.col("place") <= F.lit(samples))
        .select("what", F.to_json(body, {"ignoreNullFields": "false"}).alias("body"))
    )


def _row_difference(body: Mapping[str, Any], alignment: Alignment, columns: Set[str]) -> RowDifference:
    """An example, with the values of `columns` alone."""

    def side(values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        if values is None:
            return None
        return {pair.name: values[f"v{i}"] for i, pair in enumerate(alignment.columns) if f"v{i}" in columns}

    return RowDifference(
        kind=body["kind"],
        key={pair.name: body["key"][f"k{i}"] for i, pair in enumerate(alignment.key)},
        left=side(body["left"]),
        right=side(body["right"]),
        left_rows=body["left_rows"],
        right_rows=body["right_rows"],
    )


def _finite(value: Any) -> float | None:
    number = None if value is None else float(value)
    return number if number is not None and math.isfinite(number) else None
