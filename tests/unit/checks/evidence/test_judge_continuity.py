"""offset_continuity: cases 1-5, 7, 18, 23, 29, 31 and 32, by example and by property."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.checks.evidence.offset_continuity import OffsetContinuity
from recon.model import Code, LedgerSlice, Verdict
from recon.model.offsets import Spans
from recon.testing.evidence import NOW, TOPIC, Entry, checkpoint, gone, kafka, ledger, planned, span
from tests.support.asked import questions
from tests.support.messages import same_message
from tests.support.witnesses import codes, probe, regular_ledger, told, witnesses


def judged(slice_: LedgerSlice | None, **fields: object) -> Verdict:
    return OffsetContinuity().judge(witnesses(slice_, **fields))


def passed(verdict: Verdict) -> bool:
    return verdict.failures == 0 and verdict.warnings == 0 and verdict.unproved is None and verdict.skipped is None


# -- OK, gaps, losses ---------------------------------------------------------------------------------------


def test_batches_that_continue_pass_and_make_no_findings() -> None:
    verdict = judged(ledger(Entry(0, (0, 10)), Entry(1, (10, 30)), Entry(2, (30, 31))))
    assert passed(verdict)
    assert verdict.findings == ()
    assert same_message(verdict.message)
    assert verdict.evidence == {"batches": 3, "partitions": 1}


def test_a_gap_that_kafka_still_holds() -> None:
    verdict = judged(ledger(Entry(0, (0, 10)), Entry(1, (15, 30))), kafka=kafka(0, 30))
    assert told(verdict) == [("GAP", 0, 10, 15)]
    assert verdict.failures == 1
    assert same_message(verdict.message)
    assert verdict.findings[0].batch_id == 1
    assert verdict.findings[0].topic == TOPIC


def test_a_range_of_transaction_markers_alone_is_no_gap() -> None:
    slice_, broker = ledger(Entry(0, (0, 10)), Entry(1, (12, 30))), kafka(0, 30)
    assert questions(OffsetContinuity(), witnesses(slice_, kafka=broker)) == {(TOPIC, 0): Spans.of([(10, 12)])}
    assert told(judged(slice_, kafka=broker, probes=probe([(10, 12)])), info=True) == [("EXPLAINED", 0, 10, 12)]
    # A record in it, or an answer that does not cover it, leaves the gap.
    one, short = probe([(10, 12)], [(11, 12)], [(11, 12)]), probe([(10, 12)], truncated="the log ends at 11")
    for probes in (one, short, probe([(10, 11)])):
        assert told(judged(slice_, kafka=broker, probes=probes)) == [("GAP", 0, 10, 12)]
    aborted = probe([(10, 12)], [(10, 11)])
    assert told(judged(slice_, kafka=broker, probes=aborted)) == []
    assert told(judged(slice_, kafka=broker, probes=aborted, isolation_level="read_uncommitted"))
    # Another incarnation of the topic, or one that is not known, says nothing about the offsets that were read.
    for other in (kafka(0, 30, topic_id="id-2"), kafka(0, 30, topic_id=None)):
        assert questions(OffsetContinuity(), witnesses(slice_, kafka=other)) == {}
        assert told(judged(slice_, kafka=other, probes=probe([(10, 12)]))) == [("GAP", 0, 10, 12)]
    compacting = witnesses(slice_, kafka=kafka(0, 30, policy="compact"))
    assert questions(OffsetContinuity(), compacting) == {}


def test_a_gap_below_the_log_start_is_a_loss_and_above_it_a_gap() -> None:
    slice_ = ledger(Entry(0, (0, 10)), Entry(1, (20, 30)))
    assert told(judged(slice_, kafka=kafka(14, 30))) == [("GAP", 0, 14, 20), ("LOSS_RETENTION", 0, 10, 14)]
    assert told(judged(slice_, kafka=kafka(25, 30))) == [("LOSS_RETENTION", 0, 10, 20)]


def test_a_gap_when_kafka_cannot_be_asked_says_so() -> None:
    verdict = judged(ledger(Entry(0, (0, 10)), Entry(1, (15, 30))), kafka=gone("kafka"))
    assert told(verdict) == [("GAP", 0, 10, 15)]
    assert same_message(verdict.message)


@pytest.mark.parametrize(
    ("witness", "why"),
    [
        (kafka(exists=False), "Kafka holds this topic partition no longer"),
        (kafka(topic_id="id-2"), "topic orders was deleted and created again: these offsets are other records now"),
        (kafka(topic="other"), "no broker was read"),
    ],
)
def test_a_gap_in_a_topic_that_is_gone(witness: object, why: str) -> None:
    verdict = judged(ledger(Entry(0, (0, 10)), Entry(1, (15, 30))), kafka=witness)
    assert told(verdict) == [("GAP", 0, 10, 15)]
    assert why in verdict.message


def test_a_jump_of_batch_ids_is_named() -> None:
    verdict = judged(ledger(Entry(4, (0, 10)), Entry(6, (15, 30))))
    assert same_message(verdict.message)
    assert "jump" not in judged(ledger(Entry(4, (0, 10)), Entry(5, (15, 30)))).message


def test_a_gap_that_was_read_later_is_none() -> None:
    refilled = Entry(0, (10, 15), epoch=1, query_id="backfill")
    verdict = judged(ledger(Entry(0, (0, 10)), Entry(1, (15, 30)), refilled))
    assert passed(verdict)
    assert codes(verdict) == [Code.NEW_EPOCH]


def test_two_ranges_of_one_partition_in_one_entry() -> None:
    """What trimming leaves of [5, 40) when [0, 10) and [20, 30) are held."""
    rest = Entry(0, (10, 20), (30, 40), epoch=1)
    assert passed(judged(ledger(Entry(0, (0, 10)), Entry(1, (20, 30)), rest)))


# -- overlaps -----------------------------------------------------------------------------------------------


def test_an_overlap() -> None:
    verdict = judged(ledger(Entry(0, (0, 10)), Entry(1, (5, 30))))
    assert told(verdict) == [("OVERLAP", 0, 5, 10)]
    assert verdict.findings[0].batch_id == 1


def test_only_what_was_read_again_overlaps() -> None:
    """A new checkpoint from earliest that has come to 25 of 100: [25, 100) is not read twice yet."""
    again = [Entry(0, (0, 20), epoch=1), Entry(1, (20, 25), epoch=1)]
    verdict = judged(ledger(Entry(0, (0, 100)), *again))
    assert told(verdict) == [("OVERLAP", 0, 0, 25)]
    assert Code.NEW_EPOCH in codes(verdict)


def test_two_commits_of_one_batch_overlap() -> None:
    twice = Entry(1, (10, 20), attempt=2, sink_version=7)
    assert told(judged(ledger(Entry(0, (0, 10)), Entry(1, (10, 20)), twice))) == [("OVERLAP", 0, 10, 20)]


def test_an_overlap_is_named_by_the_batch_that_read_it() -> None:
    slice_ = ledger(Entry(0, (50, 60)), Entry(0, (0, 40), epoch=1), Entry(1, (40, 70), epoch=1))
    (finding,) = [f for f in judged(slice_).findings if f.code is Code.OVERLAP]
    assert (finding.start_offset, finding.end_offset, finding.batch_id, finding.epoch) == (50, 60, 1, 1)


# -- replays, empty batches, order ----------------------------------------------------------------------------


def test_a_recognised_replay_explains() -> None:
    replay = Entry(1, (10, 20), attempt=2, status="already_committed", sink_version=1)
    verdict = judged(ledger(Entry(0, (0, 10)), Entry(1, (10, 20)), replay, Entry(2, (20, 30))))
    assert passed(verdict)
    assert codes(verdict) == [Code.REPLAYED]
    assert verdict.findings[0].batch_id == 1


@pytest.mark.parametrize(
    ("run_id", "transform", "once"),
    [("r-1", "job:odd", False), ("r-2", "job:odd", True), ("r-1", "job:even", True), (None, "job:odd", True)],
)
def test_of_a_second_call_of_a_run_nothing_was_written(run_id: str | None, transform: str, once: bool) -> None:
    first = Entry(0, (0, 10), run_id="r-1", transform="job:even")
    again = {"attempt": 2, "status": "already_committed", "sink_version": 0}
    verdict = judged(ledger(first, Entry(0, (0, 10), run_id=run_id, transform=transform, **again)))
    assert passed(verdict) and codes(verdict) == [Code.REPLAYED]
    (finding,) = verdict.findings
    assert ("written once" in finding.message) is once
    assert ("job:even and job:odd: source_rows tells" in finding.message) is not once


def test_a_replay_that_met_no_broker_is_still_one() -> None:
    replay = Entry(1, span(10, 20, topic_id=None), attempt=2, status="already_committed", sink_version=1)
    assert codes(judged(ledger(Entry(0, (0, 10)), Entry(1, (10, 20)), replay))) == [Code.REPLAYED]


def test_a_replay_with_other_ranges_is_none() -> None:
    replay = Entry(1, (10, 25), attempt=2, status="already_committed", sink_version=1)
    assert told(judged(ledger(Entry(0, (0, 10)), Entry(1, (10, 20)), replay))) == [("OVERLAP", 0, 10, 20)]


def test_empty_batches_are_folded() -> None:
    verdict = judged(ledger(Entry(0, (0, 10)), Entry(1, (10, 10)), Entry(2, (10, 10)), Entry(3, (10, 12))))
    assert passed(verdict)
    assert codes(verdict) == [Code.EMPTY]
    assert same_message(verdict.findings[0].message)


def test_an_empty_batch_beyond_the_end_is_a_gap() -> None:
    """A new checkpoint at latest that has read nothing yet has left the range out all the same (32)."""
    verdict = judged(ledger(Entry(0, (0, 10)), Entry(0, (15, 15), epoch=1)))
    assert told(verdict) == [("GAP", 0, 10, 15)]


def test_an_entry_rebuilt_later_is_judged_where_it_was_read() -> None:
    rebuilt = Entry(1, (10, 20), status="rebuilt", sink_version=1)
    assert passed(judged(ledger(Entry(0, (0, 10)), Entry(2, (20, 30), sink_version=2), rebuilt)))


# -- new partitions, several sources ----------------------------------------------------------------------------


def test_a_new_partition_from_0_and_from_above() -> None:
    first = Entry(0, span(500, 510, 0))
    assert passed(judged(ledger(first, Entry(1, span(510, 520, 0), span(0, 7, 1)))))
    late = ledger(first, Entry(1, span(510, 520, 0), span(3, 7, 1)))
    assert told(judged(late)) == [("LOSS_RETENTION", 1, 0, 3)]
    assert told(judged(late, kafka=kafka(3, 7, partition=1))) == [("LOSS_RETENTION", 1, 0, 3)]
    assert told(judged(late, kafka=kafka(0, 7, partition=1))) == [("GAP", 1, 0, 3)]


def test_a_partition_that_grew_while_the_checkpoint_was_lost() -> None:
    late = ledger(Entry(0, span(0, 10, 0)), Entry(0, span(10, 20, 0), span(3, 7, 1), epoch=1))
    assert told(judged(late)) == [("LOSS_RETENTION", 1, 0, 3)]


def test_a_topic_that_a_new_epoch_adds_may_start_anywhere() -> None:
    added = Entry(0, span(10, 20), span(70, 90, topic="refunds"), epoch=1)
    assert passed(judged(ledger(Entry(0, span(0, 10)), added)))


def test_sources_of_one_query_are_kept_apart() -> None:
    slice_ = ledger(
        Entry(0, span(0, 10), span(0, 5, source=1)),
        Entry(1, span(10, 20), span(6, 9, source=1)),
    )
    assert told(judged(slice_)) == [("GAP", 0, 5, 6)]


# -- epochs, re-created topics ----------------------------------------------------------------------------------


def test_a_new_epoch_that_continues_explains() -> None:
    verdict = judged(ledger(Entry(7, (0, 10)), Entry(0, (10, 20), epoch=1, query_id="q-2")))
    assert passed(verdict)
    (finding,) = verdict.findings
    assert (finding.code, finding.batch_id, finding.epoch) == (Code.NEW_EPOCH, 0, 1)
    assert same_message(finding.message)


def test_a_new_epoch_at_latest_leaves_a_gap() -> None:
    verdict = judged(ledger(Entry(7, (0, 10)), Entry(0, (25, 40), epoch=1, query_id="q-2")))
    assert told(verdict) == [("GAP", 0, 10, 25)]
    assert Code.NEW_EPOCH in codes(verdict)
    assert same_message(verdict.message)


def test_a_recreated_topic_starts_fresh() -> None:
    verdict = judged(ledger(Entry(0, (0, 100)), Entry(1, span(0, 30, topic_id="id-2"))))
    assert told(verdict) == [("RECREATED", None, None, None)]


def test_a_topic_recreated_and_refilled_past_the_old_end() -> None:
    verdict = judged(
        ledger(Entry(0, (0, 100)), Entry(1, span(100, 130, topic_id="id-2"))), kafka=kafka(0, 130, topic_id="id-2")
    )
    assert told(verdict) == [("GAP", 0, 0, 100), ("RECREATED", None, None, None)]
    gap = next(f for f in verdict.findings if f.code is Code.GAP)
    assert same_message(gap.message)


def test_a_topic_recreated_and_shorter_now() -> None:
    verdict = judged(
        ledger(
            Entry(0, (0, 100)),
            Entry(1, span(100, 30, topic_id="id-2")),
            Entry(2, span(30, 35, topic_id="id-2")),
        )
    )
    assert told(verdict) == [("GAP", 0, 0, 30), ("RECREATED", None, None, None)]


def test_a_position_that_goes_back_within_one_topic_is_not_decided() -> None:
    verdict = judged(ledger(Entry(0, (0, 100)), Entry(1, (100, 30)), Entry(2, (30, 35))))
    assert verdict.unproved is not None
    assert verdict.failures == 0
    assert "from offset 100 back to 30" in verdict.unproved


def test_what_was_read_under_no_topic_id_is_of_the_same_topic_or_of_the_next_one() -> None:
    slice_ = ledger(Entry(0, (0, 10)), Entry(1, span(10, 20, topic_id=None)), Entry(2, span(20, 30, topic_id="id-2")))
    assert told(judged(slice_)) == [("GAP", 0, 0, 10), ("INCONCLUSIVE", 0, 10, 20), ("RECREATED", None, None, None)]
    assert passed(judged(ledger(Entry(0, span(0, 10, topic_id=None)), Entry(1, (10, 20)))))


# -- anchors, and what proves nothing --------------------------------------------------------------------------


def test_an_entry_restored_late_between_anchors_of_two_epochs_is_no_gap() -> None:
    """What lies below the furthest anchor was read before; the entries of it are not in the slice."""
    late = ledger(
        Entry(9, (0, 100)),
        Entry(9, (190, 200), epoch=1),
        Entry(4, (140, 150), epoch=1, status="rebuilt"),
        Entry(10, (200, 210), epoch=1),
        anchors=2,
        complete=False,
    )
    assert told(judged(late, kafka=kafka(0, 210))) == []
    gap = ledger(
        Entry(9, (0, 100)), Entry(9, (190, 200), epoch=1), Entry(10, (203, 210), epoch=1), anchors=2, complete=False
    )
    assert told(judged(gap, kafka=kafka(0, 210))) == [("GAP", 0, 200, 203)]


def test_anchors_anchor_and_are_not_judged() -> None:
    anchored = ledger(Entry(3, (0, 10)), Entry(4, (20, 30)), Entry(5, (30, 40)), anchors=2, complete=False)
    assert passed(judged(anchored))
    broken = ledger(Entry(4, (20, 30)), Entry(5, (33, 40)), anchors=1, complete=False)
    assert told(judged(broken)) == [("GAP", 0, 30, 33)]
    assert judged(broken).evidence["batches"] == 1


def test_everything_below_the_anchor_counts_as_read() -> None:
    slice_ = ledger(Entry(9, (900, 1000)), Entry(0, (0, 100), epoch=1), anchors=1, complete=False)
    assert told(judged(slice_)) == [("OVERLAP", 0, 0, 100)]


def test_a_quiet_period_passes_and_says_so() -> None:
    verdict = judged(ledger(Entry(4, (20, 30)), anchors=1, complete=False))
    assert passed(verdict)
    assert same_message(verdict.message)


@pytest.mark.parametrize("slice_", [None, ledger()])
def test_a_ledger_without_entries_proves_nothing(slice_: LedgerSlice | None) -> None:
    verdict = judged(slice_)
    assert verdict.unproved is not None
    assert "the ledger holds no entry for pipeline orders, sink lake" in verdict.unproved


def test_findings_are_capped_and_counted() -> None:
    slice_ = ledger(*(Entry(i, (10 * i, 10 * i + 5)) for i in range(1500)))
    verdict = judged(slice_)
    assert verdict.failures == 1499
    assert len(verdict.findings) == 1000
    assert same_message(verdict.findings[-1].message)


# -- properties ---------------------------------------------------------------------------------------------------


@st.composite
def streams(draw: st.DrawFn) -> list[list[tuple[int, int]]]:
    """A few partitions, each cut into the same number of ranges, empty ones included."""
    batches = draw(st.integers(3, 8))
    found = []
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(0, 1000))
        sizes = draw(st.lists(st.integers(0, 50), min_size=batches, max_size=batches))
        cuts = [first]
        for size in sizes:
            cuts.append(cuts[-1] + size)
        found.append(list(pairwise(cuts)))
    return found


def entries_of(stream: list[list[tuple[int, int]]], without: int | None = None) -> LedgerSlice:
    return ledger(
        *(
            Entry(batch, *(span(*ranges[batch], p) for p, ranges in enumerate(stream)))
            for batch in range(len(stream[0]))
            if batch != without
        )
    )


@given(streams())
def test_any_split_of_a_stream_is_continuous(stream: list[list[tuple[int, int]]]) -> None:
    assert passed(judged(entries_of(stream)))


@given(streams(), st.data())
def test_a_missing_entry_is_exactly_its_gap(stream: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    lost = data.draw(st.integers(1, len(stream[0]) - 2))
    expected = [("GAP", p, *ranges[lost]) for p, ranges in enumerate(stream) if ranges[lost][0] < ranges[lost][1]]
    # A range that nothing follows any more leaves no later start to see it by.
    expected = [gap for gap in expected if stream[gap[1]][lost + 1][0] == gap[3]]
    assert told(judged(entries_of(stream, without=lost))) == sorted(expected, key=str)


@given(streams(), st.data())
def test_a_start_moved_back_is_exactly_its_overlap(stream: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    moved = data.draw(st.integers(1, len(stream[0]) - 1))
    partition = data.draw(st.integers(0, len(stream) - 1))
    start, end = stream[partition][moved]
    floor = stream[partition][0][0]
    if start == floor:
        return
    back = data.draw(st.integers(floor, start - 1))
    stream[partition][moved] = (back, end)
    assert told(judged(entries_of(stream))) == [("OVERLAP", partition, back, start)]


@given(streams(), st.randoms(use_true_random=False))
def test_the_place_in_the_chain_does_not_matter(stream: list[list[tuple[int, int]]], random: object) -> None:
    batches = list(range(len(stream[0])))
    random.shuffle(batches)  # type: ignore[attr-defined]
    shuffled = ledger(*(Entry(b, *(span(*r[b], p) for p, r in enumerate(stream))) for b in batches))
    assert passed(judged(shuffled))


# -- scale ----------------------------------------------------------------------------------------------------------


def test_a_day_of_200_partitions() -> None:
    assert passed(OffsetContinuity().judge(witnesses(regular_ledger(8640, 200))))


# -- a plan that somebody edited after its entry was made ---------------------------------------------------------


def test_an_edited_plan_that_the_next_start_begins_behind() -> None:
    entries = [Entry(0, (0, 10)), Entry(1, (10, 20))]
    edited = checkpoint(planned(0, (0, 10)), planned(1, (10, 23)))
    verdict = judged(ledger(*entries), checkpoint=edited, kafka=kafka(0, 40))
    assert told(verdict) == [("GAP", 0, 20, 23)]
    assert "offsets/1 was edited after micro-batch 1 was entered" in verdict.findings[0].message
    after = [*entries, Entry(2, (23, 40))]
    edited = checkpoint(planned(0, (0, 10)), planned(1, (10, 23)), planned(2, (23, 40)))
    verdict = judged(ledger(*after), checkpoint=edited, kafka=kafka(0, 40))
    assert told(verdict) == [("GAP", 0, 20, 23)]
    assert "offsets/1 was edited after micro-batch 1 was entered" in verdict.findings[0].message
    repaired = Entry(0, (20, 23), epoch=-2, status="repaired")
    assert told(judged(ledger(*entries, repaired), checkpoint=edited, kafka=kafka(0, 40))) == []


def test_an_edited_plan_that_the_next_start_reads_again() -> None:
    entries = [Entry(0, (0, 10)), Entry(1, (10, 20))]
    edited = checkpoint(planned(0, (0, 10)), planned(1, (10, 17)), planned(2, (17, 40)))
    assert told(judged(ledger(*entries), checkpoint=edited)) == []  # nothing is read twice yet
    verdict = judged(ledger(*entries, Entry(2, (17, 40))), checkpoint=edited)
    assert told(verdict) == [("OVERLAP", 0, 17, 20)]
    assert "offsets/1 was edited after micro-batch 1 was entered" in verdict.findings[0].message


def test_a_micro_batch_that_ran_again_with_an_edited_plan_begins_no_epoch() -> None:
    entries = [Entry(0, (0, 10)), Entry(1, (10, 20)), Entry(1, (10, 25), epoch=1)]
    edited = checkpoint(planned(0, (0, 10)), planned(1, (10, 25)))
    verdict = judged(ledger(*entries), checkpoint=edited)
    assert told(verdict) == [("OVERLAP", 0, 10, 20)] and Code.NEW_EPOCH not in codes(verdict)
    # Spark planned it after the entry: a copy of the checkpoint was put back.
    again = checkpoint(planned(0, (0, 10)), planned(1, (10, 25), at=NOW))
    assert Code.NEW_EPOCH in codes(judged(ledger(*entries), checkpoint=again))
