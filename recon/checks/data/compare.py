"""The data check that compares a table with another one by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.checks.data_check import Tables, WholeCheck
from recon.model import Verdict
from recon.spark.columns import filtered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from recon.checks.comparison import Comparison, RowDifference


@dataclass(frozen=True, kw_only=True)
class Compare(WholeCheck):
    """Rows that differ from another table's: that one side lacks, or whose columns hold another value.

    Rows belong together by a key. Failures are the rows that are here alone, there alone, or changed, and each column
    that one side alone has (with `same_types`, also one of another type). The message counts each of these; the
    evidence counts the rows in which each column changed. The key need not be unique: a row that is twice here and once
    there is here alone once. NULL equals NULL and nothing else, in keys and in values; NaN equals NaN, -0.0 equals 0.0.
    Columns of different types are compared in a common one, next to text as text. `where` is for the checked table
    alone; `to_condition` is for the other.

    Args:
        to: the other table: `ref('name')` of a sink or of an entry of `tables`, a path, or a catalog table.
        key: the columns that say which rows belong together, named as in every check: `a.b` is a field of a struct, and
            a name with a dot or a backtick stands in backticks.
        compare_columns: the columns to compare; by default all, and a column that one side lacks is a difference.
        exclude_columns: columns to leave out, whichever table has them.
        mapping: the other table's name of a column, where it is another one.
        tolerances: how far values may lie apart, by column: a number, `{relative: 1e-6}`, or for dates and times a
            duration such as `5 seconds`.
        same_types: whether a column whose type differs fails too.
        to_condition: SQL that a row of the other table must meet.

    Zero rows:
        a table without rows against one that has some fails; when both have none, the check is skipped.

    Cost:
        one Spark job over both tables when they are equal, else further ones that read both again and shuffle only what
        may differ.

    Example:
        data_tests:
          - compare:
              arguments:
                to: ref('orders_source')
                key: [order_id]
                mapping: {order_id: id}
                exclude_columns: [_batch_id]
                tolerances: {amount: 0.01}
    """

    test: ClassVar[str] = "compare"
    named_after: ClassVar[Sequence[str]] = ("key", "to")
    to: str
    key: str | tuple[str, ...]
    compare_columns: tuple[str, ...] = ()
    exclude_columns: tuple[str, ...] = ()
    mapping: Mapping[str, str] = field(default_factory=dict)
    tolerances: Mapping[str, Any] = field(default_factory=dict)
    same_types: bool = False
    to_condition: str | None = None

    def __post_init__(self) -> None:
        if not self.key:
            raise ConfigError("key is empty; list the columns that say which rows belong together")
        if self.compare_columns and self.exclude_columns:
            raise ConfigError("both compare_columns and exclude_columns are given; keep one of them")

    @override
    def identifying(self) -> Sequence[str]:
        return (*self.values_of(["key"]), "difference")

    @override
    def judge_tables(self, rows: DataFrame, tables: Tables, limit: int) -> Verdict | None:
        from recon.checks.comparison import compare

        there = filtered(tables.open(self.to), self.to_condition, "to_condition", self.to)
        comparison = compare(
            rows,
            there,
            key=self.values_of(["key"]),
            columns=self.compare_columns or None,
            exclude=self.exclude_columns,
            mapping=self.mapping,
            tolerances=self.tolerances,
            left_name="the table",
            right_name=self.to,
            samples=limit,
            same_types=self.same_types,
        )
        if not (comparison.left_rows or comparison.right_rows):
            return None
        rows_apart = comparison.missing + comparison.extra + comparison.changed
        columns_apart = sum(self.same_types or None in (s.left, s.right) for s in comparison.schema)
        return Verdict(
            failures=rows_apart + columns_apart,
            message=self._message(comparison) if rows_apart + columns_apart else "",
            samples=tuple(self._sample(row) for row in _in_turn(comparison.samples, limit)),
            evidence={
                "rows": comparison.left_rows,
                "rows_there": comparison.right_rows,
                "only_here": comparison.missing,
                "only_there": comparison.extra,
                "changed": comparison.changed,
                "tolerated": comparison.tolerated,
                "duplicate_keys": comparison.duplicate_keys_left,
                "duplicate_keys_there": comparison.duplicate_keys_right,
                "changed_columns": {c.column: c.rows for c in comparison.columns},
            },
        )

    def _message(self, comparison: Comparison) -> str:
        parts = [
            f"{comparison.missing} rows are not in {self.to}" if comparison.missing else "",
            f"{comparison.extra} rows are in {self.to} alone" if comparison.extra else "",
            f"{comparison.changed} rows changed in {', '.join(c.column for c in comparison.columns)}"
            if comparison.changed
            else "",
            *(
                f"column {s.column} is {s.left or 'missing'} here and {s.right or 'missing'} there"
                for s in comparison.schema
                if self.same_types or None in (s.left, s.right)
            ),
        ]
        counts = f"{comparison.left_rows} rows here, {comparison.right_rows} in {self.to}"
        return "; ".join([*filter(None, parts), counts])

    def _sample(self, row: RowDifference) -> dict[str, Any]:
        """A flat row; of a changed one the columns that differ, from both sides."""
        difference = {"missing": "here alone", "extra": f"in {self.to} alone", "changed": "changed"}[row.kind]
        sample = {"difference": difference, **row.key, **(row.left or row.right or {})}
        if row.left is not None and row.right is not None:
            sample |= {f"{name} in {self.to}": value for name, value in row.right.items()}
        return sample


def _in_turn(rows: Sequence[RowDifference], limit: int) -> Iterator[RowDifference]:
    """At most `limit` rows, of each kind one, then of each another one."""
    kinds = [[row for row in rows if row.kind == kind] for kind in ("missing", "extra", "changed")]
    most = max(map(len, kinds))
    yield from [kind[n] for n in range(most) for kind in kinds if n < len(kind)][:limit]
