"""Kafka's logs as the audits judged them, which later ones hold against the logs of then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from typing_extensions import override

from recon.model import CheckResult, Level, Witnesses
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.proof import CoveredRanges

_Place = tuple[str, str | None, int]  # topic, topic id, partition


@dataclass(frozen=True, kw_only=True)
class LogJudged:
    """The log of a topic partition as an audit judged it: all below `position` was read of it.

    `leader_epoch` was the newest one; where the log is cut off later, another leader's begins below `position`.
    `open_transactions` are the offsets that no reader of committed records had yet: [last stable offset, end), if any.
    """

    topic: str
    topic_id: str | None
    partition: int
    leader_epoch: int
    position: int
    open_transactions: tuple[int, int] | None = None

    @property
    def leader(self) -> tuple[str, str | None, int, int]:
        """The topic partition with its leader epoch."""
        return self.topic, self.topic_id, self.partition, self.leader_epoch


@dataclass(frozen=True, kw_only=True)
class KafkaLogs(SinkMemory):
    """Kafka's logs as audits saw them, where the broker gave leader epochs.

    One that is doubted stays, and the log that the audit saw in its place follows it.
    """

    name: ClassVar[str] = "kafka_logs"
    logs: tuple[LogJudged, ...]

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        """The logs as Kafka describes them now, up to what was read of them; of the others what was known before.

        Where it is doubted that they are the ones that were read, the question stays, and the logs of now are added:
        the next election is another question.
        """
        known = before.logs if before is not None else ()
        doubted = is_log_doubted(audit.results)
        positions = {log.leader: log.position for log in known}
        seen = _logs_now(positions, audit.read if doubted else audit.coverage, audit.witnesses)
        if doubted:
            logs = (*known, *(log for log in seen.values() if log.leader not in positions))
        else:
            logs = (*(log for log in known if log.leader[:3] not in seen), *seen.values())
        return cls(logs=logs) if logs else None


def is_log_doubted(results: Sequence[CheckResult]) -> bool:
    """Whether it is not known if Kafka's log is the one that was read."""
    findings = (f for r in results for f in r.findings)
    return any(f.level is Level.UNPROVED and f.topic is not None and f.span is None for f in findings)


def _logs_now(
    positions: Mapping[tuple[str, str | None, int, int], int], covered: Sequence[CoveredRanges], witnesses: Witnesses
) -> Mapping[_Place, LogJudged]:
    """The logs that Kafka has of what was covered; `positions` are known already, by leader epoch."""
    logs: dict[_Place, LogJudged] = {}
    for read in covered:
        topic = witnesses.topic(read.topic)
        partition = topic.partitions.get(read.partition) if topic is not None else None
        if topic is None or partition is None or partition.leader_epoch is None or topic.topic_id != read.topic_id:
            continue
        place, position = (read.topic, read.topic_id, read.partition), read.ranges[-1][1] if read.ranges else 0
        position = max(position, positions.get((*place, partition.leader_epoch), 0))
        if place in logs:
            position = max(position, logs[place].position)  # another source of the query may have come further
        in_transactions = (partition.last_stable, partition.high_watermark)
        logs[place] = LogJudged(
            topic=read.topic,
            topic_id=read.topic_id,
            partition=read.partition,
            leader_epoch=partition.leader_epoch,
            position=min(position, partition.high_watermark),
            open_transactions=in_transactions if partition.last_stable < partition.high_watermark else None,
        )
    return logs
