"""Carries what `make bench` measured here (bench/.results.json) into bench/results.json, docs/figures.md and README.md.

    make figures

A figure that was not measured here stays as published. Read the diff before you commit it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.__main__ import MEASURED, PUBLISHED, Result, cells, load, save, table

PAGE = Path(__file__).parents[1] / "docs" / "figures.md"
README = Path(__file__).parents[1] / "README.md"
_TABLE = re.compile(r"(?<=<!-- figures -->\n).*?(?=\n<!-- /figures -->)", re.DOTALL)


def shown() -> str:
    """The table that the page shows now."""
    match = _TABLE.search(PAGE.read_text(encoding="utf-8"))
    if match is None:
        raise ValueError(f"{PAGE} has no <!-- figures --> and <!-- /figures --> around its table")
    return match[0]


def readme(results: Mapping[str, Result]) -> str:
    """README.md with the numbers of the figures that its table names in the last cell; its words stay."""

    def row(match: re.Match[str]) -> str:
        return f"| {match['what']} | {cells(results[match['name']])} | `{match['name']}` |"

    rows = re.compile(r"^\| (?P<what>[^|]+) \|[^|]*\|[^|]*\|[^|]*\| `(?P<name>\w+)` \|$", re.MULTILINE)
    return _TABLE.sub(lambda whole: rows.sub(row, whole[0]), README.read_text(encoding="utf-8"))


def main() -> int:
    """Publish what was measured; 2 when nothing was."""
    measured = load(MEASURED)
    if not measured:
        print(f"{MEASURED} does not exist; run 'make bench' first", file=sys.stderr)  # noqa: T201
        return 2
    results = load(PUBLISHED) | measured
    save(results, PUBLISHED)
    PAGE.write_text(_TABLE.sub(lambda _: table(results), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    README.write_text(readme(results), encoding="utf-8")
    pages = f"{PUBLISHED.name}, {PAGE.name} and {README.name}"
    print(f"{', '.join(measured)}: now in {pages}; read the diff before you commit")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
