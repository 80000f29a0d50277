"""Values by key, in the order in which they come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from recon.model.offsets import Spans

K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key.

    >>> grouped([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def united(these: Mapping[K, Spans], others: Mapping[K, Spans]) -> dict[K, Spans]:
    """The spans of both, by key."""
    return {key: these.get(key, Spans()).union(others.get(key, Spans())) for key in (*these, *others)}


def spans_by(pairs: Iterable[tuple[K, tuple[int, int]]]) -> dict[K, Spans]:
    """The offsets of each key; a range that runs backward has none."""
    return {key: Spans.of((start, max(start, end)) for start, end in ranges) for key, ranges in grouped(pairs).items()}
