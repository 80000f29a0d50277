"""kafka_end_offsets: cases 3, 5, 6, 12, 17, 18, 19 and 36."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from recon.checks.evidence.kafka_end_offsets import KafkaEndOffsets
from recon.checks.period import Period
from recon.model import Code, KafkaPartition, KafkaWitness, PreviousAudit, Unavailable, Verdict
from recon.model.proof import CoveredRanges, Proofs, SinkProof
from recon.model.wire.values import of_millis
from recon.testing.evidence import NOW, PIPELINE, SINK, TOPIC, Entry, checkpoint, gone, kafka, ledger, planned, span
from tests.support.messages import same_message
from tests.support.witnesses import codes, told, witnesses

READ_TO_100 = ledger(Entry(0, (0, 60)), Entry(1, (60, 100)))
NO_IDS = ledger(Entry(0, span(0, 100, topic_id=None)))


def judged(witness: KafkaWitness | Unavailable, slice_: object = READ_TO_100, **fields: object) -> Verdict:
    limits = {name: fields.pop(name) for name in ("warn_after", "error_after") if name in fields}
    return KafkaEndOffsets(**limits).judge(witnesses(slice_, kafka=witness, **fields))  # type: ignore[arg-type]


def previous(end: int, partition: int = 0) -> PreviousAudit:
    return PreviousAudit(generated_at=NOW, log_ends={(TOPIC, partition): end})


def partition(number: int, start: int, end: int, **fields: object) -> KafkaPartition:
    made = {"high_watermark": end, "last_stable": end, **fields}
    return KafkaPartition(partition=number, log_start=start, log_end=end, **made)  # type: ignore[arg-type]


def test_read_to_the_end() -> None:
    verdict = judged(kafka(0, 100))
    assert (verdict.failures, verdict.warnings, verdict.unproved, verdict.findings) == (0, 0, None, ())
    assert same_message(verdict.message)
    assert verdict.evidence == {
        "partitions": [{"topic": "orders", "partition": 0, "log_start": 0, "log_end": 100, "committed": 100, "lag": 0}],
        "log_ends": [["orders", 0, 100]],
        "log_starts": [],
        "lag": 0,
        "limits": {"warn_after": None, "error_after": None},
    }


def test_lag_is_in_flight_and_counted_in_offsets() -> None:
    verdict = judged(kafka(0, 130))
    assert told(verdict, info=True) == [("INFLIGHT", 0, 100, 130)]
    assert verdict.failures == 0
    assert same_message(verdict.findings[0].message)
    assert verdict.evidence["lag"] == 30


def test_lag_is_folded_per_topic() -> None:
    slice_ = ledger(Entry(0, span(0, 100, 0), span(0, 50, 1)))
    verdict = judged(kafka(0, 130, more=[partition(1, 0, 70)]), slice_)
    assert told(verdict, info=True) == [("INFLIGHT", None, None, None)]
    assert same_message(verdict.findings[0].message)


def test_records_deleted_before_they_were_read() -> None:
    verdict = judged(kafka(110, 130))
    assert told(verdict, info=True) == [("INFLIGHT", 0, 110, 130), ("LOSS_RETENTION", 0, 100, 110)]
    assert verdict.failures == 1
    assert verdict.evidence["partitions"][0]["lag"] == 20


def test_an_open_transaction_is_in_flight() -> None:
    verdict = judged(kafka(0, 100, high_watermark=104, last_stable=100))
    assert told(verdict, info=True) == [("INFLIGHT", 0, 100, 104)]
    assert same_message(verdict.findings[0].message)


# -- age of what is unread ------------------------------------------------------------------------------------

FIVE, HOUR = Period(5, "minute"), Period(1, "hour")


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [(4, []), (6, [Code.LAG]), (61, [Code.STALLED])],
)
def test_the_age_of_unread_records(minutes: int, expected: list[Code]) -> None:
    old = kafka(0, 130, unread_since=NOW - timedelta(minutes=minutes))
    verdict = judged(old, warn_after=FIVE, error_after=HOUR)
    assert codes(verdict) == sorted([Code.INFLIGHT, *expected])
    assert verdict.failures == (Code.STALLED in expected)
    assert verdict.warnings == (Code.LAG in expected)


def test_an_unknown_age_is_no_pass_when_a_limit_is_set() -> None:
    assert judged(kafka(0, 130)).unproved is None
    verdict = judged(kafka(0, 130), warn_after=FIVE)
    assert verdict.unproved is not None
    assert "the age of the unread offsets of orders-0 is not known" in verdict.unproved
    assert judged(kafka(0, 100), warn_after=FIVE).unproved is None


SECONDS, MICROS = int(NOW.timestamp()), int(NOW.timestamp() * 1e6)


@pytest.mark.parametrize(
    ("stamp", "said"),
    [
        (SECONDS, f"is stamped {of_millis(SECONDS):%Y-%m-%d %H:%M:%S}Z"),
        (MICROS, f"is stamped {MICROS} ms, which is no time"),
    ],
)
def test_a_stamp_that_cannot_be_true_is_no_age_and_is_said(stamp: int, said: str) -> None:
    odd = kafka(0, 130, unread_since=of_millis(stamp), unread_stamp=stamp)
    verdict = judged(odd)
    assert (codes(verdict), verdict.unproved) == ([Code.INFLIGHT, Code.UNUSUAL], None)
    (warned,) = (finding.message for finding in verdict.findings if finding.code is Code.UNUSUAL)
    assert said in warned and "CreateTime" in warned
    verdict = judged(odd, warn_after=FIVE, error_after=HOUR)
    assert codes(verdict) == [Code.INCONCLUSIVE, Code.INFLIGHT, Code.UNUSUAL]
    ahead = kafka(0, 130, unread_since=NOW + timedelta(hours=2), unread_stamp=SECONDS * 1000 + 7_200_000)
    assert codes(judged(ahead, warn_after=FIVE)) == [Code.INCONCLUSIVE, Code.INFLIGHT, Code.UNUSUAL]
    clocks_differ = kafka(0, 130, unread_since=NOW + timedelta(minutes=2))
    assert codes(judged(clocks_differ, warn_after=FIVE)) == [Code.INFLIGHT]


@pytest.mark.parametrize(
    ("end", "minutes", "expected"),
    [(100, 4, []), (100, 6, [Code.INCONCLUSIVE]), (101, 4, [Code.INCONCLUSIVE])],
)
def test_what_came_after_an_audit_waits_no_longer_than_since_then(end: int, minutes: int, expected: list[Code]) -> None:
    at = NOW - timedelta(minutes=minutes)
    seen = PreviousAudit(generated_at=at, log_ends={(TOPIC, 0): end}, log_ended={(TOPIC, 0): at})
    odd = kafka(0, 130, unread_since=of_millis(SECONDS), unread_stamp=SECONDS)
    assert codes(judged(odd, warn_after=FIVE, previous=seen)) == [*expected, Code.INFLIGHT, Code.UNUSUAL]
    # A stamp of last year may be true; of a record that came later, nobody waits since last year.
    old = kafka(0, 130, unread_since=NOW - timedelta(days=365))
    late = [Code.LAG] if end > 100 or minutes > 5 else []
    assert codes(judged(old, warn_after=FIVE, previous=seen)) == sorted([*late, Code.INFLIGHT])


def test_one_limit_alone() -> None:
    old = kafka(0, 130, unread_since=NOW - timedelta(hours=2))
    assert judged(old, error_after=HOUR).failures == 1
    assert judged(old, warn_after=HOUR).warnings == 1


# -- re-created topics ----------------------------------------------------------------------------------------


def test_recreated_and_shorter() -> None:
    verdict = judged(kafka(0, 30, topic_id="id-2"))
    assert told(verdict) == [("RECREATED", 0, None, None)]
    assert same_message(verdict.message)


def test_recreated_and_refilled_past_what_was_read() -> None:
    verdict = judged(kafka(0, 130, topic_id="id-2"))
    assert told(verdict) == [("GAP", 0, 0, 100), ("RECREATED", 0, None, None)]
    assert verdict.failures == 2


def test_recreated_refilled_and_partly_expired() -> None:
    assert told(judged(kafka(40, 130, topic_id="id-2"))) == [
        ("GAP", 0, 40, 100),
        ("LOSS_RETENTION", 0, 0, 40),
        ("RECREATED", 0, None, None),
    ]


def test_recreated_without_ids_is_seen_by_its_end() -> None:
    assert told(judged(kafka(0, 30), NO_IDS)) == [("RECREATED", 0, None, None)]


def test_a_broker_without_ids_is_a_warning() -> None:
    verdict = judged(kafka(0, 100, topic_id=None), NO_IDS)
    assert codes(verdict) == [Code.TOPIC_ID_UNKNOWN]
    assert (verdict.failures, verdict.warnings, verdict.unproved) == (0, 1, None)


def test_the_log_of_the_same_topic_was_cut_off() -> None:
    verdict = judged(kafka(0, 80, leader_epoch=3))
    assert verdict.failures == 0
    assert verdict.unproved is not None
    assert "leader epoch 3" in verdict.unproved


def test_an_open_transaction_below_the_end_is_no_cut_off() -> None:
    """The stream reads uncommitted records, recon.yml says read_committed: no reason to cry wolf."""
    assert judged(kafka(0, 80, high_watermark=100, last_stable=80)).unproved is None


# -- deleted topics and partitions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (100, [("CLOSED", 0, None, None)]),
        (120, [("LOSS", 0, 100, 120)]),
        (90, [("INCONCLUSIVE", 0, None, None)]),
        (None, [("INCONCLUSIVE", 0, None, None)]),
    ],
)
def test_a_deleted_topic(seen: int | None, expected: list[object]) -> None:
    verdict = judged(kafka(exists=False), previous=previous(seen) if seen is not None else None)
    assert told(verdict, info=True) == expected
    assert (verdict.unproved is not None) == (expected[0][0] == "INCONCLUSIVE")  # type: ignore[index]
    assert verdict.failures == (expected[0][0] == "LOSS")  # type: ignore[index]


def test_a_partition_that_is_gone() -> None:
    slice_ = ledger(Entry(0, span(0, 100, 0), span(0, 50, 1)))
    assert told(judged(kafka(0, 100), slice_, previous=previous(50, 1)), info=True) == [("CLOSED", 1, None, None)]


def test_a_topic_that_kafka_was_not_asked_about() -> None:
    assert judged(KafkaWitness(bootstrap_servers="b", isolation_level="x", read_at=NOW, topics={})).unproved is not None


# -- partitions the ledger has never seen -----------------------------------------------------------------------


def test_a_partition_nobody_read_yet() -> None:
    verdict = judged(kafka(0, 100, more=[partition(1, 0, 7)]))
    assert told(verdict, info=True) == [("INFLIGHT", 1, 0, 7)]
    assert verdict.evidence["partitions"][1]["committed"] is None


def test_a_partition_that_expired_before_anybody_read_it() -> None:
    verdict = judged(kafka(0, 100, more=[partition(1, 5, 7)]))
    assert told(verdict, info=True) == [("INFLIGHT", 1, 5, 7), ("LOSS_RETENTION", 1, 0, 5)]


def test_an_empty_new_partition_is_nothing() -> None:
    assert judged(kafka(0, 100, more=[partition(1, 0, 0)])).findings == ()


# -- no proof -----------------------------------------------------------------------------------------------------


def test_no_broker_and_no_ledger_prove_nothing() -> None:
    assert judged(gone("kafka")).unproved == "kafka did not answer"
    assert judged(kafka(), None).unproved is not None


def test_anchors_count_as_read() -> None:
    quiet = ledger(Entry(0, (0, 100)), anchors=1, complete=False)
    assert told(judged(kafka(0, 130), quiet), info=True) == [("INFLIGHT", 0, 100, 130)]


def test_a_gap_inside_does_not_move_the_end() -> None:
    """What a new checkpoint reads again from 0 is not unread."""
    again = ledger(Entry(0, (0, 100)), Entry(0, (0, 20), epoch=1))
    assert judged(kafka(0, 100), again).findings == ()


def test_what_spark_finished_does_not_wait() -> None:
    """Whether a micro-batch without an entry left records out is for checkpoint_commits to say."""
    finished = checkpoint(planned(2, (100, 120)), query_id="q-1")
    assert codes(judged(kafka(0, 120), checkpoint=finished)) == []
    assert told(judged(kafka(0, 130), checkpoint=finished), info=True) == [("INFLIGHT", 0, 120, 130)]
    assert told(judged(kafka(125, 130), checkpoint=finished)) == [("LOSS_RETENTION", 0, 120, 125)]
    # A plan that is not finished, and one of another query, say nothing of what was read.
    for other in (
        checkpoint(planned(2, (100, 120), committed=False), query_id="q-1"),
        checkpoint(planned(2, (100, 120)), query_id="q-2"),
    ):
        assert told(judged(kafka(0, 120), checkpoint=other), info=True) == [("INFLIGHT", 0, 100, 120)]


def test_behind_what_the_checkpoint_has_no_more_is_not_known_to_be_finished() -> None:
    """Whether micro-batches without an entry read these offsets, their removed plans do not say."""
    purged = checkpoint(planned(9, (500, 510), starts_known=False), query_id="q-1")
    assert told(judged(kafka(300, 510), checkpoint=purged)) == [("LOSS_RETENTION", 0, 100, 300)]


def two_topics(start: int, end: int, name: str = "returns") -> KafkaWitness:
    """Kafka with topic orders, which the ledger reads to its end, and one more."""
    both = kafka(0, 100)
    return replace(both, topics={**both.topics, **kafka(start, end, topic=name, topic_id="id-2").topics})


def saw(start: int, end: int) -> PreviousAudit:
    place = ("returns", 0)
    return PreviousAudit(generated_at=NOW, log_ends={place: end}, log_starts={place: (NOW, start)})


def test_a_topic_of_recon_yml_that_no_micro_batch_reads_stalls() -> None:
    verdict = judged(two_topics(0, 20), topics=("orders", "returns"))
    assert told(verdict) == [("STALLED", 0, None, None)]
    assert verdict.evidence["log_starts"] == [["returns", 0, 0]]
    assert same_message(next(f.message for f in verdict.findings if f.code is Code.STALLED))


def test_a_topic_of_recon_yml_that_expires_unread_is_a_loss() -> None:
    verdict = judged(two_topics(20, 20), topics=("orders", "returns"), previous=saw(0, 20))
    assert told(verdict) == [("LOSS_RETENTION", 0, 0, 20)]


def test_what_expired_before_any_audit_saw_the_topic_is_no_loss() -> None:
    assert told(judged(two_topics(500, 500), topics=("orders", "returns"))) == []
    assert told(judged(two_topics(500, 500), topics=("orders", "returns"), previous=saw(500, 500))) == []


def test_a_topic_that_the_newest_plan_has_may_be_read_since() -> None:
    reads = planned(2, span(100, 100), span(0, 20, topic="returns"), committed=False)
    verdict = judged(two_topics(0, 20), topics=("orders", "returns"), checkpoint=checkpoint(reads))
    assert told(verdict) == []


def test_a_topic_of_recon_yml_that_does_not_exist() -> None:
    without = kafka(0, 100)
    missing = kafka(topic="retruns", exists=False)
    witness = replace(without, topics={**without.topics, **missing.topics})
    verdict = judged(witness, topics=("orders", "retruns"))
    assert told(verdict) == [("INCONCLUSIVE", None, None, None)]
    assert same_message(verdict.findings[0].message)


def test_a_topic_of_recon_yml_that_was_deleted_unread() -> None:
    without = kafka(0, 100)
    missing = kafka(topic="returns", exists=False)
    witness = replace(without, topics={**without.topics, **missing.topics})
    verdict = judged(witness, topics=("orders", "returns"), previous=saw(0, 20))
    assert told(verdict) == [("LOSS", 0, 0, 20)]


LEFT = ledger(
    Entry(0, span(0, 50), span(0, 20, topic="returns", topic_id="id-2")),
    Entry(1, span(50, 100)),
)


def test_a_topic_that_left_the_subscription_and_was_read_to_its_end() -> None:
    for topics in (("orders",), ("orders", "returns")):
        assert told(judged(two_topics(0, 20), LEFT, topics=topics)) == []


def test_a_topic_that_left_the_subscription_with_unread_offsets() -> None:
    verdict = judged(two_topics(0, 28), LEFT, topics=("orders",))
    assert told(verdict) == [("INCONCLUSIVE", 0, 20, 28)]
    assert same_message(verdict.findings[0].message)
    assert told(judged(two_topics(0, 28), LEFT, topics=("orders", "returns"))) == [("STALLED", 0, None, None)]


def proof_of(end: int) -> Proofs:
    """The state of earlier audits that judged micro-batches which read the second topic up to an offset."""
    read = CoveredRanges(source=0, topic="returns", topic_id="id-2", partition=0, ranges=((0, end),))
    state = SinkProof(
        pipeline=PIPELINE, sink=SINK, at=NOW, invocation_id="", position=1, chain_head="", first_epoch=0,
        first_batch_id=0, coverage=(read,),
    )  # fmt: skip
    return Proofs(of_sink={SINK: state})


def test_a_topic_that_earlier_audits_saw_read_and_that_waits_since() -> None:
    topics, read = ("orders", "returns"), proof_of(20)
    assert told(judged(two_topics(0, 20), topics=topics, proofs=read)) == []
    assert told(judged(two_topics(0, 28), topics=topics, proofs=read)) == [("STALLED", 0, None, None)]
    assert told(judged(two_topics(28, 28), topics=topics, proofs=read)) == [("LOSS_RETENTION", 0, 20, 28)]


def test_a_topic_leaves_recon_yml_after_an_audit_that_saw_it_wait() -> None:
    verdict = judged(kafka(0, 100), topics=("orders",), proofs=proof_of(20), previous=saw(0, 28))
    assert told(verdict) == [("INCONCLUSIVE", 0, 20, 28)]
    assert told(judged(kafka(0, 100), topics=("orders",), proofs=proof_of(20), previous=saw(0, 20))) == []
    assert told(judged(kafka(0, 100), topics=("orders",), previous=saw(0, 28))) == [], "nobody ever read it"
