"""On which Kafka cluster a topic is: a topic of the same name on another cluster has another id, and may be a copy.

A mirror copies records to other offsets, so that offsets of one cluster say nothing of records of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

from typing_extensions import override

from recon.judge.kafka.kafka_states import kafka_states
from recon.model import KafkaTopic, Witnesses, known
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.proof import SinkProof
from recon.model.wire.kafka_state import KafkaState


@dataclass(frozen=True, kw_only=True)
class TopicCluster:
    """The cluster that has a topic; topic ids are unique across clusters."""

    topic: str
    topic_id: str
    cluster_id: str


@dataclass(frozen=True, kw_only=True)
class KafkaClusters(SinkMemory):
    """The clusters of all topics that a sink was written from, as the hook or an audit saw them."""

    name: ClassVar[str] = "kafka_clusters"
    topics: tuple[TopicCluster, ...]

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        """Those known before, those that the ledger names, and those that Kafka has now of what was read."""
        kafka = known(audit.witnesses.kafka)
        described = list(kafka.topics.values()) if kafka is not None else []
        read = {(covered.topic, covered.topic_id) for covered in audit.read}
        now = [topic for topic in described if (topic.topic, topic.topic_id) in read]
        seen = (*(before.topics if before is not None else ()), *_told(kafka_states(audit.ledger)), *_described(now))
        topics = {of.topic_id: of for of in seen}
        return cls(topics=tuple(topics.values())) if topics else None


class Move(NamedTuple):
    """From one cluster to another, by their ids."""

    old: str
    new: str

    def __str__(self) -> str:
        return f"it was on cluster {self.old} and is on cluster {self.new}"


@dataclass(frozen=True)
class Clusters:
    """The clusters of topics, by topic id."""

    of_topic_id: Mapping[str, str]

    @classmethod
    def of(cls, seen: Witnesses) -> Self:
        """As an audit of the judged sink has them."""
        kafka, ledger = known(seen.kafka), seen.ledger
        described = kafka.topics.values() if kafka is not None else ()
        return cls.seen(kafka_states(ledger) if ledger is not None else (), seen.proof, described)

    @classmethod
    def seen(cls, states: Iterable[KafkaState], proof: SinkProof | None, described: Iterable[KafkaTopic] = ()) -> Self:
        """As earlier audits, the states in the ledger and Kafka have them."""
        remembered = proof.memory(KafkaClusters) if proof is not None else None
        listed = [*(remembered.topics if remembered is not None else ()), *_described(described)]
        listed += _told(states)
        return cls({of.topic_id: of.cluster_id for of in listed})

    def with_described(self, described: Iterable[KafkaTopic]) -> Clusters:
        """These, and those of topics as Kafka has them."""
        return Clusters({**self.of_topic_id, **{of.topic_id: of.cluster_id for of in _described(described)}})

    def move(self, old: str | None, new: str | None) -> Move | None:
        """Between which clusters the name moved, where these topic ids are of two; None where that is not known."""
        clusters = self.of_topic_id.get(old or ""), self.of_topic_id.get(new or "")
        if None in clusters or clusters[0] == clusters[1]:
            return None
        return Move(str(clusters[0]), str(clusters[1]))

    def other_records(self, topic: str, old: str | None, new: str | None) -> str:
        """What Kafka has at offsets that were read under another topic id than the name has now, in a sentence."""
        move = self.move(old, new)
        if move is None:
            return f"topic {topic} was deleted and created again: these offsets are other records now"
        return f"topic {topic} is on another cluster ({move}): these offsets may be other records there"


def _told(states: Iterable[KafkaState]) -> Iterator[TopicCluster]:
    for state in states:
        if state.cluster is not None:
            for topic, topic_id in state.cluster.topic_ids.items():
                yield TopicCluster(topic=topic, topic_id=topic_id, cluster_id=state.cluster.id)


def _described(topics: Iterable[KafkaTopic]) -> Iterator[TopicCluster]:
    for of in topics:
        if of.topic_id is not None and of.cluster_id is not None:
            yield TopicCluster(topic=of.topic, topic_id=of.topic_id, cluster_id=of.cluster_id)
