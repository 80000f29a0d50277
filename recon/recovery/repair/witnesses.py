"""What a repair plans from: the open findings, the whole ledger, and Kafka as it is now. Reads only, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from recon.base.errors import ConfigError, EvidenceError
from recon.base.storage import Storage
from recon.model import KafkaWitness, LedgerSlice
from recon.model.proof import OpenFinding, with_id
from recon.project import Pipeline, Project, Sink, as_project
from recon.project.sinks.repairs import READ_ONCE_MORE, RepairAbility
from recon.recovery.repair.plan import RepairPlan, planned
from recon.recovery.topic_clusters import clusters_of
from recon.witness import checkpoint
from recon.write.hook.routing import routes_to
from recon.write.ledger import Ledger, open_ledger
from recon.write.sinks.repair import open_repair


def repair_plans(
    project: str | Path | Project,
    pipeline: str | None = None,
    sink: str | None = None,
    *,
    finding: str | None = None,
) -> list[RepairPlan]:
    """What `repair` would do about the open findings: what Kafka still has, what is gone, what is doubled.

    Reads the ledger, the proof, the checkpoint and Kafka; starts no JVM and changes nothing. Which of the missing
    offsets have a row meanwhile, `repair` looks up.

    Args:
        project: where recon.yml is, or a `Project`.
        pipeline: only this pipeline.
        sink: only this sink.
        finding: only the finding with this id, or at least its first four characters.

    Returns:
        A plan for each sink with open findings.

    Raises:
        ConfigError: recon.yml names no broker, or there is no such pipeline, sink or open finding.
        EvidenceError: Kafka cannot be reached.
        LedgerError: the ledger or the proof cannot be read.
    """
    project = as_project(project)
    require_broker(project)
    ledger = open_ledger(project)
    chosen = [(pipe, out) for pipe, out in _sinks(project, pipeline, sink)]
    known = {(pipe.name, out.name): open_findings(ledger, pipe, out) for pipe, out in chosen}
    if finding is not None:
        ids = {opened.id for opened in with_id([opened for of_sink in known.values() for opened in of_sink], finding)}
        known = {where: [opened for opened in of_sink if opened.id in ids] for where, of_sink in known.items()}
    waiting = {where: [opened for opened in of_sink if opened.accepted is None] for where, of_sink in known.items()}
    return [
        plan_of(project, ledger, pipe, out, waiting[pipe.name, out.name])
        for pipe, out in chosen
        if waiting[pipe.name, out.name]
    ]


def plan_of(
    project: Project, ledger: Ledger, pipeline: Pipeline, sink: Sink, findings: Sequence[OpenFinding]
) -> RepairPlan:
    """The plan for one sink, from its ledger and Kafka as they are now."""
    state = ledger.proofs.newest(pipeline.name, sink.name)
    entries = ledger.slice(pipeline.name, sink.name)
    kafka = _kafka(project, pipeline, entries, findings)
    position = state.position if state is not None else 0
    can = ability_of(project, pipeline, sink)
    if routes_to(pipeline, sink) is not None:
        can = replace(can, reads=f"{can.reads}; rows of other routes among them are left out")
    return planned(entries, position, findings, kafka, able=can, clusters=clusters_of(ledger, pipeline, kafka))


def open_findings(ledger: Ledger, pipeline: Pipeline, sink: Sink) -> list[OpenFinding]:
    """What is open of a sink; its state has findings of checks that look at all sinks of the pipeline, too."""
    state = ledger.proofs.newest(pipeline.name, sink.name)
    known = state.open if state is not None else ()
    return [opened for opened in known if opened.finding.sink in (None, sink.name)]


def require_broker(project: Project) -> None:
    """Raises ConfigError where recon.yml names no broker."""
    if "bootstrap.servers" not in project.kafka:
        raise ConfigError(
            "recon.yml has no `kafka: {bootstrap.servers: …}`, and a repair reads missing offsets again from Kafka: "
            "add it, with the broker's security settings"
        )


def ability_of(project: Project, pipeline: Pipeline, sink: Sink) -> RepairAbility:
    """What a repair can do for a sink as it is now."""
    of_kind, name = sink.repair_ability, f"pipeline {pipeline.name}, sink {sink.name}"
    if sink.observed:
        refused = f"{name} is written without recon (write: {pipeline.write}), which only observes it"
        return replace(of_kind, refused=refused, by_hand=_with_own_query("the ranges"))
    if not pipeline.of_kafka:
        refused = f"{name} reads {pipeline.source.named}, and a repair reads Kafka's records again"
        return replace(of_kind, refused=refused, by_hand=_with_own_query("what the finding names"))
    if of_kind.refused:
        return replace(of_kind, refused=f"{name} is of kind {sink.kind}: {of_kind.refused}")
    if not sink.stamp_source_offsets:
        refused = (
            f"{name} has stamp_source_offsets: false, so which offsets have a row is not known, and a repair could "
            "double rows"
        )
        return replace(of_kind, refused=refused, by_hand=READ_ONCE_MORE)
    return replace(of_kind, refused=_of_now(project, pipeline, sink, name))


def _with_own_query(what: str) -> str:
    return f"read {what} once more with a query of your own, then accept the finding"


def _of_now(project: Project, pipeline: Pipeline, sink: Sink, name: str) -> str:
    """Why the query's state, or what the sink is now, forbids a repair; "" where they do not."""
    try:
        stateful = checkpoint.read(Storage(project.resolve(pipeline.checkpoint), project.storage_options)).stateful
    except EvidenceError as error:
        return f"whether the query of {name} keeps state is not known ({error}), and then a repair could double rows"
    if stateful:
        return (
            f"the query of {name} keeps state (deduplication, a join, an aggregate), and a repair reads offsets "
            "without it: correct the rows by hand, then accept the finding"
        )
    why = open_repair(project, pipeline.name, sink).unfit()
    return f"{name} is of kind {sink.kind}, and {why}" if why else ""


def _sinks(project: Project, pipeline: str | None, sink: str | None) -> Iterator[tuple[Pipeline, Sink]]:
    for pipe in project.pipelines:
        for out in pipe.sinks:
            if pipeline in (None, pipe.name) and sink in (None, out.name):
                yield pipe, out


def _kafka(project: Project, pipeline: Pipeline, entries: LedgerSlice, findings: Sequence[OpenFinding]) -> KafkaWitness:
    from recon.witness import kafka

    topics = {name for _, name, _ in entries.ranges.topics}
    topics |= {opened.finding.topic for opened in findings if opened.finding.topic is not None}
    return kafka.read(project.kafka, sorted(topics), isolation_level=pipeline.source.isolation_level)
