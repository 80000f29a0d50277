"""Probes a stretch of offsets: which of them a read_uncommitted and a read_committed reader receive.

Nothing is produced, and no consumer group is joined or committed to: consumers are assigned their partitions by hand.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from recon.model import KafkaPartition, ProbeAnswer
from recon.model.offsets import Span, Spans
from recon.witness.kafka_admin import KafkaAdmin, Key, received
from recon.witness.lazy import ck

_SEEK_OVER = 5_000  # a gap of more offsets between two wanted ranges is jumped over instead of read (bench/probe.py)
_BATCH = 10_000  # messages taken from librdkafka at once
_ENDS_S = 4  # where each log starts and ends is asked first; `timeout_s` is for reading records


def probe(
    conf: Mapping[str, str],
    questions: Mapping[Key, Spans],
    *,
    max_records: int = 5_000_000,
    timeout_s: float = 60,
) -> dict[Key, ProbeAnswer]:
    """Which of the offsets in question a read_uncommitted and a read_committed reader receive.

    A read_uncommitted reader reads each partition's stretch once, and seeks over wide gaps between ranges. It receives
    everything that is committed; a read_committed reader then looks for what it received. Both answers are exact when
    `truncated` is None: an offset above the log start that is absent has no record for that reader. Offsets below
    `log_start` are deleted. `truncated` names the reason where an answer is not exact. Offsets may be past the log's
    end, or held back by an open transaction; the partition may not exist. Or reading was cut short by `max_records`
    (both readers together) or `timeout_s`.

    Raises:
        ConfigError: librdkafka does not accept the configuration.
        EvidenceError: the broker does not answer within four seconds (`timeout_s`, if that is longer), or refuses.
    """
    wanted = {key: spans for key, spans in questions.items() if spans}
    empty = {
        key: ProbeAnswer(topic=key[0], partition=key[1], requested=spans)
        for key, spans in questions.items()
        if not spans
    }
    if not wanted:
        return empty
    admin = KafkaAdmin(conf)
    deadline = time.monotonic() + timeout_s
    partitions = admin.offsets(list(wanted), max(deadline, time.monotonic() + _ENDS_S))
    budget = _Budget(max_records, deadline, timeout_s)
    uncommitted: dict[Key, _Reading] = {}
    committed: dict[Key, _Reading] = {}
    for key, partition in partitions.items():
        if partition is not None:
            uncommitted[key] = _Reading(_within(partition, partition.high_watermark, wanted[key]))
    _consume(admin, uncommitted, "read_uncommitted", budget)
    for key, partition in partitions.items():
        if partition is not None:
            committed[key] = _Reading(_within(partition, partition.last_stable, uncommitted[key].seen))
    _consume(admin, committed, "read_committed", budget)
    return {
        key: _answer(key, spans, partitions[key], uncommitted.get(key), committed.get(key))
        for key, spans in wanted.items()
    } | empty


def _within(partition: KafkaPartition, end: int, spans: Spans) -> Spans:
    """The offsets from the log's start up to an end."""
    return spans.intersect(Spans.of([(min(partition.log_start, end), end)]))


@dataclass
class _Budget:
    """How much reading is left."""

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
    """The offsets in question that one reader received of one partition, gathered as runs while they arrive."""

    def __init__(self, requested: Spans) -> None:
        self.stopped: str | None = None
        self._requested = requested.ranges
        self._at = 0  # the range being read
        self._runs: list[Span] = []
        self._run = Span(-1, -1)
        # A record at `next` and below `until` only lengthens the run: the common case, kept cheap.
        self.next = self.until = -1

    @property
    def position(self) -> int | None:
        """Where to read next; None after the last range."""
        return self._requested[self._at].start if self._at < len(self._requested) else None

    @property
    def seen(self) -> Spans:
        """The offsets in question that were received."""
        return Spans.of([*self._runs, Span(self._run.start, self.next)])

    def take(self, offset: int) -> int | None:
        """Record an offset; returns where to seek when the next range is far, else None."""
        before = self._at
        while self._at < len(self._requested) and self._requested[self._at].end <= offset:
            self._at += 1
        if self._at == len(self._requested):
            return None
        start, end = self._requested[self._at]
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
    """Read every partition up to the end of its last range, the log's end, or the end of the budget."""
    starts = {key: at for key, reading in readings.items() if (at := reading.position) is not None}
    open_keys = set(starts)
    if not open_keys:
        return
    with admin.consumer(isolation_level, starts) as consumer:
        while open_keys:
            if (reason := budget.spent()) is not None:
                for key in open_keys:
                    readings[key].stopped = reason
                return
            wait = min(0.5, max(0.0, budget.deadline - time.monotonic()))
            for message in received(consumer, min(_BATCH, budget.records), wait):
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
                        consumer.seek(ck.TopicPartition(*key, far))
                elif error.code() != ck.KafkaError._PARTITION_EOF:
                    # _AUTO_OFFSET_RESET: records were deleted while we read
                    reading.stopped = f"the broker stopped answering: {admin.safe(error.str())}"
                    open_keys.discard(key)
                    consumer.pause([ck.TopicPartition(*key)])
                    continue
                # At the end of the log nothing more can come: an offset before it that was not received is a hole.
                if error is not None or reading.position is None:
                    open_keys.discard(key)
                    consumer.pause([ck.TopicPartition(*key)])


def _answer(
    key: Key,
    requested: Spans,
    described: KafkaPartition | None,
    uncommitted: _Reading | None,
    committed: _Reading | None,
) -> ProbeAnswer:
    topic, partition = key
    if described is None or uncommitted is None or committed is None:
        return ProbeAnswer(
            topic=topic,
            partition=partition,
            requested=requested,
            truncated=f"the broker knows no partition {partition} of topic {topic}",
        )
    end = requested.ranges[-1].end
    reasons = []
    if end > described.high_watermark:
        reasons.append(f"the log ends at {described.high_watermark}")
    if described.last_stable < min(end, described.high_watermark):
        reasons.append(
            f"an open transaction holds the last stable offset at {described.last_stable}: from there on a "
            "read_committed reader sees nothing yet"
        )
    reasons += [
        f"{isolation}: {reading.stopped}"
        for isolation, reading in (("read_uncommitted", uncommitted), ("read_committed", committed))
        if reading.stopped
    ]
    return ProbeAnswer(
        topic=topic,
        partition=partition,
        requested=requested,
        uncommitted=uncommitted.seen,
        committed=committed.seen,
        log_start=described.log_start,
        last_stable=described.last_stable,
        truncated="; ".join(reasons) or None,
    )
