"""The startingOffsets for a new checkpoint: the offsets at which the ledger ends."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from recon.errors import ConfigError, EvidenceError
from recon.hook.epochs import RECENT, further
from recon.ledger import Ledger, coverage, open_ledger
from recon.ledger.rebuild import missing
from recon.model import LedgerEntry, parse_offsets
from recon.project import Project, Sink, as_project
from recon.sinks import open_sink

log = logging.getLogger("recon")


def starting_offsets(project: str | Path | Project, pipeline: str, sink: str | None = None) -> str:
    """The `startingOffsets` JSON that continues exactly where the ledger ends.

    Commits that a crash left unrecorded count too. With several sinks and none named, all must agree. A topic that was
    deleted and created again since begins at its log start, and the log says so; where no broker answers, topics are
    taken for those in the ledger.

    Raises:
        ConfigError: unknown names, sinks that ended at different offsets, one topic in several sources.
        LedgerError: the ledger cannot be read.
    """
    project = as_project(project)
    pipe = project.find_sink(pipeline, sink)[0] if sink else project.find_pipeline(pipeline)
    ledger = open_ledger(project)
    offsets: dict[str, str] = {}
    for out in pipe.sinks:
        if sink in (None, out.name):
            ends = _ends(project, ledger, pipe.name, out)
            offsets[out.name] = json.dumps(ends, separators=(",", ":"))
    if len(set(offsets.values())) > 1:
        raise ConfigError(
            f"the sinks of pipeline {pipeline} end at different offsets ({', '.join(offsets)}); name one with --sink"
        )
    return next(iter(offsets.values()))


def _ends(project: Project, ledger: Ledger, pipeline: str, sink: Sink) -> dict[str, dict[str, int]]:
    front: LedgerEntry | None = None
    recent = ledger.last(pipeline, sink.name, RECENT)
    for entry in recent:
        front = further(front, entry)
    later = missing(ledger, pipeline, sink.name, recent, open_sink(project, pipeline, sink).log)
    stamps = [commit.stamp for commit in later if commit.stamp.epoch >= 0]
    written = [parse_offsets(stamp.offsets_text) for stamp in stamps]
    last = written[-1] if written else (front.offsets if front else ())
    if front is not None and front.epoch > 0:
        # An epoch that read old offsets again may end before the one before it.
        held = ledger.coverage(pipeline, sink.name)
        for ranges in written:
            held = coverage.plus(held, ranges)
        last = coverage.remainder(held, [span._replace(start_offset=span.end_offset) for span in last])
    if not last:
        raise ConfigError(
            f"the ledger holds no offsets for pipeline {pipeline}, sink {sink.name}; begin with "
            'startingOffsets "earliest" or "latest"'
        )
    if len({(span.topic, span.source) for span in last}) > len({span.topic for span in last}):
        raise ConfigError(
            f"pipeline {pipeline} reads one topic through several sources; take their ends from "
            f"`recon ledger show --pipeline {pipeline} --output json` and set startingOffsets per source"
        )
    ends: dict[str, dict[str, int]] = {}
    for span in sorted(last):
        partitions = ends.setdefault(span.topic, {})
        partitions[str(span.partition)] = max(partitions.get(str(span.partition), 0), span.end_offset)
    ids = {span.topic: span.topic_id for span in last if span.topic_id is not None}
    return {**ends, **_begun_again(project, pipeline, ids)}


def _begun_again(project: Project, pipeline: str, ids: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """The log starts of topics that have another id in Kafka than in the ledger: none of it was read."""
    if not ids or "bootstrap.servers" not in project.kafka:
        return {}
    from recon.evidence import kafka

    isolation = project.find_pipeline(pipeline).source.isolation_level
    try:
        witness = kafka.read(project.kafka, sorted(ids), isolation_level=isolation)
    except EvidenceError as error:
        log.warning("whether the topics are those in the ledger is not known: %s", error)
        return {}
    begun: dict[str, dict[str, int]] = {}
    for name, topic in witness.topics.items():
        if topic.topic_id is not None and topic.topic_id != ids[name]:
            log.warning(
                "topic %s was deleted and created again (its id was %s and is %s): it begins at its log start; what "
                "the old one held beyond the ledger's end is gone",
                name,
                ids[name],
                topic.topic_id,
            )
            begun[name] = {str(number): partition.log_start for number, partition in sorted(topic.partitions.items())}
    return begun
