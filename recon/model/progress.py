"""Spark's query progress of each micro-batch, as plain values. `recon.write.ledger.progress` fills these in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

TopicPartition = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class SourceOffsets:
    """The Kafka sources of one micro-batch: offsets by (topic, partition), ends excluded.

    `latest` is Kafka's end when the micro-batch was planned, where Spark reports it.
    """

    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]


@dataclass(frozen=True, kw_only=True)
class BatchProgress:
    """One micro-batch as Spark reported it; None where the report has no value.

    `at` is when its trigger began, `seconds` how long that took. `rows` are the input rows, counted again each time
    that the micro-batch is computed. `offsets` is the width of the ranges read, `lag` what Kafka held beyond them, both
    in offsets of Kafka sources. `state_*` are sums over the stateful operators; `dropped_late` and `dropped_duplicates`
    are rows dropped by stateful operators. `watermark` is None where the query has none, or none yet.
    """

    query_id: str
    run_id: str
    batch_id: int
    at: datetime
    rows: int
    seconds: float
    offsets: int | None = None
    partitions: int | None = None
    lag: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    state_updated: int | None = None
    state_partitions: int | None = None
    state_operators: tuple[str, ...] = ()
    dropped_late: int | None = None
    dropped_duplicates: int | None = None
    rocksdb: bool | None = None
    watermark: datetime | None = None
    cores: int | None = None

    @property
    def done(self) -> datetime:
        """When the micro-batch ended."""
        return self.at + timedelta(seconds=self.seconds)


@dataclass(frozen=True, kw_only=True)
class ProgressWitness:
    """A pipeline's micro-batches in a period, ascending by `at`.

    `offsets` has the sources' offsets of some of them, by index in `batches`: the first, the last, some between.
    """

    location: str
    batches: Sequence[BatchProgress]
    offsets: Mapping[int, SourceOffsets] = field(default_factory=dict)

    @property
    def newest_query(self) -> ProgressWitness:
        """The micro-batches of the newest query alone: a new checkpoint has a new query_id."""
        if not self.batches or all(b.query_id == self.batches[-1].query_id for b in self.batches):
            return self
        last = self.batches[-1].query_id
        places = [i for i, batch in enumerate(self.batches) if batch.query_id == last]
        return ProgressWitness(
            location=self.location,
            batches=[self.batches[i] for i in places],
            offsets={new: self.offsets[i] for new, i in enumerate(places) if i in self.offsets},
        )
