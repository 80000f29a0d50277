"""Follows one source record to every sink of every pipeline that reads its topic, by every witness there is.

The ledger says which micro-batches read the offset; only entries whose bounds in the data files may hold it are
decoded. What became of the record then is read as for a sample (recon.recovery.paths).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from recon._version import __version__
from recon.base.clock import utc_now
from recon.base.errors import ConfigError, LedgerError
from recon.base.text import some
from recon.model import LedgerSlice
from recon.model.sample import Outcome, SampledPath, SampledRecord, SourceRecord
from recon.project import Pipeline, Project, Sink, as_project
from recon.recovery.hops import Hop, Hops
from recon.recovery.paths import Broker, RecordPaths
from recon.spark.catalog import ask_active
from recon.write.ledger import Ledger, open_ledger

_RECENT = 100  # newest entries, among which is one that says how far a partition was read


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One offset of a topic partition, and what became of it.

    `records` has one for each pipeline and each topic id under which the offset was read: two for a topic that was
    deleted and created again, or moved to another cluster. Each has a path to each sink of its pipeline. Behind a
    record that a Delta table has are those of the pipelines that read this table, and so on from table to table.
    """

    topic: str
    partition: int
    offset: int
    project: str
    recon_version: str
    generated_at: datetime
    records: tuple[SampledRecord, ...]

    @property
    def paths(self) -> tuple[SampledPath, ...]:
        """The paths of all records."""
        return tuple(path for sampled in self.records for path in sampled.paths)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**vars(self), "records": [sampled.as_dict() for sampled in self.records]}


def trace(
    project: str | Path | Project,
    record: str,
    *,
    pipeline: str | None = None,
    sink: str | None = None,
    all_rows: bool = False,
) -> Trace:
    """What became of one source record in the sinks of the pipelines that read its topic.

    Starts no Spark, and asks Kafka only where a sink has no row of the record.

    Args:
        project: where recon.yml is, or a `Project`.
        record: `TOPIC/PARTITION/OFFSET`, such as `orders/3/18442`.
        pipeline: only this one; by default all that read the topic.
        sink: only this sink of it.
        all_rows: look at all rows of a Delta table, also where the files of the record's own commits have it: others
            may have added further rows of it.

    Raises:
        ConfigError: `record` is none, no pipeline reads its topic, or there is no such pipeline or sink.
        LedgerError: there is no ledger, or it cannot be read.
    """
    topic, partition, offset = _place(record)
    project = as_project(project)
    ask_active(project)
    if pipeline is not None:
        project.find_sink(pipeline, sink) if sink is not None else project.find_pipeline(pipeline)
    asked = [pipe for pipe in project.pipelines if pipeline in (None, pipe.name)]
    asked = [pipe for pipe in asked if sink is None or any(sink == of_pipeline.name for of_pipeline in pipe.sinks)]
    if not asked:
        raise ConfigError(f"no pipeline of recon.yml has a sink '{sink}'")
    ledger = open_ledger(project)
    if not ledger.exists():
        raise LedgerError(f"there is no ledger at {ledger.location}; nothing was ever recorded, so nothing is traced")
    tracing = _Tracing(project, ledger, sink, all_rows)
    first = [
        of_record
        for pipe in asked
        for of_record in tracing.of_pipeline(pipe, SourceRecord(pipe.name, 0, topic, None, partition, offset))
    ]
    hops = Hops(project, ledger)
    found: list[Hop] = []
    for of_topic, paths in first:
        found.append(Hop(of_topic, "", paths))
        found += hops.after(of_topic, paths) if sink is None else ()
    topics = {name for pipe in asked for name in pipe.source.topics}
    if not found and topics and all(pipe.source.topics for pipe in asked):
        raise ConfigError(
            f"no pipeline reads topic {topic}, nor does the ledger have it; recon.yml has {some(sorted(topics))}"
        )
    return Trace(
        topic=topic,
        partition=partition,
        offset=offset,
        project=project.name,
        recon_version=__version__,
        generated_at=utc_now(),
        records=tuple(
            SampledRecord(number=number, record=of_hop, paths=paths, through=through)
            for number, (of_hop, through, paths) in enumerate(found, 1)
        ),
    )


def _place(record: str) -> tuple[str, int, int]:
    topic, _, rest = str(record).partition("/")
    partition, _, offset = rest.partition("/")
    numbers = (partition, offset)
    if not topic or not all(number.isdecimal() and number.isascii() and len(number) < 20 for number in numbers):
        raise ConfigError(f"'{record[:200]}' names no record; write TOPIC/PARTITION/OFFSET, such as orders/3/18442")
    if int(partition) >= 2**31 or int(offset) >= 2**63 - 1:
        raise ConfigError(f"'{record}' names no record: Kafka has no such partition or offset")
    return topic, int(partition), int(offset)


@dataclass(frozen=True)
class _Tracing:
    """One question to a project; `sink` and `all_rows` are as `trace` was asked."""

    project: Project
    ledger: Ledger
    sink: str | None
    all_rows: bool

    def of_pipeline(
        self, pipe: Pipeline, place: SourceRecord
    ) -> Iterator[tuple[SourceRecord, tuple[SampledPath, ...]]]:
        """The records that a pipeline read at an offset, with their paths."""
        sinks = [sink for sink in pipe.sinks if self.sink in (None, sink.name)]
        readings = {sink.name: self.ledger.readings(pipe.name, sink.name, *place.place) for sink in sinks}
        read = {record for entries in readings.values() for record in _records(entries, place)}
        # A topic's id was not known to every micro-batch: what one read without it, it read of one that is known.
        known = {record.source for record in read if record.topic_id is not None}
        records = sorted(
            (record for record in read if record.topic_id is not None or record.source not in known), key=str
        )
        if not records and place.topic not in pipe.source.topics:
            return  # nothing says that it reads the topic
        records = records or [place]
        broker = Broker(self.project, self.ledger, pipe, records)
        of_sinks = [self._paths(pipe, sink, readings[sink.name], records, broker) for sink in sinks]
        for record in records:
            yield record, tuple(paths[record] for paths in of_sinks)

    def _paths(
        self, pipe: Pipeline, sink: Sink, entries: LedgerSlice, records: Sequence[SourceRecord], broker: Broker
    ) -> Mapping[SourceRecord, SampledPath]:
        without: tuple[Outcome, str] = ("in no micro-batch", "no ledger entry of this sink has the offset")
        if not entries.heads:  # why, takes a look at the newest ones
            without = _without_entry(self.ledger, pipe, sink, records[0])
        return RecordPaths(
            self.project,
            pipe,
            sink,
            self.ledger,
            entries,
            records,
            broker,
            lambda: entries,
            near=not self.all_rows,
            without_entry=without,
        ).paths()


def _records(entries: LedgerSlice, place: SourceRecord) -> Iterator[SourceRecord]:
    """The records at an offset that entries read: one for each source and topic id."""
    for at, head in enumerate(entries.heads):
        for span in entries.ranges.of(at) if head.reads else ():
            of_partition = (span.topic, span.partition) == (place.topic, place.partition)
            if of_partition and span.start_offset <= place.offset < span.end_offset:
                yield place._replace(source=span.source, topic_id=span.topic_id)


def _without_entry(ledger: Ledger, pipe: Pipeline, sink: Sink, place: SourceRecord) -> tuple[Outcome, str]:
    """What is said of an offset that no entry of a sink has."""
    newest = ledger.last(pipe.name, sink.name, _RECENT)
    if not newest:
        return "in no micro-batch", "the ledger has no entry of this sink"
    ends = [
        span.end_offset
        for entry in newest
        for span in entry.offsets
        if (span.topic, span.partition) == (place.topic, place.partition)
    ]
    if not ends:
        return "in no micro-batch", f"no recent entry of this sink read partition {place.partition} of {place.topic}"
    if place.offset >= max(ends):
        return "in no micro-batch", f"no ledger entry has it yet: the newest ones end at offset {max(ends)}"
    return "in no micro-batch", (
        f"no ledger entry of this sink has the offset, though later ones were read (up to {max(ends)}): the stream "
        "began behind it, or left it out, which `recon audit` tells"
    )
