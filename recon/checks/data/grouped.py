"""Row checks that can also judge each group of rows on its own (dbt_utils' `group_by_columns`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from recon.checks.data_check import DataCheck, QueryCheck, RowCheck, Tables
from recon.model import Verdict
from recon.spark.columns import key_column
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, kw_only=True)
class GroupableCheck(RowCheck):
    """Measured in the one scan, or, with `group_by_columns`, per group by a grouping of its own.

    A group whose key is NULL is a group. `judge` and `group_fails` are the same rule for a table and for a group.

    Args:
        group_by_columns: judge each group of rows with equal values in these columns, or SQL expressions such as
            `lower(region)`, on its own.

    Cost:
        nothing beyond the one scan that all row checks of the table share; with `group_by_columns`, one Spark job that
        groups the table.
    """

    group_by_columns: tuple[str, ...] = ()

    @abstractmethod
    def group_fails(self, measured: Mapping[str, Column]) -> Column:
        """Whether a group fails, from its `measures` and `rows`; must not be NULL."""

    def group_shows(self, measured: Mapping[str, Column]) -> Mapping[str, Column]:
        """What samples show of a failing group besides its key and number of rows."""
        return {name: column for name, column in measured.items() if name != "rows"}

    @abstractmethod
    def group_message(self, groups: int) -> str:
        """The sentence that the result shows when groups fail."""

    @override
    def label(self) -> str:
        by = ("by", *self.group_by_columns) if self.group_by_columns else ()
        return "__".join([super().label(), *by])

    @override
    def columns(self) -> Sequence[str]:
        return (*super().columns(), *self.group_by_columns)

    @override
    def measured_as(self) -> DataCheck:
        return _ByGroup(of=self) if self.group_by_columns else self


@dataclass(frozen=True, kw_only=True)
class _ByGroup(QueryCheck):
    """The groups that fail a check."""

    test: ClassVar[str] = "by_group"
    fail_calc: ClassVar[str] = "count_if(fails)"
    of: GroupableCheck

    @override
    def identifying(self) -> Sequence[str]:
        return self.of.group_by_columns

    @override
    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        measured = self._measured()
        return (
            self._groups(rows)
            .filter(self.of.group_fails(measured))
            .select(
                *(F.col(f"k{i}").alias(name) for i, name in enumerate(self.of.group_by_columns)),
                measured["rows"].alias("n_records"),
                *(column.alias(name) for name, column in self.of.group_shows(measured).items()),
            )
        )

    @override
    def counted(self, rows: DataFrame, tables: Tables) -> DataFrame:
        measured = self._measured()
        return self._groups(rows).select(measured["rows"].alias("n"), self.of.group_fails(measured).alias("fails"))

    @override
    def figures(self) -> Mapping[str, str]:
        return {"rows": "coalesce(sum(n), 0)"}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        groups = measured["failures"]
        return Verdict.counted(groups, self.of.group_message(groups), rows=measured["rows"])

    def _groups(self, rows: DataFrame) -> DataFrame:
        key = [key_column(name).alias(f"k{i}") for i, name in enumerate(self.of.group_by_columns)]
        measures = {name: measure.over(None) for name, measure in self.of.measures().items()}
        measures["rows"] = F.count(F.lit(1))
        return rows.groupBy(*key).agg(*(column.alias(f"m_{name}") for name, column in measures.items()))

    def _measured(self) -> dict[str, Column]:
        return {name: F.col(f"m_{name}") for name in (*self.of.measures(), "rows")}
