"""A topic of the same name on another cluster: its records may be copies, at other offsets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recon.checks.evidence.kafka_end_offsets import KafkaEndOffsets
from recon.checks.evidence.offset_continuity import OffsetContinuity
from recon.judge.kafka.clusters import KafkaClusters, TopicCluster
from recon.model import Code, Verdict
from recon.model.wire.kafka_state import Cluster, KafkaState, TopicLogs, dump_kafka_state
from recon.testing.evidence import NOW, TOPIC, Entry, kafka, ledger, span
from tests.support.messages import same_message
from tests.support.witnesses import after, witnesses


def on(cluster: str, topic_id: str = "id-1", after: int = 0) -> str:
    logs = {TOPIC: TopicLogs([0], [0])}
    return dump_kafka_state(
        KafkaState(asked_at=NOW, after=after, topics=logs, cluster=Cluster(cluster, {TOPIC: topic_id}))
    )


def told(verdict: Verdict) -> list[tuple[str, int | None, int | None]]:
    return sorted((f.code.value, f.start_offset, f.end_offset) for f in verdict.findings if f.code is not Code.INFLIGHT)


def end_offsets(first: Entry, **now: Any) -> Verdict:
    return KafkaEndOffsets().judge(witnesses(ledger(first), kafka=kafka(0, 130, topic_id="id-2", **now)))


def test_the_topic_is_on_another_cluster_now() -> None:
    """What the new cluster has below the position was perhaps read on the old one: it is no gap."""
    verdict = end_offsets(Entry(0, (0, 100), kafka_state=on("A")), cluster_id="B")
    assert told(verdict) == [("RECREATED", None, None)]
    assert "on cluster A and is on cluster B" in verdict.message and "created again" not in verdict.message
    assert same_message(verdict.message)


def test_a_topic_that_was_made_anew_on_its_cluster_or_on_one_that_is_not_known() -> None:
    made_anew = [("GAP", 0, 100), ("RECREATED", None, None)]
    assert told(end_offsets(Entry(0, (0, 100), kafka_state=on("A")), cluster_id="A")) == made_anew
    assert told(end_offsets(Entry(0, (0, 100), kafka_state=on("A")))) == made_anew
    assert told(end_offsets(Entry(0, (0, 100)), cluster_id="B")) == made_anew


def test_what_was_read_on_another_cluster_may_be_copies() -> None:
    moved = ledger(
        Entry(0, (0, 100), kafka_state=on("A")),
        Entry(1, span(30, 60, topic_id="id-2"), kafka_state=on("B", "id-2", after=1)),
    )
    verdict = OffsetContinuity().judge(witnesses(moved))
    assert told(replace(verdict, findings=[f for f in verdict.findings if f.start_offset is None])) == [
        ("INCONCLUSIVE", None, None),
        ("RECREATED", None, None),
    ]
    of_offsets = [f for f in verdict.findings if f.start_offset is not None]
    assert [(f.code.value, f.start_offset, f.end_offset) for f in of_offsets] == [("INCONCLUSIVE", 0, 30)]
    assert "may be copies" in of_offsets[0].message
    assert all(same_message(finding.message) for finding in verdict.findings)


def test_back_on_the_first_cluster() -> None:
    back = ledger(
        Entry(0, (0, 100), kafka_state=on("A")),
        Entry(1, span(0, 60, topic_id="id-2"), kafka_state=on("B", "id-2", after=1)),
        Entry(2, (100, 120)),
    )
    pair = [("INCONCLUSIVE", None, None), ("RECREATED", None, None)]
    assert told(OffsetContinuity().judge(witnesses(back))) == sorted(2 * pair), "nothing was left out on cluster A"


def test_back_on_the_first_cluster_offsets_of_it_that_are_read_again_overlap() -> None:
    back = ledger(
        Entry(0, (0, 100), kafka_state=on("A")),
        Entry(1, span(0, 60, topic_id="id-2"), kafka_state=on("B", "id-2", after=1)),
        Entry(2, (90, 120)),
    )
    verdict = OffsetContinuity().judge(witnesses(back))
    assert [of for of in told(verdict) if of[1] is not None] == [("OVERLAP", 90, 100)]
    moves = [finding.message for finding in verdict.findings if finding.code is Code.RECREATED]
    assert [(" was on cluster A" in message, " was on cluster B" in message) for message in moves] == [
        (True, False),
        (False, True),
    ]


def test_offsets_of_the_first_cluster_are_not_asked_of_the_second() -> None:
    left_out = ledger(Entry(0, (0, 50), kafka_state=on("A")), Entry(1, (60, 100)))
    verdict = OffsetContinuity().judge(witnesses(left_out, kafka=kafka(0, 130, topic_id="id-2", cluster_id="B")))
    assert told(verdict) == [("GAP", 50, 60)]
    assert "is on another cluster (it was on cluster A and is on cluster B)" in verdict.findings[0].message
    assert same_message(verdict.findings[0].message)


def test_an_audit_remembers_the_clusters() -> None:
    seen = witnesses(ledger(Entry(0, (0, 100), kafka_state=on("A"))), kafka=kafka(0, 130, topic_id="id-2"))
    assert after(KafkaClusters, seen) == KafkaClusters(
        topics=(TopicCluster(topic=TOPIC, topic_id="id-1", cluster_id="A"),)
    )
    unknown = witnesses(ledger(Entry(0, (0, 100))), kafka=kafka(0, 130))
    assert after(KafkaClusters, unknown) is None
