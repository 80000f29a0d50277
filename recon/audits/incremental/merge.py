"""Merges values measured on disjoint rows: the arithmetic of incremental checks, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Context, localcontext
from typing import Any

Merge = Callable[[Any, Any], Any]

# Python rounds decimals to 28 digits by default; Spark's have up to 38.
_EXACT = Context(prec=100)


def merged(merges: Mapping[str, Merge], saved: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The values over all rows, from those over the saved rows and those over the new ones.

    >>> merged({"rows": lambda a, b: a + b}, {"rows": 7}, {"rows": 2})
    {'rows': 9}
    """
    with localcontext(_EXACT):
        return {name: merge(saved[name], new[name]) for name, merge in merges.items()}


def merged_key_counts(
    saved: Mapping[str, int], *, rows: int, null_keys: int, repeated: Iterable[tuple[int, int, int]]
) -> dict[str, int]:
    """The counts of a key check over all rows, from those over the saved rows.

    Args:
        saved: `rows`, `null_keys`, `duplicate_keys` and `surplus_rows` over the saved rows.
        rows: the number of new rows.
        null_keys: how many of them have a key that holds a NULL.
        repeated: keys with new rows that occur more than once in all, grouped: (number of such keys, saved rows of
            each, new rows of each). Keys that occur once may be left out.

    >>> saved = {"rows": 4, "null_keys": 0, "duplicate_keys": 1, "surplus_rows": 1}
    >>> merged_key_counts(saved, rows=3, null_keys=0, repeated=[(1, 2, 1), (1, 1, 1)])
    {'rows': 7, 'null_keys': 0, 'duplicate_keys': 2, 'surplus_rows': 3}
    """
    duplicates, surplus = saved["duplicate_keys"], saved["surplus_rows"]
    for keys, before, added in repeated:
        now = before + added
        duplicates += keys * ((now > 1) - (before > 1))
        surplus += keys * (max(now - 1, 0) - max(before - 1, 0))
    return {
        "rows": saved["rows"] + rows,
        "null_keys": saved["null_keys"] + null_keys,
        "duplicate_keys": duplicates,
        "surplus_rows": surplus,
    }
