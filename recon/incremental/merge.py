"""What was measured on disjoint rows, made one: the arithmetic of incremental checks, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Context, localcontext
from typing import Any

Merge = Callable[[Any, Any], Any]

# Python rounds decimals to 28 digits unless told otherwise; Spark's have up to 38.
_EXACT = Context(prec=100)


def folded(merges: Mapping[str, Merge], known: Mapping[str, Any], fresh: Mapping[str, Any]) -> dict[str, Any]:
    """The values over all rows, from those over the known and those over the new ones.

    Args:
        merges: how two values of a name become one.
        known: values over rows that earlier runs measured.
        fresh: values over rows that none of them saw.

    >>> folded({"rows": lambda a, b: a + b}, {"rows": 7}, {"rows": 2})
    {'rows': 9}
    """
    with localcontext(_EXACT):
        return {name: merge(known[name], fresh[name]) for name, merge in merges.items()}


def grown(
    known: Mapping[str, int], *, rows: int, null_keys: int, touched: Iterable[tuple[int, int, int]]
) -> dict[str, int]:
    """What a key check is judged by over all rows, from what it was over the known ones.

    Args:
        known: `rows`, `null_keys`, `duplicate_keys` and `surplus_rows` over the known rows.
        rows: the number of new rows.
        null_keys: of these, how many have a key that holds a NULL.
        touched: keys with new rows that occur more than once in all, counted by what they are like: (number of such
            keys, rows known of each, new rows of each). Keys that occur once may be left out.

    >>> known = {"rows": 4, "null_keys": 0, "duplicate_keys": 1, "surplus_rows": 1}
    >>> grown(known, rows=3, null_keys=0, touched=[(1, 2, 1), (1, 1, 1)])
    {'rows': 7, 'null_keys': 0, 'duplicate_keys': 2, 'surplus_rows': 3}
    """
    duplicates, surplus = known["duplicate_keys"], known["surplus_rows"]
    for keys, before, fresh in touched:
        now = before + fresh
        duplicates += keys * ((now > 1) - (before > 1))
        surplus += keys * (max(now - 1, 0) - max(before - 1, 0))
    return {
        "rows": known["rows"] + rows,
        "null_keys": known["null_keys"] + null_keys,
        "duplicate_keys": duplicates,
        "surplus_rows": surplus,
    }


__all__ = ["Merge", "folded", "grown"]
