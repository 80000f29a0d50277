"""What tests do to a broker and its topics beyond the demo's needs: delete, grow, compact, alter, read them."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from recon.base.errors import EvidenceError
from recon.local import kafka as local
from recon.local.client import TIMEOUT_S, Isolation, Outcome, Record, TransactionalProducer, wait_until

# The cleaner compacts at once, so that a test need not wait for its default delays.
_COMPACT_NOW = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "0",
}
_ROLL_KEY = b"recon-roll-segment"


class ConsumedRecord(NamedTuple):
    """A record as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class LocalKafka(local.LocalKafka):
    """The local broker, and a client that also changes topics and reads records."""

    def __init__(self, data_dir: Path | None = None) -> None:
        super().__init__(data_dir)
        self.deleted_topics: set[str] = set()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Waits for a topic of this name that is still being deleted."""
        topic_ids: list[str] = []

        def created() -> bool:
            try:
                topic_ids.append(super(LocalKafka, self).create_topic(name, partitions, config))
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS or name not in self.deleted_topics:
                    raise
            return bool(topic_ids)

        wait_until(created, f"topic {name} could not be created")
        self.deleted_topics.discard(name)
        return topic_ids[0]

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the broker no longer lists it."""
        self.admin.delete_topics([name], operation_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
        self.deleted_topics.add(name)
        wait_until(lambda: not self.partitions(name), f"topic {name} is still listed")

    def add_partitions(self, topic: str, total: int) -> None:
        """Grow a topic to `total` partitions."""
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(TIMEOUT_S)
        wait_until(lambda: len(self.partitions(topic)) == total, f"topic {topic} did not grow to {total}")
        wait_until(lambda: len(self.offsets(topic)) == total, f"topic {topic}'s new partitions got no leaders")

    def alter_config(self, topic: str, config: Mapping[str, str]) -> None:
        """Set some of a topic's settings and leave the others as they are."""
        entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in config.items()]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result(TIMEOUT_S)

    def transaction(
        self, topic: str, records: Iterable[Record | tuple[Any, ...]], outcome: Outcome = "commit"
    ) -> TransactionalProducer:
        """Produce records in one transaction of a producer of its own; see `TransactionalProducer.send`."""
        return self.transactional().send(topic, records, outcome)

    def read(self, topic: str, isolation: Isolation = "read_uncommitted") -> list[ConsumedRecord]:
        """Every record a consumer of this isolation level sees now, by partition and offset."""
        ends = self.offsets(topic, isolation)
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "log_level": 0,
                "group.id": f"recon-read-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, p, start) for p, (start, _) in ends.items()])
            records, unfinished = [], set(ends)
            deadline = time.monotonic() + TIMEOUT_S
            while unfinished:
                if time.monotonic() > deadline:
                    raise EvidenceError(
                        f"partitions {sorted(unfinished)} of topic {topic} could not be read to the end"
                    )
                message: Any = consumer.poll(1.0)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    records.append(
                        ConsumedRecord(message.partition(), message.offset(), message.key(), message.value())
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
                else:
                    raise EvidenceError(f"topic {topic} could not be read: {error}")
            return sorted(records, key=lambda record: (record.partition, record.offset))
        finally:
            consumer.close()

    def cut_off(self, topic: str, offset: int) -> None:
        """Partition 0 gets a new leader that lacks the records from `offset` on, as after an unclean election.

        The broker is killed, loses them, and leads the partition again with a higher epoch. `offset` begins a batch.
        """
        self.kill()
        segment = self.data_dir / "logs" / f"{topic}-0" / f"{0:020d}.log"
        content, at = segment.read_bytes(), 0
        while at < len(content):
            base, length = struct.unpack(">qi", content[at : at + 12])
            if base >= offset:
                break
            at += 12 + length
        segment.write_bytes(content[:at])
        self.start()
        wait_until(lambda: self.offsets(topic)[0][1] == offset, f"topic {topic} was not cut off at {offset}")

    def compact(self, topic: str) -> None:
        """Make the broker compact the topic now, and wait until no key is left twice.

        The active segment is never compacted, so one extra record (key `recon-roll-segment`) is appended to
        every partition to close it.
        """
        self.alter_config(topic, _COMPACT_NOW)
        time.sleep(0.1)  # older than segment.ms, so that the next append rolls
        self.produce(topic, [Record(_ROLL_KEY, b"", partition) for partition in self.offsets(topic)])

        def compacted() -> bool:
            keys = [(record.partition, record.key) for record in self.read(topic) if record.key != _ROLL_KEY]
            return len(keys) == len(set(keys))

        wait_until(compacted, f"topic {topic} was not compacted")
