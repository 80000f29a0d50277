"""Crash repair: restores ledger entries that a crash left out, from the sinks' own records."""

from __future__ import annotations

from recon.model import LedgerEntry
from recon.project import Project
from recon.spark.catalog import ask_active
from recon.write.ledger import open_ledger
from recon.write.ledger.rebuild import missing, restore
from recon.write.sinks import open_sink


def rebuild(project: Project, pipeline: str | None = None, sink: str | None = None) -> list[LedgerEntry]:
    """Restores the missing entries of all sinks, or of the named ones, as far as the sinks' own records go back.

    Raises:
        LedgerError: the ledger cannot be written.
        EvidenceError: a sink's record cannot be read.
    """
    ask_active(project)
    ledger = open_ledger(project)
    restored: list[LedgerEntry] = []
    for pipe in project.pipelines:
        for out in pipe.sinks:
            if pipeline in (None, pipe.name) and sink in (None, out.name):
                commits = missing(ledger, pipe.name, out.name, [], open_sink(project, pipe.name, out).log)
                restored += restore(project, ledger, pipe.name, out, commits)
    return restored
