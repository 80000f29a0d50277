"""Compares two tables by key, such as a source and its sink.

`compare` runs one aggregate over both tables; only where that shows a difference does a second query read rows
again and compare them by value.
"""

from recon.comparison.engine import compare
from recon.comparison.result import ColumnDifference, Comparison, RowDifference, SchemaDifference
from recon.comparison.text import text
from recon.comparison.tolerance import Tolerance

__all__ = [
    "ColumnDifference",
    "Comparison",
    "RowDifference",
    "SchemaDifference",
    "Tolerance",
    "compare",
    "text",
]
