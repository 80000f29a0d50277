"""What a query reads, as an audit sees it: which offsets it still has, and which have a record for the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, Self

from typing_extensions import override

from recon.judge.coverage import Key
from recon.judge.kafka.clusters import Clusters
from recon.model import (
    Code,
    KafkaTopic,
    KafkaWitness,
    LedgerSlice,
    ProbeAnswer,
    SourceFiles,
    SourceLog,
    Unavailable,
    Witnesses,
    known,
    why_unknown,
)
from recon.model.delta_offsets import is_delta, offset_of
from recon.model.evidence import Answers, Questions, Reader, answered
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.model.positions import is_kafka
from recon.model.proof import OF_UNREAD_RANGES

ASKED = 10_000  # offsets of a range that no micro-batch read, about which Kafka is asked first
_MOST_WITHOUT_RECORD = 1_000  # ranges of a topic partition that are remembered; audits judge the newest entries again
_SAID_BY_STEP = (Code.EXPLAINED, Code.INCONCLUSIVE)
NO_RECORD = "hold no record for the stream"


class Missed(NamedTuple):
    """Offsets that no micro-batch read, and what the source says of them.

    `code` is EXPLAINED where the source has no record there for the stream, INCONCLUSIVE where a micro-batch may have
    read them; `step` says why it is so, or what to do.
    `topic_id` is that of the topic which has them: a later one of the name has other offsets. `said` is whether the
    source could be asked.
    """

    code: Code
    span: Span
    step: str
    topic_id: str | None = None
    said: bool = True

    def says(self, key: Key, reason: str) -> str:
        """The message of a finding; `reason` says of a loss how it came about: "are missing: ..."."""
        where = f"{key}: {key.offsets(*self.span)}"
        return f"{where} {self.step if self.code in _SAID_BY_STEP else f'{reason}; {self.step}'}"


@dataclass(frozen=True, kw_only=True)
class OffsetsWithoutRecord:
    """Offsets of one topic partition that no entry holds, and that have no record for the stream, as an audit saw.

    They have transaction markers or aborted records. Kafka deletes these, too, and then no witness tells. The ranges
    are half-open and ascending. `isolation_level` is the stream's as recon.yml had it then: where that was corrected
    since, aborted records are records.
    """

    topic: str
    topic_id: str | None
    partition: int
    isolation_level: str
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class WithoutRecord(SinkMemory):
    """Ranges that no micro-batch with an entry read, and that have no record: the newest of each topic partition."""

    name: ClassVar[str] = "without_record"
    of_any_audit: ClassVar[bool] = True
    offsets: tuple[OffsetsWithoutRecord, ...]

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        known_empty, level = before.offsets if before is not None else (), audit.witnesses.isolation_level
        ranges = {(o.topic, o.topic_id, o.partition, o.isolation_level): list(o.ranges) for o in known_empty}
        for topic, topic_id, partition, span in _empty_now(audit):
            ranges.setdefault((topic, topic_id, partition, level), []).append(span)
        offsets = tuple(
            OffsetsWithoutRecord(
                topic=topic,
                topic_id=topic_id,
                partition=partition,
                isolation_level=of_level,
                ranges=tuple((start, end) for start, end in Spans.of(spans))[-_MOST_WITHOUT_RECORD:],
            )
            for (topic, topic_id, partition, of_level), spans in ranges.items()
        )
        return cls(offsets=offsets) if offsets else None


def _empty_now(audit: SinkAudit) -> Iterator[tuple[str, str | None, int, Span]]:
    """The unread offsets of which an audit saw that they have no record: topic, its id, partition, range."""
    for finding in (f for r in audit.results if r.check in OF_UNREAD_RANGES for f in r.findings):
        topic, partition, span = finding.topic, finding.partition, finding.span
        if finding.code is Code.EXPLAINED and topic is not None and partition is not None and span is not None:
            yield topic, finding.topic_id, partition, span


@dataclass(frozen=True)
class Source:
    """Kafka's topics, or the `log` of a Delta table or a folder that is read instead.

    `answers` is what Kafka's own records say of some offsets, so far; `reader` asks for more. `empty` are the offsets
    that no entry holds and of which earlier audits saw that they have no record.
    """

    kafka: KafkaWitness | Unavailable
    log: SourceLog | Unavailable | None
    isolation_level: str
    answers: Answers = field(default_factory=dict)
    empty: WithoutRecord | None = None
    reader: Reader | None = None
    clusters: Clusters = field(default_factory=lambda: Clusters({}))

    @classmethod
    def of(cls, seen: Witnesses) -> Self:
        """The source of a pipeline, as it was read for the judged sink."""
        empty = seen.memory(WithoutRecord)
        of = seen.kafka, seen.source_log, seen.isolation_level, seen.probes
        return cls(*of, empty, seen.reader, Clusters.of(seen))

    def asking(self, questions: Callable[[Source], Questions]) -> Source:
        """The same with Kafka's answers to the questions that it leaves, and to those that the answers leave."""
        return replace(
            self,
            answers=answered(self.reader, self.answers, lambda so_far: questions(replace(self, answers=so_far))),
        )

    # -- what there is ------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> KafkaTopic | None:
        """A topic as Kafka describes it; None where it was not read."""
        kafka = known(self.kafka)
        return None if kafka is None else kafka.topics.get(name)

    def is_compacted(self, topic: str) -> bool:
        """Whether Kafka compacts the topic, so that a missing record may be no loss."""
        described = self.topic(topic)
        return described is not None and "compact" in described.cleanup_policy

    def is_topic(self, name: str, topic_id: str | None) -> bool:
        """Whether Kafka's topic is known to be the one that was read: another one has other records there."""
        topic = self.topic(name)
        return topic is not None and topic_id is not None and topic.topic_id == topic_id

    def other_records(self, name: str, topic_id: str | None) -> str:
        """What Kafka has where its topic is known to be another one than was read; "" where it is not."""
        topic = self.topic(name)
        now = topic.topic_id if topic is not None else None
        return "" if None in (now, topic_id) or now == topic_id else self.clusters.other_records(name, topic_id, now)

    def log_start(self, key: Key, topic_id: str | None) -> tuple[int | None, str]:
        """(log start of the topic partition the ledger speaks of, why it is not known)."""
        if not is_kafka(key.topic):
            return self._log_start_of_log(key.topic)
        topics = known(self.kafka)
        if topics is None:
            return None, f"whether Kafka still holds them is unknown ({why_unknown(self.kafka)})"
        topic = topics.topics.get(key.topic)
        if topic is None:
            return None, "no broker was read to see whether Kafka still holds them"
        if not topic.exists or key.partition not in topic.partitions:
            return None, "Kafka holds this topic partition no longer"
        if other := self.other_records(key.topic, topic_id):
            return None, other
        return topic.partitions[key.partition].log_start, ""

    def _log_start_of_log(self, topic: str) -> tuple[int | None, str]:
        """The oldest offset that the log of what is read still has: of a table, that of the oldest version's commit."""
        log = self.log
        if log is None or isinstance(log, Unavailable):
            return None, f"whether its log still has them is unknown ({why_unknown(log, 'it was not read')})"
        if other := log.why_other(topic):
            return None, other
        if isinstance(log, SourceFiles):
            return 0, ""  # Spark keeps the whole log
        if log.first_retained is None:
            return None, f"there is no Delta table at {log.location} any more"
        return offset_of(log.first_retained, 0), ""

    # -- offsets that were never read ---------------------------------------------------------------------------------

    def missed(
        self, key: Key, topic_id: str | None, unread: tuple[int, int], unknown: Code = Code.GAP
    ) -> Iterator[Missed]:
        """Offsets that were never read, split by what the source says of them.

        An audit that saw no record there, before Kafka deleted them, is believed. `unknown` is the code where the
        source does not say.
        """
        empty = self._without_record(key, topic_id).intersect(Spans.of([unread]))
        for span in empty:
            yield Missed(Code.EXPLAINED, span, NO_RECORD, topic_id)
        for span in Spans.of([unread]).minus(empty):
            yield from (part._replace(topic_id=topic_id) for part in self._missed(key, topic_id, span, unknown))

    def _missed(self, key: Key, topic_id: str | None, unread: Span, unknown: Code) -> Iterator[Missed]:
        log_start, why = self.log_start(key, topic_id)
        start, end = unread
        if log_start is None:
            yield Missed(unknown, unread, why, said=False)
            return
        cut = min(max(log_start, start), end)
        if cut > start:
            deleted = "these records cannot be read any more"
            what = deleted if is_kafka(key.topic) else "a stream cannot read them any more"
            yield Missed(Code.LOSS_RETENTION, Span(start, cut), f"{key.log_starts_at(log_start)}, so {what}")
        if cut == end:
            return
        kept = Span(cut, end)
        if self._holds_none(key, topic_id, kept):
            yield Missed(Code.EXPLAINED, kept, NO_RECORD)
        elif is_kafka(key.topic):
            yield Missed(Code.GAP, kept, self._still_held(key, kept, log_start))
        else:
            what = "versions" if is_delta(key.topic) else "files"
            yield Missed(Code.GAP, kept, f"the log still has them: read exactly these {what} once more")

    def _still_held(self, key: Key, span: Span, log_start: int) -> str:
        """The next step for offsets that Kafka still has; records that were aborted are no loss for most streams."""
        answer = self.answers.get((key.topic, key.partition))
        if answer is not None and answer.tells(span) and not Spans.of([span]).intersect(answer.committed):
            return (
                "Kafka has records of aborted transactions alone there: if the query reads committed records, say "
                "`isolation_level: read_committed` under source in recon.yml, else read exactly this range once more "
                "(`recon repair plan`)"
            )
        return (
            f"Kafka still holds them (log start {log_start}): read exactly this range once more (`recon repair plan`)"
        )

    def _without_record(self, key: Key, topic_id: str | None) -> Spans:
        """The offsets of which an earlier audit saw that they have no record for the stream.

        What has no record for a reader of all records has none for one of committed records.
        """
        of_place = (
            empty
            for empty in (self.empty.offsets if self.empty is not None else ())
            if (empty.topic, empty.topic_id, empty.partition) == (key.topic, topic_id, key.partition)
            and empty.isolation_level in (self.isolation_level, "read_uncommitted")
        )
        return Spans.of(span for empty in of_place for span in empty.ranges)

    def _holds_none(self, key: Key, topic_id: str | None, span: Span) -> bool:
        """Whether it has no record for the stream in a range: in Kafka transaction markers, or aborted records."""
        if not is_kafka(key.topic):
            log = known(self.log)
            return log is not None and log.topic == key.topic and log.records(*span) == 0
        answer = self.answers.get((key.topic, key.partition))
        if answer is None or not answer.tells(span) or not self.is_topic(key.topic, topic_id):
            return False
        if self.is_compacted(key.topic):
            return False  # compaction may have removed the record that was not read
        committed_only = self.isolation_level == "read_committed"
        return not Spans.of([span]).intersect(answer.committed if committed_only else answer.uncommitted)

    def to_ask(self, key: Key, topic_id: str | None, unread: tuple[int, int]) -> Spans:
        """What Kafka is asked about offsets that no micro-batch read, before they are called missing.

        Whether it has a record there. Most ranges that are missing begin with one: a first part is asked about, and ten
        times as much when that has none. Compaction leaves no record of what was lost, so that it is not asked there.
        """
        if not is_kafka(key.topic) or self.is_compacted(key.topic) or not self.is_topic(key.topic, topic_id):
            return Spans()
        held = (part.span for part in self.missed(key, topic_id, unread) if part.code is Code.GAP)
        return Spans.of(self._begin(key, topic_id, span) for span in held)

    def _begin(self, key: Key, topic_id: str | None, span: Span) -> Span:
        size = ASKED
        while size < span.size and self._holds_none(key, topic_id, Span(span.start, span.start + size)):
            size *= 10
        return Span(span.start, min(span.start + size, span.end))

    # -- how many records there are -----------------------------------------------------------------------------------

    def held_in(self, read: OffsetSpan) -> Mapping[str, int] | str:
        """How many offsets of a range have a committed record, an aborted one or none; or why nobody can count them."""
        if self.log is not None or not is_kafka(read.topic):
            rows = self._rows_in(read)
            return rows if isinstance(rows, str) else {"committed": rows, "aborted": 0, "absent": 0}
        answer = self.answers.get((read.topic, read.partition))
        if answer is None:
            return f"Kafka could not be read for {read.topic}-{read.partition}"
        if why := self._why_uncounted(read, answer):
            return why
        # A reader of uncommitted records gets the committed ones, too.
        span = Spans((read.span,))
        committed, both = span.intersect(answer.committed).size, span.intersect(answer.uncommitted).size
        absent = span.size - max(both, committed)
        return {"committed": committed, "aborted": max(both - committed, 0), "absent": absent}

    def _why_uncounted(self, read: OffsetSpan, answer: ProbeAnswer) -> str:
        """Why what Kafka answered does not tell the records of a range; "" where it does."""
        name = f"{read.topic}-{read.partition}"
        if other := self.other_records(read.topic, read.topic_id):
            return other
        if read.start_offset < answer.log_start:
            return f"Kafka's log of {name} now starts at {answer.log_start}: its records can no longer be counted"
        if answer.truncated is not None:
            return f"Kafka could not be read for all of {name}: {answer.truncated}"
        if Spans((read.span,)).minus(answer.requested) or read.end_offset > answer.last_stable:
            return f"a transaction of {name} is still open, or the probe did not reach that far"
        return ""

    def records_of(self, ledger: LedgerSlice) -> Sequence[int | None] | None:
        """How many rows each entry's ranges have in the table or folder that was read, None where its log is silent.

        None altogether for a query that reads Kafka, which counts no records.
        """
        if self.log is None:
            return None
        each = ([self._rows_in(read) for read in ledger.ranges.of(entry)] for entry in range(len(ledger.heads)))
        return [None if any(isinstance(rows, str) for rows in of) else sum(map(int, of)) for of in each]

    def _rows_in(self, read: OffsetSpan) -> int | str:
        """How many rows the log of a Delta table or of a file source has in a range; or why they cannot be counted."""
        if is_kafka(read.topic):
            return f"recon.yml names another source than Kafka, and it read topic {read.topic}"
        if self.log is None or isinstance(self.log, Unavailable):
            return f"the log of what was read could not be looked at: {why_unknown(self.log, 'it was not read')}"
        return self.log.why_other(read.topic) or self.log.records(*read.span)
