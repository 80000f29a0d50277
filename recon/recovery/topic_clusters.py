"""On which Kafka clusters the topics of a pipeline are, as its ledger knows it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from recon.base.errors import LedgerError
from recon.judge.kafka.clusters import Clusters
from recon.model import KafkaWitness, Unavailable, known
from recon.model.wire.kafka_state import KafkaState, parse_kafka_state
from recon.project import Pipeline
from recon.write.hook.epochs import RECENT
from recon.write.ledger import Ledger


def clusters_of(ledger: Ledger, pipeline: Pipeline, kafka: KafkaWitness | Unavailable | None = None) -> Clusters:
    """The clusters that audits of the sinks and their newest entries saw, and those that Kafka has now."""
    found: dict[str, str] = {}
    for sink in pipeline.sinks:
        proof = ledger.proofs.newest(pipeline.name, sink.name)
        found |= Clusters.seen(_states(ledger, pipeline.name, sink.name), proof).of_topic_id
    witness = known(kafka)
    return Clusters(found).with_described(witness.topics.values() if witness is not None else ())


def _states(ledger: Ledger, pipeline: str, sink: str) -> Sequence[KafkaState]:
    states = []
    for entry in ledger.last(pipeline, sink, RECENT):
        if entry.kafka_state is not None:
            with suppress(LedgerError):  # the entry was edited, which ledger_integrity reports
                states.append(parse_kafka_state(entry.kafka_state))
    return states
