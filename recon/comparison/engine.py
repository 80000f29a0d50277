"""The comparison itself: one aggregate over both tables, then only the rows that it cannot clear.

First pass: every row falls into one of `BUCKETS` by a hash of its key, and each bucket adds up, over the left rows and
minus the right ones, the number of rows and two 64-bit hashes of the whole row. Where all sums are zero the same rows
are there the same number of times, in whatever order (two different tables pass for equal with a chance of about
2^-128 per bucket). Second pass: the rows of the other buckets are grouped by their values, what occurs equally often
on both sides is struck out, and what is left of a key is set side by side.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from recon.comparison.align import Alignment, Pair, align
from recon.comparison.result import ColumnDifference, Comparison, RowDifference
from recon.comparison.tolerance import Tolerance
from recon.comparison.values import allowed, distance, hashable, shown, tolerated
from recon.errors import ConfigError, EvidenceError
from recon.spark.errors import spark_error
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKETS = 1 << 16
SAMPLES = 20

_HALF = 0xFFFFFFFF
_WORD = 64
_KINDS = ("missing", "extra", "changed")


def compare(
    left: DataFrame,
    right: DataFrame,
    *,
    key: Sequence[str],
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    mapping: Mapping[str, str] | None = None,
    tolerances: Mapping[str, Any] | None = None,
    where: str | None = None,
    left_name: str = "left",
    right_name: str = "right",
    samples: int = SAMPLES,
    same_types: bool = False,
) -> Comparison:
    """Compares two tables row by row: what is missing on the right, extra there, or changed.

    NULL equals NULL, in keys and in values, and nothing else; NaN equals NaN; 0.0 equals -0.0; text is compared byte by
    byte, so `''`, `' '` and NULL are three values. Types that differ are aligned first (see `common_type`).

    Keys need not be unique. Rows of a key that are equal on both sides are struck out, the others are set side by side
    in the order of their values: a key that is there twice on the left and once on the right has a missing row.

    Costs one aggregate over both tables when they are equal, else a second query that reads both again and shuffles
    only the rows of differing buckets. Nothing is cached. A table that is written to meanwhile must be read at a fixed
    version, or the two queries see different rows.

    Args:
        left: the rows that should have arrived, such as the source's.
        right: the rows to check against them, such as the sink's.
        key: columns that say which rows belong together, by their names on the left.
        columns: compare only these; by default all that both sides have. Columns of one side are then no difference.
        exclude: leave these out, whichever side they are on.
        mapping: the right side's name of a left column, where it is another one.
        tolerances: per column a number, a duration (`"5 seconds"`) or `{"absolute": …, "relative": …}`.
        where: SQL that both sides' rows must meet, with the left side's names.
        left_name: what the result calls the left table.
        right_name: what the result calls the right table.
        samples: at most so many examples of each kind of difference and of each column; 0 for none.
        same_types: also differ where types differ.

    Raises:
        ConfigError: an argument does not fit the tables, or types cannot be compared.
        EvidenceError: the rows cannot be read, or changed while they were compared.
    """
    names = (left_name, right_name)
    alignment = align(
        left.schema,
        right.schema,
        key=_listed(key),
        columns=None if columns is None else _listed(columns),
        exclude=_listed(exclude),
        mapping=mapping or {},
        names=names,
    )
    bounds = _tolerances(tolerances or {}, alignment, names)
    sides = (_side(left, alignment, where, left_name), _side(right, alignment, where, right_name, renamed=True))
    try:
        swept = _sweep(sides, alignment)
        found = _Found() if not swept.buckets else _judge(sides, alignment, bounds, swept.buckets, samples)
    except EvidenceError:
        raise
    except Exception as error:
        raise EvidenceError(
            f"the rows of {left_name} and {right_name} cannot be compared: {spark_error(error)}"
        ) from error
    if swept.buckets and not (found.total or found.tolerated):
        raise EvidenceError(
            f"{left_name} and {right_name} differed when they were first read and no longer when they were read again: "
            "one of them is being written to; compare fixed versions of them"
        )
    return Comparison(
        left=left_name,
        right=right_name,
        key=tuple(p.name for p in alignment.key),
        compared=tuple(p.name for p in alignment.columns),
        left_rows=swept.left_rows,
        right_rows=swept.right_rows,
        missing=found.missing,
        extra=found.extra,
        changed=found.changed,
        tolerated=found.tolerated,
        duplicate_keys_left=found.duplicate_keys_left,
        duplicate_keys_right=found.duplicate_keys_right,
        columns=found.columns,
        schema=alignment.schema,
        samples=found.samples,
        same_types=same_types,
    )


def _listed(names: Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _tolerances(given: Mapping[str, Any], alignment: Alignment, names: tuple[str, str]) -> Mapping[str, Tolerance]:
    """The tolerances by column, each of which its column's type allows."""
    columns = {p.name.casefold(): p for p in alignment.columns}
    found = {}
    for name, value in given.items():
        pair = columns.get(name.casefold())
        if pair is None:
            known = ", ".join(p.name for p in alignment.columns) or "none"
            raise ConfigError(f"tolerances name {name!r}, which is not a compared column; these are compared: {known}")
        tolerance = Tolerance.of(pair.name, value)
        complaint = allowed(pair, tolerance)
        if complaint:
            raise ConfigError(f"the tolerance of {pair.name!r} does not fit {names[0]} and {names[1]}: {complaint}")
        found[pair.name] = tolerance
    return found


def _side(table: DataFrame, alignment: Alignment, where: str | None, name: str, renamed: bool = False) -> DataFrame:
    """The key as k0, k1, … and the compared columns as v0, v1, …, in their common types."""
    if renamed:
        table = table.select(*(F.col(_quoted(theirs)).alias(ours) for ours, theirs in alignment.names))
    if where is not None:
        try:
            table = table.where(F.expr(where))
            _ = table.schema  # resolved and typed; no job runs
        except Exception as error:
            raise ConfigError(f"where {where!r} is no condition on {name}: {spark_error(error)}") from error
    types = {field.name: field.dataType for field in table.schema.fields}

    def aligned(pair: Pair, as_: str) -> Column:
        column = F.col(_quoted(pair.name))
        return (column if types[pair.name] == pair.type else column.cast(pair.type)).alias(as_)

    try:
        return table.select(
            *(aligned(p, f"k{i}") for i, p in enumerate(alignment.key)),
            *(aligned(p, f"v{i}") for i, p in enumerate(alignment.columns)),
        )
    except Exception as error:
        raise ConfigError(f"the columns of {name} cannot be compared: {spark_error(error)}") from error


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _keys(alignment: Alignment) -> list[str]:
    return [f"k{i}" for i in range(len(alignment.key))]


def _values(alignment: Alignment) -> list[str]:
    return [f"v{i}" for i in range(len(alignment.columns))]


# -- first pass: are they equal, and if not, where not -----------------------------------------------------------------


@dataclass(frozen=True)
class _Swept:
    left_rows: int
    right_rows: int
    buckets: Sequence[int]


def _sweep(sides: tuple[DataFrame, DataFrame], alignment: Alignment) -> _Swept:
    """The rows of both sides, and the buckets in which they differ. One Spark query, one row to the driver."""
    sums = [f"s{i}" for i in range(4)]
    differs = reduce(
        lambda a, b: a | b, (F.col(name) != F.lit(0) for name in sums), F.col("left_rows") != F.col("right_rows")
    )
    found = (
        _hashed(sides[0], alignment, 1)
        .unionAll(_hashed(sides[1], alignment, -1))
        .groupBy("bucket")
        .agg(*(F.sum(name).alias(name) for name in ("left_rows", "right_rows", *sums)))
        .agg(
            F.sum("left_rows").alias("left_rows"),
            F.sum("right_rows").alias("right_rows"),
            F.collect_list(F.when(differs, F.col("bucket"))).alias("buckets"),
        )
        .collect()[0]
    )
    return _Swept(found["left_rows"] or 0, found["right_rows"] or 0, found["buckets"])


def _hashed(rows: DataFrame, alignment: Alignment, sign: int) -> DataFrame:
    """Each row's bucket, and its two hashes as four signed 32-bit halves.

    A sum of 64-bit hashes would overflow, which is an error in ANSI mode; halves do not in two billion rows.
    """
    inputs = hashable(
        [(F.col(f"k{i}"), p.type) for i, p in enumerate(alignment.key)]
        + [(F.col(f"v{i}"), p.type) for i, p in enumerate(alignment.columns)]
    )
    hashed = rows.select(
        _bucket(alignment).alias("bucket"),
        F.xxhash64(*inputs).alias("h0"),
        # The same hash from another start: Spark chains the hash of a column into that of the next.
        F.xxhash64(F.lit(1), *inputs).alias("h1"),
    )

    def halves(name: str) -> Iterator[Column]:
        for half in (F.shiftright(name, 32), F.col(name).bitwiseAND(F.lit(_HALF))):
            yield half if sign > 0 else -half

    pieces = [*halves("h0"), *halves("h1")]
    return hashed.select(
        "bucket",
        F.lit(int(sign > 0)).cast("bigint").alias("left_rows"),
        F.lit(int(sign < 0)).cast("bigint").alias("right_rows"),
        *(piece.alias(f"s{i}") for i, piece in enumerate(pieces)),
    )


def _bucket(alignment: Alignment) -> Column:
    key = hashable([(F.col(f"k{i}"), p.type) for i, p in enumerate(alignment.key)])
    return F.xxhash64(*key).bitwiseAND(F.lit(BUCKETS - 1)).cast("int")


# -- second pass: which rows differ, and in what -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Found:
    missing: int = 0
    extra: int = 0
    changed: int = 0
    tolerated: int = 0
    duplicate_keys_left: int = 0
    duplicate_keys_right: int = 0
    columns: tuple[ColumnDifference, ...] = ()
    samples: tuple[RowDifference, ...] = ()

    @property
    def total(self) -> int:
        return self.missing + self.extra + self.changed


def _judge(
    sides: tuple[DataFrame, DataFrame],
    alignment: Alignment,
    bounds: Mapping[str, Tolerance],
    buckets: Sequence[int],
    samples: int,
) -> _Found:
    """Counts and examples in one Spark query: both branches stand on the same shuffle, which Spark runs once."""
    pairs = _paired((_within(sides[0], alignment, buckets), _within(sides[1], alignment, buckets)), alignment, bounds)
    judged = _judged(pairs, alignment, bounds)
    told = _totals(judged, alignment).select(F.lit("totals").alias("what"), F.to_json("totals").alias("body"))
    if samples > 0:
        told = told.unionAll(_examples(judged, alignment, samples))
    rows = told.collect()
    totals = next(json.loads(row["body"]) for row in rows if row["what"] == "totals")
    examples: dict[str, list[RowDifference]] = {}
    for row in rows:
        if row["what"] != "totals":
            body = json.loads(row["body"])
            examples.setdefault(row["what"], []).append(_row_difference(body, alignment))
    columns = [
        ColumnDifference(
            column=pair.name,
            rows=totals[f"c{i}"],
            max_difference=_finite(totals.get(f"d{i}")),
            samples=tuple(_only(pair.name, row) for row in examples.get(f"v{i}", ())),
        )
        for i, pair in enumerate(alignment.columns)
        if totals[f"c{i}"]
    ]
    return _Found(
        **{name: totals[name] for name in (*_KINDS, "tolerated", "duplicate_keys_left", "duplicate_keys_right")},
        columns=tuple(sorted(columns, key=lambda c: -c.rows)),
        samples=tuple(row for kind in _KINDS for row in examples.get(kind, ())),
    )


def _within(rows: DataFrame, alignment: Alignment, buckets: Sequence[int]) -> DataFrame:
    """The rows of these buckets. One bit per bucket says whether it is among them: a list would fill the plan."""
    words = [0] * (BUCKETS // _WORD)
    for bucket in buckets:
        words[bucket // _WORD] |= 1 << bucket % _WORD
    # An array of signed longs, folded to one constant.
    signed = ", ".join(f"{word}L" for word in (w - (w >> _WORD - 1 << _WORD) for w in words))
    at = _bucket(alignment)
    word = F.element_at(F.expr(f"array({signed})"), F.shiftright(at, 6) + F.lit(1))
    return rows.where(F.getbit(word, at.bitwiseAND(F.lit(_WORD - 1))) == F.lit(1))


def _paired(sides: tuple[DataFrame, DataFrame], alignment: Alignment, bounds: Mapping[str, Tolerance]) -> DataFrame:
    """What is left of each key, one row per left and right row set side by side.

    Gives the key, `at` (the place among the key's pairs), `left` and `right` (structs of values, NULL where that side
    has no row left), and `left_rows` and `right_rows`, how many rows of the key each side has in all.
    """
    from pyspark.sql import Window

    keys, values = _keys(alignment), _values(alignment)
    both = (
        sides[0]
        .select("*", F.lit(1).alias("l"), F.lit(0).alias("r"))
        .unionAll(sides[1].select("*", F.lit(0).alias("l"), F.lit(1).alias("r")))
    )
    # Once in the key's order, everything below stays in its partition.
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
    # A struct of nothing but the mark: also without columns to compare, a row that is there is not NULL.
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
    """With `kind`, and for changed rows each column's `c<i>` (whether it differs) and `d<i>` (by how much)."""
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
    return pairs.withColumns(differs).withColumns({"kind": kind, **distances})


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
    counted = judged.groupBy(*_keys(alignment)).agg(*of_key).agg(*whole)
    return counted.select(F.struct("*").alias("totals"))


def _examples(judged: DataFrame, alignment: Alignment, samples: int) -> DataFrame:
    """The first rows, by key, of each kind and of each column that differs."""
    from pyspark.sql import Window

    keys = _keys(alignment)
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


def _row_difference(body: Mapping[str, Any], alignment: Alignment) -> RowDifference:
    changed = set(body["changed"]) if body["kind"] == "changed" else None

    def side(values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        if values is None:
            return None
        return {
            pair.name: values[f"v{i}"]
            for i, pair in enumerate(alignment.columns)
            if changed is None or f"v{i}" in changed
        }

    return RowDifference(
        kind=body["kind"],
        key={pair.name: body["key"][f"k{i}"] for i, pair in enumerate(alignment.key)},
        left=side(body["left"]),
        right=side(body["right"]),
        left_rows=body["left_rows"],
        right_rows=body["right_rows"],
    )


def _only(column: str, row: RowDifference) -> RowDifference:
    def one(values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        return None if values is None else {column: values[column]}

    return RowDifference(
        kind=row.kind,
        key=row.key,
        left=one(row.left),
        right=one(row.right),
        left_rows=row.left_rows,
        right_rows=row.right_rows,
    )


def _finite(value: Any) -> float | None:
    number = None if value is None else float(value)
    return number if number is not None and math.isfinite(number) else None


__all__ = ["BUCKETS", "SAMPLES", "compare"]
