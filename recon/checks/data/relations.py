"""Data checks that hold a table against another one.

Columns of both that belong together may differ in type: they are compared in the type that loses nothing (see
`common_type`), so that 1 equals 1.0, and next to text as text, so that 1 equals '1' and not '01'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from recon.checks.base import Measure, QueryCheck, Tables, count_if
from recon.comparison.align import common_type
from recon.errors import ConfigError
from recon.model import Verdict
from recon.model.wire.columns import STAMPED_COLUMNS
from recon.spark.errors import spark_error
from recon.spark.lazy import F
from recon.text import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

Pair = tuple["Column", "Column"]

# Next to columns of the table, whose names may be anything.
_KEY = "__recon_key"
_FIELD = "__recon_field"


@dataclass(frozen=True, kw_only=True)
class AgainstColumn(QueryCheck):
    """A column held against one of another table."""

    column_name: str
    to: str
    field: str

    @override
    def label(self) -> str:
        return f"{self.column_name}__{self.field}__{self.to}"

    @override
    def columns(self) -> Sequence[str]:
        return (self.column_name,)


@dataclass(frozen=True, kw_only=True)
class Relationships(AgainstColumn):
    """Rows whose column holds a value that a column of another table does not have.

    Failures are rows, as in dbt; the message also tells the values. NULL is not judged, as in dbt: add `not_null` where
    it may not be; a column that is NULL in every row is skipped. A NULL in the other table equals nothing. When the
    other table has no rows, every row with a value fails. Columns of different types are compared in a common one, next
    to text as text. `where` is for the checked table alone, like `from_condition`; `to_condition` is for the other. A
    table (or `where`) with no rows is skipped. Costs one Spark job that groups the table by the column before it is
    joined (where the other table is small enough, Spark broadcasts it first), and shares the scan of the table's row
    checks to count what was judged.

    Args:
        column_name: the column; filled in for a test listed below a column. A field of a struct is `a.b`.
        to: the other table: `ref('name')` of a sink or of an entry of `tables`, a path, or a catalog table.
        field: the other table's column.
        from_condition: SQL that a row must meet to be judged.
        to_condition: SQL that a row of the other table must meet to count.

    Example:
        ```yaml
        columns:
          - name: customer_id
            data_tests:
              - relationships:
                  arguments: {to: ref('customers'), field: id}
        ```
    """

    test: ClassVar[str] = "relationships"
    from_condition: str | None = None
    to_condition: str | None = None

    @override
    def measures(self) -> Mapping[str, Measure]:
        judged = F.col(self.column_name).isNotNull()
        return {"judged": count_if(judged & F.expr(self.from_condition) if self.from_condition else judged)}

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
    def fail_calc(self) -> str:
        return "sum(n)"

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
        return Verdict(
            failures=failures or 0,
            message=f"{values} values of {self.column_name} are not in {self.field} of {self.to}, "
            f"in {failures} of {rows} rows"
            if failures
            else "",
            evidence={"rows": rows, "judged_rows": judged, "missing_values": values},
        )

    def _sides(self, rows: DataFrame, tables: Tables) -> tuple[DataFrame, DataFrame, Pair]:
        """The rows that have a value on either side, and the two columns in a common type."""
        there = tables.open(self.to)
        ours, theirs = _pair(rows, self.column_name, there, self.field, self.to)
        children = met(rows, self.from_condition, "from_condition", "the table")
        parents = met(there, self.to_condition, "to_condition", self.to)
        children = children.filter(F.col(self.column_name).isNotNull())
        return children, parents.filter(theirs.isNotNull()), (ours, theirs)


@dataclass(frozen=True, kw_only=True)
class RelationshipsWhere(Relationships):
    """The same as `relationships`, under the name that dbt_utils has for it with its two conditions.

    Failures are rows. NULL is not judged; zero rows are skipped.

    Args:
        column_name: the column; filled in for a test listed below a column. A field of a struct is `a.b`.
        to: the other table: `ref('name')` of a sink or of an entry of `tables`, a path, or a catalog table.
        field: the other table's column.
        from_condition: SQL that a row must meet to be judged.
        to_condition: SQL that a row of the other table must meet to count.

    Example:
        ```yaml
        columns:
          - name: customer_id
            data_tests:
              - dbt_utils.relationships_where:
                  arguments:
                    to: ref('customers')
                    field: id
                    from_condition: status <> 'test'
                    to_condition: active
        ```
    """

    test: ClassVar[str] = "relationships_where"


@dataclass(frozen=True, kw_only=True)
class CardinalityEquality(AgainstColumn):
    """Values that a column does not hold as often as a column of another table does (dbt_utils' test of this name).

    Failures are counted as dbt_utils does: two for a value that both sides have and in a different number of rows, one
    for a value that one side alone has; the message tells the values. NULL is a value like any other and equals NULL,
    so that NULLs on one side only fail. Columns of different types are compared in a common one, next to text as text.
    `where` is for the checked table alone. A table without rows against one that has some fails; when both have none,
    the check is skipped. Costs one Spark job that groups both tables together by the column.

    Args:
        column_name: the column; filled in for a test listed below a column. A field of a struct is `a.b`.
        to: the other table: `ref('name')` of a sink or of an entry of `tables`, a path, or a catalog table.
        field: the other table's column.

    Example:
        ```yaml
        columns:
          - name: order_id
            data_tests:
              - dbt_utils.cardinality_equality:
                  arguments: {to: ref('order_lines'), field: order_id}
        ```
    """

    test: ClassVar[str] = "cardinality_equality"

    @override
    def counted(self, rows: DataFrame, tables: Tables) -> DataFrame:
        there = tables.open(self.to)
        return _side_by_side(rows, there, [_pair(rows, self.column_name, there, self.field, self.to)])

    @override
    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        return _apart(self.counted(rows, tables), [self.column_name])

    @override
    def fail_calc(self) -> str:
        return "count_if(here <> there AND here > 0) + count_if(here <> there AND there > 0)"

    @override
    def figures(self) -> Mapping[str, str]:
        return {**_ROWS, "values": "count_if(here <> there)"}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        values = measured["values"]
        return Verdict(
            failures=measured["failures"],
            message=f"{values} values of {self.column_name} do not occur as often in {self.field} of {self.to}; "
            f"{_both(measured, self.to)}"
            if measured["failures"]
            else "",
            evidence={**_evidence(measured), "different_values": values},
        )


@dataclass(frozen=True, kw_only=True)
class EqualRowcount(QueryCheck):
    """Rows by which the number of rows differs from another table's (dbt_utils' test of this name).

    Failures are the absolute difference, with `group_by_columns` its sum over the groups. A group that one side lacks
    counts as 0 rows there, and NULL in a group's column equals NULL. Columns of different types are compared in a
    common one, next to text as text. `where` is for the checked table alone. A table without rows against one that has
    some fails; when both have none, the check is skipped. Costs one Spark job that counts both tables together.

    Args:
        compare_model: the other table: `ref('name')` of a sink or of an entry of `tables`, a path, or a catalog table.
        group_by_columns: columns of both tables; by default the tables are counted whole.

    Example:
        ```yaml
        data_tests:
          - dbt_utils.equal_rowcount:
              arguments:
                compare_model: ref('orders_raw')
                group_by_columns: [order_date]
        ```
    """

    test: ClassVar[str] = "equal_rowcount"
    compare_model: str
    group_by_columns: tuple[str, ...] = ()

    @override
    def label(self) -> str:
        return "__".join([*self.group_by_columns, self.compare_model])

    @override
    def columns(self) -> Sequence[str]:
        return self.group_by_columns

    @override
    def counted(self, rows: DataFrame, tables: Tables) -> DataFrame:
        there = tables.open(self.compare_model)
        pairs = [_pair(rows, name, there, name, self.compare_model) for name in self.group_by_columns]
        return _side_by_side(rows, there, pairs)

    @override
    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        return _apart(self.counted(rows, tables), self.group_by_columns)

    @override
    def fail_calc(self) -> str:
        return "sum(abs(here - there))"

    @override
    def figures(self) -> Mapping[str, str]:
        return {**_ROWS, "groups": "count_if(here <> there)"}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        said = _both(measured, self.compare_model)
        if self.group_by_columns:
            by = ", ".join(self.group_by_columns)
            said = f"{measured['groups']} groups by ({by}) differ in their number of rows; {said}"
        return Verdict(
            failures=measured["failures"],
            message=said if measured["failures"] else "",
            evidence=_evidence(measured, *(["groups"] if self.group_by_columns else [])),
        )


@dataclass(frozen=True, kw_only=True)
class FewerRowsThan(EqualRowcount):
    """Rows that the table has too many, so that it has not fewer than another one (dbt_utils' test of this name).

    Failures are the rows beyond the other table's number, and 1 where both have as many; with `group_by_columns` their
    sum over the groups. A group that the other table lacks has 0 rows there, so that its rows fail; NULL in a group's
    column equals NULL. Columns of different types are compared in a common one, next to text as text. `where` is for
    the checked table alone. A table (or `where`) with no rows is skipped. Costs one Spark job that counts both tables
    together.

    Args:
        compare_model: the other table: `ref('name')` of a sink or of an entry of `tables`, a path, or a catalog table.
        group_by_columns: columns of both tables; by default the tables are counted whole.

    Example:
        ```yaml
        data_tests:
          - dbt_utils.fewer_rows_than:
              arguments: {compare_model: ref('order_lines')}
        ```
    """

    test: ClassVar[str] = "fewer_rows_than"

    @override
    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        return _apart(self.counted(rows, tables), self.group_by_columns, "here >= there", "there - here")

    @override
    def fail_calc(self) -> str:
        return "sum(CASE WHEN here > there THEN here - there WHEN here = there THEN 1 ELSE 0 END)"

    @override
    def figures(self) -> Mapping[str, str]:
        return {**_ROWS, "rows": "sum(here)", "groups": "count_if(here >= there)"}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        said = _both(measured, self.compare_model)
        if self.group_by_columns:
            said = f"{measured['groups']} groups by ({', '.join(self.group_by_columns)}) have not fewer rows; {said}"
        return Verdict(
            failures=measured["failures"],
            message=said if measured["failures"] else "",
            evidence=_evidence(measured, *(["groups"] if self.group_by_columns else [])),
        )


@dataclass(frozen=True, kw_only=True)
class Equality(QueryCheck):
    """Rows that are not in another table as often as here, or the other way (dbt_utils' test of this name).

    Rows are compared whole, without a key, and as often as they occur: a row that is here twice and there once is a
    difference (dbt_utils compares sets and does not see it). Failures are counted as dbt_utils does: the rows of both
    sides that have no equal, plus the difference of the two numbers; the message tells the rows. NULL equals NULL and
    nothing else, NaN equals NaN, -0.0 equals 0.0. Columns of different types are compared in a common one, next to text
    as text. `where` is for the checked table alone. A table without rows against one that has some fails; when both
    have none, the check is skipped. Costs one Spark job that groups both tables together by all compared columns; where
    rows have a key, `compare` is cheaper and tells which column changed.

    Args:
        compare_model: the other table: `ref('name')` of a sink or of an entry of `tables`, a path, or a catalog table.
        compare_columns: the columns to compare; by default all, which both tables then must have.
        exclude_columns: columns to leave out, whichever table has them; not together with `compare_columns`.
        precision: digits after the point to which numbers with a fraction are rounded before.

    Example:
        ```yaml
        data_tests:
          - dbt_utils.equality:
              arguments:
                compare_model: ref('orders_before')
                exclude_columns: [_batch_id]
                precision: 2
        ```
    """

    test: ClassVar[str] = "equality"
    compare_model: str
    compare_columns: tuple[str, ...] = ()
    exclude_columns: tuple[str, ...] = ()
    precision: int | None = None

    def __post_init__(self) -> None:
        if self.compare_columns and self.exclude_columns:
            raise ConfigError("both compare_columns and exclude_columns are given; keep one of them")

    @override
    def label(self) -> str:
        return "__".join([*self.compare_columns, self.compare_model])

    @override
    def columns(self) -> Sequence[str]:
        return self.compare_columns

    @override
    def counted(self, rows: DataFrame, tables: Tables) -> DataFrame:
        there = tables.open(self.compare_model)
        pairs = [_pair(rows, n, there, n, self.compare_model, self.precision) for n in self._names(rows, there)]
        return _side_by_side(rows, there, pairs)

    @override
    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        names = self._names(rows, tables.open(self.compare_model))
        return _apart(self.counted(rows, tables), [name.strip("`") for name in names])

    @override
    def fail_calc(self) -> str:
        return f"{_ONLY_HERE} + {_ONLY_THERE} + abs({_ONLY_HERE} - {_ONLY_THERE})"

    @override
    def figures(self) -> Mapping[str, str]:
        return {**_ROWS, "only_here": _ONLY_HERE, "only_there": _ONLY_THERE}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        return Verdict(
            failures=measured["failures"],
            message=f"{measured['only_here']} rows have no equal in {self.compare_model}, and "
            f"{measured['only_there']} of its rows have none here; {_both(measured, self.compare_model)}"
            if measured["failures"]
            else "",
            evidence=_evidence(measured, "only_here", "only_there"),
        )

    def _names(self, rows: DataFrame, there: DataFrame) -> Sequence[str]:
        """The columns to compare, by the checked table's names."""
        if self.compare_columns:
            return self.compare_columns
        out = {name.casefold() for name in self.exclude_columns}
        ours = [name for name in rows.columns if name.casefold() not in out]
        theirs = [name for name in there.columns if name.casefold() not in out]
        for name in self.exclude_columns:
            if name.casefold() not in {n.casefold() for n in (*rows.columns, *there.columns)}:
                near = did_you_mean(name, {*rows.columns, *there.columns})
                raise ConfigError(
                    f"neither the table nor {self.compare_model} has the column {name!r} to exclude{near}"
                )
        for one, has, lacks, which in (
            (ours, "the table", self.compare_model, theirs),
            (theirs, self.compare_model, "the table", ours),
        ):
            alone = [name for name in one if name.casefold() not in {n.casefold() for n in which}]
            if alone:
                raise ConfigError(
                    f"{has} has the column {alone[0]!r}, which {lacks} does not have; "
                    "leave it out with exclude_columns, or name the compare_columns"
                )
        if not ours:
            raise ConfigError("exclude_columns leaves no column to compare")
        return [f"`{name.replace('`', '``')}`" for name in ours]


_ROWS = {"rows": "sum(here) + sum(there)", "rows_here": "sum(here)", "rows_there": "sum(there)"}
_ONLY_HERE = "coalesce(sum(greatest(here - there, 0)), 0)"
_ONLY_THERE = "coalesce(sum(greatest(there - here, 0)), 0)"


def _both(measured: Mapping[str, Any], reference: str) -> str:
    return f"{measured['rows_here']} rows here, {measured['rows_there']} in {reference}"


def _evidence(measured: Mapping[str, Any], *names: str) -> dict[str, Any]:
    figures = {name: measured[name] for name in names}
    return {"rows": measured["rows_here"], "rows_there": measured["rows_there"], **figures}


def _side_by_side(here: DataFrame, there: DataFrame, pairs: Sequence[Pair]) -> DataFrame:
    """Each combination of the columns (k0, k1, …) with its number of rows `here` and `there`.

    A union that is grouped, rather than a join: NULL equals NULL, a side that lacks a combination has 0, and both
    tables are aggregated before anything is shuffled.
    """
    names = [f"k{i}" for i in range(len(pairs))]
    ours = [ours.alias(name) for name, (ours, _) in zip(names, pairs, strict=True)]
    theirs = [theirs.alias(name) for name, (_, theirs) in zip(names, pairs, strict=True)]
    both = here.select(*ours, F.lit(1).alias("here"), F.lit(0).alias("there")).unionAll(
        there.select(*theirs, F.lit(0).alias("here"), F.lit(1).alias("there"))
    )
    counts = [F.coalesce(F.sum(side), F.lit(0)).alias(side) for side in ("here", "there")]
    return both.groupBy(*names).agg(*counts)


def _apart(
    counted: DataFrame,
    names: Sequence[str],
    fails: str = "here <> there",
    order: str = "-abs(here - there)",
) -> DataFrame:
    """The combinations that fail, worst first, under the columns' own names."""
    keys = [f"k{i}" for i in range(len(names))]
    shown = [F.col(key).alias(name) for key, name in zip(keys, names, strict=True)]
    failing = counted.filter(fails).orderBy(F.expr(order), *keys)
    return failing.select(*shown, F.col("here").alias("rows_here"), F.col("there").alias("rows_there"))


def met(table: DataFrame, condition: str | None, argument: str, name: str) -> DataFrame:
    """The rows of a table that meet the condition an argument gives, if it gives one.

    Raises:
        ConfigError: it is no condition on this table.
    """
    if condition is None:
        return table
    try:
        met = table.filter(F.expr(condition))
        _ = met.schema
    except Exception as error:  # what Spark's parser and analyser raise
        raise ConfigError(f"{argument} {condition!r} is no condition on {name}: {spark_error(error)}") from error
    return met


def _pair(
    here: DataFrame, name: str, there: DataFrame, other: str, reference: str, precision: int | None = None
) -> Pair:
    """A column of each side in a type that both can be compared in."""
    from pyspark.sql.types import DecimalType, DoubleType, FloatType

    ours, theirs = _type(here, name, "the table"), _type(there, other, reference)
    common = common_type(ours, theirs) if _has_equality(ours) and _has_equality(theirs) else None
    if common is None:
        raise ConfigError(
            f"{name} is {ours.simpleString()} and {other} of {reference} is {theirs.simpleString()}, "
            "which cannot be compared; leave it out, or compare a column that holds it as text"
        )
    columns = (F.col(name).cast(common), F.col(other).cast(common))
    if precision is not None and isinstance(common, (DecimalType, DoubleType, FloatType)):
        return F.round(columns[0], precision), F.round(columns[1], precision)
    return columns


def _type(table: DataFrame, name: str, reference: str) -> DataType:
    from pyspark.errors import AnalysisException, ParseException

    try:
        return table.select(F.col(name)).schema[0].dataType
    except (AnalysisException, ParseException) as error:
        raise ConfigError(f"{reference} has no column {name!r}{did_you_mean(name, table.columns)}") from error


def _has_equality(type_: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    if isinstance(type_, StructType):
        return all(_has_equality(field.dataType) for field in type_.fields)
    if isinstance(type_, ArrayType):
        return _has_equality(type_.elementType)
    return not isinstance(type_, (MapType, VariantType))
