"""source_rows where the query keeps state: what Spark's own counts prove, attest, or leave open."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from recon.checks.evidence.source_rows import SourceRows
from recon.judge.case import SinkCase
from recon.judge.row_counts import Processing, counted_entries
from recon.judge.stateful_operators import Operators
from recon.model import BatchProgress, Code, ProgressWitness, Verdict
from recon.testing.evidence import NOW, START, Entry, checkpoint, gone, ledger
from tests.support.asked import questions, wants_rows
from tests.support.witnesses import codes, group, probe, rows, witnesses


def said(batch_id: int, **fields: Any) -> BatchProgress:
    """Of 10 rows read, 4 duplicates fell."""
    made: dict[str, Any] = {
        "query_id": "q-1",
        "run_id": "r",
        "batch_id": batch_id,
        "at": START,
        "rows": 10,
        "seconds": 1.0,
        "state_operators": ("dedupe",),
        "dropped_late": 0,
        "dropped_duplicates": 4,
    }
    return BatchProgress(**{**made, **fields})


def given(entry: Entry, *told: BatchProgress, **fields: Any) -> Any:
    progress = ProgressWitness(location="lake/progress", batches=told)
    return witnesses(ledger(entry), **{"progress": progress, "checkpoint": _stateful(), **fields})


def _stateful() -> Any:
    return replace(checkpoint(), stateful=True)


def deduplicated(written: int = 6, **head: Any) -> Entry:
    return Entry(0, (0, 10), rows_read=written, rows_written=written, rows_filtered=0, **head)


BARE = rows(has_source_columns=False)


def judged(seen: Any) -> Verdict:
    return SourceRows().judge(seen)


def test_what_fell_is_proved_by_counts() -> None:
    seen = given(deduplicated(), said(0))
    assert not wants_rows(SourceRows(), seen)
    found = judged(seen)
    assert (found.failures, found.unproved, found.evidence["dropped_by_state"]) == (0, None, 4)
    assert codes(found) == []


def test_late_rows_fall_too_and_a_filter_after_the_state_adds_up() -> None:
    late = given(deduplicated(), said(0, dropped_late=3, dropped_duplicates=1))
    assert judged(late).evidence["proved_by_counts"] == 1
    filtered = Entry(0, (0, 10), rows_read=6, rows_written=5, rows_filtered=1)
    assert judged(given(filtered, said(0))).evidence["proved_by_counts"] == 1


def test_counts_that_do_not_add_up_prove_nothing() -> None:
    for told in (said(0, rows=11), said(0, dropped_duplicates=3), said(0, dropped_duplicates=5)):
        seen = given(deduplicated(), told)
        assert wants_rows(SourceRows(), seen)
        assert judged(seen).unproved is not None


def test_a_row_too_few_is_found_among_those_that_fell() -> None:
    """6 came out of the state and 5 are in the table: what fell explains 4 of the 5 absent offsets, and not which."""
    lost = Entry(0, (0, 10), rows_read=6, rows_written=6, rows_filtered=0)
    present = rows(group(0, (0, 5)))
    seen = given(lost, said(0), rows=present)
    assert questions(SourceRows(), seen)
    found = judged(replace(seen, probes=probe([(5, 10)], [(5, 10)], [(5, 10)])))
    assert Code.GAP in codes(found) and found.failures


def test_without_a_listener_an_absent_row_is_neither_lost_nor_explained() -> None:
    asked = probe([(6, 10)], [(6, 10)], [(6, 10)])
    blind = given(deduplicated(), rows=rows(group(0, (0, 6))), probes=asked)
    found = judged(blind)
    assert codes(found) == [Code.INCONCLUSIVE] and "ProgressListener" in str(found.unproved)
    # The same rows of a query without state are lost.
    stateless = replace(blind, checkpoint=checkpoint())
    assert Code.GAP in codes(judged(stateless))


def test_markers_of_transactions_are_explained_beside_what_fell() -> None:
    """12 offsets: 10 rows were read, 2 are markers, and 4 of the 10 fell."""
    entry = Entry(0, (0, 12), rows_read=6, rows_written=6, rows_filtered=0)
    asked = probe([(6, 12)], [(6, 10)], [(6, 10)])
    found = judged(given(entry, said(0), rows=rows(group(0, (0, 6))), probes=asked))
    assert found.unproved is None and not found.failures
    assert found.evidence["explained"] == {"control": 2, "filtered": 4}


def test_an_aggregate_that_read_every_offset_is_attested() -> None:
    aggregated = Entry(0, (0, 10), rows_read=25, rows_written=25, rows_filtered=0)
    seen = given(aggregated, said(0, state_operators=("stateStoreSave",), dropped_duplicates=0), rows=BARE)
    assert wants_rows(SourceRows(), seen)
    found = judged(seen)
    assert codes(found) == [Code.ATTESTED_ONLY] and found.unproved is None and not found.failures
    unread = given(aggregated, said(0, state_operators=("stateStoreSave",), rows=9), rows=BARE)
    assert judged(unread).unproved is not None, "an offset that nobody read is not attested"
    alone = given(aggregated, rows=BARE)
    assert judged(alone).unproved is not None


def test_rows_of_a_micro_batch_that_read_nothing_are_not_doubled() -> None:
    closing = Entry(0, (10, 10), rows_read=5, rows_written=5, rows_filtered=0)
    seen = given(closing, said(0, state_operators=("stateStoreSave",), rows=0), rows=BARE)
    assert codes(judged(seen)) == [Code.ATTESTED_ONLY]
    without_state = replace(seen, checkpoint=checkpoint(), progress=ProgressWitness(location="", batches=()))
    assert Code.DUPLICATE in codes(judged(without_state))


def test_a_join_gives_a_record_again_with_each_partner() -> None:
    joined = Entry(0, (0, 10), rows_read=20, rows_written=20, rows_filtered=0)
    twice = rows(group(0, (0, 10), rows=20), group(1, (0, 10)))
    seen = given(joined, said(0, state_operators=("symmetricHashJoin",)), rows=twice)
    assert Code.DUPLICATE not in codes(judged(seen))


def test_the_last_minutes_are_awaited_where_a_listener_is_there() -> None:
    before = said(0)
    newest = Entry(1, (0, 10), rows_read=6, rows_written=6, rows_filtered=0, committed_at=NOW - timedelta(minutes=1))
    asked = probe([(6, 10)], [(6, 10)], [(6, 10)])
    fresh = given(newest, before, rows=rows(group(1, (0, 6))), probes=asked)
    found = judged(fresh)
    assert codes(found) == [Code.INFLIGHT] and found.unproved is None
    old = Entry(1, (0, 10), rows_read=6, rows_written=6, rows_filtered=0, committed_at=NOW - timedelta(minutes=9))
    assert judged(given(old, before, rows=rows(group(1, (0, 6))), probes=asked)).unproved is not None
    bare = given(newest, said(0, state_operators=("stateStoreSave",)), rows=BARE)
    assert codes(judged(bare)) == [Code.INFLIGHT]
    nobody = given(newest, rows=rows(group(1, (0, 6))), probes=asked)
    assert judged(nobody).unproved is not None


def test_a_replay_that_computed_nothing_hides_no_counts() -> None:
    told = SinkCase(given(deduplicated(), said(0), said(0, run_id="again", rows=0, dropped_duplicates=0))).operators
    assert told.progress["q-1", 0].rows == 10


def test_a_query_without_state_is_counted_as_before() -> None:
    plain = ledger(Entry(0, (0, 10)), Entry(1, (10, 20), rows_written=9))
    assert counted_entries(plain).counted == counted_entries(plain, Processing()).counted
    assert [counted_entries(plain).counted[n].deficit for n in (0, 1)] == [0, 1]
    assert SinkCase(witnesses(plain, progress=gone("progress"))).operators == Operators()
