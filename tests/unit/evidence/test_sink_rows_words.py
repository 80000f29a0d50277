"""Words of 64 offsets back to ranges, against plain Python."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recon.model.offsets import Spans
from recon.witness.sink_rows import spans_of


def signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def words_of(offsets: set[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """What the Spark query answers for these offsets: blocks of full words, and words that are not full."""
    words: dict[int, int] = {}
    for offset in offsets:
        words[offset >> 6] = words.get(offset >> 6, 0) | 1 << (offset & 63)
    full: dict[int, int] = {}
    for word, bits in words.items():
        if signed(bits) == -1:
            full[word >> 6] = full.get(word >> 6, 0) | 1 << (word & 63)
    partial = [(word, signed(bits)) for word, bits in words.items() if signed(bits) != -1]
    return [(block, signed(bits)) for block, bits in full.items()], partial


stretches = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 5000)), min_size=1, max_size=6)


@given(stretches, st.integers(0, 2**50), st.sets(st.integers(0, 10_000), max_size=5))
def test_offsets_survive_the_words(stretches, base, holes):
    offsets = {base + o for start, size in stretches for o in range(start, start + size) if o not in holes}
    if offsets:
        assert spans_of(*words_of(offsets)) == Spans.of_offsets(offsets)


def test_a_contiguous_range_needs_one_number_per_block_and_its_two_ends():
    full, partial = words_of(set(range(10, 10_000)))
    assert [block for block, _ in full] == [0, 1, 2]
    assert [word for word, _ in partial] == [0, 156]
    assert spans_of(full, partial) == Spans.of([(10, 10_000)])
