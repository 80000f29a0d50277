"""The Kafka producers of the driver and of tasks: settings, transactional ids, and errors in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recon.base.errors import SinkError
from recon.model.wire import app_ids
from recon.model.wire.markers import Owner
from recon.witness.kafka_admin import KafkaAdmin

_NOT_OURS = ("group.id", "group.instance.id", "debug")
INIT_S = 60.0  # until the outcome of the id's earlier transaction is in all partitions
COMMIT_S = 120.0  # until the broker has acknowledged a task's records, and then its commit


def transactional_id(owner: Owner, producer: str | int) -> str:
    """One id per task number, and one for the driver."""
    return app_ids.transactional_id(owner.pipeline, owner.sink, owner.target, producer)


def producer_conf(conf: Mapping[str, str], txn: str | None, *, reports: bool = False) -> dict[str, Any]:
    """Configuration for librdkafka of a producer that neither loses nor doubles by its own retries."""
    own: dict[str, Any] = {"linger.ms": "5", "compression.type": "lz4"}
    own |= client_conf(conf)
    own |= {"acks": "all", "enable.idempotence": "true", "delivery.report.only.error": not reports}
    if txn is not None:
        own["transactional.id"] = txn
    return own


def client_conf(conf: Mapping[str, str]) -> dict[str, Any]:
    """Configuration for librdkafka of a client that writes nothing to stderr."""
    quiet = {"log_level": 0, "error_cb": _ignored}  # errors come back from the calls that they concern
    return {name: value for name, value in conf.items() if name not in _NOT_OURS} | quiet


def _ignored(error: Any) -> None:
    return None


def open_producer(conf: Mapping[str, str], txn: str | None, *, reports: bool = False) -> Any:
    """A producer; transactional where it has an id. `reports`: it reports each record, not errors alone.

    Raises:
        SinkError: librdkafka does not accept the configuration.
    """
    from confluent_kafka import Producer

    try:
        return Producer(producer_conf(conf, txn, reports=reports))
    except Exception as error:
        raise SinkError(
            f"the producer's settings below `kafka:` are not librdkafka's: {_safe(conf, _text(error))}"
        ) from None


def sentence(
    name: str, error: Any, conf: Mapping[str, str], owner: Owner, topic: str, source: str | None = None
) -> str:
    """What librdkafka's error means for the sink, and what to do."""
    from confluent_kafka import KafkaError, KafkaException

    if isinstance(error, KafkaException) and error.args:
        error = error.args[0]
    code = error.code() if hasattr(error, "code") else None
    of = f" (source record {source})" if source else ""
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return (
            f"{name}: a record{of} is larger than topic {topic} or the producer takes; raise message.max.bytes below "
            f"the sink's `kafka:` and max.message.bytes of topic {topic}, or shorten the value in the transform (where "
            "the topic takes less than 1 MB, set batch.size to that, too), then restart the query"
        )
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return f"{name}: this user may not write topic {topic}; grant it Write and Describe there"
    if code in (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
        txn = transactional_id(owner, "")
        return (
            f"{name}: this user may not open transactions; grant it Write and Describe on transactional ids that begin "
            f"with {txn}"
        )
    if code in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED):
        return (
            f"{name}: the producer was fenced: another attempt of it, or another driver of this sink (a query, or a "
            "repair), took over; or the transaction took longer than transaction.timeout.ms (raise it below the sink's "
            "`kafka:`)"
        )
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return (
            f"{name}: topic {topic} has no such partition, or is not there{of}; create it, or correct the column "
            "`partition`"
        )
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return (
            f"{name}: the broker allows no such transaction.timeout.ms (see its transaction.max.timeout.ms); lower it"
        )
    text = _safe(conf, _text(error)).rstrip(".")
    return f"{name}: Kafka at {conf.get('bootstrap.servers', '')} refused{of}: {text}; the micro-batch can be replayed"


def _text(error: Any) -> str:
    first = error.args[0] if isinstance(error, Exception) and error.args else error
    return str(first.str()) if hasattr(first, "str") else str(first)


def _safe(conf: Mapping[str, str], text: str) -> str:
    return KafkaAdmin(conf).safe(text)


def cause_of(error: Any, producer: Any) -> Any:
    """Librdkafka's error behind what confluent-kafka raised.

    A fatal error that arrives while callbacks run becomes a SystemError. librdkafka's error is its cause, or is lost:
    `error_cb` of confluent_kafka.c leaves it pending while the next delivery callback runs. The producer raises it
    again when the next transaction begins.
    """
    from confluent_kafka import KafkaException

    if not isinstance(error, SystemError):
        return error
    if error.__cause__ is not None:
        return error.__cause__
    try:
        producer.begin_transaction()
    except KafkaException as fatal:
        return fatal
    return error
