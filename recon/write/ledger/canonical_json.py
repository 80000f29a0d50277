"""Columns as the canonical JSON that hashes of rows are made of, a column at a time: a year has millions of cells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

# A cell a line: JSON escapes the line breaks that texts have.
_lines = json.JSONEncoder(separators=("\n", ":"), ensure_ascii=False).encode


def cells(values: Sequence[Any]) -> list[str]:
    """Each text, number or None of a column as JSON, spelled as it is alone.

    >>> cells(["a,b", None, 3])
    ['"a,b"', 'null', '3']
    """
    return _lines(values)[1:-1].split("\n") if values else []
