"""kafka_end_offsets: how far the ledger is behind Kafka, and what Kafka dropped before it was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar

from typing_extensions import override

from recon.base.text import plural, some
from recon.checks.age_check import AgeCheck, Limits, exceeded
from recon.judge.case import SinkCase
from recon.judge.coverage import Coverage, Key, TopicIncarnation, coverage
from recon.judge.findings import Findings, no_entries, offsets
from recon.judge.kafka.clusters import Move
from recon.model import (
    CheckpointBatch,
    CheckpointWitness,
    Code,
    KafkaPartition,
    KafkaTopic,
    Verdict,
    Witnesses,
    known,
    why_unknown,
)
from recon.model.ledger import named
from recon.model.offsets import Span
from recon.model.positions import SourceKind
from recon.model.wire.values import of_millis


@dataclass(frozen=True, kw_only=True)
class KafkaEndOffsets(AgeCheck):
    """Where the ledger's last micro-batch ended, against what Kafka holds now.

    Proves that nothing was lost between the ledger's end and Kafka's log, and says how far the stream is behind.
    It needs the ledger and a broker; end offsets are those of the stream's isolation level. Lag is counted in
    offsets, which include transaction markers: it is not a number of rows.

    Args:
        warn_after: the age of the oldest unread record from which on lag warns, as `{count: 5, period: minute}`.
        error_after: the age from which on it fails. Periods are minute, hour and day.
    """

    test: ClassVar[str] = "kafka_end_offsets"
    needs: ClassVar[Sequence[str]] = ("ledgers", "kafka")
    uses: ClassVar[Sequence[str]] = ("delta", "sink_logs", "checkpoint")
    about: ClassVar[SourceKind | None] = "Kafka"
    scope: ClassVar[str] = "sink"

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        case, kafka = SinkCase(witnesses), known(witnesses.kafka)
        if kafka is None:
            return Verdict(unproved=why_unknown(witnesses.kafka))
        if not case.entered.heads:
            return no_entries(witnesses)
        findings = Findings.of(witnesses)
        if witnesses.is_unrouted:
            message = f"no route leads to sink {witnesses.sink} any more, so that nothing waits in Kafka for it"
            return findings.verdict(message, partitions=[], log_ends=[], lag=0)
        covered = coverage(case.ledger)
        topics: dict[str, dict[Key, TopicIncarnation]] = {name: {} for name in kafka.topics}
        for key in covered.incarnations:
            if (newest := covered.newest(key)) is not None:
                topics.setdefault(key.topic, {})[key] = newest
        finished = _finished(covered, witnesses)
        rows: list[dict[str, Any]] = []
        for name, incarnation_of in sorted(topics.items()):
            topic = kafka.topics.get(name)
            if topic is None:
                message = f"topic {name} was read, and its end offsets were not"
                findings.add(Code.INCONCLUSIVE, message, topic=name)
            elif not topic.exists:
                _judge_missing_topic(name, incarnation_of, case, findings)
            else:
                rows += _Topic(case, findings, covered, finished, topic, incarnation_of, self.limits).judge()
        _report_all_left(case, frozenset(topics), findings)
        return self._verdict(rows, findings)

    def _verdict(self, rows: Sequence[Mapping[str, Any]], findings: Findings) -> Verdict:
        lag = sum(row["lag"] or 0 for row in rows)
        message = f"{plural(len(rows), 'topic partition')} read up to " + (
            f"{plural(lag, 'offset')} before the end of the log" if lag else "the end of the log"
        )
        ends = [[row["topic"], row["partition"], row["log_end"]] for row in rows]
        # The next audit tells by them what was deleted of partitions that are not read.
        starts = [[row["topic"], row["partition"], row["log_start"]] for row in rows if row["committed"] is None]
        return findings.verdict(
            message, partitions=rows, log_ends=ends, log_starts=starts, lag=lag, limits=self.limits_told
        )


@dataclass
class _Topic:
    """The partitions of one topic; what a live stream has in every partition is reported once."""

    case: SinkCase
    findings: Findings
    covered: Coverage
    finished: Mapping[Key, int]
    topic: KafkaTopic
    incarnations: Mapping[Key, TopicIncarnation]
    limits: Limits
    behind: dict[Key, Span] = field(default_factory=dict)
    unread_since: dict[Key, datetime] = field(default_factory=dict)
    untrue: dict[Key, int] = field(default_factory=dict)  # stamps that cannot be true, in milliseconds
    not_before: dict[Key, datetime] = field(default_factory=dict)  # of these, when an earlier audit saw the log end
    open: dict[Key, Span] = field(default_factory=dict)
    recreated: dict[Key, str] = field(default_factory=dict)
    ids_unknown: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)

    @cached_property
    def moved(self) -> Move | None:
        """Between which clusters the topic's name moved since it was read, if it did."""
        moves = (self.case.source.clusters.move(of.topic_id, self.topic.topic_id) for of in self.incarnations.values())
        return next((move for move in moves if move is not None), None)

    def judge(self) -> list[dict[str, Any]]:
        """Judges each partition; returns their rows of the evidence."""
        for key, incarnation in self.incarnations.items():
            self._judge_read(key, incarnation)
        for number in sorted(set(self.topic.partitions) - {key.partition for key in self.incarnations}):
            self._judge_unread(Key(0, self.topic.topic, number))
        if self.moved is not None:
            self._report_moved(self.moved)
        elif self.recreated:
            key, reason = next(iter(self.recreated.items()))
            self.findings.add(
                Code.RECREATED,
                f"{self} was deleted and created again: {reason}; stop the query and start it on "
                "a fresh checkpoint, or offsets of the old topic will be taken for those of the new one",
                topic=self.topic.topic,
                about=f"topic id {self.topic.topic_id}",
                partition=key.partition if len(self.recreated) == 1 else None,
            )
        self._report()
        return self.rows

    def _report_moved(self, move: Move) -> None:
        self.findings.add(
            Code.RECREATED,
            f"{self} is on another cluster: {move}; offsets of the two are not comparable, and if records were copied, "
            "a query that begins at the new log start reads these twice; stop the query, and start it on a "
            "fresh checkpoint by timestamp (startingOffsetsByTimestamp)",
            topic=self.topic.topic,
            about=f"topic id {self.topic.topic_id}",
        )

    def _judge_read(self, key: Key, incarnation: TopicIncarnation) -> None:
        partition = self.topic.partitions.get(key.partition)
        read_id, topic_id = ids = (incarnation.topic_id, self.topic.topic_id)
        committed = max(incarnation.walked.frontier, self.finished.get(key, 0))
        if None not in ids and read_id != topic_id:
            self.recreated[key] = f"its id was {read_id} and is {topic_id}"
        elif partition is not None and None in ids and max(partition.log_end, partition.high_watermark) < committed:
            self.recreated[key] = f"{key} ends at {partition.log_end}, below {committed} which was read"
        if partition is None:
            if key not in self.recreated:
                _judge_missing(key, committed, self.case.witnesses, self.findings)
            return
        self._count(key, partition, committed)
        if key not in self.recreated:
            self._judge_same(key, incarnation, partition, committed)
        elif partition.log_end >= committed > 0:
            self._judge_again(key, committed)

    def _judge_again(self, key: Key, committed: int) -> None:
        if self.moved is None:  # else what is there may be copies of what was read
            reason = "the re-created topic holds them below what was read of the former one"
            self._report_missed(key, self.topic.topic_id, (0, committed), reason)

    def _judge_same(self, key: Key, incarnation: TopicIncarnation, partition: KafkaPartition, committed: int) -> None:
        if max(partition.log_end, partition.high_watermark) < committed:
            self.findings.add(
                Code.INCONCLUSIVE,
                f"{key}: the log ends at {partition.log_end}, below {committed} which was read, and the topic "
                f"is the same (leader epoch {partition.leader_epoch}): its log was cut off by an unclean "
                "leader election; what was read beyond cannot be compared any more",
                about=f"log end {partition.log_end}, leader epoch {partition.leader_epoch}",
                key=key,
            )
        elif self.topic.topic_id is None:
            self.ids_unknown += 1
        if self.case.ledger.later:
            return  # what micro-batches behind the period read is the business of other audits
        if partition.log_start > committed:
            unread = (committed, partition.log_start)
            self._report_missed(key, incarnation.topic_id, unread, "the stream had read up to there")
        if key in self.behind:
            self._judge_dropped(key, incarnation)

    def _judge_dropped(self, key: Key, incarnation: TopicIncarnation) -> None:
        """Spark names every partition in every plan: one that drops out of them is not read any more."""
        covered = self.covered
        newest, last = covered.micro_batches[-1], covered.last_read(incarnation)
        source = [of[-1] for other, of in covered.incarnations.items() if other.source == key.source]
        if last is not None and max(covered.last_read(read) or 0 for read in source) == newest != last:
            head = covered.slice.heads[newest]
            if not self.case.subscription.names(key.topic):
                _report_left(key, self.behind.pop(key), self.findings)
                return
            self.findings.add(
                Code.STALLED,
                f"{key} was read last by {named(covered.slice.heads[last])}, and {named(head)} does not read it: "
                f"{plural(self.behind[key].size, 'offset')} wait; see why the query dropped the partition",
                head=head,
                key=key,
            )

    def _judge_unread(self, key: Key) -> None:
        partition, committed = self.topic.partitions[key.partition], self.finished.get(key)
        if not self.incarnations and committed is None:
            self._judge_unread_topic(key, partition)
            return
        self._count(key, partition, committed)
        if self.incarnations and partition.log_start > 0:
            unread = (0, partition.log_start)
            self._report_missed(key, self.topic.topic_id, unread, "no micro-batch read the partition")

    def _judge_unread_topic(self, key: Key, partition: KafkaPartition) -> None:
        """A partition of a topic that recon.yml names, and that no micro-batch of the period reads."""
        subscribed = self.case.subscription
        self._count(key, partition, subscribed.read_before(key, self.topic.topic_id))
        if self.case.ledger.later or self.case.time.is_past or subscribed.plans(key):
            return  # it may be read since
        begins = subscribed.awaited_from(key, self.topic.topic_id)
        if begins is not None and begins < partition.log_start:
            unread = (begins, partition.log_start)
            self._report_missed(key, self.topic.topic_id, unread, "the query does not read the topic")
        if key in self.behind:
            self.findings.add(
                Code.STALLED,
                f"recon.yml names topic {key.topic}, and the newest micro-batch does not read {key}: "
                f"{offsets(*self.behind[key])} wait; compare the query's subscription with recon.yml",
                key=key,
            )

    def _report_missed(self, key: Key, topic_id: str | None, unread: tuple[int, int], reason: str) -> None:
        for part in self.case.source.missed(key, topic_id, unread):
            message = part.says(key, f"were never read: {reason}")
            self.findings.add(part.code, message, key=key, span=part.span, topic_id=part.topic_id)

    def _count(self, key: Key, partition: KafkaPartition, committed: int | None) -> None:
        """Counts a partition that was read up to `committed`."""
        position = partition.log_start if committed is None else max(committed, partition.log_start)
        lag = max(partition.log_end - position, 0)
        if lag:
            self.behind[key] = Span(position, partition.log_end)
            self._age(key, partition, position)
        if partition.last_stable < partition.high_watermark:
            self.open[key] = Span(partition.last_stable, partition.high_watermark)
        log = {"log_start": partition.log_start, "log_end": partition.log_end}
        place = {"topic": key.topic, "partition": key.partition}
        self.rows.append({**place, **log, "committed": committed, "lag": lag})

    def _age(self, key: Key, partition: KafkaPartition, position: int) -> None:
        """Since when the records from a position on wait: by the first one's stamp, and never since before they came.

        An earlier audit that saw the log end at or before the position came before them.
        """
        since, previous = partition.waits_since(self.case.time.now), known(self.case.witnesses.previous)
        came_before = previous is not None and previous.log_ends.get(key[1:], position + 1) <= position
        ended = previous.log_ended.get(key[1:]) if previous is not None and came_before else None
        if since is not None:
            self.unread_since[key] = since if ended is None else max(since, ended)
            return
        if ended is not None:
            self.not_before[key] = ended
        if partition.unread_stamp is not None:
            self.untrue[key] = partition.unread_stamp

    def _report(self) -> None:
        if self.behind:
            self._report_behind()
        if self.open:
            held = some(f"{offsets(*span)} of {key}" for key, span in self.open.items())
            self._add(Code.INFLIGHT, f"{self}: an open transaction holds back {held}", self.open)
        if self.ids_unknown:
            message = (
                f"{self}: no topic id is known for {plural(self.ids_unknown, 'partition')}, so a topic that "
                "was deleted, created again and refilled would not be noticed; brokers give ids from Kafka 2.8 on"
            )
            self._add(Code.TOPIC_ID_UNKNOWN, message, {})

    def _report_behind(self) -> None:
        total, number = sum(span.size for span in self.behind.values()), len(self.behind)
        waiting = f"{plural(total, 'offset')} in {plural(number, 'partition')} wait to be read"
        self._add(Code.INFLIGHT, f"{self}: {waiting}", self.behind)
        if self.untrue:
            stamp = next(iter(self.untrue.values()))
            at = of_millis(stamp)
            said = f"{stamp} ms, which is no time" if at is None else f"{at:%Y-%m-%d %H:%M:%S}Z"
            message = (
                f"{some(self.untrue)}: the first unread record is stamped {said} by its producer (CreateTime), perhaps "
                "not in milliseconds: retention by age deletes such records at once, or never; correct the producer"
            )
            self._add(Code.UNUSUAL, message, {key: self.behind[key] for key in self.untrue})
        if self.limits:
            self._report_late()
            self._report_unknown_age()

    def _report_late(self) -> None:
        late: dict[Code, dict[Key, Span]] = {}
        for key, since in self.unread_since.items():
            code = exceeded(self.limits, self.case.time.now - since)
            if code is not None:
                late.setdefault(code, {})[key] = self.behind[key]
        for code, behind in late.items():
            message = (
                f"{self}: {plural(len(behind), 'partition')} ({some(behind)}) hold unread records older than "
                f"{self.limits[code]}, the oldest from {min(self.unread_since.values()):%Y-%m-%d %H:%M:%S}Z; see "
                "whether the query runs and keeps up"
            )
            self._add(code, message, behind)

    def _report_unknown_age(self) -> None:
        shortest = min(limit.length for limit in self.limits.values())
        recent = {key for key, at in self.not_before.items() if self.case.time.now - at <= shortest}
        unknown = {key: span for key, span in self.behind.items() if key not in {*self.unread_since, *recent}}
        if unknown:
            message = f"the age of the unread offsets of {some(unknown)} is not known, so they cannot be held against"
            self._add(Code.INCONCLUSIVE, f"{self}: {message} warn_after or error_after", unknown)

    def _add(self, code: Code, message: str, ranges: Mapping[Key, Span]) -> None:
        """Adds a finding about ranges: its place has partition and offsets, where it is one partition alone."""
        where: dict[str, Any] = {"topic": self.topic.topic}
        if len(ranges) == 1:
            where = dict(zip(("key", "span"), *ranges.items(), strict=True))
        self.findings.add(code, message, **where)

    def __str__(self) -> str:
        return f"topic {self.topic.topic}"


def _finished(covered: Coverage, witnesses: Witnesses) -> Mapping[Key, int]:
    """Where the micro-batches ended that Spark finished since the newest entry, whether they wrote something or not.

    Spark does not read what is below again: `checkpoint_commits` says whether records are missing there.
    """
    since = _since(covered, known(witnesses.checkpoint))
    ends = {Key(*new[:3]): new[3] for batch in since for new in batch.new_partitions}
    return ends | {Key(r.source, r.topic, r.partition): r.end_offset for batch in since for r in batch.ranges}


def _since(covered: Coverage, checkpoint: CheckpointWitness | None) -> Sequence[CheckpointBatch]:
    newest = covered.slice.heads[covered.micro_batches[-1]] if covered.micro_batches else None
    if newest is None or checkpoint is None or newest.query_id != checkpoint.query_id:
        return ()
    # Behind a micro-batch of which the checkpoint has nothing any more, what was read is not known.
    later = enumerate((b for b in checkpoint.batches if b.batch_id > newest.batch_id), newest.batch_id + 1)
    return [batch for place, batch in later if batch.committed and batch.batch_id == place]


def _report_all_left(case: SinkCase, looked_at: frozenset[str], findings: Findings) -> None:
    if not case.time.is_past:
        for key, span in case.subscription.left_waiting(looked_at):
            _report_left(key, span, findings)


def _report_left(key: Key, waiting: Span, findings: Findings) -> None:
    message = (
        f"{key}: the query and recon.yml do not read its topic any more, and {offsets(*waiting)} were not read: accept "
        "it where they are not needed, or name the topic again in recon.yml and in the query"
    )
    findings.add(Code.INCONCLUSIVE, message, key=key, span=waiting)


def _judge_missing_topic(
    name: str, incarnation_of: Mapping[Key, TopicIncarnation], case: SinkCase, findings: Findings
) -> None:
    """A topic that is gone, or that Kafka never had."""
    for key, incarnation in incarnation_of.items():
        _judge_missing(key, incarnation.walked.frontier, case.witnesses, findings)
    if incarnation_of or case.time.is_past:
        return
    subscribed = case.subscription
    ends = subscribed.previous.log_ends if subscribed.previous is not None else {}
    unread = [Key(0, topic, partition) for topic, partition in ends if topic == name]
    for key in unread:
        _judge_missing(key, subscribed.awaited_from(key, None) or 0, case.witnesses, findings)
    if not unread:
        message = (
            f"recon.yml names topic {name}, which Kafka does not have: create it, correct its name or take it out; "
            "where its first record creates it, accept this until then"
        )
        findings.add(Code.INCONCLUSIVE, message, about="no such topic", topic=name)


def _judge_missing(key: Key, committed: int, witnesses: Witnesses, findings: Findings) -> None:
    """A topic or partition that is gone: only the previous audit knows how far it went."""
    previous = known(witnesses.previous)
    end = previous.log_ends.get((key.topic, key.partition)) if previous else None
    if end is None or end < committed:
        message = f"{key} is gone from Kafka, and no audit saw how far it went: it was read up to {committed}"
        findings.add(Code.INCONCLUSIVE, message, about=f"gone, read up to {committed}", key=key)
    elif end == committed:
        message = f"{key} is gone from Kafka; it was read up to {committed}, the last end that an audit saw"
        findings.add(Code.CLOSED, message, key=key)
    else:
        message = f"{key} is gone from Kafka with {offsets(committed, end)} unread: the previous audit saw them"
        findings.add(Code.LOSS, message, key=key, span=(committed, end))
