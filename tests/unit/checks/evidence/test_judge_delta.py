"""delta_history: cases 22, 24, 28, 37, 38 and 39."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recon.checks.evidence.delta_history import DeltaHistory
from recon.judge.history.table_history import TableHistory, history_of
from recon.model import (
    Code,
    DataFile,
    KnownTable,
    LedgerSlice,
    LiveFiles,
    PreviousAudit,
    TableCommit,
    TableLog,
    Unavailable,
    Verdict,
)
from recon.model.offsets import Span
from recon.testing.evidence import NOW, SINK, START, TOPIC, Entry, gone, ledger, span
from tests.support.messages import same_message
from tests.support.witnesses import codes, commit, delta, live_files, regular_ledger, told, witnesses

ENTRIES = [Entry(i, (10 * i, 10 * i + 10)) for i in range(4)]
LEDGER = ledger(*ENTRIES)
COMMITS = [commit(i, entry) for i, entry in enumerate(ENTRIES)]


def judged(
    found: TableLog | Unavailable,
    slice_: LedgerSlice | None = LEDGER,
    check: DeltaHistory | None = None,
    **fields: Any,
) -> Verdict:
    return (check or DeltaHistory()).judge(witnesses(slice_, delta=found, **fields))


def log(*more: TableCommit, without: Sequence[int] = (), **fields: Any) -> TableLog:
    return delta(*(c for c in COMMITS if c.version not in without), *more, **fields)


def history(found: TableLog, slice_: LedgerSlice) -> TableHistory:
    seen = history_of(witnesses(slice_, delta=found), slice_)
    assert seen is not None
    return seen


def stranger(version: int, operation: str, **fields: Any) -> TableCommit:
    return commit(version, operation=operation, **fields)


def restore(version: int, to: object) -> TableCommit:
    return stranger(version, "RESTORE", operation_parameters={"version": to, "timestamp": None}, files_removed=1)


# -- entries and their commits --------------------------------------------------------------------------------


def test_entries_and_commits_agree() -> None:
    verdict = judged(log())
    assert (verdict.failures, verdict.warnings, verdict.unproved, verdict.findings) == (0, 0, None, ())
    assert same_message(verdict.message)
    assert verdict.evidence == {
        "entries": 4,
        "commits": 4,
        "versions": [0, 3],
        "table_id": None,
        "table_version": 3,
        "table_rows": 40,
    }


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
def test_a_commit_that_is_not_the_entrys(other: TableCommit) -> None:
    assert Code.LEDGER_ORPHAN in codes(judged(log(other, without=[3])))


def test_a_table_that_is_gone() -> None:
    verdict = judged(delta(exists=False))
    assert codes(verdict) == [Code.LEDGER_ORPHAN]
    assert same_message(verdict.message)


def test_commits_cleaned_up_from_the_log_are_attested_only() -> None:
    verdict = judged(log(without=[0, 1], files=live_files(*COMMITS)))
    assert codes(verdict) == [Code.ATTESTED_ONLY]
    assert (verdict.failures, verdict.warnings) == (0, 1)
    assert same_message(verdict.message)


def test_a_commit_file_missing_in_the_middle() -> None:
    verdict = judged(log(without=[1], files=live_files(*COMMITS)))
    assert codes(verdict) == [Code.INCONCLUSIVE]
    assert verdict.unproved is not None
    assert "no commit file for version 1" in verdict.unproved


# -- the table itself --------------------------------------------------------------------------------------------


def read_before(table_id: str = "t-1", version: int = 3, **fields: Any) -> PreviousAudit:
    table = KnownTable(table_id=table_id, version=version, read_at=NOW - timedelta(hours=1), **fields)
    return PreviousAudit(generated_at=NOW - timedelta(hours=1), tables={SINK: table})


def test_another_id_than_the_last_audit_read() -> None:
    previous = read_before("t-0")
    anew = [commit(i, entry) for i, entry in enumerate([Entry(4, (40, 50)), Entry(5, (50, 60))])]
    later = [
        replace(head, committed_at=NOW, sink_version=version)
        for version, head in enumerate(ledger(Entry(4, (40, 50)), Entry(5, (50, 60))).heads)
    ]
    both = ledger(*ENTRIES, Entry(4, (40, 50)), Entry(5, (50, 60)))
    both = replace(both, heads=[*both.heads[:4], *later])
    verdict = judged(delta(*anew, table_id="t-1"), both, previous=previous)
    assert Code.MUTATED in codes(verdict) and Code.LEDGER_ORPHAN not in codes(verdict)
    assert [(f.start_offset, f.end_offset) for f in verdict.findings if f.code is Code.GAP] == [(0, 40)]
    assert same_message(verdict.findings[-1].message)
    assert judged(log(table_id="t-1"), previous=read_before()).findings == ()


def test_versions_that_begin_again() -> None:
    again = [Entry(i, (10 * i, 10 * i + 10), sink_version=i - 4) for i in (4, 5)]
    anew = [commit(entry.batch_id - 4, entry) for entry in again]
    verdict = judged(delta(*anew), ledger(*ENTRIES, *again))
    assert [(f.start_offset, f.end_offset) for f in verdict.findings if f.code is Code.GAP] == [(0, 40)]
    assert set(codes(verdict)) == {Code.GAP, Code.MUTATED}
    assert same_message(next(f.message for f in verdict.findings if f.code is Code.MUTATED))


def test_a_log_that_ends_before_the_version_read_last() -> None:
    verdict = judged(log(without=[3], table_id="t-1"), previous=read_before())
    assert set(codes(verdict)) == {Code.GAP, Code.MUTATED}
    assert same_message(next(f.message for f in verdict.findings if f.code is Code.MUTATED))


def test_entries_of_two_drivers_that_cross_begin_nothing_again() -> None:
    crossed = [Entry(0, (0, 10)), Entry(1, (10, 20), sink_version=2), Entry(2, (20, 30), sink_version=1)]
    found = delta(commit(0, crossed[0]), commit(2, crossed[1]), commit(1, crossed[2]))
    assert judged(found, ledger(*crossed)).findings == ()


def lost(**fields: Any) -> LiveFiles:
    return replace(live_files(*COMMITS), gone=(DataFile(path="part-1.parquet", **fields),))


def test_a_data_file_that_is_gone_from_the_store() -> None:
    named_rows = {"rows": 10, "batch_ids": (1, 1), "topic": TOPIC, "partition": 0, "offsets": Span(10, 20)}
    verdict = judged(log(files=lost(**named_rows)))
    assert set(codes(verdict)) == {Code.GAP, Code.MUTATED}
    assert [(f.batch_id, f.start_offset, f.end_offset) for f in verdict.findings if f.code is Code.GAP] == [(1, 10, 20)]
    assert all(same_message(finding.message) for finding in verdict.findings)
    # Rows of offsets that the pipeline never read are a stranger's.
    verdict = judged(log(files=lost(**{**named_rows, "offsets": Span(90, 99)})))
    assert codes(verdict) == [Code.MUTATED]
    # Without statistics of the source columns only the rows tell which offsets are lost.
    verdict = judged(log(files=lost()))
    assert set(codes(verdict)) == {Code.GAP, Code.MUTATED}
    assert all(finding.start_offset is None and same_message(finding.message) for finding in verdict.findings)


def test_files_that_could_not_be_looked_for_prove_nothing() -> None:
    for files in (Unavailable("delta_files", "no access"), LiveFiles(files=4, rows=40, gone=Unavailable("x", "no"))):
        verdict = judged(log(files=files))
        assert codes(verdict) == [Code.INCONCLUSIVE] and verdict.unproved is not None
        assert same_message(verdict.unproved)


def test_fewer_rows_than_the_ledger_accounts_for_behind_a_log_that_was_cleaned_up() -> None:
    verdict = judged(log(without=[0, 1], files=live_files(*COMMITS, before=-3)))
    assert set(codes(verdict)) == {Code.ATTESTED_ONLY, Code.GAP, Code.MUTATED}
    assert all(same_message(finding.message) for finding in verdict.findings)
    assert (verdict.evidence["rows_before"], verdict.evidence["rows_accounted"]) == (17, 20)


def test_rows_are_compared_with_those_that_an_audit_counted() -> None:
    def found(rows: int, **fields: Any) -> Sequence[Code]:
        files = live_files(*COMMITS, before=100 + rows)
        return codes(judged(log(without=[0, 1], files=files, table_id="t-1"), **fields))

    counted = read_before(version=0, counted=(0, 110))
    assert found(0, previous=counted) == [Code.ATTESTED_ONLY]  # 100 rows were there before, and 10 of version 0
    assert Code.MUTATED in found(-1, previous=counted)
    # Somebody added rows, whose commit is cleaned up: nothing is refuted, and source_rows reads the rows.
    assert found(1, previous=counted) == [Code.ATTESTED_ONLY]
    # The log has every commit since.
    assert found(-1, previous=read_before(version=1, counted=(1, 120))) == [Code.ATTESTED_ONLY]
    # The table's rows are those of now.
    bounded = found(-1, previous=counted, period_to=NOW - timedelta(minutes=1))
    assert set(bounded) == {Code.ATTESTED_ONLY, Code.METRIC_UNRELIABLE}
    # A MERGE replaces rows.
    assert found(-1, previous=counted, rewriting={SINK}) == [Code.ATTESTED_ONLY]


@pytest.mark.parametrize(
    ("entries", "fields"),
    [
        (ENTRIES, {"files": LiveFiles(files=4, rows=None, without_statistics=2)}),
        ([Entry(0, (0, 10), rows_written=None), *ENTRIES[1:]], {"files": live_files(*COMMITS)}),
    ],
)
def test_rows_that_cannot_be_compared_warn(entries: Sequence[Entry], fields: dict[str, Any]) -> None:
    verdict = judged(log(without=[0, 1], **fields), ledger(*entries))
    assert set(codes(verdict)) == {Code.ATTESTED_ONLY, Code.METRIC_UNRELIABLE}
    assert same_message(next(f.message for f in verdict.findings if f.code is Code.METRIC_UNRELIABLE))


def test_nothing_read_and_nothing_written_prove_nothing() -> None:
    assert judged(gone("delta")).unproved == "delta did not answer"
    assert judged(log(), None).failures == 0
    assert judged(delta(commit(0, operation="CREATE TABLE", data_change=False)), None).unproved is not None
    other_sink = replace(witnesses(LEDGER, delta=log()), sink="other")
    assert DeltaHistory().judge(other_sink).unproved == "the history of sink other was not read"


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


@pytest.mark.parametrize("operation", ["OPTIMIZE", "WRITE"])
def test_a_rewrite_that_writes_fewer_rows(operation: str) -> None:
    rewrite = stranger(4, operation, data_change=False, files_added=0, rows_added=0, rewrote=(39, 40))
    verdict = judged(log(rewrite))
    assert told(verdict) == [("GAP", None, None, None), ("MUTATED", None, None, None)]
    assert same_message(verdict.message)
    for counts in ((40, 40), (39, None), (None, 40)):
        assert judged(log(replace(rewrite, rewrote=counts))).findings == ()


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
    assert codes(judged(log(log_retention_days=2.0, first_retained=1), period_from=NOW - timedelta(days=40))) == [
        Code.RETENTION_NEAR
    ]
    whole = judged(log(log_retention_days=2.0), period_from=NOW - timedelta(days=40))
    assert whole.findings == (), "the log still has its first version"
    assert judged(log(log_retention_days=0.1)).findings == ()


def series(*counts: int) -> tuple[LedgerSlice, TableLog]:
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


def test_commits_of_others_are_looked_for_once_for_all_checks_of_a_log() -> None:
    one, other = log(stranger(4, "WRITE")), log(restore(4, 1), stranger(5, "WRITE"))
    before, after = history(one, LEDGER), history(other, LEDGER)
    assert before is not history(one, LEDGER) and history(one, LEDGER) is history(one, LEDGER)
    assert [c.version for c in before.others] == [4] and before.stands(3)
    assert [c.version for c in after.others] == [5] and not after.stands(3)
    assert [c.version for c in history(one, LEDGER).others] == [4], "one log's history is not taken for another's"


def _adds_columns(version: int, *columns: dict[str, Any]) -> TableCommit:
    added = json.dumps([{"column": {"nullable": True, **column}} for column in columns])
    made = {"operation": "ADD COLUMNS", "operation_parameters": {"columns": added}}
    return commit(version, **made, files_added=0, rows_added=0, data_change=False)


def test_rows_from_before_the_column_with_the_offset_double_none() -> None:
    """A stream that wrote without recon until now: the hook adds its columns, and goes on in version 3."""
    entries = [Entry(i, (10 * i, 10 * i + 10), sink_version=i + 3) for i in range(4)]
    slice_, own = ledger(*entries), [commit(i + 3, entry) for i, entry in enumerate(entries)]
    first, second = stranger(0, "STREAMING UPDATE", wrote=("q-0", 0)), stranger(1, "WRITE")
    offset = {"name": "_source_offset", "type": "long"}

    def looked_at(added: TableCommit, *more: TableCommit) -> list[int]:
        return [c.version for c in history(delta(first, second, added, *own, *more), slice_).others]

    assert looked_at(_adds_columns(2, {"name": "_batch_id", "type": "long"}, offset)) == []
    assert looked_at(_adds_columns(2, {"name": "more", "type": "string"})) == [0, 1], "the table had the column before"
    nested = {"name": "more", "type": {"type": "struct", "fields": [offset]}}
    assert looked_at(_adds_columns(2, nested)) == [0, 1], "a field of that name is not the column"
    torn = replace(_adds_columns(2, offset), operation_parameters={"columns": '[{"column":'})
    assert looked_at(torn) == [0, 1]
    last = own[-1].version + 1
    assert looked_at(_adds_columns(2, offset), stranger(last, "WRITE")) == [last], "rows of later commits have offsets"
    replaced = replace(second, files_removed=1)
    assert [c.version for c in history(delta(first, replaced, _adds_columns(2, offset), *own), slice_).others] == [1]
