"""Two tables compared by key: a source and its sink, before and after.

`compare` is the engine. One aggregate over both tables tells whether they are equal; only where they are not are
rows read again and set side by side.
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
