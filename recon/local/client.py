"""Topics and records of a broker, written by confluent_kafka's admin client and producers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from recon.base.errors import EvidenceError

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient

Outcome = Literal["commit", "abort", "open"]
Isolation = Literal["read_uncommitted", "read_committed"]
TIMEOUT_S = 30.0


class Record(NamedTuple):
    """A record to produce. `partition` -1 lets the producer choose by key."""

    key: str | bytes | None
    value: str | bytes | None
    partition: int = -1
    timestamp_ms: int = 0


class KafkaClient:
    """Creates topics and writes records of the broker at `bootstrap_servers`."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.connect(bootstrap_servers)

    def connect(self, bootstrap_servers: str) -> None:
        """Uses the broker at this address from now on."""
        self.bootstrap_servers = bootstrap_servers
        self._admin: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        """The admin client of this broker."""
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient(_config(self.bootstrap_servers))
        return self._admin

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Creates a topic and returns its id when its partitions have leaders."""
        topic = _admin_module().NewTopic(name, partitions, replication_factor=1, config=dict(config or {}))
        self.admin.create_topics([topic])[name].result(TIMEOUT_S)
        wait_until(lambda: len(self.offsets(name)) == partitions, f"topic {name} got no leaders")
        return self.topic_id(name)

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """DeleteRecords: move log start offsets up, as retention would.

        Args:
            before: (topic, partition) → the first offset to keep; -1 deletes up to the high watermark.

        Returns:
            (topic, partition) → the log start offset now.
        """
        from confluent_kafka import TopicPartition

        limits = [TopicPartition(topic, partition, offset) for (topic, partition), offset in before.items()]
        done = self.admin.delete_records(limits)
        return {(at.topic, at.partition): int(f.result(TIMEOUT_S).low_watermark) for at, f in done.items()}

    def topic_id(self, topic: str) -> str:
        """Kafka's id of the topic (KIP-516), as the broker prints it."""
        from confluent_kafka import TopicCollection

        described = self.admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)
        return str(described.topic_id)

    def partitions(self, topic: str) -> list[int]:
        """The topic's partitions; none for a topic that the broker does not list."""
        # Listing every topic, unlike asking for one, creates none.
        listed = self.admin.list_topics(timeout=TIMEOUT_S).topics
        return sorted(listed[topic].partitions) if topic in listed else []

    def offsets(self, topic: str, isolation: Isolation = "read_uncommitted") -> dict[int, tuple[int, int]]:
        """Partition → (log start, end); the end is the last stable offset for read_committed.

        Empty for a topic that does not exist.
        """
        offsets: dict[int, tuple[int, int]] = {}

        def read() -> bool:
            offsets.update(self._offsets(topic, isolation))
            return True

        wait_until(read, f"the offsets of topic {topic} could not be read")
        return offsets

    def _offsets(self, topic: str, isolation: Isolation) -> dict[int, tuple[int, int]]:
        from confluent_kafka import IsolationLevel, TopicPartition

        at = [TopicPartition(topic, partition) for partition in self.partitions(topic)]
        if not at:
            return {}
        spec = _admin_module().OffsetSpec
        level = getattr(IsolationLevel, isolation.upper())
        starts, ends = (
            {
                where.partition: int(future.result(TIMEOUT_S).offset)
                for where, future in self.admin.list_offsets(dict.fromkeys(at, side), isolation_level=level).items()
            }
            for side in (spec.earliest(), spec.latest())
        )
        return {partition: (starts[partition], ends[partition]) for partition in sorted(ends)}

    def produce(self, topic: str, records: Iterable[Record | tuple[Any, ...]]) -> int:
        """Produce records without a transaction and wait for the acknowledgements; returns how many."""
        producer = _producer(self.bootstrap_servers, {"enable.idempotence": True})
        return _send(producer, topic, records)

    def transactional(self, transactional_id: str | None = None) -> TransactionalProducer:
        """A producer for several transactions, one after another."""
        return TransactionalProducer(self.bootstrap_servers, transactional_id or f"recon-{uuid.uuid4().hex}")


def _config(bootstrap_servers: str) -> dict[str, Any]:
    # Without log_level librdkafka prints connection errors to stderr; callers get every error as an exception.
    return {"bootstrap.servers": bootstrap_servers, "log_level": 0}


def _producer(bootstrap_servers: str, config: Mapping[str, Any]) -> Producer:
    from confluent_kafka import Producer

    return Producer({**_config(bootstrap_servers), "linger.ms": 5, "compression.type": "lz4", **config})


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
        self._producer = _producer(
            bootstrap_servers,
            # The longest that the broker allows: a transaction left open stays open during a test.
            {"transactional.id": transactional_id, "transaction.timeout.ms": 900_000},
        )
        self._producer.init_transactions(TIMEOUT_S)

    def send(self, topic: str, records: Iterable[Record | tuple[Any, ...]], outcome: Outcome = "commit") -> Self:
        """One transaction: begin, produce, flush to the log, then commit, abort or leave open.

        The records have reached the log in every case. An open one is ended by `commit()` or `abort()`; the producer
        must stay referenced until then.
        """
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
        self._producer.commit_transaction(TIMEOUT_S)
        self._await_markers()

    def abort(self) -> None:
        """End the open transaction with an abort marker."""
        self._producer.abort_transaction(TIMEOUT_S)
        self._await_markers()

    def _await_markers(self) -> None:
        # The coordinator acknowledges first and writes the markers into the partitions afterwards.
        def written() -> bool:
            ends = {topic: self._client.offsets(topic) for topic, _ in self._last}
            return all(ends[topic][p][1] >= last + 2 for (topic, p), last in self._last.items())

        wait_until(written, f"the markers of transaction {self.transactional_id} were not written")


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
    for fields in records:
        record = Record(*fields)
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
    if left := producer.flush(TIMEOUT_S):
        raise EvidenceError(f"{left} records for topic {topic} were not acknowledged in {TIMEOUT_S:.0f} s")
    if refused:
        raise EvidenceError(f"{len(refused)} records for topic {topic} were not accepted: {refused[0]}")
    return sent


def wait_until(done: Callable[[], bool], otherwise: str) -> None:
    """Returns when `done` does; until then the broker's errors about a topic in transition are waited out.

    Raises:
        EvidenceError: with the sentence `otherwise`, when it took too long.
    """
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
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            if done():
                return
        except KafkaException as error:
            if error.args[0].code() not in settling:
                raise
        if time.monotonic() > deadline:
            raise EvidenceError(f"{otherwise} within {TIMEOUT_S:.0f} s")
        time.sleep(0.05)
