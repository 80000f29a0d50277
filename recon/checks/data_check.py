"""What a data check is: it looks at the rows of one table, in one of six ways, and measures nothing itself.

- `RowCheck` names aggregates; one Spark job computes those of all row checks of a table.
- `KeyCheck` names a key; checks with the same key share a grouping.
- `QueryCheck` derives the failing rows by a query of its own, from this table and others.
- `SchemaCheck` judges names and types; no row is read.
- `JointCheck` is measured by another library, together with others of its kind, such as a suite of expectations.
- `WholeCheck` measures itself, for what takes several steps, such as a comparison with another table.

`recon.checks.engine` has one executor for each of them. A check neither collects, prints nor renders.

The docstrings here carry sections that docs/checks.md prints under every check that inherits them: `Args`, `Zero rows`
and `Cost`. A check writes a section of its own only where it differs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from typing_extensions import override

from recon.checks.base import Check
from recon.model import Verdict
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


class Tables(Protocol):
    """Other tables that a check names."""

    def open(self, reference: str) -> DataFrame:
        """The rows of a table; it is not read yet.

        `reference` is `ref('name')`, the name of a sink or of an entry of `tables`, a catalog table, or a path or URI
        (a Delta table or `.parquet` files).

        Raises:
            ConfigError: there is no such table, or it cannot be read.
        """


@dataclass(frozen=True, kw_only=True)
class DataCheck(Check):
    """Judges the rows of one table; derive from one of the six kinds below.

    On a table (or `where`) without rows the engine gives what the config's `if_empty` says, unless `judges_empty`: then
    `judge` sees 0 rows. With `remembers`, a key of the verdict's evidence, `judge` gets the values of that key in
    earlier runs of this check as `measured["history"]`, newest first. `reads` are the arguments that name columns.
    `samples_are_rows` is whether samples show values of rows, to which the config's `samples` applies.

    Zero rows:
        a table (or `where`) with no rows is skipped.
    """

    kind: ClassVar[str] = "data"
    scope: ClassVar[str] = "table"
    judges_empty: ClassVar[bool] = False
    remembers: ClassVar[str | None] = None
    reads: ClassVar[Sequence[str]] = ()
    samples_are_rows: ClassVar[bool] = True

    def identifying(self) -> Sequence[str]:
        """The columns of a sample that say which row or group it is: `samples: keys` shows these alone."""
        return ()

    def columns(self) -> Sequence[str]:
        """Columns the check reads, in Spark's notation; the engine makes sure that they exist."""
        return self.values_of(self.reads)

    def fit(self, types: Mapping[str, DataType], rows: DataFrame) -> DataCheck:
        """The check for a table whose `columns()` have these types; itself where types do not matter.

        What it learns of the table goes into fields made by `set_by_fit`, by `dataclasses.replace`.

        Args:
            types: Spark's type of each of `columns()`.
            rows: the table; for its Spark session, and not to be read.

        Raises:
            ConfigError: the check does not work on columns of these types.
        """
        return self

    def measured_as(self) -> DataCheck:
        """The check that the engine measures: itself, unless its arguments need another kind of measuring."""
        return self


@dataclass(frozen=True)
class Measure:
    """An aggregate that ignores NULL, and what it aggregates; `where` makes other rows NULL.

    `merge` combines two values that were measured on disjoint rows, so that only new micro-batches need to be measured;
    None where values cannot be combined. Either value may be None (no row had one).
    """

    of: Column
    aggregate: Callable[[Column], Column]
    merge: Callable[[Any, Any], Any] | None = None

    def over(self, where: Column | None) -> Column:
        """The aggregate over the rows that meet `where`, over all rows when it is None."""
        return self.aggregate(self.of if where is None else F.when(where, self.of))


def _unless_none(merge: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A merge of two values of which either may be None."""
    return lambda a, b: b if a is None else a if b is None else merge(a, b)


# More digits than any sum that is merged.
_EXACT = Context(prec=100)
_ADD = _unless_none(lambda a, b: _EXACT.add(a, b) if isinstance(a, Decimal) else a + b)


def _lesser(a: Any, b: Any) -> Any:
    """The smaller of two values; NaN is greater than any number, as in Spark."""
    return b if a != a else a if b != b else min(a, b)


def _greater(a: Any, b: Any) -> Any:
    """The greater of two values; NaN is greater than any number, as in Spark."""
    return a if a != a else b if b != b else max(a, b)


def count_if(condition: Column) -> Measure:
    """The number of rows that meet `condition`; NULL is not met."""
    return Measure(condition, F.count_if, _ADD)


def total(of: Column) -> Measure:
    """The sum of the values that are not NULL; None when all are."""
    return Measure(of, F.sum, _ADD)


def least(of: Column) -> Measure:
    """The smallest value that is not NULL; None when all are."""
    return Measure(of, F.min, _unless_none(_lesser))


def greatest(of: Column) -> Measure:
    """The greatest value that is not NULL; None when all are."""
    return Measure(of, F.max, _unless_none(_greater))


@dataclass(frozen=True, kw_only=True)
class RowCheck(DataCheck):
    """Aggregates over the rows of one table; one Spark job computes those of all row checks.

    `measures` names the aggregates; `judge` gets their values under the same names, and `rows`, the number of rows
    they were measured on. `failing` is the condition a failing row meets, for samples and for quarantine.

    Cost:
        nothing beyond the one scan that all row checks of the table share.
    """

    @abstractmethod
    def measures(self) -> Mapping[str, Measure]:
        """Aggregates by name. The engine applies `where` to them."""

    @abstractmethod
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        """The verdict from the measured values."""

    def failing(self) -> Column | None:
        """The condition that a failing row meets; None where a row alone cannot fail."""
        return None


@dataclass(frozen=True, kw_only=True)
class EachRow(RowCheck):
    """A row check in its plainest form: each row meets `failing` or does not; failures are the rows that do."""

    @abstractmethod
    def failing(self) -> Column:
        """The condition that a failing row meets; NULL is not met."""

    @abstractmethod
    def message(self, failures: int, rows: int) -> str:
        """The sentence that the result shows when rows fail."""

    @override
    def measures(self) -> Mapping[str, Measure]:
        return {"failing": count_if(self.failing())}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        failing, rows = measured["failing"], measured["rows"]
        return Verdict.counted(failing, self.message(failing, rows) if failing else "", rows=rows)


@dataclass(frozen=True, kw_only=True)
class KeyCheck(DataCheck):
    """Groups one table by a key and judges keys that occur more than once.

    `judge` gets `rows`, `null_keys` (rows whose key holds a NULL), `duplicate_keys` (keys that occur more than once)
    and `surplus_rows` (their rows beyond the first). With `ignores_null`, a key that holds a NULL is never a duplicate;
    otherwise NULL equals NULL, as in GROUP BY.

    Cost:
        one Spark job that groups the table by the key, and a second one for samples when it fails.
    """

    ignores_null: ClassVar[bool] = False

    @abstractmethod
    def key(self) -> Sequence[str]:
        """The key's columns."""

    @abstractmethod
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        """The verdict from the measured values."""

    @override
    def columns(self) -> Sequence[str]:
        return self.key()

    @override
    def identifying(self) -> Sequence[str]:
        return self.key()


@dataclass(frozen=True, kw_only=True)
class QueryCheck(DataCheck):
    """Derives its failing rows by a query of its own, from the table and from others.

    `judge` gets `failures` (the value of `fail_calc` over `counted`), the `measures` and `figures`, and `rows`, the
    number of rows in the table. A check that `judges_empty` gets None as `rows`: its table is not counted. `fail_calc`
    is SQL over `counted`; the config's `fail_calc` is over the failing rows.
    """

    fail_calc: ClassVar[str] = "count(*)"

    @abstractmethod
    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        """The failing rows, with the columns that samples show. `rows` are the table's, after `where`.

        Raises:
            ConfigError: another table cannot be opened, or does not fit.
        """

    @abstractmethod
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        """The verdict from the number of failures."""

    def counted(self, rows: DataFrame, tables: Tables) -> DataFrame:
        """The rows that `fail_calc` and `figures` aggregate: the failing ones, unless these need fewer or more."""
        return self.failing_rows(rows, tables)

    def figures(self) -> Mapping[str, str]:
        """Further SQL aggregates over `counted`, by the name under which `judge` gets them.

        One named `rows` is the number of rows judged: the table is then not counted, and 0 gives what the config's
        `if_empty` says.
        """
        return {}

    def measures(self) -> Mapping[str, Measure]:
        """Aggregates over the table itself by name, computed in the one scan that its row checks share."""
        return {}


@dataclass(frozen=True, kw_only=True)
class SchemaCheck(DataCheck):
    """Judges the table's schema; no Spark job runs.

    Zero rows:
        no row is read, so that zero rows change nothing.

    Cost:
        no Spark job.
    """

    samples_are_rows: ClassVar[bool] = False

    @abstractmethod
    def judge_schema(self, schema: StructType) -> Verdict:
        """The verdict on names, types and nullability."""


@dataclass(frozen=True, kw_only=True)
class JointCheck(DataCheck):
    """Measured by another library, together with all others of equal `group` and `where`."""

    @abstractmethod
    def group(self) -> Hashable:
        """Equal for checks that are measured together."""

    @classmethod
    @abstractmethod
    def judge_all(cls, checks: Sequence[Any], rows: DataFrame) -> Sequence[Verdict]:
        """A verdict for each, in their order; an exception makes all of them errors."""


@dataclass(frozen=True, kw_only=True)
class WholeCheck(DataCheck):
    """Measures itself, in as many Spark jobs as it takes; samples come with its verdict."""

    @abstractmethod
    def judge_tables(self, rows: DataFrame, tables: Tables, limit: int) -> Verdict | None:
        """The verdict, with at most `limit` samples; None when there is nothing to judge and `if_empty` decides.

        `rows` are the table's, after `where`. Called only when the result is needed.

        Raises:
            ConfigError: another table cannot be opened, or does not fit.
        """


# What recon.checks exports, beside EvidenceCheck: the names for checks of one's own.
__all__ = [
    "EachRow",
    "JointCheck",
    "KeyCheck",
    "Measure",
    "QueryCheck",
    "RowCheck",
    "SchemaCheck",
    "Tables",
    "WholeCheck",
    "count_if",
    "greatest",
    "least",
    "total",
]
