"""The books as a table: a row for each sink and day, or month where there are many, and whether its sums balance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from itertools import groupby
from typing import Any, Literal, NamedTuple

from recon.base.counts import sum_of
from recon.base.text import plural
from recon.model.books import BookLine

_DAYS_AT_MOST = 31
Balance = Literal["balances", "differs", "not known"]

# What a line that differs says, by the number that is not 0.
_SAID = {
    "passed_over": "in versions that no micro-batch read",
    "unread": "in the versions read, but not read",
    "more_read": "read, but not in the versions read",
    "again": "read again",
    "unwritten": "returned by the transform, but neither quarantined nor written",
    "more_written": "quarantined or written, but not returned by the transform",
}
_ADDED = ("micro_batches", "lost", "twice", *_SAID, "unknown_writes")
_COUNTED = ("written_before", "read", "filtered", "made", "quarantined", "written", "released_or_repaired")


class Row(NamedTuple):
    """A line of the books, of the day or month `when`; `said` is why it differs, or why it is not known."""

    when: str
    line: BookLine
    balance: Balance
    said: str


class OfSink(NamedTuple):
    """The rows of one sink."""

    rows: Sequence[Row]

    @property
    def said(self) -> str:
        """Why no row's balance is known, where all have the same reason; "" else."""
        reasons = {(row.balance, row.line.unknown) for row in self.rows}
        alike = len(reasons) == 1 and self.rows[0].balance == "not known"
        return "; ".join(self.rows[0].line.unknown) if alike else ""


class Books(NamedTuple):
    """The rows, hop after hop; which columns have anything to show. `left_out` rows are not shown."""

    rows: Sequence[Row]
    left_out: int
    of_months: bool
    has_tables: bool
    has_made: bool
    has_later: bool
    has_twice: bool

    @property
    def by_sink(self) -> Sequence[OfSink]:
        """The rows of each sink, hop after hop."""
        of_sinks = groupby(self.rows, key=lambda row: (row.line.pipeline, row.line.sink))
        return [OfSink(list(rows)) for _, rows in of_sinks]

    @property
    def columns(self) -> int:
        """How many columns the table has."""
        return 8 + self.has_tables + self.has_made + self.has_later + self.has_twice


def table(lines: Sequence[BookLine], most: int | None = None) -> Books:
    """The table of some lines; of more than `most` rows, those that do not balance and the newest."""
    of_months = len({line.day for line in lines}) > _DAYS_AT_MOST
    shown = list(_months(lines)) if of_months else list(lines)
    form = "%Y-%m" if of_months else "%Y-%m-%d"
    rows = [Row(f"{line.day:{form}}", line, *balance(line)) for line in shown]
    kept = sorted(range(len(rows)), key=lambda at: (rows[at].balance != "differs", -shown[at].day.toordinal()))[:most]
    return Books(
        rows=[rows[at] for at in sorted(kept)],
        left_out=len(rows) - len(kept),
        of_months=of_months,
        has_tables=any(line.reads_table for line in shown),
        has_made=any(line.made for line in shown),
        has_later=any(line.released_or_repaired != 0 for line in shown),
        has_twice=any(line.twice for line in shown),
    )


def balance(line: BookLine) -> tuple[Balance, str]:
    """Whether all sums of a line add up, and what to say where one does not, or where this is not known."""
    said = [f"{plural(rows, 'row')} {words}" for name, words in _SAID.items() if (rows := getattr(line, name))]
    if line.lost:
        said.append(f"{line.lost:,} lost")
    if line.twice:
        said.append(f"{line.twice:,} twice")
    unknown = [f"of {plural(line.unknown_writes, 'write')} it is not known: {'; '.join(line.unknown)}"]
    if said:
        return "differs", "; ".join([*said, *(unknown if line.unknown else [])])
    return ("not known", unknown[0]) if line.unknown else ("balances", "")


def _months(lines: Iterable[BookLine]) -> Iterator[BookLine]:
    """The lines of each sink and month as one, with the month's first day; differences add up, and none cancels."""
    months: dict[tuple[str, str, date], list[BookLine]] = defaultdict(list)
    for line in lines:
        months[line.pipeline, line.sink, line.day.replace(day=1)].append(line)
    for (_, _, first), of_month in months.items():
        sums: dict[str, Any] = {name: sum(getattr(line, name) for line in of_month) for name in _ADDED}
        sums |= {name: sum_of(getattr(line, name) for line in of_month) for name in _COUNTED}
        unknown = tuple(dict.fromkeys(why for line in of_month for why in line.unknown))
        yield replace(of_month[0], day=first, unknown=unknown, **sums)
