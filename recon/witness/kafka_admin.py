"""Questions to a Kafka broker: descriptions of topics, offsets of partitions, consumers outside any group.

Everything is read through confluent-kafka (librdkafka). Configuration is librdkafka's, as in recon.yml's `kafka:`; its
values never appear in messages, except `bootstrap.servers`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from recon.base.errors import ConfigError, EvidenceError
from recon.model import KafkaPartition
from recon.model.wire.kafka_state import Cluster
from recon.witness.lazy import ck, ck_admin

Key = tuple[str, int]  # (topic, partition)

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # the zero UUID: a broker older than topic ids (KIP-516)
_SECRET = ("password", "secret", "token", "jaas", "key.pem", "pem", "sasl.oauthbearer.config")


@dataclass(frozen=True)
class TopicDescription:
    """A topic's id, None from a broker older than KIP-516, and its partitions, ascending."""

    topic_id: str | None
    partitions: tuple[int, ...]


class UnreachableError(EvidenceError):
    """The broker did not answer in time, or refused the connection."""


class _SettlingError(EvidenceError):
    """A partition has no leader at the moment, is being created, or was deleted: worth another request."""


class _Errors:
    """The last error of a connection.

    librdkafka's client refers to this object, and this object not to the client. A client in a reference cycle would
    stay connected until the garbage collector runs, in whichever thread.
    """

    def __init__(self) -> None:
        self.last = ""

    def remember(self, error: Any) -> None:
        """Called by librdkafka."""
        self.last = str(error.str())


class KafkaAdmin:
    """One admin connection for several requests; it connects with the first of them.

    Raises:
        ConfigError: librdkafka does not accept the configuration.
    """

    def __init__(self, conf: Mapping[str, str]) -> None:
        self._conf = dict(conf)
        self.bootstrap_servers = str(conf.get("bootstrap.servers") or conf.get("metadata.broker.list") or "")
        if not self.bootstrap_servers:
            raise ConfigError("kafka has no bootstrap.servers: add it below `kafka:` in recon.yml")
        self._errors = _Errors()
        try:
            self._admin = ck_admin.AdminClient(self._configured({}))
        except Exception as error:
            raise self._refused(error) from None

    def topic_ids(self, topics: Iterable[str], timeout_s: float = 10) -> dict[str, str | None]:
        """Topic → Kafka's id of it; None for a topic that does not exist or a broker that gives no ids."""
        described = self.describe(list(dict.fromkeys(topics)), time.monotonic() + timeout_s)
        return {topic: d.topic_id if d is not None else None for topic, d in described.items()}

    def cluster(self, topics: Iterable[str], timeout_s: float = 10) -> Cluster | None:
        """Which cluster this is, with the ids of these topics; None where the broker does not give its id."""
        deadline = time.monotonic() + timeout_s
        cluster_id = self.cluster_id(deadline)
        if cluster_id is None:
            return None
        ids = self.topic_ids(topics, remaining(deadline))
        return Cluster(cluster_id, {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None})

    def cluster_id(self, deadline: float) -> str | None:
        """The id that the cluster has of itself; None where the broker does not give it in time."""
        with suppress(ck.KafkaException, FutureTimeout):
            answer = self._admin.describe_cluster(request_timeout=remaining(deadline)).result(remaining(deadline) + 1)
            return str(answer.cluster_id) if answer.cluster_id else None
        return None

    def log_starts(self, topic_partitions: Iterable[Key], timeout_s: float = 10) -> dict[Key, int]:
        """(topic, partition) → log start offset; a partition that does not exist is left out."""
        deadline = time.monotonic() + timeout_s
        keys = list(topic_partitions)
        (starts,) = self._list_offsets(keys, [("earliest", "read_uncommitted")], deadline)
        return {key: answer[0] for key, answer in starts.items() if answer is not None}

    def leader_epochs(self, topic_partitions: Iterable[Key], timeout_s: float = 10) -> dict[Key, int | None]:
        """(topic, partition) → the leader epoch of its newest record; a partition that does not exist is left out."""
        deadline = time.monotonic() + timeout_s
        (ends,) = self._list_offsets(list(topic_partitions), [("latest", "read_uncommitted")], deadline)
        return {key: answer[1] for key, answer in ends.items() if answer is not None}

    def ends(self, topic_partition: Key, timeout_s: float = 10) -> KafkaPartition | None:
        """One partition's log start and both of its ends (`log_end` is the stable one), or None."""
        return self.offsets([topic_partition], time.monotonic() + timeout_s)[topic_partition]

    @contextmanager
    def consumer(
        self, isolation_level: str, positions: Mapping[Key, int], epochs: Mapping[Key, int] | None = None, **conf: Any
    ) -> Iterator[Any]:
        """A consumer outside any group's bookkeeping, assigned to these partitions from these offsets on.

        `epochs` are the leader epochs of what is below the offsets: where the log was cut off since, reading fails
        (KIP-320).
        """
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
            consumer = ck.Consumer(self._configured(own))
        except Exception as error:
            raise self._refused(error) from None
        try:
            known = epochs or {}
            consumer.assign(
                [
                    ck.TopicPartition(*key, position, leader_epoch=known[key])
                    if key in known
                    else ck.TopicPartition(*key, position)
                    for key, position in positions.items()
                ]
            )
            yield consumer
        finally:
            consumer.close()

    def _configured(self, more: Mapping[str, Any]) -> dict[str, Any]:
        # librdkafka would write connection errors to stderr; here they are kept for the message of an exception.
        conf: dict[str, Any] = {k: v for k, v in self._conf.items() if k not in ("group.instance.id", "debug")}
        return conf | dict(more) | {"log_level": 0, "error_cb": self._errors.remember}

    def describe(self, topics: Sequence[str], deadline: float) -> dict[str, TopicDescription | None]:
        """Id and partitions per topic; None for a topic the broker does not know."""
        if not topics:
            return {}
        futures = self._admin.describe_topics(ck.TopicCollection(list(topics)), request_timeout=remaining(deadline))
        described: dict[str, TopicDescription | None] = {}
        for topic, answer in self._gather(futures, deadline).items():
            if answer is None:
                described[topic] = None
                continue
            topic_id = str(answer.topic_id) if answer.topic_id is not None else None
            described[topic] = TopicDescription(
                topic_id if topic_id != _NO_ID else None, tuple(sorted(p.id for p in answer.partitions))
            )
        return described

    def settings(self, topics: Sequence[str], deadline: float | None = None) -> dict[str, Mapping[str, str]]:
        """The configuration of each topic of which the broker tells it; by default in ten seconds."""
        if not topics:
            return {}
        deadline = time.monotonic() + 10 if deadline is None else deadline
        resources = [ck_admin.ConfigResource(ck_admin.ConfigResource.Type.TOPIC, topic) for topic in topics]
        futures = self._admin.describe_configs(resources, request_timeout=remaining(deadline))
        settings: dict[str, Mapping[str, str]] = {}
        for resource, future in futures.items():
            with suppress(ck.KafkaException, FutureTimeout):
                config = future.result(remaining(deadline) + 1)
                settings[resource.name] = {name: str(entry.value) for name, entry in config.items()}
        return settings

    def offsets(self, keys: Sequence[Key], deadline: float) -> dict[Key, KafkaPartition | None]:
        """Log start and both ends (`log_end` is the stable one); None for a partition the broker does not know."""
        questions = [("earliest", "read_uncommitted"), ("latest", "read_committed"), ("latest", "read_uncommitted")]
        starts, stable, ends = self._list_offsets(keys, questions, deadline)
        partitions: dict[Key, KafkaPartition | None] = {}
        for key in keys:
            start, lso, end = starts[key], stable[key], ends[key]
            if start is None or lso is None or end is None:
                partitions[key] = None
                continue
            partitions[key] = KafkaPartition(
                partition=key[1],
                log_start=start[0],
                log_end=lso[0],
                # Three answers, not one: records may have arrived in between.
                high_watermark=max(end[0], lso[0]),
                last_stable=lso[0],
                leader_epoch=end[1],
            )
        return partitions

    def _list_offsets(
        self, keys: Sequence[Key], questions: Sequence[tuple[str, str]], deadline: float
    ) -> list[dict[Key, Any]]:
        """Per question (earliest | latest, isolation level) the (offset, leader epoch) of every key."""
        gone: dict[Key, None] = {}
        while True:
            keys = [key for key in keys if key not in gone]
            if not keys:
                return [dict(gone) for _ in questions]
            requests = []
            for which, isolation_level in questions:
                spec = getattr(ck_admin.OffsetSpec, which)()
                futures = self._admin.list_offsets(
                    {ck.TopicPartition(*key): spec for key in keys},
                    isolation_level=ck.IsolationLevel[isolation_level.upper()],
                    request_timeout=remaining(deadline),
                )
                requests.append({(at.topic, at.partition): future for at, future in futures.items()})
            try:
                return [{**self._gather(futures, deadline), **gone} for futures in requests]
            except _SettlingError:
                if time.monotonic() >= deadline:
                    raise
                described = self.describe(list({topic for topic, _ in keys}), deadline)
                gone |= dict.fromkeys(
                    key for key in keys if (d := described[key[0]]) is None or key[1] not in d.partitions
                )
                if not gone:
                    time.sleep(0.1)

    def _gather(self, futures: Mapping[Any, Future[Any]], deadline: float) -> dict[Any, Any]:
        """The answers by key: None for an unknown topic or partition, (offset, leader epoch) for offsets."""
        answers: dict[Any, Any] = {}
        for key, future in futures.items():
            try:
                answer = future.result(remaining(deadline) + 1)
            except ck.KafkaException as error:
                code = error.args[0].code()
                if code not in (ck.KafkaError.UNKNOWN_TOPIC_OR_PART, ck.KafkaError._UNKNOWN_PARTITION):
                    raise self._unanswered(key, error.args[0]) from None
                answers[key] = None
            except FutureTimeout:
                raise self._unanswered(key, None) from None
            else:
                answers[key] = (answer.offset, answer.leader_epoch) if hasattr(answer, "offset") else answer
        return answers

    def _unanswered(self, key: Any, error: Any) -> EvidenceError:
        unreachable = (
            ck.KafkaError._TIMED_OUT,
            ck.KafkaError._TRANSPORT,
            ck.KafkaError._ALL_BROKERS_DOWN,
            ck.KafkaError._RESOLVE,
            ck.KafkaError._AUTHENTICATION,
            ck.KafkaError._SSL,
        )
        topic = f"topic {key}" if isinstance(key, str) else f"partition {key[1]} of topic {key[0]}"
        if error is None or error.code() in unreachable:
            reason = self._errors.last or (error.str() if error is not None else "no answer in time")
            return UnreachableError(
                f"Kafka at {self.bootstrap_servers} cannot be reached: {self.safe(reason)}; start the broker, "
                "or check bootstrap.servers and the security settings below `kafka:` in recon.yml"
            )
        settling = (
            ck.KafkaError._NOENT,  # librdkafka's code for a request none of whose partitions has a leader
            ck.KafkaError.LEADER_NOT_AVAILABLE,
            ck.KafkaError.NOT_LEADER_FOR_PARTITION,
            ck.KafkaError.FENCED_LEADER_EPOCH,
            ck.KafkaError.UNKNOWN_LEADER_EPOCH,
        )
        kind = _SettlingError if error.code() in settling else EvidenceError
        return kind(
            f"Kafka at {self.bootstrap_servers} does not answer for {topic}: {self.safe(error.str())}; check "
            "the topic and this user's rights to describe it"
        )

    def _refused(self, error: Exception) -> ConfigError:
        first = error.args[0] if error.args else error
        text = first.str() if hasattr(first, "str") else str(first)
        return ConfigError(f"the settings below `kafka:` are not librdkafka's: {self.safe(text)}")

    def safe(self, text: str) -> str:
        """The text without any value of a setting that may be a secret."""
        for name, value in self._conf.items():
            if value and any(word in name for word in _SECRET):
                text = text.replace(str(value), "***")
        return text


def require_usable(conf: Mapping[str, str]) -> None:
    """Holds settings against librdkafka's own: names, values, files that they name. No broker is contacted.

    Raises:
        ConfigError: librdkafka does not accept the configuration.
    """
    KafkaAdmin(conf)


def received(consumer: Any, most: int, wait: float) -> list[Any]:
    """The messages received so far; waits for the first only, where consume() would wait for `most` of them."""
    first = consumer.poll(wait)
    return [] if first is None else [first, *consumer.consume(most, 0)]


def remaining(deadline: float) -> float:
    """Seconds to the deadline, at least a tenth: librdkafka takes no timeout of zero."""
    return max(0.1, deadline - time.monotonic())
