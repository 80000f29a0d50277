"""Topics and records for tests and the demo, by confluent_kafka's admin client, producers and consumers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from recon.errors import EvidenceError

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")
Outcome = Literal["commit", "abort", "open"]
Isolation = Literal["read_uncommitted", "read_committed"]
_TIMEOUT = 30.0
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


class Record(NamedTuple):
    """A record to produce. `partition` -1 lets the producer choose by key."""

    key: str | bytes | None
    value: str | bytes | None
    partition: int = -1
    timestamp_ms: int = 0


class Seen(NamedTuple):
    """A record as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class KafkaClient:
    """Creates and changes topics and records of the broker at `bootstrap_servers`."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    # Topics

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Creates a topic and returns its id when its partitions have leaders.

        Waits for a topic of this name that is still being deleted.
        """
        from confluent_kafka import KafkaError, KafkaException

        def create() -> bool:
            new = _admin_module().NewTopic(
                name, num_partitions=partitions, replication_factor=1, config=dict(config or {})
            )
            try:
                self._admin().create_topics([new])[name].result(_TIMEOUT)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS and deleted:
                    return False
                raise
            return True

        deleted = name in self._deleted
        _wait(create, f"topic {name} could not be created")
        self._deleted.discard(name)
        _wait(lambda: len(self.offsets(name)) == partitions, f"topic {name} got no leaders")
        return self.topic_id(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the broker no longer lists it."""
        self._admin().delete_topics([name], operation_timeout=_TIMEOUT)[name].result(_TIMEOUT)
        self._deleted.add(name)
        _wait(lambda: name not in self._listed(), f"topic {name} is still listed")

    def add_partitions(self, topic: str, total: int) -> None:
        """Grow a topic to `total` partitions."""
        growth = _admin_module().NewPartitions(topic, total)
        self._admin().create_partitions([growth])[topic].result(_TIMEOUT)
        _wait(lambda: len(self._listed().get(topic, ())) == total, f"topic {topic} did not grow to {total}")
        _wait(lambda: len(self.offsets(topic)) == total, f"topic {topic}'s new partitions got no leaders")

    def alter_config(self, topic: str, config: Mapping[str, str]) -> None:
        """Set some of a topic's settings and leave the others as they are."""
        admin = _admin_module()
        set_it = admin.AlterConfigOpType.SET
        entries = [admin.ConfigEntry(key, value, incremental_operation=set_it) for key, value in config.items()]
        resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        for done in self._admin().incremental_alter_configs([resource]).values():
            done.result(_TIMEOUT)

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """DeleteRecords: move log start offsets up, as retention would.

        Args:
            before: (topic, partition) → the first offset to keep; -1 deletes up to the high watermark.

        Returns:
            (topic, partition) → the log start offset now.
        """
        from confluent_kafka import TopicPartition

        limits = [TopicPartition(topic, partition, offset) for (topic, partition), offset in before.items()]
        done = self._admin().delete_records(limits)
        return {(at.topic, at.partition): int(f.result(_TIMEOUT).low_watermark) for at, f in done.items()}

    def topic_id(self, topic: str) -> str:
        """Kafka's id of the topic (KIP-516), as the broker prints it."""
        from confluent_kafka import TopicCollection

        described = self._admin().describe_topics(TopicCollection([topic]))[topic].result(_TIMEOUT)
        return str(described.topic_id)

    def offsets(self, topic: str, isolation: Isolation = "read_uncommitted") -> dict[int, tuple[int, int]]:
        """Partition → (log start, end); the end is the last stable offset for read_committed.

        Empty for a topic that does not exist.
        """
        offsets: dict[int, tuple[int, int]] = {}

        def read() -> bool:
            offsets.clear()
            offsets.update(self._offsets(topic, isolation))
            return True

        _wait(read, f"the offsets of topic {topic} could not be read")
        return offsets

    # Records

    def produce(self, topic: str, records: Iterable[Record | tuple[Any, ...]]) -> int:
        """Produce records without a transaction and wait for the acknowledgements; returns how many."""
        producer = self._producer({"enable.idempotence": True})
        return _send(producer, topic, records)

    def transactional(self, transactional_id: str | None = None) -> TransactionalProducer:
        """A producer for several transactions, one after another."""
        return TransactionalProducer(self.bootstrap_servers, transactional_id or f"recon-{uuid.uuid4().hex}")

    def transaction(
        self,
        topic: str,
        records: Iterable[Record | tuple[Any, ...]],
        outcome: Outcome = "commit",
        transactional_id: str | None = None,
    ) -> TransactionalProducer:
        """Produce records in one transaction that is committed, aborted, or left open.

        The records have reached the log in every case. An open one is ended by `commit()` or `abort()` on
        what is returned; its producer must stay referenced until then.
        """
        return self.transactional(transactional_id).send(topic, records, outcome)

    def read(self, topic: str, isolation: Isolation = "read_uncommitted") -> list[Seen]:
        """Every record a consumer of this isolation level sees now, by partition and offset."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        ends = self.offsets(topic, isolation)
        consumer = Consumer(
            {
                **self._config(),
                "group.id": f"recon-read-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, p, start) for p, (start, _) in ends.items()])
            seen, left = [], set(ends)
            deadline = time.monotonic() + _TIMEOUT
            while left:
                if time.monotonic() > deadline:
                    raise EvidenceError(f"partitions {sorted(left)} of topic {topic} could not be read to the end")
                message: Any = consumer.poll(1.0)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    seen.append(Seen(message.partition(), message.offset(), message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise EvidenceError(f"topic {topic} could not be read: {error}")
            return sorted(seen, key=lambda one: (one.partition, one.offset))
        finally:
            consumer.close()

    def compact(self, topic: str) -> None:
        """Make the broker compact the topic now, and wait until no key is left twice.

        The active segment is never compacted, so one extra record (key `recon-roll-segment`) is appended to
        every partition to close it.
        """
        self.alter_config(topic, _COMPACT_NOW)
        time.sleep(0.1)  # older than segment.ms, so that the next append rolls
        self.produce(topic, [Record(_ROLL_KEY, b"", partition) for partition in self.offsets(topic)])

        def compacted() -> bool:
            keys = [(one.partition, one.key) for one in self.read(topic) if one.key != _ROLL_KEY]
            return len(keys) == len(set(keys))

        _wait(compacted, f"topic {topic} was not compacted")

    # Internals

    def _offsets(self, topic: str, isolation: Isolation) -> dict[int, tuple[int, int]]:
        from confluent_kafka import IsolationLevel, TopicPartition

        spec_of = _admin_module().OffsetSpec
        level = getattr(IsolationLevel, isolation.upper())
        at = [TopicPartition(topic, partition) for partition in self._listed().get(topic, ())]
        if not at:
            return {}
        ends: list[dict[int, int]] = []
        for spec in (spec_of.earliest(), spec_of.latest()):
            answers = self._admin().list_offsets(dict.fromkeys(at, spec), isolation_level=level)
            ends.append({one.partition: int(f.result(_TIMEOUT).offset) for one, f in answers.items()})
        return {partition: (ends[0][partition], ends[1][partition]) for partition in sorted(ends[1])}

    def _config(self) -> dict[str, Any]:
        # Without this librdkafka prints connection errors to stderr; callers get every error as an exception.
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 0}

    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        known: AdminClient | None = self.__dict__.get("_admin_client")
        if known is None:
            known = self.__dict__["_admin_client"] = AdminClient(self._config())
        return known

    def _producer(self, config: Mapping[str, Any]) -> Producer:
        from confluent_kafka import Producer

        return Producer({**self._config(), "linger.ms": 5, "compression.type": "lz4", **config})

    def _listed(self) -> dict[str, tuple[int, ...]]:
        topics = self._admin().list_topics(timeout=_TIMEOUT).topics
        return {name: tuple(sorted(topic.partitions)) for name, topic in topics.items()}

    @property
    def _deleted(self) -> set[str]:
        names: set[str] = self.__dict__.setdefault("_deleted_names", set())
        return names


def _admin_module() -> Any:
    # Its stub exports too little for a strict type check.
    import confluent_kafka.admin

    return confluent_kafka.admin


class TransactionalProducer:
    """Transactions of one transactional id, one after another."""

    def __init__(self, bootstrap_servers: str, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._client = KafkaClient(bootstrap_servers)
        self._last: dict[tuple[str, int], int] = {}  # last offset of the open transaction
        self._producer = self._client._producer(
            # The longest that the broker allows: a transaction left open stays open during a test.
            {"transactional.id": transactional_id, "transaction.timeout.ms": 900_000}
        )
        self._producer.init_transactions(_TIMEOUT)

    def send(
        self, topic: str, records: Iterable[Record | tuple[Any, ...]], outcome: Outcome = "commit"
    ) -> TransactionalProducer:
        """One transaction: begin, produce, flush to the log, then commit, abort or leave open."""
        self._last.clear()
        self._producer.begin_transaction()
        self.produce(topic, records)
        if outcome == "commit":
            self.commit()
        elif outcome == "abort":
            self.abort()
        return self

    def produce(self, topic: str, records: Iterable[Record | tuple[Any, ...]]) -> int:
        """Add records to the open transaction; they have reached the log on return."""
        # Flushed: else an abort would drop them from the producer's queue and leave no trace in the log.
        return _send(self._producer, topic, records, self._last)

    def commit(self) -> None:
        """End the open transaction with a commit marker."""
        self._producer.commit_transaction(_TIMEOUT)
        self._await_markers()

    def abort(self) -> None:
        """End the open transaction with an abort marker."""
        self._producer.abort_transaction(_TIMEOUT)
        self._await_markers()

    def _await_markers(self) -> None:
        # The coordinator acknowledges first and writes the markers into the partitions afterwards.
        def written() -> bool:
            ends = {topic: self._client.offsets(topic) for topic, _ in self._last}
            return all(ends[topic][p][1] >= last + 2 for (topic, p), last in self._last.items())

        _wait(written, f"the markers of transaction {self.transactional_id} were not written")


def _send(
    producer: Producer,
    topic: str,
    records: Iterable[Record | tuple[Any, ...]],
    last: dict[tuple[str, int], int] | None = None,
) -> int:
    """Produces records; `last` receives the last offset of each partition as they are acknowledged."""
    refused: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            refused.append(str(error))
        elif last is not None:
            last[message.topic(), message.partition()] = message.offset()

    sent = 0
    for one in records:
        record = Record(*one)
        while True:
            try:
                producer.produce(
                    topic,
                    key=record.key,
                    value=record.value,
                    partition=record.partition,
                    timestamp=record.timestamp_ms,
                    on_delivery=delivered,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        sent += 1
    if left := producer.flush(_TIMEOUT):
        raise EvidenceError(f"{left} records for topic {topic} were not acknowledged in {_TIMEOUT:.0f} s")
    if refused:
        raise EvidenceError(f"{len(refused)} records for topic {topic} were not accepted: {refused[0]}")
    return sent


def _wait(done: Callable[[], bool], otherwise: str, seconds: float = _TIMEOUT) -> None:
    from confluent_kafka import KafkaError, KafkaException

    # Errors of a broker about a topic that it is still creating, deleting or loading.
    settling = (
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    )
    deadline = time.monotonic() + seconds
    while True:
        try:
            if done():
                return
        except KafkaException as error:
            if error.args[0].code() not in settling:
                raise
        if time.monotonic() > deadline:
            raise EvidenceError(f"{otherwise} within {seconds:.0f} s")
        time.sleep(0.05)
