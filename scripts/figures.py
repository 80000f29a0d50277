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


def shown(page: Path = PAGE) -> str:
    """The table that the page shows now."""
    match = _TABLE.search(page.read_text(encoding="utf-8"))
    if match is None:
        raise ValueError(f"{page} has no <!-- figures --> and <!-- /figures --> around its table")
    return match[0]


def readme(results: Mapping[str, Result], path: Path = README) -> str:
    """README.md with the numbers of the figures that its table names in the last cell; its words stay."""

    def row(match: re.Match[str]) -> str:
        return f"| {match['what']} | {cells(results[match['name']])} | `{match['name']}` |"

    rows = re.compile(r"^\| (?P<what>[^|]+) \|[^|]*\|[^|]*\|[^|]*\| `(?P<name>\w+)` \|$", re.MULTILINE)
    return _TABLE.sub(lambda whole: rows.sub(row, whole[0]), path.read_text(encoding="utf-8"))


def main() -> int:
    """Publish what was measured; 2 when nothing was."""
    return publish(load(MEASURED))


def publish(
    measured: Mapping[str, Result], published: Path = PUBLISHED, page: Path = PAGE, start: Path = README
) -> int:
    """Take figures over into what is published, the page and README.md; 2 where there are none."""
    if not measured:
        print(f"{MEASURED} does not exist; run 'make bench' first", file=sys.stderr)  # noqa: T201
        return 2
    results = {**load(published), **measured}
    save(results, published)
    page.write_text(_TABLE.sub(lambda _: table(results), page.read_text(encoding="utf-8")), encoding="utf-8")
    start.write_text(readme(results, start), encoding="utf-8")
    pages = f"{published.name}, {page.name} and {start.name}"
    print(f"{', '.join(measured)}: now in {pages}; read the diff before you commit")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
