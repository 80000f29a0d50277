"""The startingOffsets of a stream that the ledger does not know: those of its checkpoint, which Spark planned.

A micro-batch is finished when `commits/<N>` is there: then the sink's write returned without an error. That its rows
are in the sink, and once, nothing there says.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from recon.base.errors import ConfigError
from recon.base.storage import Storage
from recon.base.text import some
from recon.model import CheckpointBatch, CheckpointWitness
from recon.project import Pipeline, Project
from recon.witness import checkpoint

log = logging.getLogger("recon")

# Where Spark's Kafka source is to begin a partition: at its log start.
_EARLIEST = -2

Offsets = dict[str, dict[str, int]]


def planned_offsets(project: Project, pipeline: Pipeline, ledger: str) -> Offsets:
    """The offsets behind the last micro-batch that Spark finished, by its checkpoint; a warning says what that means.

    Where no micro-batch is finished, the offsets at which the last planned one begins, or, where these are not known,
    at which it ends.

    Args:
        project: a loaded recon.yml.
        pipeline: one of its pipelines.
        ledger: where the ledger is that has nothing of it, for messages.

    Raises:
        ConfigError: there is no checkpoint, it has no offsets of Kafka, or a topic is in several sources.
        EvidenceError: a file of it cannot be understood.
    """
    storage = Storage(project.resolve(pipeline.checkpoint), project.storage_options)
    lacking = f"the ledger at {ledger} holds no offsets for pipeline {pipeline.name}"
    if not storage.names():
        raise ConfigError(
            f"{lacking}, and there is no checkpoint at {storage.uri}; correct `ledger` or `checkpoint` in recon.yml, "
            'or begin with startingOffsets "earliest" or "latest"'
        )
    witness = checkpoint.read(storage, positions=not pipeline.of_kafka)
    finished = next((batch for batch in reversed(witness.batches) if batch.committed), None)
    last = witness.last
    if last is None:
        raise ConfigError(
            f"{lacking}, and checkpoint {storage.uri} no planned micro-batch; begin with startingOffsets "
            '"earliest" or "latest"'
        )
    log.warning("%s: these offsets are what Spark planned, and not what was proved to be in a sink", lacking)
    offsets = (
        _begin(last)
        if finished is None and last.starts_known
        else _end(storage, finished or last, positions=not pipeline.of_kafka)
    )
    _warn(witness, finished, last)
    _require_topics(pipeline, offsets)
    return {topic: partitions for (_, topic), partitions in sorted(offsets.items())}


_Starts = Mapping[tuple[int, str], dict[str, int]]


def _end(storage: Storage, batch: CheckpointBatch, *, positions: bool) -> _Starts:
    ends: dict[tuple[int, str], dict[str, int]] = {}
    for source, topic, partition, end in checkpoint.planned_ends(storage, batch.batch_id, positions=positions):
        ends.setdefault((source, topic), {})[str(partition)] = end
    return ends


def _begin(batch: CheckpointBatch) -> _Starts:
    """Where a micro-batch begins; a partition that is new in it at its log start."""
    begins: dict[tuple[int, str], dict[str, int]] = {}
    known = [(span.source, span.topic, span.partition, span.start_offset) for span in batch.ranges]
    new = [(source, topic, partition, _EARLIEST) for source, topic, partition, _ in batch.new_partitions]
    for source, topic, partition, start in sorted([*known, *new]):
        begins.setdefault((source, topic), {})[str(partition)] = start
    return begins


def _warn(witness: CheckpointWitness, finished: CheckpointBatch | None, last: CheckpointBatch) -> None:
    """Logs what may be double or missing where a query begins at the answer."""
    where = f"checkpoint {witness.location}"
    if witness.flaws:
        log.warning("%s", some([flaw.problem for flaw in witness.flaws], 3))
    if finished is None and not last.starts_known:
        log.warning(
            "%s has no finished micro-batch, nor where micro-batch %d begins: the offsets are those at which it "
            "ends, and what of it did not reach the sink is missing there",
            where,
            last.batch_id,
        )
        return
    behind = [batch for batch in witness.batches if finished is None or batch.batch_id > finished.batch_id]
    if finished is None:
        behind = behind[-1:]
        log.warning(
            "%s has no finished micro-batch: the offsets are those at which micro-batch %d begins", where, last.batch_id
        )
    else:
        log.warning("%s: micro-batch %d is the last finished one", where, finished.batch_id)
    for batch in behind:
        log.warning(
            "%s: micro-batch %d was planned and not finished: where rows of its offsets (%s) are in the sink, they "
            "will be there twice",
            where,
            batch.batch_id,
            some(_named(batch)) or "not known",
        )


def _named(batch: CheckpointBatch) -> Sequence[str]:
    read = [span for span in batch.ranges if span.end_offset != span.start_offset]
    known = [f"{span.topic}-{span.partition} [{span.start_offset}, {span.end_offset})" for span in read]
    return [*known, *(f"{topic}-{partition} up to {end}" for _, topic, partition, end in batch.new_partitions)]


def _require_topics(pipeline: Pipeline, offsets: _Starts) -> None:
    if not offsets:
        raise ConfigError(
            f"the checkpoint of pipeline {pipeline.name} has no offsets of Kafka: its sources are others, and "
            "startingOffsets is an option of Spark's Kafka source alone"
        )
    if len({topic for _, topic in offsets}) < len(offsets):
        raise ConfigError(
            f"pipeline {pipeline.name} reads one topic through several sources; take their ends from the newest file "
            "in `offsets` of its checkpoint, a line for each source, and set startingOffsets per source"
        )
