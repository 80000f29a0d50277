"""Predicts what the next start of a query does: which micro-batch Spark runs, and what each sink does with it.

If `commits/<N>` of the newest planned micro-batch is missing, a start of the query replays it with exactly the offsets
of `offsets/<N>`. Else it plans micro-batch N+1 from where N ended (Spark's MicroBatchExecution). Spark checks neither
whether Kafka still has the range, nor whether the sink has the rows. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from recon.base.errors import EvidenceError, NewEpochError, ReconError, TableReplacedError
from recon.base.storage import Storage
from recon.base.text import command
from recon.judge.history.table_history import TableHistory
from recon.judge.kafka.clusters import Clusters
from recon.model import (
    CheckpointBatch,
    CheckpointWitness,
    KafkaPartition,
    KafkaTopic,
    KafkaWitness,
    LedgerEntry,
    ReconStamp,
    Unavailable,
    known,
    offsets_text,
)
from recon.model.delta_offsets import offset_of
from recon.model.offsets import OffsetSpan
from recon.model.positions import id_in, is_kafka
from recon.project import Pipeline, Project, Sink, as_project
from recon.recovery.ranges import RangeHeld, held, losses, onwards, unknown
from recon.recovery.topic_clusters import clusters_of
from recon.spark.catalog import ask_active
from recon.witness import checkpoint, delta_log, source_files, source_table
from recon.write.hook.epochs import RECENT, Batch, Epochs
from recon.write.hook.repair import require_same_table
from recon.write.ledger import Ledger, open_ledger
from recon.write.ledger.rebuild import entry_of, missing
from recon.write.sinks import ConfirmedWrite, open_sink

Next = Literal["first start", "replay", "continue", "past", "not planned"]
Action = Literal["skip", "restore", "write", "write again", "stop", "unknown"]


# What a sink does, and the sentence that says it.
Prediction = tuple[Action, str]


@dataclass(frozen=True, kw_only=True)
class SinkAnswer:
    """What one sink does with the micro-batch, also as a sentence, and the entries that its ledger has of it."""

    sink: str
    kind: str
    guarantee: str
    action: Action
    sentence: str
    entries: tuple[LedgerEntry, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A micro-batch, past or next, by all four witnesses; `sentences` are the main ones, most important first."""

    pipeline: str
    checkpoint: str
    query_id: str | None
    next: Next
    batch_id: int | None = None
    planned_at: datetime | None = None
    ranges: tuple[RangeHeld, ...] = ()
    sinks: tuple[SinkAnswer, ...]
    sentences: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        of_entry = ("epoch", "batch_id", "attempt", "status", "rows_written", "sink_version", "committed_at")
        return {
            **_fields(self),
            "ranges": [
                {**range_.span._asdict(), "held": range_.held, "log_start": range_.log_start, "log_end": range_.log_end}
                for range_ in self.ranges
            ],
            "sinks": [
                {
                    **_fields(answer),
                    "entries": [{name: getattr(entry, name) for name in of_entry} for entry in answer.entries],
                }
                for answer in self.sinks
            ],
        }


def _fields(value: SinkAnswer | Explanation) -> dict[str, Any]:
    """The fields by their names in JSON."""
    names = {"action": "does", "sentence": "said", "sentences": "said"}
    return {names.get(name, name): field for name, field in vars(value).items()}


def explain(project: str | Path | Project, pipeline: str, batch_id: int | None = None) -> Explanation:
    """What the next start of a pipeline's query will do, or what happened to one micro-batch.

    Reads the checkpoint, the ledger, each sink's own record and Kafka; starts no JVM.

    Args:
        project: where recon.yml is, or a `Project`.
        pipeline: the pipeline's name.
        batch_id: a micro-batch of the checkpoint as it is now; by default the one that the next start begins with.

    Raises:
        ConfigError: there is no such pipeline.
        EvidenceError: the checkpoint exists and cannot be read.
        LedgerError: the ledger cannot be read.
    """
    project = as_project(project)
    ask_active(project)
    return _Witnesses(project, project.find_pipeline(pipeline)).explain(batch_id)


def already_processed(project: str | Path | Project, pipeline: str, batch_id: int, sink: str | None = None) -> bool:
    """Whether a micro-batch that the checkpoint plans is in the sink already, so that a replay of it writes nothing.

    A batch_id alone identifies nothing, since ids start over with a new checkpoint. So the ledger must have an entry of
    the same epoch, batch_id and offset ranges, and the sink must still have its rows. The hook decides by the same rule
    before every write.

    Args:
        project: where recon.yml is, or a `Project`.
        pipeline: the pipeline's name.
        batch_id: a micro-batch in the checkpoint's `offsets`.
        sink: the sink's name; may be left out when the pipeline has one.

    Raises:
        ConfigError: there is no such pipeline or sink.
        EvidenceError: the checkpoint does not have the micro-batch, or a witness cannot be read.
        NewEpochError: it begins a new epoch whose ranges overlap or miss what the ledger holds.
        TableReplacedError: the sink's table is not the one that the ledger's entries were written into.
    """
    project = as_project(project)
    ask_active(project)
    pipe, out = project.find_sink(pipeline, sink)
    witnesses = _Witnesses(project, pipe)
    plan = checkpoint.read_batch(witnesses.storage, batch_id, positions=not pipe.of_kafka)
    if not plan.starts_known:
        raise EvidenceError(
            f"checkpoint {witnesses.storage.uri} no longer has the offsets where micro-batch {batch_id} begins; name a "
            "newer one"
        )
    batch = witnesses.batch(checkpoint.query_id(witnesses.storage), plan, witnesses.kafka(plan.ranges))
    entry, _ = witnesses.replayed_entry(out, witnesses.recent(out), batch)
    return entry is not None and witnesses.landed(out, entry) is not None


class _Witnesses:
    """Reads the witnesses of one pipeline, and explains a micro-batch by them."""

    def __init__(self, project: Project, pipeline: Pipeline) -> None:
        self.project, self.pipeline = project, pipeline
        self.storage = Storage(project.resolve(pipeline.checkpoint), project.storage_options)
        self.ledger: Ledger = open_ledger(project)
        self._explanation = partial(Explanation, pipeline=pipeline.name, checkpoint=self.storage.uri)

    def explain(self, batch_id: int | None) -> Explanation:
        witness = self._checkpoint()
        if witness is None or (witness.last is None and batch_id is None):
            return self._first_start(None if witness is None else witness.query_id)
        last = witness.last
        if batch_id is None and last is not None and last.committed:
            return self._continue(witness, last)
        if last is None or (batch_id is not None and batch_id > last.batch_id):
            return self._not_planned(witness, last, -1 if batch_id is None else batch_id)
        wanted = last.batch_id if batch_id is None else batch_id
        plan = next((batch for batch in witness.batches if batch.batch_id == wanted), None)
        return self._past(witness, plan, wanted) if plan is None or plan.committed else self._replay(witness, plan)

    def _checkpoint(self) -> CheckpointWitness | None:
        try:
            checkpoint.query_id(self.storage)
        except EvidenceError:
            if not self.storage.names():
                return None
            raise
        return checkpoint.read(self.storage, positions=not self.pipeline.of_kafka)

    # -- one method for each `next` ------------------------------------------------------------------------------------

    def _first_start(self, query_id: str | None) -> Explanation:
        sinks = self._answers(query_id, None, _first_written)
        sentences = [
            f"no micro-batch was planned in {self.storage.uri}: Spark begins with micro-batch 0 at startingOffsets"
        ]
        if entered := [answer.sink for answer in sinks if answer.action == "unknown"]:
            sentences.append(
                f"the ledger has entries of sink {', '.join(entered)}, so this begins a new epoch: set "
                f"startingOffsets to what `{command('recon offsets', self.pipeline.name)}` prints, or rows are read "
                "again or left out"
            )
        return self._explanation(next="first start", query_id=query_id, sinks=sinks, sentences=tuple(sentences))

    def _continue(self, witness: CheckpointWitness, last: CheckpointBatch) -> Explanation:
        kafka, clusters = self._kafka_and_clusters(last.ranges)
        number = last.batch_id + 1
        ranges = tuple(onwards(span, kafka, clusters) for span in self._with_ids(last.ranges))
        planned = tuple(range_.span for range_ in ranges if range_.held != "unknown")
        batch = Batch(query_id=witness.query_id, run_id=None, batch_id=number, ranges=planned)
        sentence = (
            f"micro-batch {last.batch_id} is finished (commits/{last.batch_id} exists): Spark continues with "
            f"micro-batch {number} where it ended"
        )
        return self._explanation(
            next="continue",
            query_id=witness.query_id,
            batch_id=number,
            ranges=ranges,
            sinks=self._answers(witness.query_id, last.batch_id, partial(self._next, batch)),
            sentences=(sentence, *losses(ranges), *unknown(ranges, kafka)),
        )

    def _replay(self, witness: CheckpointWitness, plan: CheckpointBatch) -> Explanation:
        kafka, clusters = self._kafka_and_clusters(plan.ranges)
        ranges = tuple(held(span, kafka, clusters) for span in self._with_ids(plan.ranges))
        sentences = [
            f"micro-batch {plan.batch_id} was planned{_at(plan.planned_at)} and not finished (no commits/"
            f"{plan.batch_id}): Spark replays it with these very ranges"
        ]
        if not plan.starts_known:
            sentences.append(f"offsets/{plan.batch_id - 1} is gone, so where its ranges begin is not known")
        batch = self.batch(witness.query_id, plan, kafka)
        return self._explanation(
            next="replay",
            query_id=witness.query_id,
            batch_id=plan.batch_id,
            planned_at=plan.planned_at,
            ranges=ranges,
            sinks=self._answers(witness.query_id, plan.batch_id, partial(self._replayed, batch)),
            sentences=(*sentences, *losses(ranges), *unknown(ranges, kafka)),
        )

    def _with_ids(self, spans: Sequence[OffsetSpan], entered: Sequence[OffsetSpan] = ()) -> list[OffsetSpan]:
        """Ranges of the checkpoint, which knows no topic ids, with those of the ledger's newest entries.

        `entered` are the ranges of an entry of the same micro-batch, whose ids are taken first.
        """
        ids: dict[str, str | None] = {}
        for sink in self.pipeline.sinks:
            for entry in self.recent(sink)[-1:]:
                ids |= {span.topic: span.topic_id for span in entry.offsets if span.topic_id is not None}
        ids |= {span.topic: span.topic_id for span in entered if span.topic_id is not None}
        return [span._replace(topic_id=span.topic_id or ids.get(span.topic)) for span in spans]

    def _past(self, witness: CheckpointWitness, plan: CheckpointBatch | None, number: int) -> Explanation:
        sinks = self._answers(witness.query_id, number, partial(self._written, witness.query_id, number))
        spans: Sequence[OffsetSpan] = next((answer.entries[-1].offsets for answer in sinks if answer.entries), ())
        where = f"is no longer in the checkpoint, which begins at micro-batch {witness.batches[0].batch_id}"
        if plan is not None:
            spans, where = self._with_ids(plan.ranges, spans) or spans, f"is finished (commits/{number} exists)"
        kafka, clusters = self._kafka_and_clusters(spans)
        ranges = tuple(held(span, kafka, clusters) for span in spans)
        sentence = f"micro-batch {number} {where}: Spark does not run it again unless the checkpoint is set back"
        return self._explanation(
            next="past",
            query_id=witness.query_id,
            batch_id=number,
            planned_at=None if plan is None else plan.planned_at,
            ranges=ranges,
            sinks=sinks,
            sentences=(
                sentence,
                *(f"{loss}; a replay could not read it all" for loss in losses(ranges)[:1]),
                *unknown(ranges, kafka),
            ),
        )

    def _not_planned(self, witness: CheckpointWitness, last: CheckpointBatch | None, number: int) -> Explanation:
        newest = "none yet" if last is None else f"micro-batch {last.batch_id}"
        sinks = self._answers(witness.query_id, number, partial(self._written, witness.query_id, number))
        set_back = (
            f"sink {answer.sink} has it in the ledger: the checkpoint was set back, and a micro-batch {number} "
            "with other ranges would begin a new epoch"
            for answer in sinks
            if answer.entries
        )
        return self._explanation(
            next="not planned",
            query_id=witness.query_id,
            batch_id=number,
            sinks=sinks,
            sentences=(f"micro-batch {number} is not planned: the newest in {self.storage.uri} is {newest}", *set_back),
        )

    # -- what a sink does with it -----------------------------------------------------------------------------------

    def _answers(
        self,
        query_id: str | None,
        batch_id: int | None,
        predict: Callable[[Sink, Sequence[LedgerEntry]], Prediction],
    ) -> tuple[SinkAnswer, ...]:
        """What each sink does, as `predict` says of the sink and its newest entries; with those of the micro-batch."""
        answers = []
        for sink in self.pipeline.sinks:
            recent = self.recent(sink)
            try:
                action, sentence = self._observed(sink, query_id, batch_id) or predict(sink, recent)
            except (NewEpochError, TableReplacedError) as error:
                action, sentence = "stop", f"stops the query: {error}"
            except ReconError as error:
                action, sentence = "unknown", f"cannot be predicted: {error}"
            answers.append(
                SinkAnswer(
                    sink=sink.name,
                    kind=sink.kind,
                    guarantee=sink.guarantee,
                    action=action,
                    sentence=sentence,
                    entries=_of_batch(recent, query_id, batch_id),
                )
            )
        return tuple(answers)

    def _observed(self, sink: Sink, query_id: str | None, batch_id: int | None) -> Prediction | None:
        """What a write without recon does: Delta takes each number of an app once. None where recon writes the sink."""
        if not sink.observed:
            return None
        if query_id is None or batch_id is None:
            return "unknown", "is written without recon, and which micro-batch comes next is not known"
        if self.pipeline.placed_by_rows:
            return "write", (
                "is written by a function of your own, which puts no number on its commits: where the table has the "
                "micro-batch already, it is there twice then"
            )
        storage = Storage(self.project.location(sink), self.project.storage_options)
        app_id = sink.observed_app_id
        newest = delta_log.transaction_version(storage, query_id if app_id is None else app_id)
        of = "the query" if app_id is None else f"txnAppId {app_id}"
        if newest is not None and newest >= batch_id:
            return "skip", f"drops it: Delta has micro-batch {newest} of {of}, and takes no number twice"
        return "write", f"writes it: Delta has no micro-batch of {of} with this number or a later one"

    def _replayed(self, batch: Batch, sink: Sink, recent: Sequence[LedgerEntry]) -> Prediction:
        entry, restored = self.replayed_entry(sink, recent, batch)
        if entry is None:
            return "write", _sentence_for_write(sink)
        version = _version(entry)
        if self.landed(sink, entry) is None:
            place = self.project.location(sink)
            return "write again", f"writes it again: the ledger has it{version}, and {place} no longer has its rows"
        if self._is_undone(sink, entry):
            return (
                "skip",
                f"skips it, though a RESTORE or a rollback undid it{version}: audit, then read it again with "
                "`recon repair`",
            )
        if restored:
            return "restore", f"has the rows{version} without a ledger entry: restores the entry and writes nothing"
        return "skip", f"skips it: attempt {entry.attempt} wrote {_rows(entry)}{version}{_at(entry.committed_at)}"

    def _next(self, batch: Batch, sink: Sink, recent: Sequence[LedgerEntry]) -> Prediction:
        restored = self._restored(sink, recent)
        epochs = self._epochs(sink, (*recent, *restored))
        front, last = epochs.front, batch.batch_id - 1
        if front is None:
            return "write", (
                f"writes it; the ledger has no entry of the {batch.batch_id} micro-batches before: were they written "
                "without recon?"
            )
        if front.query_id != batch.query_id:
            epochs.place(batch)
            return "write", f"writes it and begins epoch {front.epoch + 1}"
        if front.batch_id > last:
            return "stop" if sink.on_new_epoch == "stop" else "write", (
                f"already has micro-batch {front.batch_id}: the checkpoint was set back; micro-batches up to "
                "there are skipped only if Spark plans the ranges they had, else they begin a new epoch, and "
                f"on_new_epoch: {sink.on_new_epoch} decides"
            )
        if front.batch_id < last:
            return "write", (
                f"writes it; of micro-batches {front.batch_id + 1} to {last} neither the ledger nor the sink "
                "has a record: run `recon audit`"
            )
        if restored:
            return "restore", (
                f"restores the entry of micro-batch {front.batch_id} that a crash left out, then writes it"
            )
        return "write", f"writes it, behind micro-batch {front.batch_id} (epoch {front.epoch})"

    def _written(self, query_id: str, number: int, sink: Sink, recent: Sequence[LedgerEntry]) -> Prediction:
        entries = _of_batch(recent, query_id, number)
        if not entries:
            return "unknown", f"has no ledger entry of micro-batch {number} among its newest {RECENT}"
        last = entries[-1]
        rows = f"{_rows(last)}{_version(last)}"
        if self._is_undone(sink, last):
            return (
                "skip",
                f"had {rows}, and a RESTORE or a rollback undid it: audit, then read it again with `recon repair`",
            )
        if self.landed(sink, last) is None:
            place = self.project.location(sink)
            return "write again", f"had {rows}, and {place} no longer has them: run `recon audit`"
        return "skip", f"has {rows}, written{_at(last.committed_at)} (epoch {last.epoch})"

    def recent(self, sink: Sink) -> list[LedgerEntry]:
        return [e for e in self.ledger.last(self.pipeline.name, sink.name, RECENT) if e.is_micro_batch]

    def replayed_entry(
        self, sink: Sink, recent: Sequence[LedgerEntry], batch: Batch
    ) -> tuple[LedgerEntry | None, bool]:
        """The entry of the micro-batch that a replay repeats, and whether it has yet to be restored from the sink."""
        restored = self._restored(sink, recent)
        entry = self._epochs(sink, (*recent, *restored)).place(batch).replays
        return entry, entry in restored

    def _epochs(self, sink: Sink, entries: Sequence[LedgerEntry]) -> Epochs:
        return Epochs(self.ledger, self.pipeline.name, sink, self.storage.uri, entries)

    def _restored(self, sink: Sink, recent: Sequence[LedgerEntry]) -> list[LedgerEntry]:
        """The entries that the next start restores from the sink's own record; what stops it is raised."""
        writer = open_sink(self.project, self.pipeline.name, sink)
        require_same_table(self.pipeline, sink, writer, recent)
        commits = missing(self.ledger, self.pipeline.name, sink.name, recent, writer.log)
        return [entry_of(commit, sink, target=self.project.location(sink)) for commit in commits]

    def _is_undone(self, sink: Sink, entry: LedgerEntry) -> bool:
        """Whether a RESTORE or a rollback undid the commit of an entry; its number stays taken: a replay is skipped."""
        version = entry.sink_version
        if not sink.has_history or version is None:
            return False
        log = open_sink(self.project, self.pipeline.name, sink).history(version, files=False)
        return TableHistory(log).is_undone(version)

    def landed(self, sink: Sink, entry: LedgerEntry) -> ConfirmedWrite | None:
        stamp = ReconStamp(
            pipeline=self.pipeline.name,
            sink=sink.name,
            epoch=entry.epoch,
            batch_id=entry.batch_id,
            query_id=entry.query_id,
            run_id=None,
            prev_hash="",
            offsets_text=offsets_text(entry.offsets),
        )
        return open_sink(self.project, self.pipeline.name, sink).landed(stamp, entry.sink_version)

    # -- Kafka -----------------------------------------------------------------------------------------------------

    def kafka(self, spans: Iterable[OffsetSpan]) -> KafkaWitness | Unavailable:
        from recon.witness import kafka

        if not self.pipeline.of_kafka:
            return self._files(spans) if self.pipeline.source.files is not None else self._table()
        topics = sorted({span.topic for span in spans if is_kafka(span.topic)})
        level = self.pipeline.source.isolation_level
        try:
            return kafka.read(self.project.kafka, topics, isolation_level=level)
        except ReconError as error:
            return Unavailable("kafka", str(error))

    def _kafka_and_clusters(self, spans: Iterable[OffsetSpan]) -> tuple[KafkaWitness | Unavailable, Clusters]:
        kafka = self.kafka(spans)
        return kafka, clusters_of(self.ledger, self.pipeline, kafka)

    def _table(self) -> KafkaWitness | Unavailable:
        """The Delta table that the query reads, as a topic with one partition."""
        source = self.pipeline.source
        where = self.project.table_location(source.delta or "")
        if reason := self.project.why_unlocated(where):
            return Unavailable("kafka", reason)
        try:
            table = source_table.read(Storage(where, self.project.storage_options), ())
        except ReconError as error:
            return Unavailable("kafka", str(error))
        logs: dict[int, KafkaPartition] = {}
        if table.first_retained is not None and table.last is not None:
            first, end = offset_of(table.first_retained, 0), offset_of(table.last + 1, 0)
            logs[0] = KafkaPartition(partition=0, log_start=first, log_end=end, high_watermark=end, last_stable=end)
        topic = KafkaTopic(topic=table.topic, exists=table.exists, topic_id=table.table_id, partitions=logs)
        return KafkaWitness(
            bootstrap_servers="", isolation_level="", read_at=table.read_at, topics={table.topic: topic}
        )

    def _files(self, spans: Iterable[OffsetSpan]) -> KafkaWitness | Unavailable:
        """The log of the files that the query reads, as a topic with one partition."""
        source = self.pipeline.source
        folder = Storage(self.project.resolve(source.files or ""), self.project.storage_options)
        try:
            log = source_files.read(self.storage, folder, tuple(spans), self.project.listing(source))
        except ReconError as error:
            return Unavailable("kafka", str(error))
        end = 0 if log.last is None else log.last + 1
        partition = KafkaPartition(partition=0, log_start=0, log_end=end, high_watermark=end, last_stable=end)
        topic = KafkaTopic(topic=log.topic, exists=True, topic_id=log.query_id, partitions={0: partition})
        return KafkaWitness(bootstrap_servers="", isolation_level="", read_at=log.read_at, topics={log.topic: topic})

    def batch(self, query_id: str, plan: CheckpointBatch, witness: KafkaWitness | Unavailable) -> Batch:
        """The micro-batch in the form by which the hook identifies it."""
        topics: Mapping[str, KafkaTopic] = kafka.topics if (kafka := known(witness)) else {}
        ids: Mapping[str, str | None] = {name: topic.topic_id for name, topic in topics.items()}
        ranges = [
            span._replace(
                topic_id=span.topic_id or ids.get(span.topic), start_offset=min(span.start_offset, span.end_offset)
            )
            for span in plan.ranges
        ]
        for source, topic, partition, end in plan.new_partitions:
            log = topics[topic].partitions.get(partition) if topic in topics else None
            start = min(log.log_start if log is not None else 0, end)
            if not is_kafka(topic):
                start = min(self.pipeline.source.beginning, end)
            topic_id = id_in(topic) or ids.get(topic)
            ranges.append(OffsetSpan(topic, topic_id, partition, start, end, source))
        return Batch(
            query_id=query_id,
            run_id=None,
            batch_id=plan.batch_id,
            ranges=tuple(ranges),
            new_partitions=frozenset((source, topic, p) for source, topic, p, _ in plan.new_partitions),
        )


def _of_batch(entries: Sequence[LedgerEntry], query_id: str | None, batch_id: int | None) -> tuple[LedgerEntry, ...]:
    return tuple(entry for entry in entries if (entry.query_id, entry.batch_id) == (query_id, batch_id))


def _first_written(sink: Sink, recent: Sequence[LedgerEntry]) -> Prediction:
    if recent:
        return "unknown", "depends on startingOffsets"
    return "write", "writes every row that it gets: the ledger has no entry of it"


def _sentence_for_write(sink: Sink) -> str:
    if sink.guarantee.startswith("exactly-once"):
        return "writes it: neither the ledger nor the sink has it"
    if sink.guarantee == "at-most-once":
        return "writes it: the ledger has no entry; your function must leave out what an interrupted attempt wrote"
    return f"writes it: the ledger has no entry; {sink.guarantee}, so what an interrupted attempt wrote is doubled"


def _rows(entry: LedgerEntry) -> str:
    return "an unknown number of rows" if entry.rows_written is None else f"{entry.rows_written:,} rows"


def _version(entry: LedgerEntry) -> str:
    return "" if entry.sink_version is None else f" as version {entry.sink_version}"


def _at(instant: datetime | None) -> str:
    return "" if instant is None else f" at {instant:%Y-%m-%d %H:%M:%S}Z"
