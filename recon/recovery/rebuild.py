"""Crash repair: restores ledger entries that a crash left out, from the sinks' own records."""

from __future__ import annotations

from collections.abc import Iterable

from recon.ledger import open_ledger
from recon.ledger.rebuild import quarantine_of, recorded, restore
from recon.model import LedgerEntry
from recon.project import Pipeline, Project, Sink
from recon.sinks import open_sink


def rebuild(project: Project, pipeline: str | None = None, sink: str | None = None) -> list[LedgerEntry]:
    """Restores the missing entries of all sinks, or of the named ones, as far as the sinks' own records go back.

    Raises:
        LedgerError: the ledger cannot be written.
        EvidenceError: a sink's record cannot be read.
    """
    ledger = open_ledger(project)
    restored: list[LedgerEntry] = []
    for pipe, out in _chosen(project, pipeline, sink):
        restored += restore(
            ledger,
            pipe.name,
            out,
            open_sink(project, pipe.name, out).log().commits,
            target=project.location(out),
            known=recorded(ledger, pipe.name, out.name),
            quarantine=lambda pipe=pipe, out=out: quarantine_of(project, pipe.name, out),  # type: ignore[misc]
        )
    return restored


def _chosen(project: Project, pipeline: str | None, sink: str | None) -> Iterable[tuple[Pipeline, Sink]]:
    for pipe in project.pipelines:
        for out in pipe.sinks:
            if pipeline in (None, pipe.name) and sink in (None, out.name):
                yield pipe, out
