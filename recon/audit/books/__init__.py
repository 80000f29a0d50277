"""The books of a project's pipelines, from ledger entries: hop by hop, sink by sink, day by day.

`tables` has what sinks wrote into the tables between two hops, `chain` which pipeline reads which of them, `harmed`
which entries findings are about; `lines` compares the counts of each entry and adds them up by days.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from recon.audit.books.chain import Chain
from recon.audit.books.lines import Days, SinkBook
from recon.audit.books.tables import Names, Writes, tables_of, writes_of
from recon.audit.incidents import Item
from recon.ledger import Ledger
from recon.model import LedgerSlice
from recon.model.books import BookLine
from recon.project import Project
from recon.text import first_line

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
    tables, days = tables_of(project, writes), Days(period)
    chain = Chain(project, slices, tables)
    lines: list[BookLine] = []
    for pipeline in project.pipelines:
        for sink in pipeline.sinks:
            names = (pipeline.name, sink.name)
            if names in slices:
                lines += SinkBook(pipeline, sink, slices[names], tables, chain, days).lines(items.get(names, ()))
    return tuple(sorted(lines, key=lambda line: (line.hop, line.pipeline, line.sink, line.day)))


def of_ledger(
    project: Project,
    ledger: Ledger,
    slices: Mapping[Names, LedgerSlice],
    items: Mapping[Names, Sequence[Item]],
    period: Period = (None, None),
) -> tuple[tuple[BookLine, ...], Sequence[str]]:
    """The books, with what the ledger has of tables between hops; where they cannot be computed, a sentence instead."""
    try:
        return books(project, slices, items, writes=writes_of(project, ledger, slices), period=period), ()
    except Exception as error:  # whatever an edited ledger leads to: the report does not fall with its books
        return (), [f"The books could not be computed: {type(error).__name__}: {first_line(error)}"]


__all__ = ["books", "of_ledger"]
