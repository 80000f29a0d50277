"""Columns of two tables that belong together, in a type that both can be compared in.

They may differ in type: they are compared in the type that loses nothing (see `common_type`), so that 1 equals 1.0, and
next to text as text, so that 1 equals '1' and not '01'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from recon.checks.data.bounds import OfColumn
from recon.checks.data_check import QueryCheck
from recon.comparison.align import common_type, has_equality
from recon.errors import ConfigError
from recon.spark.columns import type_of
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Pair = tuple["Column", "Column"]


@dataclass(frozen=True, kw_only=True)
class AgainstColumn(OfColumn, QueryCheck):
    """A column, compared with a column of another table.

    Args:
        to: the other table: `ref('name')` of a sink or of an entry of `tables`, a path, or a catalog table.
        field: the other table's column.
    """

    named_after: ClassVar[Sequence[str]] = ("column_name", "field", "to")
    to: str
    field: str


def pair(
    here: DataFrame, name: str, there: DataFrame, other: str, reference: str, precision: int | None = None
) -> Pair:
    """A column of each side in a type that both can be compared in."""
    from pyspark.sql.types import DecimalType, DoubleType, FloatType

    ours, theirs = type_of(name, here, "the table"), type_of(other, there, reference)
    common = common_type(ours, theirs) if has_equality(ours) and has_equality(theirs) else None
    if common is None:
        raise ConfigError(
            f"{name} is {ours.simpleString()} and {other} of {reference} is {theirs.simpleString()}, "
            "which cannot be compared; leave it out, or compare a column that holds it as text"
        )
    columns = (F.col(name).cast(common), F.col(other).cast(common))
    if precision is not None and isinstance(common, (DecimalType, DoubleType, FloatType)):
        return F.round(columns[0], precision), F.round(columns[1], precision)
    return columns
