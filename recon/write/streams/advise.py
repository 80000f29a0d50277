"""Recommends settings: gathers the facts of each pipeline, and applies the rules to them. Changes nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from recon.base.clock import utc_now
from recon.base.errors import ReconError
from recon.model import KafkaWitness
from recon.model.progress import ProgressWitness
from recon.project import Pipeline, Project
from recon.write.ledger.progress import PROGRESS, read_progress
from recon.write.ledger.store import open_store
from recon.write.streams.facts import Advice, Facts
from recon.write.streams.rules import RULES

LOOK_BACK = timedelta(days=7)


def advise(
    project: Project,
    pipeline: str | None = None,
    *,
    target: timedelta = timedelta(seconds=10),
    cores: int | None = None,
    now: datetime | None = None,
) -> list[Advice]:
    """The advice of every rule for one pipeline, or for all.

    Args:
        project: a loaded recon.yml.
        pipeline: only this one.
        target: the time that a micro-batch may take.
        cores: that run the query's tasks; by default those of its session, as recorded.
        now: the end of the week whose progress is read.

    Raises:
        ConfigError: the ledger's place is not known.
        LedgerError: the progress cannot be read.
    """
    at = now or utc_now()
    advice: list[Advice] = []
    for pipe in project.pipelines:
        if pipeline in (None, pipe.name):
            progress = read_progress(open_store(project, PROGRESS), pipe.name, at - LOOK_BACK, at).newest_query
            facts = gather(project, pipe, progress, target=target, cores=cores, now=at)
            advice.extend(replace(rule(facts), rule=rule.__name__, pipeline=pipe.name) for rule in RULES)
    return advice


def gather(
    project: Project,
    pipeline: Pipeline,
    progress: ProgressWitness,
    *,
    target: timedelta,
    cores: int | None,
    now: datetime,
) -> Facts:
    """One pipeline's facts; what a broker that does not answer knows stays None."""
    kafka = _kafka(project, pipeline, progress)
    unread_since = (
        []
        if kafka is None
        else [at for topic in kafka.topics.values() for p in topic.partitions.values() if (at := p.waits_since(now))]
    )
    recorded = next((b.cores for b in reversed(progress.batches) if b.cores), None)
    return Facts(
        batches=progress.batches,
        target=target,
        cores=cores or recorded,
        topics=None if kafka is None else kafka.topics,
        unread_for=now - min(unread_since) if unread_since else None,
        kinds=tuple(sink.kind for sink in pipeline.sinks),
    )


def _kafka(project: Project, pipeline: Pipeline, progress: ProgressWitness) -> KafkaWitness | None:
    from recon.witness import kafka

    ends = progress.offsets[max(progress.offsets)].end if progress.offsets else {}
    topics = sorted({*pipeline.source.topics, *(topic for topic, _ in ends)})
    if "bootstrap.servers" not in project.kafka or not topics:
        return None
    try:
        return kafka.read(
            project.kafka, topics, isolation_level=pipeline.source.isolation_level, positions=dict(ends), timeout_s=5
        )
    except ReconError:
        return None
