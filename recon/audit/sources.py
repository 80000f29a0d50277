"""Reads one witness of a pipeline at a time, from where recon.yml says it is; `collect` decides when and how often."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime

from recon.audit.session import AuditSession
from recon.checks.engine.runner import Answers, Questions
from recon.evidence import checkpoint, delta_log
from recon.ledger import Ledger, open_ledger, quarantined
from recon.ledger.progress import PROGRESS, read_progress
from recon.ledger.store import open_store
from recon.model import (
    CheckpointWitness,
    DeltaWitness,
    KafkaWitness,
    ProgressWitness,
    RowsWitness,
    SinkLog,
    Unavailable,
)
from recon.project import Pipeline, Project, Sink
from recon.sinks import open_sink
from recon.storage import Storage

_NAMED_FILES = 1000


@dataclass(frozen=True)
class Sources:
    """Where the witnesses of one pipeline are. Every method may raise."""

    project: Project
    pipeline: Pipeline
    session: AuditSession

    def ledger(self) -> Ledger:
        """The ledger, opened anew."""
        return open_ledger(self.project, self.session.for_ledger())

    def checkpoint(self) -> CheckpointWitness:
        """The query's checkpoint."""
        return checkpoint.read(self._storage(self.pipeline.checkpoint))

    def delta_log(self, sink: Sink, from_version: int | None, *, files: bool) -> DeltaWitness:
        """The log of a sink that is a Delta table; with `files`, what its data files are."""
        return delta_log.read(self._storage(sink.target), from_version=from_version, files=files)

    def sink_log(self, sink: Sink, since: datetime | None) -> SinkLog:
        """The record that a sink which is no Delta table keeps of recon's writes."""
        return open_sink(self.project, self.pipeline.name, sink).log(since=since)

    def quarantine_log(self, sink: Sink) -> DeltaWitness | None:
        """The log of a sink's quarantine table; None where it has none."""
        table = quarantined.location(self.project, self.pipeline.name, sink)
        return None if table is None else delta_log.read(self._storage(table))

    def kafka(self, topics: Sequence[str], positions: Mapping[tuple[str, int], int]) -> KafkaWitness:
        """The topics as Kafka describes them; `positions` is how far the stream has come."""
        from recon.evidence import kafka

        isolation = self.pipeline.source.isolation_level
        return kafka.read(self.project.kafka, topics, isolation_level=isolation, positions=positions)

    def probe(self, questions: Questions) -> Answers:
        """What Kafka's own records say about some offsets."""
        from recon.evidence import kafka_probe

        return kafka_probe.probe(self.project.kafka, questions)

    def progress(self, since: datetime, until: datetime | None, samples: int) -> ProgressWitness:
        """What a listener recorded of each micro-batch; of `samples` micro-batches with their offsets."""
        store = open_store(self.project, PROGRESS, self.session.for_ledger())
        return read_progress(store, self.pipeline.name, since, until, samples=samples)

    def rows(
        self, sink: Sink, first_batch: int | None, others: Sequence[int], *, lacking: bool
    ) -> RowsWitness | Unavailable:
        """The rows of a sink as groups, of the micro-batches from `first_batch` on; Spark jobs.

        `others` are versions of a Delta table in which other programs added rows. `lacking` is True where the store
        lacks data files of it: the rows of the files that are left are read.
        """
        from recon.evidence import sink_rows
        from recon.quarantine import groups as quarantine_groups

        spark = self.session.for_rows()
        if isinstance(spark, Unavailable):
            return spark
        location = self.project.location(sink)
        if sink.is_delta:
            with sink_rows.without_missing_files(spark) if lacking else nullcontext():
                rows = sink_rows.read(spark, location, first_batch=first_batch)
                if others:
                    rows = replace(rows, repeated=sink_rows.repeated(spark, location, self._files(sink, others)))
        else:
            table = open_sink(self.project, self.pipeline.name, sink).table(spark)
            rows = sink_rows.read(spark, table, location=location, first_batch=first_batch)
        place = quarantined.location(self.project, self.pipeline.name, sink)
        if place is None or not quarantined.exists(self._storage(place)):
            return rows
        return replace(rows, quarantined=quarantine_groups.read(spark, place, first_batch=first_batch))

    def _files(self, sink: Sink, versions: Sequence[int]) -> Collection[str] | None:
        """The names of the data files that versions of a Delta table added; None where these are too many to name."""
        names: set[str] = set()
        for version in versions:
            if len(names) > _NAMED_FILES:
                return None
            names |= {file.rpartition("/")[2] for file in delta_log.added_files(self._storage(sink.target), version)}
        return names

    def _storage(self, location: str) -> Storage:
        return Storage(self.project.resolve(location), self.project.storage_options)
