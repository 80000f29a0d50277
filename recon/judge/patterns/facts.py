"""What an audit knows of the micro-batches that findings are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from recon.base.lazy import np
from recon.model import CheckpointWitness, KafkaWitness, LedgerSlice, RangeTable, TableLog, Witnesses, known
from recon.model.grouping import grouped
from recon.model.offsets import Span, Spans
from recon.model.positions import is_kafka

Place = tuple[str, int]  # a topic and its partition
Number = tuple[int, int]  # an epoch and the batch_id of a micro-batch


class MicroBatch(NamedTuple):
    """What a micro-batch read of each topic partition, the ledger's entry of it in `version` of a table."""

    number: Number
    read: Mapping[Place, Span]
    version: int | None = None

    @property
    def size(self) -> int:
        """How many offsets it read."""
        return sum(span.size for span in self.read.values())


class Epoch(NamedTuple):
    """The entries of an epoch in the audited part of the ledger: its query, its first micro-batch, when it wrote."""

    query_id: str
    first: int
    began: datetime
    ended: datetime


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a sink; where nothing is known of a part, the mappings lack it.

    `by_number` is whether a function gives Delta the number of a micro-batch, so that Delta drops a second write.
    `new_query` is the query_id of a checkpoint of which the ledger has no entry; "" for none.
    """

    pipeline: str
    sink: str | None
    writer: Literal["hook", "native", "function"]
    by_number: bool = False
    checkpoint: str = ""
    new_query: str = ""
    servers: str = ""
    ledger: LedgerSlice | None = None
    epochs: Mapping[int, Epoch]
    log_starts: Mapping[Place, int]
    rows_added: Mapping[int, int]
    _by_place: dict[Place, RangeTable] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, witnesses: Witnesses, sink: str | None) -> Facts:
        """What an audit read of a sink."""
        ledger = (known(witnesses.ledgers) or {}).get(sink or "")
        kafka, checkpoint = known(witnesses.kafka), known(witnesses.checkpoint)
        return cls(
            pipeline=witnesses.pipeline,
            sink=sink,
            writer="function" if witnesses.own_function else "native" if witnesses.observed else "hook",
            by_number=witnesses.own_function and not witnesses.placed_by_rows,
            checkpoint=_location(checkpoint),
            new_query=_new_query(checkpoint, ledger),
            servers=kafka.bootstrap_servers if kafka is not None else "",
            ledger=ledger,
            epochs=_epochs(ledger) if ledger is not None else {},
            log_starts=_log_starts(kafka),
            rows_added=_rows_added((known(witnesses.delta) or {}).get(sink or "")),
        )

    def readers(self, offsets: Mapping[Place, Spans]) -> Sequence[MicroBatch]:
        """The micro-batches of the audited part that read one of these offsets; none where the ledger was not read."""
        if self.ledger is None:
            return ()
        found: set[int] = set()
        for place, spans in offsets.items():
            hull, here = spans.hull or Span(0, 0), self._ranges_of(self.ledger, place)
            found.update(here.entry[(here.start < hull.end) & (here.end > hull.start)].tolist())
        batches = (self._micro_batch(entry) for entry in sorted(found))
        return [batch for batch in batches if batch is not None and _meets(batch, offsets)]

    def _ranges_of(self, ledger: LedgerSlice, place: Place) -> RangeTable:
        """The ranges of a topic partition; thousands of findings ask for those of few."""
        if place not in self._by_place:
            topic, partition = place
            named = [at for at, (_, name, _) in enumerate(ledger.ranges.topics) if name == topic]
            here = np.isin(ledger.ranges.topic, named) & (ledger.ranges.partition == partition)
            self._by_place[place] = ledger.ranges.take(here)
        return self._by_place[place]

    def begins(self, epoch: int, place: Place) -> int | None:
        """Where an epoch began to read a topic partition; None where its beginning is not in the audited part."""
        if self.ledger is None or epoch not in self.epochs:
            return None
        here, heads = self._ranges_of(self.ledger, place), self.ledger.heads
        read = zip(here.entry.tolist(), here.start.tolist(), strict=True)
        return next((start for entry, start in read if heads[entry].epoch == epoch), None)

    def _micro_batch(self, entry: int) -> MicroBatch | None:
        assert self.ledger is not None
        head, ranges = self.ledger.heads[entry], self.ledger.ranges.of(entry)
        if not head.is_micro_batch or any(not is_kafka(r.topic) for r in ranges):
            return None
        read = grouped(((r.topic, r.partition), r.span) for r in ranges if r.span.size > 0)
        if any(len(spans) > 1 for spans in read.values()):
            return None  # two sources of one query read the same topic
        return MicroBatch((head.epoch, head.batch_id), {at: spans[0] for at, spans in read.items()}, head.sink_version)


def _meets(batch: MicroBatch, offsets: Mapping[Place, Spans]) -> bool:
    return any(Spans((span,)).intersect(offsets[place]) for place, span in batch.read.items() if place in offsets)


def _location(checkpoint: CheckpointWitness | None) -> str:
    return checkpoint.location if checkpoint is not None else ""


def _new_query(checkpoint: CheckpointWitness | None, ledger: LedgerSlice | None) -> str:
    queries = {head.query_id for head in (ledger.heads if ledger is not None else ())}
    is_new = checkpoint is not None and queries and checkpoint.query_id not in queries
    return checkpoint.query_id if checkpoint is not None and is_new else ""


def _log_starts(kafka: KafkaWitness | None) -> Mapping[Place, int]:
    return {
        (name, partition.partition): partition.log_start
        for name, topic in (kafka.topics.items() if kafka is not None else ())
        for partition in topic.partitions.values()
    }


def _rows_added(log: TableLog | None) -> Mapping[int, int]:
    added = {version: commit.rows_added for version, commit in (log.commits.items() if log is not None else ())}
    return {version: rows for version, rows in added.items() if rows is not None}


def _epochs(ledger: LedgerSlice) -> Mapping[int, Epoch]:
    """The epochs whose first micro-batch is in the slice."""
    found: dict[int, Epoch] = {}
    for at, head in enumerate(ledger.heads):
        if not head.is_micro_batch:
            continue
        epoch = found.get(head.epoch)
        if epoch is not None:
            found[head.epoch] = epoch._replace(ended=max(epoch.ended, head.committed_at))
        elif at > max(ledger.anchors - 1, 0) or ledger.complete or head.batch_id == 0:
            found[head.epoch] = Epoch(head.query_id, head.batch_id, head.committed_at, head.committed_at)
    return found
