"""Data checks on whether values of a column are in another table (foreign keys)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from recon.checks.data.pairs import AgainstColumn, Pair, pair
from recon.checks.data_check import Measure, Tables, count_if
from recon.model import Verdict
from recon.model.wire.columns import STAMPED_COLUMNS
from recon.spark.columns import expression, filtered
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Beside columns of the table, whose names may be anything.
_KEY = "__recon_key"
_FIELD = "__recon_field"


@dataclass(frozen=True, kw_only=True)
class Relationships(AgainstColumn):
    """Rows whose column holds a value that a column of another table does not have.

    Failures are rows, as in dbt; the message also counts the values. NULL is not judged, as in dbt: add `not_null`
    where it may not be; a column that is NULL in every row is skipped. A NULL in the other table equals nothing. When
    the other table has no rows, every row with a value fails. Columns of different types are compared in a common one,
    next to text as text. Text of one collation is compared by it; of two, it is an error. `where` is for the checked
    table alone, like `from_condition`; `to_condition` is for the other.

    Args:
        from_condition: SQL that a row must meet to be judged.
        to_condition: SQL that a row of the other table must meet to count.

    Cost:
        one Spark job that groups the table by the column and then joins; Spark broadcasts the other table where it is
        small enough. What was judged is counted in the scan of the table's row checks.

    Example:
        columns:
          - name: customer_id
            data_tests:
              - relationships:
                  arguments: {to: ref('customers'), field: id}
    """

    test: ClassVar[str] = "relationships"
    fail_calc: ClassVar[str] = "sum(n)"
    from_condition: str | None = None
    to_condition: str | None = None

    @override
    def identifying(self) -> Sequence[str]:
        return (self.column_name,)

    @override
    def measures(self) -> Mapping[str, Measure]:
        judged = F.col(self.column_name).isNotNull()
        if self.from_condition:
            judged = judged & expression(self.from_condition, "from_condition")
        return {"judged": count_if(judged)}

    @override
    def counted(self, rows: DataFrame, tables: Tables) -> DataFrame:
        """Each value that the other table lacks, with its number of rows.

        Where the other table is small enough to broadcast, Spark itself moves the join below the grouping.
        """
        children, parents, (key, field) = self._sides(rows, tables)
        values = children.groupBy(key.alias(_KEY)).agg(F.count(F.lit(1)).alias("n"))
        return values.join(parents.select(field.alias(_FIELD)), F.col(_KEY) == F.col(_FIELD), "left_anti")

    @override
    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        children, parents, (key, field) = self._sides(rows, tables)
        origin = [name for name in STAMPED_COLUMNS if name in rows.columns]
        shown = children.select(
            key.alias(_KEY), F.col(self.column_name).alias(self.column_name), *(F.col(name) for name in origin)
        )
        return shown.join(parents.select(field.alias(_FIELD)), F.col(_KEY) == F.col(_FIELD), "left_anti").drop(_KEY)

    @override
    def figures(self) -> Mapping[str, str]:
        return {"values": "count(*)"}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        failures, rows, judged, values = (measured.get(n) for n in ("failures", "rows", "judged", "values"))
        if not judged:
            condition = f" where {self.from_condition}" if self.from_condition else ""
            return Verdict(
                skipped=f"{self.column_name} has no value in {rows} rows{condition}, so that none was judged"
            )
        where = f"{self.field} of {self.to}"
        message = f"{values} values of {self.column_name} are not in {where}, in {failures} of {rows} rows"
        return Verdict.counted(failures or 0, message, rows=rows, judged_rows=judged, missing_values=values)

    def _sides(self, rows: DataFrame, tables: Tables) -> tuple[DataFrame, DataFrame, Pair]:
        """The rows that have a value on either side, and the two columns in a common type."""
        there = tables.open(self.to)
        ours, theirs = pair(rows, self.column_name, there, self.field, self.to)
        children = filtered(rows, self.from_condition, "from_condition", "the table")
        parents = filtered(there, self.to_condition, "to_condition", self.to)
        children = children.filter(F.col(self.column_name).isNotNull())
        return children, parents.filter(theirs.isNotNull()), (ours, theirs)


@dataclass(frozen=True, kw_only=True)
class RelationshipsWhere(Relationships):
    """The same as `relationships`, under the name that dbt_utils has for it with its two conditions.

    Failures are rows. NULL is not judged; zero rows are skipped.

    Example:
        columns:
          - name: customer_id
            data_tests:
              - dbt_utils.relationships_where:
                  arguments:
                    to: ref('customers')
                    field: id
                    from_condition: status <> 'test'
                    to_condition: active
    """

    test: ClassVar[str] = "relationships_where"
