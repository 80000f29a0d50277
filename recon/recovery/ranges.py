"""What Kafka still has of a micro-batch's ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from recon.judge.kafka.clusters import Clusters
from recon.model import KafkaPartition, KafkaWitness, Unavailable, known
from recon.model.delta_offsets import is_delta, position_of
from recon.model.offsets import OffsetSpan
from recon.model.positions import described, is_kafka, place, shown

Held = Literal[
    "held", "partly deleted", "deleted", "re-created", "on another cluster", "beyond the end", "gone", "unknown"
]


@dataclass(frozen=True, kw_only=True)
class RangeHeld:
    """A range of a micro-batch and what Kafka has of it now; `log_start`, `log_end` are None where not known.

    `other` says what became of the topic that was read, where Kafka has another one of the name.
    """

    span: OffsetSpan
    held: Held
    other: str = ""
    log_start: int | None = None
    log_end: int | None = None


def onwards(span: OffsetSpan, kafka: KafkaWitness | Unavailable, clusters: Clusters) -> RangeHeld:
    """The offsets after a range, up to the end of the log."""
    partition, start = _partition(span, known(kafka)), span.end_offset
    end = start if partition is None else max(start, partition.log_end)
    return held(span._replace(start_offset=start, end_offset=end), kafka, clusters)


def _partition(span: OffsetSpan, kafka: KafkaWitness | None) -> KafkaPartition | None:
    topic = kafka.topics.get(span.topic) if kafka else None
    return topic.partitions.get(span.partition) if topic else None


def held(span: OffsetSpan, kafka: KafkaWitness | Unavailable, clusters: Clusters) -> RangeHeld:
    """A range with what Kafka has of it."""
    if isinstance(kafka, Unavailable):
        return RangeHeld(span=span, held="unknown")
    partition = _partition(span, kafka)
    if partition is None:
        return RangeHeld(span=span, held="gone")
    start, end, topic_id = partition.log_start, partition.log_end, kafka.topics[span.topic].topic_id
    state: Held = "held"
    other = ""
    if span.topic_id is not None and topic_id is not None and span.topic_id != topic_id:
        state = "re-created" if clusters.move(span.topic_id, topic_id) is None else "on another cluster"
        other = clusters.other_records(span.topic, span.topic_id, topic_id)
    elif end < span.end_offset:
        state = "beyond the end"
    elif is_delta(span.topic) and position_of(span.start_offset).in_snapshot:
        state = "held"  # a snapshot can be read as long as its data files are there
    elif start > span.start_offset:
        state = "deleted" if start >= span.end_offset > span.start_offset else "partly deleted"
    return RangeHeld(span=span, held=state, other=other, log_start=start, log_end=end)


def unknown(ranges: Sequence[RangeHeld], kafka: KafkaWitness | Unavailable) -> list[str]:
    """A sentence where it is not known what Kafka has."""
    because = f": {kafka.reason}" if isinstance(kafka, Unavailable) else ""
    if any(range_.held == "unknown" for range_ in ranges):
        return [f"whether Kafka still has the ranges is not known{because}"]
    return []


def _of_source(range_: RangeHeld) -> list[str]:
    """The same of a Delta table or of a file source."""
    topic = range_.span.topic
    name, versions = shown(topic), described(topic, *range_.span.span)
    if range_.held in ("deleted", "partly deleted") and range_.log_start is not None:
        begins = place(topic, range_.log_start)
        return [f"the log of {name} begins at {begins}, and {versions} are to be read: Spark stops, or leaves them out"]
    if range_.held == "re-created":
        return [f"{name} has another id than what was read: it was made anew"]
    if range_.held == "beyond the end" and range_.log_end is not None:
        return [
            f"{name} ends before {place(topic, range_.log_end)}, and {versions} were read: an older copy is in its "
            "place"
        ]
    return [f"{name} is not there: Spark stops"] if range_.held == "gone" else []


def losses(ranges: Sequence[RangeHeld]) -> list[str]:
    """A sentence for each planned range that Kafka no longer has as it was."""
    sentences = []
    for range_ in ranges:
        span, where = range_.span, f"{range_.span.topic}-{range_.span.partition}"
        if not is_kafka(span.topic):
            sentences += _of_source(range_)
            continue
        then = "with failOnDataLoss Spark stops; without it Spark continues, and the rows are lost"
        if range_.held in ("deleted", "partly deleted") and range_.log_start is not None:
            sentences.append(f"Kafka deleted [{span.start_offset}, {range_.log_start}) of {where}: {then}")
        elif range_.other:
            sentences.append(range_.other)
        elif range_.held == "beyond the end":
            sentences.append(
                f"{where} ends at {range_.log_end}, before {span.end_offset}: re-created, or cut off; {then}"
            )
        elif range_.held == "gone":
            sentences.append(f"Kafka has no {where}: {then}")
    return list(dict.fromkeys(sentences))
