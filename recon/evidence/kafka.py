"""The Kafka witness: what the broker says of topics now, and what two readers see in a stretch of offsets.

Everything is read through confluent-kafka (librdkafka). Nothing is produced, and no consumer group is joined
or committed to: consumers are assigned their partitions by hand. Configuration is librdkafka's, as in
recon.yml's `kafka:`; its values never appear in messages, except `bootstrap.servers`.

Topics are named. A query with `subscribePattern` is not supported as such: name the topics it reads.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from recon.errors import ConfigError, EvidenceError
from recon.model import KafkaPartition, KafkaTopic, KafkaWitness, ProbeAnswer
from recon.model.offsets import Span, Spans

if TYPE_CHECKING:
    from confluent_kafka import Consumer

Key = tuple[str, int]  # (topic, partition)

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # the zero UUID: a broker older than topic ids (KIP-516)
_SECRET = ("password", "secret", "token", "jaas", "key.pem", "pem", "sasl.oauthbearer.config")
_SEEK_OVER = 50_000  # offsets between two asked ranges that are cheaper to jump over than to read
_BATCH = 10_000  # messages taken from librdkafka at once


def read(
    conf: Mapping[str, str],
    topics: Sequence[str],
    *,
    isolation_level: str,
    positions: Mapping[Key, int] | None = None,
    timeout_s: float = 10,
) -> KafkaWitness:
    """The topics as the broker describes them now. No topics, no question: the answer is then empty.

    Args:
        conf: librdkafka configuration.
        topics: names; one that the broker does not know comes back with `exists` False.
        isolation_level: the stream's; decides `log_end`.
        positions: next offset to read per (topic, partition). Where records follow it, `unread_since` tells
            the timestamp of the first; it stays None when that could not be had in time.
        timeout_s: for everything together.

    `cleanup_policy` is "unknown" where the broker refuses to tell a topic's configuration.

    Raises:
        ConfigError: librdkafka does not accept the configuration.
        EvidenceError: the broker cannot be reached in time, or refuses.
    """
    admin = KafkaAdmin(conf)
    if not topics:
        return admin._witness(isolation_level, {})
    deadline = time.monotonic() + timeout_s
    described = admin._describe(topics, deadline)
    policies, retentions = admin._deletion([t for t, d in described.items() if d is not None], deadline)
    keys = [(topic, partition) for topic, d in described.items() if d is not None for partition in d.partitions]
    offsets = admin._offsets(keys, deadline)
    witness = {}
    for topic, description in described.items():
        told = {key[1]: offsets[key] for key in keys if key[0] == topic and offsets[key] is not None}
        gone = description is not None and description.partitions and not told  # deleted while we asked
        if description is None or gone:
            witness[topic] = KafkaTopic(topic=topic, exists=False)
            continue
        partitions = {
            partition: KafkaPartition(
                partition=partition,
                log_start=o.log_start,
                log_end=o.last_stable if isolation_level == "read_committed" else o.high_watermark,
                high_watermark=o.high_watermark,
                last_stable=o.last_stable,
                leader_epoch=o.leader_epoch,
            )
            for partition, o in told.items()
            if o is not None
        }
        witness[topic] = KafkaTopic(
            topic=topic,
            exists=True,
            topic_id=description.topic_id,
            cleanup_policy=policies[topic],
            retention_ms=retentions.get(topic),
            partitions=partitions,
        )
    behind = {
        (topic.topic, p.partition): max(position, p.log_start)
        for topic in witness.values()
        for p in topic.partitions.values()
        if (position := (positions or {}).get((topic.topic, p.partition))) is not None and position < p.log_end
    }
    if behind:
        since = _first_timestamps(admin, behind, isolation_level, deadline)
        witness = {name: _with_unread(topic, since) for name, topic in witness.items()}
    return admin._witness(isolation_level, witness)


def topic_ids(conf: Mapping[str, str], topics: Iterable[str], timeout_s: float = 10) -> dict[str, str | None]:
    """Topic → Kafka's id of it; None for a topic that does not exist or a broker that gives no ids.

    Raises:
        ConfigError, EvidenceError: as `read`.
    """
    return KafkaAdmin(conf).topic_ids(topics, timeout_s)


def log_starts(conf: Mapping[str, str], topic_partitions: Iterable[Key], timeout_s: float = 10) -> dict[Key, int]:
    """(topic, partition) → log start offset; a partition that does not exist is left out.

    Raises:
        ConfigError, EvidenceError: as `read`.
    """
    return KafkaAdmin(conf).log_starts(topic_partitions, timeout_s)


def probe(
    conf: Mapping[str, str],
    asked: Mapping[Key, Spans],
    *,
    max_records: int = 5_000_000,
    timeout_s: float = 60,
) -> dict[Key, ProbeAnswer]:
    """Which of the asked offsets a read_uncommitted and a read_committed reader receive.

    Each partition's stretch is read once per isolation level; far-apart ranges are jumped between. Both
    answers are exact inside `asked` when `truncated` is None: an offset above the log start that is absent
    has no record for that reader. Offsets below the log start are gone; `log_start` tells. Offsets that no
    reader can decide yet (past the log's end, or held back by an open transaction), a partition that is not
    there, and reading cut short by `max_records` (both readers together) or `timeout_s` are told in
    `truncated`.

    Raises:
        ConfigError, EvidenceError: as `read`.
    """
    wanted = {key: spans for key, spans in asked.items() if spans}
    empty = {
        key: ProbeAnswer(
            topic=key[0],
            partition=key[1],
            asked=spans,
            uncommitted=Spans(),
            committed=Spans(),
            log_start=0,
            last_stable=0,
        )
        for key, spans in asked.items()
        if not spans
    }
    if not wanted:
        return empty
    admin = KafkaAdmin(conf)
    deadline = time.monotonic() + timeout_s
    offsets = admin._offsets(list(wanted), deadline)
    budget = _Budget(max_records, deadline, timeout_s)
    readers: dict[str, dict[Key, _Reading]] = {}
    for isolation in ("read_uncommitted", "read_committed"):
        readings = {}
        for key, spans in wanted.items():
            o = offsets[key]
            if o is not None:
                end = o.high_watermark if isolation == "read_uncommitted" else o.last_stable
                readings[key] = _Reading(spans.intersect(Spans.of([(min(o.log_start, end), end)])))
        _consume(admin, readings, isolation, budget)
        readers[isolation] = readings
    return {
        key: _answer(key, spans, offsets[key], *(readers[i].get(key) for i in readers)) for key, spans in wanted.items()
    } | empty


@dataclass(frozen=True)
class _Described:
    topic_id: str | None
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class _Offsets:
    log_start: int
    high_watermark: int
    last_stable: int
    leader_epoch: int | None


class _SettlingError(EvidenceError):
    """A partition is between two leaders, being made, or gone: worth asking again."""


class KafkaAdmin:
    """One admin connection for several questions; made cheaply, it connects with the first of them.

    Raises:
        ConfigError: librdkafka does not accept the configuration.
    """

    def __init__(self, conf: Mapping[str, str]) -> None:
        self._conf = dict(conf)
        self.bootstrap_servers = str(conf.get("bootstrap.servers") or conf.get("metadata.broker.list") or "")
        if not self.bootstrap_servers:
            raise ConfigError("kafka has no bootstrap.servers: add it below `kafka:` in recon.yml")
        self._last_error = ""
        try:
            self._admin = _admin_module().AdminClient(self._quiet({}))
        except Exception as error:
            raise self._refused(error) from None

    def topic_ids(self, topics: Iterable[str], timeout_s: float = 10) -> dict[str, str | None]:
        """Topic → Kafka's id of it; None for a topic that does not exist or a broker that gives no ids."""
        described = self._describe(list(dict.fromkeys(topics)), time.monotonic() + timeout_s)
        return {topic: d.topic_id if d is not None else None for topic, d in described.items()}

    def log_starts(self, topic_partitions: Iterable[Key], timeout_s: float = 10) -> dict[Key, int]:
        """(topic, partition) → log start offset; a partition that does not exist is left out."""
        deadline = time.monotonic() + timeout_s
        keys = list(topic_partitions)
        (starts,) = self._list_offsets(keys, [("earliest", "read_uncommitted")], deadline)
        return {key: told[0] for key, told in starts.items() if told is not None}

    def ends(self, topic_partition: Key, timeout_s: float = 10) -> KafkaPartition | None:
        """One partition's log start and both of its ends (`log_end` is the stable one); None if there is no such."""
        found = self._offsets([topic_partition], time.monotonic() + timeout_s)[topic_partition]
        if found is None:
            return None
        return KafkaPartition(
            partition=topic_partition[1],
            log_start=found.log_start,
            log_end=found.last_stable,
            high_watermark=found.high_watermark,
            last_stable=found.last_stable,
            leader_epoch=found.leader_epoch,
        )

    def settings(self, topic: str, timeout_s: float = 10) -> Mapping[str, str] | None:
        """A topic's configuration; None where the broker does not tell it."""
        admin = _admin_module()
        asked = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, topic)
        try:
            told = self._admin.describe_configs([asked], request_timeout=timeout_s)[asked].result(timeout_s + 1)
        except (_kafka_exception(), FutureTimeout):
            return None
        return {name: str(entry.value) for name, entry in told.items()}

    def safe(self, text: str) -> str:
        """The text without any value of a setting that may be a secret."""
        return self._safe(text)

    def consumer(self, isolation_level: str, **conf: Any) -> Consumer:
        """A consumer outside any group's bookkeeping: assign it by hand, close it after use."""
        from confluent_kafka import Consumer

        own = {
            # librdkafka insists on a group.id; none is joined, and nothing is committed to it.
            "group.id": f"recon-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation_level,
            # A full local queue would otherwise make the fetcher sleep for a second.
            "fetch.queue.backoff.ms": 10,
            **conf,
        }
        try:
            return Consumer(self._quiet(own))
        except Exception as error:
            raise self._refused(error) from None

    def _quiet(self, more: Mapping[str, Any]) -> dict[str, Any]:
        # librdkafka writes connection trouble to stderr by itself; here it comes back as a value instead.
        conf: dict[str, Any] = {k: v for k, v in self._conf.items() if k not in ("group.instance.id", "debug")}
        return conf | dict(more) | {"log_level": 0, "error_cb": self._remember}

    def _remember(self, error: Any) -> None:
        self._last_error = str(error.str())

    def _witness(self, isolation_level: str, topics: Mapping[str, KafkaTopic]) -> KafkaWitness:
        return KafkaWitness(
            bootstrap_servers=self.bootstrap_servers,
            isolation_level=isolation_level,
            read_at=datetime.now(UTC),
            topics=topics,
        )

    def _describe(self, topics: Sequence[str], deadline: float) -> dict[str, _Described | None]:
        """Id and partitions per topic; None for a topic the broker does not know."""
        from confluent_kafka import TopicCollection

        if not topics:
            return {}
        futures = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=_left(deadline))
        described: dict[str, _Described | None] = {}
        for topic, told in self._gather(futures, deadline).items():
            if told is None:
                described[topic] = None
                continue
            topic_id = str(told.topic_id) if told.topic_id is not None else None
            described[topic] = _Described(
                topic_id if topic_id != _NO_ID else None, tuple(sorted(p.id for p in told.partitions))
            )
        return described

    def _deletion(self, topics: Sequence[str], deadline: float) -> tuple[dict[str, str], dict[str, int]]:
        """cleanup.policy and retention.ms by topic, as far as the broker tells."""
        admin = _admin_module()
        policies, retentions = dict.fromkeys(topics, "unknown"), dict[str, int]()
        if not topics:
            return policies, retentions
        resources = [admin.ConfigResource(admin.ConfigResource.Type.TOPIC, topic) for topic in topics]
        futures = self._admin.describe_configs(resources, request_timeout=_left(deadline))
        for resource, future in futures.items():
            with suppress(_kafka_exception(), FutureTimeout):  # reading a topic does not imply this right
                told = future.result(_left(deadline) + 1)
                policies[resource.name] = str(told["cleanup.policy"].value)
                retentions[resource.name] = int(told["retention.ms"].value)
        return policies, retentions

    def _offsets(self, keys: Sequence[Key], deadline: float) -> dict[Key, _Offsets | None]:
        """Log start and both ends; None for a partition the broker does not know."""
        questions = [
            ("earliest", "read_uncommitted"),
            ("latest", "read_committed"),
            ("latest", "read_uncommitted"),
        ]
        starts, stable, ends = self._list_offsets(keys, questions, deadline)
        told: dict[Key, _Offsets | None] = {}
        for key in keys:
            start, lso, end = starts[key], stable[key], ends[key]
            if start is None or lso is None or end is None:
                told[key] = None
                continue
            # Three answers, not one: records may have arrived in between.
            told[key] = _Offsets(start[0], max(end[0], lso[0]), lso[0], end[1])
        return told

    def _list_offsets(
        self, keys: Sequence[Key], questions: Sequence[tuple[str, str]], deadline: float
    ) -> list[dict[Key, Any]]:
        """Per question (earliest | latest, isolation level) the (offset, leader epoch) of every key."""
        from confluent_kafka import IsolationLevel, TopicPartition

        gone: dict[Key, None] = {}
        while True:
            keys = [key for key in keys if key not in gone]
            if not keys:
                return [dict(gone) for _ in questions]
            asked = []
            for which, isolation_level in questions:
                spec = getattr(_admin_module().OffsetSpec, which)()
                futures = self._admin.list_offsets(
                    {TopicPartition(*key): spec for key in keys},
                    isolation_level=IsolationLevel[isolation_level.upper()],
                    request_timeout=_left(deadline),
                )
                asked.append({(at.topic, at.partition): future for at, future in futures.items()})
            try:
                return [{**self._gather(futures, deadline), **gone} for futures in asked]
            except _SettlingError:
                if time.monotonic() >= deadline:
                    raise
                described = self._describe(list({topic for topic, _ in keys}), deadline)
                gone |= dict.fromkeys(
                    key for key in keys if (d := described[key[0]]) is None or key[1] not in d.partitions
                )
                if not gone:
                    time.sleep(0.1)

    def _gather(self, futures: Mapping[Any, Future[Any]], deadline: float) -> dict[Any, Any]:
        """The answers by key: None for an unknown topic or partition, (offset, leader epoch) for offsets."""
        from confluent_kafka import KafkaError

        answers: dict[Any, Any] = {}
        for key, future in futures.items():
            try:
                told = future.result(_left(deadline) + 1)
            except _kafka_exception() as error:
                code = error.args[0].code()
                if code not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION):
                    raise self._unanswered(key, error.args[0]) from None
                answers[key] = None
            except FutureTimeout:
                raise self._unanswered(key, None) from None
            else:
                answers[key] = (told.offset, told.leader_epoch) if hasattr(told, "offset") else told
        return answers

    def _unanswered(self, key: Any, error: Any) -> EvidenceError:
        from confluent_kafka import KafkaError

        unreachable = (
            KafkaError._TIMED_OUT,
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._RESOLVE,
            KafkaError._AUTHENTICATION,
            KafkaError._SSL,
        )
        topic = f"topic {key}" if isinstance(key, str) else f"partition {key[1]} of topic {key[0]}"
        if error is None or error.code() in unreachable:
            reason = self._last_error or (error.str() if error is not None else "no answer in time")
            return EvidenceError(
                f"Kafka at {self.bootstrap_servers} cannot be reached: {self._safe(reason)}; start the broker, "
                "or check bootstrap.servers and the security settings below `kafka:` in recon.yml"
            )
        settling = (
            KafkaError._NOENT,  # no partition of the question has a leader: librdkafka's word for it
            KafkaError.LEADER_NOT_AVAILABLE,
            KafkaError.NOT_LEADER_FOR_PARTITION,
            KafkaError.FENCED_LEADER_EPOCH,
            KafkaError.UNKNOWN_LEADER_EPOCH,
        )
        kind = _SettlingError if error.code() in settling else EvidenceError
        return kind(
            f"Kafka at {self.bootstrap_servers} does not answer for {topic}: {self._safe(error.str())}; check "
            "the topic and this user's rights to describe it"
        )

    def _refused(self, error: Exception) -> ConfigError:
        first = error.args[0] if error.args else error
        text = first.str() if hasattr(first, "str") else str(first)
        return ConfigError(f"the settings below `kafka:` are not librdkafka's: {self._safe(text)}")

    def _safe(self, text: str) -> str:
        """The text without any value of a setting that may be a secret."""
        for name, value in self._conf.items():
            if value and any(word in name for word in _SECRET):
                text = text.replace(str(value), "***")
        return text


@dataclass
class _Budget:
    records: int
    deadline: float
    timeout_s: float

    def spent(self) -> str | None:
        """Why reading must stop now; None while it may go on."""
        if self.records <= 0:
            return "the limit of records to read was reached"
        if time.monotonic() >= self.deadline:
            return f"not finished within {self.timeout_s:g} s"
        return None


class _Reading:
    """One reader's way through the asked ranges of one partition; runs of offsets grow as they arrive."""

    def __init__(self, asked: Spans) -> None:
        self.stopped: str | None = None
        self._asked = asked.ranges
        self._at = 0  # the asked range being read
        self._runs: list[Span] = []
        self._run = Span(-1, -1)
        # A record at `next` and below `until` only lengthens the run: the common case, kept cheap.
        self.next = self.until = -1

    @property
    def position(self) -> int | None:
        """Where to read next; None when all asked ranges were passed."""
        return self._asked[self._at].start if self._at < len(self._asked) else None

    @property
    def seen(self) -> Spans:
        """The asked offsets that were received."""
        return Spans.of([*self._runs, Span(self._run.start, self.next)])

    def take(self, offset: int) -> int | None:
        """Note a record; returns where to seek when the next asked range is far, else None."""
        before = self._at
        while self._at < len(self._asked) and self._asked[self._at].end <= offset:
            self._at += 1
        if self._at == len(self._asked):
            return None
        start, end = self._asked[self._at]
        if offset >= start:
            if offset != self.next:
                self._runs.append(Span(self._run.start, self.next))
                self._run = Span(offset, offset)
            self.next, self.until = offset + 1, end - 1
            if offset + 1 == end:
                self._at += 1
        following = self.position
        far = following is not None and self._at > before and following - offset > _SEEK_OVER
        return following if far else None


def _consume(admin: KafkaAdmin, readings: Mapping[Key, _Reading], isolation_level: str, budget: _Budget) -> None:
    """Read every partition up to the end of its last asked range, the log's end, or the end of the budget."""
    from confluent_kafka import KafkaError, TopicPartition

    starts = {key: at for key, reading in readings.items() if (at := reading.position) is not None}
    open_keys = set(starts)
    if not open_keys:
        return
    consumer: Any = admin.consumer(isolation_level)
    try:
        consumer.assign([TopicPartition(*key, at) for key, at in starts.items()])
        while open_keys:
            if (why := budget.spent()) is not None:
                for key in open_keys:
                    readings[key].stopped = why
                return
            wait = min(0.5, max(0.0, budget.deadline - time.monotonic()))
            for message in _arrived(consumer, min(_BATCH, budget.records), wait):
                key = (message.topic(), message.partition())
                if key not in open_keys:
                    continue
                error = message.error()
                reading = readings[key]
                if error is None:
                    budget.records -= 1
                    offset = message.offset()
                    if offset == reading.next and offset < reading.until:
                        reading.next += 1
                        continue
                    far = reading.take(offset)
                    if far is not None:
                        consumer.seek(TopicPartition(*key, far))
                elif error.code() != KafkaError._PARTITION_EOF:
                    # _AUTO_OFFSET_RESET: records were deleted under the reader's feet
                    reading.stopped = f"the broker stopped answering: {admin._safe(error.str())}"
                    open_keys.discard(key)
                    consumer.pause([TopicPartition(*key)])
                    continue
                # At the end of the log nothing more can come: what was asked before it and not seen is a hole.
                if error is not None or reading.position is None:
                    open_keys.discard(key)
                    consumer.pause([TopicPartition(*key)])
    finally:
        consumer.close()


def _arrived(consumer: Any, most: int, wait: float) -> list[Any]:
    """The messages at hand; waits for the first only, where consume() would wait for all of them."""
    first = consumer.poll(wait)
    return [] if first is None else [first, *consumer.consume(most, 0)]


def _answer(
    key: Key,
    asked: Spans,
    offsets: _Offsets | None,
    uncommitted: _Reading | None,
    committed: _Reading | None,
) -> ProbeAnswer:
    topic, partition = key
    if offsets is None or uncommitted is None or committed is None:
        return ProbeAnswer(
            topic=topic,
            partition=partition,
            asked=asked,
            uncommitted=Spans(),
            committed=Spans(),
            log_start=0,
            last_stable=0,
            truncated=f"the broker knows no partition {partition} of topic {topic}",
        )
    end = asked.ranges[-1].end
    why = []
    if end > offsets.high_watermark:
        why.append(f"the log ends at {offsets.high_watermark}")
    if offsets.last_stable < min(end, offsets.high_watermark):
        why.append(
            f"an open transaction holds the last stable offset at {offsets.last_stable}: from there on a "
            "read_committed reader sees nothing yet"
        )
    why += [
        f"{isolation}: {reading.stopped}"
        for isolation, reading in (("read_uncommitted", uncommitted), ("read_committed", committed))
        if reading.stopped
    ]
    return ProbeAnswer(
        topic=topic,
        partition=partition,
        asked=asked,
        uncommitted=uncommitted.seen,
        committed=committed.seen,
        log_start=offsets.log_start,
        last_stable=offsets.last_stable,
        truncated="; ".join(why) or None,
    )


def _first_timestamps(
    admin: KafkaAdmin, positions: Mapping[Key, int], isolation_level: str, deadline: float
) -> dict[Key, datetime]:
    """The timestamp of the first record at or after each position; keys without an answer in time are absent."""
    from confluent_kafka import TopicPartition

    found: dict[Key, datetime] = {}
    left = set(positions)
    # One record per partition is wanted: fetch little.
    consumer: Any = admin.consumer(isolation_level, **{"fetch.message.max.bytes": 65_536, "queued.min.messages": 1})
    try:
        consumer.assign([TopicPartition(*key, position) for key, position in positions.items()])
        while left and time.monotonic() < deadline:
            for message in _arrived(consumer, 500, min(0.2, _left(deadline))):
                key = (message.topic(), message.partition())
                if key not in left:
                    continue
                left.discard(key)  # a record, the end of the log, or an error: no more to learn
                consumer.pause([TopicPartition(*key)])
                kind, millis = message.timestamp() if message.error() is None else (0, 0)
                if kind:
                    found[key] = datetime.fromtimestamp(millis / 1000, UTC)
    finally:
        consumer.close()
    return found


def _with_unread(topic: KafkaTopic, since: Mapping[Key, datetime]) -> KafkaTopic:
    partitions = {
        number: replace(p, unread_since=since.get((topic.topic, number))) for number, p in topic.partitions.items()
    }
    return replace(topic, partitions=partitions)


def _left(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())


def _kafka_exception() -> type[Exception]:
    from confluent_kafka import KafkaException

    return KafkaException


def _admin_module() -> Any:
    # Its stub exports too little for a strict type check.
    import confluent_kafka.admin

    return confluent_kafka.admin
