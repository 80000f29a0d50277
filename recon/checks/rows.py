"""Data checks on single rows, all measured in one scan of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from recon.checks.base import Measure, RowCheck, count_if
from recon.errors import ConfigError
from recon.model import Verdict

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


@dataclass(frozen=True, kw_only=True)
class NotNull(RowCheck):
    """Rows whose column is NULL.

    Failures are rows. NaN and the empty string are values, not NULL. A table (or `where`) with no rows is
    skipped. Costs nothing beyond the one scan that all row checks of the table share.

    Args:
        column_name: the column; filled in for a test listed below a column. A field of a struct is `a.b`.
    """

    test: ClassVar[str] = "not_null"
    column_name: str

    def label(self) -> str:
        """The column."""
        return self.column_name

    def columns(self) -> Sequence[str]:
        """The one column."""
        return (self.column_name,)

    def failing(self) -> Column:
        """The column is NULL."""
        from pyspark.sql import functions as F

        return F.col(self.column_name).isNull()

    def measures(self) -> Mapping[str, Measure]:
        """Rows whose column is NULL."""
        return {"nulls": count_if(self.failing())}

    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        """Fails by the number of NULLs."""
        nulls, rows = measured["nulls"], measured["rows"]
        return Verdict(
            failures=nulls,
            message=f"{self.column_name} is NULL in {nulls} of {rows} rows" if nulls else "",
            evidence={"rows": rows},
        )


@dataclass(frozen=True, kw_only=True)
class AcceptedValues(RowCheck):
    """Rows whose column holds a value outside a list.

    Failures are rows (dbt counts distinct values). NULL is accepted, as in dbt: add `not_null` where it is
    not. Strings compare exactly, with case and blanks. A table (or `where`) with no rows is skipped. Costs
    nothing beyond the one scan that all row checks of the table share.

    Args:
        column_name: the column; filled in for a test listed below a column. A field of a struct is `a.b`.
        values: the accepted values. Each is read as a value of the column's type, so that `[1, 2]` and
            `["1", "2"]` mean the same; one that is no value of that type accepts nothing.
        quote: false takes strings in `values` as SQL expressions, such as `date '2026-01-01'`.
    """

    test: ClassVar[str] = "accepted_values"
    column_name: str
    values: tuple[Any, ...]
    quote: bool = True
    column_type: Any = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigError("values is empty, so that no row could pass; list the accepted values")
        odd = [v for v in self.values if v is None or isinstance(v, (list, tuple, dict, set))]
        if odd:
            raise ConfigError(f"values holds {odd[0]!r}, which is not a plain value; NULL is always accepted")

    def label(self) -> str:
        """The column and the values, like dbt's."""
        return "__".join([self.column_name, *(_text(v) for v in self.values)])

    def columns(self) -> Sequence[str]:
        """The one column."""
        return (self.column_name,)

    def fit(self, types: Mapping[str, DataType]) -> Self:
        """The check that reads its values as values of the column's type."""
        fitted = replace(self)
        object.__setattr__(fitted, "column_type", types[self.column_name])  # frozen, and not an argument
        return fitted

    def failing(self) -> Column:
        """The column is neither NULL nor one of the values."""
        from pyspark.sql import functions as F

        column = F.col(self.column_name)
        # A NULL in the list (a value that is none of this type) would make IN answer NULL and hide a failure.
        accepted = F.coalesce(column.isin(*(self._literal(v) for v in self.values)), F.lit(False))
        return column.isNotNull() & ~accepted

    def measures(self) -> Mapping[str, Measure]:
        """Rows outside the list."""
        return {"others": count_if(self.failing())}

    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        """Fails by the number of rows outside the list."""
        others, rows = measured["others"], measured["rows"]
        return Verdict(
            failures=others,
            message=f"{self.column_name} is none of the {len(self.values)} accepted values in {others} of {rows} rows"
            if others
            else "",
            evidence={"rows": rows},
        )

    def _literal(self, value: Any) -> Column:
        from pyspark.sql import functions as F

        if isinstance(value, str) and not self.quote:
            return F.expr(value)
        literal = F.lit(_text(value))
        return literal if self.column_type is None else literal.try_cast(self.column_type)


def _text(value: Any) -> str:
    """A YAML value as Spark's text for it.

    >>> _text(True), _text(1.5), _text("new")
    ('true', '1.5', 'new')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)
