"""Data checks on how many rows there are, how many have a value, and whether the values differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.checks.data.bounds import Bounded, OfColumn, require_order
from recon.checks.data.figures import MAX, MIN, as_evidence
from recon.checks.data.grouped import GroupableCheck
from recon.checks.data_check import Measure, RowCheck, count_if
from recon.model import Verdict
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


@dataclass(frozen=True, kw_only=True)
class RowCount(Bounded, RowCheck):
    """Whether the number of rows lies in a range.

    Fails by 1. NULLs do not matter.

    Args:
        min_value: the least number of rows.
        max_value: the greatest. At least one of both must be given.

    Zero rows:
        counted like any other number, so that `min_value: 1` fails on an empty table (or `where`).

    Example:
        data_tests:
          - row_count:
              arguments: {min_value: 1}
    """

    test: ClassVar[str] = "row_count"
    judges_empty: ClassVar[bool] = True
    named_after: ClassVar[Sequence[str]] = ("min_value", "max_value")
    min_value: int | None = None
    max_value: int | None = None

    @override
    def measures(self) -> Mapping[str, Measure]:
        return {}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        rows = measured["rows"]
        low, high = self.min_value, self.max_value
        out = (low is not None and self.less(rows, low)) or (high is not None and self.less(high, rows))
        return Verdict.counted(int(out), f"there are {rows} rows, not {self.range_text()}", rows=rows, value=rows)


@dataclass(frozen=True, kw_only=True)
class NotNullProportion(OfColumn, GroupableCheck):
    """Whether the share of rows whose column is not NULL lies in a range (dbt_utils' test of this name).

    Fails by 1, or by the number of groups that fail. A group key that is NULL is a group of its own.

    Args:
        at_least: the least accepted share, 0 to 1.
        at_most: the greatest accepted share.

    Example:
        columns:
          - name: customer_id
            data_tests:
              - not_null_proportion:
                  arguments: {at_least: 0.95, group_by_columns: [country]}
    """

    test: ClassVar[str] = "not_null_proportion"
    named_after: ClassVar[Sequence[str]] = ("column_name", "at_least")
    at_least: float
    at_most: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.at_least <= self.at_most <= 1:
            raise ConfigError(
                f"at_least is {self.at_least} and at_most {self.at_most}; "
                "both must lie between 0 and 1, at_least not above at_most"
            )

    @override
    def measures(self) -> Mapping[str, Measure]:
        return _with_value(self)

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        rows, with_value = measured["rows"], measured["known"]
        share = with_value / rows
        out = share < self.at_least or share > self.at_most
        message = f"{self.column_name} is not NULL in {with_value} of {rows} rows ({share:.4g}), {self._range()}"
        return Verdict.counted(int(out), message, rows=rows, known=with_value, value=share)

    @override
    def group_fails(self, measured: Mapping[str, Column]) -> Column:
        share = measured["known"] / measured["rows"]
        return (share < self.at_least) | (share > self.at_most)

    @override
    def group_shows(self, measured: Mapping[str, Column]) -> Mapping[str, Column]:
        return {"not_null_proportion": measured["known"] / measured["rows"]}

    @override
    def group_message(self, groups: int) -> str:
        return f"the share of rows whose {self.column_name} is not NULL is {self._range()} in {groups} groups"

    def _range(self) -> str:
        return f"not between {self.at_least:g} and {self.at_most:g}"


@dataclass(frozen=True, kw_only=True)
class NotConstant(OfColumn, GroupableCheck):
    """Whether a column holds more than one value (dbt_utils' test of this name).

    Fails by 1, or by the number of groups that fail. NULL is no value: a column that holds one value and NULL fails, as
    in dbt_utils. So does one that is NULL throughout, which dbt_utils passes. A single row fails.
    """

    test: ClassVar[str] = "not_constant"

    @override
    def require(self, type_: DataType) -> None:
        require_order(self, type_)

    @override
    def measures(self) -> Mapping[str, Measure]:
        column = F.col(self.column_name)
        extremes = {"least": MIN, "greatest": MAX}
        return {name: of.measures(column, self.column_type)["value"] for name, of in extremes.items()}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        low, high, rows = measured["least"], measured["greatest"], measured["rows"]
        same = low == high or (low != low and high != high)  # NaN differs from itself
        message = f"{self.column_name} is NULL in all {rows} rows"
        if low is not None:
            message = f"{self.column_name} holds one value in all {rows} rows: {as_evidence(low, self.column_type)}"
        return Verdict.counted(int(same), message, rows=rows)

    @override
    def group_fails(self, measured: Mapping[str, Column]) -> Column:
        return measured["least"].eqNullSafe(measured["greatest"])

    @override
    def group_shows(self, measured: Mapping[str, Column]) -> Mapping[str, Column]:
        return {self.column_name: measured["least"]}

    @override
    def group_message(self, groups: int) -> str:
        return f"{self.column_name} does not vary in {groups} groups"


@dataclass(frozen=True, kw_only=True)
class AtLeastOne(OfColumn, GroupableCheck):
    """Whether a column holds at least one value (dbt_utils' test of this name).

    Fails by 1 when the column is NULL in every row. With `group_by_columns` it fails by the number of groups in
    which the column is always NULL, as in dbt_utils since 1.3.0.

    Zero rows:
        fail by 1, as in dbt_utils, whatever `if_empty` says. With `group_by_columns`, a table (or `where`) with no rows
        is skipped.
    """

    test: ClassVar[str] = "at_least_one"
    judges_empty: ClassVar[bool] = True

    @override
    def measures(self) -> Mapping[str, Measure]:
        return _with_value(self)

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        with_value, rows = measured["known"], measured["rows"]
        message = f"{self.column_name} has no value in {rows} rows"
        return Verdict.counted(int(not with_value), message, rows=rows, known=with_value)

    @override
    def group_fails(self, measured: Mapping[str, Column]) -> Column:
        return measured["known"] == 0

    @override
    def group_shows(self, measured: Mapping[str, Column]) -> Mapping[str, Column]:
        return {}

    @override
    def group_message(self, groups: int) -> str:
        return f"{self.column_name} has no value in {groups} groups"


def _with_value(check: OfColumn) -> Mapping[str, Measure]:
    return {"known": count_if(F.col(check.column_name).isNotNull())}
