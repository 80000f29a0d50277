"""The Kafka sink against a real broker: each source record once, whatever dies between two steps of it.

The first part drives a task's code alone, as Spark's worker would; the second part writes through Spark.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from recon.base.errors import EvidenceError, ReconError, SinkError
from recon.model import ReconStamp, offsets_text
from recon.model.offsets import OffsetSpan
from recon.model.wire import markers
from recon.model.wire.markers import BatchMarker, Owner, Plan, TaskMarker
from recon.project import Project
from recon.witness import kafka_markers
from recon.witness.kafka_markers import Markers
from recon.write.sinks import open_sink
from recon.write.sinks.failpoints import BEFORE_LEDGER
from recon.write.sinks.kafka import task as kafka_task
from recon.write.sinks.kafka.markers import MarkerTopic
from recon.write.sinks.kafka.partitioner import spark_hash
from recon.write.sinks.kafka.producer import cause_of, open_producer
from recon.write.sinks.kafka.task import Job
from recon.write.sinks.kafka.writer import KafkaWriter
from tests.support.failpoints import dies_at
from tests.support.messages import raises

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.kafka import LocalKafka

MakeTopic = Callable[..., str]
COMPACTED = {"cleanup.policy": "compact"}
LONG = "".join(hashlib.sha256(b"%d" % n).hexdigest() for n in range(60))  # which no codec makes much shorter


# -- a task alone ----------------------------------------------------------------------------------


def make_job(kafka: LocalKafka, topic: MakeTopic, **keys: Any) -> Job:
    marker_topic = keys.pop("marker_topic", None) or topic("markers", config=COMPACTED)
    target = keys.pop("target", None) or topic("out", partitions=2)
    owner = Owner("p", "s", target)
    plan = Plan(query_id="q", epoch=0, batch_id=1, offsets_text="[]", tasks=1)
    kafka.transaction(marker_topic, [(markers.plan_key(owner), plan.dump(), 0)])
    return Job(
        conf={"bootstrap.servers": kafka.bootstrap_servers, "transaction.timeout.ms": "20000"},
        owner=owner,
        query_id="q",
        epoch=0,
        batch_id=1,
        marker_topic=marker_topic,
        tasks=1,
        **{"plan": 0, **keys},
    )


def rows(count: int = 10, *, first: int = 0, value: str = "v", content: int = 0) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict(
        {
            "_task": pa.array([0] * count, pa.int32()),
            "key": pa.array([b"k%d" % n for n in range(count)], pa.binary()),
            "value": pa.array([f"{value}{n}".encode() for n in range(count)], pa.binary()),
            "_topic": ["orders"] * count,
            "_partition": pa.array([0] * count, pa.int32()),
            "_offset": pa.array(range(first, first + count), pa.int64()),
            "_ids": pa.array(range(first, first + count), pa.int64()),
            "_content": pa.array([content] * count, pa.int64()),
        }
    )


def run(job: Job, *batches: pa.RecordBatch) -> dict[str, Any]:
    (report,) = kafka_task.run(job, batches)
    return report.to_pylist()[0]


def sources(kafka: LocalKafka, target: str) -> list[int]:
    """The source offsets in the headers of the records that a read_committed reader sees."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    conf = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": uuid.uuid4().hex, "enable.partition.eof": True}
    consumer: Any = Consumer({**conf, "isolation.level": "read_committed"})
    found, open_ = [], set(kafka.offsets(target))
    consumer.assign([TopicPartition(target, p, 0) for p in open_])
    while open_:
        message = consumer.poll(10)
        assert message is not None, "the topic could not be read to its end"
        if message.error() is None:
            found.append(int(dict(message.headers())["_source_offset"]))
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            open_.discard(message.partition())
    consumer.close()
    return sorted(found)


def test_a_task_writes_its_rows_and_its_marker_or_neither(kafka: LocalKafka, topic: MakeTopic) -> None:
    job = make_job(kafka, topic)
    assert run(job) == {
        "task": 0,
        "rows": 0,
        "ids": 0,
        "content": 0,
        "skipped": False,
        "same_content": True,
        "attempt": 0,
        "sources": "[]",
    }
    report = run(job, rows(3), rows(7, first=3))
    assert (report["rows"], report["ids"], report["skipped"]) == (10, 45, False)
    assert json.loads(report["sources"]) == [["orders", 0, 0, 9, 10]]
    assert sources(kafka, job.owner.target) == list(range(10))
    found = kafka_markers.read(job.conf, job.marker_topic or "", job.owner)
    assert found is not None
    assert found.task("q", 0, 1, 0) == TaskMarker(
        query_id="q",
        epoch=0,
        batch_id=1,
        task=0,
        tasks=1,
        rows=10,
        ids=45,
        content=0,
        sources=[("orders", 0, 0, 9, 10)],
    )

    again = run(job, rows(10, content=1))
    assert (again["skipped"], again["same_content"]) == (True, False), "other values are told, and not written"
    with raises(SinkError):
        run(job, rows(9))
    with raises(SinkError):
        run(job, rows(10, first=5))
    with raises(SinkError):
        run(Job(**{**job.__dict__, "batch_id": 2}), _of_task(rows(4), 1))
    assert sources(kafka, job.owner.target) == list(range(10))


def _of_task(batch: pa.RecordBatch, task: int) -> pa.RecordBatch:
    import pyarrow as pa

    return batch.set_column(0, "_task", pa.array([task] * batch.num_rows, pa.int32()))


def test_a_zombie_that_writes_is_fenced(kafka: LocalKafka, topic: MakeTopic) -> None:
    job = make_job(kafka, topic)
    zombie = kafka_task.TaskTransaction(job, 0, careful=False)
    zombie.take(rows(10))
    zombie.flush()  # its rows are in the log, its transaction is open
    assert kafka.offsets(job.owner.target)[0][1] + kafka.offsets(job.owner.target)[1][1] == 10

    assert run(job, rows(10))["skipped"] is False
    with raises(SinkError):
        zombie.finish()
    zombie.abort()
    assert sources(kafka, job.owner.target) == list(range(10))


def test_a_fatal_error_that_confluent_kafka_lost_is_asked_for_again(kafka: LocalKafka, topic: MakeTopic) -> None:
    conf, target = {"bootstrap.servers": kafka.bootstrap_servers}, topic("out")
    zombie = open_producer(conf, "zombie")
    zombie.init_transactions(30)
    zombie.begin_transaction()
    zombie.produce(target, b"1")
    zombie.flush(30)
    open_producer(conf, "zombie").init_transactions(30)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(30)

    lost = SystemError("<method 'flush' of 'cimpl.Producer' objects> returned NULL without setting an exception")
    cause = cause_of(lost, zombie)
    assert cause.args[0].code() == fenced.value.args[0].code() == KafkaError._FENCED
    assert cause_of(fenced.value, zombie) is fenced.value


def test_a_zombie_that_wakes_up_late_meets_the_newer_plan(kafka: LocalKafka, topic: MakeTopic) -> None:
    job = make_job(kafka, topic)
    newer = Plan(query_id="q", epoch=1, batch_id=0, offsets_text="[]", tasks=1)
    kafka.transaction(job.marker_topic or "", [(markers.plan_key(job.owner), newer.dump(), 0)])
    with raises(SinkError):
        run(job, rows(10))
    assert sources(kafka, job.owner.target) == []


def test_a_committed_marker_behind_an_open_transaction_is_waited_for(kafka: LocalKafka, topic: MakeTopic) -> None:
    """Another pipeline's open transaction hides ours: taking "not seen" for "not written" would double the rows."""
    job = make_job(kafka, topic)
    open_ = kafka.transaction(job.marker_topic or "", [(b'["p2","s","x","task",0]', b"{}", 0)], "open")
    started = time.monotonic()
    assert run(job, rows(10))["skipped"] is False, "what is open and not ours keeps nobody waiting"
    assert time.monotonic() - started < 15

    told: list[dict[str, Any]] = []
    second = threading.Thread(target=lambda: told.append(run(job, rows(10))))
    second.start()
    second.join(2)
    assert second.is_alive(), "it must not decide before the marker can be read"
    open_.abort()
    second.join(30)
    assert [report["skipped"] for report in told] == [True]
    assert sources(kafka, job.owner.target) == list(range(10))


def test_a_transaction_that_stays_open_is_an_error_in_the_end(
    kafka: LocalKafka, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(kafka, topic)
    open_ = kafka.transaction(job.marker_topic or "", [(b"x", b"{}", 0)], "open")
    run(job, rows(1))
    monkeypatch.setattr(kafka_markers, "patience_s", lambda conf: 0.5)
    with raises(EvidenceError):
        kafka_markers.read(job.conf, job.marker_topic or "", job.owner)
    seen = kafka_markers.read(job.conf, job.marker_topic or "", job.owner, decides=lambda key, offset: False)
    assert seen is not None
    assert (seen.plan is not None, seen.tasks, seen.position) == (True, {}, 2)
    open_.abort()
    found = kafka_markers.read(job.conf, job.marker_topic or "", job.owner, known=seen)
    assert found is not None
    assert list(found.tasks) == [0]


def test_a_record_too_large_is_named_and_nothing_stays(kafka: LocalKafka, topic: MakeTopic) -> None:
    small = topic("small", config={"max.message.bytes": "2000"})
    job = make_job(kafka, topic, target=small)
    with raises(SinkError) as raised:
        run(job, rows(5, first=100), _with_value(rows(1, first=105), LONG))
    assert small in str(raised.value) and "\n" not in str(raised.value)
    assert sources(kafka, small) == []
    large = Job(**{**job.__dict__, "conf": {**job.conf, "message.max.bytes": "1500"}})
    with raises(SinkError):
        run(large, rows(7), _with_value(rows(1, first=7), "x" * 3000))
    assert run(job, rows(5, first=100))["skipped"] is False
    assert sources(kafka, small) == list(range(100, 105))


def _with_value(batch: pa.RecordBatch, value: str) -> pa.RecordBatch:
    import pyarrow as pa

    return batch.set_column(2, "value", pa.array([value.encode()] * batch.num_rows, pa.binary()))


def test_compaction_keeps_what_a_replay_needs(kafka: LocalKafka, topic: MakeTopic) -> None:
    job = make_job(kafka, topic)
    for batch_id in range(1, 4):
        run(Job(**{**job.__dict__, "batch_id": batch_id}), rows(2, first=batch_id * 2))
        marker = BatchMarker(stamp=stamp(batch_id), tasks=1, rows=2, ids=0, content=0, at=None)  # type: ignore[arg-type]
        kafka.produce(job.marker_topic or "", [(markers.batch_key(job.owner, 0, batch_id), marker.dump(), 0)])
    kafka.compact(job.marker_topic or "")
    found = kafka_markers.read(job.conf, job.marker_topic or "", job.owner)
    assert found is not None
    assert [(task, marker.batch_id) for task, marker in found.tasks.items()] == [(0, 3)]
    assert sorted(found.batches) == [(0, 1), (0, 2), (0, 3)]
    assert len([one for one in kafka.read(job.marker_topic or "") if b'"task"' in (one.key or b"")]) == 1
    assert kafka_markers.read(job.conf, "no-such-topic", job.owner) is None


def test_a_marker_that_is_stamped_in_microseconds_is_named(kafka: LocalKafka, topic: MakeTopic) -> None:
    anything = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
    job = Job(**{**make_job(kafka, topic).__dict__, "marker_topic": topic("stamped", config=anything)})
    marker = BatchMarker(stamp=stamp(1), tasks=1, rows=2, ids=0, content=0, at=None)  # type: ignore[arg-type]
    micros = int(time.time() * 1e6)
    kafka.produce(job.marker_topic or "", [(markers.batch_key(job.owner, 0, 1), marker.dump(), 0, micros)])
    with pytest.raises(EvidenceError, match=r"record at offset 0 .*its timestamp is no time"):
        kafka_markers.read(job.conf, job.marker_topic or "", job.owner)


# -- through Spark ---------------------------------------------------------------------------------


def stamp(batch_id: int, *, epoch: int = 0, per: int = 10, first: int | None = None, parts: int = 4) -> ReconStamp:
    low = batch_id * per if first is None else first
    spans = [OffsetSpan("orders", "id", p, low, low + per) for p in range(parts)]
    return ReconStamp(
        pipeline="p",
        sink="s",
        epoch=epoch,
        batch_id=batch_id,
        query_id="q",
        run_id=None,
        prev_hash="",
        offsets_text=offsets_text(spans),
    )


def frame(spark: SparkSession, of: ReconStamp, **columns: str) -> DataFrame:
    """Ten records from each of four source partitions."""
    from pyspark.sql import functions as F

    (span, *_), parts = kafka_offsets(of), len(kafka_offsets(of))
    told = {"key": "concat('k', id)", "value": "concat('v', id)", **columns}
    return (
        spark.range(span.start_offset * parts, span.end_offset * parts)
        .withColumn("_source_topic", F.lit("orders"))
        .withColumn("_source_partition", (F.col("id") % parts).cast("int"))
        .withColumn("_source_offset", F.floor(F.col("id") / parts))
        .withColumns({name: F.expr(text) for name, text in told.items() if text})
        .withColumn("_batch_id", F.lit(of.batch_id).cast("long"))
        .drop(*(name for name, text in told.items() if not text))
    )


def kafka_offsets(of: ReconStamp) -> tuple[OffsetSpan, ...]:
    from recon.model import parse_offsets

    return parse_offsets(of.offsets_text)


def project(broker: LocalKafka, /, **sink: Any) -> Project:
    keys = {"name": "s", "kind": "kafka", **sink}
    pipeline = {"name": "p", "checkpoint": "c", "sinks": [keys]}
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    return Project.model_validate({"name": "x", "ledger": "l", "kafka": servers, "pipelines": [pipeline]})


def writer(broker: LocalKafka, at: str = "", /, **sink: Any) -> KafkaWriter:
    """The sink's writer; one that fails `at` a failpoint, as a killed driver would."""
    found = project(broker, **sink)
    made = open_sink(found, "p", found.pipelines[0].sinks[0], dies_at(at))
    assert isinstance(made, KafkaWriter)
    return made


def once(kafka: LocalKafka, target: str) -> Mapping[int, int]:
    """How many source offsets occur how often; four source partitions share each."""
    found = sources(kafka, target)
    counts = {offset: found.count(offset) for offset in set(found)}
    return {often: list(counts.values()).count(often) for often in set(counts.values())}


@pytest.fixture
def keys(topic: MakeTopic) -> Iterator[dict[str, Any]]:
    yield {
        "target": topic("out", partitions=2),
        "marker_topic": f"markers-{uuid.uuid4().hex[:8]}",
        "kafka": {"transaction.timeout.ms": 20000},
    }


@pytest.mark.long
def test_a_micro_batch_lands_once_whatever_seam_it_dies_at(
    kafka: LocalKafka, spark: SparkSession, keys: dict[str, Any]
) -> None:
    first, second, empty = stamp(0), stamp(1), stamp(2, per=0, first=20)
    sink = writer(kafka, tasks=4, **keys)
    sink.write(frame(spark, first), first)
    landed = sink.confirm(first)
    assert (landed.version, landed.rows) == (None, 40)

    # The second: killed after its plan; in a task (one record too large, other tasks committed); after its tasks;
    # after its marker. From the third attempt on with another number of tasks in recon.yml.
    with pytest.raises(RuntimeError, match="died at planned"):
        writer(kafka, "planned", tasks=4, **keys).write(frame(spark, second), second)
    kafka.alter_config(keys["target"], {"max.message.bytes": "3000"})
    heavy = "CASE WHEN id = 66 THEN array_join(transform(sequence(1, 900), x -> hex(xxhash64(x))), '') ELSE 'v' END"
    with raises(SinkError):
        writer(kafka, tasks=4, **keys).write(frame(spark, second, value=heavy), second)
    kafka.alter_config(keys["target"], {"max.message.bytes": "1000000"})
    with pytest.raises(RuntimeError, match="died at tasks_committed"):
        writer(kafka, "tasks_committed", tasks=1, **keys).write(frame(spark, second, value=heavy), second)
    assert once(kafka, keys["target"]) == {4: 20}
    assert writer(kafka, **keys).landed(second, None) is None, "without its batch marker it is not complete"
    with pytest.raises(RuntimeError, match="died at marked"):
        writer(kafka, "marked", tasks=1, **keys).write(frame(spark, second, value=heavy), second)
    last = writer(kafka, tasks=1, **keys)
    last.write(frame(spark, second, value=heavy), second)
    assert last.confirm(second).rows == 40
    last.write(frame(spark, empty), empty)
    assert last.confirm(empty).rows == 0
    assert once(kafka, keys["target"]) == {4: 20}

    log = writer(kafka, **keys).log()
    assert [(c.stamp, c.rows) for c in log.commits] == [(first, 40), (second, 40), (empty, 0)]
    assert (log.exists, log.recorded) == (True, True)
    assert [c.stamp.batch_id for c in writer(kafka, **keys).log(since=log.commits[1].at).commits] == [1, 2]
    marked = kafka_markers.read({"bootstrap.servers": kafka.bootstrap_servers}, keys["marker_topic"], sink.owner)
    assert marked is not None
    assert [marked.batches[0, n].tasks for n in (0, 1)] == [4, 4], "a replay keeps the number of tasks it began with"

    found = writer(kafka, **keys).landed(second, None)
    assert found is not None
    assert found.rows == 40
    table = last.table(spark)
    stamped = table.where("_batch_id = 1 AND _epoch = 0 AND _source_topic = 'orders'")
    assert stamped.count() == stamped.select("_source_partition", "_source_offset").distinct().count() == 40
    # Rows of one source partition lie in the order of their offsets in each partition of the target.
    before = "lag(_source_offset) OVER (PARTITION BY partition, _source_partition ORDER BY offset)"
    ordered = table.selectExpr("_source_offset AS mine", f"{before} AS before")
    assert ordered.selectExpr("count(*)", "count_if(mine <= before)").first() == (80, 0)
    rows_ = writer(kafka, **keys).rows_of(spark, found, second)
    assert rows_.selectExpr("count(*)", "min(_source_offset)", "max(_source_offset)").first() == (40, 10, 19)


@pytest.mark.long
def test_other_rows_on_a_replay_are_an_error(
    kafka: LocalKafka, spark: SparkSession, keys: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    of = stamp(0)
    with pytest.raises(RuntimeError):
        writer(kafka, "tasks_committed", tasks=2, **keys).write(frame(spark, of), of)
    for fewer in ("_source_offset <> 3", "_source_partition % 2 = 0"):
        with pytest.raises(SinkError, match=r"NON-deterministic transform: task . of 2 gives"):
            writer(kafka, tasks=2, **keys).write(frame(spark, of).where(fewer), of)
    with caplog.at_level(logging.WARNING, "recon"):
        sink = writer(kafka, tasks=2, **keys)
        sink.write(frame(spark, of, value="concat('other', id)"), of)
    assert "NON-deterministic transform: tasks 0, 1 give other keys or values" in caplog.text
    assert once(kafka, keys["target"]) == {4: 10}
    other = stamp(0, first=100)
    with raises(SinkError):
        writer(kafka, **keys).write(frame(spark, other), other)


@pytest.mark.long
def test_a_new_epoch_does_not_write_again_what_the_old_one_left(
    kafka: LocalKafka, spark: SparkSession, keys: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    of, anew, later = stamp(5), stamp(0, epoch=1, first=55), stamp(0, epoch=1, first=60)
    old = writer(kafka, "tasks_committed", **keys)
    with pytest.raises(RuntimeError):
        old.write(frame(spark, of), of)
    with pytest.raises(SinkError, match=r"4 of 4 tasks of micro-batch 5 \(epoch 0\), which was never completed"):
        writer(kafka, **keys).write(frame(spark, anew), anew)
    assert once(kafka, keys["target"]) == {4: 10}
    # The old checkpoint's query may still complete it; the driver that was replaced meanwhile may not.
    writer(kafka, **keys).write(frame(spark, of), of)
    with raises(SinkError):
        old.write(frame(spark, of), of)
    sink = writer(kafka, **keys)
    sink.write(frame(spark, later), later)
    assert sink.confirm(later).rows == 40
    assert once(kafka, keys["target"]) == {4: 20}

    half, twice = stamp(1, epoch=1, first=70), stamp(0, epoch=2, first=75)
    with pytest.raises(RuntimeError):
        writer(kafka, "tasks_committed", **keys).write(frame(spark, half), half)
    with caplog.at_level(logging.WARNING, "recon"):
        writer(kafka, on_new_epoch="warn", **keys).write(frame(spark, twice), twice)
    assert "would write source records again" in caplog.text
    assert once(kafka, keys["target"]) == {4: 30, 8: 5}


def test_an_unfinished_plan_is_not_forgotten(
    kafka: LocalKafka, spark: SparkSession, keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of a fenced driver commit between the newer driver's look and its plan: it stops, and stops again."""
    of, anew = stamp(5), stamp(0, epoch=1, first=55)
    planned, goes_on, failed = threading.Event(), threading.Event(), list[str]()
    old, newer = writer(kafka, tasks=2, **keys), writer(kafka, tasks=2, **keys)

    def waits(point: str, _: ReconStamp) -> None:
        if point == "planned":
            planned.set()
            assert goes_on.wait(60)

    def write_old() -> None:
        try:
            old.write(frame(spark, of), of)
        except SinkError as error:
            failed.append(str(error))

    begin = MarkerTopic.begin

    def late(self: MarkerTopic, plan: Plan, stamp: ReconStamp) -> Plan:
        if stamp == anew and not goes_on.is_set():
            goes_on.set()
            thread.join(120)
        return begin(self, plan, stamp)

    old.failpoint = waits
    thread = threading.Thread(target=write_old)
    thread.start()
    assert planned.wait(120)
    monkeypatch.setattr(MarkerTopic, "begin", late)
    for driver in (newer, writer(kafka, tasks=2, **keys)):
        with pytest.raises(SinkError, match=r"2 of 2 tasks of micro-batch 5 \(epoch 0\), which was never completed"):
            driver.write(frame(spark, anew), anew)
    assert len(failed) == 1 and "was fenced" in failed[0]
    assert once(kafka, keys["target"]) == {4: 10}
    # The query that began it completes it, and then another one may go on.
    writer(kafka, tasks=2, **keys).write(frame(spark, of), of)
    later = stamp(0, epoch=1, first=60)
    writer(kafka, tasks=2, **keys).write(frame(spark, later), later)
    assert once(kafka, keys["target"]) == {4: 20}


def test_what_is_wrong_is_said_in_one_sentence_and_nothing_is_written(
    kafka: LocalKafka, spark: SparkSession, topic: MakeTopic, keys: dict[str, Any]
) -> None:
    of = stamp(0)
    data = frame(spark, of)
    deleting, aging = (
        topic("deleting"),
        topic("aging", config={"cleanup.policy": "compact,delete", "retention.ms": "1"}),
    )
    for bad in (deleting, aging):
        with raises(SinkError) as told:
            writer(kafka, **{**keys, "marker_topic": bad}).write(data, of)
        assert f"--topic {bad} " in str(told.value)
    with raises(SinkError):
        writer(kafka, **{**keys, "target": "nowhere"}).write(data, of)
    with raises(SinkError):
        writer(kafka, **keys).write(data.drop("value"), of)
    with raises(SinkError):
        writer(kafka, key="order_id", **keys).write(data, of)
    with raises(ReconError):
        writer(kafka, **{**keys, "kafka": {"linger.ms": "never"}}).write(data, of)
    with pytest.raises(SinkError, match="no such partition"):
        writer(kafka, **keys).write(frame(spark, of, partition="7"), of)
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        writer(kafka, **keys).write(frame(spark, of, value="string(1 / (id - 3))"), of)
    assert sources(kafka, keys["target"]) == []
    assert not writer(kafka, **{**keys, "marker_topic": "not-there"}).log().exists
    hashes = spark.range(50).selectExpr("int(id) AS n", "hash(int(id)) AS h").collect()
    assert [spark_hash(row.n) for row in hashes] == [row.h for row in hashes]


@pytest.mark.usefixtures("interpreted")
def test_json_and_forwarded_headers_and_plain_records(
    kafka: LocalKafka, spark: SparkSession, topic: MakeTopic, keys: dict[str, Any]
) -> None:
    of = stamp(0)
    amounts = {
        "key": "",
        "value": "",
        "order_id": "concat('o', id)",
        "amount": "CAST(id AS DECIMAL(10,2))",
        "at": "timestamp'2026-11-21 12:00:00.123456'",
        "headers": "array(named_struct('key', 'trace', 'value', binary('t')), "
        "named_struct('key', '_batch_id', 'value', binary('999')))",
    }
    sink = writer(kafka, value_format="json", key="order_id", **keys)
    kafka.produce(keys["target"], [("by", "somebody else", 0)])
    sink.write(frame(spark, of, **amounts), of)
    found = sink.rows_of(spark, sink.confirm(of), of)
    assert found.dtypes == [
        ("id", "bigint"),
        ("order_id", "string"),
        ("amount", "decimal(10,2)"),
        ("at", "timestamp"),
        ("_key", "string"),
        ("_batch_id", "bigint"),
        ("_epoch", "int"),
        ("_source_topic", "string"),
        ("_source_partition", "int"),
        ("_source_offset", "bigint"),
    ]
    assert found.selectExpr(
        "count(*)", "sum(amount)", "count_if(_key = order_id)", "max(date_format(at, 'SSSSSS'))", "max(_batch_id)"
    ).first() == (40, 780, 40, "123456", 0)
    assert sink.table(spark).count() == 41, "a reader of the topic also sees what nobody stamped"
    assert sink.table(spark).where("_batch_id IS NULL").count() == 1

    plain = writer(kafka, **{**keys, "target": topic("plain"), "mode": "at_least_once", "value_format": "json"})
    bare = frame(spark, of, **amounts).drop("_source_topic", "_source_partition", "_source_offset", "at")
    for _ in range(2):
        plain.write(bare, of)
        assert plain.confirm(of).rows == 40
    assert plain.log().recorded is False
    landed = plain.landed(of, None)
    assert landed is not None
    assert landed.rows is None
    both = plain.table(spark)
    assert both.where("_batch_id = 0").count() == 80, "a replay writes again, as the label says"
    assert {"order_id", "amount", "_source_offset"} <= set(both.columns)
    assert plain.rows_of(spark, landed, of).count() == 40, "the last attempt's rows"


def test_a_stream_through_the_hook_is_proved_by_its_audit(
    kafka: LocalKafka, spark: SparkSession, topic: MakeTopic, lake: Path, keys: dict[str, Any]
) -> None:
    from recon.audits.run import run_audit
    from recon.write.hook import foreach_batch
    from recon.write.ledger import open_ledger

    source = topic("orders", partitions=2)
    kafka.produce(source, [(f"k{n}", f"v{n}", n % 2) for n in range(30)])
    found = Project.model_validate(
        {
            "name": "x",
            "project_dir": lake,
            "ledger": "ledger",
            "kafka": {"bootstrap.servers": kafka.bootstrap_servers},
            "pipelines": [
                {
                    "name": "p",
                    "checkpoint": "checkpoint",
                    "source": {"topics": [source]},
                    "sinks": [{"name": "s", "kind": "kafka", "data_tests": ["sink_commits", "source_rows"], **keys}],
                }
            ],
        }
    )

    def drain(hook: Any) -> None:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
        stream = reader.option("maxOffsetsPerTrigger", 20).load().writeStream.foreachBatch(hook)
        stream = stream.option("checkpointLocation", str(lake / "checkpoint")).trigger(availableNow=True)
        query = stream.start()
        query.awaitTermination(120)
        assert not query.isActive

    with pytest.raises(Exception, match="died"):
        drain(foreach_batch(found, pipeline="p", failpoint=dies_at(BEFORE_LEDGER)))
    drain(foreach_batch(found, pipeline="p"))
    entries = open_ledger(found).entries("p", "s")
    assert next((e.batch_id, e.status, e.rows_written, e.guarantee) for e in entries) == (
        0,
        "rebuilt",
        20,
        "exactly-once",
    )
    assert sorted(sources(kafka, keys["target"])) == sorted([*range(15), *range(15)])
    run_ = run_audit(found, spark=spark)
    told = {r.check: (r.status, r.message) for r in run_.results}
    assert [told[check][0] for check in ("sink_commits", "source_rows")] == ["pass", "pass"], told


def test_open_sink_is_all_it_takes(kafka: LocalKafka, keys: dict[str, Any]) -> None:
    found = project(kafka, **keys)
    assert isinstance(open_sink(found, "p", found.pipelines[0].sinks[0]), KafkaWriter)
    assert Markers(position=0).unfinished == ()
