"""A quantile sketch that merges exactly: counts per bucket of a logarithmic scale, as DDSketch has it.

Bucket i holds the values in (g^(i-1), g^i] with g = (1 + a) / (1 - a): its middle is within a = 1 % of every value.
Counts add up: the sketch of two sets of rows is the sum of theirs, whatever the split.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from recon.checks.data_check import Measure
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column

ACCURACY = 0.01
GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
# The smallest double is in bucket -37222, the greatest in 35488: shifted, every positive value's is above 0.
SHIFT = 40_000
INFINITY, NAN = 90_000, 100_000
# More bins than there are buckets over both signs, so that Spark's histogram never joins two of them.
_BINS = 1_000_000

Buckets = Sequence[Sequence[float]]


def histogram(of: Column) -> Measure:
    """How many values of a numeric column are in each bucket, as pairs (bucket, count); None without values."""
    value = of.cast("double")
    size = F.ceil(F.log(F.abs(value)) / math.log(GAMMA)) + SHIFT
    bucket = (
        F.when(F.isnan(value), NAN)
        .when(F.abs(value) == float("inf"), F.signum(value) * INFINITY)
        .when(value == 0, 0)
        .otherwise(F.signum(value) * size)
        .cast("int")
    )
    # Spark keeps the means of bins; as long as none is joined each is a bucket's own number.
    return Measure(bucket, lambda column: F.histogram_numeric(column, F.lit(_BINS)), merged)


def merged(a: Buckets | None, b: Buckets | None) -> Buckets | None:
    """The counts of two disjoint sets of values together.

    >>> merged([(1, 2.0), (4, 1.0)], [(4, 3.0)])
    [(1, 2), (4, 4)]
    """
    if a is None or b is None:
        return b if a is None else a
    return _added([*a, *b])


def quantile(buckets: Buckets | None, q: float) -> float | None:
    """The value at rank q of (n - 1), within 1 % of it; None without values. NaN is above every number.

    >>> round(quantile([(40_000, 1.0)], 0.5), 9)
    0.99
    """
    if not buckets:
        return None
    counts = _added(buckets)
    rank = q * (sum(count for _, count in counts) - 1)
    counted = 0
    for bucket, count in counts:
        counted += count
        if counted > rank:
            return _middle(bucket)
    return _middle(counts[-1][0])


def _added(pairs: Iterable[Sequence[float]]) -> list[tuple[int, int]]:
    counts: dict[int, int] = {}
    for bucket, count in pairs:
        counts[round(bucket)] = counts.get(round(bucket), 0) + round(count)
    return sorted(counts.items())


def _middle(bucket: int) -> float:
    if bucket == 0:
        return 0.0
    if bucket == NAN:
        return math.nan
    if abs(bucket) == INFINITY:
        return math.copysign(math.inf, bucket)
    exponent = (abs(bucket) - SHIFT) * math.log(GAMMA) + math.log(2 / (GAMMA + 1))
    value = math.exp(exponent) if exponent < math.log(sys.float_info.max) else sys.float_info.max
    return math.copysign(value, bucket)
