"""Data checks on rows in the order of a column: a sequence without holes, ranges that do not overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from recon.checks.base import QueryCheck, Tables
from recon.comparison.align import common_type
from recon.errors import ConfigError
from recon.model import Verdict
from recon.spark.errors import spark_error
from recon.spark.lazy import F
from recon.text import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Datepart = Literal["microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"]

# Values in order are cut into stretches of about this many intervals, each sorted by a task of its own.
_STRETCH = 100_000


@dataclass(frozen=True, kw_only=True)
class SequentialValues(QueryCheck):
    """Rows whose value is not the value before it plus an interval (dbt_utils' test of this name).

    Rows are put in the order of the column; failures are rows. The first value of a group has none before it and
    passes; a value that occurs twice fails once, and so does one after a hole. NULL is not judged, as in dbt_utils; a
    column that is NULL in every row is skipped.

    Args:
        column_name: the column, a number, date or timestamp; filled in for a test listed below a column.
        interval: what lies between two values; for dates and timestamps a whole number of `datepart`.
        datepart: `second`, `minute`, `hour`, `day`, `week`, `month`, `quarter`, `year`, `millisecond` or `microsecond`;
            needed for timestamps, `day` for dates unless given. Days and longer are calendar days of the session's time
            zone.
        group_by_columns: each combination of them has a sequence of its own; NULL is a group like any other.

    Cost:
        one Spark job that sorts the table by the column, in stretches that many tasks sort at a time.

    Example:
        ```yaml
        columns:
          - name: line
            data_tests:
              - dbt_utils.sequential_values:
                  arguments: {group_by_columns: [order_id]}
        ```
    """

    test: ClassVar[str] = "sequential_values"
    column_name: str
    interval: int | float = 1
    datepart: Datepart | None = None
    group_by_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.datepart is not None and self.interval != int(self.interval):
            raise ConfigError(
                f"interval {self.interval} of {self.datepart}s is not a whole number; use a finer datepart"
            )

    @override
    def label(self) -> str:
        return "__".join([self.column_name, *self.group_by_columns])

    @override
    def columns(self) -> Sequence[str]:
        return (self.column_name, *self.group_by_columns)

    @override
    def counted(self, rows: DataFrame, tables: Tables) -> DataFrame:
        return self._stretches(*self._in_stretches(rows))

    @override
    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        placed, step = self._in_stretches(rows)
        groups = [F.col(g).alias(name) for g, name in zip(self._groups(), self.group_by_columns, strict=True)]
        shown = [*groups, F.col("v").alias(self.column_name), F.col("previous")]
        inside = placed.filter(_breaks(step)).select(*shown)
        edges = self._stretches(placed, step).filter("edge").withColumnRenamed("first", "v").select(*shown)
        return inside.unionAll(edges)

    @override
    def fail_calc(self) -> str:
        return "sum(broken + int(edge))"

    @override
    def figures(self) -> Mapping[str, str]:
        return {"rows": "sum(n)", "judged": "sum(known)"}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        failures, rows = measured["failures"], measured["rows"]
        if not measured["judged"]:
            return Verdict(skipped=f"{self.column_name} is NULL in all {rows} rows, so that no value was compared")
        step = f"{self.interval} {self.datepart or ''}".strip()
        return Verdict(
            failures=failures,
            message=f"{self.column_name} is not the value before it plus {step} in {failures} of {rows} rows"
            if failures
            else "",
            evidence={"rows": rows, "judged_rows": measured["judged"]},
        )

    def _groups(self) -> list[str]:
        return [f"g{i}" for i in range(len(self.group_by_columns))]

    def _in_stretches(self, rows: DataFrame) -> tuple[DataFrame, Column]:
        """Each row's value `v`, the value before it in its stretch `b`, and the value that was to follow `previous`."""
        from pyspark.sql import Window

        value, step, stretch = self._step(rows)
        groups = [F.col(name).alias(g) for g, name in zip(self._groups(), self.group_by_columns, strict=True)]
        placed = rows.select(*groups, value.alias("v")).withColumn("b", stretch)
        inside = Window.partitionBy(*self._groups(), "b").orderBy("v")
        return placed.withColumn("previous", F.lag("v").over(inside)), step

    def _stretches(self, placed: DataFrame, step: Column) -> DataFrame:
        from pyspark.sql import Window

        stretches = placed.groupBy(*self._groups(), "b").agg(
            F.min("v").alias("first"),
            F.max("v").alias("last"),
            F.count_if(_breaks(step)).alias("broken"),
            F.count(F.lit(1)).alias("n"),
            F.count("v").alias("known"),
        )
        across = Window.partitionBy(*self._groups()).orderBy("b")
        before = stretches.withColumn("previous", F.lag("last").over(across)).withColumn("v", F.col("first"))
        return before.withColumn("edge", _breaks(step)).drop("v")

    def _step(self, rows: DataFrame) -> tuple[Column, Column, Column]:
        """The value, what `previous` says it should be, and its stretch; that rises with the value."""
        from pyspark.sql import types as T

        type_ = rows.select(F.col(self.column_name)).schema[0].dataType
        column, v = F.col(self.column_name), F.col("v")
        if isinstance(type_, (T.DateType, T.TimestampType, T.TimestampNTZType)):
            part = self.datepart or ("day" if isinstance(type_, T.DateType) else None)
            if part is None:
                raise ConfigError(
                    f"{self.column_name} is a timestamp; say in which datepart the interval is, such as day"
                )
            value = column.cast(T.TimestampNTZType()) if isinstance(type_, T.DateType) else column
            step = F.expr(f"timestampadd({part.upper()}, {int(self.interval)}, previous)")
            fine = part in ("microsecond", "millisecond", "second", "minute")
            return value, step, F.to_date(v) if fine else F.year(v)
        if not isinstance(type_, T.NumericType) or self.datepart is not None:
            type_text = f"{self.column_name} is {type_.simpleString()}"
            wanted = (
                f"datepart {self.datepart} needs a date or timestamp" if self.datepart else "a sequence is of numbers"
            )
            raise ConfigError(f"{type_text}, and {wanted}; cast it in the table, or leave the check out")
        by = F.lit(self.interval if isinstance(self.interval, int) else Decimal(str(self.interval)))
        stretch = F.floor(v.cast("double") / F.lit(float(abs(self.interval) or 1) * _STRETCH))
        return column, F.try_add(F.col("previous"), by), F.when(F.isnan(v.cast("double")), 2**63 - 1).otherwise(stretch)


@dataclass(frozen=True, kw_only=True)
class MutuallyExclusiveRanges(QueryCheck):
    """Rows whose range is empty, or reaches into the next one (dbt_utils' test of this name).

    A range is from its lower bound up to, and without, its upper bound. Rows are put in the order of their lower bound;
    failures are rows whose bounds are not in order, or whose upper bound does not stand to the next lower bound as
    `gaps` says. The last row has no next one. NULL as a bound fails, as in dbt_utils: for a range without an end write
    a bound such as `coalesce(valid_to, date '9999-12-31')`.

    Args:
        lower_bound_column: the column, or an SQL expression, with the lower bound.
        upper_bound_column: the column, or an SQL expression, with the upper bound.
        partition_by: columns whose combinations have ranges of their own, as a list or as SQL; NULL is like any value.
        gaps: `allowed`, `not_allowed` (each range begins where the one before ends) or `required` (none does).
        zero_length_range_allowed: whether the upper bound may equal the lower.

    Cost:
        one Spark job that sorts the table within `partition_by`; without it, one task sorts all rows.

    Example:
        ```yaml
        data_tests:
          - dbt_utils.mutually_exclusive_ranges:
              arguments:
                lower_bound_column: valid_from
                upper_bound_column: coalesce(valid_to, date '9999-12-31')
                partition_by: customer_id
                gaps: not_allowed
        ```
    """

    test: ClassVar[str] = "mutually_exclusive_ranges"
    lower_bound_column: str
    upper_bound_column: str
    partition_by: str | tuple[str, ...] | None = None
    gaps: Literal["allowed", "not_allowed", "required"] = "allowed"
    zero_length_range_allowed: bool = False

    @override
    def label(self) -> str:
        by = self.partition_by or ()
        parts = [by] if isinstance(by, str) else by
        return "__".join([self.lower_bound_column, self.upper_bound_column, *parts])

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
        by = self.partition_by or ()
        parts = [_expression(rows, f"struct({by})").alias("p")] if isinstance(by, str) and by else []
        parts += (
            [F.struct(*(_expression(rows, name) for name in by)).alias("p")] if isinstance(by, tuple) and by else []
        )
        placed = rows.select(*parts, lower.cast(common).alias("lower_bound"), upper.cast(common).alias("upper_bound"))
        window = Window.partitionBy(*(["p"] if parts else [])).orderBy("lower_bound", "upper_bound")
        ordered = placed.select(
            "*",
            F.lead("lower_bound").over(window).alias("next_lower_bound"),
            F.lead(F.lit(True), 1, False).over(window).alias("has_next"),
        )
        upper_bound, next_lower = F.col("upper_bound"), F.col("next_lower_bound")
        sign = "<=" if self.zero_length_range_allowed else "<"
        apart = {"allowed": upper_bound <= next_lower, "required": upper_bound < next_lower}
        in_place = apart.get(self.gaps, upper_bound == next_lower)
        return ordered.select(
            "*",
            F.coalesce(F.expr(f"NOT lower_bound {sign} upper_bound"), F.lit(True)).alias("disordered"),
            (F.col("has_next") & ~F.coalesce(in_place, F.lit(False))).alias("misplaced"),
        )

    @override
    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        failing = self.counted(rows, tables).filter("disordered OR misplaced")
        shown = ["lower_bound", "upper_bound", "next_lower_bound"]
        return failing.select(*(["p.*"] if self.partition_by else []), *shown)

    @override
    def fail_calc(self) -> str:
        return "count_if(disordered OR misplaced)"

    @override
    def figures(self) -> Mapping[str, str]:
        return {"rows": "count(*)", "disordered": "count_if(disordered)", "misplaced": "count_if(misplaced)"}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        failures, rows = measured["failures"], measured["rows"]
        order = "before" if self.zero_length_range_allowed else "after"
        misplaced_how = {
            "allowed": "reaches into",
            "not_allowed": "does not end where it meets",
            "required": "touches",
        }[self.gaps]
        return Verdict(
            failures=failures,
            message=f"in {failures} of {rows} rows the range is not in place: in {measured['disordered']} "
            f"{self.upper_bound_column} is NULL or not {order} {self.lower_bound_column}, in {measured['misplaced']} "
            f"the range {misplaced_how} the next one"
            if failures
            else "",
            evidence={name: measured[name] for name in ("rows", "disordered", "misplaced")},
        )


def _breaks(step: Column) -> Column:
    """Whether `v` has a `previous` and is not what follows it."""
    v = F.col("v")
    return v.isNotNull() & F.col("previous").isNotNull() & ~F.coalesce(v == step, F.lit(False))


def _expression(rows: DataFrame, text: str) -> Column:
    """A column by its name, or what an SQL expression gives."""
    if text in rows.columns:
        return F.col(f"`{text.replace('`', '``')}`")
    try:
        _ = rows.select(F.expr(text)).schema
    except Exception as error:  # what Spark's parser and analyser raise
        if text.isidentifier():
            raise ConfigError(f"the table has no column {text!r}{did_you_mean(text, rows.columns)}") from error
        raise ConfigError(
            f"{text!r} is neither a column nor an expression on the table: {spark_error(error)}"
        ) from error
    return F.expr(text)
