"""Compares two DataFrames by key: what is missing, extra and changed, column by column.

`engine.compare` decides by one aggregate over both tables whether they are equal, and reads rows only where they are
not. `align` brings both sides to common columns and types, `values` compares two values, `tolerance` reads
tolerances, `result` and `text` are what the caller gets. Knows no sink, no ledger and no check.
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
