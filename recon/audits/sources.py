"""Reads one witness of a pipeline at a time, from where recon.yml says it is; `collect` decides when and how often."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from recon.audits.session import AuditSession
from recon.base.errors import EvidenceError
from recon.base.limits import STATEMENT_S, within
from recon.base.storage import Storage
from recon.judge.history.record_history import TableJudged
from recon.model import (
    CheckpointWitness,
    CommitRows,
    KafkaWitness,
    ProgressWitness,
    QuarantinedRows,
    RowGroup,
    RowSearch,
    RowsWitness,
    SinkLog,
    SourceLog,
    TableLog,
    Unavailable,
)
from recon.model.deletion import AskedDeletion, DeletedRows
from recon.model.erasure import Erasure
from recon.model.evidence import Answers, Questions
from recon.model.offsets import OffsetSpan, Span
from recon.model.wire.columns import OWN_NAMES
from recon.project import Pipeline, Project, Sink
from recon.witness import checkpoint, commit_rows, deleted_rows, delta_log, quarantine_rows, source_files, source_table
from recon.witness.kafka_admin import UnreachableError
from recon.write.ledger import Ledger, quarantined
from recon.write.ledger.erasures import ErasureTable
from recon.write.ledger.progress import read_progress
from recon.write.observer import ObservationResult, look
from recon.write.sinks import BatchSink, open_sink

_NAMED_FILES = 1000
T = TypeVar("T")


class Brokers:
    """The brokers of an audit: where one cannot be reached, that is its answer for all pipelines, found out once."""

    def __init__(self) -> None:
        self._unreachable: dict[str, str] = {}

    def ask(self, conf: Mapping[str, str], question: Callable[[], T]) -> T:
        """The answer to a question that is put to the broker of these settings.

        Raises:
            EvidenceError: the broker cannot be reached, now or when it was asked before; or what the question raises.
        """
        servers = conf.get("bootstrap.servers", "")
        if servers in self._unreachable:
            raise EvidenceError(self._unreachable[servers])
        try:
            return question()
        except UnreachableError as error:
            self._unreachable[servers] = str(error)
            raise


@dataclass(frozen=True)
class Sources:
    """Where the witnesses of one pipeline are. A method raises what its reader raises, also errors of a store."""

    project: Project
    pipeline: Pipeline
    session: AuditSession
    brokers: Brokers = field(default_factory=Brokers)

    def ledger(self) -> Ledger:
        """The ledger."""
        return self.session.ledger()

    def other_writers(self, sink: Sink) -> Sequence[tuple[Sources, Sink]]:
        """The other pipelines of recon.yml that write the table of a sink, each with its sink."""
        found = self.project.other_writers(self.pipeline, sink)
        return [(replace(self, pipeline=pipeline), its) for pipeline, its in found]

    def observe(self) -> ObservationResult:
        """Enters what the query wrote without recon since the last look."""
        return look(self.project, self.pipeline, self.session.ledger(), self.brokers.ask)

    def checkpoint(self) -> CheckpointWitness:
        """The query's checkpoint."""
        return checkpoint.read(self._storage(self.pipeline.checkpoint), positions=not self.pipeline.of_kafka)

    def source_log(self, ranges: Collection[OffsetSpan]) -> SourceLog:
        """What the query reads besides Kafka, by the log of it: a Delta table or files; `ranges` are what it read.

        Raises:
            EvidenceError: the pipeline reads Kafka; the log, or the folder, cannot be read.
        """
        source = self.pipeline.source
        if source.files is not None:
            state, folder = self._storage(self.pipeline.checkpoint), self._storage(source.files)
            return source_files.read(state, folder, ranges, self.project.listing(source))
        if source.delta is None:
            raise EvidenceError(f"pipeline {self.pipeline.name} reads Kafka")
        table = self._located(self.project.table_location(source.delta))
        return source_table.read(table, ranges, source.passes)

    def history(self, sink: Sink, from_version: int | None, *, files: bool) -> TableLog:
        """The log of a sink that is a Delta or an Iceberg table; with `files`, what its data files are."""
        if not sink.is_delta:
            return open_sink(self.project, self.pipeline.name, sink).history(from_version, files=files)
        return delta_log.read(self._table(sink), from_version=from_version, files=files)

    def commit_rows(self, sink: Sink, versions: Sequence[int]) -> Mapping[int, CommitRows | Unavailable]:
        """The rows of the data files that versions of a Delta or an Iceberg table added."""
        if not sink.is_delta:
            return open_sink(self.project, self.pipeline.name, sink).commit_rows(versions)
        names = self.pipeline.source_names(sink)
        return commit_rows.read(self._table(sink), versions, names) if names is not None else {}

    def deleted_rows(self, sink: Sink, asked: Sequence[AskedDeletion]) -> Mapping[int, DeletedRows | Unavailable]:
        """The rows that commits of a Delta or an Iceberg table deleted."""
        if not sink.is_delta:
            return open_sink(self.project, self.pipeline.name, sink).deleted_rows(asked)
        names = self.pipeline.source_names(sink)
        return deleted_rows.read(self._table(sink), asked, names) if names is not None else {}

    def rows_together(self, sink: Sink, versions: Sequence[int]) -> CommitRows | Unavailable:
        """The rows of some versions of a Delta table that a function of the user's own writes, as if one had them."""
        names = self.pipeline.source_names(sink)
        if names is None:
            return Unavailable("commit_rows", "recon.yml names no source_columns")
        return commit_rows.together(self._table(sink), versions, names)

    def sink_log(
        self, sink: Sink, since: datetime | None, topics: Collection[str], known: TableJudged | None = None
    ) -> SinkLog:
        """The record that a sink which is no Delta table keeps of recon's writes, and what happened to these since.

        `topics` are those that the sink reads; `known` is what an earlier audit counted.
        """
        counted, summed = known.record if known is not None else None, known.fingerprint if known is not None else None
        up_to = counted[0] if counted is not None else 0
        of_known = summed.newest if summed is not None else 0
        writer = open_sink(self.project, self.pipeline.name, sink)
        log = self._record(sink, writer, since)
        if not log.exists:
            return log
        if not log.gone:
            log = replace(log, table=self._looked_at(sink, partial(writer.count, topics, since, of_known), "rows"))
        if not log.recorded:
            return log
        return replace(
            log,
            other_rows=self._looked_at(sink, writer.other_rows, "rows"),
            changes=self._looked_at(sink, partial(writer.changes, since), "changes"),
            record=self._looked_at(sink, partial(writer.record_count, up_to), "record"),
        )

    def _record(self, sink: Sink, writer: BatchSink, since: datetime | None) -> SinkLog:
        client = sink.client_settings(self.project.kafka)
        if client is not None:
            return self.brokers.ask(client, lambda: writer.log(since=since))
        if sink.jdbc_url is not None:
            slow = f"the database's record of sink {sink.name} cannot be read: the database did not answer"
            return within(STATEMENT_S, lambda: writer.log(since=since), slow)
        return writer.log(since=since)

    def _looked_at(self, sink: Sink, look: Callable[[], T], what: str) -> T | Unavailable:
        slow = f"the {what} of sink {sink.name} were not looked at: it did not answer"
        try:
            client = sink.client_settings(self.project.kafka)
            return within(STATEMENT_S, look, slow) if client is None else self.brokers.ask(client, look)
        except EvidenceError as error:
            return Unavailable("sink_logs", str(error))

    def quarantine_log(self, sink: Sink, from_version: int | None) -> TableLog | None:
        """The log of a sink's quarantine table, and its data files; None where recon.yml names no place for one."""
        place = quarantined.location(self.project, self.pipeline.name, sink)
        if place is None:
            return None
        table = self._located(place)
        log = delta_log.read(table, from_version=from_version, files=True)
        if log.table_id is not None or log.last is None:
            return log
        return replace(log, table_id=delta_log.current_table_id(table, log.last))

    def quarantine_rows(self, sink: Sink, log: TableLog) -> QuarantinedRows:
        """The rows of a sink's quarantine table, counted without Spark, and those that the whole ledger counts."""
        entered, released = self.session.ledger().quarantined(self.pipeline.name, sink.name)
        place = quarantined.location(self.project, self.pipeline.name, sink)
        # After the ledger: what is quarantined or claimed meanwhile has no entry, and is recognised by that.
        rows = quarantine_rows.count(self._located(place)) if place is not None and log.last is not None else {}
        return QuarantinedRows(rows=rows, entered=entered, released=released)

    def kafka(
        self,
        topics: Sequence[str],
        positions: Mapping[tuple[str, int], int],
        epochs: Mapping[tuple[str, int], Collection[tuple[int, int]]],
    ) -> KafkaWitness:
        """The topics as Kafka describes them.

        `positions` is how far the stream has come, `epochs` how far under which leader epochs.
        """
        from recon.witness import kafka

        isolation = self.pipeline.source.isolation_level
        conf = self.project.kafka
        return self.brokers.ask(
            conf, lambda: kafka.read(conf, topics, isolation_level=isolation, positions=positions, epochs=epochs)
        )

    def probe(self, questions: Questions) -> Answers:
        """What Kafka's own records say about some offsets."""
        from recon.witness import kafka_probe

        return self.brokers.ask(self.project.kafka, lambda: kafka_probe.probe(self.project.kafka, questions))

    def progress(self, since: datetime, until: datetime | None, samples: int) -> ProgressWitness:
        """What a listener recorded of each micro-batch; of `samples` micro-batches with their offsets."""
        return read_progress(self.session.progress(), self.pipeline.name, since, until, samples=samples)

    def erasures(self, sink: str) -> Sequence[tuple[Erasure, str]]:
        """What was erased of a sink on somebody's request, with the hash of each entry.

        Raises:
            ErasuresEdited: the entries are not what recon entered.
        """
        return ErasureTable(self.session.erasures()).chain(self.pipeline.name, sink)

    def rows(
        self,
        sink: Sink,
        first_batch: int | None,
        search: RowSearch,
        *,
        version: int | None,
        lacking: bool,
        within: Mapping[tuple[str, int], Span] | None = None,
    ) -> RowsWitness | Unavailable:
        """The rows of a sink as groups, of the micro-batches from `first_batch` on; Spark jobs.

        Of a sink that Spark itself writes, the rows between the offsets of `within`, or all.

        `version` is the one of a table with history that the other witnesses speak of; None for the newest. `search`
        is which rows are looked for in the whole of it. `lacking` is True where the store lacks data files: the rows
        of the files that are left are read.
        """
        from recon.witness import sink_rows
        from recon.write.quarantine import groups as quarantine_groups

        spark = self.session.for_rows()
        if isinstance(spark, Unavailable):
            return spark
        location = self.project.location(sink)
        if sink.is_delta:
            self._located(location)
            with sink_rows.without_missing_files(spark) if lacking else nullcontext():
                names = self.pipeline.source_names(sink) or OWN_NAMES
                if sink.observed:
                    rows = sink_rows.read_named(spark, location, names, version=version, within=within)
                else:
                    rows = sink_rows.read(spark, location, version=version, first_batch=first_batch)
                if search:
                    files = self._files(sink, search.versions)
                    found = sink_rows.look_for(spark, location, files, search, names)
                    rows = replace(rows, repeated=sink_rows.repeated(found), of_others=found)
        else:
            writer = open_sink(self.project, self.pipeline.name, sink)
            table = writer.rows_left(spark) if version is None else writer.rows_as_of(spark, version)
            rows = sink_rows.read(spark, table, location=location, first_batch=first_batch, version=version)
            if search:
                found = sink_rows.look_for(spark, location, None if search.versions else (), search, table=table)
                rows = replace(rows, repeated=sink_rows.repeated(found), of_others=found)
        place = quarantined.location(self.project, self.pipeline.name, sink)
        if place is None or not quarantined.exists(self._located(place)):
            return rows
        return replace(rows, quarantined=quarantine_groups.read(spark, place, first_batch=first_batch))

    def repeated_rows(self, sink: Sink) -> Sequence[RowGroup]:
        """The offsets that have several rows in the whole of a sink without versions; Spark jobs.

        Raises:
            EvidenceError: there is no Spark session, or the rows cannot be read.
        """
        from recon.witness import sink_rows

        spark = self.session.for_rows()
        if isinstance(spark, Unavailable):
            raise EvidenceError(spark.reason)
        table = open_sink(self.project, self.pipeline.name, sink).rows_left(spark)
        return sink_rows.repeated(sink_rows.look_for(spark, self.project.location(sink), None, table=table))

    def _files(self, sink: Sink, versions: Sequence[int]) -> Collection[str] | None:
        """The names of the data files that versions of a Delta table added; None where these are too many to name."""
        names: set[str] = set()
        for version in versions:
            if len(names) > _NAMED_FILES:
                return None
            names |= {file.rpartition("/")[2] for file in delta_log.added_files(self._table(sink), version)}
        return names

    def _table(self, sink: Sink) -> Storage:
        return self._located(self.project.location(sink))

    def _located(self, location: str) -> Storage:
        """A Delta table that is found by its path or URI; EvidenceError where only a catalog knows where it is."""
        reason = self.project.why_unlocated(location)
        if reason:
            raise EvidenceError(reason)
        return self._storage(location)

    def _storage(self, location: str) -> Storage:
        return Storage(self.project.resolve(location), self.project.storage_options)
