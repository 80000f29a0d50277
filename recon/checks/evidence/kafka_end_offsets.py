"""kafka_end_offsets: how far the ledger is behind Kafka, and what Kafka dropped before it was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from typing_extensions import override

from recon.checks.base import EvidenceCheck
from recon.checks.evidence.coverage import Key, TopicIncarnation, coverage, missed
from recon.checks.evidence.findings import Findings, ledger_of, no_entries, offsets
from recon.checks.period import Period
from recon.model import Code, KafkaPartition, KafkaTopic, KafkaWitness, Unavailable, Verdict, Witnesses
from recon.text import plural, some


@dataclass(frozen=True, kw_only=True)
class KafkaEndOffsets(EvidenceCheck):
    """Where the ledger's last micro-batch ended, against what Kafka holds now.

    Proves that nothing was lost between the ledger's end and Kafka's log, and says how far the stream is behind.
    It needs the ledger and a broker; end offsets are those of the stream's isolation level. Lag is counted in
    offsets, which include transaction markers: it is not a number of rows.

    Args:
        warn_after: the age of the oldest unread record from which on lag warns, as `{count: 5, period: minute}`.
        error_after: the age from which on it fails. Periods are minute, hour and day.

    Codes:
        INFLIGHT: offsets that wait to be read, or that an open transaction holds back. Lag alone is no failure.
        LAG: the oldest unread record is older than `warn_after` (warns).
        STALLED: it is older than `error_after`.
        LOSS_RETENTION: Kafka's log starts beyond the ledger's end: the records between were deleted unread.
        RECREATED: the topic has another id than the one that was read, or ends below the ledger's end with no id
            known. With it GAP or LOSS_RETENTION for the new topic's offsets below the ledger's end, which the stream
            steps over in silence.
        CLOSED: a topic or partition is gone, and the previous audit saw the same end as the ledger.
        LOSS: it is gone, and the previous audit saw more than the ledger read.
        TOPIC_ID_UNKNOWN: the ledger or the broker knows no topic id, so a topic re-created and refilled would not be
            noticed (warns).
        INCONCLUSIVE: how far a deleted topic went is unknown; the log of the same topic ends below what was read
            (unclean leader election); or the age of unread records is not known though a limit is set.

    Evidence: `partitions` with log_start, log_end, committed and lag of each, and `log_ends` for the next audit.
    """

    test: ClassVar[str] = "kafka_end_offsets"
    needs: ClassVar[Sequence[str]] = ("ledgers", "kafka")
    scope: ClassVar[str] = "sink"

    warn_after: Period | None = None
    error_after: Period | None = None

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        ledger, kafka = ledger_of(witnesses), witnesses.kafka
        if isinstance(kafka, Unavailable):
            return Verdict(unproved=kafka.reason)
        if ledger is None:
            return no_entries(witnesses)
        findings = Findings.of(witnesses)
        topics: dict[str, dict[Key, TopicIncarnation]] = {name: {} for name in kafka.topics}
        for key, incarnations in coverage(ledger).incarnations.items():
            topics.setdefault(key.topic, {})[key] = incarnations[-1]
        rows: list[dict[str, Any]] = []
        for name, incarnation_of in sorted(topics.items()):
            topic = kafka.topics.get(name)
            if topic is None:
                findings.add(Code.INCONCLUSIVE, f"topic {name} was read, and its end offsets were not", topic=name)
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
        return findings.verdict(message, partitions=rows, log_ends=ends, lag=lag)

    def _judge_topic(
        self,
        topic: KafkaTopic,
        incarnations: Mapping[Key, TopicIncarnation],
        kafka: KafkaWitness,
        witnesses: Witnesses,
        findings: Findings,
    ) -> list[dict[str, Any]]:
        tally = _Tally(topic.topic)
        rows = []
        recreated: list[tuple[Key, str]] = []
        for key, incarnation in incarnations.items():
            partition, committed = topic.partitions.get(key.partition), incarnation.walked.frontier
            known_ids = incarnation.topic_id is not None and topic.topic_id is not None
            if known_ids and incarnation.topic_id != topic.topic_id:
                recreated.append((key, f"its id was {incarnation.topic_id} and is {topic.topic_id}"))
            elif partition is None:
                _judge_missing(key, committed, witnesses, findings)
            elif max(partition.log_end, partition.high_watermark) < committed:
                if known_ids:
                    findings.add(
                        Code.INCONCLUSIVE,
                        f"{key}: the log ends at {partition.log_end}, below {committed} which was read, and the topic "
                        f"is the same (leader epoch {partition.leader_epoch}): its log was cut off by an unclean "
                        "leader election; what was read beyond cannot be compared any more",
                        topic=key.topic,
                        partition=key.partition,
                    )
                else:
                    recreated.append((key, f"{key} ends at {partition.log_end}, below {committed} which was read"))
            elif not known_ids:
                tally.ids_unknown += 1
            is_new = any(key == again for again, _ in recreated)
            if partition is None:
                continue
            if is_new and partition.log_end >= committed > 0:
                _report_missed(key, topic.topic_id, 0, committed, kafka, findings, "the re-created topic holds")
            if not is_new and partition.log_start > committed:
                reason = "the ledger ends before"
                _report_missed(key, topic.topic_id, committed, partition.log_start, kafka, findings, reason)
            rows.append(self._row(key, partition, committed, tally))
        seen = {key.partition for key in incarnations}
        for number in sorted(set(topic.partitions) - seen):
            partition = topic.partitions[number]
            rows.append(self._row(Key(0, topic.topic, number), partition, None, tally))
            if incarnations and partition.log_start > 0:
                key = Key(0, topic.topic, number)
                _report_missed(key, topic.topic_id, 0, partition.log_start, kafka, findings, "no micro-batch ever read")
        if recreated:
            findings.add(
                Code.RECREATED,
                f"topic {topic.topic} was deleted and created again: {recreated[0][1]}; stop the query and start it on "
                "a fresh checkpoint, or offsets of the old topic will be taken for those of the new one",
                topic=topic.topic,
                partition=recreated[0][0].partition if len(recreated) == 1 else None,
            )
        self._report(tally, witnesses.now, findings)
        return rows

    def _row(self, key: Key, partition: KafkaPartition, committed: int | None, tally: _Tally) -> dict[str, Any]:
        position = partition.log_start if committed is None else max(committed, partition.log_start)
        lag = max(partition.log_end - position, 0)
        if lag:
            tally.behind[key] = (position, partition.log_end, partition.unread_since)
        if partition.last_stable < partition.high_watermark:
            tally.open[key] = (partition.last_stable, partition.high_watermark)
        return {
            "topic": key.topic,
            "partition": key.partition,
            "log_start": partition.log_start,
            "log_end": partition.log_end,
            "committed": committed,
            "lag": lag,
        }

    def _report(self, tally: _Tally, now: datetime, findings: Findings) -> None:
        """One finding per topic and kind: a live stream is behind in every partition."""
        topic = tally.topic
        if tally.behind:
            total = sum(end - start for start, end, _ in tally.behind.values())
            findings.add(
                Code.INFLIGHT,
                f"topic {topic}: {plural(total, 'offset')} in {plural(len(tally.behind), 'partition')} wait to be read",
                topic=topic,
                **_only({key: (start, end) for key, (start, end, _) in tally.behind.items()}),
            )
            self._report_age(tally, now, findings)
        if tally.open:
            findings.add(
                Code.INFLIGHT,
                f"topic {topic}: an open transaction holds back "
                f"{some(f'{offsets(*held)} of {key}' for key, held in tally.open.items())}",
                topic=topic,
                **_only(tally.open),
            )
        if tally.ids_unknown:
            findings.add(
                Code.TOPIC_ID_UNKNOWN,
                f"topic {topic}: no topic id is known for {plural(tally.ids_unknown, 'partition')}, so a topic that "
                "was deleted, created again and refilled would not be noticed; let the hook reach the broker",
                topic=topic,
            )

    def _report_age(self, tally: _Tally, now: datetime, findings: Findings) -> None:
        limits = [(Code.STALLED, self.error_after), (Code.LAG, self.warn_after)]
        if self.warn_after is None and self.error_after is None:
            return
        late: dict[Code, dict[Key, tuple[int, int]]] = {}
        unknown: dict[Key, tuple[int, int]] = {}
        oldest: datetime | None = None
        for key, (start, end, since) in tally.behind.items():
            if since is None:
                unknown[key] = (start, end)
                continue
            oldest = since if oldest is None else min(oldest, since)
            code = next((code for code, limit in limits if limit and now - since > limit.length), None)
            if code is not None:
                late.setdefault(code, {})[key] = (start, end)
        for code, behind in late.items():
            findings.add(
                code,
                f"topic {tally.topic}: {plural(len(behind), 'partition')} ({some(behind)}) hold unread records older "
                f"than {dict(limits)[code]}, the oldest from {oldest:%Y-%m-%d %H:%M:%S}Z; see whether the query "
                "runs and keeps up",
                topic=tally.topic,
                **_only(behind),
            )
        if unknown:
            findings.add(
                Code.INCONCLUSIVE,
                f"topic {tally.topic}: the age of the unread offsets of {some(unknown)} is not known, so they cannot "
                "be held against warn_after or error_after",
                topic=tally.topic,
                **_only(unknown),
            )


@dataclass
class _Tally:
    """What is reported once per topic."""

    topic: str
    behind: dict[Key, tuple[int, int, datetime | None]] = field(default_factory=dict)
    open: dict[Key, tuple[int, int]] = field(default_factory=dict)
    ids_unknown: int = 0


def _only(ranges: Mapping[Key, tuple[int, int]]) -> dict[str, Any]:
    """Partition and range of a finding that is about one partition alone."""
    if len(ranges) != 1:
        return {}
    ((key, (start, end)),) = ranges.items()
    return {"partition": key.partition, "start_offset": start, "end_offset": end}


def _report_missed(
    key: Key, topic_id: str | None, start: int, end: int, kafka: KafkaWitness, findings: Findings, reason: str
) -> None:
    for code, low, high, next_step in missed(kafka, key, topic_id, start, end):
        findings.add(
            code,
            f"{key}: {reason} {offsets(low, high)}, which were never read; {next_step}",
            topic=key.topic,
            partition=key.partition,
            start_offset=low,
            end_offset=high,
        )


def _judge_missing(key: Key, committed: int, witnesses: Witnesses, findings: Findings) -> None:
    """A topic or partition that is gone: only the previous audit knows how far it went."""
    known = witnesses.previous.log_ends.get((key.topic, key.partition)) if witnesses.previous else None
    if known is None or known < committed:
        findings.add(
            Code.INCONCLUSIVE,
            f"{key} is gone from Kafka, and no audit saw how far it went: it was read up to {committed}",
            topic=key.topic,
            partition=key.partition,
        )
    elif known == committed:
        findings.add(
            Code.CLOSED,
            f"{key} is gone from Kafka; it was read up to {committed}, the last end that an audit saw",
            topic=key.topic,
            partition=key.partition,
        )
    else:
        findings.add(
            Code.LOSS,
            f"{key} is gone from Kafka with {offsets(committed, known)} unread: the previous audit saw them",
            topic=key.topic,
            partition=key.partition,
            start_offset=committed,
            end_offset=known,
        )
