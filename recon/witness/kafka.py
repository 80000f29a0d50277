"""The Kafka witness: the topics of a pipeline as the broker describes them now.

Topics are named. A query with `subscribePattern` is not supported as such: name the topics it reads.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from recon.base.clock import utc_now
from recon.model import KafkaPartition, KafkaTopic, KafkaWitness
from recon.model.wire.values import of_millis
from recon.witness.kafka_admin import KafkaAdmin, Key, received, remaining
from recon.witness.lazy import ck

EpochOffset = tuple[int, int]  # (leader epoch, offset)


def read(
    conf: Mapping[str, str],
    topics: Sequence[str],
    *,
    isolation_level: str,
    positions: Mapping[Key, int] | None = None,
    epochs: Mapping[Key, Collection[EpochOffset]] | None = None,
    timeout_s: float = 10,
) -> KafkaWitness:
    """The topics as the broker describes them now. Without topics the broker is not contacted.

    Args:
        conf: librdkafka configuration.
        topics: names; one that the broker does not know comes back with `exists` False.
        isolation_level: the stream's; decides `log_end`.
        positions: next offset to read per (topic, partition). Where records follow it, `unread_since` is the timestamp
            of the first: None where that could not be read in time, or is no time.
        epochs: (leader epoch, offset) pairs to look up for `KafkaPartition.kept`. Of a partition whose leader is the
            same, and below the log's start or above its end, nothing is looked up.
        timeout_s: for everything together.

    `cleanup_policy` is "unknown" where the broker refuses to tell a topic's configuration.

    Raises:
        ConfigError: librdkafka does not accept the configuration.
        EvidenceError: the broker cannot be reached in time, or refuses.
    """
    admin = KafkaAdmin(conf)
    deadline = time.monotonic() + timeout_s
    described = _topics(admin, topics, isolation_level, deadline, positions or {}, epochs or {}) if topics else {}
    return KafkaWitness(
        bootstrap_servers=admin.bootstrap_servers,
        isolation_level=isolation_level,
        read_at=utc_now(),
        topics=described,
    )


def _topics(
    admin: KafkaAdmin,
    names: Sequence[str],
    isolation_level: str,
    deadline: float,
    positions: Mapping[Key, int],
    epochs: Mapping[Key, Collection[EpochOffset]],
) -> dict[str, KafkaTopic]:
    descriptions = admin.describe(names, deadline)
    existing = {name: described for name, described in descriptions.items() if described is not None}
    settings = admin.settings(list(existing), deadline)
    cluster_id = admin.cluster_id(deadline)
    keys = [(name, partition) for name, described in existing.items() for partition in described.partitions]
    partitions = {key: partition for key, partition in admin.offsets(keys, deadline).items() if partition is not None}
    if isolation_level != "read_committed":
        partitions = {key: replace(p, log_end=p.high_watermark) for key, p in partitions.items()}
    behind = {
        key: max(positions[key], partition.log_start)
        for key, partition in partitions.items()
        if key in positions and positions[key] < partition.log_end
    }
    for key, millis in _first_timestamps(admin, behind, isolation_level, deadline).items() if behind else ():
        partitions[key] = replace(partitions[key], unread_since=of_millis(millis), unread_stamp=millis)
    for key, kept in _kept(admin, partitions, epochs, deadline).items():
        partitions[key] = replace(partitions[key], kept=kept)
    of_topic: dict[str, dict[int, KafkaPartition]] = {}
    for (name, number), partition in partitions.items():
        of_topic.setdefault(name, {})[number] = partition
    topics = {}
    for name, described in descriptions.items():
        deleted_meanwhile = described is not None and described.partitions and name not in of_topic
        if described is None or deleted_meanwhile:
            topics[name] = KafkaTopic(topic=name, exists=False)
            continue
        of_name = settings.get(name)  # the right to read a topic does not include its configuration
        topics[name] = KafkaTopic(
            topic=name,
            exists=True,
            topic_id=described.topic_id,
            cluster_id=cluster_id,
            cleanup_policy=of_name["cleanup.policy"] if of_name is not None else "unknown",
            retention_ms=int(of_name["retention.ms"]) if of_name is not None else None,
            partitions=of_topic.get(name, {}),
        )
    return topics


def _kept(
    admin: KafkaAdmin,
    partitions: Mapping[Key, KafkaPartition],
    epochs: Mapping[Key, Collection[EpochOffset]],
    deadline: float,
) -> dict[Key, dict[EpochOffset, bool]]:
    """Whether logs are still those that earlier leaders had, up to an offset; what has no answer in time is absent.

    A consumer with a leader epoch for its position asks the leader where that epoch ended, and fails if that is before
    its position (KIP-320).
    """
    pending = {
        key: [
            (epoch, offset)
            for epoch, offset in sorted(set(asked), reverse=True)
            if epoch != at.leader_epoch and at.log_start <= offset <= at.high_watermark
        ]
        for key, asked in epochs.items()
        if (at := partitions.get(key)) is not None and at.leader_epoch is not None
    }
    kept: dict[Key, dict[EpochOffset, bool]] = {}
    little: dict[str, Any] = {"fetch.message.max.bytes": 65_536, "queued.min.messages": 1}
    while (round_ := {key: asked.pop() for key, asked in pending.items() if asked}) and time.monotonic() < deadline:
        positions = {key: offset for key, (_, offset) in round_.items()}
        unanswered = set(round_)
        with admin.consumer("read_uncommitted", positions, {key: e for key, (e, _) in round_.items()}, **little) as c:
            while unanswered and time.monotonic() < deadline:
                for message in received(c, 500, min(0.2, remaining(deadline))):
                    key, error = (message.topic(), message.partition()), message.error()
                    if key not in unanswered:
                        continue
                    unanswered.discard(key)
                    c.pause([ck.TopicPartition(*key)])
                    if error is None or error.code() == ck.KafkaError._PARTITION_EOF:
                        kept.setdefault(key, {})[round_[key]] = True
                    elif error.code() == ck.KafkaError._AUTO_OFFSET_RESET:
                        kept.setdefault(key, {})[round_[key]] = False
    return kept


def _first_timestamps(
    admin: KafkaAdmin, positions: Mapping[Key, int], isolation_level: str, deadline: float
) -> dict[Key, int]:
    """The timestamp of the first record at or after each position; keys without an answer in time are absent."""
    timestamps: dict[Key, int] = {}
    pending = set(positions)
    # One record per partition is wanted: fetch little.
    little: dict[str, Any] = {"fetch.message.max.bytes": 65_536, "queued.min.messages": 1}
    with admin.consumer(isolation_level, positions, **little) as consumer:
        while pending and time.monotonic() < deadline:
            for message in received(consumer, 500, min(0.2, remaining(deadline))):
                key = (message.topic(), message.partition())
                if key not in pending:
                    continue
                pending.discard(key)  # a record, the end of the log, or an error: no more to learn
                consumer.pause([ck.TopicPartition(*key)])
                kind, millis = message.timestamp() if message.error() is None else (0, 0)
                if kind:
                    timestamps[key] = millis
    return timestamps
