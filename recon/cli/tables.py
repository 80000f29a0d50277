"""How a table fits a terminal: wide lines, else wrapped cells, else a block per row. No column and no cell is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_GAP = 2  # between columns
_NARROWEST = 12  # a cell that is wrapped at fewer columns is no longer read


def natural_width(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """How wide the table is where nothing is wrapped."""
    return sum(_widths(headers, rows)) + _GAP * (len(headers) - 1)


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> RenderableType:
    """The rows, laid out for a width; numbers aligned to the right."""
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    numeric = [all(isinstance(row[n], int) or row[n] is None for row in rows) for n in range(len(headers))]
    wraps = natural_width(headers, texts) > width
    if wraps and _narrowest(headers, texts) > width:
        return _blocks(headers, texts)
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    narrowest = [min(_NARROWEST, widest) for widest in _widths(headers, texts)]
    for header, right, least in zip(headers, numeric, narrowest, strict=True):
        justify = "right" if right else "left"
        least = max(least, cell_len(header))
        made.add_column(header, justify=justify, no_wrap=not wraps, overflow="fold", min_width=least)  # type: ignore[arg-type]
    for row in texts:
        made.add_row(*map(Text, row))
    return made


def _widths(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    columns = zip(headers, *rows, strict=True)
    return [max(cell_len(line) for cell in column for line in (cell.splitlines() or [""])) for column in columns]


def _narrowest(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """How wide the table is where every cell is wrapped as far as it can be read."""
    widths = zip(headers, _widths(headers, rows), strict=True)
    return sum(max(cell_len(header), min(_NARROWEST, width)) for header, width in widths) + _GAP * (len(headers) - 1)


def _blocks(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    """A line per cell, with its header before it; an empty line between two rows."""
    widest = max(map(cell_len, headers), default=0)
    lines: list[RenderableType] = []
    for n, row in enumerate(rows):
        block = Table.grid(padding=(0, _GAP, 0, 0))
        block.add_column(style="bold", min_width=widest, no_wrap=True)
        block.add_column(overflow="fold")
        for header, cell in zip(headers, row, strict=True):
            block.add_row(header, Text(cell))
        lines += [Text(""), block] if n else [block]
    return Group(*lines)
