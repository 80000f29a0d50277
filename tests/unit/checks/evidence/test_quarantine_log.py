"""Rows that wait in quarantine since earlier periods: what daily audits say of commits to that table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recon.checks.evidence.source_rows import SourceRows
from recon.judge.history.quarantine_log import QuarantineJudged, QuarantineLog
from recon.model import (
    Code,
    DataFile,
    LedgerSlice,
    LiveFiles,
    QuarantinedRows,
    TableCommit,
    TableLog,
    Unavailable,
    Verdict,
    Witnesses,
)
from recon.model.erasure import Erasure
from recon.model.proof import Proofs
from recon.model.wire.quarantine import dump_erased, dump_returned
from recon.testing.evidence import PIPELINE, SINK, START, Entry, ledger
from tests.support.messages import same_message
from tests.support.witnesses import after, codes, commit, delta, sink_proof, witnesses

HELD = Entry(0, rows_written=3)
TODAY = ledger(Entry(7, (70, 80)), Entry(8, (80, 90)), anchors=1, complete=False)
JUDGED = QuarantineJudged(table_id="t-1", version=4)
# Micro-batch 0 quarantined three rows; release 0 took one of them.
ENTERED = {"entered": {(0, 0): 3, (0, 7): 0}, "released": {0: 1}}
ALL_THERE = QuarantinedRows(rows={(0, 0, None): 2, (0, 0, 0): 1}, **ENTERED)
ONE_GONE = QuarantinedRows(rows={(0, 0, None): 1, (0, 0, 0): 1}, **ENTERED)


def log(*commits: TableCommit, **fields: Any) -> TableLog:
    return delta(*commits, **{"table_id": "t-1", "last": max((c.version for c in commits), default=4), **fields})


def deletion(version: int = 5, **fields: Any) -> TableCommit:
    return commit(version, **{"operation": "DELETE", "files_removed": 1, "rows_added": 1, "rows_removed": 2, **fields})


def update(version: int = 5, **fields: Any) -> TableCommit:
    metrics = {"num_updated_rows": "2"}
    return commit(
        version, **{"operation": "UPDATE", "files_removed": 1, "operation_metrics": metrics, **fields}
    )  # fmt: skip


def claim(version: int, **metrics: str) -> TableCommit:
    counts = {"numTargetRowsUpdated": "1", "numTargetRowsDeleted": "0", "numTargetRowsInserted": "0", **metrics}
    txn = {f"recon:{PIPELINE}:{SINK}:-1:claim": 0}
    return commit(version, operation="MERGE", txn=txn, files_removed=1, operation_metrics=counts)


def erasure(quarantined: int, at: Any = START) -> Erasure:
    return Erasure(
        pipeline=PIPELINE, sink=SINK, at=at, by="Ada", reason="x", quarantined=quarantined, failures=0, samples=0
    )


def seen(
    found: TableLog | Unavailable | None,
    counted: QuarantinedRows | Unavailable | None = None,
    judged: QuarantineJudged | None = JUDGED,
    slice_: LedgerSlice = TODAY,
    erased: tuple[Erasure, ...] = (),
) -> Witnesses:
    state = sink_proof(judged, position=slice_.heads[0].sequence)
    return witnesses(
        slice_,
        proofs=Proofs(of_sink={SINK: state}, erased={SINK: erased}),
        quarantine=found if isinstance(found, Unavailable) else {SINK: found} if found is not None else {},
        quarantine_rows={} if counted is None else {SINK: counted},
    )


def judge(*args: Any, **fields: Any) -> Verdict:
    return SourceRows().judge(seen(*args, **fields))


def asks(found: TableLog, slice_: LedgerSlice = TODAY, **fields: Any) -> bool:
    """Whether the rows of the table are counted."""
    return QuarantineLog.of(slice_, found, seen(found, slice_=slice_, **fields).proofs).needs_count


LAWFUL = [
    (),
    (commit(5, HELD),),
    (claim(5), update(6, user_metadata=dump_returned(0))),
    (commit(5, operation="OPTIMIZE", data_change=False, files_added=0),),
    (commit(5, operation="VACUUM END", data_change=False, files_added=0),),
    (commit(5, operation="ADD COLUMNS", data_change=False, files_added=0),),
]


@pytest.mark.parametrize("commits", LAWFUL, ids=range(len(LAWFUL)))
def test_what_recon_does_and_what_changes_no_row_asks_nothing(commits: tuple[TableCommit, ...]) -> None:
    found = log(*commits)
    assert not asks(found)
    assert codes(judge(found)) == []


def test_released_rows_may_be_deleted() -> None:
    found = log(deletion())
    left = QuarantinedRows(rows={(0, 0, None): 2}, **ENTERED)
    assert asks(found) and codes(judge(found, left)) == codes(judge(found, ALL_THERE)) == []


def test_waiting_rows_that_are_deleted_are_a_gap_of_their_micro_batch() -> None:
    verdict = judge(log(deletion()), ONE_GONE)
    (gap,) = verdict.findings
    assert (gap.code, gap.epoch, gap.batch_id, gap.rows) == (Code.GAP, 0, 0, 1) and verdict.failures == 1
    assert same_message(gap.message)


def test_released_and_waiting_rows_that_are_deleted_are_a_gap_of_nobody_knows_which_micro_batch() -> None:
    both = QuarantinedRows(rows={(0, 0, None): 1}, **ENTERED)
    (gap,) = judge(log(deletion()), both).findings
    assert (gap.code, gap.batch_id, gap.rows) == (Code.GAP, None, 1)
    assert same_message(gap.message)


def test_what_was_known_to_be_gone_is_not_reported_again() -> None:
    found, known = log(deletion()), replace(JUDGED, missing=1)
    assert codes(judge(found, ONE_GONE, known)) == []
    (gap,) = judge(found, QuarantinedRows(rows={(0, 0, 0): 1}, **ENTERED), known).findings
    assert (gap.code, gap.rows) == (Code.GAP, 1)


@pytest.mark.parametrize(
    "counted",
    [
        QuarantinedRows(rows={(0, 0, 0): 1}, entered={(0, 0): 3}, released={0: None}),
        QuarantinedRows(rows={(0, 0, None): 1}, entered={(0, 0): None}, released={}),
        Unavailable("quarantine", "a data file is gone"),
        None,
    ],
)
def test_what_cannot_be_counted_is_not_proved(counted: Any) -> None:
    verdict = judge(log(deletion()), counted)
    assert verdict.unproved is not None or Code.GAP in codes(verdict)
    if not isinstance(counted, QuarantinedRows):
        assert after(QuarantineJudged, seen(log(deletion()), counted)) == JUDGED, "the next audit asks again"


@pytest.mark.parametrize(
    "made",
    [
        update(),
        update(user_metadata='{"recon_erased": "x"}'),
        commit(5, operation="MERGE", files_removed=1),
        claim(5, numTargetRowsDeleted="1"),
        claim(5, numTargetRowsInserted="1"),
        commit(5, operation="WRITE", operation_parameters={"mode": "Overwrite"}, files_removed=1),
        commit(5, HELD, files_removed=1),
    ],
    ids=(
        "update",
        "no number",
        "merge",
        "claim that deletes",
        "claim that inserts",
        "overwrite",
        "append that removes",
    ),
)
def test_waiting_rows_that_others_overwrite_are_mutated(made: TableCommit) -> None:
    verdict = judge(log(made), ALL_THERE)
    assert codes(verdict) == [Code.MUTATED] and verdict.failures == 1
    assert same_message(verdict.message)


def test_rows_that_others_add_are_told() -> None:
    assert codes(judge(log(commit(5)))) == [Code.UNSTAMPED]
    stamped = commit(5, HELD)
    assert stamped.stamp is not None
    foreign = replace(stamped, stamp=replace(stamped.stamp, sink="other"))
    assert codes(judge(log(foreign))) == [Code.UNSTAMPED]


def test_rows_that_others_added_may_stand_for_those_that_are_removed() -> None:
    for commits in ((commit(5), deletion(6)), (commit(3), deletion(5))):  # the first was judged by an earlier audit
        found = log(*commits)
        assert QuarantineLog.of(TODAY, found, seen(found).proofs).needs_whole
        verdict = judge(found, ALL_THERE)
        assert verdict.unproved is not None and Code.INCONCLUSIVE in codes(verdict)
    assert same_message(verdict.unproved)


# -- erasures ----------------------------------------------------------------------------------------------------


def test_an_erasure_is_recons_own_as_far_as_its_entry_goes() -> None:
    marked = update(user_metadata=dump_erased(2))
    assert codes(judge(log(marked), erased=(erasure(9), erasure(2)))) == []
    assert codes(judge(log(marked), ALL_THERE, erased=(erasure(9), erasure(1)))) == [Code.MUTATED]
    assert codes(judge(log(marked), ALL_THERE, erased=(erasure(9),))) == [Code.MUTATED]
    parts = [update(version, user_metadata=dump_erased(1)) for version in (5, 6)]
    assert codes(judge(log(*parts), erased=(erasure(4),))) == []
    assert codes(judge(log(*parts), ALL_THERE, erased=(erasure(3),))) == [Code.MUTATED] * 2


def test_what_may_be_an_erasure_is_open_while_nobody_knows_what_was_erased() -> None:
    found = seen(log(update(user_metadata=dump_erased(2))))
    unknown = replace(found, proofs=replace(found.proofs, erased={}, erasures_unknown={SINK: "no answer"}))
    assert codes(SourceRows().judge(unknown)) == [Code.INCONCLUSIVE]
    assert after(QuarantineJudged, unknown) == JUDGED, "the next audit looks at the commit again"
    edited = replace(found, proofs=replace(found.proofs, erased={}, erasures_edited={SINK: "edited"}))
    assert codes(SourceRows().judge(edited)) == [Code.INCONCLUSIVE]
    nothing = seen(log(commit(5, HELD)))
    nothing = replace(nothing, proofs=replace(nothing.proofs, erased={}, erasures_unknown={SINK: "no answer"}))
    assert codes(SourceRows().judge(nothing)) == [] and after(QuarantineJudged, nothing) == replace(JUDGED, version=5)


# -- RESTORE -----------------------------------------------------------------------------------------------------


def restore(version: int, target: str | None) -> TableCommit:
    parameters = {"version": target} if target is not None else {"timestamp": "2026-01-01"}
    return commit(version, operation="RESTORE", operation_parameters=parameters, files_removed=1)


def test_a_restore_that_undoes_what_others_did_puts_right() -> None:
    whole = [commit(v, HELD) for v in range(5)]
    assert codes(judge(log(*whole, update(5), deletion(6), restore(7, "4")), ALL_THERE)) == []
    assert QuarantineLog.of(TODAY, log(restore(5, "3")), Proofs()).needs_whole


@pytest.mark.parametrize(
    "commits",
    [
        [*(commit(v, HELD) for v in range(5)), claim(5), restore(6, "4")],
        [restore(5, "3")],  # the log no longer has version 4
        [restore(5, None)],  # nobody knows what it undid
    ],
)
def test_a_restore_that_may_undo_what_recon_did(commits: list[TableCommit]) -> None:
    verdict = judge(log(*commits), ALL_THERE)
    assert codes(verdict) == [Code.MUTATED]
    assert same_message(verdict.message)


# -- the table ---------------------------------------------------------------------------------------------------


def test_a_table_that_is_gone() -> None:
    gone = log(exists=False, last=None, table_id=None, first_retained=None)
    assert asks(gone)
    (gap,) = judge(gone, QuarantinedRows(rows={}, **ENTERED)).findings
    assert (gap.code, gap.rows) == (Code.GAP, 2)
    released = QuarantinedRows(rows={}, entered={(0, 0): 3}, released={0: 3})
    assert codes(judge(gone, released)) == [], "nothing waited there"


def test_another_table_and_an_older_copy() -> None:
    again = [commit(0, HELD), *(commit(v, HELD) for v in range(1, 6))]
    assert codes(judge(log(*again, table_id="t-2"), ALL_THERE)) == []
    assert Code.GAP in codes(judge(log(*again, table_id="t-2"), ONE_GONE))
    copied = log(commit(0), table_id="t-2")
    assert asks(copied) and Code.MUTATED in codes(judge(copied, ALL_THERE))
    older = log(*(commit(v, HELD) for v in range(3)))
    verdict = judge(older, ALL_THERE)
    assert asks(older) and codes(verdict) == [Code.MUTATED]
    assert same_message(verdict.message)


def test_commits_that_the_log_no_longer_has_are_made_up_for_by_counting() -> None:
    cut = log(commit(9, HELD))
    assert asks(cut) and codes(judge(cut, ALL_THERE)) == [] and codes(judge(cut, ONE_GONE)) == [Code.GAP]
    assert judge(cut).unproved is not None
    hole = log(commit(5, HELD), commit(7, HELD))
    assert asks(hole), "a commit file was removed"


def test_a_rewrite_that_says_it_changed_no_data_is_not_believed() -> None:
    said = log(commit(5, operation="WRITE", data_change=False, files_added=0))
    assert asks(said) and codes(judge(said, ONE_GONE)) == [Code.GAP]


def test_data_files_that_are_gone() -> None:
    lacking = log(files=LiveFiles(files=2, rows=3, gone=(DataFile(path="a.parquet"),)))
    verdict = judge(lacking)
    assert codes(verdict) == [Code.MUTATED] and same_message(verdict.message)
    assert judge(log(files=Unavailable("delta_files", "no listing"))).unproved is not None


def test_a_log_that_cannot_be_read_proves_nothing_where_rows_may_wait() -> None:
    torn = Unavailable("quarantine", "torn")
    assert judge(torn).unproved is not None and judge(torn, judged=None).unproved is not None
    assert judge(torn, judged=QuarantineJudged()).unproved is None, "nothing was ever quarantined"
    for of_sink, proved in ((SINK, False), ("other", True)):
        alone = replace(seen(torn), quarantine={of_sink: torn})
        assert (SourceRows().judge(alone).unproved is None) == proved
        assert after(QuarantineJudged, alone) == JUDGED


# -- from audit to audit -----------------------------------------------------------------------------------------


def test_an_audit_that_finds_a_state_of_an_older_version_counts() -> None:
    whole = log(*(commit(v, HELD) for v in range(5)))
    assert asks(whole, judged=None) and codes(judge(whole, ALL_THERE, None)) == []
    verdict = judge(whole, ONE_GONE, None)
    assert codes(verdict) == [Code.INCONCLUSIVE], "an earlier audit may have answered it"
    assert same_message(verdict.message)
    assert after(QuarantineJudged, seen(whole, ALL_THERE, None)) == JUDGED


def test_the_state_says_how_far_the_log_was_judged() -> None:
    assert after(QuarantineJudged, seen(log(commit(5, HELD)))) == replace(JUDGED, version=5)
    assert after(QuarantineJudged, seen(log(deletion()), ONE_GONE)) == replace(JUDGED, version=5, missing=1)
    assert after(QuarantineJudged, seen(None, judged=None)) == QuarantineJudged()
    assert after(QuarantineJudged, seen(Unavailable("quarantine", "torn"))) == JUDGED
