"""What a scan may use beside its table: other tables, the results of earlier runs, a store for failing rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from recon.base.errors import ConfigError
from recon.checks.bound import Bound
from recon.checks.data_check import KeyCheck, RowCheck, Tables
from recon.checks.samples import Samples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = Mapping[str, Any]


class Memory(Protocol):
    """What earlier runs measured, for checks that then measure new rows only (recon.audits.incremental).

    The scanned table holds the rows that are new since, or all of them on the first run.
    """

    def keeps(self, bound: Bound) -> bool:
        """Whether this check is incremental; the others are measured as if there were no memory."""

    def fold(self, bound: Bound, check: RowCheck, measured: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values over all rows, from those over the scanned ones; saved for the next run."""

    def group(self, bound: Bound, check: KeyCheck, rows: DataFrame) -> tuple[Mapping[str, Any], DataFrame] | None:
        """What `KeyCheck.judge` gets, over all rows, and the keys of `rows` that samples are taken from.

        The keys come as `groupings.count_keys` gives them: columns k0, k1, … and n, over all rows. None: the scanned
        rows are all rows; group them, and give the values to `begin`.
        """

    def begin(self, bound: Bound, check: KeyCheck, rows: DataFrame, measured: Mapping[str, Any]) -> None:
        """Saves what was measured on all rows for the next run; must not raise."""


class NoTables:
    """The tables of a scan outside of a project: none."""

    def open(self, reference: str) -> DataFrame:
        """Always refuses.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"{reference} cannot be opened here: other tables are known to an audit of a project only")


def _no_history(bound: Bound, key: str) -> Sequence[Any]:
    return ()


@dataclass(frozen=True, kw_only=True)
class ScanContext:
    """What the scan's caller provides; by default nothing.

    Args:
        tables: opens other tables.
        history: what a key of the evidence held in earlier runs of a check, newest first.
        keep_failures: stores the failing rows of a check with `store_failures`.
        memory: what earlier runs measured, for checks that are measured on new rows only.
        fail_fast: the caller stops at the first failure, so nothing is measured ahead of it.
        samples: what samples and stored failing rows may show of the table, beside each check's config.
    """

    tables: Tables = field(default_factory=NoTables)
    history: Callable[[Bound, str], Sequence[Any]] = _no_history
    keep_failures: Callable[[Bound, Sequence[Row]], None] | None = None
    memory: Memory | None = None
    fail_fast: bool = False
    samples: Samples = field(default_factory=Samples)

    def memory_of(self, bound: Bound) -> Memory | None:
        """The memory, for a check that is measured on new rows only."""
        return self.memory if self.memory is not None and self.memory.keeps(bound) else None
