"""Codes of topic partitions: a ledger's ranges in columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recon.model.ledger import DENSE, firsts

CODES = st.one_of(st.integers(0, 5), st.integers(-3, DENSE + 3), st.integers(-(2**62), 2**62))


@given(st.lists(CODES, min_size=1, max_size=40))
def test_the_first_place_of_each_code(codes: list[int]) -> None:
    assert firsts(np.array(codes)).tolist() == [codes.index(code) for code in sorted(set(codes))]
