"""What the broker said of logs, as the text that an entry has."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from recon.base.errors import LedgerError
from recon.model.wire.kafka_state import Cluster, KafkaState, TopicLogs, dump_kafka_state, parse_kafka_state

AT = datetime(2026, 11, 22, 12, 0, 0, 5, tzinfo=UTC)


def state(**topics: TopicLogs) -> KafkaState:
    return KafkaState(asked_at=AT, after=7, topics=topics)


@pytest.mark.parametrize(
    "logs",
    [
        TopicLogs([0, 1, 2], [4, 4, 4], [0, 0, 5], [10, 12, 9], [10, 13, 9]),
        TopicLogs([1, 4], [None, None], [0, 0], [0, 0], [0, 0]),
        TopicLogs([0, 1], [None, 3]),
        TopicLogs([0], [2]),
    ],
    ids=["offsets", "some partitions", "leader epochs alone", "one partition"],
)
def test_an_answer_is_read_as_it_was_written(logs: TopicLogs) -> None:
    answer = state(orders=logs, returns=TopicLogs([0], [1]))
    assert parse_kafka_state(dump_kafka_state(answer)) == answer


def test_the_cluster_of_topics_is_written_where_it_is_known() -> None:
    answer = state(orders=TopicLogs([0], [1]))
    assert "cluster" not in dump_kafka_state(answer), "as earlier versions wrote it"
    on_cluster = replace(answer, cluster=Cluster("cluster-1", {"returns": "id-2", "orders": "id-1"}))
    assert parse_kafka_state(dump_kafka_state(on_cluster)) == on_cluster


def test_what_is_the_same_for_all_partitions_is_one_number() -> None:
    many = TopicLogs(list(range(400)), [3] * 400)
    text = dump_kafka_state(state(orders=many))
    assert json.loads(text)["topics"] == {"orders": {"partition": 400, "leader_epoch": 3}}
    assert parse_kafka_state(text).topics["orders"] == many


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"asked_at":"2026-11-22T12:00:00+00:00","after":-1,"topics":{}}',
        '{"asked_at":"2026-11-22T12:00:00","after":1,"topics":{}}',
        '{"asked_at":"2026-11-22T12:00:00+00:00","after":1,"topics":{"t":{"leader_epoch":1}}}',
        '{"asked_at":"2026-11-22T12:00:00+00:00","after":1,"topics":{"t":{"partition":1}}}',
        '{"asked_at":"2026-11-22T12:00:00+00:00","after":1,"topics":{"t":{"partition":2,"leader_epoch":[1]}}}',
        '{"asked_at":"2026-11-22T12:00:00+00:00","after":1,"topics":{"t":{"partition":1,"leader_epoch":"1"}}}',
        '{"asked_at":"2026-11-22T12:00:00+00:00","after":1,"topics":'
        '{"t":{"partition":1,"leader_epoch":1,"log_start":null}}}',
        '{"asked_at":"2026-11-22T12:00:00+00:00","after":1,"topics":{},"cluster":{"id":7,"topic_ids":{}}}',
        '{"asked_at":"2026-11-22T12:00:00+00:00","after":1,"topics":{},"cluster":null}',
    ],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(LedgerError, match="kafka_state"):
        parse_kafka_state(text)
