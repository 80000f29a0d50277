"""Fingerprints of source offsets: the closed form, what they notice, and what they cannot."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from recon.model.fingerprint import PRIME, coefficients, of_entries, of_offsets, of_ranges, xxhash64
from recon.model.offsets import OffsetSpan
from recon.testing.evidence import range_table

OFFSETS = st.integers(0, 2**50)
PARTITIONS = st.tuples(st.sampled_from(["orders", "clicks", "ünïcode", "x" * 70]), st.integers(0, 300))


@given(PARTITIONS, OFFSETS, st.integers(0, 40))
def test_a_range_has_the_fingerprint_of_its_offsets(where: tuple[str, int], start: int, size: int) -> None:
    topic, partition = where
    span = OffsetSpan(topic, None, partition, start, start + size)
    assert of_ranges([span]) == of_offsets(topic, partition, range(start, start + size))


@given(PARTITIONS, OFFSETS, st.integers(0, 10**9), st.integers(0, 10**9))
def test_fingerprints_of_ranges_that_follow_each_other_add(
    where: tuple[str, int], start: int, first: int, second: int
) -> None:
    topic, partition = where
    cuts = [start, start + first, start + first + second]
    one, other, both = (
        of_ranges([OffsetSpan(topic, None, partition, low, high)])
        for low, high in ((cuts[0], cuts[1]), (cuts[1], cuts[2]), (cuts[0], cuts[2]))
    )
    assert (one + other) % PRIME == both


@given(st.lists(st.lists(st.tuples(PARTITIONS, OFFSETS, st.integers(-2, 10**9)), max_size=5), max_size=5))
def test_columns_give_what_single_entries_give(entries: list[list[tuple[tuple[str, int], int, int]]]) -> None:
    spans = [[OffsetSpan(t, None, p, start, max(start + size, 0)) for (t, p), start, size in one] for one in entries]
    assert of_entries(range_table(spans), len(spans)).tolist() == [of_ranges(one) for one in spans]


@given(
    st.integers(1, 4), st.lists(st.integers(-3, 2**40), min_size=1, max_size=9), st.integers(-(2**40), 2**62), st.data()
)
def test_micro_batches_that_go_on_where_the_one_before_them_ended(
    width: int, sizes: list[int], begin: int, data: st.DataObject
) -> None:
    """As a stream's are, but that some skip offsets, read some again, or leave a partition out."""
    at = [begin] * width
    spans: list[list[OffsetSpan]] = []
    for size in sizes:
        at = [offset + data.draw(st.sampled_from([0] * 9 + [-7, 7])) for offset in at]
        left_out = data.draw(st.sampled_from([*[()] * 5, (0,)]))
        spans.append([OffsetSpan("t", None, p, at[p], at[p] + size) for p in range(width) if p not in left_out])
        at = [offset + size for offset in at]
    assert of_entries(range_table(spans), len(spans)).tolist() == [of_ranges(one) for one in spans]


def test_the_hash_is_the_published_one() -> None:
    """Values of the reference implementation (xxHash, "XXH64 test vectors"), seed 0."""
    assert xxhash64(b"", 0) == 0xEF46DB3751D8E999
    assert xxhash64(b"abc", 0) == 0x44BC2CF5AD770999
    assert xxhash64(b"Nobody inspects the spammish repetition", 0) == 0xFBCEA83C8A378BF1


def test_a_single_loss_and_a_single_duplicate_are_noticed() -> None:
    whole = of_offsets("orders", 3, range(1000))
    for offset in range(1, 1000):
        one = of_offsets("orders", 3, [offset])
        assert one and (whole - one) % PRIME != whole != (whole + one) % PRIME


def test_a_row_that_changes_its_partition_is_noticed() -> None:
    """Every swap of one offset between two of 200 partitions."""
    values = [of_offsets("orders", partition, [12_345]) for partition in range(200)]
    assert len(set(values)) == len(values)


def test_losses_and_as_many_duplicates_are_noticed() -> None:
    """200,000 micro-batches of up to 200 partitions; in each 1 to 6 rows are lost and as many doubled."""
    rng = random.Random(20261122)
    missed = 0
    for _ in range(200_000):
        partitions, width, start = rng.choice((1, 2, 200)), rng.choice((10, 1000)), rng.randrange(2**40)
        places = [(rng.randrange(partitions), start + rng.randrange(width)) for _ in range(2 * rng.randint(1, 6))]
        lost, doubled = set(places[::2]), set(places[1::2])
        if lost & doubled or len(lost) != len(doubled):
            continue
        missed += _sum(lost) % PRIME == _sum(doubled) % PRIME
    assert missed == 0


def _sum(places: Iterable[tuple[int, int]]) -> int:
    total = 0
    for partition, o in places:
        a, b, c = coefficients("orders", partition)
        total += (a + (b + c * o) * o) * o
    return total


def test_one_fault_in_p_is_not_noticed() -> None:
    """The same sums over a small prime, where faults that are not noticed can be counted: 1 to 3 lost and doubled."""
    rng, prime, faults, missed = random.Random(20261122), 1009, 200_000, 0
    for _ in range(faults):
        start = rng.randrange(2**40)
        places = [(rng.randrange(200), start + rng.randrange(1000)) for _ in range(2 * rng.randint(1, 3))]
        missed += (_sum(places[::2]) - _sum(places[1::2])) % prime == 0
    assert 0.8 < missed * prime / faults < 1.2


def test_what_is_not_noticed() -> None:
    """Equal sums of offsets, of squares and of cubes, in one partition."""
    assert of_offsets("orders", 0, (0, 4, 7, 11)) == of_offsets("orders", 0, (1, 2, 9, 10))
    assert of_offsets("orders", 0, (0, 4, 5)) != of_offsets("orders", 0, (1, 2, 6))


def test_partitions_as_an_edited_ledger_may_name_them_take_no_memory() -> None:
    spans = [
        [OffsetSpan("t", None, 2**31 - 1, 5, 9), OffsetSpan("t", None, 3, 5, 9)],
        [OffsetSpan("t", None, 3, 9, 12)],
    ]
    table = range_table(spans)
    tracemalloc.start()
    assert of_entries(table, len(spans)).tolist() == [of_ranges(one) for one in spans]
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
