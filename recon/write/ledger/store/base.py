"""The interface of the ledger's tables: what a table holds, how it is written, what to read of it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, partial, reduce
from typing import Any, ClassVar, TypeVar

from recon.base.errors import LedgerError
from recon.base.lazy import pa, pc
from recon.write.ledger import arrow
from recon.write.ledger.files import NESTED, Bound, Place, holding
from recon.write.ledger.store.contention import Contended, again, deadline
from recon.write.ledger.store.housekeeping import USUAL, Housekeeping

T = TypeVar("T")

SCHEMA_VERSION = 1

INT32 = "int32"
ENTRY_HASH = "entry_hash"
SEQUENCE = "sequence"
EPOCH = "epoch"

# Delta's PROTOCOL.md, "Per-file Statistics": bounds of instants are cut off to milliseconds, the upper one too.
_CUT_OFF = timedelta(milliseconds=1)


class ChainMoved(Exception):
    """Another writer extended the chain first; the caller re-reads its head and tries again."""


class BeingMerged(LedgerError):
    """Another process merges the table's small files at the moment; nothing was written."""


@dataclass(frozen=True, kw_only=True)
class LedgerTable:
    """What one table of the ledger holds.

    Attributes:
        kind: the table's name: `<location>/<kind>`, or `<table>_<kind>`, and for `ledger` the table itself.
        time: the column, an instant, whose UTC day is the partition `date`.
        columns: each column's Python type, `INT32`, a mapping for a struct, or a list of one type; `date` comes last.
        added: columns that tables of earlier versions lack: there they are NULL.
    """

    kind: str
    time: str
    columns: Mapping[str, Any]
    added: Collection[str] = ()

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema that is persisted."""
        return pa.schema(list(self.row_type))

    @cached_property
    def row_type(self) -> pa.DataType:
        """A whole row as one Arrow struct."""
        return _arrow_type({**self.columns, "date": date})


def _arrow_type(of: Any) -> pa.DataType:
    if isinstance(of, Mapping):
        return pa.struct([(name, _arrow_type(inner)) for name, inner in of.items()])
    if isinstance(of, list):
        return pa.list_(_arrow_type(of[0]))
    types = {
        str: pa.string(),
        int: pa.int64(),
        INT32: pa.int32(),
        float: pa.float64(),
        datetime: pa.timestamp("us", tz="UTC"),
        date: pa.date32(),
    }
    return types[of]


@dataclass(frozen=True)
class Filter:
    """What to read: equality on any column, half-open bounds on a time column and its `date` partition, and a run.

    The last four are for the ledger's table alone. `above` (excluded) and `upto` (included) bound the `sequence` of
    entries. Entries of the epoch `apart_from` are left out. `not_zero` is a column and an epoch: entries of other
    epochs are read only where that column is not 0.
    """

    equals: tuple[tuple[str, str], ...] = ()
    from_: datetime | None = None
    to: datetime | None = None
    dates: tuple[date, ...] | None = None
    above: int | None = None
    upto: int | None = None
    apart_from: int | None = None
    not_zero: tuple[str, int] | None = None

    @classmethod
    def of(
        cls,
        pipeline: str | None = None,
        sink: str | None = None,
        from_: datetime | None = None,
        to: datetime | None = None,
        dates: tuple[date, ...] | None = None,
    ) -> Filter:
        """The rows of a pipeline and of a sink, where these are named."""
        named = (("pipeline", pipeline), ("sink", sink))
        return cls(tuple((column, name) for column, name in named if name is not None), from_, to, dates)

    def sql(self, time_column: str) -> str | None:
        """The filter as a SQL predicate, with the partition column first so that files are pruned."""
        terms = []
        if self.from_ is not None:
            terms.append(f"date >= DATE '{self.from_.date()}'")
            terms.append(f"{time_column} >= TIMESTAMP '{_instant(self.from_)}'")
        if self.to is not None:
            terms.append(f"date <= DATE '{self.to.date()}'")
            terms.append(f"{time_column} < TIMESTAMP '{_instant(self.to)}'")
        if self.dates is not None:
            days = ", ".join(f"DATE '{day}'" for day in self.dates)
            terms.append(f"date IN ({days})")
        if self.above is not None:
            terms.append(f"{SEQUENCE} > {self.above}")
        if self.upto is not None:
            terms.append(f"{SEQUENCE} <= {self.upto}")
        if self.apart_from is not None:
            terms.append(f"{EPOCH} <> {self.apart_from}")
        if self.not_zero is not None:
            count, epoch = self.not_zero
            terms.append(f"({count} IS NULL OR {count} <> 0 OR {EPOCH} = {epoch})")
        terms.extend(f"{name} = '{_quoted(value)}'" for name, value in self.equals)
        return " AND ".join(terms) or None

    def covers(self, day: date) -> bool:
        """Whether rows of a day may match."""
        if self.from_ is not None and day < self.from_.astimezone(UTC).date():
            return False
        if self.to is not None and day > self.to.astimezone(UTC).date():
            return False
        return self.dates is None or day in self.dates

    def files(self, adds: pa.Table, time_column: str) -> pa.Table:
        """The data files that may have matching rows, by the bounds of its columns that the log gives.

        `adds` has a row per file and the columns `min.NAME`, `max.NAME` and `null_count.NAME`, null where the log does
        not say.
        """
        for name, lowest, highest in self.bounds(time_column):
            if f"min.{name}" not in adds.column_names or f"max.{name}" not in adds.column_names:
                continue
            if lowest is not None:
                adds = adds.filter(_true_or_unknown(pc.greater_equal(adds[f"max.{name}"], arrow.scalar(lowest))))
            if highest is not None:
                adds = adds.filter(_true_or_unknown(pc.less_equal(adds[f"min.{name}"], arrow.scalar(highest))))
        return adds if self.not_zero is None else _but_zeros(adds, *self.not_zero)

    def bounds(self, time_column: str) -> list[Bound]:
        """The bounds of columns within which matching rows are."""
        return [
            *((name, of, of) for name, of in self.equals),
            (SEQUENCE, None if self.above is None else self.above + 1, self.upto),
            (time_column, None if self.from_ is None else self.from_ - _CUT_OFF, self.to),
        ]

    def columns(self, time_column: str) -> list[str]:
        """The columns that `mask` needs."""
        bounded = self.from_ is not None or self.to is not None
        by_place = self.above is not None or self.upto is not None
        return [
            *(name for name, _ in self.equals),
            *([time_column] if bounded else []),
            *([SEQUENCE] if by_place else []),
            *([EPOCH] if self.apart_from is not None or self.not_zero is not None else []),
            *([self.not_zero[0]] if self.not_zero is not None else []),
        ]

    def mask(self, rows: pa.Table, time_column: str) -> pa.ChunkedArray | None:
        """Which rows match; None when all do."""
        terms = [pc.equal(rows[name], arrow.scalar(value)) for name, value in self.equals]
        if self.from_ is not None:
            terms.append(pc.greater_equal(rows[time_column], arrow.scalar(self.from_)))
        if self.to is not None:
            terms.append(pc.less(rows[time_column], arrow.scalar(self.to)))
        if self.above is not None:
            terms.append(pc.greater(rows[SEQUENCE], arrow.scalar(self.above)))
        if self.upto is not None:
            terms.append(pc.less_equal(rows[SEQUENCE], arrow.scalar(self.upto)))
        if self.apart_from is not None:
            terms.append(pc.not_equal(rows[EPOCH], arrow.scalar(self.apart_from)))
        if self.not_zero is not None:
            count, epoch = self.not_zero
            other = _true_or_unknown(pc.not_equal(rows[count], arrow.scalar(0)))
            terms.append(pc.or_(other, pc.equal(rows[EPOCH], arrow.scalar(epoch))))
        terms = [term for term in terms if not pc.all(term, skip_nulls=False).as_py()]
        return reduce(pc.and_, terms) if terms else None


def _but_zeros(adds: pa.Table, count: str, epoch: int) -> pa.Table:
    """The files but those of which the log says that the count is 0 in all rows, and that none is of the epoch."""
    needed = (f"min.{count}", f"max.{count}", f"null_count.{count}", f"min.{EPOCH}", f"max.{EPOCH}")
    if not set(needed) <= set(adds.column_names):
        return adds
    lowest, highest, nulls, first, last = (adds[name] for name in needed)
    zero, of_epoch = arrow.scalar(0), arrow.scalar(epoch)
    zeros = reduce(pc.and_kleene, [pc.equal(bound, zero) for bound in (lowest, highest, nulls)])
    outside = pc.or_kleene(pc.greater(first, of_epoch), pc.less(last, of_epoch))
    return adds.filter(_true_or_unknown(pc.invert(pc.and_kleene(zeros, outside))))


def _true_or_unknown(mask: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.or_kleene(mask, pc.is_null(mask))


def _instant(at: datetime) -> str:
    return at.isoformat(timespec="microseconds")


def _quoted(value: str) -> str:
    return value.replace("'", "''")


class Store(ABC):
    """One Delta table of the ledger, partitioned by `date`."""

    # Whether the length of a chain is read without a Spark job.
    quick: ClassVar[bool] = True
    housekeeping: Housekeeping = USUAL

    def __init__(self, table: LedgerTable, housekeeping: Housekeeping = USUAL) -> None:
        """Nothing is read or created yet."""
        self.kind, self.schema, self.time_column = table.kind, table.schema, table.time
        self.added = table.added
        self.housekeeping = housekeeping

    @property
    @abstractmethod
    def location(self) -> str:
        """The table's path, URI or catalog name, for messages."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether the table has been created yet."""

    def append(self, rows: pa.Table, *, chain: str | None = None, after: int = 0, until: float | None = None) -> None:
        """Append rows; with `chain`, only if that chain still has `after` entries.

        While others write the table at the same moment it is tried again, up to `until`, by default for CONTENTION_S.

        Raises:
            ChainMoved: another writer extended the chain first; nothing was written.
            Contended: others wrote the table all that time; nothing was written.
            LedgerError: the table cannot be written.
        """
        try:
            self._despite_others(partial(self._append, rows, chain, after), until)
        except ChainMoved:
            # A store may make a commit and lose the answer: the next try meets its own rows.
            if not self._has(rows):
                raise

    def _has(self, rows: pa.Table) -> bool:
        """Whether the last of some rows of a chain is in the table; by its hash, which no other row has."""
        last = {name: arrow.values(rows[name].slice(rows.num_rows - 1))[0] for name in (ENTRY_HASH, "date")}
        which = Filter(equals=((ENTRY_HASH, last[ENTRY_HASH]),), dates=(last["date"],))
        return bool(self.read(which, [ENTRY_HASH]).num_rows)

    @abstractmethod
    def _append(self, rows: pa.Table, chain: str | None, after: int) -> None:
        """One try of `append`; raises what it raises."""

    def _despite_others(self, write: Callable[[], T], until: float | None = None) -> T:
        """What a write returns, tried again while it raises `Contended`."""
        return again(write, Contended, deadline() if until is None else until)

    def _contended(self) -> Contended:
        return Contended(f"the {self.kind} table {self.location}", self._after_failed_write)

    @property
    def _after_failed_write(self) -> str:
        """What to do when a write failed and its cause is gone, for messages."""
        if self.kind != "ledger":
            return "try again"
        return (
            "restart the query: what the sink has committed stays there, and the next start restores what is missing "
            "from the sink's own record"
        )

    def append_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows without their `date`, in one commit; nothing where there are none.

        Raises:
            LedgerError: the table cannot be written, or others wrote it all the time, as `append` says.
        """
        dated = [{**row, "date": row[self.time_column].date()} for row in rows]
        if dated:
            self.append(arrow.table(dated, self.schema))

    @abstractmethod
    def read(self, which: Filter, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows that match, in no particular order; an empty table when there is no table yet."""

    def holding(self, which: Filter, place: Place) -> list[int]:
        """The sequences of the entries that match and whose ranges hold an offset; a day of entries is read at once."""
        names = [*(name for name, _ in which.equals), SEQUENCE, NESTED]
        found: list[int] = []
        for day in self.dates():
            rows = self.read(replace(which, dates=(day,)), names)
            found += holding(rows, which.equals, place) if rows.num_rows else []
        return found

    @abstractmethod
    def length(self, chain: str) -> int:
        """How many entries the chain has."""

    @abstractmethod
    def dates(self) -> list[date]:
        """The days that have rows, ascending."""

    def rows_by_day(self) -> Mapping[date, int]:
        """How many rows each day has, as the log says without a Spark job; without days of which it does not say it."""
        return {}

    @abstractmethod
    def operations(self, after: int | None = None) -> list[tuple[int, str]]:
        """(version, operation) of the table's own history after a version, as far as it is kept, ascending."""

    @abstractmethod
    def small_files(self) -> int:
        """How many data files the fullest day has; many of them make a read slow."""

    @abstractmethod
    def compact(self, *, growing: bool = False) -> Mapping[str, Any]:
        """Merge small files; returns the operation's metrics.

        A day of files becomes one. If rows are still appended to the fullest day, it is `growing`: its files become
        some larger ones, so that the next merge rewrites only a part of the day.

        Raises:
            BeingMerged: another process does so at the moment.
            Contended: others wrote the table at the same moment. It is not tried again: a merge can wait.
            LedgerError: the table cannot be written.
        """

    def tidy(self) -> None:
        """Merge small files where a day has gathered many, so that reading it stays cheap."""
        if self.small_files() > self.housekeeping.many_files:
            with suppress(BeingMerged, Contended):
                self.compact(growing=True)

    @abstractmethod
    def vacuum(self, *, appended_only: bool = False) -> None:
        """Remove the files that merges replaced at least two days ago, at most once a day.

        That includes files with rows that somebody deleted. In a table that is `appended_only` they are evidence: once
        its log shows an operation that changed rows, no file is removed.

        Raises:
            LedgerError: the table cannot be written.
        """

    @abstractmethod
    def forget(self, upto: date) -> None:
        """Remove whole days up to and including one, and the files that nothing refers to any more.

        Raises:
            LedgerError: the table cannot be written.
        """

    @abstractmethod
    def remove(self, predicate: str) -> None:
        """Remove the rows that meet an SQL predicate.

        Raises:
            LedgerError: the table cannot be written.
        """

    def _for_table(self, rows: pa.Table, stored: Collection[str]) -> pa.Table:
        """Rows without the columns that the table lacks and that say nothing; `stored` are the table's columns.

        A column that says something is added to the table by the commit. Other writers' commits at that moment are
        refused and tried again, so that nobody adds one without need.
        """
        silent = [n for n in self.added if n not in stored and rows[n].null_count == rows.num_rows]
        return rows.drop_columns(silent) if silent else rows

    def _description(self) -> str:
        return f"recon {self.kind}, schema version {SCHEMA_VERSION}"

    def _check_version(self, description: str | None) -> None:
        version = re.search(r"schema version (\d+)", description or "")
        if version is None:
            raise LedgerError(
                f"{self.location} is a Delta table but not recon's {self.kind} (its description is "
                f"{description!r}); point `ledger:` in recon.yml at another folder"
            )
        if int(version[1]) > SCHEMA_VERSION:
            raise LedgerError(
                f"{self.location} has schema version {version[1]} and this recon reads up to {SCHEMA_VERSION}; "
                "upgrade spark-recon"
            )


def operation_of(commit: Mapping[str, Any]) -> str:
    """The operation of a commit of a ledger table, such as `WRITE`; another write than an append with its mode."""
    operation = str(commit.get("operation") or "UNKNOWN")
    mode = str((commit.get("operationParameters") or {}).get("mode", "")).lower()
    # An overwrite is a WRITE too, and only an append is allowed in a ledger.
    return f"{operation} {mode}" if operation == "WRITE" and mode != "append" else operation


def one_line(error: BaseException) -> str:
    """A library's error in one line: delta-rs draws a tree of causes, in colours."""
    text = re.sub(r"\x1b\[\d+m|↳", "", str(error).strip() or type(error).__name__)
    return ": ".join(line.strip() for line in text.splitlines()[:4] if line.strip())[:400]
