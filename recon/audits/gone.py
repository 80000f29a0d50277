"""Sinks that recon.yml no longer has under their names: what audits found of them stays until it is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from recon.base.errors import ReconError
from recon.base.storage import Storage
from recon.project import Pipeline, Project
from recon.witness import checkpoint
from recon.write.ledger import Ledger


def gone_chains(project: Project, pipeline: Pipeline, ledger: Ledger) -> Iterator[tuple[str, str]]:
    """The (pipeline, sink) of a pipeline's query that have states, and that recon.yml does not name.

    A pipeline that was renamed has the query of its checkpoint still: its entries and the checkpoint have one query_id.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    named = {(pipe.name, sink.name) for pipe in project.pipelines for sink in pipe.sinks}
    pipelines = {pipe.name for pipe in project.pipelines}
    gone = [names for names in ledger.proofs.chains() if names not in named]
    yield from (names for names in gone if names[0] == pipeline.name)
    others = [names for names in gone if names[0] not in pipelines]
    query = _query_id(project, pipeline) if others else None
    for names in others:
        entry = ledger.tail(*names)
        if entry is not None and query is not None and entry.query_id == query:
            yield names


def _query_id(project: Project, pipeline: Pipeline) -> str | None:
    """The query's id, as its checkpoint has it; None where it cannot be read."""
    with suppress(ReconError):
        state = Storage(project.resolve(pipeline.checkpoint), project.storage_options)
        return checkpoint.read(state, positions=False).query_id
    return None
