"""Sinks that recon.yml no longer has under their names: what audits found of them stays until it is accepted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import cached_property

from recon.base.errors import ReconError
from recon.base.storage import Storage
from recon.base.text import first_line, plural
from recon.project import Pipeline, Project
from recon.witness import checkpoint
from recon.write.ledger import Ledger


class GoneSinks:
    """The (pipeline, sink) that have states in the table `proof`, and that recon.yml does not name."""

    def __init__(self, project: Project, ledger: Ledger) -> None:
        """Nothing is read yet; the table is read once."""
        self._project, self._ledger = project, ledger

    @cached_property
    def names(self) -> Sequence[tuple[str, str]]:
        """All of them.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        named = {(pipe.name, sink.name) for pipe in self._project.pipelines for sink in pipe.sinks}
        return [names for names in self._ledger.proofs.chains() if names not in named]

    def of(self, pipeline: Pipeline) -> Iterator[tuple[str, str]]:
        """Those of a pipeline's query.

        A pipeline that was renamed has the query of its checkpoint still: its entries and the checkpoint have one
        query_id.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        yield from (names for names in self.names if names[0] == pipeline.name)
        pipelines = {pipe.name for pipe in self._project.pipelines}
        others = [names for names in self.names if names[0] not in pipelines]
        query = self._query_id(pipeline) if others else None
        for names in others:
            entry = self._ledger.tail(*names)
            if entry is not None and query is not None and entry.query_id == query:
                yield names

    def notes(self, judged: Collection[tuple[str, str]]) -> Iterator[str]:
        """What is open of those that the answer of no pipeline rests on; `judged` are the others."""
        try:
            for names in self.names:
                state = self._ledger.proofs.newest(*names) if names not in judged else None
                waiting = {o.id for o in state.open if o.accepted is None} if state is not None else set()
                if waiting:
                    yield (
                        f"pipeline {names[0]}, sink {names[1]}, which recon.yml no longer has under these names, has "
                        f"{plural(len(waiting), 'open finding')}, on which no answer here rests; list with `recon "
                        f"findings --pipeline {names[0]} --sink {names[1]}`, and decide each with `recon accept`"
                    )
        except Exception as error:  # whatever a store raises
            yield f"what is open of sinks that recon.yml no longer has is not known: {first_line(error)}"

    def _query_id(self, pipeline: Pipeline) -> str | None:
        """The query's id, as its checkpoint has it; None where it cannot be read."""
        with suppress(ReconError):
            state = Storage(self._project.resolve(pipeline.checkpoint), self._project.storage_options)
            return checkpoint.read(state, positions=False).query_id
        return None
