"""One Spark task of the Kafka sink: it writes its rows and their marker in one transaction.

It runs in a Python worker on an executor, where recon and confluent-kafka must be installed. No row goes to the driver:
a task reports counts and hashes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from recon.base.errors import SinkError
from recon.base.lazy import np
from recon.model.wire.columns import RECON_HEADERS, batch_headers, source_headers
from recon.model.wire.markers import Owner, SourceRange, TaskMarker, plan_key, task_key
from recon.witness import kafka_markers
from recon.witness.kafka_markers import Markers
from recon.write.sinks.kafka.columns import CONTENT, FROM, HEADERS, IDS, KEY, OFFSET, PARTITION, TASK, TOPIC, VALUE
from recon.write.sinks.kafka.producer import COMMIT_S, INIT_S, cause_of, open_producer, sentence, transactional_id

if TYPE_CHECKING:
    import pyarrow as pa

# What a task reports, as Spark's types.
REPORT = (
    "task bigint, rows bigint, ids bigint, content bigint, skipped boolean, same_content boolean, attempt bigint, "
    "sources string"
)

_ABORT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all tasks of one micro-batch have in common.

    `plan` is the offset of the driver's plan, `known` the task markers that the driver read up to `position`, where a
    task reads on. `marker_topic` is None for plain records.
    """

    conf: Mapping[str, str] = field(repr=False)
    owner: Owner
    query_id: str
    epoch: int
    batch_id: int
    marker_topic: str | None
    tasks: int = 0
    plan: int = -1
    position: int = 0
    known: Mapping[int, TaskMarker] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The micro-batch, for messages."""
        return (
            f"pipeline {self.owner.pipeline}, sink {self.owner.sink}: micro-batch {self.batch_id} (epoch {self.epoch})"
        )


def run(job: Job, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write a task's rows and report what was written.

    Raises:
        SinkError: a row or a setting prevents the write.
    """
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    number = 0 if context is None else context.partitionId()
    attempt = 0 if context is None else context.attemptNumber()
    writer = TaskTransaction(job, number, careful=attempt > 0)
    try:
        for batch in batches:
            writer.take(batch)
        writer.finish()
    except BaseException:
        writer.abort()
        raise
    report = {
        "task": number,
        "rows": writer.rows,
        "ids": writer.ids,
        "content": writer.content,
        "skipped": writer.marker is not None,
        "same_content": writer.marker is None or writer.marker.content == writer.content,
        "attempt": attempt,
        "sources": json.dumps(writer.sources()),
    }
    yield pa.RecordBatch.from_pylist([report])


# A source record: topic, partition, offset; None where it is not known.
_Place = tuple[str | None, int | None, int | None]


class _Refused(NamedTuple):
    """A record that did not arrive."""

    error: Any
    topic: str
    at: _Place
    size: int


class TaskTransaction:
    """One task's producer, opened with its first row, and the counts and hashes of its rows."""

    def __init__(self, job: Job, number: int, *, careful: bool) -> None:
        self.job, self.number, self._careful = job, number, careful
        self.rows = self.ids = self.content = 0
        self.marker: TaskMarker | None = None  # of an earlier attempt that committed; then nothing is written
        self._sources: dict[tuple[str, int], tuple[int, int, int]] = {}  # lowest and highest offset, rows
        self._producer: Any = None
        self._open = False  # whether a transaction is open
        self._refused: _Refused | None = None

    def take(self, batch: pa.RecordBatch) -> None:
        """Count the rows, and give them to the producer unless an earlier attempt committed them."""
        if not batch.num_rows:
            return
        if self._producer is None:
            self._begin()
        self._count(batch)
        if self.marker is None:
            with self._errors_of(self.job.owner.target):
                self._produce(batch)

    def finish(self) -> None:
        """Commit the rows with their marker, or compare them with the marker of an earlier attempt."""
        job = self.job
        if self._producer is None:
            if not self._careful or job.marker_topic is None:
                return  # no rows and nothing to compare them with
            self._begin()
        if self.marker is not None:
            if self._open:
                self.abort()
            require_same(job, self.marker, rows=self.rows, ids=self.ids)
            return
        self.flush()
        if job.marker_topic is None:
            return
        if not self.rows:
            self.abort()
            return
        marker = TaskMarker(
            query_id=job.query_id,
            epoch=job.epoch,
            batch_id=job.batch_id,
            task=self.number,
            tasks=job.tasks,
            rows=self.rows,
            ids=self.ids,
            content=self.content,
            sources=self.sources(),
        )
        self.commit(task_key(job.owner, self.number), marker.dump())

    def commit(self, key: bytes, value: bytes) -> None:
        """Commit the rows, which are flushed, with a marker."""
        topic = self.job.marker_topic
        assert topic is not None
        # The marker comes last: from here to the commit this transaction holds back readers of the marker topic.
        with self._errors_of(topic):
            self._producer.produce(
                topic,
                key=key,
                value=value,
                partition=kafka_markers.PARTITION,
                on_delivery=partial(self._delivered, (None, None, None)),
            )
            self.flush()
            self._producer.commit_transaction(COMMIT_S)
        self._open = False

    def abort(self) -> None:
        """End an open transaction at once; where that fails, the next attempt's init_transactions ends it."""
        if self._open:
            self._open = False
            with suppress(Exception):
                self._producer.abort_transaction(_ABORT_S)

    def sources(self) -> list[SourceRange]:
        """The source records of the rows."""
        return [(topic, p, low, high, rows) for (topic, p), (low, high, rows) in sorted(self._sources.items())]

    def _begin(self) -> None:
        job = self.job
        if job.marker_topic is None:
            self._producer = open_producer(job.conf, None)
            return
        producer = open_producer(job.conf, transactional_id(job.owner, self.number))
        self._producer = producer
        with self._errors_of(job.owner.target):
            # Ends a transaction that an earlier attempt left open, and fences it (KIP-98): the broker answers only when
            # that transaction's outcome is in all partitions. Hence the markers are read after it.
            producer.init_transactions(INIT_S)
        markers = self._read_markers()
        newer = markers.plan
        if newer is not None and newer.offset > job.plan:
            raise SinkError(
                f"{job.name}: task {self.number} belongs to a driver that was replaced: micro-batch {newer.batch_id} "
                f"(epoch {newer.epoch}) was begun after it; nothing of this task was written"
            )
        self.marker = markers.task(job.query_id, job.epoch, job.batch_id, self.number)
        if self.marker is None:
            with self._errors_of(job.owner.target):
                producer.begin_transaction()
            self._open = True

    def _read_markers(self) -> Markers:
        job = self.job
        assert job.marker_topic is not None
        mine, plan = task_key(job.owner, self.number), plan_key(job.owner)
        markers = kafka_markers.read(
            job.conf,
            job.marker_topic,
            job.owner,
            known=Markers(position=job.position, tasks=dict(job.known)),
            decides=lambda key, offset: key == mine or (key == plan and offset > job.plan),
        )
        if markers is None:
            raise SinkError(
                f"{job.name}: marker topic {job.marker_topic} is gone; whether this micro-batch was written before "
                "is not known"
            )
        return markers

    def _count(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        self.rows += batch.num_rows
        if self.job.marker_topic is None:
            return
        if self.job.tasks > 1 or TASK in batch.schema.names:
            numbers = np.asarray(batch.column(TASK))
            if not (numbers == self.number).all():
                other = int(numbers[numbers != self.number][0])
                raise SinkError(
                    f"{self.job.name}: Spark gave task {self.number} rows of task {other}: it changed the "
                    "partitioning that recon set, without which a retry does not know what was written; nothing of "
                    "this task was written; remove settings that change partitioning, then restart the query"
                )
        self.ids = with_hashes(self.ids, batch.column(IDS))
        self.content = with_hashes(self.content, batch.column(CONTENT))
        sources = pa.table({name: batch.column(name) for name in (TOPIC, FROM, OFFSET)})
        grouped = sources.group_by([TOPIC, FROM]).aggregate([(OFFSET, "min"), (OFFSET, "max"), (OFFSET, "count")])
        for row in grouped.to_pylist():
            topic, partition = row[TOPIC], row[FROM]
            if topic is None or partition is None or row[f"{OFFSET}_min"] is None:
                continue
            low, high, rows = row[f"{OFFSET}_min"], row[f"{OFFSET}_max"], row[f"{OFFSET}_count"]
            known_low, known_high, known_rows = self._sources.get((topic, partition), (low, high, 0))
            self._sources[topic, partition] = (min(low, known_low), max(high, known_high), rows + known_rows)

    def _produce(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        produce, poll = self._producer.produce, self._producer.poll
        owner, delivered = self.job.owner, self._delivered
        ours = batch_headers(owner.pipeline, owner.sink, self.job.epoch, self.job.batch_id)
        columns = [
            batch.column(name).to_pylist() if name in names else [None] * batch.num_rows
            for name in (KEY, VALUE, HEADERS, PARTITION, TOPIC, FROM, OFFSET)
        ]
        for key, value, own_headers, partition, topic, source, offset in zip(*columns, strict=True):
            headers = ours
            if own_headers:
                # A forwarded record may carry the headers of the sink that it came from.
                theirs = [
                    (header["key"], header["value"]) for header in own_headers if header["key"] not in RECON_HEADERS
                ]
                headers = theirs + ours
            if topic is not None:
                headers = headers + source_headers(topic, source, offset)
            more = {} if partition is None else {"partition": partition}
            at = (topic, source, offset)  # a record that is refused comes back without its headers
            while True:
                try:
                    produce(owner.target, value, key, headers=headers, on_delivery=partial(delivered, at), **more)
                    break
                except BufferError:
                    poll(0.05)
                    self._require_accepted()
                except Exception as error:
                    raise self._error(error, owner.target, at) from None
        poll(0)
        self._require_accepted()

    def flush(self) -> None:
        """Wait until Kafka has acknowledged all records; raises SinkError where it refused one."""
        deadline = time.monotonic() + COMMIT_S
        with self._errors_of(self.job.owner.target):
            while self._producer.flush(1.0):
                self._require_accepted()
                if time.monotonic() > deadline:
                    raise SinkError(
                        f"{self.job.name}: Kafka did not acknowledge the records within {COMMIT_S:g} s; check the "
                        "broker, then restart the query"
                    )
            self._require_accepted()

    def _delivered(self, at: _Place, error: Any, message: Any) -> None:
        # Called for errors only. The first is the cause of the others. But where one record is too large, Kafka refuses
        # its whole batch: then the largest record counts.
        if error is None:
            return
        known, size = self._refused, len(message.value() or b"")
        if known is None or (error.code() == known.error.code() and size > known.size):
            self._refused = _Refused(error, message.topic(), at, size)

    def _require_accepted(self) -> None:
        if self._refused is not None:
            raise self._error(self._refused.error, self._refused.topic, self._refused.at)

    @contextmanager
    def _errors_of(self, topic: str) -> Iterator[None]:
        """Turns what librdkafka raises into a SinkError."""
        from confluent_kafka import KafkaException

        try:
            yield
        except Exception as error:
            cause = cause_of(error, self._producer)
            if not isinstance(cause, KafkaException):
                raise
            raise self._error(cause, topic) from None

    def _error(self, error: Any, topic: str, source: _Place | None = None) -> SinkError:
        where = None if source is None or source[0] is None else f"{source[0]}-{source[1]}@{source[2]}"
        return SinkError(sentence(self.job.name, error, self.job.conf, self.job.owner, topic, where))


def require_same(job: Job, marker: TaskMarker, *, rows: int, ids: int) -> None:
    """Compare what a task would write with what it wrote before.

    Raises:
        SinkError: they are not the same source records.
    """
    if (marker.rows, marker.ids) == (rows, ids):
        return
    difference = f"{rows:,} rows instead of {marker.rows:,}" if rows != marker.rows else f"other {rows:,} rows"
    raise SinkError(
        f"{job.name}: NON-deterministic transform: task {marker.task} of {marker.tasks} gives {difference} when it "
        f"runs again, and the rows that it gave first are in topic {job.owner.target}; make the transform give the "
        "same rows each time (no rand(), sample(), current time or changing lookup that decides which rows stay), put "
        "back a check with on_failure: quarantine that was changed since, then restart the query"
    )


def with_hashes(subtotal: int, column: pa.Array) -> int:
    """The sum of 64-bit hashes so far and those of a column, as a signed 64-bit number."""
    return total((subtotal, int(np.asarray(column).sum(dtype=np.int64))))


def total(numbers: Iterable[int]) -> int:
    """The sum of hashes, as a signed 64-bit number."""
    whole = sum(numbers) & (1 << 64) - 1
    return whole - (1 << 64) if whole >> 63 else whole
