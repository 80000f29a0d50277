"""source_rows: cases 1, 4, 8-11, 13, 15, 16, 20, 24, 29 and 38, counts first."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.checks.evidence.source_rows import SourceRows
from recon.model import (
    WITHOUT_NUMBER,
    Code,
    DeclaredRows,
    LedgerSlice,
    RowsWitness,
    SinkLog,
    Unavailable,
    Unstamped,
    Verdict,
    Witnesses,
)
from recon.model.ledger import REPAIRS
from recon.model.offsets import Spans
from recon.model.proof import CoveredRanges, Proofs
from recon.model.wire.kafka_state import KafkaState, TopicLogs, dump_kafka_state
from recon.testing.evidence import NOW, SINK, TOPIC, Entry, gone, kafka, ledger, span
from tests.support.asked import questions, wants_rows
from tests.support.messages import same_message
from tests.support.witnesses import codes, commit, delta, group, probe, rows, sink_proof, told, witnesses

CHECK = SourceRows()


def entry(batch_id: int, start: int, end: int, written: int | None = None, **head: Any) -> Entry:
    """An entry of a stream without a transform: what was written is what was read."""
    made = end - start if written is None else written
    return Entry(batch_id, (start, end), **{"rows_written": made, "rows_read": made, **head})


FULL = ledger(entry(0, 0, 10), entry(1, 10, 20))
SHORT = ledger(entry(0, 0, 10), entry(1, 10, 20, 8))  # two offsets of micro-batch 1 have no row
HOLES = rows(group(0, (0, 10)), group(1, (10, 14), (15, 19)))  # 14 and 19


def judged(slice_: LedgerSlice | None, found: RowsWitness | Unavailable | None = None, **fields: Any) -> Verdict:
    if found is not None:
        fields["rows"] = found
    return CHECK.judge(witnesses(slice_, **fields))


def asked(slice_: LedgerSlice, found: RowsWitness, **fields: Any) -> dict[tuple[str, int], Spans]:
    return dict(questions(CHECK, witnesses(slice_, rows=found, **fields)))


def wants(slice_: LedgerSlice, **fields: Any) -> bool:
    return wants_rows(CHECK, witnesses(slice_, **fields))


def passed(verdict: Verdict) -> bool:
    return verdict.failures == 0 and verdict.warnings == 0 and verdict.unproved is None and verdict.skipped is None


# -- sinks that keep no record of their writes -----------------------------------------------------------------------


def test_a_retry_may_double_rows_of_a_sink_that_keeps_no_record() -> None:
    """Of the first micro-batch of each run; other runs, and other sinks, need no rows."""
    fields: dict[str, Any] = {
        "sink_logs": {SINK: SinkLog(location="files", exists=True, recorded=False)},
        "guarantees": {SINK: "at-least-once"},
    }
    spans = ((0, 10), (10, 20), (20, 30))
    runs = ledger(*(entry(i, *spans[i], run_id=run) for i, run in enumerate(("r-1", "r-1", "r-2"))))
    doubled = rows(group(0, spans[0]), group(1, spans[1]), group(2, spans[2], rows=20))
    assert wants(runs, **fields)
    assert not wants(runs, sink_logs={SINK: SinkLog(location="files", exists=True)})
    same_run = ledger(*(entry(i, *spans[i], run_id="r-1") for i in range(2)))
    went_on = replace(same_run, anchors=1, complete=False)
    assert not wants(went_on, **fields), "its run began with the anchor"
    verdict = judged(runs, doubled, **fields)
    assert (codes(verdict), verdict.failures) == ([Code.REPEATED], 0)
    assert verdict.findings[0].span == spans[2] and same_message(verdict.findings[0].message)
    assert codes(judged(runs, doubled, **fields | {"guarantees": {SINK: "exactly-once, by your function"}})) == [
        Code.DUPLICATE
    ]
    assert passed(judged(runs, rows(*(group(i, span) for i, span in enumerate(spans))), **fields))
    emptied = rows(group(1, spans[1]), group(2, spans[2]))
    assert passed(judged(runs, emptied, **fields)), "what readers removed since it was written shows nothing"
    unread = judged(runs, gone("rows"), **fields)
    assert (codes(unread), unread.unproved) == ([Code.ATTESTED_ONLY], None) and same_message(unread.message)


# -- counts alone ------------------------------------------------------------


def test_as_many_rows_as_offsets_need_no_rows() -> None:
    assert not wants(FULL)
    verdict = judged(FULL)
    assert passed(verdict)
    assert verdict.findings == ()
    assert same_message(verdict.message)
    assert verdict.evidence["proved_by_counts"] == 2


def test_filtered_and_quarantined_rows_count() -> None:
    slice_ = ledger(Entry(0, (0, 10), rows_read=10, rows_written=7, rows_filtered=2, rows_quarantined=1))
    assert not wants(slice_)
    assert passed(judged(slice_))


def test_a_deficit_needs_the_rows() -> None:
    assert wants(SHORT)
    verdict = judged(SHORT)
    assert verdict.failures == 0
    assert verdict.unproved == (
        "the counts of 1 of 2 micro-batches agree; 1 micro-batch (micro-batch 1 (epoch 0)) with 2 offsets without a "
        "counted row: the sink's rows are needed and rows did not answer"
    )


def test_a_deficit_without_spark_is_skipped() -> None:
    verdict = judged(SHORT, gone("rows", skipped=True))
    assert verdict.skipped is not None
    assert verdict.unproved is None
    assert "rows did not answer" in verdict.skipped


def test_a_deficit_in_a_table_without_source_columns() -> None:
    verdict = judged(SHORT, rows(has_source_columns=False))
    assert verdict.unproved is not None
    assert "stamp_source_offsets" in verdict.unproved
    assert passed(judged(FULL, rows(has_source_columns=False)))


def test_unknown_counts_need_the_rows() -> None:
    assert wants(ledger(Entry(0, (0, 10), rows_written=None)))


def test_anchors_are_not_counted() -> None:
    slice_ = ledger(entry(0, 0, 10, 3), entry(1, 10, 20), anchors=1, complete=False)
    assert not wants(slice_)
    assert passed(judged(slice_))
    quiet = judged(replace(slice_, anchors=2))
    assert passed(quiet)
    assert same_message(quiet.message)


def test_a_replay_is_counted_once() -> None:
    replay = entry(1, 10, 20, attempt=2, status="already_committed", sink_version=1)
    verdict = judged(ledger(entry(0, 0, 10), entry(1, 10, 20), replay))
    assert passed(verdict)
    assert verdict.evidence["batches"] == 2


def test_a_ledger_without_entries_proves_nothing() -> None:
    assert judged(None).unproved is not None


def test_more_rows_than_offsets_fail_without_rows() -> None:
    verdict = judged(ledger(entry(0, 0, 10, 12)))
    assert codes(verdict) == [Code.DUPLICATE]
    assert verdict.failures == 1
    assert same_message(verdict.message)


def test_rows_that_a_transform_makes_are_lawful() -> None:
    made = ledger(Entry(0, (0, 10), rows_read=10, rows_written=30, rows_filtered=None))
    assert wants(made)
    assert judged(made).unproved is not None
    found = rows(group(0, (0, 10), rows=30))
    assert passed(judged(made, found, declared=DeclaredRows(explodes=True)))
    undeclared = judged(made, found)
    assert told(undeclared) == [("DUPLICATE", 0, 0, 10)] and same_message(undeclared.message)


def test_a_transform_may_make_fewer_rows_than_there_are_offsets() -> None:
    made = ledger(Entry(0, (0, 10), rows_read=4, rows_written=8, rows_filtered=None))
    assert wants(made)
    holes = rows(group(0, (0, 4), rows=8))
    assert passed(judged(made, holes, probes=probe([(4, 10)]), declared=DeclaredRows(explodes=True)))


def test_trimmed_rows_are_not_taken_for_filtered_ones() -> None:
    """[0, 100) was read again, [0, 60) was dropped as already there."""
    trimmed = Entry(0, (60, 100), epoch=1, rows_read=100, rows_written=40, rows_filtered=60)
    assert not wants(ledger(entry(0, 0, 60), trimmed))
    short = Entry(0, (60, 100), epoch=1, rows_read=100, rows_written=39, rows_filtered=61)
    slice_ = ledger(entry(0, 0, 60), short)
    assert wants(slice_)
    found = rows(group(0, (0, 60)), group(0, (60, 99)))
    verdict = judged(slice_, found, probes=probe([(99, 100)], [(99, 100)], [(99, 100)]))
    assert told(verdict) == [("GAP", 0, 99, 100)]


# -- offsets without a row ------------------------------------------------------------


def test_every_offset_without_a_row_is_asked_about() -> None:
    assert asked(SHORT, HOLES) == {("orders", 0): Spans.of([(14, 15), (19, 20)])}
    assert asked(FULL, rows(group(0, (0, 20)))) == {}
    assert questions(CHECK, witnesses(SHORT)) == {}


def test_control_records() -> None:
    verdict = judged(SHORT, HOLES, probes=probe([(14, 15), (19, 20)]))
    assert passed(verdict)
    assert codes(verdict) == [Code.EXPLAINED]
    assert same_message(verdict.findings[0].message)
    assert same_message(verdict.message)
    assert verdict.evidence["explained"] == {"control": 2}


def test_a_batch_of_markers_alone() -> None:
    markers = ledger(entry(0, 0, 10), entry(1, 10, 12, 0))
    verdict = judged(markers, rows(group(0, (0, 10))), probes=probe([(10, 12)]))
    assert passed(verdict)
    assert codes(verdict) == [Code.EXPLAINED]


def test_aborted_records() -> None:
    verdict = judged(SHORT, HOLES, probes=probe([(14, 15), (19, 20)], uncommitted=[(14, 15)]))
    assert passed(verdict)
    assert same_message(verdict.findings[0].message)


def test_compacted_records() -> None:
    verdict = judged(SHORT, HOLES, probes=probe([(14, 15), (19, 20)]), kafka=kafka(0, 20, policy="compact,delete"))
    assert passed(verdict)
    assert same_message(verdict.findings[0].message)


def test_lost_records() -> None:
    verdict = judged(SHORT, HOLES, probes=probe([(14, 15), (19, 20)], [(14, 15)], [(14, 15)]))
    assert told(verdict) == [("GAP", 0, 14, 15)]
    gap = next(f for f in verdict.findings if f.code is Code.GAP)
    assert (gap.batch_id, gap.epoch) == (1, 0)
    assert "1 control" in next(f.message for f in verdict.findings if f.code is Code.EXPLAINED)


def test_a_lost_range_over_several_batches_is_one_finding() -> None:
    slice_ = ledger(*(entry(i, 10 * i, 10 * i + 10) for i in range(5)))
    found = rows(group(0, (0, 10)), group(1, (10, 15)), group(4, (42, 50)))
    verdict = judged(slice_, found, probes=probe([(15, 42)], [(15, 42)], [(15, 42)]))
    assert told(verdict) == [("GAP", 0, 15, 42)]
    assert same_message(verdict.message)


def after(sequence: int, log_start: int) -> str:
    """Where the log started when the hook asked the broker behind an entry."""
    logs = TopicLogs([0], [0], [log_start], [40], [40])
    return dump_kafka_state(KafkaState(asked_at=NOW, after=sequence, topics={TOPIC: logs}))


@pytest.mark.parametrize(
    ("level", "asked_again", "log_start", "code"),
    [
        ("read_uncommitted", False, 17, "LOSS_RETENTION"),
        ("read_committed", True, 17, "LOSS_RETENTION"),
        ("read_committed", False, 16, "LOSS_RETENTION"),
        # They may have been records of an aborted transaction, and expired since with others.
        ("read_committed", False, 17, "INCONCLUSIVE"),
    ],
)
def test_records_that_expired_while_they_were_read(level: str, asked_again: bool, log_start: int, code: str) -> None:
    """Kafka's log started at 16 when the hook asked the broker again."""
    state = after(2, 16) if asked_again else None
    slice_ = ledger(entry(0, 0, 10), entry(1, 10, 20, 3, isolation_level=level), entry(2, 20, 30, kafka_state=state))
    found = rows(group(0, (0, 10)), group(1, (16, 19)), group(2, (20, 30)))
    verdict = judged(slice_, found, probes=probe([(10, 16), (19, 20)], log_start=log_start))
    assert told(verdict) == [(code, 0, 10, 16)]
    gone_whole = judged(
        slice_, rows(group(0, (0, 10)), group(2, (20, 30))), probes=probe([(10, 20)], log_start=log_start + 4)
    )
    assert told(gone_whole) == [(code, 0, 10, 20)]


def test_holes_that_retention_has_passed_since_are_not_decided() -> None:
    """Offset 10 has a row, so the log reached below 14 when the micro-batch was read."""
    verdict = judged(SHORT, HOLES, probes=probe([(14, 15), (19, 20)], log_start=100))
    assert verdict.failures == 0
    assert verdict.unproved is not None
    assert told(verdict) == [("INCONCLUSIVE", 0, 14, 15), ("INCONCLUSIVE", 0, 19, 20)]


def test_filtered_records_that_were_recorded() -> None:
    slice_ = ledger(
        entry(0, 0, 10), Entry(1, (10, 20), rows_read=10, rows_written=8, rows_filtered=2), entry(2, 20, 30, 9)
    )
    found = rows(group(0, (0, 10)), group(1, (10, 14), (15, 19)), group(2, (20, 29)))
    assert asked(slice_, found) == {("orders", 0): Spans.of([(29, 30)])}
    verdict = judged(slice_, found, probes=probe([(29, 30)]))
    assert passed(verdict)
    assert same_message(verdict.findings[0].message)


def test_filtered_records_beside_markers() -> None:
    slice_ = ledger(Entry(0, (0, 10), rows_read=9, rows_written=8, rows_filtered=1))
    found = rows(group(0, (0, 4), (5, 9)))
    verdict = judged(slice_, found, probes=probe([(4, 5), (9, 10)], [(4, 5)], [(4, 5)]))
    assert passed(verdict)
    assert same_message(verdict.findings[0].message)


def test_more_lost_than_filtered() -> None:
    slice_ = ledger(Entry(0, (0, 10), rows_read=9, rows_written=7, rows_filtered=1))
    found = rows(group(0, (0, 4), (6, 9)))
    both = [(4, 6)]
    verdict = judged(slice_, found, probes=probe([(4, 6), (9, 10)], both, both))
    assert told(verdict) == [("GAP", 0, 4, 6)]


def test_an_entry_that_does_not_say_what_it_filtered() -> None:
    """An entry rebuilt from the Delta log, in a stream whose other entries show a filter."""
    unknown = {"rows_read": None, "rows_filtered": None, "rows_quarantined": None, "status": "rebuilt"}
    filtering = Entry(0, (0, 10), rows_read=10, rows_written=9, rows_filtered=1)
    found = rows(group(0, (0, 9)), group(1, (10, 18)))
    probes = probe([(18, 20)], [(18, 19)], [(18, 19)])
    verdict = judged(ledger(filtering, Entry(1, (10, 20), rows_written=8, **unknown)), found, probes=probes)
    assert verdict.failures == 0
    assert told(verdict) == [("INCONCLUSIVE", 0, 18, 19)]
    assert "does not say how many it filtered" in (verdict.unproved or "")
    plain = rows(group(0, (0, 10)), group(1, (10, 18)))
    verdict = judged(ledger(entry(0, 0, 10), Entry(1, (10, 20), rows_written=8, **unknown)), plain, probes=probes)
    assert told(verdict) == [("GAP", 0, 18, 19)]


def test_kafka_that_gave_no_answer() -> None:
    verdict = judged(SHORT, HOLES)
    assert told(verdict) == [("INCONCLUSIVE", 0, 14, 15), ("INCONCLUSIVE", 0, 19, 20)]
    assert verdict.unproved is not None


def test_a_probe_cut_short_explains_nothing_it_did_not_see() -> None:
    cut = probe([(14, 15), (19, 20)], [(14, 15)], [(14, 15)], truncated="it took too long")
    verdict = judged(SHORT, HOLES, probes=cut)
    assert told(verdict) == [("GAP", 0, 14, 15), ("INCONCLUSIVE", 0, 19, 20)]
    doubtful = judged(SHORT, HOLES, probes=probe([(14, 15), (19, 20)], [(14, 15)], truncated="it took too long"))
    assert doubtful.failures == 0
    assert "it took too long" in (doubtful.unproved or "")


def test_a_probe_that_was_asked_something_else() -> None:
    assert told(judged(SHORT, HOLES, probes=probe([(14, 15)]))) == [("INCONCLUSIVE", 0, 19, 20)]


def test_rows_deleted_from_the_sink_are_missed() -> None:
    log = delta(
        commit(0, entry(0, 0, 10)),
        commit(1, entry(1, 10, 20)),
        commit(2, operation="DELETE", operation_metrics={"numDeletedRows": "3"}, files_removed=1),
    )
    assert wants(FULL, delta=log)
    assert not wants(FULL, delta=delta(*(log.commits[i] for i in (0, 1))))
    assert judged(FULL, gone("rows", skipped=True), delta=log).skipped is not None
    found = rows(group(0, (0, 10)), group(1, (10, 17)))
    verdict = judged(FULL, found, delta=log, probes=probe([(17, 20)], [(17, 20)], [(17, 20)]))
    assert told(verdict) == [("GAP", 0, 17, 20)]


# -- phantoms ------------------------------------------------------------


@pytest.mark.parametrize("level", ["read_uncommitted", None])
@pytest.mark.parametrize("declared", ["read_uncommitted", "read_committed"])
def test_phantom_rows_of_an_uncommitted_stream(level: str | None, declared: str) -> None:
    """Case 45: how the query reads is what Spark's plan says; where nobody knows, recon.yml may be wrong."""
    found = rows(group(0, (0, 10)), group(1, (10, 19)))
    slice_ = ledger(entry(0, 0, 10, isolation_level=level), entry(1, 10, 20, 9, isolation_level=level))
    uncommitted = {"isolation_level": declared}
    assert asked(slice_, found, **uncommitted) == {("orders", 0): Spans.of([(0, 20)])}
    seen = probe([(0, 20)], [(0, 19)], [(0, 12), (15, 19)])
    verdict = judged(slice_, found, probes=seen, **uncommitted)
    assert told(verdict) == [("PHANTOM_ROWS", 0, 12, 15)]
    assert "1 control" in next(f.message for f in verdict.findings if f.code is Code.EXPLAINED)
    fine = judged(slice_, found, probes=probe([(0, 20)], [(0, 19)], [(0, 19)]), **uncommitted)
    assert passed(fine)


def test_rows_of_an_open_transaction_are_no_phantoms_yet() -> None:
    found = rows(group(0, (0, 10)), group(1, (10, 19)))
    seen = probe([(0, 20)], [(0, 19)], [(0, 12)], last_stable=12)
    verdict = judged(ledger(entry(0, 0, 10), entry(1, 10, 20, 9)), found, probes=seen)
    assert told(verdict) == [("INCONCLUSIVE", 0, 19, 20)]


# -- duplicates ------------------------------------------------------------


def test_offsets_read_twice_need_the_rows() -> None:
    twice = ledger(entry(0, 0, 10), entry(1, 5, 20))
    assert wants(twice)
    assert "5 offsets were read twice" in (judged(twice).unproved or "")
    verdict = judged(twice, rows(group(0, (0, 10)), group(1, (5, 20))))
    assert told(verdict) == [("DUPLICATE", 0, 5, 10)]
    assert passed(judged(twice, rows(group(0, (0, 10)), group(1, (10, 20)))))


def test_a_new_checkpoint_from_earliest_doubles_rows() -> None:
    """Both epochs have a micro-batch 0, so their rows fall into one group."""
    again = ledger(entry(0, 0, 10), entry(0, 0, 6, epoch=1))
    verdict = judged(again, rows(group(0, (0, 10), rows=16)))
    assert told(verdict) == [("DUPLICATE", 0, 0, 6)]


def test_offsets_that_another_micro_batch_read_too_are_not_blamed_for_doubled_rows() -> None:
    """As many offsets were read again as rows are doubled; which rows these are, nothing tells."""
    again = ledger(entry(0, 0, 10, 8), entry(1, 8, 20, 14))
    verdict = judged(again, rows(group(0, (0, 8)), group(1, (8, 20), rows=14)))
    assert told(verdict) == [("DUPLICATE", 0, 8, 20)]


def test_one_batch_written_twice() -> None:
    verdict = judged(SHORT, rows(group(0, (0, 10)), group(1, (10, 18), rows=11)), probes=probe([(18, 20)]))
    assert told(verdict) == [("DUPLICATE", 0, 10, 18)]
    assert same_message(verdict.message)


def test_duplicates_of_earlier_periods_are_not_judged_again() -> None:
    slice_ = ledger(entry(0, 0, 10), entry(1, 10, 20, 9), anchors=1, complete=False)
    found = rows(group(0, (0, 10), rows=12), group(1, (10, 19)))
    assert passed(judged(slice_, found, probes=probe([(19, 20)])))


def test_rows_of_a_recreated_topic_share_offsets_lawfully() -> None:
    slice_ = ledger(Entry(0, (0, 10)), Entry(1, span(0, 6, topic_id="id-2"), rows_written=5, rows_read=5))
    records = probe([(0, 6)], [(0, 5)], [(0, 5)])
    assert passed(judged(slice_, rows(group(0, (0, 10)), group(1, (0, 5))), probes=records))
    thrice = rows(group(0, (0, 10)), group(1, (0, 5)), group(7, (2, 3)))
    assert told(judged(slice_, thrice, probes=records)) == [("DUPLICATE", 0, 2, 3)]
    beyond = rows(group(0, (0, 10)), group(1, (0, 5)), group(7, (3, 8)))
    assert ("DUPLICATE", 0, 3, 5) in told(judged(slice_, beyond, probes=probe([(5, 6)])))


# -- rows nobody accounts for ------------------------------------------------------------


def test_rows_beyond_the_ledger() -> None:
    log = delta(commit(0, entry(0, 0, 10)), commit(1, entry(1, 10, 20, 8)))
    found = rows(group(0, (0, 10)), group(1, (10, 14), (15, 19)), group(9, (50, 55)), version=1)
    probes = probe([(14, 15), (19, 20)])
    verdict = judged(SHORT, found, probes=probes, delta=log)
    assert told(verdict) == [("UNSTAMPED", 0, 50, 55)]
    assert (verdict.failures, verdict.warnings) == (0, 1)
    # A micro-batch that landed after the log was read, or that lacks only its entry, is no stranger.
    assert told(judged(SHORT, replace(found, version=2), probes=probes, delta=log)) == []
    late = delta(*log.commits.values(), commit(2, entry(9, 50, 55)))
    assert told(judged(SHORT, replace(found, version=2), probes=probes, delta=late)) == []
    past = {"period_to": NOW.replace(hour=1)}
    assert told(judged(SHORT, found, probes=probes, delta=log, **past)) == []
    assert told(judged(replace(SHORT, complete=False), found, probes=probes, delta=log)) == []


def test_rows_without_a_batch_id() -> None:
    verdict = judged(SHORT, replace(HOLES, unstamped_rows=4), probes=probe([(14, 15), (19, 20)]))
    assert told(verdict) == [("UNSTAMPED", None, None, None)]


# -- properties ------------------------------------------------------------


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.sets(st.integers(0, 53), max_size=12),
    st.sets(st.integers(0, 53), max_size=12),
)
def test_exactly_what_kafka_has_and_no_row_carries_is_lost(sizes: list[int], without: set[int], lost: set[int]) -> None:
    """Any split into batches, any holes: both readers see `lost`, nobody sees the others."""
    cuts = [0]
    for size in sizes:
        cuts.append(cuts[-1] + size)
    missing = {x for x in without | lost if x < cuts[-1]}
    there = Spans.of_offsets(set(range(cuts[-1])) - missing)
    entries, groups = [], []
    for batch, (start, end) in enumerate(pairwise(cuts)):
        mine = there.intersect(Spans.of([(start, end)]))
        entries.append(entry(batch, start, end, mine.size))
        if mine:
            groups.append(group(batch, *mine))
    found: Witnesses = witnesses(ledger(*entries), rows=rows(*groups))
    holes = Spans.of_offsets(missing)
    assert dict(questions(CHECK, found)) == ({("orders", 0): holes} if holes else {})
    gone_for_good = Spans.of_offsets(x for x in lost if x < cuts[-1])
    probes = probe([(0, cuts[-1])], list(gone_for_good), list(gone_for_good))
    verdict = CHECK.judge(replace(found, probes=probes))
    assert [(f.start_offset, f.end_offset) for f in verdict.findings if f.code is Code.GAP] == list(gone_for_good)
    assert verdict.unproved is None
    assert sum(verdict.evidence["explained"].values()) == len(missing) - gone_for_good.size


# -- rows that were there and are gone ---------------------------------------------


def test_a_row_that_the_commit_counted_and_nobody_finds_is_a_gap_without_asking_kafka() -> None:
    found = witnesses(ledger(entry(0, 0, 10, 10)), rows=rows(group(0, (0, 4), (6, 10))))
    assert dict(questions(CHECK, found)) == {}
    verdict = CHECK.judge(found)
    assert [(f.code, f.start_offset, f.end_offset) for f in verdict.findings] == [(Code.GAP, 4, 6)]
    assert same_message(verdict.findings[0].message)


def test_what_a_restored_entry_does_not_know_its_replay_tells() -> None:
    restored = entry(1, 10, 20, 6, status="rebuilt", rows_read=None, rows_filtered=None)
    assert wants(ledger(entry(0, 0, 10, 7, rows_read=10, rows_filtered=3), restored))
    replay = entry(1, 10, 20, 6, status="already_committed", attempt=2, sink_version=1, rows_read=10, rows_filtered=4)
    slice_ = ledger(entry(0, 0, 10, 7, rows_read=10, rows_filtered=3), restored, replay)
    assert not wants(slice_) and passed(judged(slice_))


# -- rows that others added --------------------------------------------------------------------------------------------


def others_added(slice_: LedgerSlice, *entries: Entry, each: int = 2, **fields: Any) -> Verdict:
    """The verdict where a commit of another program added rows, and offsets [3, 5) have several."""
    log = delta(*(commit(n, e) for n, e in enumerate(entries)), commit(len(entries)))
    groups = (group(n, *((r.start_offset, r.end_offset) for r in e.ranges)) for n, e in enumerate(entries))
    return judged(slice_, rows(*groups, repeated=[group(0, (3, 5), rows=2 * each)]), delta=log, **fields)


def test_rows_that_others_added_of_records_that_are_there_are_doubled() -> None:
    entries = (entry(0, 0, 10), entry(1, 10, 20))
    assert wants(FULL, delta=delta(commit(0, entries[0]), commit(1, entries[1]), commit(2)))
    assert told(others_added(ledger(*entries), *entries)) == [("DUPLICATE", 0, 3, 5)]


def test_rows_that_were_there_before_the_first_entry_are_compared_where_they_name_their_records() -> None:
    """Of a query that writes without recon: where no row says its record, no audit could compare any."""
    observed = replace_head(entry(0, 0, 10), status="observed", sink_version=1)
    log = delta(commit(0), commit(1, observed))
    fields: dict[str, Any] = {"delta": log, "observed": True, "source_columns": "partition, offset"}
    assert wants(ledger(observed), **fields)
    assert not wants(ledger(observed), **fields | {"source_columns": ""})
    assert not wants(ledger(observed), **fields | {"delta": delta(commit(0, rows_added=0), commit(1, observed))})
    for complete in (True, False):
        audited = replace(ledger(observed, entry(1, 10, 20, sink_version=2)), anchors=1, complete=complete)
        assert not wants(audited, **fields), "the first audit saw them"
    one = group(WITHOUT_NUMBER, (0, 10), rows=13)
    found = rows(one, repeated=[group(0, (3, 6), rows=6)])
    verdict = judged(ledger(observed), found, **fields)
    assert {code for code, *_ in told(verdict)} == {"DUPLICATE"}, told(verdict)
    # The query's own rows of earlier micro-batches share offsets where the topic was created again.
    own = replace(log, unstamped={0: Unstamped.BEFORE})
    assert "INCONCLUSIVE" in {code for code, *_ in told(judged(ledger(observed), found, **fields | {"delta": own}))}


def test_rows_of_one_record_may_be_lawful_where_the_query_makes_several_or_the_topic_is_another() -> None:
    exploding = (entry(0, 0, 10, 25, rows_read=10), entry(1, 10, 20))
    assert ("INCONCLUSIVE", 0, 3, 5) in told(others_added(ledger(*exploding), *exploding))
    again = Entry(1, span(0, 10, topic_id="id-2"), rows_written=10, rows_read=10)
    assert ("INCONCLUSIVE", 0, 3, 5) in told(others_added(ledger(entry(0, 0, 10), again), entry(0, 0, 10), again))


def test_rows_of_one_offset_that_are_more_than_the_topics_of_its_name_are_doubled() -> None:
    """Rows carry no topic id; of each topic a record has one row."""
    entries = (entry(0, 0, 10), Entry(1, span(0, 4, topic_id="id-2"), rows_written=4, rows_read=4))
    found = told(others_added(ledger(*entries), *entries, each=3))
    assert ("DUPLICATE", 0, 3, 5) in found
    assert ("INCONCLUSIVE", 0, 3, 5) in told(others_added(ledger(*entries), *entries)), "each topic may have one"


def test_a_topic_that_was_read_before_the_period() -> None:
    """The proof remembers its id, and what was read of it."""
    now = Entry(1, span(0, 10, topic_id="id-2"), rows_written=10, rows_read=10)
    before = CoveredRanges(source=0, topic=TOPIC, topic_id="id-1", partition=0, ranges=((0, 10),))
    proofs = Proofs(of_sink={SINK: sink_proof(coverage=(before,))})
    assert ("INCONCLUSIVE", 0, 3, 5) in told(others_added(ledger(now), now, proofs=proofs))
    assert ("DUPLICATE", 0, 3, 5) in told(others_added(ledger(now), now, proofs=proofs, each=3))


# -- calls of the hook that were not written ---------------------------------------------------------------------------


def called(
    number: int, transform: str | None, run_id: str | None = "r-1", *, again: bool = False, **head: Any
) -> Entry:
    """A call for micro-batch 0, of whose ten records the first transform keeps five."""
    status = "already_committed" if again else "committed"
    counts: dict[str, Any] = {"rows_read": 10, "rows_written": 5, "rows_filtered": 5, "sink_version": 0}
    of_call = {"attempt": number, "status": status, "transform": transform, "run_id": run_id}
    return Entry(0, (0, 10), **{**counts, **of_call, **head})


HALF = rows(group(0, (0, 5)))
RECORDS = probe([(0, 10)], [(0, 10)], [(0, 10)])
TWO_CALLS = (called(1, "job:even"), called(2, "job:odd", again=True))


def of_calls(*calls: Entry, found: RowsWitness = HALF, **fields: Any) -> Verdict:
    return judged(ledger(*calls, **fields), found, probes=RECORDS)


def test_what_a_transform_filtered_is_missing_where_a_call_with_another_one_was_not_written() -> None:
    assert wants(ledger(*TWO_CALLS))
    assert told(of_calls(*TWO_CALLS)) == [("GAP", 0, 5, 10)]


def test_in_a_later_run_too() -> None:
    later = (called(2, "job:even", "r-2", again=True), called(3, "job:odd", "r-2", again=True))
    assert told(of_calls(called(1, "job:even"), *later)) == [("GAP", 0, 5, 10)]


def test_a_new_run_may_have_another_transform() -> None:
    slice_ = ledger(called(1, "job:even"), called(2, "job:odd", "r-2", again=True))
    assert not wants(slice_) and passed(judged(slice_))


@pytest.mark.parametrize(
    ("first", "second", "run_id"),
    [
        ("job:even", "job:even", "r-1"),
        ("job:even", "job:odd", None),
        ("job:even routes:0011aabb", "job:odd routes:0011aabb", "r-1"),
    ],
    ids=["two functions may have one name", "the run is not known", "rows of other routes"],
)
def test_what_is_filtered_is_not_known_where_a_call_may_not_have_been_written(
    first: str, second: str, run_id: str | None
) -> None:
    calls = (called(1, first, run_id), called(2, second, run_id, again=True))
    assert told(of_calls(*calls)) == [("INCONCLUSIVE", 0, 5, 10)]
    nothing_filtered = (replace_head(call, rows_written=10, rows_filtered=0) for call in calls)
    known_to_differ = first != second and run_id is not None
    assert passed(of_calls(*nothing_filtered, found=rows(group(0, (0, 10))))) is not known_to_differ


def replace_head(entry: Entry, **head: Any) -> Entry:
    return Entry(entry.batch_id, *entry.ranges, **{**entry.head, **head})


def test_a_call_that_was_not_written_where_every_record_has_a_row() -> None:
    """It may have made further rows of them."""
    whole = [replace_head(call, rows_written=10, rows_filtered=0) for call in TWO_CALLS]
    verdict = of_calls(*whole, found=rows(group(0, (0, 10))))
    assert [(f.code, f.span, f.batch_id) for f in verdict.findings] == [(Code.INCONCLUSIVE, None, 0)]


def test_a_call_that_may_not_have_been_written_where_kafka_shows_no_record_any_more() -> None:
    calls = (called(1, "job:even"), called(2, "job:even", again=True))
    compacted = probe([(0, 10)], [(0, 5)], [(0, 5)])
    verdict = judged(ledger(*calls), HALF, probes=compacted, kafka=kafka(0, 10, policy="compact"))
    assert told(verdict) == [("INCONCLUSIVE", None, None, None)]


def test_a_call_that_was_not_written_behind_the_entry_that_an_audit_judged() -> None:
    verdict = of_calls(*TWO_CALLS, anchors=1, complete=False)
    assert [(f.code, f.span, f.batch_id) for f in verdict.findings] == [(Code.INCONCLUSIVE, None, 0)]
    assert "--full" in verdict.findings[0].message


def test_a_repair_reads_again_what_a_call_was_not_written_of() -> None:
    repair = Entry(
        0, (5, 10), epoch=REPAIRS, status="repaired", rows_read=5, rows_written=5, rows_filtered=0, sink_version=1
    )
    assert told(of_calls(*TWO_CALLS, repair, found=rows(group(0, (0, 10))))) == []


def test_a_call_that_was_not_written_into_a_sink_that_replaces_rows() -> None:
    verdict = judged(ledger(*TWO_CALLS), probes=RECORDS, rewriting={SINK})
    assert told(verdict) == [("GAP", 0, 0, 10)]
