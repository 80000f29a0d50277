"""Formats a comparison for the console."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recon.base.text import plural
from recon.checks.comparison.result import Comparison, RowDifference, SchemaDifference

SHOWN = 5  # examples of each kind


def text(comparison: Comparison) -> Iterator[str]:
    """The lines of the report, most important first; values are in Python's notation, which shows blanks."""
    c = comparison
    yield f"{c.left} and {c.right} are {'equal' if c.equal else 'different'}{_because(c)}"
    yield ""
    yield from _columns(
        [
            ("", c.left, c.right),
            ("rows", f"{c.left_rows:,}", f"{c.right_rows:,}"),
            ("matched", f"{c.matched:,}", f"{c.matched:,}"),
            ("changed", f"{c.changed:,}", f"{c.changed:,}"),
            (f"only in {c.left}", f"{c.missing:,}", ""),
            (f"only in {c.right}", "", f"{c.extra:,}"),
            ("duplicate keys that differ", f"{c.duplicate_keys_left:,}", f"{c.duplicate_keys_right:,}"),
        ]
    )
    if c.tolerated:
        yield f"{c.tolerated:,} of the matched rows are equal within the tolerances."
    if c.schema:
        yield ""
        yield "Schema:"
        yield from (f"  {_schema(s, c)}" for s in c.schema)
    if c.columns:
        yield ""
        yield from _columns(
            [("column", "changed rows", "greatest difference")]
            + [
                (d.column, f"{d.rows:,}", "" if d.max_difference is None else f"{d.max_difference:g}")
                for d in c.columns
            ]
        )
    yield from _samples(c)


def _because(c: Comparison) -> str:
    parts = [f"{n:,} {word}" for n, word in ((c.missing, "missing"), (c.extra, "extra"), (c.changed, "changed")) if n]
    one_sided = sum(None in (s.left, s.right) for s in c.schema)
    if one_sided:
        parts.append(f"{plural(one_sided, 'column')} on one side only")
    if c.same_types and len(c.schema) > one_sided:
        parts.append(f"{len(c.schema) - one_sided:,} types differ")
    return f": {', '.join(parts)}" if parts else f" ({c.left_rows:,} rows)"


def _schema(s: SchemaDifference, c: Comparison) -> str:
    if s.right is None:
        return f"{s.column}: {s.left} in {c.left}, not in {c.right}"
    if s.left is None:
        return f"{s.column}: {s.right} in {c.right}, not in {c.left}"
    return f"{s.column}: {s.left} in {c.left}, {s.right} in {c.right}; compared as {s.compared_as}"


def _samples(c: Comparison) -> Iterator[str]:
    titles = {"missing": f"Only in {c.left}:", "extra": f"Only in {c.right}:", "changed": "Changed:"}
    for kind, title in titles.items():
        rows = [row for row in c.samples if row.kind == kind][:SHOWN]
        if rows:
            yield ""
            yield title
            yield from (f"  {_row(row)}" for row in rows)


def _row(row: RowDifference) -> str:
    if row.left is not None and row.right is not None:
        values = ", ".join(f"{name}: {row.left[name]!r} → {row.right[name]!r}" for name in row.left)
    else:
        values = _pairs(row.left or row.right or {})
    many = (
        f" ({row.left_rows:,} and {row.right_rows:,} rows of this key)"
        if max(row.left_rows, row.right_rows) > 1
        else ""
    )
    return f"{_pairs(row.key)}{' | ' if values else ''}{values}{many}"


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _columns(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for first, second, third in rows:
        yield f"{first.ljust(widths[0])}  {second.rjust(widths[1])}  {third.rjust(widths[2])}".rstrip()
