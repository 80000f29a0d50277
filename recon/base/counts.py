"""Sums of counts that may not be known."""

from __future__ import annotations

from collections.abc import Iterable


def sum_of(counts: Iterable[int | None]) -> int | None:
    """The sum of some counts; None where one of them is not known.

    >>> sum_of([1, 2]), sum_of([1, None]), sum_of([])
    (3, None, 0)
    """
    listed = list(counts)
    return None if None in listed else sum(count for count in listed if count is not None)
