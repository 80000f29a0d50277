"""What a check is: it says what to measure and how to judge, and does neither itself.

Evidence checks judge witnesses (`EvidenceCheck.judge`). Data checks look at the rows of one table, in one of six ways:

- `RowCheck` names aggregates; all of a table's are folded into one Spark job.
- `KeyCheck` names a key to group by; equal keys are grouped once.
- `QueryCheck` derives the failing rows itself, from this table and others.
- `SchemaCheck` judges names and types; no row is read.
- `JointCheck` is measured together with its kind by foreign code, such as a suite of expectations.
- `WholeCheck` measures itself, for what takes several steps, such as a comparison with another table.

A check neither collects, prints nor renders.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from recon.model import Verdict, Witnesses
from recon.model.offsets import Spans
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from recon.project import CheckConfig


@dataclass(frozen=True, kw_only=True)
class Check(ABC):
    """Anything that gives a verdict. `test` is its dbt-like kind, set by each class.

    `kind` is "evidence" or "data"; `scope` is "pipeline" (judged once per pipeline), "sink" (once per sink)
    or "table" (on a sink's rows).
    """

    test: ClassVar[str]
    kind: ClassVar[str]
    scope: ClassVar[str]

    def label(self) -> str:
        """The part of the check's name that its arguments add, like dbt's; `""` for none."""
        return ""

    @classmethod
    def variants(cls, arguments: Mapping[str, Any], folder: Path) -> Iterable[Mapping[str, Any]]:
        """The arguments of each check that one item of `data_tests` stands for: itself, or a whole suite.

        `folder` is recon.yml's; a file that an argument names is relative to it.

        Raises:
            ConfigError: what the arguments name cannot be read.
        """
        return (arguments,)

    def hide(self, text: str) -> str:
        """A message about the check without what must not be told, such as a value from the environment."""
        return text

    def settled(self, config: CheckConfig) -> CheckConfig:
        """The config it runs with: the given one, or one that fills in what the check itself brings along."""
        return config


@dataclass(frozen=True, kw_only=True)
class EvidenceCheck(Check):
    """Judges witnesses. `needs` names the fields of `Witnesses` it cannot do without.

    `scope` is "pipeline" (judged once) or "sink" (judged once per sink). The runner answers for a witness in
    `needs` that is Unavailable: status error, or skipped when the user chose so; `judge` then never runs.
    `uses` names further ones that `judge` looks at and can do without; the others it never sees.
    """

    needs: ClassVar[Sequence[str]] = ("ledgers",)
    uses: ClassVar[Sequence[str]] = ()
    kind: ClassVar[str] = "evidence"
    scope: ClassVar[str] = "pipeline"

    @abstractmethod
    def judge(self, witnesses: Witnesses) -> Verdict:
        """The verdict. Pure: no I/O, no clock."""

    def wants_rows(self, witnesses: Witnesses) -> bool:
        """Whether the other witnesses leave a question that only the sink's rows can answer.

        Asked before `judge`, with `witnesses.rows` not yet read, because reading rows costs a Spark job.
        """
        return False

    def questions(self, witnesses: Witnesses) -> Mapping[tuple[str, int], Spans]:
        """Offsets per (topic, partition) that only Kafka's own records can explain; answered before `judge`.

        The door puts the answers into `witnesses.probes`. Empty for a check that asks nothing.
        """
        return {}


class TableScan(Protocol):
    """What a data check hands itself to; `at` says which of the scan's checks it is."""

    def fold(self, at: int, check: RowCheck) -> None:
        """Measure it in the one aggregate over the table."""

    def group(self, at: int, check: KeyCheck) -> None:
        """Measure it by grouping the table by the check's key."""

    def query(self, at: int, check: QueryCheck) -> None:
        """Measure it by counting the rows of its own query."""

    def inspect(self, at: int, check: SchemaCheck) -> None:
        """Judge it by the table's schema."""

    def jointly(self, at: int, check: JointCheck) -> None:
        """Measure it together with the others of its party."""

    def alone(self, at: int, check: WholeCheck) -> None:
        """Let it measure itself."""


class Tables(Protocol):
    """Other tables that a check names."""

    def open(self, reference: str) -> DataFrame:
        """The rows of a table; it is not read yet.

        `reference` is `ref('name')`, the name of a sink or of an entry of `tables`, a path or URI of a Delta table or
        of `.parquet` files, or a catalog table.

        Raises:
            ConfigError: there is no such table, or it cannot be read.
        """


@dataclass(frozen=True, kw_only=True)
class DataCheck(Check):
    """Looks at the rows of one table; derive from one of the six ways below.

    On a table (or `where`) without rows the runner answers with the config's `if_empty`, unless `judges_empty`: then
    `judge` sees 0 rows. With `remembers`, a key of the verdict's evidence, `judge` finds what that key held in earlier
    runs of this check as `measured["history"]`, newest first.
    """

    kind: ClassVar[str] = "data"
    scope: ClassVar[str] = "table"
    judges_empty: ClassVar[bool] = False
    remembers: ClassVar[str | None] = None

    def columns(self) -> Sequence[str]:
        """Columns the check reads, in Spark's notation; the runner checks that they exist."""
        return ()

    def fit(self, types: Mapping[str, DataType]) -> Self:
        """The check for a table whose `columns()` have these types; itself where types do not matter.

        Raises:
            ConfigError: the check cannot be put to columns of these types.
        """
        return self

    def knowing(self, learnt: Mapping[str, Any], **arguments: Any) -> Self:
        """The check with some arguments replaced, and with fields set that are no arguments (a column's type)."""
        fitted = replace(self, **arguments)
        for name, value in learnt.items():
            object.__setattr__(fitted, name, value)  # frozen for everybody else
        return fitted

    @abstractmethod
    def join(self, scan: TableScan, at: int) -> None:
        """Hands itself to the part of the scan that can measure it."""


@dataclass(frozen=True)
class Measure:
    """An aggregate that ignores NULL, and what it aggregates; `where` makes other rows NULL.

    `merge` makes one value of two that were measured on disjoint rows, so that new micro-batches can be added to what
    is known; None where that cannot be done. Either value may be None (no row had one).
    """

    of: Column
    aggregate: Callable[[Column], Column]
    merge: Callable[[Any, Any], Any] | None = None

    def over(self, where: Column | None) -> Column:
        """The aggregate over the rows that meet `where`, over all rows when it is None."""
        return self.aggregate(self.of if where is None else F.when(where, self.of))


def _known(merge: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The merge of two values of which either may be missing."""
    return lambda a, b: b if a is None else a if b is None else merge(a, b)


_ADD = _known(lambda a, b: a + b)


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
    return Measure(of, F.min, _known(_lesser))


def greatest(of: Column) -> Measure:
    """The greatest value that is not NULL; None when all are."""
    return Measure(of, F.max, _known(_greater))


@dataclass(frozen=True, kw_only=True)
class RowCheck(DataCheck):
    """Aggregates over the rows of one table, all folded into one scan.

    `measures` says what to aggregate under which name; `judge` gets the same names with plain values, and
    `rows`, the number of rows it was measured on. `failing` is the condition a failing row meets, for samples and for
    quarantine.
    """

    @abstractmethod
    def measures(self) -> Mapping[str, Measure]:
        """Aggregates by name. The runner applies `where` to them."""

    @abstractmethod
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        """The verdict from the measured values."""

    def failing(self) -> Column | None:
        """The condition that a failing row meets; None where a row alone cannot fail."""
        return None

    def join(self, scan: TableScan, at: int) -> None:
        """Asks to be measured in the table's one aggregate."""
        scan.fold(at, self)


@dataclass(frozen=True, kw_only=True)
class EachRow(RowCheck):
    """A row check in its plainest form: each row meets `failing` or does not; failures are the rows that do."""

    @abstractmethod
    def failing(self) -> Column:
        """The condition that a failing row meets; NULL is not met."""

    @abstractmethod
    def said(self, failures: int, rows: int) -> str:
        """The sentence for people when rows fail."""

    def measures(self) -> Mapping[str, Measure]:
        """The number of failing rows."""
        return {"failing": count_if(self.failing())}

    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        """Fails by the number of failing rows."""
        failing, rows = measured["failing"], measured["rows"]
        return Verdict(failures=failing, message=self.said(failing, rows) if failing else "", evidence={"rows": rows})


@dataclass(frozen=True, kw_only=True)
class KeyCheck(DataCheck):
    """Groups one table by a key and judges keys that occur more than once.

    `judge` gets `rows`, `null_keys` (rows whose key holds a NULL), `duplicate_keys` (keys that occur more than once)
    and `surplus_rows` (rows beyond the first of each such key). With `ignores_null`, a key that holds a NULL is never
    a duplicate; otherwise NULL equals NULL, as in GROUP BY.
    """

    ignores_null: ClassVar[bool] = False

    @abstractmethod
    def key(self) -> Sequence[str]:
        """The key's columns."""

    @abstractmethod
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        """The verdict from the measured values."""

    def columns(self) -> Sequence[str]:
        """The key's columns."""
        return self.key()

    def join(self, scan: TableScan, at: int) -> None:
        """Asks to be measured by grouping."""
        scan.group(at, self)


@dataclass(frozen=True, kw_only=True)
class QueryCheck(DataCheck):
    """Derives its failing rows by a query of its own, from the table and from others.

    `judge` gets `failures` (what `fail_calc` gives over `counted`), the `measures` and `figures`, and `rows`, the rows
    of the table; `rows` is None for a check that `judges_empty`, whose table is then not counted.
    """

    @abstractmethod
    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        """The failing rows, with the columns that samples show. `rows` are the table's, after `where`.

        Raises:
            ConfigError: another table cannot be had, or does not fit.
        """

    @abstractmethod
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        """The verdict from the number of failures."""

    def counted(self, rows: DataFrame, tables: Tables) -> DataFrame:
        """What `fail_calc` and `figures` are taken over; the failing rows, unless less or more is needed for them."""
        return self.failing_rows(rows, tables)

    def fail_calc(self) -> str:
        """SQL over `counted` that gives the number of failures; the config's is put to the failing rows."""
        return "count(*)"

    def figures(self) -> Mapping[str, str]:
        """Further SQL aggregates over `counted`, by the name under which `judge` gets them.

        One named `rows` is the number of rows judged: the table is then not counted, and none is answered with the
        config's `if_empty`.
        """
        return {}

    def measures(self) -> Mapping[str, Measure]:
        """Aggregates over the table itself by name, taken in the one scan that its row checks share."""
        return {}

    def join(self, scan: TableScan, at: int) -> None:
        """Asks to be measured by its query."""
        scan.query(at, self)


@dataclass(frozen=True, kw_only=True)
class SchemaCheck(DataCheck):
    """Judges the table's schema; costs no Spark job."""

    @abstractmethod
    def judge_schema(self, schema: StructType) -> Verdict:
        """The verdict on names, types and nullability."""

    def join(self, scan: TableScan, at: int) -> None:
        """Asks to see the schema."""
        scan.inspect(at, self)


@dataclass(frozen=True, kw_only=True)
class JointCheck(DataCheck):
    """Measured together with all others of its party, which share one `where`."""

    @abstractmethod
    def party(self) -> Hashable:
        """Equal for checks that are to be measured together."""

    @classmethod
    @abstractmethod
    def judge_all(cls, checks: Sequence[Any], rows: DataFrame) -> Sequence[Verdict]:
        """A verdict for each, in their order; an exception makes all of them errors."""

    def join(self, scan: TableScan, at: int) -> None:
        """Asks to be measured with its party."""
        scan.jointly(at, self)


@dataclass(frozen=True, kw_only=True)
class WholeCheck(DataCheck):
    """Measures itself, in as many Spark jobs as it takes; samples come with its verdict."""

    @abstractmethod
    def judge_tables(self, rows: DataFrame, tables: Tables, limit: int) -> Verdict | None:
        """The verdict, with at most `limit` samples; None when there is nothing to judge: `if_empty` answers then.

        `rows` are the table's, after `where`. Called only when the result is asked for.

        Raises:
            ConfigError: another table cannot be had, or does not fit.
        """

    def join(self, scan: TableScan, at: int) -> None:
        """Asks to measure itself."""
        scan.alone(at, self)


__all__ = [
    "Check",
    "DataCheck",
    "EachRow",
    "EvidenceCheck",
    "JointCheck",
    "KeyCheck",
    "Measure",
    "QueryCheck",
    "RowCheck",
    "SchemaCheck",
    "TableScan",
    "Tables",
    "WholeCheck",
    "count_if",
    "greatest",
    "least",
    "total",
]
