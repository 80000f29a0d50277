"""Data checks on the age of a table's newest row, by Spark's clock, which the same scan measures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.checks.base import set_by_fit
from recon.checks.data.bounds import DAY, comparable, instant_text, is_instant
from recon.checks.data.grouped import GroupableCheck
from recon.checks.data_check import DataCheck, Measure, RowCheck, count_if
from recon.checks.period import Period
from recon.model import Verdict
from recon.spark.columns import expression
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_COLUMN = re.compile(r"(?:[^\W\d]\w*|`(?:[^`]|``)+`)(?:\.(?:\w+|`(?:[^`]|``)+`))*")
# A time that far ahead may be due to clocks that differ; one beyond is no proof that anything is fresh.
_SKEW = 60_000_000


@dataclass(frozen=True, kw_only=True)
class OfTime(DataCheck):
    """A check on a date or timestamp: the argument that it `reads` is a column, or an SQL expression that gives one."""

    time_type: Any = set_by_fit()

    @property
    def _time_field(self) -> str:
        (field,) = self.values_of(self.reads)
        return str(field)

    @override
    def columns(self) -> Sequence[str]:
        return (self._time_field,) if _COLUMN.fullmatch(self._time_field) else ()

    @override
    def fit(self, types: Mapping[str, DataType], rows: DataFrame) -> Self:
        from pyspark.sql import types as T

        type_ = types.get(self._time_field)
        if type_ is not None and not is_instant(type_):
            raise ConfigError(
                f"{self.test} needs a date or timestamp, and column {self._time_field} is {type_.simpleString()}; "
                f"an expression such as `to_timestamp({self._time_field})` makes one of it"
            )
        return replace(self, time_type=T.TimestampType() if type_ is None else type_)

    def time(self) -> Column:
        """The date or timestamp of a row."""
        name = self._time_field
        return F.col(name) if _COLUMN.fullmatch(name) else expression(name, self.reads[0]).cast("timestamp")


def now() -> Column:
    """Spark's clock, in microseconds since 1970; one and the same throughout a job."""
    return F.unix_micros(F.current_timestamp())


def moment(micros: Column, type_: DataType) -> Column:
    """Microseconds since 1970 in UTC as a value of a date's or timestamp's type."""
    from pyspark.sql import types as T

    if isinstance(type_, T.DateType):
        return F.date_add(F.lit(date(1970, 1, 1)), F.floor(micros / F.lit(DAY)).cast("int"))
    if isinstance(type_, T.TimestampNTZType):
        seconds = (micros / F.lit(1_000_000)).cast("decimal(18,6)")
        return F.lit("1970-01-01").cast("timestamp_ntz") + F.make_dt_interval(secs=seconds)
    return F.timestamp_micros(micros)


def _of_the_clock(column: Column) -> Measure:
    """A measure that needs no rows."""
    return Measure(F.lit(None), lambda _: column)


def newest(time: Column, type_: DataType) -> Mapping[str, Measure]:
    """The newest time that is not in the future, in microseconds since 1970, and the number of those that are.

    Neither can be merged: what was the future in an earlier run no longer is.
    """
    limit = moment(now() + F.lit(_SKEW), type_)
    return {
        "newest": Measure(F.when(time <= limit, time), lambda c: comparable(F.max(c), type_)),
        "in_future": Measure(time > limit, F.count_if),
    }


@dataclass(frozen=True, kw_only=True)
class Freshness(OfTime, RowCheck):
    """Whether the newest row is recent enough (dbt's source freshness).

    Fails by 1 when it is older than `error_after`, and warns when it is older than `warn_after`. Rows whose field is
    NULL are left out; a field that is NULL throughout is older than any limit, as in dbt. A time more than a minute
    ahead of Spark's clock proves nothing and is left out, too, where dbt takes it for fresh; a field with only such
    times is older than any limit. Times without a zone are UTC, and a date is its midnight.

    Args:
        loaded_at_field: the column, or an SQL expression such as `to_timestamp(loaded)`.
        warn_after: the age from which on it warns, as `{count: 12, period: hour}`. Periods are minute, hour and day.
        error_after: the age from which on it fails. At least one of both must be given.
        filter: SQL; rows that do not meet it are left out.

    Zero rows:
        a table (or `where`, or `filter`) with no rows is older than any limit, as in dbt, whatever `if_empty` says.

    Example:
        data_tests:
          - freshness:
              arguments:
                loaded_at_field: ingested_at
                warn_after: {count: 1, period: hour}
                error_after: {count: 6, period: hour}
    """

    test: ClassVar[str] = "freshness"
    named_after: ClassVar[Sequence[str]] = ("loaded_at_field",)
    reads: ClassVar[Sequence[str]] = ("loaded_at_field",)
    judges_empty: ClassVar[bool] = True
    loaded_at_field: str
    warn_after: Period | None = None
    error_after: Period | None = None
    filter: str | None = None

    def __post_init__(self) -> None:
        if self.warn_after is None and self.error_after is None:
            raise ConfigError("freshness needs warn_after, error_after or both: without a limit nothing can be too old")

    @override
    def measures(self) -> Mapping[str, Measure]:
        judged = F.lit(True) if self.filter is None else expression(self.filter, "filter")
        time = self.time() if self.filter is None else F.when(judged, self.time())
        return {**newest(time, self.time_type), "kept": count_if(judged), "now": _of_the_clock(now())}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        rows, newest_time, future = measured["kept"], measured["newest"], measured["in_future"]
        evidence: dict[str, Any] = {"rows": rows, "in_future": future, "snapshotted_at": instant_text(measured["now"])}
        if newest_time is None:
            age, message = timedelta.max, _nothing(self.loaded_at_field, rows, future, self.filter)
        else:
            age = max(timedelta(), timedelta(microseconds=measured["now"] - newest_time))
            evidence |= {"max_loaded_at": instant_text(newest_time), "age_seconds": age.total_seconds()}
        failed = self.error_after is not None and age > self.error_after.length
        warned = self.warn_after is not None and age > self.warn_after.length
        if newest_time is not None:
            limit = self.error_after if failed else self.warn_after
            newest_is = f"the newest {self.loaded_at_field} is {instant_text(newest_time)}"
            message = f"{newest_is}, older than {limit}{_ahead(future)}"
        return Verdict(
            failures=int(failed),
            warnings=int(warned and not failed),
            message=message if failed or warned else "",
            evidence=evidence,
        )


@dataclass(frozen=True, kw_only=True)
class Recency(GroupableCheck, OfTime):
    """Whether the newest row is at most so many days, hours or the like old (dbt_utils' test of this name).

    Fails by 1, or by the number of groups that fail. Rows whose field is NULL are left out; a table or group whose
    field is NULL throughout fails, as in dbt_utils since 1.4.0. Times more than a minute ahead of Spark's clock are
    left out, too: dbt_utils takes them for recent. A group key that is NULL is a group of its own. Times without a zone
    are UTC, and a date is its midnight.

    Args:
        datepart: the unit of `interval`.
        field: the column, or an SQL expression that gives a timestamp.
        interval: how many units old the newest row may be.
        ignore_time_component: compare days, not times of day.

    Zero rows:
        fail by 1, as in dbt_utils since 1.4.0, whatever `if_empty` says. With `group_by_columns`, a table (or `where`)
        with no rows is skipped.

    Example:
        data_tests:
          - recency:
              arguments: {datepart: day, field: created_at, interval: 1, group_by_columns: [country]}
    """

    test: ClassVar[str] = "recency"
    named_after: ClassVar[Sequence[str]] = ("field", "interval", "datepart")
    reads: ClassVar[Sequence[str]] = ("field",)
    judges_empty: ClassVar[bool] = True
    datepart: Literal["second", "minute", "hour", "day", "week", "month", "quarter", "year"]
    field: str
    interval: int
    ignore_time_component: bool = False

    def __post_init__(self) -> None:
        if self.interval < 0:
            raise ConfigError(f"interval is {self.interval}; give a number of {self.datepart}s that is not negative")

    @override
    def measures(self) -> Mapping[str, Measure]:
        oldest = F.expr(f"unix_micros(timestampadd({self.datepart.upper()}, {-self.interval}, current_timestamp()))")
        return {**newest(self.time(), self.time_type), "threshold": _of_the_clock(oldest)}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        rows, newest_time, future = measured["rows"], measured["newest"], measured["in_future"]
        evidence: dict[str, Any] = {"rows": rows, "in_future": future}
        if newest_time is None:
            return Verdict.counted(1, _nothing(self.field, rows, future), **evidence)
        threshold = measured["threshold"]
        unit = DAY if self.ignore_time_component else 1
        old = newest_time // unit < threshold // unit
        evidence |= {"most_recent": instant_text(newest_time), "threshold": instant_text(threshold)}
        message = f"the newest {self.field} is {instant_text(newest_time)}, older than {self._age()}" + _ahead(future)
        return Verdict.counted(int(old), message, **evidence)

    @override
    def group_fails(self, measured: Mapping[str, Column]) -> Column:
        newest_time, threshold = measured["newest"], measured["threshold"]
        if self.ignore_time_component:
            newest_time, threshold = F.floor(newest_time / F.lit(DAY)), F.floor(threshold / F.lit(DAY))
        return newest_time.isNull() | (newest_time < threshold)

    @override
    def group_shows(self, measured: Mapping[str, Column]) -> Mapping[str, Column]:
        return {
            "most_recent": F.timestamp_micros(measured["newest"]),
            "threshold": F.timestamp_micros(measured["threshold"]),
        }

    @override
    def group_message(self, groups: int) -> str:
        return f"the newest {self.field} is older than {self._age()} in {groups} groups"

    def _age(self) -> str:
        return f"{self.interval} {self.datepart}{'' if self.interval == 1 else 's'}"


def _nothing(name: str, rows: int, future: int, condition: str | None = None) -> str:
    if not rows:
        return f"there are 0 rows{f' where {condition}' if condition else ''}, and so no time in {name}"
    if future:
        return f"{name} holds no time up to now in {rows} rows, and {future} in the future"
    return f"{name} is NULL in all {rows} rows"


def _ahead(future: int) -> str:
    return f" ({future} rows with a time in the future are left out)" if future else ""
