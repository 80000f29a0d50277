"""Compares two DataFrames by key: what is missing, extra and changed, column by column.

`engine` runs two passes: `sweep`, one aggregate over both tables, decides whether they are equal; `differences` reads
rows only where they are not. `align` and `sides` bring both tables to common columns and types. `values` compares two
values, `tolerance` reads tolerances; `result` and `text` are what the caller gets. Knows no sink, ledger or check.
"""

from recon.checks.comparison.engine import compare
from recon.checks.comparison.result import ColumnDifference, Comparison, RowDifference, SchemaDifference
from recon.checks.comparison.text import text
from recon.checks.comparison.tolerance import Tolerance

__all__ = [
    "ColumnDifference",
    "Comparison",
    "RowDifference",
    "SchemaDifference",
    "Tolerance",
    "compare",
    "text",
]
