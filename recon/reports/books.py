"""The books as a table: a row for each sink and day, or month where there are many, and whether its sums balance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from itertools import groupby
from typing import Literal, NamedTuple

from recon.counts import sum_of
from recon.model.books import BookLine
from recon.text import plural

_DAYS_AT_MOST = 31
Balance = Literal["balances", "differs", "not known"]


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
        reasons = {(row.balance, row.said) for row in self.rows}
        return self.rows[0].said if len(reasons) == 1 and self.rows[0].balance == "not known" else ""


class Books(NamedTuple):
    """The rows, hop after hop; which columns have anything to show. `left_out` rows are not shown."""

    rows: Sequence[Row]
    left_out: int
    of_months: bool
    has_tables: bool
    has_made: bool
    has_released: bool
    has_routes: bool

    @property
    def by_sink(self) -> Sequence[OfSink]:
        """The rows of each sink, hop after hop."""
        return [
            OfSink(list(rows)) for _, rows in groupby(self.rows, key=lambda row: (row.line.pipeline, row.line.sink))
        ]

    @property
    def columns(self) -> int:
        """How many columns the table has."""
        return 8 + 3 * self.has_tables + self.has_made + self.has_released


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
        has_tables=any(line.arrived is not None for line in shown),
        has_made=any(line.made for line in shown),
        has_released=any(line.released for line in shown),
        has_routes=any(line.routed for line in shown),
    )


def balance(line: BookLine) -> tuple[Balance, str]:
    """Whether both sums of a line add up, and what to say where they do not, or where this is not known.

    Of a hop that reads what no pipeline of the project writes, only the second one can be known.
    """
    said = []
    if line.unread:
        more = f"{plural(-line.unread, 'row')} more read than arrived"
        said.append(f"{plural(line.unread, 'row')} arrived and neither read nor waiting" if line.unread > 0 else more)
    if line.unwritten:
        fewer = f"{plural(line.unwritten, 'row')} read and neither filtered, quarantined nor written"
        said.append(fewer if line.unwritten > 0 else f"{plural(-line.unwritten, 'row')} more written than read")
    if said:
        return "differs", "; ".join(said)
    unknown = [line.unknown_rows] if line.unwritten is None else []
    if line.hop > 1 and line.unread is None:
        unknown.append(line.unknown_source)
    if unknown:
        return "not known", "; ".join(one or "a count is missing" for one in unknown)
    return "balances", ""


def _months(lines: Iterable[BookLine]) -> Iterator[BookLine]:
    """The lines of each sink and month as one, with the month's first day."""
    months: dict[tuple[str, str, date], list[BookLine]] = defaultdict(list)
    for line in lines:
        months[line.pipeline, line.sink, line.day.replace(day=1)].append(line)
    for (_, _, first), of_month in months.items():
        yield replace(
            of_month[0],
            day=first,
            micro_batches=sum(line.micro_batches for line in of_month),
            arrived=sum_of(line.arrived for line in of_month),
            read=sum_of(line.read for line in of_month),
            filtered=sum_of(line.filtered for line in of_month),
            made=sum_of(line.made for line in of_month),
            quarantined=sum_of(line.quarantined for line in of_month),
            written=sum_of(line.written for line in of_month),
            released=sum_of(line.released for line in of_month),
            lost=sum(line.lost for line in of_month),
            waiting_after=of_month[-1].waiting_after,
            unknown_source=next((line.unknown_source for line in of_month if line.unknown_source), ""),
            unknown_rows=next((line.unknown_rows for line in of_month if line.unknown_rows), ""),
        )
