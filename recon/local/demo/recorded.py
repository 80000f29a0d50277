"""The witnesses of a recording: Kafka as it was, and rows that are read without Spark.

`record` asks a real broker, once, when the recording is made. `RecordedSources` answers an audit from that: every
question that an audit puts to Kafka has its answer there, whatever offsets it asks for. Checkpoints, Delta logs, data
files and the ledger of a recording are files as always, and are read as always.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from recon.audits.sources import Sources
from recon.base.storage import arrow_filesystem
from recon.model import (
    KafkaPartition,
    KafkaTopic,
    KafkaWitness,
    ProbeAnswer,
    RowSearch,
    RowsWitness,
    Unavailable,
)
from recon.model.evidence import Answers, Questions
from recon.model.offsets import Span, Spans
from recon.model.wire.columns import BATCH_ID, SOURCE_COLUMNS
from recon.project import Sink
from recon.witness.sink_rows import group_of

KAFKA = "kafka.json"  # in the recording's folder
_NUMBERS = ("log_start", "high_watermark", "last_stable", "leader_epoch")


def record(conf: Mapping[str, str], topics: Sequence[str]) -> str:
    """The topics of a running broker, and which of their offsets have a record, as JSON.

    Raises:
        EvidenceError: the broker does not answer.
    """
    from recon.witness import kafka, kafka_probe

    seen = kafka.read(conf, topics, isolation_level="read_committed")
    everything = {
        (name, number): Spans.of([Span(at.log_start, at.high_watermark)])
        for name, topic in seen.topics.items()
        for number, at in topic.partitions.items()
    }
    records = kafka_probe.probe(conf, everything)
    recorded: dict[str, Any] = {}
    for name, topic in seen.topics.items():
        recorded[name] = {
            "topic_id": topic.topic_id,
            "cleanup_policy": topic.cleanup_policy,
            "retention_ms": topic.retention_ms,
            "partitions": {
                str(number): {
                    **{key: getattr(at, key) for key in _NUMBERS},
                    "uncommitted": [list(span) for span in records[name, number].uncommitted],
                    "committed": [list(span) for span in records[name, number].committed],
                }
                for number, at in topic.partitions.items()
            },
        }
    return json.dumps({"read_at": seen.read_at.isoformat(), "topics": recorded}) + "\n"


class RecordedSources(Sources):
    """The sources of a pipeline of a recording; opens no connection and starts no JVM."""

    def kafka(
        self,
        topics: Sequence[str],
        positions: Mapping[tuple[str, int], int],
        epochs: Mapping[tuple[str, int], Collection[tuple[int, int]]],
    ) -> KafkaWitness:
        """The topics as Kafka described them when the streams had ended, and everything was read."""
        recorded = self._recorded()
        isolation = self.pipeline.source.isolation_level
        return KafkaWitness(
            bootstrap_servers=KAFKA,
            isolation_level=isolation,
            read_at=datetime.fromisoformat(recorded["read_at"]),
            topics={name: _topic(name, recorded["topics"].get(name), isolation) for name in topics},
        )

    def probe(self, questions: Questions) -> Answers:
        """Which of the offsets in question two readers received."""
        topics = self._recorded()["topics"]
        return {key: _probed(key, topics[key[0]]["partitions"][str(key[1])], asked) for key, asked in questions.items()}

    def rows(
        self,
        sink: Sink,
        first_batch: int | None,
        search: RowSearch,
        *,
        version: int | None,
        lacking: bool,
        within: Mapping[tuple[str, int], Span] | None = None,
    ) -> RowsWitness | Unavailable:
        """All rows of a Delta table, read by delta-rs; a recording has a few hundred."""
        from deltalake import DeltaTable

        location = self.project.location(sink)
        filesystem = arrow_filesystem(location)
        table = DeltaTable(location, version=version).to_pyarrow_table(
            columns=[BATCH_ID, *SOURCE_COLUMNS], filesystem=filesystem
        )
        offsets: dict[tuple[int, str, int], list[int]] = defaultdict(list)
        for batch_id, topic, partition, offset in zip(*(column.to_pylist() for column in table.columns), strict=True):
            offsets[batch_id, topic, partition].append(offset)
        return RowsWitness(
            location=location,
            version=version,
            rows=table.num_rows,
            unstamped_rows=0,
            has_source_columns=True,
            groups=[group_of(*of, held) for of, held in sorted(offsets.items())],
        )

    def _recorded(self) -> Any:
        return json.loads(Path(self.project.resolve(KAFKA)).read_text(encoding="utf-8"))


def _topic(name: str, recorded: Mapping[str, Any] | None, isolation_level: str) -> KafkaTopic:
    if recorded is None:
        return KafkaTopic(topic=name, exists=False)
    end = "last_stable" if isolation_level == "read_committed" else "high_watermark"
    return KafkaTopic(
        topic=name,
        exists=True,
        topic_id=recorded["topic_id"],
        cleanup_policy=recorded["cleanup_policy"],
        retention_ms=recorded["retention_ms"],
        partitions={
            int(number): KafkaPartition(partition=int(number), log_end=at[end], **{key: at[key] for key in _NUMBERS})
            for number, at in recorded["partitions"].items()
        },
    )


def _probed(key: tuple[str, int], at: Mapping[str, Any], asked: Spans) -> ProbeAnswer:
    topic, partition = key
    uncommitted, committed = (
        Spans.of(Span(start, end) for start, end in at[reader]).intersect(asked)
        for reader in ("uncommitted", "committed")
    )
    return ProbeAnswer(
        topic=topic,
        partition=partition,
        requested=asked,
        uncommitted=uncommitted,
        committed=committed,
        log_start=at["log_start"],
        last_stable=at["last_stable"],
    )
