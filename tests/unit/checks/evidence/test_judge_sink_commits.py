"""sink_commits: the ledger against what a sink that is no Delta table remembers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from recon.checks.evidence.offset_continuity import OffsetContinuity
from recon.checks.evidence.sink_commits import SinkCommits
from recon.judge.history.record_history import OtherRows
from recon.model import (
    REMOVALS,
    REPAIRS,
    Code,
    LedgerSlice,
    LostWrite,
    ReconStamp,
    SinkChanges,
    SinkCommit,
    SinkLog,
    Unavailable,
    Verdict,
    offsets_text,
)
from recon.model.proof import Proofs
from recon.testing.evidence import PIPELINE, SINK, START, Entry, ledger, span
from tests.support.messages import same_message
from tests.support.witnesses import codes, sink_proof, witnesses

ENTRIES = [Entry(i, (10 * i, 10 * i + 10), sink_version=None) for i in range(3)]
LEDGER = ledger(*ENTRIES)


def record(entry: Entry, *, epoch: int = 0, minutes: int = 0, **fields: Any) -> SinkCommit:
    stamp = ReconStamp(
        pipeline=PIPELINE, sink=SINK, epoch=epoch, batch_id=entry.batch_id, query_id="q-1", run_id=None, prev_hash="",
        offsets_text=offsets_text(entry.ranges),
    )  # fmt: skip
    at = START + timedelta(minutes=minutes or entry.batch_id)
    return SinkCommit(**{"version": None, "stamp": stamp, "rows": entry.width, "at": at, **fields})


RECORDS = [record(entry) for entry in ENTRIES]


def judged(
    *commits: SinkCommit,
    slice_: LedgerSlice | None = LEDGER,
    recorded: bool = True,
    exists: bool = True,
    guarantee: str = "exactly-once",
    **fields: Any,
) -> Verdict:
    log = SinkLog(location="public.recon_ledger", exists=exists, commits=commits, recorded=recorded)
    return SinkCommits().judge(witnesses(slice_, sink_logs={SINK: log}, guarantees={SINK: guarantee}, **fields))


def counted(other_rows: int | Unavailable | None, known: int | None = None) -> Verdict:
    log = SinkLog(location="orders", exists=True, commits=tuple(RECORDS), other_rows=other_rows)
    proof = sink_proof(OtherRows(rows=known) if known is not None else None)
    return SinkCommits().judge(witnesses(LEDGER, sink_logs={SINK: log}, proofs=Proofs(of_sink={SINK: proof})))


def test_rows_that_are_gone_since_the_last_audit() -> None:
    assert codes(counted(-2)) == [Code.MUTATED] and same_message(counted(-2).message)
    assert codes(counted(4, 5)) == [Code.MUTATED], "rows of others were there before"
    for as_before in (counted(0), counted(-2, -2), counted(5, 5), counted(None), counted(None, 3)):
        assert codes(as_before) == []
    # Rows that others added are source_rows' business: they may double some.
    assert codes(counted(5)) == codes(counted(5, 4)) == []
    unknown = counted(Unavailable("sink_logs", "it did not answer"))
    assert codes(unknown) == [Code.ATTESTED_ONLY] and "it did not answer" in unknown.message


def with_a_gap(entered: tuple[int, int], stamped: tuple[int, int], broken: tuple[int, ...] = ()) -> list[Any]:
    """What is found of micro-batch 1, of which entry and record have these ranges."""
    of_ledger, of_record = ([ENTRIES[0], Entry(1, span, sink_version=None), ENTRIES[2]] for span in (entered, stamped))
    log = SinkLog(location="orders", exists=True, commits=tuple(map(record, of_record)))
    seen = witnesses(replace(ledger(*of_ledger), broken=broken), sink_logs={SINK: log})
    assert codes(SinkCommits().judge(seen)) == [Code.LEDGER_ORPHAN]
    return [(one.code, one.span) for one in OffsetContinuity().judge(seen).findings]


def test_neither_an_edited_entry_nor_an_edited_record_hides_a_gap() -> None:
    assert with_a_gap((10, 20), (13, 20)) == with_a_gap((13, 20), (10, 20)) == [(Code.GAP, (10, 13))]
    assert with_a_gap((10, 20), (13, 20), broken=(1,)) == [(Code.GAP, (10, 13))]
    # An entry that was edited, and does not match its own hash, is no reason to read again what was read.
    assert with_a_gap((13, 20), (10, 20), broken=(1,)) == []


def test_ledger_and_record_agree() -> None:
    verdict = judged(*RECORDS)
    assert (verdict.failures, verdict.warnings, verdict.unproved, verdict.findings) == (0, 0, None, ())
    assert same_message(verdict.message)
    assert verdict.evidence == {"entries": 3, "commits": 3, "guarantee": "exactly-once"}


def test_an_entry_without_a_record_with_other_ranges_or_rows() -> None:
    other = record(Entry(1, (10, 19)), rows=10)
    for commits in ([RECORDS[0], RECORDS[2]], [RECORDS[0], other, RECORDS[2]],
                    [RECORDS[0], record(ENTRIES[1], rows=9), RECORDS[2]]):  # fmt: skip
        verdict = judged(*commits)
        assert set(codes(verdict)) == {Code.LEDGER_ORPHAN}
        assert (verdict.failures, verdict.findings[0].batch_id) == (1, 1)


def test_unknown_counts_are_not_compared_and_unknown_topic_ids_do_not_differ() -> None:
    nameless = record(Entry(1, span(10, 20, topic_id=None)))
    assert judged(RECORDS[0], nameless, record(ENTRIES[2], rows=None)).findings == ()


def test_a_write_without_an_entry_is_a_warning() -> None:
    verdict = judged(*RECORDS, record(Entry(3, (30, 40))))
    assert (verdict.failures, verdict.warnings, set(codes(verdict))) == (0, 1, {Code.LEDGER_MISSING})
    assert judged(RECORDS[0], slice_=None).warnings == 1


def test_what_lies_outside_the_period_is_not_this_audits() -> None:
    early, late = record(Entry(9, (90, 99)), minutes=-60), record(Entry(3, (30, 40)), minutes=120)
    period = {"period_from": START, "period_to": START + timedelta(minutes=120)}
    assert judged(early, *RECORDS, late, **period).findings == ()


def test_one_range_twice_refutes_exactly_once_and_not_at_least_once() -> None:
    again = record(Entry(7, (10, 20)))
    with_entry = ledger(*ENTRIES, Entry(7, (10, 20), sink_version=None))
    verdict = judged(*RECORDS, again, slice_=with_entry)
    assert (verdict.failures, set(codes(verdict))) == (1, {Code.DUPLICATE})
    assert same_message(verdict.message)
    weaker = judged(*RECORDS, again, slice_=with_entry, guarantee="at-least-once")
    assert (weaker.failures, weaker.warnings, set(codes(weaker))) == (0, 1, {Code.REPEATED})


def test_a_range_whose_doubled_rows_were_removed_is_no_duplicate() -> None:
    numbered = [replace(one, stamp=replace(one.stamp, number=n)) for n, one in enumerate(RECORDS, 1)]
    again = record(Entry(7, (10, 20)))
    again = replace(again, stamp=replace(again.stamp, number=4))
    with_entry = ledger(*ENTRIES, Entry(7, (10, 20), sink_version=None))

    def after(low: int, high: int, number: int) -> set[Code]:
        removal = record(Entry(0, (low, high)), epoch=REMOVALS, rows=0)
        removal = replace(removal, stamp=replace(removal.stamp, number=number))
        removed = Entry(0, (low, high), sink_version=None, epoch=REMOVALS, rows_written=0, status="repaired")
        slice_ = ledger(*ENTRIES, Entry(7, (10, 20), sink_version=None), removed)
        return set(codes(judged(*numbered, again, removal, slice_=slice_)))

    assert set(codes(judged(*numbered, again, slice_=with_entry))) == {Code.DUPLICATE}
    assert after(10, 20, 5) == set() and after(0, 30, 5) == set()
    assert after(10, 19, 5) == {Code.DUPLICATE}  # one offset was not looked at
    assert after(10, 20, 3) == {Code.DUPLICATE}  # it came before the second write


def test_a_repair_of_a_whole_micro_batch_is_no_duplicate() -> None:
    repair = record(Entry(0, (10, 20)), epoch=REPAIRS)
    slice_ = ledger(*ENTRIES, Entry(0, (10, 20), sink_version=None, epoch=REPAIRS, status="repaired"))
    assert judged(*RECORDS, repair, slice_=slice_).findings == ()


def test_one_micro_batch_twice() -> None:
    verdict = judged(*RECORDS, RECORDS[1])
    assert set(codes(verdict)) == {Code.DUPLICATE}
    assert same_message(verdict.message)


def test_a_sink_without_a_record_is_attested_by_the_ledger_alone() -> None:
    verdict = judged(recorded=False, guarantee="at-least-once")
    assert (verdict.failures, verdict.warnings, set(codes(verdict))) == (0, 1, {Code.ATTESTED_ONLY})


def test_a_record_that_is_gone() -> None:
    verdict = judged(exists=False)
    assert (verdict.failures, set(codes(verdict))) == (3, {Code.LEDGER_ORPHAN})
    assert same_message(verdict.message)


def test_empty_micro_batches_need_no_record() -> None:
    verdict = judged(*RECORDS, slice_=ledger(*ENTRIES, Entry(3, rows_written=0, sink_version=None)))
    assert (verdict.failures, set(codes(verdict))) == (0, {Code.EMPTY})


def test_what_cannot_be_asked_proves_nothing() -> None:
    gone = Unavailable("sink_logs", "no route to the database")
    assert SinkCommits().judge(witnesses(LEDGER, sink_logs=gone)).unproved == "no route to the database"
    said = SinkCommits().judge(witnesses(LEDGER, sink_logs={})).unproved
    assert said is not None and "delta_history" in said
    nothing = judged(slice_=None)
    assert nothing.unproved is not None


def changed(changes: SinkChanges | Unavailable) -> Verdict:
    log = SinkLog(location="files", exists=True, commits=tuple(RECORDS), changes=changes)
    return SinkCommits().judge(witnesses(LEDGER, sink_logs={SINK: log}))


def test_writes_of_which_something_is_gone() -> None:
    lost = [LostWrite(stamp=record(Entry(n)).stamp, lacks=f"part-{n} is gone") for n in (1, 4, 5, 6)]
    verdict = changed(SinkChanges(lost=tuple(lost)))
    assert codes(verdict) == [Code.MUTATED, Code.MUTATED]
    alone, run = verdict.findings
    assert (alone.epoch, alone.batch_id, run.batch_id) == (0, 1, None), "those that follow each other are one finding"
    assert same_message(alone.message) and same_message(run.message)


def test_a_sink_that_is_another_one_and_files_of_others() -> None:
    verdict = changed(SinkChanges(replaced="topic out does not exist"))
    assert codes(verdict) == [Code.MUTATED] and same_message(verdict.message)
    verdict = changed(SinkChanges(foreign=("a.parquet",)))
    assert codes(verdict) == [Code.UNSTAMPED] and verdict.failures == 0 and same_message(verdict.message)
    verdict = changed(Unavailable("sink_logs", "it did not answer"))
    assert codes(verdict) == [Code.ATTESTED_ONLY] and "it did not answer" in verdict.message
