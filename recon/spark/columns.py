"""Names of columns for Spark."""

from __future__ import annotations

from collections.abc import Iterable


def quoted(name: str) -> str:
    """A column's name in backticks, valid for any name: with dots, blanks or backticks."""
    return "`" + name.replace("`", "``") + "`"


def distinct(names: Iterable[str]) -> list[str]:
    """The names made distinct: a join's `SELECT *` may repeat a name, and samples are keyed by name.

    >>> distinct(["id", "ID", "x"])
    ['id', 'ID_2', 'x']
    """
    taken: set[str] = set()
    unique_names = []
    for name in names:
        number, unique = 1, name
        while unique.lower() in taken:
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique.lower())
        unique_names.append(unique)
    return unique_names
