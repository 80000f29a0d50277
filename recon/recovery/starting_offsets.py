"""The startingOffsets for a new checkpoint: where the ledger ends, or the checkpoint where it has nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from recon.base.errors import ConfigError, EvidenceError
from recon.base.text import some
from recon.judge.history.table_history import TableHistory
from recon.judge.kafka.clusters import Clusters, Move
from recon.model import REPAIRS, KafkaWitness, LedgerEntry, SinkCommit, parse_offsets
from recon.model.delta_offsets import position_of
from recon.model.offsets import OffsetSpan, Spans
from recon.model.positions import is_kafka
from recon.project import Pipeline, Project, Sink, as_project
from recon.recovery.planned_offsets import Offsets, planned_offsets
from recon.recovery.topic_clusters import clusters_of
from recon.spark.catalog import ask_active
from recon.write.hook.epochs import RECENT
from recon.write.ledger import Ledger, coverage, open_ledger
from recon.write.ledger.rebuild import missing
from recon.write.sinks import BatchSink, open_sink

log = logging.getLogger("recon")


def starting_offsets(project: str | Path | Project, pipeline: str, sink: str | None = None) -> str:
    """The `startingOffsets` JSON that continues exactly where the ledger ends; of a Delta table, its `startingVersion`.

    Commits that a crash left unrecorded count too. Those that a RESTORE undid count as well, and the log says so, as it
    does where the table is another one. With several sinks and none named, all must agree. A topic that was deleted and
    created again since begins at its log start, and the log says so. Where no broker answers, topics are taken to be
    those in the ledger.

    Where neither the ledger nor a sink's own record has anything of the pipeline, the offsets are those at which its
    checkpoint ends. The log then says that Spark planned them and nothing is proved.

    Raises:
        ConfigError: unknown names; sinks that ended at different offsets; one topic in several sources; a Delta table
            with a version that was read in part; a folder of files; neither a ledger nor a checkpoint.
        EvidenceError: a sink's record or the checkpoint cannot be read; a topic is on another cluster now.
        LedgerError: the ledger cannot be read.
    """
    project = as_project(project)
    ask_active(project)
    pipe = project.find_sink(pipeline, sink)[0] if sink else project.find_pipeline(pipeline)
    ledger = open_ledger(project)
    ends = {out.name: _ends(project, ledger, pipe.name, out) for out in pipe.sinks if sink in (None, out.name)}
    if not any(ends.values()) and not any(ledger.last(pipe.name, out.name, 1) for out in pipe.sinks):
        return _dumped(pipe, planned_offsets(project, pipe, ledger.location))
    for name, of_sink in ends.items():
        if not of_sink:
            begin = 'with startingOffsets "earliest" or "latest"' if pipe.of_kafka else "with the table as a whole"
            raise ConfigError(f"the ledger holds no offsets for pipeline {pipeline}, sink {name}; begin {begin}")
    offsets = {name: _dumped(pipe, of_sink) for name, of_sink in ends.items()}
    if len(set(offsets.values())) > 1:
        raise ConfigError(
            f"the sinks of pipeline {pipeline} end at different offsets ({', '.join(offsets)}); name one with --sink"
        )
    return next(iter(offsets.values()))


def _dumped(pipeline: Pipeline, offsets: Offsets) -> str:
    """The answer as the option of Spark's source that it is for."""
    if pipeline.of_kafka:
        return json.dumps(offsets, separators=(",", ":"))
    if pipeline.source.files is not None:
        raise ConfigError(
            f"pipeline {pipeline.name} reads {pipeline.source.named}, and no option of Spark's begins at a position: "
            "let the query go on with its checkpoint; with a fresh one it reads every file that is in the folder"
        )
    ends = [end for partitions in offsets.values() for end in partitions.values()]
    if max(ends) < 0:
        raise ConfigError(
            f"pipeline {pipeline.name} has finished no micro-batch: begin as the query did, with no option"
        )
    position = position_of(max(ends))
    if position.files or position.in_snapshot:
        raise ConfigError(
            f"pipeline {pipeline.name} has read version {position.version} of {pipeline.source.delta} in part "
            f"({position.files:,} of its files), and no option of Spark's begins there: let the query go on with its "
            "checkpoint until it has read the version"
        )
    return json.dumps({"startingVersion": position.version}, separators=(",", ":"))


def _ends(project: Project, ledger: Ledger, pipeline: str, sink: Sink) -> Offsets:
    """Where the ledger and the sink's own record end; empty where they have nothing."""
    recent = ledger.last(pipeline, sink.name, RECENT)
    writer = open_sink(project, pipeline, sink)
    replaced = writer.replaced(recent[-1]) if recent else ""
    if replaced:
        log.warning("sink %s: %s; audit, then read what is gone again with `recon repair`", sink.name, replaced)
    # The commits of a table that was made anew have numbers from 0 on.
    read_log = (lambda **_: writer.log()) if replaced else writer.log
    later = missing(ledger, pipeline, sink.name, recent, read_log)
    _warn_of_undone(sink, writer, recent, later)
    last = ledgers_end(ledger, pipeline, sink.name, later)
    if not last:
        return {}
    if len({(span.topic, span.source) for span in last}) > len({span.topic for span in last}):
        raise ConfigError(
            f"pipeline {pipeline} reads one topic through several sources; take their ends from "
            f"`recon ledger show --pipeline {pipeline} --output json` and set startingOffsets per source"
        )
    clusters = clusters_of(ledger, project.find_pipeline(pipeline))
    kafka = _kafka(project, pipeline, last)
    return ends_in_kafka(last, kafka, clusters, lambda: ledger.coverage(pipeline, sink.name))


def ledgers_end(ledger: Ledger, pipeline: str, sink: str, later: Sequence[SinkCommit]) -> Sequence[OffsetSpan]:
    """Where the ledger ends; `later` are commits of the sink that have no entry. Empty where nothing was read."""
    recent = ledger.last(pipeline, sink, RECENT)
    read = [_Reading(entry.epoch, entry.batch_id, entry.offsets) for entry in recent if entry.reads]
    # A commit whose entry a crash left out is read, too: the next start restores the entry.
    unrecorded = [
        _Reading(stamp.epoch, stamp.batch_id, parse_offsets(stamp.offsets_text))
        for stamp in (commit.stamp for commit in later)
        if stamp.epoch >= 0 or stamp.epoch == REPAIRS
    ]
    read += unrecorded
    front = max(
        (reading for reading in read if reading.epoch >= 0),
        key=lambda reading: (reading.epoch, reading.batch_id),
        default=None,
    )
    last = front.offsets if front is not None else ()
    if front is not None and (front.epoch > 0 or any(reading.epoch != front.epoch for reading in read)):
        # An epoch that read old offsets again may end before the one before it, and a repair behind both.
        held = ledger.coverage(pipeline, sink)
        for reading in unrecorded:
            held = coverage.plus(held, reading.offsets)
        last = coverage.remainder(held, [span._replace(start_offset=span.end_offset) for span in last])
    return last


def by_topic(spans: Iterable[OffsetSpan]) -> Offsets:
    """The ends of ranges, as the option `startingOffsets` has them."""
    ends: dict[str, dict[str, int]] = {}
    for span in sorted(spans):
        partitions = ends.setdefault(span.topic, {})
        partitions[str(span.partition)] = max(partitions.get(str(span.partition), 0), span.end_offset)
    return ends


class _Reading(NamedTuple):
    """Offsets that a micro-batch or a repair read."""

    epoch: int
    batch_id: int
    offsets: Sequence[OffsetSpan]


def _warn_of_undone(sink: Sink, writer: BatchSink, recent: Sequence[LedgerEntry], later: Sequence[SinkCommit]) -> None:
    """Logs which of the newest commits a RESTORE undid: they count as read, and their rows are gone."""
    versions = {commit.version for commit in later} | {entry.sink_version for entry in recent[-1:]}
    numbers = sorted(version for version in versions if version is not None)
    if not sink.has_history or not numbers:
        return
    history = TableHistory(writer.history(numbers[0], files=False))
    undone = [version for version in numbers if history.is_undone(version)]
    if undone:
        log.warning(
            "sink %s: a RESTORE or a rollback undid version %s, whose offsets count as read: audit, then read them "
            "again with `recon repair`",
            sink.name,
            some(undone),
        )


def _kafka(project: Project, pipeline: str, last: Iterable[OffsetSpan]) -> KafkaWitness | None:
    """The topics of the ledger's end as Kafka describes them now; None where no broker answers."""
    topics = {span.topic for span in last if span.topic_id is not None and is_kafka(span.topic)}
    if not topics or "bootstrap.servers" not in project.kafka:
        return None
    from recon.witness import kafka

    isolation = project.find_pipeline(pipeline).source.isolation_level
    try:
        return kafka.read(project.kafka, sorted(topics), isolation_level=isolation)
    except EvidenceError as error:
        log.warning("whether the topics are those in the ledger is not known: %s", error)
        return None


def ends_in_kafka(
    last: Sequence[OffsetSpan],
    kafka: KafkaWitness | None,
    clusters: Clusters,
    covered: Callable[[], Mapping[coverage.Key, Spans]],
) -> Offsets:
    """Where a query begins that goes on behind the ledger's end: every partition, as Spark wants all of them named.

    A topic that has another id in Kafka than in the ledger begins at its log starts: none of it was read. So does a
    partition that the ledger does not know.

    Args:
        last: the ledger's end.
        kafka: its topics, as Kafka describes them; None where no broker answers.
        clusters: those of the topics.
        covered: gives all that the ledger covers, for partitions that its newest micro-batch did not read.

    Raises:
        EvidenceError: a topic is on another cluster, where records may be copies of those that were read.
    """
    ends = by_topic(last)
    if kafka is None:
        return ends
    ids = {span.topic: span.topic_id for span in last if span.topic_id is not None}
    clusters = clusters.with_described(kafka.topics.values())
    for name, topic in kafka.topics.items():
        read, starts = ids.get(name), {number: of.log_start for number, of in sorted(topic.partitions.items())}
        _require_same_cluster(name, clusters.move(read, topic.topic_id))
        if read is None or topic.topic_id is None:
            continue
        if topic.topic_id != read:
            log.warning(
                "topic %s was deleted and created again (its id was %s and is %s): it begins at its log start; what "
                "the old one held beyond the ledger's end is gone",
                name,
                read,
                topic.topic_id,
            )
            ends[name] = {}
        for number in sorted(starts.keys() - {int(known) for known in ends[name]}):
            before = covered().get((name, read, number), Spans()) if topic.topic_id == read else Spans()
            ends[name][str(number)] = before.ranges[-1].end if before else starts[number]
    return ends


def _require_same_cluster(topic: str, move: Move | None) -> None:
    if move is not None:
        raise EvidenceError(
            f"topic {topic} is on another cluster than the one that was read: {move}; its offsets do not say which "
            "records were read, so that there are no startingOffsets for it: choose the start by "
            "timestamp (startingOffsetsByTimestamp), and compare both clusters by key"
        )
