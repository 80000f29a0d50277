"""The marker topic: what a transactional Kafka sink itself remembers of recon's writes.

Three kinds of records, all in partition 0 of one compacted topic, so that their order is total:

- a *plan* per (pipeline, sink, topic), written by the driver before its tasks start. Only the newest is kept: a task
  that meets a newer plan than its own belongs to a driver that was replaced.
- a *task marker* per task number, written in the transaction of that task's rows. The key has no micro-batch in it, so
  compaction keeps one per task: nobody asks for an older one, since a micro-batch begins after the one before it is
  complete. What it says of (epoch, batch_id) tells whose rows are there.
- a *batch marker* per micro-batch, written by the driver when all tasks are done. These stay: they are the sink's log.

Reading ends at the last stable offset (KIP-98), and that may lie before a record that is committed long since: any open
transaction in the partition, of whatever producer, holds it back. A reader that took "not seen" for "not written" would
write twice. So whoever decides by what is *not* there looks behind the last stable offset, too, with an uncommitted
reader, and waits where a record of its own stands there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from recon.errors import EvidenceError
from recon.evidence.kafka import KafkaAdmin
from recon.model import ReconStamp, SinkCommit, dump_stamp, parse_stamp

PARTITION = 0
_PLAN, _TASK, _BATCH = "plan", "task", "batch"
_POLL_S = 0.05
_BROKER_S = 60.0  # a broker that restarts is waited for
# The default of librdkafka's transaction.timeout.ms, and what a broker takes to notice.
_TRANSACTION_S, _NOTICED_S = 60.0, 30.0

# (topic, partition, first offset, last offset, rows) of the source records that a task wrote.
SourceRange = tuple[str, int, int, int, int]


@dataclass(frozen=True)
class Owner:
    """Whose records these are: one sink of one pipeline, and the topic it writes."""

    pipeline: str
    sink: str
    target: str

    def key(self, kind: str, *more: int) -> bytes:
        """The record key of a marker."""
        return _compact([self.pipeline, self.sink, self.target, kind, *more])

    @property
    def prefix(self) -> bytes:
        """How every key of this owner begins."""
        return _compact([self.pipeline, self.sink, self.target])[:-1] + b","


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the driver set out to write.

    `tasks` is how many share the rows, `starts` where each partition of the target ended before, `schema` the written
    columns as Spark's JSON. `offset` is the record's own place in the marker topic: the newest plan has the highest.
    """

    epoch: int
    batch_id: int
    offsets_text: str
    tasks: int
    starts: Mapping[int, int] = field(default_factory=dict)
    schema: str | None = None
    offset: int = -1

    def dump(self) -> bytes:
        """The record's value."""
        return _compact(
            {
                "epoch": self.epoch,
                "batch_id": self.batch_id,
                "offsets": self.offsets_text,
                "tasks": self.tasks,
                "starts": [[p, start] for p, start in sorted(self.starts.items())],
                "schema": self.schema,
            }
        )


@dataclass(frozen=True, kw_only=True)
class TaskMarker:
    """What one task wrote, committed together with it.

    `ids` is a sum of hashes over the source coordinates of the rows, `content` one over their keys and values: both
    are the same whatever the order of the rows.
    """

    epoch: int
    batch_id: int
    task: int
    tasks: int
    rows: int
    ids: int
    content: int
    sources: Sequence[SourceRange] = ()

    def dump(self) -> bytes:
        """The record's value."""
        return _compact({**self.__dict__, "sources": [list(one) for one in self.sources]})


@dataclass(frozen=True, kw_only=True)
class BatchMarker:
    """A micro-batch that is complete: recon's stamp, and what its tasks wrote together."""

    stamp: ReconStamp
    tasks: int
    rows: int
    ids: int
    content: int
    at: datetime
    starts: Mapping[int, int] = field(default_factory=dict)

    def dump(self) -> bytes:
        """The record's value."""
        return _compact(
            {
                "stamp": dump_stamp(self.stamp),
                "tasks": self.tasks,
                "rows": self.rows,
                "ids": self.ids,
                "content": self.content,
                "starts": [[p, start] for p, start in sorted(self.starts.items())],
            }
        )


@dataclass
class Markers:
    """One owner's records as far as they were read, and the offset to read on from."""

    position: int
    plan: Plan | None = None
    tasks: dict[int, TaskMarker] = field(default_factory=dict)
    batches: dict[tuple[int, int], BatchMarker] = field(default_factory=dict)

    def task(self, epoch: int, batch_id: int, task: int) -> TaskMarker | None:
        """The committed marker of a task of this micro-batch."""
        found = self.tasks.get(task)
        return found if found is not None and (found.epoch, found.batch_id) == (epoch, batch_id) else None

    def of(self, epoch: int, batch_id: int) -> list[TaskMarker]:
        """The committed markers of a micro-batch."""
        return [t for _, t in sorted(self.tasks.items()) if (t.epoch, t.batch_id) == (epoch, batch_id)]

    @property
    def unfinished(self) -> Plan | None:
        """The newest plan, if its micro-batch was never completed."""
        plan = self.plan
        return plan if plan is not None and (plan.epoch, plan.batch_id) not in self.batches else None

    def take(self, key: bytes, value: bytes | None, offset: int, at: datetime) -> None:
        """Note a committed record of this owner.

        Raises:
            EvidenceError: it is not one of recon's.
        """
        try:
            kind, *numbers = json.loads(key)[3:]
            if value is None:  # a tombstone
                if kind == _TASK:
                    self.tasks.pop(numbers[0], None)
                elif kind == _BATCH:
                    self.batches.pop((numbers[0], numbers[1]), None)
                return
            told = json.loads(value)
            if kind == _PLAN:
                self.plan = _plan(told, offset)
            elif kind == _TASK:
                told["sources"] = [tuple(one) for one in told["sources"]]
                marker = TaskMarker(**told)
                self.tasks[marker.task] = marker
            elif kind == _BATCH:
                marked = _batch(told, at)
                self.batches[marked.stamp.epoch, marked.stamp.batch_id] = marked
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise EvidenceError(
                f"the marker topic's record at offset {offset} is not one that recon writes ({error!r}): something "
                "else writes to this topic; give the sink a `marker_topic` of its own"
            ) from error


def plan_key(owner: Owner) -> bytes:
    """The key of an owner's plan."""
    return owner.key(_PLAN)


def task_key(owner: Owner, task: int) -> bytes:
    """The key of a task's marker."""
    return owner.key(_TASK, task)


def batch_key(owner: Owner, epoch: int, batch_id: int) -> bytes:
    """The key of a micro-batch's marker."""
    return owner.key(_BATCH, epoch, batch_id)


def is_task(key: bytes) -> bool:
    """Whether a key is that of a task's marker."""
    return bool(json.loads(key)[3] == _TASK)


def is_batch(key: bytes) -> bool:
    """Whether a key is that of a micro-batch's marker."""
    return bool(json.loads(key)[3] == _BATCH)


def read(
    conf: Mapping[str, str],
    topic: str,
    owner: Owner,
    *,
    known: Markers | None = None,
    since: datetime | None = None,
    decides: Callable[[bytes, int], bool] | None = None,
    admin: KafkaAdmin | None = None,
) -> Markers | None:
    """An owner's markers, committed ones only; None when there is no marker topic.

    Args:
        conf: librdkafka configuration.
        topic: the marker topic.
        owner: whose records.
        known: read on from there, and add to it.
        since: without `known`, begin at the first record that is not older.
        decides: called with key and offset of the owner's records that no reader can judge yet; where one of them
            decides something, its transaction is waited for. All of them do by default.
        admin: a connection to use.

    Raises:
        ConfigError: librdkafka does not accept the configuration.
        EvidenceError: the broker cannot be reached, a record is not recon's, or a transaction stays open too long.
    """
    admin = admin or KafkaAdmin(conf)
    place = (topic, PARTITION)
    ends = admin.ends(place, _BROKER_S)
    if ends is None:
        return None
    if known is None:
        known = Markers(position=ends.log_start)
        if since is not None:
            known.position = _first_since(admin, place, since, ends.high_watermark)
    known.position = max(known.position, ends.log_start)
    if known.position >= ends.high_watermark:
        return known
    until = ends.high_watermark
    deadline = time.monotonic() + _patience_s(conf)
    while True:
        if known.position < ends.last_stable:
            known.position = _take(admin, place, owner, known)
        if known.position >= until:
            return known
        undecided = _undecided(admin, place, owner, known.position, until)
        if not any(decides is None or decides(key, offset) for key, offset in undecided):
            return known
        if time.monotonic() > deadline:
            raise EvidenceError(
                f"an open transaction holds back marker topic {topic} at offset {known.position}: whether pipeline "
                f"{owner.pipeline}, sink {owner.sink} wrote what follows cannot be told yet; the broker ends it after "
                "its transaction.timeout.ms, restart the query then"
            )
        time.sleep(_POLL_S)
        ends = admin.ends(place, _BROKER_S) or ends


def log(markers: Markers, since: datetime | None = None) -> tuple[SinkCommit, ...]:
    """The completed micro-batches, oldest first."""
    return tuple(
        SinkCommit(version=None, stamp=marked.stamp, rows=marked.rows, at=marked.at)
        for marked in sorted(markers.batches.values(), key=lambda marked: marked.at)
        if since is None or marked.at >= since
    )


def _plan(told: dict[str, Any], offset: int) -> Plan:
    return Plan(
        epoch=told["epoch"],
        batch_id=told["batch_id"],
        offsets_text=told["offsets"],
        tasks=told["tasks"],
        starts={int(p): int(start) for p, start in told["starts"]},
        schema=told["schema"],
        offset=offset,
    )


def _batch(told: dict[str, Any], at: datetime) -> BatchMarker:
    stamp = parse_stamp(told["stamp"])
    if stamp is None:
        raise ValueError("no stamp")
    return BatchMarker(
        stamp=stamp,
        tasks=told["tasks"],
        rows=told["rows"],
        ids=told["ids"],
        content=told["content"],
        starts={int(p): int(start) for p, start in told["starts"]},
        at=at,
    )


def _take(admin: KafkaAdmin, place: tuple[str, int], owner: Owner, known: Markers) -> int:
    """Note every committed record from `known.position` on; returns where a committed reader stands now."""
    prefix = owner.prefix

    def note(message: Any) -> None:
        key = message.key()
        if key is not None and key.startswith(prefix):
            _, millis = message.timestamp()
            known.take(key, message.value(), message.offset(), datetime.fromtimestamp(millis / 1000, UTC))

    return _consume(admin, place, known.position, "read_committed", note)


def _undecided(
    admin: KafkaAdmin, place: tuple[str, int], owner: Owner, position: int, until: int
) -> list[tuple[bytes, int]]:
    """Key and offset of the owner's records that a committed reader does not get to see yet."""
    found: list[tuple[bytes, int]] = []
    prefix = owner.prefix

    def note(message: Any) -> None:
        key = message.key()
        if key is not None and key.startswith(prefix) and message.offset() < until:
            found.append((key, message.offset()))

    _consume(admin, place, position, "read_uncommitted", note)
    return found


def _consume(admin: KafkaAdmin, place: tuple[str, int], start: int, isolation: str, note: Callable[[Any], None]) -> int:
    """Read from `start` to the end that this isolation level sees; returns that end."""
    from confluent_kafka import KafkaError, TopicPartition

    # At the end of the log the broker would keep an empty answer back for half a second.
    consumer: Any = admin.consumer(isolation, **{"fetch.wait.max.ms": 5, "fetch.error.backoff.ms": 20})
    try:
        consumer.assign([TopicPartition(*place, start)])
        quiet_since = time.monotonic()
        while True:
            for message in consumer.consume(10_000, 0.02) or ():
                quiet_since = time.monotonic()
                error = message.error()
                if error is None:
                    note(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    return max(start, int(message.offset()))
                else:
                    raise EvidenceError(f"marker topic {place[0]} cannot be read: {admin.safe(error.str())}")
            if time.monotonic() - quiet_since > _NOTICED_S:
                raise EvidenceError(
                    f"marker topic {place[0]} cannot be read: Kafka at {admin.bootstrap_servers} stopped answering"
                )
    finally:
        consumer.close()


def _first_since(admin: KafkaAdmin, place: tuple[str, int], since: datetime, end: int) -> int:
    """The offset of the first record that is not older than an instant."""
    from confluent_kafka import TopicPartition

    consumer: Any = admin.consumer("read_uncommitted")
    try:
        asked = TopicPartition(*place, int(since.timestamp() * 1000))
        offset = consumer.offsets_for_times([asked], timeout=_NOTICED_S)[0].offset
        return int(offset) if offset >= 0 else end
    except Exception as error:
        raise EvidenceError(f"marker topic {place[0]} cannot be read: {admin.safe(str(error))}") from None
    finally:
        consumer.close()


def _patience_s(conf: Mapping[str, str]) -> float:
    return float(conf.get("transaction.timeout.ms", _TRANSACTION_S * 1000)) / 1000 + _NOTICED_S


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
