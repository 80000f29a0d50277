"""Data checks on rows in the order of a column: a sequence without holes, ranges that do not overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.base.text import did_you_mean
from recon.checks.comparison.align import common_type
from recon.checks.data.bounds import OfColumn, is_instant
from recon.checks.data_check import QueryCheck, Tables
from recon.model import Verdict
from recon.spark.columns import expression, key_column, quoted, refuse_alias
from recon.spark.errors import spark_error
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

Datepart = Literal["microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"]

# The order is divided into stretches of about this many intervals, so that many tasks can sort.
_STRETCH = 100_000


@dataclass(frozen=True, kw_only=True)
class SequentialValues(OfColumn, QueryCheck):
    """Rows whose value is not the previous value plus an interval (dbt_utils' test of this name).

    Rows are compared in the order of the column; failures are rows. The first value of a group has no previous one and
    passes. A value that occurs twice fails once, and so does the first value after a gap. NULL is not judged, as in
    dbt_utils; a column that is NULL in every row is skipped.

    Args:
        column_name: the column, a number, date or timestamp; filled in for a test listed below a column.
        interval: the difference between two values; for dates and timestamps a whole number of `datepart`.
        datepart: `second`, `minute`, `hour`, `day`, `week`, `month`, `quarter`, `year`, `millisecond` or `microsecond`;
            required for timestamps, by default `day` for dates. Days and longer units are those of the session's time
            zone.
        group_by_columns: columns, or SQL expressions such as `upper(region)`; each combination of their values has a
            sequence of its own, and NULL is a group like any other.

    Cost:
        one Spark job that sorts the table by the column, in many tasks.

    Example:
        columns:
          - name: line
            data_tests:
              - dbt_utils.sequential_values:
                  arguments: {group_by_columns: [order_id]}
    """

    test: ClassVar[str] = "sequential_values"
    fail_calc: ClassVar[str] = "sum(broken + int(edge))"
    named_after: ClassVar[Sequence[str]] = ("column_name", "group_by_columns")
    reads: ClassVar[Sequence[str]] = ("column_name", "group_by_columns")
    interval: int | float = 1
    datepart: Datepart | None = None
    group_by_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.datepart is not None and self.interval != int(self.interval):
            raise ConfigError(
                f"interval {self.interval} of {self.datepart}s is not a whole number; use a finer datepart"
            )

    @override
    def require(self, type_: DataType) -> None:
        from pyspark.sql import types as T

        if is_instant(type_):
            if self._unit(type_) is None:
                raise ConfigError(
                    f"{self.column_name} is a timestamp; say in which datepart the interval is, such as day"
                )
        elif not isinstance(type_, T.NumericType) or self.datepart is not None:
            wanted = "a sequence is of numbers"
            if self.datepart is not None:
                wanted = f"datepart {self.datepart} needs a date or timestamp"
            raise ConfigError(
                f"{self.column_name} is {type_.simpleString()}, and {wanted}; "
                "cast it in the table, or leave the check out"
            )

    @override
    def counted(self, rows: DataFrame, tables: Tables) -> DataFrame:
        return self._stretches(*self._in_stretches(rows))

    @override
    def identifying(self) -> Sequence[str]:
        return self.group_by_columns

    @override
    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        values, successor = self._in_stretches(rows)
        groups = [F.col(g).alias(name) for g, name in zip(self._groups(), self.group_by_columns, strict=True)]
        shown = [*groups, F.col("v").alias(self.column_name), F.col("previous")]
        inside = values.filter(_breaks(successor)).select(*shown)
        edges = self._stretches(values, successor).filter("edge").withColumnRenamed("first", "v").select(*shown)
        return inside.unionAll(edges)

    @override
    def figures(self) -> Mapping[str, str]:
        return {"rows": "sum(n)", "judged": "sum(known)"}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        failures, rows, judged = measured["failures"], measured["rows"], measured["judged"]
        if not judged:
            return Verdict(skipped=f"{self.column_name} is NULL in all {rows} rows, so that no value was compared")
        step = f"{self.interval} {self.datepart or ''}".strip()
        message = f"{self.column_name} is not the previous value plus {step} in {failures} of {rows} rows"
        return Verdict.counted(failures, message, rows=rows, judged_rows=judged)

    def _groups(self) -> list[str]:
        return [f"g{i}" for i in range(len(self.group_by_columns))]

    def _unit(self, type_: DataType) -> str | None:
        """The unit of `interval` for dates and timestamps; None where the check must be given one."""
        return self.datepart or ("day" if type_.typeName() == "date" else None)

    def _in_stretches(self, rows: DataFrame) -> tuple[DataFrame, Column]:
        """Each row's value `v`, its `stretch`, and the `previous` value there; and what has to follow `previous`."""
        from pyspark.sql import Window

        value, successor, stretch = self._sequence()
        groups = [key_column(name).alias(g) for g, name in zip(self._groups(), self.group_by_columns, strict=True)]
        values = rows.select(*groups, value.alias("v")).withColumn("stretch", stretch)
        inside = Window.partitionBy(*self._groups(), "stretch").orderBy("v")
        return values.withColumn("previous", F.lag("v").over(inside)), successor

    def _stretches(self, values: DataFrame, successor: Column) -> DataFrame:
        """Each stretch with its numbers of rows, and whether its first value is not the successor of the previous."""
        from pyspark.sql import Window

        stretches = values.groupBy(*self._groups(), "stretch").agg(
            F.min("v").alias("first"),
            F.max("v").alias("last"),
            F.count_if(_breaks(successor)).alias("broken"),
            F.count(F.lit(1)).alias("n"),
            F.count("v").alias("known"),
        )
        across = Window.partitionBy(*self._groups()).orderBy("stretch")
        before = stretches.withColumn("previous", F.lag("last").over(across)).withColumn("v", F.col("first"))
        return before.withColumn("edge", _breaks(successor)).drop("v")

    def _sequence(self) -> tuple[Column, Column, Column]:
        """The value, what has to follow `previous`, and the value's stretch: a greater value has no lower one."""
        from pyspark.sql import types as T

        column, v = F.col(self.column_name), F.col("v")
        unit = self._unit(self.column_type) if is_instant(self.column_type) else None
        if unit is not None:
            value = column.cast(T.TimestampNTZType()) if isinstance(self.column_type, T.DateType) else column
            successor = F.expr(f"timestampadd({unit.upper()}, {int(self.interval)}, previous)")
            fine = unit in ("microsecond", "millisecond", "second", "minute")
            return value, successor, F.to_date(v) if fine else F.year(v)
        by = F.lit(self.interval if isinstance(self.interval, int) else Decimal(str(self.interval)))
        stretch = F.floor(v.cast("double") / F.lit(float(abs(self.interval) or 1) * _STRETCH))
        stretch = F.when(F.isnan(v.cast("double")), 2**63 - 1).otherwise(stretch)
        return column, F.try_add(F.col("previous"), by), stretch


@dataclass(frozen=True, kw_only=True)
class MutuallyExclusiveRanges(QueryCheck):
    """Rows whose range is empty, or overlaps the next one (dbt_utils' test of this name).

    A range includes its lower bound and excludes its upper bound. Rows are compared in the order of their lower bound.
    Failures are rows whose lower bound is not below the upper one, and rows whose upper bound is not where `gaps`
    allows it before the next lower bound. The last row has no next one. NULL as a bound fails, as in dbt_utils: for a
    range without an end write a bound such as `coalesce(valid_to, date '9999-12-31')`.

    Args:
        lower_bound_column: the column, or an SQL expression, with the lower bound.
        upper_bound_column: the column, or an SQL expression, with the upper bound.
        partition_by: columns, as a list or as SQL; only ranges with equal values in them are compared, and NULL equals
            NULL.
        gaps: `allowed`, `not_allowed` (each range begins where the previous one ends) or `required` (none does).
        zero_length_range_allowed: whether the upper bound may equal the lower.

    Cost:
        one Spark job that sorts the table within `partition_by`; without it, one task sorts all rows.

    Example:
        data_tests:
          - dbt_utils.mutually_exclusive_ranges:
              arguments:
                lower_bound_column: valid_from
                upper_bound_column: coalesce(valid_to, date '9999-12-31')
                partition_by: customer_id
                gaps: not_allowed
    """

    test: ClassVar[str] = "mutually_exclusive_ranges"
    fail_calc: ClassVar[str] = "count_if(disordered OR misplaced)"
    named_after: ClassVar[Sequence[str]] = ("lower_bound_column", "upper_bound_column", "partition_by")
    lower_bound_column: str
    upper_bound_column: str
    partition_by: str | tuple[str, ...] | None = None
    gaps: Literal["allowed", "not_allowed", "required"] = "allowed"
    zero_length_range_allowed: bool = False

    @override
    def counted(self, rows: DataFrame, tables: Tables) -> DataFrame:
        from pyspark.sql import Window

        lower, upper = (_expression(rows, name) for name in (self.lower_bound_column, self.upper_bound_column))
        bounds = rows.select(lower.alias("lower"), upper.alias("upper")).schema
        common = common_type(bounds[0].dataType, bounds[1].dataType)
        if common is None:
            raise ConfigError(
                f"{self.lower_bound_column} is {bounds[0].dataType.simpleString()} and {self.upper_bound_column} is "
                f"{bounds[1].dataType.simpleString()}, which cannot be compared; cast one of them"
            )
        parts = self._partition(rows)
        ranges = rows.select(*parts, lower.cast(common).alias("lower_bound"), upper.cast(common).alias("upper_bound"))
        window = Window.partitionBy(*(["p"] if parts else [])).orderBy("lower_bound", "upper_bound")
        ordered = ranges.select(
            "*",
            F.lead("lower_bound").over(window).alias("next_lower_bound"),
            F.lead(F.lit(True), 1, False).over(window).alias("has_next"),
        )
        upper_bound, next_lower = F.col("upper_bound"), F.col("next_lower_bound")
        sign = "<=" if self.zero_length_range_allowed else "<"
        in_place = {
            "allowed": upper_bound <= next_lower,
            "not_allowed": upper_bound == next_lower,
            "required": upper_bound < next_lower,
        }[self.gaps]
        return ordered.select(
            "*",
            F.coalesce(F.expr(f"NOT lower_bound {sign} upper_bound"), F.lit(True)).alias("disordered"),
            (F.col("has_next") & ~F.coalesce(in_place, F.lit(False))).alias("misplaced"),
        )

    @override
    def identifying(self) -> Sequence[str]:
        return self.values_of(["partition_by"])

    @override
    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        failing = self.counted(rows, tables).filter("disordered OR misplaced")
        shown = ["lower_bound", "upper_bound", "next_lower_bound"]
        return failing.select(*(["p.*"] if self.partition_by else []), *shown)

    @override
    def figures(self) -> Mapping[str, str]:
        return {"rows": "count(*)", "disordered": "count_if(disordered)", "misplaced": "count_if(misplaced)"}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        failures, rows = measured["failures"], measured["rows"]
        disordered, misplaced = measured["disordered"], measured["misplaced"]
        wrong_order = "before" if self.zero_length_range_allowed else "not after"
        against_gaps = {
            "allowed": "overlaps the next one",
            "not_allowed": "does not end where the next one begins",
            "required": "leaves no gap before the next one",
        }[self.gaps]
        message = (
            f"the range is wrong in {failures} of {rows} rows: in {disordered} {self.upper_bound_column} is NULL or "
            f"{wrong_order} {self.lower_bound_column}, in {misplaced} it {against_gaps}"
        )
        return Verdict.counted(failures, message, rows=rows, disordered=disordered, misplaced=misplaced)

    def _partition(self, rows: DataFrame) -> list[Column]:
        """The values of `partition_by` as one column `p`; none where it is not given."""
        by = self.partition_by
        if not by:
            return []
        if isinstance(by, str):
            fields = _expression(rows, f"struct({by})")
            refuse_alias(by, "partition_by")  # which a struct's field may have
            return [fields.alias("p")]
        return [F.struct(*(_expression(rows, name) for name in by)).alias("p")]


def _breaks(successor: Column) -> Column:
    """Whether `v` has a `previous` value and is not its successor."""
    v = F.col("v")
    return v.isNotNull() & F.col("previous").isNotNull() & ~F.coalesce(v == successor, F.lit(False))


def _expression(rows: DataFrame, text: str) -> Column:
    """A column by its name, or what an SQL expression gives."""
    if text in rows.columns:
        return F.col(quoted(text))
    try:
        column = expression(text, "the expression")
        _ = rows.select(column).schema
    except ConfigError:
        raise
    except Exception as error:  # what Spark's parser and analyser raise
        if text.isidentifier():
            raise ConfigError(f"the table has no column {text!r}{did_you_mean(text, rows.columns)}") from error
        raise ConfigError(
            f"{text!r} is neither a column nor an expression on the table: {spark_error(error)}"
        ) from error
    return column
