"""kafka_end_offsets: how far the ledger is behind Kafka, and what Kafka dropped before it was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

from typing_extensions import override

from recon.checks.base import EvidenceCheck
from recon.checks.period import Period
from recon.judge.coverage import Key, Missed, TopicIncarnation, coverage, missed
from recon.judge.findings import Findings, ledger_of, named, no_entries, offsets
from recon.judge.history.entries import entries_with_unrecorded_commits
from recon.model import (
    Code,
    KafkaPartition,
    KafkaTopic,
    KafkaWitness,
    PreviousAudit,
    Verdict,
    Witnesses,
    known,
    why_unknown,
)
from recon.model.offsets import Span
from recon.model.positions import SourceKind
from recon.model.wire.values import of_millis
from recon.text import plural, some

_EVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class KafkaEndOffsets(EvidenceCheck):
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

    warn_after: Period | None = None
    error_after: Period | None = None

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        ledger, kafka = entries_with_unrecorded_commits(witnesses), known(witnesses.kafka)
        if kafka is None:
            return Verdict(unproved=why_unknown(witnesses.kafka))
        if ledger is None:
            return no_entries(witnesses)
        findings = Findings.of(witnesses)
        if witnesses.is_unrouted:
            message = f"no route leads to sink {witnesses.sink} any more, so that nothing waits in Kafka for it"
            return findings.verdict(message, partitions=[], log_ends=[], lag=0)
        topics: dict[str, dict[Key, TopicIncarnation]] = {name: {} for name in kafka.topics}
        for key, incarnations in coverage(ledger).incarnations.items():
            topics.setdefault(key.topic, {})[key] = incarnations[-1]
        rows: list[dict[str, Any]] = []
        for name, incarnation_of in sorted(topics.items()):
            topic = kafka.topics.get(name)
            if topic is None:
                message = f"topic {name} was read, and its end offsets were not"
                findings.add(Code.INCONCLUSIVE, message, about="end offsets", topic=name)
            elif not topic.exists:
                for key, incarnation in incarnation_of.items():
                    _judge_missing(key, incarnation.walked.frontier, witnesses, findings)
            else:
                rows += self._judge_topic(topic, incarnation_of, kafka, witnesses, findings)
        lag = sum(row["lag"] or 0 for row in rows)
        message = f"{plural(len(rows), 'topic partition')} read up to " + (
            f"{plural(lag, 'offset')} before the end of the log" if lag else "the end of the log"
        )
        ends = [[row["topic"], row["partition"], row["log_end"]] for row in rows]
        limits = {"warn_after": self.warn_after, "error_after": self.error_after}
        told = {name: str(limit) if limit else None for name, limit in limits.items()}
        return findings.verdict(message, partitions=rows, log_ends=ends, lag=lag, limits=told)

    def _judge_topic(
        self,
        topic: KafkaTopic,
        incarnations: Mapping[Key, TopicIncarnation],
        kafka: KafkaWitness,
        witnesses: Witnesses,
        findings: Findings,
    ) -> list[dict[str, Any]]:
        tally = _Tally(topic.topic, witnesses.now, known(witnesses.previous))
        ledger, finished = ledger_of(witnesses), _finished(witnesses)
        goes_on = ledger is not None and bool(ledger.later)
        rows = []
        recreated: dict[Key, str] = {}
        for key, incarnation in incarnations.items():
            partition = topic.partitions.get(key.partition)
            committed = max(incarnation.walked.frontier, finished.get(key, 0))
            known_ids = incarnation.topic_id is not None and topic.topic_id is not None
            if known_ids and incarnation.topic_id != topic.topic_id:
                recreated[key] = f"its id was {incarnation.topic_id} and is {topic.topic_id}"
            elif partition is None:
                _judge_missing(key, committed, witnesses, findings)
            elif max(partition.log_end, partition.high_watermark) < committed:
                if known_ids:
                    findings.add(
                        Code.INCONCLUSIVE,
                        f"{key}: the log ends at {partition.log_end}, below {committed} which was read, and the topic "
                        f"is the same (leader epoch {partition.leader_epoch}): its log was cut off by an unclean "
                        "leader election; what was read beyond cannot be compared any more",
                        about=f"log end {partition.log_end}, leader epoch {partition.leader_epoch}",
                        key=key,
                    )
                else:
                    recreated[key] = f"{key} ends at {partition.log_end}, below {committed} which was read"
            elif not known_ids and topic.topic_id is None:
                tally.ids_unknown += 1
            if partition is None:
                continue
            # What micro-batches behind the period read is the business of other audits.
            if key not in recreated and partition.log_start > committed and not goes_on:
                unread = missed(witnesses, key, incarnation.topic_id, (committed, partition.log_start))
                _report_missed(key, unread, "the stream had read up to there", findings)
            elif key in recreated and partition.log_end >= committed > 0:
                unread = missed(witnesses, key, topic.topic_id, (0, committed))
                _report_missed(
                    key, unread, "the re-created topic holds them below what was read of the former one", findings
                )
            rows.append(tally.count(key, partition, committed))
            if key not in recreated and not goes_on:
                _judge_dropped(key, incarnation, rows[-1]["lag"], witnesses, findings)
        read = {key.partition for key in incarnations}
        for number in sorted(set(topic.partitions) - read):
            key, partition = Key(0, topic.topic, number), topic.partitions[number]
            rows.append(tally.count(key, partition, finished.get(key)))
            if incarnations and partition.log_start > 0:
                unread = missed(witnesses, key, topic.topic_id, (0, partition.log_start))
                _report_missed(key, unread, "no micro-batch read the partition", findings)
        if recreated:
            key, reason = next(iter(recreated.items()))
            findings.add(
                Code.RECREATED,
                f"topic {topic.topic} was deleted and created again: {reason}; stop the query and start it on "
                "a fresh checkpoint, or offsets of the old topic will be taken for those of the new one",
                topic=topic.topic,
                about=f"topic id {topic.topic_id}",
                partition=key.partition if len(recreated) == 1 else None,
            )
        self._report(tally, witnesses.now, findings)
        return rows

    def _report(self, tally: _Tally, now: datetime, findings: Findings) -> None:
        """One finding per topic and kind: a live stream is behind in every partition."""
        topic = tally.topic
        if tally.behind:
            total = sum(span.size for span in tally.behind.values())
            findings.add(
                Code.INFLIGHT,
                f"topic {topic}: {plural(total, 'offset')} in {plural(len(tally.behind), 'partition')} wait to be read",
                **_place(topic, tally.behind),
            )
            if tally.untrue:
                untrue = {key: tally.behind[key] for key in tally.untrue}
                message = f"{some(untrue)}: {_said(next(iter(tally.untrue.values())), now)}"
                findings.add(Code.UNUSUAL, message, **_place(topic, untrue))
            self._report_age(tally, now, findings)
        if tally.open:
            findings.add(
                Code.INFLIGHT,
                f"topic {topic}: an open transaction holds back "
                f"{some(f'{offsets(*held)} of {key}' for key, held in tally.open.items())}",
                **_place(topic, tally.open),
            )
        if tally.ids_unknown:
            findings.add(
                Code.TOPIC_ID_UNKNOWN,
                f"topic {topic}: no topic id is known for {plural(tally.ids_unknown, 'partition')}, so a topic that "
                "was deleted, created again and refilled would not be noticed; brokers give ids from Kafka 2.8 on",
                topic=topic,
            )

    def _report_age(self, tally: _Tally, now: datetime, findings: Findings) -> None:
        limits = {Code.STALLED: self.error_after, Code.LAG: self.warn_after}
        if not any(limits.values()):
            return
        late: dict[Code, dict[Key, Span]] = {}
        for key, since in tally.unread_since.items():
            code = next((code for code, limit in limits.items() if limit and now - since > limit.length), None)
            if code is not None:
                late.setdefault(code, {})[key] = tally.behind[key]
        for code, behind in late.items():
            findings.add(
                code,
                f"topic {tally.topic}: {plural(len(behind), 'partition')} ({some(behind)}) hold unread records older "
                f"than {limits[code]}, the oldest from {min(tally.unread_since.values()):%Y-%m-%d %H:%M:%S}Z; see "
                "whether the query runs and keeps up",
                **_place(tally.topic, behind),
            )
        shortest = min(limit.length for limit in limits.values() if limit)
        unknown = {
            key: span
            for key, span in tally.behind.items()
            if key not in tally.unread_since and now - tally.seen_since.get(key, _EVER) > shortest
        }
        if unknown:
            findings.add(
                Code.INCONCLUSIVE,
                f"topic {tally.topic}: the age of the unread offsets of {some(unknown)} is not known, so they cannot "
                "be held against warn_after or error_after",
                **_place(tally.topic, unknown),
            )


@dataclass
class _Tally:
    """What is reported once per topic."""

    topic: str
    now: datetime
    previous: PreviousAudit | None
    behind: dict[Key, Span] = field(default_factory=dict)
    unread_since: dict[Key, datetime] = field(default_factory=dict)
    # Of those whose stamp is no time that can be true: when an earlier audit saw the log end before them.
    seen_since: dict[Key, datetime] = field(default_factory=dict)
    # Stamps that cannot be true, in milliseconds.
    untrue: dict[Key, int] = field(default_factory=dict)
    open: dict[Key, Span] = field(default_factory=dict)
    ids_unknown: int = 0

    def count(self, key: Key, partition: KafkaPartition, committed: int | None) -> dict[str, Any]:
        """Counts a partition that was read up to `committed`; returns its row of the evidence."""
        position = partition.log_start if committed is None else max(committed, partition.log_start)
        lag = max(partition.log_end - position, 0)
        if lag:
            self.behind[key] = Span(position, partition.log_end)
            self._age(key, partition, position)
        if partition.last_stable < partition.high_watermark:
            self.open[key] = Span(partition.last_stable, partition.high_watermark)
        return {
            "topic": key.topic,
            "partition": key.partition,
            "log_start": partition.log_start,
            "log_end": partition.log_end,
            "committed": committed,
            "lag": lag,
        }

    def _age(self, key: Key, partition: KafkaPartition, position: int) -> None:
        """Since when the records from a position on wait: by the first one's stamp, and never since before they came.

        An earlier audit that saw the log end at or before the position came before them.
        """
        since, before = partition.waits_since(self.now), None
        if self.previous is not None and self.previous.log_ends.get(key[1:], position + 1) <= position:
            before = self.previous.log_ended.get(key[1:])
        if since is not None:
            self.unread_since[key] = since if before is None else max(since, before)
            return
        if before is not None:
            self.seen_since[key] = before
        if partition.unread_stamp is not None:
            self.untrue[key] = partition.unread_stamp


def _said(stamp: int, now: datetime) -> str:
    """What it means that the first unread record has a stamp that cannot be true."""
    at = of_millis(stamp)
    told = f"{stamp} ms, which is no time" if at is None else f"{at:%Y-%m-%d %H:%M:%S}Z"
    old = at is not None and at < now
    return (
        f"the first unread record is stamped {told} by its producer (CreateTime), perhaps in "
        f"{'seconds' if old else 'microseconds'} instead of milliseconds: retention by age deletes such records "
        f"{'at once' if old else 'never'}; correct the producer"
    )


def _finished(witnesses: Witnesses) -> Mapping[Key, int]:
    """Where the micro-batches ended that Spark finished since the newest entry, whether they wrote something or not.

    Spark does not read what is below again: `checkpoint_commits` says whether records are missing there.
    """
    ledger, checkpoint = entries_with_unrecorded_commits(witnesses), known(witnesses.checkpoint)
    newest = coverage(ledger).micro_batches[-1:] if ledger is not None else ()
    if ledger is None or checkpoint is None or not newest or ledger.heads[newest[0]].query_id != checkpoint.query_id:
        return {}
    last = ledger.heads[newest[0]].batch_id
    # Behind a micro-batch of which the checkpoint has nothing any more, what was read is not known.
    later = [batch for batch in checkpoint.batches if batch.batch_id > last]
    since = [batch for place, batch in enumerate(later, last + 1) if batch.committed and batch.batch_id == place]
    ends = {Key(*new[:3]): new[3] for batch in since for new in batch.new_partitions}
    return ends | {Key(r.source, r.topic, r.partition): r.end_offset for batch in since for r in batch.ranges}


def _place(topic: str, ranges: Mapping[Key, Span]) -> dict[str, Any]:
    """The place of a finding about ranges of a topic: partition and offsets, where it is one partition alone."""
    if len(ranges) != 1:
        return {"topic": topic}
    ((key, span),) = ranges.items()
    return {"key": key, "span": span}


def _report_missed(key: Key, unread: Iterable[Missed], reason: str, findings: Findings) -> None:
    for one in unread:
        message = one.says(key, f"were never read: {reason}")
        findings.add(one.code, message, key=key, span=one.span, topic_id=one.topic_id)


def _judge_dropped(key: Key, incarnation: TopicIncarnation, lag: int, witnesses: Witnesses, findings: Findings) -> None:
    """Spark names every partition in every plan: one that drops out of them is not read any more."""
    ledger = entries_with_unrecorded_commits(witnesses)
    if ledger is None or not lag:
        return
    covered = coverage(ledger)
    newest, last = covered.micro_batches[-1], covered.last_read(incarnation)
    source = [c for k, c in covered.incarnations.items() if k.source == key.source]
    if last is not None and max(covered.last_read(one[-1]) or 0 for one in source) == newest != last:
        head = ledger.heads[newest]
        findings.add(
            Code.STALLED,
            f"{key} was read last by {named(ledger.heads[last])}, and {named(head)} does not read it: "
            f"{plural(lag, 'offset')} wait; see why the query dropped the partition",
            head=head,
            key=key,
        )


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
