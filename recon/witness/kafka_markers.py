"""Reads the marker topic of a Kafka sink: the sink's own record of recon's writes (recon.model.wire.markers).

Reading ends at the last stable offset (KIP-98), which any open transaction in the partition holds back, whoever its
producer is. So it may lie before a record that was committed long ago, and a reader that took "not seen" for "not
written" would write twice. A caller that decides by what is *not* there also reads behind the last stable offset, with
an uncommitted reader. It waits where a record of its own is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from recon.base.errors import EvidenceError
from recon.model import KafkaTopic, SinkCommit
from recon.model.ledger import named
from recon.model.wire import markers
from recon.model.wire.markers import BatchMarker, Owner, Plan, TaskMarker
from recon.model.wire.values import of_millis
from recon.witness.kafka_admin import KafkaAdmin
from recon.witness.lazy import ck

PARTITION = 0
_POLL_S = 0.05
_BROKER_S = 60.0  # a broker that restarts is waited for
# The default of librdkafka's transaction.timeout.ms, and the time in which a broker notices that it has passed.
_TRANSACTION_S, _NOTICED_S = 60.0, 30.0


@dataclass
class Markers:
    """One owner's records as far as they were read, and the offset of the next one to read."""

    position: int
    plan: Plan | None = None
    tasks: dict[int, TaskMarker] = field(default_factory=dict)
    batches: dict[tuple[int, int], BatchMarker] = field(default_factory=dict)

    def task(self, query_id: str, epoch: int, batch_id: int, task: int) -> TaskMarker | None:
        """The committed marker of a task of this micro-batch."""
        return next((marker for marker in self.of(query_id, epoch, batch_id) if marker.task == task), None)

    def of(self, query_id: str, epoch: int, batch_id: int) -> list[TaskMarker]:
        """The committed markers of a query's micro-batch; other queries may have given it the same numbers."""
        wanted = (query_id, epoch, batch_id)
        return [t for _, t in sorted(self.tasks.items()) if (t.query_id, t.epoch, t.batch_id) == wanted]

    @property
    def unfinished(self) -> tuple[Plan, ...]:
        """The newest plan, if its micro-batch was never completed, and those that were not when it was committed."""
        plan = self.plan
        if plan is None or (plan.epoch, plan.batch_id) in self.batches:
            return ()
        return (plan, *plan.behind)

    def take(self, key: bytes, value: bytes | None, offset: int, at: datetime | None) -> None:
        """Add a committed record of this owner; `at` is its timestamp, None for one that is no time.

        Raises:
            EvidenceError: it is not one of recon's.
        """
        try:
            kind, numbers = markers.parse_key(key)
            if value is None:  # a tombstone
                if kind == markers.TASK:
                    self.tasks.pop(numbers[0], None)
                elif kind == markers.BATCH:
                    self.batches.pop((numbers[0], numbers[1]), None)
            elif kind == markers.PLAN:
                self.plan = Plan.parse(value, offset)
            elif kind == markers.TASK:
                task = TaskMarker.parse(value)
                self.tasks[task.task] = task
            elif kind == markers.BATCH:
                if at is None:
                    raise ValueError("its timestamp is no time")
                batch = BatchMarker.parse(value, at)
                self.batches[batch.stamp.epoch, batch.stamp.batch_id] = batch
        except (ValueError, TypeError, KeyError, IndexError, EvidenceError) as error:
            raise EvidenceError(
                f"the marker topic's record at offset {offset} is not one that recon writes ({error!r}): another "
                "program writes to this topic; give the sink a `marker_topic` of its own"
            ) from error


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
        known: continue after these records, and add to them.
        since: without `known`, start at the first record that is not older.
        decides: called with key and offset of each of the owner's records that is not committed yet. If it returns
            True, the caller's decision depends on the record, and `read` waits for its transaction. By default, always.
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
    deadline = time.monotonic() + patience_s(conf)
    while True:
        if known.position < ends.last_stable:
            known.position = _consume(admin, place, owner, known.position, "read_committed", known.take)
        if known.position >= until:
            return known
        undecided = _undecided(admin, place, owner, known.position, until)
        if not any(decides is None or decides(key, offset) for key, offset in undecided):
            return known
        if time.monotonic() > deadline:
            raise EvidenceError(
                f"an open transaction holds back marker topic {topic} at offset {known.position}: whether pipeline "
                f"{owner.pipeline}, sink {owner.sink} wrote what follows is not known yet; the broker ends it after "
                "its transaction.timeout.ms, restart the query then"
            )
        time.sleep(_POLL_S)
        ends = admin.ends(place, _BROKER_S) or ends


def log(record: Markers, since: datetime | None = None) -> tuple[SinkCommit, ...]:
    """The completed micro-batches, oldest first."""
    return tuple(
        SinkCommit(version=None, stamp=marked.stamp, rows=marked.rows, at=marked.at)
        for marked in sorted(record.batches.values(), key=lambda marked: marked.at)
        if since is None or marked.at >= since
    )


def cut_off(topic: KafkaTopic, written: Sequence[BatchMarker]) -> str:
    """Why the topic cannot have all records of these micro-batches, in a clause; "" where it may have them.

    Records that expire, that compaction removes, and transaction markers never make a log end earlier. So from where it
    ended before a micro-batch on it has at least one offset for each row that was written since. How many records
    are gone is not known: markers of transactions take offsets, too.
    """
    if not topic.exists:
        return f"topic {topic.topic} does not exist"
    ends = {number: partition.high_watermark for number, partition in topic.partitions.items()}
    for place in reversed(range(len(written))):
        begin = written[place].starts
        later = (marker for marker in written[place:] if all(marker.starts.get(p, 0) >= at for p, at in begin.items()))
        room = sum(max(end - begin.get(p, 0), 0) for p, end in ends.items())
        if room < sum(marker.rows for marker in later) or any(ends.get(p, 0) < at for p, at in begin.items()):
            return (
                f"topic {topic.topic} ends earlier than when {named(written[place].stamp)} had been written: it was "
                "deleted and created again, or its log was cut off"
            )
    return ""


def _undecided(
    admin: KafkaAdmin, place: tuple[str, int], owner: Owner, position: int, until: int
) -> list[tuple[bytes, int]]:
    """Key and offset of the owner's records that a committed reader does not receive yet."""
    records: list[tuple[bytes, int]] = []
    _consume(admin, place, owner, position, "read_uncommitted", lambda key, _, at, __: records.append((key, at)))
    return [(key, offset) for key, offset in records if offset < until]


def _consume(
    admin: KafkaAdmin,
    place: tuple[str, int],
    owner: Owner,
    start: int,
    isolation: str,
    note: Callable[[bytes, bytes | None, int, datetime | None], None],
) -> int:
    """Read the owner's records from `start` to the end that this isolation level sees; returns that end."""
    # At the end of the log the broker would delay an empty answer by half a second.
    soon: dict[str, Any] = {"fetch.wait.max.ms": 5, "fetch.error.backoff.ms": 20}
    prefix = owner.prefix
    with admin.consumer(isolation, {place: start}, **soon) as consumer:
        quiet_since = time.monotonic()
        while True:
            for message in consumer.consume(10_000, 0.02) or ():
                quiet_since = time.monotonic()
                error = message.error()
                if error is None:
                    if (message.key() or b"").startswith(prefix):
                        at = of_millis(message.timestamp()[1])
                        note(message.key(), message.value(), message.offset(), at)
                elif error.code() == ck.KafkaError._PARTITION_EOF:
                    return max(start, int(message.offset()))
                else:
                    raise EvidenceError(f"marker topic {place[0]} cannot be read: {admin.safe(error.str())}")
            if time.monotonic() - quiet_since > _NOTICED_S:
                raise EvidenceError(
                    f"marker topic {place[0]} cannot be read: Kafka at {admin.bootstrap_servers} stopped answering"
                )


def _first_since(admin: KafkaAdmin, place: tuple[str, int], since: datetime, end: int) -> int:
    """The offset of the first record that is not older than an instant."""
    at = ck.TopicPartition(*place, int(since.timestamp() * 1000))
    with admin.consumer("read_uncommitted", {}) as consumer:
        try:
            offset = consumer.offsets_for_times([at], timeout=_NOTICED_S)[0].offset
        except Exception as error:
            raise EvidenceError(f"marker topic {place[0]} cannot be read: {admin.safe(str(error))}") from None
    return int(offset) if offset >= 0 else end


def patience_s(conf: Mapping[str, str]) -> float:
    """How long a reader waits for a transaction that is open: until Kafka itself ends it."""
    return float(conf.get("transaction.timeout.ms", _TRANSACTION_S * 1000)) / 1000 + _NOTICED_S
