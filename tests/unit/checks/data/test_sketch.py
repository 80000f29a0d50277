"""The quantile sketch without Spark: its accuracy, and that it merges exactly."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from recon.checks.data.sketch import ACCURACY, GAMMA, INFINITY, NAN, SHIFT, merged, quantile

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


def sketch(values: list[float]) -> list[tuple[float, float]] | None:
    """What Spark's aggregate gives, bucket by bucket, unsorted and unmerged."""

    def bucket(value: float) -> int:
        if math.isnan(value):
            return NAN
        if math.isinf(value):
            return int(math.copysign(INFINITY, value))
        if value == 0:
            return 0
        return int(math.copysign(math.ceil(math.log(abs(value)) / math.log(GAMMA)) + SHIFT, value))

    return [(float(bucket(v)), 1.0) for v in values] or None


@settings(max_examples=300)
@given(st.lists(NUMBERS, min_size=1, max_size=40), st.floats(0, 1))
def test_a_quantile_is_within_one_percent(values, q):
    ordered = sorted(values, key=lambda v: (math.isnan(v), v))
    exact, found = ordered[math.floor(q * (len(values) - 1))], quantile(sketch(values), q)
    if math.isnan(exact) or math.isinf(exact):
        assert repr(found) == repr(exact)
    elif abs(exact) > 1e-300:  # doubles lose their precision below
        assert math.isclose(found, exact, rel_tol=ACCURACY * 1.0001) or math.isclose(
            abs(exact), 1.797e308, rel_tol=0.02
        )
    else:
        assert abs(found) <= 1.02e-300


@settings(max_examples=200)
@given(st.lists(st.lists(NUMBERS, max_size=8), min_size=1, max_size=5))
def test_any_split_merges_to_the_same_sketch(batches):
    whole = [v for batch in batches for v in batch]
    found = sketch(batches[0])
    for batch in batches[1:]:
        found = merged(found, sketch(batch))
    assert merged(found, []) == merged(sketch(whole), []) or found == sketch(whole) is None


def test_without_values_there_is_no_quantile():
    assert quantile(None, 0.5) is None
    assert merged(None, None) is None
