"""What a check is: it says what to measure and how to judge, and does neither itself.

Evidence checks judge witnesses (`EvidenceCheck.judge`). Data checks look at the rows of one table: they name
aggregates that the runner folds into one Spark job (`RowCheck.measures`), or a key to group by
(`KeyCheck.key`). A check neither collects, prints nor renders.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from recon.model import Verdict, Witnesses
from recon.offsets import Spans

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


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


@dataclass(frozen=True, kw_only=True)
class DataCheck(Check):
    """Looks at the rows of one table; derive from `RowCheck` or `KeyCheck`."""

    kind: ClassVar[str] = "data"
    scope: ClassVar[str] = "table"

    @abstractmethod
    def columns(self) -> Sequence[str]:
        """Columns the check reads, in Spark's notation; the runner checks that they exist."""

    def fit(self, types: Mapping[str, DataType]) -> Self:
        """The check for a table whose `columns()` have these types; itself where types do not matter.

        Raises:
            ConfigError: the check cannot be put to columns of these types.
        """
        return self

    @abstractmethod
    def join(self, scan: TableScan, at: int) -> None:
        """Hands itself to the part of the scan that can measure it."""


@dataclass(frozen=True)
class Measure:
    """An aggregate that ignores NULL, and what it aggregates; `where` makes other rows NULL."""

    of: Column
    aggregate: Callable[[Column], Column]

    def over(self, where: Column | None) -> Column:
        """The aggregate over the rows that meet `where`, over all rows when it is None."""
        from pyspark.sql import functions as F

        return self.aggregate(self.of if where is None else F.when(where, self.of))


def count_if(condition: Column) -> Measure:
    """The number of rows that meet `condition`; NULL is not met."""
    from pyspark.sql import functions as F

    return Measure(condition, F.count_if)


@dataclass(frozen=True, kw_only=True)
class RowCheck(DataCheck):
    """Aggregates over the rows of one table, all folded into one scan.

    `measures` says what to aggregate under which name; `judge` gets the same names with plain values, and
    `rows`, the number of rows it was measured on, which is never 0: the runner skips a check on no rows.
    `failing` is the condition a failing row meets, for samples.
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
class KeyCheck(DataCheck):
    """Groups one table by a key and judges keys that occur more than once.

    `judge` gets `rows` (never 0), `null_keys` (rows whose key holds a NULL), `duplicate_keys` (keys that
    occur more than once), `surplus_rows` (rows beyond the first of each such key) and `samples` (the first
    `limit` keys, most rows first, with their number of rows as `n_records`). With `ignores_null`, a key that
    holds a NULL is never a duplicate; otherwise NULL equals NULL, as in GROUP BY.
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


__all__ = ["Check", "DataCheck", "EvidenceCheck", "KeyCheck", "Measure", "RowCheck", "TableScan", "count_if"]
