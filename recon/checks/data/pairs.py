"""Columns of two tables that belong together, in a type that both can be compared in.

If their types differ, they are compared in the type that loses nothing (see `common_type`): 1 equals 1.0. Next to text
they are compared as text: 1 equals '1' and not '01'. Text of one collation is compared by it, as in Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from recon.base.errors import ConfigError
from recon.checks.comparison.align import common_type, has_equality
from recon.checks.data.bounds import OfColumn
from recon.checks.data_check import QueryCheck
from recon.spark.columns import key_column, type_of
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
    """A column of each side in a type that both can be compared in.

    Raises:
        ConfigError: a column is not there, or the two cannot be compared.
    """
    from pyspark.sql.types import DecimalType, DoubleType, FloatType, StringType

    ours, theirs = type_of(name, here, "the table"), type_of(other, there, reference)
    if isinstance(ours, StringType) and isinstance(theirs, StringType) and ours != theirs:
        raise ConfigError(
            f"{name} is {ours.simpleString()} and {other} of {reference} is {theirs.simpleString()}; Spark does not "
            "compare text of two collations; write an SQL test that says which one, with COLLATE"
        )
    common = common_type(ours, theirs) if has_equality(ours) and has_equality(theirs) else None
    if common is None:
        raise ConfigError(
            f"{name} is {ours.simpleString()} and {other} of {reference} is {theirs.simpleString()}, "
            "which cannot be compared; leave it out, or compare a column that holds it as text"
        )
    columns = (key_column(name), key_column(other))
    if ours != theirs:  # a cast takes the collation away
        columns = (columns[0].cast(common), columns[1].cast(common))
    if precision is not None and isinstance(common, (DecimalType, DoubleType, FloatType)):
        return F.round(columns[0], precision), F.round(columns[1], precision)
    return columns
