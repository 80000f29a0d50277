"""Data checks on keys: values that must not occur more than once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.checks.data.bounds import OfColumn
from recon.checks.data_check import KeyCheck
from recon.model import Verdict


@dataclass(frozen=True, kw_only=True)
class Unique(OfColumn, KeyCheck):
    """Values of a column that occur more than once.

    Failures are values, as in dbt; the message also counts the surplus rows, those beyond the first of each value. NULL
    is not judged, as in dbt; a column that is NULL in every row is skipped. Strings compare exactly, with case and
    blanks, unless the column has a collation; -0.0 equals 0.0 and NaN equals NaN.
    """

    test: ClassVar[str] = "unique"
    ignores_null: ClassVar[bool] = True

    @override
    def key(self) -> Sequence[str]:
        return (self.column_name,)

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        rows = measured["rows"]
        if measured["null_keys"] == rows:
            return Verdict(skipped=f"{self.column_name} is NULL in all {rows} rows, so that no value was compared")
        return _duplicates(self.column_name, measured)


@dataclass(frozen=True, kw_only=True)
class UniqueCombinationOfColumns(KeyCheck):
    """Combinations of columns that occur more than once (dbt_utils' test of this name).

    Failures are combinations; the message also counts the surplus rows, those beyond the first of each combination.
    NULL equals NULL here, as in GROUP BY: two rows (1, NULL) are a duplicate. Strings compare exactly, with case and
    blanks, unless a column has a collation; -0.0 equals 0.0 and NaN equals NaN.

    Args:
        combination_of_columns: the columns that together form the key, or SQL expressions such as `lower(email)`.

    Example:
        data_tests:
          - unique_combination_of_columns:
              arguments: {combination_of_columns: [order_id, line]}
    """

    test: ClassVar[str] = "unique_combination_of_columns"
    named_after: ClassVar[Sequence[str]] = ("combination_of_columns",)
    combination_of_columns: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.combination_of_columns:
            raise ConfigError("combination_of_columns is empty; list the columns that form the key")

    @override
    def key(self) -> Sequence[str]:
        return self.combination_of_columns

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        return _duplicates(f"({', '.join(self.combination_of_columns)})", measured)


def _duplicates(what: str, measured: Mapping[str, Any]) -> Verdict:
    keys, surplus = measured["duplicate_keys"], measured["surplus_rows"]
    evidence = {name: measured[name] for name in ("rows", "null_keys", "duplicate_keys", "surplus_rows")}
    message = f"{keys} values of {what} occur more than once, with {surplus} surplus rows"
    return Verdict.counted(keys, message, **evidence)
