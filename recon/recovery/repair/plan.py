"""What can be done about each open finding of a sink: read again, remove, or nothing any more. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from recon.base.text import some
from recon.judge.coverage import Key, by_partition, cleaned, coverage
from recon.judge.kafka.clusters import Clusters
from recon.judge.row_counts import ReadStretches, stretches_of
from recon.model import KafkaTopic, KafkaWitness, LedgerSlice, Level
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.model.proof import OF_UNREAD_RANGES, OpenFinding
from recon.project.sinks.repairs import RepairAbility

Action = Literal["read", "remove", "gone", "done", "unknown"]
TopicPartition = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class PlannedRange:
    """Offsets [start_offset, end_offset) of one topic partition, and what a repair does about them.

    Attributes:
        action: "read": read again from Kafka and written, as far as the sink has no rows of them. "remove": surplus
            rows are removed. "gone": Kafka no longer has them. "done": an entry after the last audit did it. "unknown":
            nothing is done, because a wrong guess would lose or double rows.
        batch_id: the micro-batch that read past them, or, where none did, the one whose finding names them.
        findings: the ids of the open findings that it answers.
        why: what there is to know, in a sentence.
    """

    action: Action
    topic: str
    topic_id: str | None
    partition: int
    start_offset: int
    end_offset: int
    source: int
    batch_id: int | None
    findings: tuple[str, ...]
    why: str

    @property
    def span(self) -> OffsetSpan:
        """The range as ledger entries have it."""
        return OffsetSpan(self.topic, self.topic_id, self.partition, self.start_offset, self.end_offset, self.source)


@dataclass(frozen=True, kw_only=True)
class LeftOpen:
    """An open finding that a repair cannot answer, and what to do about it."""

    finding: str
    code: str
    message: str
    step: str


@dataclass(frozen=True, kw_only=True)
class RepairPlan:
    """What `recon repair apply` does for one sink.

    Attributes:
        pipeline: the pipeline's name.
        sink: the sink's name.
        refused: why nothing of this sink can be repaired, in a sentence; "" where it can.
        ranges: by topic, partition and offset.
        left_open: findings that name no offsets, or that a repair does not answer.
    """

    pipeline: str
    sink: str
    refused: str = ""
    ranges: tuple[PlannedRange, ...] = ()
    left_open: tuple[LeftOpen, ...] = ()

    def of(self, action: Action) -> list[PlannedRange]:
        """The ranges with one action."""
        return [part for part in self.ranges if part.action == action]

    @property
    def does_something(self) -> bool:
        """Whether `apply` has anything to read or to remove."""
        return not self.refused and any(part.action in ("read", "remove") for part in self.ranges)


def planned(
    ledger: LedgerSlice,
    position: int,
    findings: Sequence[OpenFinding],
    kafka: KafkaWitness,
    *,
    able: RepairAbility | None = None,
    clusters: Clusters | None = None,
) -> RepairPlan:
    """The plan for one sink.

    Args:
        ledger: its whole ledger.
        position: the sequence of the last entry that an audit judged; what repairs did behind it is done.
        findings: its open findings; accepted ones are left out.
        kafka: the topics of the ledger and of the findings, as Kafka describes them now.
        able: what a repair can do for the sink; everything by default.
        clusters: those of the topics; none by default.
    """
    able = able or RepairAbility()
    waiting = [finding for finding in findings if finding.accepted is None]
    planner = _Planner(ledger, position, kafka, able, clusters or Clusters({}))
    ranges: list[PlannedRange] = []
    left: list[LeftOpen] = []
    of_place: dict[tuple[bool, TopicPartition], list[tuple[OpenFinding, Spans]]] = {}
    for finding in waiting:
        places = list(planner.places(finding))
        for where, spans in places:
            of_place.setdefault((finding.is_loss, where), []).append((finding, spans))
        if not places:
            left.append(_left_open(finding))
    for (is_loss, where), mine in sorted(of_place.items(), key=lambda item: (item[0][1], item[0][0])):
        ranges += planner.lost(where, mine) if is_loss else planner.doubled(where, mine)
    return RepairPlan(
        pipeline=ledger.pipeline,
        sink=ledger.sink,
        refused=able.refusal({part.action for part in ranges}) if waiting else "",
        ranges=tuple(ranges),
        left_open=tuple(left),
    )


def _left_open(waiting: OpenFinding) -> LeftOpen:
    found = waiting.finding
    step = "it names no offsets: repair the findings that name what it took away, audit, then decide about this one"
    if found.undecidable:
        step = "no witness is left that could decide it: look the records up where they came from"
    elif found.level is Level.UNPROVED:
        step = "nothing is known to be wrong: audit again when its witness can be read"
    elif found.span is not None:
        step = "no repair is known for it: look at it"
    return LeftOpen(
        finding=waiting.id,
        code=str(found.code),
        message=found.message,
        step=f"{step} (`recon accept {waiting.id}` where it may stay)",
    )


@dataclass(frozen=True)
class _Planner:
    ledger: LedgerSlice
    position: int
    kafka: KafkaWitness
    able: RepairAbility
    clusters: Clusters

    def places(self, waiting: OpenFinding) -> Iterator[tuple[TopicPartition, Spans]]:
        """The offsets that a loss or a doubling is about; a micro-batch that is doubled whole has all of its own."""
        found = waiting.finding
        if not (waiting.is_loss or waiting.is_doubling):
            return
        if found.span is not None and found.topic is not None and found.partition is not None:
            yield (found.topic, found.partition), Spans.of([found.span])
        elif waiting.is_doubling and found.batch_id is not None:
            for i, head in enumerate(self.ledger.heads):
                if (head.epoch, head.batch_id) == (found.epoch, found.batch_id):
                    for read in self.ledger.ranges.of(i):
                        if read.span.size > 0:
                            yield (read.topic, read.partition), Spans.of([read.span])
                    return

    def lost(self, where: TopicPartition, findings: Sequence[tuple[OpenFinding, Spans]]) -> Iterator[PlannedRange]:
        """What of the missing offsets of a topic partition can be read again."""
        unread = _union(spans for finding, spans in findings if finding.check in OF_UNREAD_RANGES)
        missing = _union(spans for finding, spans in findings if finding.check not in OF_UNREAD_RANGES)
        since = self._read_since(where)
        wanted = unread.minus(self._covered(where)).union(missing.minus(since))
        done = unread.union(missing).minus(wanted)
        yield from self._pieces(where, done, findings, "done", "read by an entry behind the last audit: audit again")
        why = self._unsure(where)
        if why:
            yield from self._pieces(where, wanted, findings, "unknown", why)
            return
        if self.able.only_unread:
            replaced = wanted.intersect(self._covered(where))
            yield from self._pieces(where, replaced, findings, "unknown", self.able.only_unread)
            wanted = wanted.minus(replaced)
        topic = self.kafka.topics.get(where[0])
        if topic is not None and topic.exists and topic.topic_id is None:
            why = "the broker gives no topic ids, so whether its records are those that were read is not known"
            yield from self._pieces(where, wanted, findings, "unknown", why)
            return
        gone = self._gone(topic, where)
        if gone or topic is None:
            yield from self._pieces(where, wanted, findings, "gone", gone)
            return
        partition = topic.partitions[where[1]]
        below, above = Spans.of([(0, partition.log_start)]), Spans.of([(0, partition.log_end)])
        deleted = f"Kafka's log now starts at {partition.log_start}"
        yield from self._pieces(where, wanted.intersect(below), findings, "gone", deleted)
        beyond = f"Kafka's log ends at {partition.log_end}: it was cut off, or an open transaction holds them back"
        yield from self._pieces(where, wanted.minus(above), findings, "unknown", beyond)
        held = f"Kafka still has them (log start {partition.log_start})"
        if "compact" in topic.cleanup_policy:
            held += ", but for records that compaction has removed"
        still_held = wanted.intersect(above).minus(below)
        yield from self._pieces(where, still_held, findings, "read", held + self.able.reads)

    def doubled(self, where: TopicPartition, findings: Sequence[tuple[OpenFinding, Spans]]) -> Iterator[PlannedRange]:
        """What of the doubled offsets of a topic partition is still to be cleaned."""
        wanted = _union(spans for _, spans in findings)
        behind = next(
            (i for i, h in enumerate(self.ledger.heads) if h.sequence > self.position), len(self.ledger.heads)
        )
        since = cleaned(self.ledger, *where, after=behind - 1)
        done = "cleaned by an entry behind the last audit: audit again"
        yield from self._pieces(where, wanted.intersect(since), findings, "done", done)
        why = self._unsure(where) or self.able.no_removal
        step = "one row of each is kept, that of the micro-batch whose entry accounts for it"
        left = wanted.minus(since)
        yield from self._pieces(where, left, findings, "unknown" if why else "remove", why or step)

    def _pieces(
        self,
        where: TopicPartition,
        spans: Spans,
        findings: Sequence[tuple[OpenFinding, Spans]],
        action: Action,
        why: str,
    ) -> Iterator[PlannedRange]:
        """The offsets by the micro-batch that read past them."""
        for span, batch_id in self._by_batch(where, spans, findings):
            about = [finding for finding, of_finding in findings if of_finding.intersect(Spans((span,)))]
            yield PlannedRange(
                action=action,
                topic=where[0],
                topic_id=self._topic_id(where[0]),
                partition=where[1],
                start_offset=span.start,
                end_offset=span.end,
                source=next(iter(self._sources(where[0])), 0),
                batch_id=batch_id,
                findings=tuple(sorted({finding.id for finding in about})),
                why=why,
            )

    def _by_batch(
        self, where: TopicPartition, spans: Spans, findings: Sequence[tuple[OpenFinding, Spans]]
    ) -> Iterator[tuple[Span, int | None]]:
        heads = self.ledger.heads
        found: list[tuple[Span, int | None]] = []
        left = spans
        readings = self._readings.get(where)
        for piece in readings.pieces(spans) if readings is not None else ():
            if heads[piece.entry].is_micro_batch:
                span = Span(piece.start, piece.end)
                found.append((span, heads[piece.entry].batch_id))
                left = left.minus(Spans((span,)))
        # What Spark planned names the micro-batch itself; a hole between entries names the one behind it.
        for finding, of_finding in sorted(findings, key=lambda item: item[0].check != "checkpoint_commits"):
            for span in left.intersect(of_finding):
                found.append((span, finding.finding.batch_id))
            left = left.minus(of_finding)
        joined: list[tuple[Span, int | None]] = []
        for span, batch_id in sorted(found):
            if joined and joined[-1][0].end == span.start and joined[-1][1] == batch_id:
                joined[-1] = (Span(joined[-1][0].start, span.end), batch_id)
            else:
                joined.append((span, batch_id))
        yield from joined

    @cached_property
    def _readings(self) -> Mapping[TopicPartition, ReadStretches]:
        return stretches_of(coverage(self.ledger))

    def _covered(self, where: TopicPartition) -> Spans:
        incarnations = (
            incarnation
            for source in self._sources(where[0])
            for incarnation in coverage(self.ledger).incarnations.get(Key(source, *where), ())
        )
        return _union(incarnation.walked.covered for incarnation in incarnations)

    def _read_since(self, where: TopicPartition) -> Spans:
        """What repairs behind the last audit read."""
        heads = self.ledger.heads
        repairs = (i for i, head in enumerate(heads) if head.is_repair and head.sequence > self.position)
        return by_partition(read for i in repairs for read in self.ledger.ranges.of(i)).get(where, Spans())

    def _sources(self, topic: str) -> list[int]:
        return sorted({source for source, name, _ in self.ledger.ranges.topics if name == topic})

    def _ids(self, topic: str) -> list[str]:
        return sorted({id_ for _, name, id_ in self.ledger.ranges.topics if name == topic and id_ is not None})

    def _topic_id(self, topic: str) -> str | None:
        ids = self._ids(topic)
        return ids[0] if len(ids) == 1 else None

    def _gone(self, topic: KafkaTopic | None, where: TopicPartition) -> str:
        """Why Kafka has nothing of a topic partition any more; "" where it has it."""
        if topic is None or not topic.exists or where[1] not in topic.partitions:
            return f"Kafka has no {where[0]}-{where[1]} any more"
        read = self._topic_id(where[0])
        return "" if topic.topic_id == read else self.clusters.other_records(where[0], read, topic.topic_id)

    def _unsure(self, where: TopicPartition) -> str:
        """Why a repair of this topic could lose or double rows; "" where it cannot."""
        ids, sources = self._ids(where[0]), self._sources(where[0])
        if len(sources) > 1:
            return f"the query reads topic {where[0]} through several sources, and a row does not say by which it came"
        if len(ids) > 1:
            return (
                f"several topics of the name {where[0]} were read (the ledger has ids {some(ids)}), and a row does not "
                "say of which of them it is"
            )
        if not ids:
            return (
                f"the ledger has no id of topic {where[0]}, so whether Kafka's records are those that were read is not "
                "known"
            )
        return ""


def _union(parts: Iterator[Spans]) -> Spans:
    return Spans.of(span for spans in parts for span in spans)


def without(ranges: Sequence[PlannedRange], present: dict[TopicPartition, Spans]) -> list[PlannedRange]:
    """The ranges without offsets of which the sink, or its quarantine, already has a row."""
    return [
        replace(part, start_offset=start, end_offset=end)
        for part in ranges
        for start, end in Spans.of([part.span.span]).minus(present.get((part.topic, part.partition), Spans()))
    ]
