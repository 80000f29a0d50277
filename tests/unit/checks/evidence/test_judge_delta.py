"""delta_history: cases 22, 24, 28, 37, 38 and 39."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recon.checks.evidence.delta_history import DeltaHistory
from recon.model import Code, DeltaCommit, DeltaWitness, LedgerSlice, PreviousAudit, Unavailable, Verdict
from recon.testing.evidence import NOW, START, Entry, gone, ledger, span
from tests.support.messages import same_message
from tests.support.witnesses import codes, commit, delta, regular_ledger, told, witnesses

ENTRIES = [Entry(i, (10 * i, 10 * i + 10)) for i in range(4)]
LEDGER = ledger(*ENTRIES)
COMMITS = [commit(i, entry) for i, entry in enumerate(ENTRIES)]


def judged(
    found: DeltaWitness | Unavailable,
    slice_: LedgerSlice | None = LEDGER,
    check: DeltaHistory | None = None,
    **fields: Any,
) -> Verdict:
    return (check or DeltaHistory()).judge(witnesses(slice_, delta=found, **fields))


def log(*more: DeltaCommit, without: Sequence[int] = (), **fields: Any) -> DeltaWitness:
    return delta(*(c for c in COMMITS if c.version not in without), *more, **fields)


def stranger(version: int, operation: str, **fields: Any) -> DeltaCommit:
    return commit(version, operation=operation, **fields)


def restore(version: int, to: object) -> DeltaCommit:
    return stranger(version, "RESTORE", operation_parameters={"version": to, "timestamp": None}, files_removed=1)


# -- entries and their commits --------------------------------------------------------------------------------


def test_entries_and_commits_agree() -> None:
    verdict = judged(log())
    assert (verdict.failures, verdict.warnings, verdict.unproved, verdict.findings) == (0, 0, None, ())
    assert same_message(verdict.message)
    assert verdict.evidence == {"entries": 4, "commits": 4, "versions": [0, 3]}


@pytest.mark.parametrize("texts", [True, False])
def test_an_entry_whose_commit_carries_other_ranges(texts: bool) -> None:
    slice_ = LEDGER if texts else replace(LEDGER, offsets_texts=())
    assert judged(log(), slice_).findings == ()
    verdict = judged(log(commit(3, Entry(3, (30, 39), rows_written=10)), without=[3]), slice_)
    assert codes(verdict) == [Code.LEDGER_ORPHAN]
    assert verdict.findings[0].batch_id == 3
    assert same_message(verdict.message)


def test_a_topic_id_that_one_of_the_two_does_not_know() -> None:
    anonymous = commit(3, Entry(3, span(30, 40, topic_id=None)))
    assert judged(log(anonymous, without=[3])).findings == ()
    assert codes(judged(log(commit(3, Entry(3, span(30, 40, topic_id="id-9"))), without=[3]))) == [Code.LEDGER_ORPHAN]


def test_an_entry_beyond_the_end_of_the_log() -> None:
    verdict = judged(log(without=[3]))
    assert codes(verdict) == [Code.LEDGER_ORPHAN]
    assert same_message(verdict.message)


def test_an_entry_without_a_version() -> None:
    assert codes(judged(log(), ledger(*ENTRIES, Entry(4, (40, 50), sink_version=None)))) == [Code.LEDGER_ORPHAN]


def test_a_batch_of_nothing_without_a_commit_is_empty() -> None:
    nothing = Entry(4, (40, 40), sink_version=None, rows_written=0)
    verdict = judged(log(), ledger(*ENTRIES, nothing))
    assert codes(verdict) == [Code.EMPTY]
    assert verdict.failures == 0
    filtered = Entry(4, (40, 50), sink_version=None, rows_written=0)
    assert codes(judged(log(), ledger(*ENTRIES, filtered))) == [Code.LEDGER_ORPHAN]


@pytest.mark.parametrize(
    "other",
    [stranger(3, "WRITE"), commit(3, Entry(2, (30, 40))), commit(3, Entry(3, (30, 40), epoch=1))],
)
def test_a_commit_that_is_not_the_entrys(other: DeltaCommit) -> None:
    assert Code.LEDGER_ORPHAN in codes(judged(log(other, without=[3])))


def test_a_table_that_is_gone() -> None:
    verdict = judged(delta(exists=False))
    assert codes(verdict) == [Code.LEDGER_ORPHAN]
    assert same_message(verdict.message)


def test_commits_cleaned_up_from_the_log_are_attested_only() -> None:
    verdict = judged(log(without=[0, 1]))
    assert codes(verdict) == [Code.ATTESTED_ONLY]
    assert (verdict.failures, verdict.warnings) == (0, 1)
    assert same_message(verdict.message)


def test_a_commit_file_missing_in_the_middle() -> None:
    verdict = judged(log(without=[1]))
    assert codes(verdict) == [Code.INCONCLUSIVE]
    assert verdict.unproved is not None
    assert "no commit file for version 1" in verdict.unproved


def test_nothing_read_and_nothing_written_prove_nothing() -> None:
    assert judged(gone("delta")).unproved == "delta did not answer"
    assert judged(log(), None).failures == 0
    assert judged(delta(commit(0, operation="CREATE TABLE", data_change=False)), None).unproved is not None
    other_sink = replace(witnesses(LEDGER, delta=log()), sink="other")
    assert DeltaHistory().judge(other_sink).unproved == "the Delta log of sink other was not read"


# -- rows and metrics -------------------------------------------------------------------------------------------


def test_other_rows_than_the_ledger_claims() -> None:
    verdict = judged(log(replace(COMMITS[3], rows_added=8, operation_metrics={"numOutputRows": "8"}), without=[3]))
    assert codes(verdict) == [Code.LEDGER_ORPHAN]
    assert same_message(verdict.message)


def test_an_inflated_metric_warns_and_the_files_are_believed() -> None:
    inflated = replace(COMMITS[3], operation_metrics={"numOutputRows": "20"})
    verdict = judged(log(inflated, without=[3]))
    assert codes(verdict) == [Code.METRIC_UNRELIABLE]
    assert (verdict.failures, verdict.warnings) == (0, 1)
    assert same_message(verdict.message)


def test_without_statistics_the_metric_counts_and_without_both_it_warns() -> None:
    assert judged(log(replace(COMMITS[3], rows_added=None), without=[3])).findings == ()
    less = replace(COMMITS[3], rows_added=None, operation_metrics={"numOutputRows": "8"})
    assert codes(judged(log(less, without=[3]))) == [Code.LEDGER_ORPHAN]
    unknown = replace(COMMITS[3], rows_added=None, operation_metrics={})
    assert codes(judged(log(unknown, without=[3]))) == [Code.METRIC_UNRELIABLE]


# -- commits without an entry, commits too many -------------------------------------------------------------------


def test_a_stamped_commit_without_an_entry() -> None:
    verdict = judged(log(commit(4, Entry(4, (40, 50)))))
    assert codes(verdict) == [Code.LEDGER_MISSING]
    assert (verdict.failures, verdict.warnings) == (0, 1)
    assert verdict.findings[0].batch_id == 4
    assert codes(judged(delta(COMMITS[0]), None)) == [Code.LEDGER_MISSING]


def test_commits_that_an_audit_need_not_know() -> None:
    late = commit(4, Entry(4, (40, 50)), timestamp=NOW + timedelta(seconds=1))
    assert judged(log(late)).findings == ()
    at_the_edge = replace(late, timestamp=NOW - timedelta(seconds=1))
    assert codes(judged(log(at_the_edge))) == [Code.LEDGER_MISSING]
    assert judged(log(at_the_edge), now=NOW + timedelta(days=1)).findings == ()


def test_another_sinks_stamp_is_none_of_ours() -> None:
    theirs = commit(4, Entry(4, (40, 50)))
    assert theirs.stamp is not None
    theirs = replace(theirs, stamp=replace(theirs.stamp, pipeline="refunds"))
    assert judged(log(theirs)).findings == ()


def test_two_commits_of_one_micro_batch() -> None:
    verdict = judged(log(commit(4, ENTRIES[3])))
    assert codes(verdict) == [Code.DUPLICATE]
    assert verdict.failures == 1
    assert same_message(verdict.message)
    assert judged(log(commit(4, ENTRIES[3], rows_added=0))).findings == ()


# -- changes to what was audited ------------------------------------------------------------------------------------


def test_a_restore_below_audited_commits() -> None:
    verdict = judged(log(restore(4, 1)))
    assert told(verdict) == [("GAP", 0, 20, 40), ("MUTATED", None, None, None)]
    assert verdict.failures == 2
    assert same_message(verdict.message)
    gap = next(f for f in verdict.findings if f.code is Code.GAP)
    assert (gap.batch_id, gap.topic) == (2, "orders")


def test_a_restore_with_its_version_as_text() -> None:
    assert Code.MUTATED in codes(judged(log(restore(4, "1"))))


def test_a_restore_that_was_itself_undone() -> None:
    assert judged(log(restore(4, 1), restore(5, 3))).findings == ()


def test_a_restore_and_what_was_read_again() -> None:
    again = Entry(0, (20, 40), epoch=1)
    slice_ = ledger(*ENTRIES, Entry(0, (20, 40), epoch=1, sink_version=5))
    verdict = judged(log(restore(4, 1), commit(5, again)), slice_)
    assert told(verdict) == [("MUTATED", None, None, None)]


def test_a_restore_to_a_point_in_time_is_not_understood() -> None:
    verdict = judged(log(restore(4, None)))
    assert codes(verdict) == [Code.INCONCLUSIVE]
    assert verdict.unproved is not None


def test_a_restore_above_everything_audited() -> None:
    optimize = stranger(4, "OPTIMIZE", data_change=False, files_removed=4)
    assert judged(log(optimize, restore(5, 3))).findings == ()


def test_a_delete_of_some_rows() -> None:
    some = stranger(
        4,
        "DELETE",
        operation_parameters={"predicate": '["(id = 7)"]'},
        operation_metrics={"numDeletedRows": "3"},
        files_removed=1,
        rows_removed=10,
        rows_added=7,
    )
    verdict = judged(log(some))
    assert told(verdict) == [("GAP", None, None, None), ("MUTATED", None, None, None)]
    assert same_message(verdict.message)
    by_statistics = replace(some, operation_metrics={})
    assert same_message(judged(log(by_statistics)).message)
    assert same_message(judged(log(replace(by_statistics, rows_removed=None))).message)


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("DELETE", {"predicate": "[]"}),
        ("DELETE", {"predicate": '["true"]'}),
        ("TRUNCATE", {}),
        ("WRITE", {"mode": "Overwrite"}),
        ("CREATE OR REPLACE TABLE AS SELECT", {}),
    ],
)
def test_a_table_wiped_out(operation: str, parameters: dict[str, str]) -> None:
    wiped = stranger(
        4, operation, operation_parameters=parameters, files_removed=4, rows_removed=40, rows_added=0, files_added=0
    )
    assert told(judged(log(wiped))) == [("GAP", 0, 0, 40), ("MUTATED", None, None, None)]


def test_an_overwrite_of_some_partitions_has_no_ranges() -> None:
    partial = stranger(
        4,
        "WRITE",
        operation_parameters={"mode": "Overwrite", "predicate": "day = 3"},
        files_removed=1,
        rows_removed=10,
        rows_added=4,
    )
    assert told(judged(log(partial))) == [("GAP", None, None, None), ("MUTATED", None, None, None)]


def test_an_update_changes_rows_and_loses_none() -> None:
    update = stranger(4, "UPDATE", files_removed=1, rows_removed=10, rows_added=10)
    assert told(judged(log(update))) == [("MUTATED", None, None, None)]


def test_a_merge_by_somebody_else() -> None:
    inserts = {"numTargetRowsDeleted": "0", "numTargetRowsUpdated": "0", "numTargetRowsInserted": "5"}
    merge = stranger(4, "MERGE", operation_metrics=inserts, files_removed=1)
    assert codes(judged(log(merge))) == [Code.UNSTAMPED]
    assert Code.MUTATED in codes(
        judged(log(replace(merge, operation_metrics={**inserts, "numTargetRowsDeleted": "2"})))
    )


def test_a_delete_before_anything_was_audited() -> None:
    old = [stranger(0, "WRITE"), stranger(1, "DELETE", files_removed=1)]
    entry = Entry(0, (0, 10), sink_version=2)
    assert judged(delta(*old, commit(2, entry)), ledger(entry)).findings == ()


def test_a_delete_that_a_restore_undid() -> None:
    deletion = stranger(4, "DELETE", files_removed=1, rows_removed=10, rows_added=7)
    assert judged(log(deletion, restore(5, 3))).findings == ()


def test_housekeeping_is_no_finding() -> None:
    keeping = [
        stranger(4, "OPTIMIZE", data_change=False, files_removed=4),
        stranger(5, "VACUUM START", data_change=False, files_added=0),
        stranger(6, "VACUUM END", data_change=False, files_added=0),
        stranger(7, "ADD COLUMNS", data_change=False, files_added=0),
        stranger(8, "DELETE", data_change=False, files_added=0),  # it matched nothing
    ]
    assert judged(log(*keeping)).findings == ()


def test_appends_of_somebody_else_warn() -> None:
    verdict = judged(log(stranger(4, "WRITE"), stranger(5, "STREAMING UPDATE")))
    assert codes(verdict) == [Code.UNSTAMPED]
    assert (verdict.failures, verdict.warnings) == (0, 1)
    assert same_message(verdict.message)


def test_only_what_came_after_the_anchor_is_judged() -> None:
    anchored = replace(LEDGER, anchors=2, complete=False)
    deletion = stranger(4, "DELETE", files_removed=1, rows_removed=10, rows_added=7)
    assert judged(log(without=[0]), anchored).findings == ()
    assert Code.MUTATED in codes(judged(log(deletion, without=[0]), anchored))
    quiet = replace(ledger(*ENTRIES), anchors=4, complete=False)
    assert same_message(judged(delta(COMMITS[3]), quiet).message)
    assert Code.MUTATED in codes(judged(delta(COMMITS[3], deletion), quiet))


# -- retention, unusual counts ----------------------------------------------------------------------------------------


def test_a_log_kept_for_less_than_the_time_between_audits() -> None:
    previous = PreviousAudit(generated_at=NOW - timedelta(days=3))
    assert codes(judged(log(log_retention_days=2.0), previous=previous)) == [Code.RETENTION_NEAR]
    assert judged(log(log_retention_days=4.0), previous=previous).findings == ()
    assert codes(judged(log(log_retention_days=2.0), period_from=NOW - timedelta(days=40))) == [Code.RETENTION_NEAR]
    assert judged(log(log_retention_days=0.1)).findings == ()


def series(*counts: int) -> tuple[LedgerSlice, DeltaWitness]:
    entries = [Entry(i, (i * 10_000, i * 10_000 + n)) for i, n in enumerate(counts)]
    entries = [Entry(e.batch_id, *e.ranges, rows_written=n) for e, n in zip(entries, counts, strict=True)]
    return ledger(*entries), delta(*(commit(i, e) for i, e in enumerate(entries)))


@pytest.mark.parametrize(
    ("last", "unusual"),
    [(1000, False), (1060, False), (2900, False), (3100, True), (400, False), (300, True), (0, False)],
)
def test_unusual_row_counts(last: int, unusual: bool) -> None:
    slice_, found = series(*([990, 1000, 1010] * 8), last)
    verdict = judged(found, slice_)
    assert codes(verdict) == [Code.UNUSUAL] * unusual
    assert verdict.warnings == unusual


def test_what_is_unusual_can_be_tuned() -> None:
    slice_, found = series(*([990, 1000, 1010] * 3), 2000)
    assert judged(found, slice_).findings == ()
    tuned = DeltaHistory(history=5, factor=1.5)
    assert codes(judged(found, slice_, tuned)) == [Code.UNUSUAL]
    assert judged(found, slice_, DeltaHistory(history=5, factor=1.5, deviations=500.0)).findings == ()


def test_many_unusual_counts_are_capped() -> None:
    slice_, found = series(*([1000] * 100), *([9000] * 30))
    assert len(judged(found, slice_).findings) == 21


# -- scale -----------------------------------------------------------------------------------------------------------


def test_a_day_of_commits() -> None:
    slice_ = regular_ledger(8640, 200)
    made = [
        commit(
            i,
            Entry(i, rows_written=20_000),
            timestamp=START,
            stamp=replace(
                COMMITS[0].stamp, batch_id=i, offsets_text=slice_.offsets_texts[i][:1] + slice_.offsets_texts[i][1:]
            ),
        )
        for i in range(8640)
    ]
    found = witnesses(slice_, delta=delta(*made))
    assert DeltaHistory().judge(found).findings == ()
