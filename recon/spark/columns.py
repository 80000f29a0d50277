"""Names of columns as Spark reads them."""

from __future__ import annotations

from collections.abc import Iterable


def quoted(name: str) -> str:
    """A column's name as Spark reads it whatever it holds: dots, blanks, backticks."""
    return "`" + name.replace("`", "``") + "`"


def distinct(names: Iterable[str]) -> list[str]:
    """Names that differ: a join's `SELECT *` has some twice, and samples could not be told apart.

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
