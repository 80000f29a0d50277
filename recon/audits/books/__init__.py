"""The books of a project's pipelines, from ledger entries: hop by hop, sink by sink, day by day.

`tables` has what sinks wrote into the tables between two hops, `chain` which pipeline reads which of them. `harmed`
finds the entries that findings are about. `lines` compares the counts of each entry and adds them up by days.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from recon.audits.books.chain import Chain
from recon.audits.books.lines import Days, SinkBook
from recon.audits.books.tables import Names, Writes, tables_of, writes_of
from recon.audits.incidents import Item
from recon.base.text import first_line
from recon.model import LedgerSlice
from recon.model.books import BookLine
from recon.project import Project
from recon.write.ledger import Ledger

Period = tuple[datetime | None, datetime | None]


def books(
    project: Project,
    slices: Mapping[Names, LedgerSlice],
    items: Mapping[Names, Sequence[Item]],
    *,
    writes: Writes,
    period: Period = (None, None),
) -> tuple[BookLine, ...]:
    """A line for each sink and each day on which entries of the slices wrote to it.

    Args:
        project: whose pipelines these are.
        slices: the ledger by (pipeline, sink); what is before its anchors is not of the period.
        items: what findings say of each sink.
        writes: what sinks wrote into the tables that pipelines read, in the order of the chain, without a break, also
            before and behind the slices: what is not among it nobody knows.
        period: begin and end; an entry of another day, as a clock that jumped left it, counts for the first or last.
    """
    found = _books(project, slices, writes, period)
    return _sorted(line for names, book in found.items() for line in book.lines(items.get(names, ())))


def _books(
    project: Project, slices: Mapping[Names, LedgerSlice], writes: Writes, period: Period
) -> Mapping[Names, SinkBook]:
    """The book of each sink that has a slice."""
    tables, days = tables_of(project, writes), Days(period)
    chain = Chain(project, slices, tables)
    return {
        (pipeline.name, sink.name): SinkBook(pipeline, sink, slices[pipeline.name, sink.name], tables, chain, days)
        for pipeline in project.pipelines
        for sink in pipeline.sinks
        if (pipeline.name, sink.name) in slices
    }


def _sorted(lines: Iterable[BookLine]) -> tuple[BookLine, ...]:
    return tuple(sorted(lines, key=lambda line: (line.hop, line.pipeline, line.sink, line.day)))


def of_ledger(
    project: Project,
    ledger: Ledger,
    slices: Mapping[Names, LedgerSlice],
    items: Mapping[Names, Sequence[Item]],
    period: Period = (None, None),
) -> tuple[tuple[BookLine, ...], Sequence[str]]:
    """The books, with what the ledger has of tables between hops; where a sink's cannot be computed, a sentence."""
    try:
        found = _books(project, slices, writes_of(project, ledger, slices), period)
    except Exception as error:  # whatever an edited ledger leads to: the report is written without its books
        return (), [f"The books could not be computed: {type(error).__name__}: {first_line(error)}"]
    lines: list[BookLine] = []
    notes = []
    for (pipeline, sink), book in found.items():
        try:
            lines += [*book.lines(items.get((pipeline, sink), ()))]
        except Exception as error:  # and the other sinks' books are written, too
            of = f"pipeline {pipeline}, sink {sink}"
            notes.append(f"The books of {of} could not be computed: {type(error).__name__}: {first_line(error)}")
    return _sorted(lines), notes


__all__ = ["books", "of_ledger"]
