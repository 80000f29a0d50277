"""First pass: whether two tables are equal, and if not, in which buckets of keys they differ.

Every row falls into one of `BUCKETS` by a hash of its key. Each bucket adds up the number of rows and two 64-bit hashes
of the whole row, over the left rows and minus the right ones. Where all sums are zero both sides have the same rows the
same number of times, in whatever order. Two different tables pass as equal with a chance of about 2^-128 per bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from recon.checks.comparison.align import Alignment
from recon.checks.comparison.sides import Sides
from recon.checks.comparison.values import hashable
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKETS = 1 << 16
_HALF = 0xFFFFFFFF
_WORD = 64


@dataclass(frozen=True)
class Sweep:
    """The number of rows of each side, and the buckets in which the sides differ."""

    left_rows: int
    right_rows: int
    buckets: Sequence[int]


def sweep(sides: Sides, alignment: Alignment) -> Sweep:
    """Sums both sides by bucket, in one Spark query that returns one row to the driver."""
    sums = [f"s{i}" for i in range(4)]
    differs = reduce(
        lambda a, b: a | b, (F.col(name) != F.lit(0) for name in sums), F.col("left_rows") != F.col("right_rows")
    )
    total = (
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
    return Sweep(total["left_rows"] or 0, total["right_rows"] or 0, total["buckets"])


def within_buckets(rows: DataFrame, alignment: Alignment, buckets: Sequence[int]) -> DataFrame:
    """The rows of these buckets. They are given as one bit per bucket, since a list would fill the plan."""
    words = [0] * (BUCKETS // _WORD)
    for number in buckets:
        words[number // _WORD] |= 1 << number % _WORD
    # An array of signed longs, folded to one constant.
    signed = ", ".join(f"{word}L" for word in (w - (w >> _WORD - 1 << _WORD) for w in words))
    bucket = _bucket(alignment)
    word = F.element_at(F.expr(f"array({signed})"), F.shiftright(bucket, 6) + F.lit(1))
    return rows.where(F.getbit(word, bucket.bitwiseAND(F.lit(_WORD - 1))) == F.lit(1))


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
