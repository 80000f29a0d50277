"""offset_continuity: whether Kafka's logs are those that were read (cases 62 and 63)."""

from __future__ import annotations

import pytest

from recon.checks.evidence.offset_continuity import OffsetContinuity
from recon.judge.kafka.kafka_states import leaders_seen
from recon.model import Code, KafkaWitness, LedgerSlice, Unavailable, Verdict
from recon.model.proof import Proofs, SinkProof
from recon.model.wire.kafka_state import KafkaState, TopicLogs, dump_kafka_state
from recon.testing.evidence import NOW, TOPIC, Entry, kafka, ledger, span
from tests.support.messages import same_message
from tests.support.witnesses import witnesses


def judged(witness: KafkaWitness | Unavailable, slice_: LedgerSlice, **fields: object) -> Verdict:
    return OffsetContinuity().judge(witnesses(slice_, kafka=witness, **fields))


ID, NONE = "id-1", None


@pytest.mark.parametrize(
    ("ids", "doubted"),
    [
        ([NONE], 0),
        ([NONE, ID], 0),
        ([ID, NONE, ID], None),
        ([ID, NONE], None),
        ([NONE, NONE, ID, NONE], 1),
    ],
)
def test_a_topic_whose_id_was_unknown_when_it_was_read(ids: list[str | None], doubted: int | None) -> None:
    """Case 62: it may have been another one; between two readings of the same topic it was the same."""
    entries = [Entry(n, span(10 * n, 10 * n + 10, topic_id=topic_id)) for n, topic_id in enumerate(ids)]
    verdict = judged(kafka(0, 10 * len(ids)), ledger(*entries))
    assert (verdict.unproved is not None) == (doubted is not None)
    assert [f.batch_id for f in verdict.findings] == ([] if doubted is None else [doubted])


def test_only_micro_batches_of_the_period_are_doubted_for_an_unknown_id() -> None:
    entries = [Entry(0, span(0, 10, topic_id=None)), Entry(1, (10, 20)), Entry(2, (20, 30))]
    assert judged(kafka(0, 30), ledger(*entries, anchors=1)).unproved is None


# -- leader epochs --------------------------------------------------------------------------------------------


def asked(after: int, epoch: int | None, **offsets: int) -> str:
    """What the broker said behind the entry with this sequence."""
    columns = {name: [number] for name, number in offsets.items()}
    logs = TopicLogs([0], [epoch], **columns)
    return dump_kafka_state(KafkaState(asked_at=NOW, after=after, topics={TOPIC: logs}))


def read_under_epoch_4() -> LedgerSlice:
    """Three micro-batches of ten offsets; the leader had epoch 4 when two of them were read."""
    second, third = ({"kafka_state": asked(after, 4)} for after in (1, 2))
    return ledger(Entry(0, (0, 10)), Entry(1, (10, 20), **second), Entry(2, (20, 30), **third))


@pytest.mark.parametrize(
    ("now", "kept", "doubted"),
    [
        (4, {}, False),
        (None, {}, False),
        (7, {(4, 20): True}, False),
        (7, {(4, 20): False}, True),
        (7, {}, True),
        (3, {(4, 20): True}, True),
    ],
    ids=["the same", "no epochs", "a clean election", "cut off", "not answered", "went back"],
)
def test_another_leader_than_when_it_was_read(
    now: int | None, kept: dict[tuple[int, int], bool], doubted: bool
) -> None:
    verdict = judged(kafka(0, 60, leader_epoch=now, kept=kept), read_under_epoch_4())
    assert verdict.failures == 0
    inconclusive = [f for f in verdict.findings if f.code is Code.INCONCLUSIVE]
    assert [(f.topic, f.partition, f.batch_id) for f in inconclusive] == ([(TOPIC, 0, 1)] if doubted else [])
    assert not doubted or same_message(verdict.unproved or "")


def proved(position: int) -> Proofs:
    proof = SinkProof(
        pipeline="orders",
        sink="lake",
        at=NOW,
        invocation_id="",
        position=position,
        chain_head="",
        first_epoch=0,
        first_batch_id=0,
    )
    return Proofs(of_sink={"lake": proof})


def test_offsets_deleted_since_are_a_question() -> None:
    """Whether their log was cut off below them, no witness tells any more."""
    expired = kafka(25, 60, leader_epoch=7)
    assert judged(expired, read_under_epoch_4()).unproved is not None
    assert judged(expired, read_under_epoch_4(), proofs=proved(3)).unproved is not None


def test_how_far_was_read_under_each_leader_epoch() -> None:
    entries = [Entry(n, (10 * n, 10 * n + 10), kafka_state=asked(n, epoch)) for n, epoch in enumerate((1, 1, 1, 2, 2))]
    entries.append(Entry(5, (50, 60)))
    read = leaders_seen(ledger(*entries), None)
    assert [(r.epoch, r.position, r.entry) for r in read[TOPIC, 0]] == [(1, 20, 1), (2, 40, 3)]


def test_an_answer_that_was_edited_is_none() -> None:
    assert leaders_seen(ledger(Entry(0, (0, 10)), Entry(1, (10, 20), kafka_state="{}")), None) == {}


def test_a_topic_that_is_gone_and_a_broker_that_does_not_answer() -> None:
    nowhere = Unavailable("kafka", "no broker")
    assert judged(nowhere, read_under_epoch_4()).unproved is None
    assert judged(kafka(exists=False), read_under_epoch_4()).unproved is None
    assert judged(kafka(0, 60, partition=1), read_under_epoch_4()).unproved is None
