"""Which pipeline reads the table that another one writes, and which hop of the chain it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from recon.audits.books.tables import Names, WrittenTable
from recon.model import LedgerSlice
from recon.model.delta_offsets import is_delta, table_of
from recon.project import Pipeline, Project


@dataclass(frozen=True)
class Chain:
    """Which pipeline reads what another one writes: by recon.yml, and by the ids of tables in the ledger."""

    project: Project
    slices: Mapping[Names, LedgerSlice]
    tables: Mapping[str, WrittenTable]

    @cached_property
    def sources(self) -> Mapping[str, Sequence[Names]]:
        """Pipeline -> the sinks whose table it reads."""
        return {pipeline.name: self._sources(pipeline) for pipeline in self.project.pipelines}

    def _sources(self, pipeline: Pipeline) -> Sequence[Names]:
        if pipeline.source.delta is None:
            return ()
        location = self.project.table_location(pipeline.source.delta)
        by_name = [
            (other.name, sink.name)
            for other in self.project.pipelines
            for sink in other.sinks
            if sink.is_delta and self.project.location(sink) == location
        ]
        ids = {
            table_of(topic)
            for sink in pipeline.sinks
            if (pipeline.name, sink.name) in self.slices
            for _, topic, _ in self.slices[pipeline.name, sink.name].ranges.topics
            if is_delta(topic)
        }
        by_id = [names for table_id in sorted(ids & self.tables.keys()) for names in self.tables[table_id].sinks]
        return tuple(dict.fromkeys([*by_name, *by_id]))

    @cached_property
    def hops(self) -> Mapping[str, int]:
        """The hop of each pipeline; those that read each other's tables in a circle have one."""
        above = {name: self._above(name) for name in self.sources}
        found: dict[str, int] = {}
        # A pipeline has fewer before it than those behind it have.
        for name in sorted(above, key=lambda name: len(above[name] - {name})):
            before = [writer for writer in above[name] if name not in above[writer]]
            found[name] = 1 + max((found[writer] for writer in before), default=0)
        return found

    def _above(self, name: str) -> set[str]:
        """The pipelines before one, however far."""
        found: set[str] = set()
        waiting = [writer for writer, _ in self.sources[name]]
        while waiting:
            writer = waiting.pop()
            if writer not in found:
                found.add(writer)
                waiting += [other for other, _ in self.sources[writer]]
        return found
