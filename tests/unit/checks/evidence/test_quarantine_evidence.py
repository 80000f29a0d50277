"""What the judges make of rows in quarantine, and of releases, which are no micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recon.audits.summary import sink_facts
from recon.checks.base import EvidenceCheck
from recon.checks.evidence.checkpoint_commits import CheckpointCommits
from recon.checks.evidence.delta_history import DeltaHistory
from recon.checks.evidence.ledger_integrity import LedgerIntegrity
from recon.checks.evidence.offset_continuity import OffsetContinuity
from recon.checks.evidence.source_rows import SourceRows
from recon.judge.case import SinkCase
from recon.judge.rows.foreign_rows import search
from recon.model import Code, DeclaredRows, QuarantinedRows, RowGroup, RowsWitness, TableLog, Unavailable, Verdict
from recon.project import DeltaSink
from recon.testing.evidence import PIPELINE, SINK, START, Entry, gone, ledger, span
from tests.support.asked import questions, wants_rows
from tests.support.messages import same_message
from tests.support.witnesses import codes, commit, delta, group, rows, told, witnesses

CHECK = SourceRows()
ASIDE = Entry(1, (10, 20), rows_written=7, rows_quarantined=3)
BOTH = ledger(Entry(0, (0, 10)), ASIDE)
HELD = Entry(1, rows_written=3)  # what its commit to the quarantine table holds


def release(number: int, written: int, **head: Any) -> Entry:
    fields = {"epoch": -1, "status": "released", "rows_read": written, "rows_written": written, "query_id": "release"}
    return Entry(number, **{**fields, **head})


def log(*commits: Any, exists: bool = True) -> dict[str, TableLog]:
    return {SINK: replace(delta(*commits), exists=exists)}


def deletion(version: int) -> Any:
    return commit(version, operation="DELETE", files_removed=1, rows_added=0, rows_removed=2)


def judged(found: RowsWitness | None = None, slice_: Any = BOTH, **fields: Any) -> Verdict:
    return CHECK.judge(witnesses(slice_, **({"rows": found} if found else {}), **fields))


def wants(slice_: Any = BOTH, **fields: Any) -> bool:
    return wants_rows(CHECK, witnesses(slice_, **fields))


# -- counts ------------------------------------------------------------------------------------------------------


def test_a_claim_of_the_log_that_changes_no_number_of_rows_asks_nothing() -> None:
    claimed = commit(
        2, operation="MERGE", files_removed=1,
        operation_metrics={"numTargetRowsUpdated": "2", "numTargetRowsDeleted": "0"},
    )  # fmt: skip
    assert not wants(quarantine=log(commit(1), claimed))


@pytest.mark.parametrize(
    ("quarantine", "why"),
    [
        (log(commit(1, HELD), deletion(2)), "version 2 of the quarantine table removed rows"),
        (log(exists=False), "there is no quarantine table"),
        ({}, "there is no quarantine table"),
        (Unavailable("quarantine", "torn"), "that log was not read (torn)"),
    ],
)
def test_a_quarantine_that_may_have_lost_rows_needs_them(quarantine: Any, why: str) -> None:
    assert wants(quarantine=quarantine)
    verdict = judged(quarantine=quarantine)
    assert verdict.unproved is not None and why in verdict.unproved


def test_a_quarantine_table_that_was_made_again_is_not_believed() -> None:
    other = Entry(7, rows_written=3)
    entered = {"entered": {(0, 1): 3}, "released": {}}
    for held in ({}, {(0, 1, None): 2}, {(1, 1, None): 3}, {(0, 7, None): 3}):
        counted = {SINK: QuarantinedRows(rows=held, **entered)}
        verdict = judged(quarantine=log(commit(0, other)), quarantine_rows=counted)
        assert verdict.unproved is not None
        assert "that should wait in the quarantine table are not there" in verdict.unproved
    unknown = {SINK: gone("quarantine")}
    assert wants(quarantine=log(commit(0, other)), quarantine_rows=unknown)
    there = {SINK: QuarantinedRows(rows={(0, 1, None): 3}, **entered)}
    assert not wants(quarantine=log(commit(0, HELD), commit(1, other)), quarantine_rows=there)
    undone = log(commit(0), commit(1, HELD), commit(2, operation="RESTORE", operation_parameters={"version": "0"}))
    assert wants(quarantine=undone) and Code.MUTATED in codes(judged(quarantine=undone))


def test_without_quarantined_rows_its_log_is_nobodys_business() -> None:
    assert not wants(ledger(Entry(0, (0, 10))), quarantine=gone("quarantine"))


def test_quarantine_is_no_transform() -> None:
    """Rows read are more than rows written, and still a shortage elsewhere is a loss and not a filter."""
    short = ledger(ASIDE, Entry(2, (20, 30), rows_read=10, rows_written=9, rows_filtered=0))
    assert wants(short)


def test_a_restored_entry_learns_from_its_replay() -> None:
    restored = Entry(1, (10, 20), rows_read=None, rows_written=7, rows_quarantined=None, rows_filtered=None,
                     status="rebuilt", sink_version=1)  # fmt: skip
    replay = Entry(1, (10, 20), rows_read=None, rows_written=7, rows_quarantined=3, rows_filtered=None, attempt=2,
                   status="already_committed", sink_version=1)  # fmt: skip
    alone, both = (judged(None, ledger(Entry(0, (0, 10)), *entries)) for entries in ([restored], [restored, replay]))
    assert alone.evidence["proved_by_counts"] == 1 and both.evidence["proved_by_counts"] == 2
    # Though nothing shows which rows they are.
    assert wants(ledger(Entry(0, (0, 10)), restored, replay))


# -- rows --------------------------------------------------------------------------------------------------------

SINK_ROWS = rows(group(0, (0, 10)), group(1, (10, 17)))
LOST = log(commit(1, HELD), deletion(2))


def test_offsets_in_quarantine_are_explained() -> None:
    verdict = judged(replace(SINK_ROWS, quarantined=(group(1, (17, 20)),)), quarantine=LOST)
    assert verdict.failures == 0 and verdict.unproved is None
    assert verdict.evidence["explained"] == {"quarantined": 3} and codes(verdict) == [Code.EXPLAINED]
    assert questions(CHECK, witnesses(BOTH, rows=replace(SINK_ROWS, quarantined=(group(1, (17, 20)),)))) == {}


def test_released_rows_are_neither_missing_nor_doubled() -> None:
    there = rows(group(0, (0, 10)), group(1, (10, 18)))
    slice_ = ledger(Entry(0, (0, 10)), ASIDE, release(0, 1))
    verdict = judged(replace(there, quarantined=(group(1, (17, 20)),)), slice_, quarantine=LOST)
    assert verdict.failures == 0 and verdict.evidence["explained"] == {"quarantined": 2}
    assert Code.DUPLICATE not in codes(verdict) and Code.UNSTAMPED not in codes(verdict)


def taken(number: int, *present: tuple[int, int]) -> RowGroup:
    return replace(group(number, *present), release=number)


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (release(0, 3), "GAP"),
        (release(0, 1, rows_read=3, rows_filtered=2), None),
        (release(0, 2, rows_read=3, rows_filtered=1), "GAP"),
        (release(0, 1, status="rebuilt", rows_read=None, rows_filtered=None), "INCONCLUSIVE"),
        (release(1, 3), "INCONCLUSIVE"),  # 0 was claimed, and is in no ledger
    ],
)
def test_rows_that_were_released_and_are_not_in_the_sink(entry: Entry, code: str | None) -> None:
    there = rows(group(0, (0, 10)), group(1, (10, 18)), quarantined=(taken(0, (17, 20)),))
    verdict = judged(there, ledger(Entry(0, (0, 10)), ASIDE, entry), quarantine=LOST)
    assert told(verdict) == ([] if code is None else [(code, 0, 18, 20)])
    assert verdict.evidence["offsets_without_row"] == 2
    assert verdict.evidence["explained"] == ({"filtered": 2} if code is None else {})
    assert (verdict.failures > 0) == (code == "GAP")


def test_a_claim_without_entry_is_looked_at() -> None:
    claim = commit(2, operation="MERGE", txn={f"recon:{PIPELINE}:{SINK}:-1:claim": 0}, rows_added=3, files_removed=1,
                   operation_metrics={"numTargetRowsUpdated": "3", "numTargetRowsDeleted": "0"})  # fmt: skip
    claimed = log(commit(1), claim)
    verdict = judged(quarantine=claimed)
    assert verdict.unproved is not None and "release 0 was claimed and has no ledger entry" in verdict.unproved
    assert not wants(ledger(Entry(0, (0, 10)), ASIDE, release(0, 3)), quarantine=claimed)
    given_back = commit(3, operation="UPDATE", files_removed=1, user_metadata='{"recon_given_back": 0}')
    assert not wants(quarantine=log(commit(1), claim, given_back))
    assert not wants(quarantine=claimed, period_from=START + timedelta(minutes=3))
    assert not wants(quarantine=claimed, period_to=START + timedelta(minutes=2))


def test_rows_put_aside_in_an_earlier_life_of_a_topic_explain_nothing_of_the_new_one() -> None:
    old = Entry(0, span(0, 10), rows_written=7, rows_quarantined=3)
    new = Entry(0, span(0, 10, topic_id="id-2"), epoch=1, query_id="q-2", rows_written=7, rows_quarantined=3)
    there = [group(0, (0, 7), rows=14)]
    waits = (group(0, (7, 10)), replace(group(0, (7, 10)), epoch=1))
    both = judged(rows(*there, quarantined=waits), ledger(old, new), quarantine=LOST)
    assert both.evidence["explained"] == {"quarantined": 6} and Code.GAP not in codes(both)
    for left in waits:
        one = judged(rows(*there, quarantined=(left,)), ledger(old, new), quarantine=LOST)
        assert one.evidence["explained"] == {} and ("GAP", 0, 7, 10) in told(one)


def test_rows_deleted_from_quarantine_are_a_gap() -> None:
    verdict = judged(replace(SINK_ROWS, quarantined=(group(1, (17, 18)),)), quarantine=LOST)
    assert told(verdict) == [("GAP", 0, 18, 20)]
    assert same_message(verdict.message)


def test_what_was_filtered_is_told_apart_from_what_was_put_aside() -> None:
    slice_ = ledger(Entry(0, (0, 10), rows_read=10, rows_written=5, rows_quarantined=3, rows_filtered=2))
    found = rows(group(0, (0, 5)), quarantined=(group(0, (5, 8)),))
    verdict = judged(found, slice_, quarantine=LOST)
    assert verdict.failures == 0 and verdict.evidence["explained"] == {"quarantined": 3, "filtered": 2}


# -- releases ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_release_is_no_micro_batch(place: int) -> None:
    entries = [Entry(0, (0, 10), sink_version=0), Entry(1, (10, 20), sink_version=1)]
    entries.insert(place, release(0, 3, sink_version=2))
    slice_ = ledger(*entries)
    verdict = OffsetContinuity().judge(witnesses(slice_))
    assert codes(verdict) == [] and verdict.evidence["batches"] == 2
    assert codes(LedgerIntegrity().judge(witnesses(slice_))) == []
    assert judged(None, slice_).evidence["batches"] == 2
    drawn = sink_facts(DeltaSink(name=SINK, target="t"), "t", witnesses(slice_), ())
    assert (drawn.batches, drawn.epochs, drawn.rows_written, len(drawn.points)) == (2, 1, 23, 2)


def test_its_commit_is_ours_and_must_be_there() -> None:
    first, again = Entry(0, (0, 10), sink_version=0), release(0, 3, sink_version=1)
    slice_ = ledger(first, again)
    check: Callable[..., Verdict] = lambda *commits: DeltaHistory().judge(witnesses(slice_, delta=delta(*commits)))  # noqa: E731
    assert codes(check(commit(0, first), commit(1, again))) == []
    orphan = check(commit(0, first))
    assert codes(orphan) == [Code.LEDGER_ORPHAN] and same_message(orphan.message)
    missing = DeltaHistory().judge(witnesses(ledger(first), delta=delta(commit(0, first), commit(1, again))))
    assert codes(missing) == [Code.LEDGER_MISSING] and same_message(missing.message)


def test_the_rows_of_a_release_are_looked_for_in_the_whole_sink() -> None:
    aside, again = Entry(1, (10, 20), rows_written=7, rows_quarantined=3, sink_version=1), release(0, 3, sink_version=2)
    slice_ = ledger(Entry(0, (0, 10), sink_version=0), aside, again, anchors=2, complete=False)
    of_log = {"delta": delta(commit(0, Entry(0)), commit(1, aside), commit(2, again))}
    assert wants(slice_, **of_log) and search(SinkCase(witnesses(slice_, **of_log))).versions == [2]
    lawful = {**of_log, "declared": DeclaredRows(explodes=True)}
    assert not wants(slice_, **lawful) and not search(SinkCase(witnesses(slice_, **lawful)))
    found = replace(rows(), repeated=(replace(group(0, (17, 18)), rows=2),))
    verdict = judged(found, slice_, **of_log)
    assert told(verdict) == [("DUPLICATE", 0, 17, 18)] and same_message(verdict.message)


def test_checks_of_a_ledger_that_holds_releases_alone() -> None:
    checks: list[EvidenceCheck] = [OffsetContinuity(), SourceRows(), CheckpointCommits()]
    for check in checks:
        assert check.judge(witnesses(ledger(release(0, 3)))).failures == 0


def test_a_commit_that_a_crash_left_unrecorded_is_seen_behind_a_release() -> None:
    first, crashed = Entry(0, (0, 10), sink_version=0), Entry(1, (10, 20), sink_version=1)
    releases = [release(n, 3, sink_version=2 + n) for n in range(2)]
    later = Entry(2, (20, 30), sink_version=4)
    slice_ = ledger(first, releases[1], later, anchors=2, complete=False)  # release 0 lies before the period
    slice_ = replace(slice_, recorded=[(-1, 0, 2)])  # the whole ledger has it
    commits = [commit(v, e) for v, e in enumerate([first, crashed, *releases, later])]
    since = START + timedelta(minutes=3, seconds=30)
    verdict = DeltaHistory().judge(witnesses(slice_, delta=delta(*commits), period_from=since))
    assert [(f.code, f.batch_id, f.epoch) for f in verdict.findings] == [(Code.LEDGER_MISSING, 1, 0)]


def test_a_release_without_entry_is_missing_whatever_later_ones_were_entered() -> None:
    first = Entry(0, (0, 10), sink_version=0)
    lost, later = release(0, 3, sink_version=1), release(1, 3, sink_version=2)
    log_ = delta(*(commit(v, e) for v, e in enumerate([first, lost, later])))
    whole = DeltaHistory().judge(witnesses(ledger(first, later), delta=log_))
    assert [(f.code, f.batch_id, f.epoch) for f in whole.findings] == [(Code.LEDGER_MISSING, 0, -1)]
    period = ledger(first, later, anchors=1, complete=False)
    found = DeltaHistory().judge(witnesses(period, delta=log_, period_from=START + timedelta(seconds=30)))
    assert [(f.code, f.batch_id, f.epoch) for f in found.findings] == [(Code.LEDGER_MISSING, 0, -1)]
