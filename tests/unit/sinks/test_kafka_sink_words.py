"""The Kafka sink without a broker: what recon.yml may say, what markers hold, what errors mean."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from recon.base.errors import EvidenceError, SinkError
from recon.model import KafkaPartition, KafkaTopic, ReconStamp
from recon.model.wire import markers
from recon.model.wire.markers import BatchMarker, Owner, Plan, TaskMarker
from recon.project import KafkaSink
from recon.spark.kafka import kafka_options
from recon.witness import kafka_markers
from recon.witness.kafka_markers import Markers
from recon.write.sinks.kafka import producer
from recon.write.sinks.kafka import task as kafka_task
from recon.write.sinks.kafka.partitioner import partition_values, spark_hash
from recon.write.sinks.kafka.task import Job
from tests.support.messages import raises, same_message

OWNER = Owner("p", "s", "out")
AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
CONF = {"bootstrap.servers": "broker:9092", "sasl.password": "hunter2hunter2"}


def sink(**keys: Any) -> KafkaSink:
    return KafkaSink.model_validate({"kind": "kafka", "name": "s", "target": "out", **keys})


def stamp(batch_id: int = 3, epoch: int = 0) -> ReconStamp:
    return ReconStamp(
        pipeline="p",
        sink="s",
        epoch=epoch,
        batch_id=batch_id,
        query_id="q",
        run_id=None,
        prev_hash="abc",
        offsets_text='[[0,"orders","ü",[0],[0],[5]]]',
    )


def test_the_label_is_the_strongest_that_the_keys_allow() -> None:
    assert (sink().guarantee, sink().transactional) == ("exactly-once", True)
    assert sink(mode="at_least_once").guarantee == "at-least-once"
    assert (sink(stamp_source_offsets=False).guarantee, sink(stamp_source_offsets=False).transactional) == (
        "at-least-once",
        False,
    )


@pytest.mark.parametrize(
    "keys",
    [
        {"mode": "transactional", "stamp_source_offsets": False},
        {"marker_topic": "out"},
        {"kafka": {"acks": 1}},
        {"kafka": {"enable.idempotence": False}},
        {"kafka": {"transactional.id": "mine"}},
        {"tasks": 0},
    ],
    ids=str,
)
def test_what_would_break_the_promise_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        sink(**keys)
    (error,) = caught.value.errors()
    assert same_message(error["msg"])


def test_a_producer_waits_for_all_replicas_whatever_the_project_says() -> None:
    conf = producer.producer_conf({**CONF, "acks": "1", "group.id": "g", "linger.ms": "50"}, "t")
    assert (conf["acks"], conf["enable.idempotence"], conf["transactional.id"]) == ("all", "true", "t")
    assert "group.id" not in conf
    assert conf["linger.ms"] == "50"
    assert "transactional.id" not in producer.producer_conf(CONF, None)


def test_markers_come_back_as_they_were_written() -> None:
    plan = Plan(query_id="q", epoch=1, batch_id=3, offsets_text="[]", tasks=2, starts={0: 5, 1: 7}, schema='{"a":1}')
    task = TaskMarker(
        query_id="q",
        epoch=1,
        batch_id=3,
        task=1,
        tasks=2,
        rows=4,
        ids=-9,
        content=2**62,
        sources=[("orders", 1, 0, 3, 4)],
    )
    batch = BatchMarker(stamp=stamp(), tasks=2, rows=4, ids=1, content=2, starts={0: 5}, at=AT)
    found = Markers(position=0)
    found.take(markers.plan_key(OWNER), plan.dump(), 17, AT)
    found.take(markers.task_key(OWNER, 1), task.dump(), 18, AT)
    assert found.unfinished == (Plan(**{**plan.__dict__, "offset": 17}),)
    assert found.task("q", 1, 3, 1) == task
    assert found.task("q", 1, 4, 1) is None
    assert found.task("another", 1, 3, 1) is None
    assert found.task("q", 0, 3, 1) is None
    assert found.of("q", 1, 3) == [task]
    found.take(markers.batch_key(OWNER, 0, 3), batch.dump(), 19, AT)
    assert found.batches == {(0, 3): batch}
    assert found.unfinished, "another micro-batch is complete, not the plan's"
    found.take(
        markers.batch_key(OWNER, 1, 3), BatchMarker(**{**batch.__dict__, "stamp": stamp(epoch=1)}).dump(), 20, AT
    )
    assert found.unfinished == ()
    found.take(markers.batch_key(OWNER, 0, 3), None, 21, AT)
    assert list(found.batches) == [(1, 3)]


def test_the_log_is_in_the_order_of_time_and_begins_where_asked() -> None:
    found = Markers(position=0)
    for n in (2, 0, 1):
        marker = BatchMarker(stamp=stamp(n), tasks=1, rows=n, ids=0, content=0, at=AT)
        found.take(markers.batch_key(OWNER, 0, n), marker.dump(), n, AT + timedelta(minutes=n))
    assert [(c.stamp.batch_id, c.rows) for c in kafka_markers.log(found)] == [(0, 0), (1, 1), (2, 2)]
    assert [c.stamp.batch_id for c in kafka_markers.log(found, AT + timedelta(minutes=1))] == [1, 2]


def test_keys_of_two_sinks_never_meet() -> None:
    names = [Owner("p", "s", "out"), Owner("p", "s", "out2"), Owner("p", "s2", "out"), Owner("p,s", "", "out")]
    for one in names:
        keys = [markers.plan_key(one), markers.task_key(one, 0), markers.batch_key(one, 0, 1)]
        assert len(set(keys)) == 3
        assert [other for other in names if any(key.startswith(other.prefix) for key in keys)] == [one]
    assert markers.parse_key(markers.task_key(OWNER, 3)) == ("task", (3,))
    assert markers.parse_key(markers.plan_key(OWNER)) == ("plan", ())
    assert markers.parse_key(markers.batch_key(OWNER, 0, 1)) == ("batch", (0, 1))


@pytest.mark.parametrize("value", [b"hello", b"{}", b'{"stamp":"x","tasks":1}', b"[1,2]"])
def test_somebody_elses_record_under_our_key_is_an_error(value: bytes) -> None:
    found = Markers(position=0)
    with raises(EvidenceError):
        found.take(markers.batch_key(OWNER, 0, 1), value, 41, AT)


def test_a_micro_batch_whose_record_has_no_time_is_an_error_and_other_records_need_none() -> None:
    found = Markers(position=0)
    found.take(markers.plan_key(OWNER), None, 40, None)
    marker = BatchMarker(stamp=stamp(1), tasks=1, rows=1, ids=0, content=0, at=AT)
    with pytest.raises(EvidenceError, match=r"record at offset 41 .*its timestamp is no time"):
        found.take(markers.batch_key(OWNER, 0, 1), marker.dump(), 41, None)


def test_sparks_hash_and_the_lots_that_put_each_task_in_its_place() -> None:
    # SELECT hash(0), hash(1), hash(2) in Spark.
    assert [spark_hash(n) for n in (0, 1, 2)] == [933211791, -559580957, 1765031574]
    for tasks in (1, 2, 3, 8, 64):
        assert [spark_hash(value) % tasks for value in partition_values(tasks)] == list(range(tasks))


def test_hashes_add_up_as_64_bits_whatever_the_order() -> None:
    import pyarrow as pa

    numbers = [2**63 - 1, 5, -(2**63), 2**62, 2**62, 2**62]
    one = kafka_task.with_hashes(kafka_task.with_hashes(0, pa.array(numbers[:2])), pa.array(numbers[2:]))
    other = kafka_task.with_hashes(0, pa.array(numbers[::-1]))
    assert one == other == kafka_task.total(numbers)
    assert -(2**63) <= one < 2**63


def job() -> Job:
    return Job(conf=CONF, owner=OWNER, query_id="q", epoch=0, batch_id=3, marker_topic="m", tasks=2)


def test_other_rows_on_a_replay_are_named() -> None:
    marker = TaskMarker(query_id="q", epoch=0, batch_id=3, task=1, tasks=2, rows=4, ids=7, content=0)
    kafka_task.require_same(job(), marker, rows=4, ids=7)
    with raises(SinkError):
        kafka_task.require_same(job(), marker, rows=3, ids=7)
    with raises(SinkError):
        kafka_task.require_same(job(), marker, rows=4, ids=8)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("MSG_SIZE_TOO_LARGE", r"source record orders-3@17.*max\.message\.bytes of topic out"),
        ("TOPIC_AUTHORIZATION_FAILED", "may not write topic out; grant it Write"),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "transactional ids that begin with recon:p:s:out:"),
        ("_FENCED", "was fenced"),
        ("INVALID_PRODUCER_EPOCH", "was fenced"),
        ("UNKNOWN_TOPIC_OR_PART", "no such partition"),
        ("INVALID_TRANSACTION_TIMEOUT", r"transaction\.max\.timeout\.ms"),
        ("_TIMED_OUT", "broker:9092 refused"),
    ],
)
def test_what_librdkafka_says_becomes_one_sentence(code: str, said: str) -> None:
    from confluent_kafka import KafkaError, KafkaException

    error = KafkaException(KafkaError(getattr(KafkaError, code), "sasl failed with hunter2hunter2"))
    text = producer.sentence(job().name, error, CONF, OWNER, "out", "orders-3@17")
    assert text.startswith("pipeline p, sink s: micro-batch 3 (epoch 0): ")
    import re

    assert re.search(said, text)
    assert "hunter2" not in text
    assert "\n" not in text


def test_connection_settings_reach_sparks_reader() -> None:
    conf = {
        "bootstrap.servers": "b:1",
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": 'a"b',
        "ssl.ca.location": "/ca.pem",
        "linger.ms": "5",
    }
    assert kafka_options(conf) == {
        "kafka.bootstrap.servers": "b:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="u" password="a\\"b";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/ca.pem",
    }


def test_the_marker_of_a_task_is_small() -> None:
    sources = [("a-topic-with-a-name", p, 10**12, 10**12 + 999, 1000) for p in range(25)]
    value = TaskMarker(
        query_id="q", epoch=0, batch_id=1, task=0, tasks=8, rows=1, ids=1, content=1, sources=sources
    ).dump()
    assert len(value) < 2_500
    assert json.loads(value)["sources"][0][0] == "a-topic-with-a-name"


@pytest.mark.parametrize("value", [b"y" * 40, b"y" * 4000], ids=["timed out", "too large"])
def test_a_record_that_does_not_arrive_is_named(value: bytes) -> None:
    import pyarrow as pa

    conf = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": "500", "message.max.bytes": "1500"}
    alone = Job(conf=conf, owner=OWNER, query_id="q", epoch=0, batch_id=1, marker_topic=None)
    rows = [
        {"value": what, "_topic": "orders", "_partition": 0, "_offset": offset}
        for offset, what in [(6, b"z"), (7, value), (8, b"z")]
    ]
    with raises(SinkError):
        list(kafka_task.run(alone, [pa.RecordBatch.from_pylist(rows)]))


def batch(batch_id: int, rows: int, *starts: int) -> BatchMarker:
    return BatchMarker(
        stamp=stamp(batch_id), tasks=1, rows=rows, ids=0, content=0, at=AT, starts=dict(enumerate(starts))
    )


def out(*ends: int, log_start: int = 0) -> KafkaTopic:
    partitions = {
        n: KafkaPartition(partition=n, log_start=log_start, log_end=end, high_watermark=end, last_stable=end)
        for n, end in enumerate(ends)
    }
    return KafkaTopic(topic="out", exists=True, partitions=partitions)


WRITTEN = [batch(0, 10, 0, 0), batch(1, 5, 6, 6)]  # a transaction's marker in each partition


def test_a_topic_that_ends_before_what_was_written() -> None:
    assert kafka_markers.cut_off(out(9, 9), WRITTEN) == ""
    assert kafka_markers.cut_off(out(9, 9, log_start=9), WRITTEN) == "", "all of it has expired"
    assert kafka_markers.cut_off(out(6, 11), WRITTEN) == "", "all went into one partition"
    assert kafka_markers.cut_off(out(6, 10), WRITTEN) != "", "four offsets for five rows"
    assert "micro-batch 1 " in kafka_markers.cut_off(out(5, 20), WRITTEN), "it ended further before"
    assert "micro-batch 1 " in kafka_markers.cut_off(out(20), WRITTEN), "a partition is gone"
    assert same_message(kafka_markers.cut_off(out(), WRITTEN[:1]))
    assert same_message(kafka_markers.cut_off(KafkaTopic(topic="out", exists=False), WRITTEN))


def test_a_topic_that_was_made_anew_and_written_again() -> None:
    """The finding has the same words until the new topic has outgrown the old one."""
    after = [*WRITTEN, batch(2, 2, 0, 0), batch(3, 2, 3, 0)]
    told = kafka_markers.cut_off(out(0, 0), WRITTEN)
    assert told and told == kafka_markers.cut_off(out(3, 0), after[:3]) == kafka_markers.cut_off(out(6, 0), after)


def test_a_micro_batch_of_an_older_checkpoint_that_was_completed_later() -> None:
    """Its plan is older than the one before it, and so is where the topic ended."""
    assert kafka_markers.cut_off(out(9, 9), [batch(0, 10, 6, 0), batch(5, 5, 0, 0)]) == ""
