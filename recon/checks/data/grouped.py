"""Row checks that can also be put to each group of rows on its own (dbt_utils' `group_by_columns`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from recon.checks.base import QueryCheck, RowCheck, Tables, TableScan
from recon.model import Verdict
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, kw_only=True)
class GroupableCheck(RowCheck):
    """Measured in the one scan, or, with `group_by_columns`, per group by a grouping of its own.

    A group whose key is NULL is a group. `judge` and `group_fails` say the same of a table and of a group.
    """

    group_by_columns: tuple[str, ...] = ()

    @abstractmethod
    def group_fails(self, measured: Mapping[str, Column]) -> Column:
        """Whether a group fails, from its `measures` and `rows`; must not be NULL."""

    def group_shows(self, measured: Mapping[str, Column]) -> Mapping[str, Column]:
        """What samples show of a failing group besides its key and number of rows."""
        return {name: column for name, column in measured.items() if name != "rows"}

    @abstractmethod
    def group_said(self, groups: int) -> str:
        """The sentence for people when groups fail."""

    def grouped_by(self) -> Sequence[str]:
        """The key's columns, as parts of the check's name."""
        return ("by", *self.group_by_columns) if self.group_by_columns else ()

    def join(self, scan: TableScan, at: int) -> None:
        """Asks to be measured in the one aggregate, or by its own grouping."""
        if self.group_by_columns:
            scan.query(at, _ByGroup(of=self))
        else:
            scan.fold(at, self)


@dataclass(frozen=True, kw_only=True)
class _ByGroup(QueryCheck):
    """The groups that fail a check."""

    test: ClassVar[str] = "by_group"
    of: GroupableCheck

    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        """A row per failing group: its key, its number of rows, and what was measured."""
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

    def counted(self, rows: DataFrame, tables: Tables) -> DataFrame:
        """Every group, so that the table's rows are counted in the same job."""
        measured = self._measured()
        return self._groups(rows).select(measured["rows"].alias("n"), self.of.group_fails(measured).alias("fails"))

    def fail_calc(self) -> str:
        """The groups that fail."""
        return "count_if(fails)"

    def figures(self) -> Mapping[str, str]:
        """The table's rows."""
        return {"rows": "coalesce(sum(n), 0)"}

    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        """Fails by the number of groups."""
        groups = measured["failures"]
        evidence = {"rows": measured["rows"]}
        return Verdict(failures=groups, message=self.of.group_said(groups) if groups else "", evidence=evidence)

    def _groups(self, rows: DataFrame) -> DataFrame:
        key = [F.col(name).alias(f"k{i}") for i, name in enumerate(self.of.group_by_columns)]
        measures = {name: measure.over(None) for name, measure in self.of.measures().items()}
        measures["rows"] = F.count(F.lit(1))
        return rows.groupBy(*key).agg(*(column.alias(f"m_{name}") for name, column in measures.items()))

    def _measured(self) -> dict[str, Column]:
        return {name: F.col(f"m_{name}") for name in (*self.of.measures(), "rows")}


__all__ = ["GroupableCheck"]
