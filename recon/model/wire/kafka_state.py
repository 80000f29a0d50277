"""What the broker said of the logs that a query reads, as a ledger entry has it: compact JSON, in columns per topic.

`{"asked_at": "2026-11-01T12:00:00+00:00", "after": 7, "topics": {"orders": {"partition": 3, "log_start": 0,
"last_stable": [10, 12, 9], "high_watermark": [10, 12, 9], "leader_epoch": 4}}}`. `"partition": 3` stands for 0, 1, 2;
another number stands for every partition. Most answers have leader epochs alone, which are the same for hours. Every
half minute an answer has offsets, too: a few kilobytes for hundreds of partitions. It then also says on which cluster
which topics are, where the broker gives both ids: `"cluster": {"id": "x1…", "topic_ids": {"orders": "Yq…"}}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from recon.base.errors import LedgerError
from recon.model.wire import values

_INT = {int}


class TopicLogs(NamedTuple):
    """The logs of a topic's partitions in columns, in offsets; a column that was not asked for is None.

    A leader epoch is None where the broker has none.
    """

    partition: Sequence[int]
    leader_epoch: Sequence[int | None]
    log_start: Sequence[int] | None = None
    last_stable: Sequence[int] | None = None
    high_watermark: Sequence[int] | None = None


class Cluster(NamedTuple):
    """The id of a Kafka cluster, and the ids of its topics by name."""

    id: str
    topic_ids: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class KafkaState:
    """An answer of the broker.

    Attributes:
        asked_at: when it was asked, by the driver's clock, UTC.
        after: the sequence of the sink's newest ledger entry at that moment: entries up to it had been read from Kafka
            and confirmed in the sink.
        topics: the logs of each topic.
        cluster: where these topics are; None where it was not asked for, or the broker does not say.
    """

    asked_at: datetime
    after: int
    topics: Mapping[str, TopicLogs]
    cluster: Cluster | None = None


def dump_kafka_state(state: KafkaState) -> str:
    """The canonical text of an answer."""
    topics = {topic: _columns(logs) for topic, logs in sorted(state.topics.items())}
    document: dict[str, Any] = {"asked_at": state.asked_at.isoformat(), "after": state.after, "topics": topics}
    if state.cluster is not None:
        document["cluster"] = {"id": state.cluster.id, "topic_ids": dict(sorted(state.cluster.topic_ids.items()))}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _columns(logs: TopicLogs) -> dict[str, Any]:
    columns: dict[str, Any] = {
        name: column[0] if len(set(column)) == 1 else list(column)
        for name, column in logs._asdict().items()
        if column is not None
    }
    numbers = list(logs.partition)
    columns["partition"] = len(numbers) if numbers == list(range(len(numbers))) else numbers
    return columns


def parse_kafka_state(text: str) -> KafkaState:
    """The answer that a text stands for.

    Raises:
        LedgerError: it is not one that recon writes.
    """
    try:
        document = values.mapping(values.loads(text))
        return KafkaState(
            asked_at=values.instant(document["asked_at"]),
            after=values.whole(document["after"], 0),
            topics={topic: _logs(values.mapping(of)) for topic, of in values.mapping(document["topics"]).items()},
            cluster=_cluster(values.mapping(document["cluster"])) if "cluster" in document else None,
        )
    except (ValueError, TypeError, KeyError) as error:
        raise LedgerError(
            f"an entry of the ledger has a kafka_state that recon does not write ({error}): it was edited; restore the "
            "table from a backup, or move it away and run `recon ledger rebuild`"
        ) from error


def _cluster(fields: Mapping[str, Any]) -> Cluster:
    ids = values.mapping(fields["topic_ids"])
    return Cluster(values.text(fields["id"]), {topic: values.text(topic_id) for topic, topic_id in ids.items()})


def _logs(columns: Mapping[str, Any]) -> TopicLogs:
    numbers = columns["partition"]
    listed = numbers if isinstance(numbers, list) else list(range(values.whole(numbers, 0, 1_000_000)))
    given = {name: _column(columns[name], len(listed)) for name in TopicLogs._fields[1:] if name in columns}
    logs = TopicLogs(listed, **given)
    for name, column in {"partition": listed, **given}.items():
        types = set(map(type, column)) - ({type(None)} if name == "leader_epoch" else set())
        if types - _INT or len(column) != len(listed):
            raise TypeError(f"{name} is not a whole number for each partition")
    return logs


def _column(cells: Any, length: int) -> Sequence[Any]:
    return cells if isinstance(cells, list) else [cells] * length
