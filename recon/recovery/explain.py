"""What Spark will do next with a checkpoint, and what each sink will make of it; nothing is written.

A start of the query replays the newest planned micro-batch if `commits/<N>` is missing, with exactly the offsets that
`offsets/<N>` holds; else it plans micro-batch N+1 from where N ended (Spark's MicroBatchExecution). Whether Kafka still
has the range, and whether the sink has the rows, Spark does not ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from recon.errors import EvidenceError, NewEpochError, ReconError
from recon.evidence import checkpoint
from recon.hook.epochs import CLOCKS_APART, RECENT, Batch, Epochs
from recon.ledger import Ledger, open_ledger
from recon.ledger.ledger import utc_now
from recon.ledger.rebuild import entry_of, recorded, unrecorded
from recon.model import (
    CheckpointBatch,
    CheckpointWitness,
    KafkaWitness,
    LedgerEntry,
    ReconStamp,
    Unavailable,
    offsets_text,
)
from recon.model.offsets import OffsetSpan
from recon.project import Pipeline, Project, Sink, as_project
from recon.sinks import Landed, find_pipeline, find_sink, open_sink
from recon.storage import Storage

Next = Literal["first start", "replay", "continue", "past", "not planned"]
Held = Literal["held", "partly deleted", "deleted", "re-created", "beyond the end", "gone", "unknown"]
Does = Literal["skip", "restore", "write", "write again", "stop", "unknown"]


@dataclass(frozen=True, kw_only=True)
class RangeHeld:
    """A range of a micro-batch and what Kafka has of it now; `log_start`, `log_end` are None where it did not say."""

    span: OffsetSpan
    held: Held
    log_start: int | None = None
    log_end: int | None = None


@dataclass(frozen=True, kw_only=True)
class SinkAnswer:
    """What one sink makes of the micro-batch; `said` is the sentence for `does`, `entries` its ledger entries."""

    sink: str
    kind: str
    guarantee: str
    does: Does
    said: str
    entries: tuple[LedgerEntry, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A micro-batch, past or next, from all four witnesses; `said` are the sentences that matter most, in order."""

    pipeline: str
    checkpoint: str
    query_id: str | None
    next: Next
    batch_id: int | None
    planned_at: datetime | None
    ranges: tuple[RangeHeld, ...]
    sinks: tuple[SinkAnswer, ...]
    said: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        found = asdict(replace(self, ranges=(), sinks=()))
        found["ranges"] = [
            {**one.span._asdict(), "held": one.held, "log_start": one.log_start, "log_end": one.log_end}
            for one in self.ranges
        ]
        found["sinks"] = [
            {
                **{name: getattr(one, name) for name in ("sink", "kind", "guarantee", "does", "said")},
                "entries": [
                    {
                        name: getattr(entry, name)
                        for name in ("epoch", "batch_id", "attempt", "status", "rows_written", "sink_version")
                    }
                    | {"committed_at": entry.committed_at}
                    for entry in one.entries
                ],
            }
            for one in self.sinks
        ]
        return found


def explain(project: str | Path | Project, pipeline: str, batch_id: int | None = None) -> Explanation:
    """What the next start of a pipeline's query will do; or what became of one micro-batch.

    Reads the checkpoint, the ledger, each sink's own record and Kafka; starts no JVM.

    Args:
        project: where recon.yml is, or a `Project`.
        pipeline: the pipeline's name.
        batch_id: a micro-batch of the checkpoint's present life; by default the one that the next start begins with.

    Raises:
        ConfigError: there is no such pipeline.
        EvidenceError: the checkpoint is there and cannot be understood.
        LedgerError: the ledger cannot be read.
    """
    project = as_project(project)
    return _Asked(project, find_pipeline(project, pipeline)).explain(batch_id)


def already_processed(project: str | Path | Project, pipeline: str, batch_id: int, sink: str | None = None) -> bool:
    """Whether a micro-batch that the checkpoint plans is in the sink already, and a replay of it would write nothing.

    A batch_id alone says nothing, since ids start over with a new checkpoint: the ledger is asked for the same epoch,
    number and offset ranges, and the sink whether it still has them. The hook asks the same before every write.

    Args:
        project: where recon.yml is, or a `Project`.
        pipeline: the pipeline's name.
        batch_id: a micro-batch that stands in the checkpoint's `offsets`.
        sink: the sink's name; may be left out when the pipeline has one.

    Raises:
        ConfigError: there is no such pipeline or sink.
        EvidenceError: the checkpoint does not have the micro-batch, or a witness cannot be read.
        NewEpochError: it begins a new epoch whose ranges overlap or miss what the ledger holds.
    """
    project = as_project(project)
    pipe, out = find_sink(project, pipeline, sink)
    asked = _Asked(project, pipe)
    plan = checkpoint.read_batch(asked.storage, batch_id)
    if not plan.starts_known:
        raise EvidenceError(
            f"checkpoint {asked.storage.uri} no longer tells where micro-batch {batch_id} begins; ask for a newer one"
        )
    batch = asked._batch(checkpoint.query_id(asked.storage), plan, asked._kafka(plan.ranges))
    known, _ = asked._known(out, batch)
    return known is not None and asked._landed(out, known) is not None


class _Asked:
    """The witnesses of one pipeline."""

    def __init__(self, project: Project, pipeline: Pipeline) -> None:
        self.project, self.pipeline = project, pipeline
        self.storage = Storage(project.resolve(pipeline.checkpoint), project.storage_options)
        self.ledger: Ledger = open_ledger(project)

    def explain(self, batch_id: int | None) -> Explanation:
        found = self._checkpoint()
        if found is None or (found.last is None and batch_id is None):
            return self._first_start(None if found is None else found.query_id)
        last = found.last
        if batch_id is None and last is not None and last.committed:
            return self._continue(found, last)
        if last is None or (batch_id is not None and batch_id > last.batch_id):
            return self._not_planned(found, last, -1 if batch_id is None else batch_id)
        wanted = last.batch_id if batch_id is None else batch_id
        plan = next((one for one in found.batches if one.batch_id == wanted), None)
        return self._past(found, plan, wanted) if plan is None or plan.committed else self._replay(found, plan)

    def _checkpoint(self) -> CheckpointWitness | None:
        try:
            checkpoint.query_id(self.storage)
        except EvidenceError:
            if not self.storage.names():
                return None
            raise
        return checkpoint.read(self.storage)

    # -- the four stories ------------------------------------------------------------------------------------------

    def _first_start(self, query_id: str | None) -> Explanation:
        known = [sink.name for sink in self.pipeline.sinks if self._recent(sink)]
        said = [f"no micro-batch was planned in {self.storage.uri}: Spark begins with micro-batch 0 at startingOffsets"]
        if known:
            said.append(
                f"the ledger has entries of sink {', '.join(known)}, so this begins a new epoch: set startingOffsets "
                f"to what `recon offsets --pipeline {self.pipeline.name}` prints, or rows are read again or left out"
            )
        sinks = tuple(
            self._answer(sink, "unknown" if sink.name in known else "write", "depends on startingOffsets", ())
            if sink.name in known
            else self._answer(sink, "write", "writes what it is given: the ledger has no entry of it", ())
            for sink in self.pipeline.sinks
        )
        return self._told("first start", query_id, None, None, (), sinks, said)

    def _continue(self, found: CheckpointWitness, last: CheckpointBatch) -> Explanation:
        kafka = self._kafka(last.ranges)
        number = last.batch_id + 1
        ranges = tuple(_onwards(span, kafka) for span in last.ranges)
        said = [
            f"micro-batch {last.batch_id} is finished (commits/{last.batch_id} exists): Spark continues with "
            f"micro-batch {number} where it ended"
        ]
        said += _losses(ranges, kafka)
        planned = [one.span for one in ranges if one.held != "unknown"]
        sinks = tuple(self._next_of(sink, found, last, number, planned) for sink in self.pipeline.sinks)
        return self._told("continue", found.query_id, number, None, ranges, sinks, said)

    def _replay(self, found: CheckpointWitness, plan: CheckpointBatch) -> Explanation:
        kafka = self._kafka(plan.ranges)
        ranges = tuple(_held(span, kafka) for span in plan.ranges)
        said = [
            f"micro-batch {plan.batch_id} was planned{_at(plan.planned_at)} and not finished (no commits/"
            f"{plan.batch_id}): Spark replays it with these very ranges"
        ]
        if not plan.starts_known:
            said.append(f"offsets/{plan.batch_id - 1} is gone, so where its ranges begin is not known")
        said += _losses(ranges, kafka)
        batch = self._batch(found.query_id, plan, kafka)
        sinks = tuple(self._of_replay(sink, batch) for sink in self.pipeline.sinks)
        return self._told("replay", found.query_id, plan.batch_id, plan.planned_at, ranges, sinks, said)

    def _past(self, found: CheckpointWitness, plan: CheckpointBatch | None, number: int) -> Explanation:
        answers, spans = [], () if plan is None else plan.ranges
        for sink in self.pipeline.sinks:
            entries = tuple(e for e in self._recent(sink, found.query_id) if e.batch_id == number)
            spans = spans or (entries[-1].offsets if entries else ())
            answers.append(self._of_past(sink, entries, number))
        kafka = self._kafka(spans)
        ranges = tuple(_held(span, kafka) for span in spans)
        where = (
            f"is finished (commits/{number} exists)"
            if plan is not None
            else f"is no longer in the checkpoint, which begins at micro-batch {found.batches[0].batch_id}"
        )
        said = [f"micro-batch {number} {where}: Spark does not run it again unless the checkpoint is set back"]
        said += [f"{told}; a replay could not read it all" for told in _losses(ranges, kafka)[:1]]
        planned_at = None if plan is None else plan.planned_at
        return self._told("past", found.query_id, number, planned_at, ranges, tuple(answers), said)

    def _not_planned(self, found: CheckpointWitness, last: CheckpointBatch | None, number: int) -> Explanation:
        newest = "none yet" if last is None else f"micro-batch {last.batch_id}"
        said = [f"micro-batch {number} is not planned: the newest in {self.storage.uri} is {newest}"]
        sinks = []
        for sink in self.pipeline.sinks:
            entries = tuple(e for e in self._recent(sink, found.query_id) if e.batch_id == number)
            if entries:
                said.append(
                    f"sink {sink.name} has it in the ledger: the checkpoint was set back, and a micro-batch {number} "
                    "with other ranges would begin a new epoch"
                )
            sinks.append(self._of_past(sink, entries, number))
        return self._told("not planned", found.query_id, number, None, (), tuple(sinks), said)

    def _told(
        self,
        next_: Next,
        query_id: str | None,
        batch_id: int | None,
        planned_at: datetime | None,
        ranges: tuple[RangeHeld, ...],
        sinks: tuple[SinkAnswer, ...],
        said: Sequence[str],
    ) -> Explanation:
        return Explanation(
            pipeline=self.pipeline.name,
            checkpoint=self.storage.uri,
            query_id=query_id,
            next=next_,
            batch_id=batch_id,
            planned_at=planned_at,
            ranges=ranges,
            sinks=sinks,
            said=tuple(said),
        )

    # -- what a sink makes of it -----------------------------------------------------------------------------------

    def _of_replay(self, sink: Sink, batch: Batch) -> SinkAnswer:
        mine = tuple(e for e in self._recent(sink) if e.query_id == batch.query_id and e.batch_id == batch.batch_id)
        try:
            known, restored = self._known(sink, batch)
            if known is None:
                return self._answer(sink, "write", self._said_of_write(sink), mine)
            return self._of_known(sink, known, restored, mine)
        except NewEpochError as error:
            return self._answer(sink, "stop", f"stops the query: {error}", mine)
        except ReconError as error:
            return self._answer(sink, "unknown", f"cannot be told: {error}", mine)

    def _known(self, sink: Sink, batch: Batch) -> tuple[LedgerEntry | None, bool]:
        """The entry that a replay meets, and whether it is yet to be restored from the sink's record."""
        entries = self._recent(sink)
        restored = self._unrecorded(sink, entries)
        epochs = Epochs(self.ledger, self.pipeline.name, sink, self.storage.uri, (*entries, *restored))
        known = epochs.place(batch).replays
        return known, known in restored

    def _of_known(self, sink: Sink, known: LedgerEntry, restored: bool, mine: tuple[LedgerEntry, ...]) -> SinkAnswer:
        landed = self._landed(sink, known)
        version = "" if known.sink_version is None else f" as version {known.sink_version}"
        if landed is None:
            said = f"writes it again: the ledger has it{version}, and {self._where(sink)} no longer does"
            return self._answer(sink, "write again", said, mine)
        if restored:
            said = f"has the rows{version} without a ledger entry: restores the entry and writes nothing"
            return self._answer(sink, "restore", said, mine)
        said = f"skips it: attempt {known.attempt} wrote {_rows(known)}{version}{_at(known.committed_at)}"
        return self._answer(sink, "skip", said, mine)

    def _said_of_write(self, sink: Sink) -> str:
        said = "writes it: neither the ledger nor the sink has it"
        if sink.guarantee.startswith("exactly-once"):
            return said
        if sink.guarantee == "at-most-once":
            return "writes it: the ledger has no entry; what an interrupted attempt wrote your function must leave out"
        return f"writes it: the ledger has no entry; {sink.guarantee}, so what an interrupted attempt wrote is doubled"

    def _next_of(
        self, sink: Sink, found: CheckpointWitness, last: CheckpointBatch, number: int, planned: Sequence[OffsetSpan]
    ) -> SinkAnswer:
        entries = self._recent(sink)
        try:
            restored = self._unrecorded(sink, entries)
        except ReconError as error:
            return self._answer(sink, "unknown", f"cannot be told: {error}", ())
        epochs = Epochs(self.ledger, self.pipeline.name, sink, self.storage.uri, (*entries, *restored))
        front = epochs.front
        mine = tuple(e for e in entries if e.query_id == found.query_id and e.batch_id == last.batch_id)
        if front is None:
            said = f"writes it; the ledger has none of the {number} before: were they written without recon?"
            return self._answer(sink, "write", said, ())
        if front.query_id != found.query_id:
            try:
                epochs.place(Batch(query_id=found.query_id, run_id=None, batch_id=number, ranges=tuple(planned)))
            except NewEpochError as error:
                return self._answer(sink, "stop", f"stops the query: {error}", mine)
            return self._answer(sink, "write", f"writes it and begins epoch {front.epoch + 1}", mine)
        if front.batch_id > last.batch_id:
            said = (
                f"has come to micro-batch {front.batch_id} already: the checkpoint was set back; micro-batches up to "
                "there are skipped only if Spark plans the ranges they had, else they begin a new epoch, and "
                f"on_new_epoch: {sink.on_new_epoch} decides"
            )
            return self._answer(sink, "stop" if sink.on_new_epoch == "stop" else "write", said, mine)
        if front.batch_id < last.batch_id:
            said = (
                f"writes it; of micro-batch {front.batch_id + 1} to {last.batch_id} neither the ledger nor the sink "
                "knows: run `recon audit`"
            )
            return self._answer(sink, "write", said, mine)
        if restored:
            said = f"restores the entry of micro-batch {front.batch_id} that a crash left out, then writes the new one"
            return self._answer(sink, "restore", said, mine)
        return self._answer(
            sink, "write", f"writes it, behind micro-batch {front.batch_id} (epoch {front.epoch})", mine
        )

    def _of_past(self, sink: Sink, entries: tuple[LedgerEntry, ...], number: int) -> SinkAnswer:
        if not entries:
            said = f"has no ledger entry of micro-batch {number} among its newest {RECENT}"
            return self._answer(sink, "unknown", said, entries)
        try:
            landed = self._landed(sink, entries[-1])
        except ReconError as error:
            return self._answer(sink, "unknown", f"cannot be told: {error}", entries)
        last = entries[-1]
        version = "" if last.sink_version is None else f" as version {last.sink_version}"
        if landed is None:
            said = f"had {_rows(last)}{version}, and {self._where(sink)} no longer has them: run `recon audit`"
            return self._answer(sink, "write again", said, entries)
        said = f"has {_rows(last)}{version}, written{_at(last.committed_at)} (epoch {last.epoch})"
        return self._answer(sink, "skip", said, entries)

    def _answer(self, sink: Sink, does: Does, said: str, entries: tuple[LedgerEntry, ...]) -> SinkAnswer:
        return SinkAnswer(
            sink=sink.name, kind=sink.kind, guarantee=sink.guarantee, does=does, said=said, entries=entries
        )

    def _where(self, sink: Sink) -> str:
        return self.project.location(sink)

    def _recent(self, sink: Sink, query_id: str | None = None) -> list[LedgerEntry]:
        found = self.ledger.last(self.pipeline.name, sink.name, RECENT) if self.ledger.exists() else []
        return [e for e in found if not e.is_release and query_id in (None, e.query_id)]

    def _unrecorded(self, sink: Sink, entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
        """The entries that the next start restores from what the sink itself remembers."""
        versions = [e.sink_version for e in entries if e.sink_version is not None]
        since = max((e.committed_at for e in entries), default=None)
        remembered = open_sink(self.project, self.pipeline.name, sink).log(
            after=max(versions, default=None), since=None if since is None else since - CLOCKS_APART
        )
        known = {(e.epoch, e.batch_id) for e in entries}
        if self.ledger.exists() and unrecorded(remembered.commits, self.pipeline.name, sink.name, known):
            # A sink without versions remembers more than was looked at.
            known |= recorded(self.ledger, self.pipeline.name, sink.name)
        target = self.project.location(sink)
        return [
            entry_of(commit, target=target, kind=sink.kind, guarantee=sink.guarantee, restored_at=utc_now())
            for commit in unrecorded(remembered.commits, self.pipeline.name, sink.name, known)
        ]

    def _landed(self, sink: Sink, entry: LedgerEntry) -> Landed | None:
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

    def _kafka(self, spans: Iterable[OffsetSpan]) -> KafkaWitness | Unavailable:
        from recon.evidence import kafka

        topics = sorted({span.topic for span in spans})
        if "bootstrap.servers" not in self.project.kafka:
            return Unavailable("kafka", "recon.yml has no kafka: bootstrap.servers")
        level = self.pipeline.source.isolation_level
        try:
            return kafka.read(self.project.kafka, topics, isolation_level=level)
        except ReconError as error:
            return Unavailable("kafka", str(error))

    def _batch(self, query_id: str, plan: CheckpointBatch, kafka: KafkaWitness | Unavailable) -> Batch:
        """The micro-batch as the hook will identify it."""
        topics = {} if isinstance(kafka, Unavailable) else kafka.topics
        ids: Mapping[str, str | None] = {name: topic.topic_id for name, topic in topics.items()}
        ranges = [
            span._replace(topic_id=ids.get(span.topic), start_offset=min(span.start_offset, span.end_offset))
            for span in plan.ranges
        ]
        for source, topic, partition, end in plan.new_partitions:
            log = topics[topic].partitions.get(partition) if topic in topics else None
            start = min(log.log_start if log is not None else 0, end)
            ranges.append(OffsetSpan(topic, ids.get(topic), partition, start, end, source))
        return Batch(
            query_id=query_id,
            run_id=None,
            batch_id=plan.batch_id,
            ranges=tuple(ranges),
            new_partitions=frozenset((source, topic, p) for source, topic, p, _ in plan.new_partitions),
        )


def _onwards(span: OffsetSpan, kafka: KafkaWitness | Unavailable) -> RangeHeld:
    """What follows a range, up to the end of the log."""
    end = None if isinstance(kafka, Unavailable) else _log(span, kafka)
    onwards = span._replace(start_offset=span.end_offset, end_offset=span.end_offset if end is None else end[1])
    return _held(onwards._replace(end_offset=max(onwards.end_offset, onwards.start_offset)), kafka, onwards=True)


def _log(span: OffsetSpan, kafka: KafkaWitness) -> tuple[int, int] | None:
    topic = kafka.topics.get(span.topic)
    partition = None if topic is None else topic.partitions.get(span.partition)
    return None if partition is None else (partition.log_start, partition.log_end)


def _held(span: OffsetSpan, kafka: KafkaWitness | Unavailable, onwards: bool = False) -> RangeHeld:
    if isinstance(kafka, Unavailable):
        return RangeHeld(span=span, held="unknown")
    log, topic = _log(span, kafka), kafka.topics.get(span.topic)
    if log is None or topic is None:
        return RangeHeld(span=span, held="gone")
    start, end = log
    held: Held = "held"
    if span.topic_id is not None and topic.topic_id is not None and span.topic_id != topic.topic_id:
        held = "re-created"
    elif end < span.end_offset or (onwards and end < span.start_offset):
        held = "beyond the end"
    elif start > span.start_offset:
        held = "deleted" if start >= span.end_offset > span.start_offset else "partly deleted"
    return RangeHeld(span=span, held=held, log_start=start, log_end=end)


def _losses(ranges: Sequence[RangeHeld], kafka: KafkaWitness | Unavailable | None = None) -> list[str]:
    """A sentence for each thing that Kafka no longer has as it was planned."""
    because = f": {kafka.reason}" if isinstance(kafka, Unavailable) else ""
    found = []
    for one in ranges:
        span, where = one.span, f"{one.span.topic}-{one.span.partition}"
        then = "with failOnDataLoss Spark stops, without it it goes on and the rows are lost"
        if one.held in ("deleted", "partly deleted") and one.log_start is not None:
            found.append(f"Kafka deleted [{span.start_offset}, {one.log_start}) of {where}: {then}")
        elif one.held == "re-created":
            found.append(f"topic {span.topic} was deleted and created again: these offsets are other records now")
        elif one.held == "beyond the end":
            found.append(f"{where} ends at {one.log_end}, before {span.end_offset}: re-created, or cut off; {then}")
        elif one.held == "gone":
            found.append(f"Kafka has no {where}: {then}")
    if any(one.held == "unknown" for one in ranges):
        found.append(f"Kafka could not be asked whether it still holds the ranges{because}")
    return list(dict.fromkeys(found))


def _rows(entry: LedgerEntry) -> str:
    return "an unknown number of rows" if entry.rows_written is None else f"{entry.rows_written:,} rows"


def _at(planned_at: datetime | None) -> str:
    return "" if planned_at is None else f" at {planned_at:%Y-%m-%d %H:%M:%S}Z"


__all__ = ["Explanation", "RangeHeld", "SinkAnswer", "already_processed", "explain"]
