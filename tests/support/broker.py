"""A broker that answers what recon asks of it, without a connection: Kafka alone needs a stand-in, files are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from recon.base.clock import utc_now
from recon.model import KafkaTopic, KafkaWitness, ProbeAnswer
from recon.model.evidence import Answers, Questions
from recon.model.offsets import Spans

Range = tuple[int, int]


class Broker:
    """In the place of recon's readers of Kafka; it has no topics until `has` gives it some.

    Attributes:
        topics: as it describes them.
        refuses: what every question raises, if anything.
        asked: the bootstrap servers of each question, in their order.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.topics: dict[str, KafkaTopic] = {}
        self.refuses: Exception | None = None
        self.asked: list[str] = []
        self._records = Spans(), Spans()
        patch.setattr("recon.witness.kafka.read", self._read)
        patch.setattr("recon.witness.kafka_probe.probe", self._probe)
        patch.setattr("recon.witness.kafka_markers.read", self._ask)

    def has(self, *described: KafkaTopic | KafkaWitness) -> None:
        """From now on it answers, and has these topics."""
        self.refuses, self.topics = None, {}
        for topics in described:
            self.topics |= {topics.topic: topics} if isinstance(topics, KafkaTopic) else topics.topics

    def holds(self, uncommitted: Sequence[Range], committed: Sequence[Range] | None = None) -> None:
        """The offsets of every partition that have a record; all of them committed where nothing else is said."""
        self._records = Spans.of(uncommitted), Spans.of(uncommitted if committed is None else committed)

    def _ask(self, conf: Mapping[str, str], *_: object, **__: object) -> None:
        self.asked.append(conf.get("bootstrap.servers", ""))
        if self.refuses is not None:
            raise self.refuses

    def _read(self, conf: Mapping[str, str], topics: Sequence[str], *, isolation_level: str, **_: Any) -> KafkaWitness:
        self._ask(conf)
        return KafkaWitness(
            bootstrap_servers=self.asked[-1],
            isolation_level=isolation_level,
            read_at=utc_now(),
            topics={name: self.topics.get(name, KafkaTopic(topic=name, exists=False)) for name in topics},
        )

    def _probe(self, conf: Mapping[str, str], questions: Questions) -> Answers:
        self._ask(conf)
        uncommitted, committed = self._records
        return {
            (topic, number): ProbeAnswer(
                topic=topic,
                partition=number,
                requested=asked,
                uncommitted=uncommitted.intersect(asked),
                committed=committed.intersect(asked),
                log_start=self._log_start(topic, number),
            )
            for (topic, number), asked in questions.items()
        }

    def _log_start(self, topic: str, number: int) -> int:
        described = self.topics.get(topic)
        return described.partitions[number].log_start if described is not None and described.exists else 0
