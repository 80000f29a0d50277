"""The result of a comparison, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class SchemaDifference:
    """A column that only one side has (the other's type is None), or whose types differ.

    Types that differ are aligned before values are compared: `compared_as` is that type.
    """

    column: str
    left: str | None
    right: str | None
    compared_as: str | None = None


@dataclass(frozen=True, kw_only=True)
class RowDifference:
    """A row that is missing on the right, extra on the right, or changed.

    `left` and `right` hold the row's compared columns, or only those that differ when it changed; None where the side
    has no such row. `left_rows` and `right_rows` are how many rows of each side have this key. Decimals, dates, times
    and binary values are text.
    """

    kind: Literal["missing", "extra", "changed"]
    key: Mapping[str, Any]
    left: Mapping[str, Any] | None
    right: Mapping[str, Any] | None
    left_rows: int
    right_rows: int


@dataclass(frozen=True, kw_only=True)
class ColumnDifference:
    """A column that differs in at least one changed row.

    `rows` is the number of changed rows in which it differs, `max_difference` the greatest absolute difference among
    them: a number, seconds for dates and times, None for other types, or where it is not finite. `samples` are
    changed rows, with this column alone.
    """

    column: str
    rows: int
    max_difference: float | None = None
    samples: tuple[RowDifference, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The comparison of two tables by key.

    `left_rows` = `matched` + `missing` + `changed`, and `right_rows` = `matched` + `extra` + `changed`. Of the matched
    rows, `tolerated` are equal only within the tolerances. `duplicate_keys_left` and `duplicate_keys_right` count keys
    that occur more than once on that side, with a row that has no equal on the other side.

    `equal` is True when no row is missing, extra or changed and no column is on one side only; with `same_types`, also
    no type differs. Two tables without rows are equal: test `left_rows` where that must not pass.
    """

    left: str
    right: str
    key: tuple[str, ...]
    compared: tuple[str, ...]
    left_rows: int
    right_rows: int
    missing: int = 0
    extra: int = 0
    changed: int = 0
    tolerated: int = 0
    duplicate_keys_left: int = 0
    duplicate_keys_right: int = 0
    columns: tuple[ColumnDifference, ...] = ()
    schema: tuple[SchemaDifference, ...] = ()
    samples: tuple[RowDifference, ...] = ()
    same_types: bool = False

    @property
    def matched(self) -> int:
        """The rows that have their equal on the other side."""
        return self.left_rows - self.missing - self.changed

    @property
    def equal(self) -> bool:
        """Whether the tables are equal."""
        schema = any(None in (s.left, s.right) or self.same_types for s in self.schema)
        return not (self.missing or self.extra or self.changed or schema)

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**asdict(self), "matched": self.matched, "equal": self.equal}
