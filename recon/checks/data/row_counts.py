"""Data checks that compare how often rows, or values of a column, occur in a table and in another one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.checks.data.pairs import AgainstColumn, Pair, pair
from recon.checks.data_check import QueryCheck, Tables
from recon.model import Verdict
from recon.spark.columns import expression, filtered, path_of, quoted, unknown
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ONLY_HERE = "coalesce(sum(greatest(here - there, 0)), 0)"
_ONLY_THERE = "coalesce(sum(greatest(there - here, 0)), 0)"


@dataclass(frozen=True, kw_only=True)
class CountsSideBySide(QueryCheck):
    """Counts how often each combination of columns occurs here and in another table; a subclass says which columns.

    `fails` is SQL over the two numbers, `here` and `there`; `order` shows the worst first. `judged` is the number of
    rows that must not be 0 for the check to be judged.

    Zero rows:
        a table without rows against one that has some fails; when both have none, the check is skipped.
    """

    fails: ClassVar[str] = "here <> there"
    order: ClassVar[str] = "-abs(here - there)"
    judged: ClassVar[str] = "sum(here) + sum(there)"

    @abstractmethod
    def other(self) -> str:
        """The other table, as the argument names it."""

    @abstractmethod
    def pairs(self, rows: DataFrame, there: DataFrame) -> Mapping[str, Pair]:
        """The columns of both tables, by the names that samples show."""

    @abstractmethod
    def differences(self) -> Mapping[str, str]:
        """SQL over the numbers of all combinations, by the name that the evidence shows."""

    @abstractmethod
    def difference_text(self, measured: Mapping[str, Any]) -> str:
        """What differs, as the beginning of the message."""

    def there(self, tables: Tables) -> DataFrame:
        """The rows of the other table that count."""
        return tables.open(self.other())

    @override
    def counted(self, rows: DataFrame, tables: Tables) -> DataFrame:
        there = self.there(tables)
        return _side_by_side(rows, there, list(self.pairs(rows, there).values()))

    @override
    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        names = list(self.pairs(rows, self.there(tables)))
        keys = [F.col(f"k{i}") for i in range(len(names))]
        failing = self.counted(rows, tables).filter(self.fails).orderBy(expression(self.order, "order"), *keys)
        shown = [key.alias(name) for key, name in zip(keys, names, strict=True)]
        return failing.select(*shown, F.col("here").alias("rows_here"), F.col("there").alias("rows_there"))

    @override
    def figures(self) -> Mapping[str, str]:
        return {"rows": self.judged, "rows_here": "sum(here)", "rows_there": "sum(there)", **self.differences()}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        here, there = measured["rows_here"], measured["rows_there"]
        counts = f"{here} rows here, {there} in {self.other()}"
        message = "; ".join(filter(None, (self.difference_text(measured), counts)))
        figures = {name: measured[name] for name in self.differences()}
        return Verdict.counted(measured["failures"], message, rows=here, rows_there=there, **figures)


@dataclass(frozen=True, kw_only=True)
class CardinalityEquality(AgainstColumn, CountsSideBySide):
    """Values that a column does not hold as often as a column of another table does (dbt_utils' test of this name).

    Failures are counted as dbt_utils does: two for a value that both sides have in a different number of rows, one for
    a value that one side alone has. The message counts the values. NULL is a value like any other and equals NULL, so
    that NULLs on one side only fail. Columns of different types are compared in a common one, next to text as text.
    `where` is for the checked table alone.

    Cost:
        one Spark job that groups both tables together by the column.

    Example:
        columns:
          - name: order_id
            data_tests:
              - dbt_utils.cardinality_equality:
                  arguments: {to: ref('order_lines'), field: order_id}
    """

    test: ClassVar[str] = "cardinality_equality"
    fail_calc: ClassVar[str] = "count_if(here <> there AND here > 0) + count_if(here <> there AND there > 0)"

    @override
    def other(self) -> str:
        return self.to

    @override
    def pairs(self, rows: DataFrame, there: DataFrame) -> Mapping[str, Pair]:
        return {self.column_name: pair(rows, self.column_name, there, self.field, self.to)}

    @override
    def differences(self) -> Mapping[str, str]:
        return {"different_values": "count_if(here <> there)"}

    @override
    def difference_text(self, measured: Mapping[str, Any]) -> str:
        values = measured["different_values"]
        return f"{values} values of {self.column_name} do not occur as often in {self.field} of {self.to}"


@dataclass(frozen=True, kw_only=True)
class EqualRowcount(CountsSideBySide):
    """Rows by which the number of rows differs from another table's (dbt_utils' test of this name).

    Failures are the absolute difference, with `group_by_columns` its sum over the groups. A group that one side lacks
    counts as 0 rows there, and NULL in a group's column equals NULL. Columns of different types are compared in a
    common one, next to text as text. `where` is for the checked table alone.

    Args:
        compare_model: the other table: `ref('name')` of a sink or of an entry of `tables`, a path, or a catalog table.
        group_by_columns: columns of both tables, or SQL expressions; by default the tables are counted whole.
        to_condition: SQL that a row of the other table must meet to count.

    Cost:
        one Spark job that counts both tables together.

    Example:
        data_tests:
          - dbt_utils.equal_rowcount:
              arguments:
                compare_model: ref('orders_raw')
                group_by_columns: [order_date]
    """

    test: ClassVar[str] = "equal_rowcount"
    fail_calc: ClassVar[str] = "sum(abs(here - there))"
    named_after: ClassVar[Sequence[str]] = ("group_by_columns", "compare_model")
    reads: ClassVar[Sequence[str]] = ("group_by_columns",)
    failing_groups: ClassVar[str] = "differ in their number of rows"
    compare_model: str
    group_by_columns: tuple[str, ...] = ()
    to_condition: str | None = None

    @override
    def identifying(self) -> Sequence[str]:
        return self.group_by_columns

    @override
    def other(self) -> str:
        return self.compare_model

    @override
    def there(self, tables: Tables) -> DataFrame:
        return filtered(super().there(tables), self.to_condition, "to_condition", self.compare_model)

    @override
    def pairs(self, rows: DataFrame, there: DataFrame) -> Mapping[str, Pair]:
        return {name: pair(rows, name, there, name, self.compare_model) for name in self.group_by_columns}

    @override
    def differences(self) -> Mapping[str, str]:
        return {"groups": f"count_if({self.fails})"} if self.group_by_columns else {}

    @override
    def difference_text(self, measured: Mapping[str, Any]) -> str:
        by = ", ".join(self.group_by_columns)
        return f"{measured['groups']} groups by ({by}) {self.failing_groups}" if by else ""


@dataclass(frozen=True, kw_only=True)
class FewerRowsThan(EqualRowcount):
    """Rows that the table has too many, so that it has not fewer than another one (dbt_utils' test of this name).

    Failures are the rows beyond the other table's number, and 1 where both have as many; with `group_by_columns` their
    sum over the groups. A group that the other table lacks has 0 rows there, so that its rows fail; NULL in a group's
    column equals NULL. Columns of different types are compared in a common one, next to text as text. `where` is for
    the checked table alone.

    Zero rows:
        a table (or `where`) with no rows is skipped.

    Example:
        data_tests:
          - dbt_utils.fewer_rows_than:
              arguments: {compare_model: ref('order_lines')}
    """

    test: ClassVar[str] = "fewer_rows_than"
    fail_calc: ClassVar[str] = "sum(CASE WHEN here > there THEN here - there WHEN here = there THEN 1 ELSE 0 END)"
    failing_groups: ClassVar[str] = "have not fewer rows"
    fails: ClassVar[str] = "here >= there"
    order: ClassVar[str] = "there - here"
    judged: ClassVar[str] = "sum(here)"


@dataclass(frozen=True, kw_only=True)
class Equality(CountsSideBySide):
    """Rows that are not in another table as often as here, or the other way (dbt_utils' test of this name).

    Rows are compared whole, without a key, and as often as they occur. A row that is here twice and there once is a
    difference; dbt_utils compares sets and does not see it. Failures are counted as dbt_utils does: the rows of both
    sides that have no equal, plus the difference of the two numbers. The message counts the rows. NULL equals NULL and
    nothing else, NaN equals NaN, -0.0 equals 0.0. Columns of different types are compared in a common one, next to text
    as text. `where` is for the checked table alone.

    Args:
        compare_model: the other table: `ref('name')` of a sink or of an entry of `tables`, a path, or a catalog table.
        compare_columns: the columns to compare; by default all, which both tables then must have.
        exclude_columns: columns to leave out, whichever table has them; not together with `compare_columns`.
        precision: digits after the point to which numbers with a fraction are rounded before.

    Cost:
        one Spark job that groups both tables together by all compared columns. Where rows have a key, `compare` is
        cheaper and shows which column changed.

    Example:
        data_tests:
          - dbt_utils.equality:
              arguments:
                compare_model: ref('orders_before')
                exclude_columns: [_batch_id]
                precision: 2
    """

    test: ClassVar[str] = "equality"
    fail_calc: ClassVar[str] = f"{_ONLY_HERE} + {_ONLY_THERE} + abs({_ONLY_HERE} - {_ONLY_THERE})"
    named_after: ClassVar[Sequence[str]] = ("compare_columns", "compare_model")
    reads: ClassVar[Sequence[str]] = ("compare_columns",)
    compare_model: str
    compare_columns: tuple[str, ...] = ()
    exclude_columns: tuple[str, ...] = ()
    precision: int | None = None

    def __post_init__(self) -> None:
        if self.compare_columns and self.exclude_columns:
            raise ConfigError("both compare_columns and exclude_columns are given; keep one of them")

    @override
    def other(self) -> str:
        return self.compare_model

    @override
    def pairs(self, rows: DataFrame, there: DataFrame) -> Mapping[str, Pair]:
        names = self._names(rows, there)
        return {n.strip("`"): pair(rows, n, there, n, self.compare_model, self.precision) for n in names}

    @override
    def differences(self) -> Mapping[str, str]:
        return {"only_here": _ONLY_HERE, "only_there": _ONLY_THERE}

    @override
    def difference_text(self, measured: Mapping[str, Any]) -> str:
        return (
            f"{measured['only_here']} rows have no equal in {self.compare_model}, and {measured['only_there']} of its "
            "rows have none here"
        )

    def _names(self, rows: DataFrame, there: DataFrame) -> Sequence[str]:
        """The columns to compare, by the checked table's names."""
        if self.compare_columns:
            return self.compare_columns
        known = [*rows.columns, *there.columns]
        out = {name: ".".join(path_of(name)).casefold() for name in self.exclude_columns}
        for name, column in out.items():
            if len(path_of(name)) != 1 or column not in {n.casefold() for n in known}:
                how = unknown(name, dict.fromkeys(known))
                raise ConfigError(f"neither the table nor {self.compare_model} has the column {name!r} to exclude{how}")
        ours = [name for name in rows.columns if name.casefold() not in out.values()]
        theirs = [name for name in there.columns if name.casefold() not in out.values()]
        for names, has, lacks, which in (
            (ours, "the table", self.compare_model, theirs),
            (theirs, self.compare_model, "the table", ours),
        ):
            alone = [name for name in names if name.casefold() not in {n.casefold() for n in which}]
            if alone:
                raise ConfigError(
                    f"{has} has the column {alone[0]!r}, which {lacks} does not have; "
                    "leave it out with exclude_columns, or name the compare_columns"
                )
        if not ours:
            raise ConfigError("exclude_columns leaves no column to compare")
        return [quoted(name) for name in ours]


def _side_by_side(here: DataFrame, there: DataFrame, pairs: Sequence[Pair]) -> DataFrame:
    """Each combination of the columns (k0, k1, …) with its number of rows `here` and `there`.

    A union that is grouped, rather than a join: so NULL equals NULL, a side that lacks a combination has 0, and Spark
    aggregates before it shuffles.
    """
    names = [f"k{i}" for i in range(len(pairs))]
    ours = [ours.alias(name) for name, (ours, _) in zip(names, pairs, strict=True)]
    theirs = [theirs.alias(name) for name, (_, theirs) in zip(names, pairs, strict=True)]
    both = here.select(*ours, F.lit(1).alias("here"), F.lit(0).alias("there")).unionAll(
        there.select(*theirs, F.lit(0).alias("here"), F.lit(1).alias("there"))
    )
    counts = [F.coalesce(F.sum(side), F.lit(0)).alias(side) for side in ("here", "there")]
    return both.groupBy(*names).agg(*counts)
