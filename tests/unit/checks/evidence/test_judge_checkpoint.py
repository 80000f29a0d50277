"""checkpoint_commits: cases 7, 21-23, 27, 29-33."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recon.checks.evidence.checkpoint_commits import CheckpointCommits
from recon.checks.period import Period
from recon.judge.open_findings import with_open_findings
from recon.judge.source import OffsetsWithoutRecord, WithoutRecord
from recon.model import (
    CheckpointBatch,
    CheckpointFlaw,
    Code,
    Finding,
    LedgerSlice,
    SinkCommit,
    SinkLog,
    TableCommit,
    TableLog,
    Unavailable,
    Verdict,
)
from recon.model.offsets import Spans
from recon.model.proof import OpenFinding, Proofs
from recon.testing.evidence import (
    NOW,
    PIPELINE,
    SINK,
    START,
    TOPIC,
    TOPIC_ID,
    Entry,
    checkpoint,
    gone,
    kafka,
    ledger,
    planned,
    span,
)
from tests.support.asked import questions
from tests.support.messages import same_message
from tests.support.witnesses import codes, commit, delta, probe, sink_proof, told, witnesses

ENTRIES = [Entry(i, (10 * i, 10 * i + 10)) for i in range(4)]
LEDGER = ledger(*ENTRIES)
LOG = delta(*(commit(i, entry) for i, entry in enumerate(ENTRIES)))
PLANS = [planned(i, (10 * i, 10 * i + 10)) for i in range(4)]
SOON = NOW - timedelta(minutes=1)


def judged(
    *plans: CheckpointBatch,
    slice_: LedgerSlice | None = LEDGER,
    log: TableLog = LOG,
    query_id: str = "q-1",
    check: CheckpointCommits | None = None,
    **fields: Any,
) -> Verdict:
    found = witnesses(slice_, delta=log, checkpoint=checkpoint(*plans, query_id=query_id), **fields)
    return (check or CheckpointCommits()).judge(found)


def fixed(log: TableLog) -> TableLog:
    """The same commits, written under a fixed app id."""
    commits = [replace(c, txn={"mine": c.stamp.batch_id}) for c in log.commits.values() if c.stamp is not None]
    return delta(*commits)


def record(*entries: Entry) -> SinkLog:
    """What another kind of sink remembers of the same writes."""
    made = [commit(i, entry) for i, entry in enumerate(entries)]
    commits = (SinkCommit(version=None, stamp=c.stamp, rows=10, at=c.timestamp) for c in made if c.stamp is not None)
    return SinkLog(location="orders", exists=True, commits=tuple(commits))


def test_a_sink_that_is_no_delta_table_is_judged_by_its_own_record() -> None:
    def by_record(slice_: LedgerSlice, log: SinkLog | Unavailable) -> Verdict:
        logs = log if isinstance(log, Unavailable) else {SINK: log}
        plans = checkpoint(*PLANS, query_id="q-1")
        return CheckpointCommits().judge(witnesses(slice_, checkpoint=plans, sink_logs=logs))

    assert codes(by_record(LEDGER, record(*ENTRIES))) == []
    without_last = ledger(*ENTRIES[:3])
    verdict = by_record(without_last, record(*ENTRIES))
    assert codes(verdict) == [Code.LEDGER_MISSING] and same_message(verdict.findings[0].message)
    assert codes(by_record(without_last, record(*ENTRIES[:3]))) == [Code.GAP]
    assert by_record(LEDGER, gone("sink_logs")).unproved


def test_a_checkpoint_that_is_an_older_copy() -> None:
    verdict = judged(*PLANS[:2])
    assert codes(verdict) == [Code.STALE_CHECKPOINT] and same_message(verdict.findings[0].message)
    assert verdict.findings[0].batch_id == 2 and not verdict.failures
    gone_on = replace(checkpoint(*PLANS[:2], query_id="q-1"), newest_later=3)
    assert codes(CheckpointCommits().judge(witnesses(LEDGER, delta=LOG, checkpoint=gone_on))) == []


# -- what agrees ------------------------------------------------------------------------------------------------


def test_all_agree() -> None:
    verdict = judged(*PLANS)
    assert (verdict.failures, verdict.warnings, verdict.unproved, verdict.findings) == (0, 0, None, ())
    assert same_message(verdict.message)
    assert verdict.evidence == {"query_id": "q-1", "batches": 4, "recorded": 4, "not_judged": 0}


def test_a_partition_that_was_new_needs_no_start() -> None:
    entry = Entry(4, span(40, 50), span(3, 7, 1))
    plan = planned(4, (40, 50), new_partitions=((0, "orders", 1, 7),))
    assert judged(*PLANS, plan, slice_=ledger(*ENTRIES, entry)).findings == ()


def test_the_oldest_plan_of_a_purged_checkpoint() -> None:
    assert judged(planned(1, starts_known=False), *PLANS[2:]).findings == ()


def test_what_trimming_dropped_is_held_by_earlier_entries() -> None:
    rest = Entry(0, (40, 60), epoch=1, query_id="q-2")
    whole = Entry(1, (60, 60), epoch=1, query_id="q-2")
    plans = [planned(0, (20, 60)), planned(1, (60, 60))]
    assert judged(*plans, slice_=ledger(*ENTRIES, rest, whole), query_id="q-2").findings == ()


# -- planned and not finished (21-23) ------------------------------------------------------------------------------


def test_planned_a_moment_ago() -> None:
    verdict = judged(*PLANS, planned(4, (40, 50), committed=False, at=SOON))
    assert codes(verdict) == [Code.INFLIGHT]
    assert verdict.failures == 0
    assert verdict.findings[0].batch_id == 4


def test_planned_long_ago() -> None:
    old = planned(4, (40, 50), committed=False, at=NOW - timedelta(minutes=61))
    assert codes(judged(*PLANS, old)) == [Code.STALLED]
    assert codes(judged(*PLANS, old, check=CheckpointCommits(stalled_after=Period(2, "hour")))) == [Code.INFLIGHT]


def test_planned_and_expired() -> None:
    plan = planned(4, (40, 50), committed=False, at=SOON)
    verdict = judged(*PLANS, plan, kafka=kafka(44, 60))
    assert told(verdict) == [("LOSS_RETENTION", 0, 40, 44)]
    assert Code.INFLIGHT in codes(verdict)
    assert told(judged(*PLANS, plan, kafka=kafka(70, 90))) == [("LOSS_RETENTION", 0, 40, 50)]
    assert told(judged(*PLANS, plan, kafka=kafka(40, 90))) == []


def test_a_plan_without_a_time_is_not_decided() -> None:
    plan = replace(planned(4, (40, 50), committed=False), planned_at=None)
    assert judged(*PLANS, plan).unproved is not None


@pytest.mark.parametrize("committed", [False, True])
def test_in_the_sink_and_not_in_the_ledger(committed: bool) -> None:
    verdict = judged(
        *PLANS,
        planned(4, (40, 50), committed=committed, at=SOON),
        log=delta(*LOG.commits.values(), commit(4, Entry(4, (40, 50)))),
    )
    assert codes(verdict) == [Code.LEDGER_MISSING]
    assert (verdict.failures, verdict.warnings) == (0, 1)
    assert verdict.findings[0].batch_id == 4


def test_the_very_first_entry_is_missing() -> None:
    verdict = judged(planned(0, (0, 10), committed=False), slice_=None, log=delta(commit(0, ENTRIES[0])))
    assert codes(verdict) == [Code.LEDGER_MISSING]


def test_in_sink_and_ledger_and_not_finished() -> None:
    verdict = judged(*PLANS[:3], replace(PLANS[3], committed=False))
    assert codes(verdict) == [Code.INFLIGHT]
    assert same_message(verdict.findings[0].message)


def test_after_the_replay() -> None:
    replay = Entry(3, (30, 40), attempt=2, status="already_committed", sink_version=3)
    verdict = judged(*PLANS, slice_=ledger(*ENTRIES, replay))
    assert codes(verdict) == [Code.REPLAYED]


def test_a_second_call_of_a_run_was_not_written_once() -> None:
    of_run = {"run_id": "r-1", "sink_version": 3}
    first = Entry(3, (30, 40), transform="job:even", **of_run)
    again = Entry(3, (30, 40), attempt=2, status="already_committed", transform="job:odd", **of_run)
    assert codes(judged(*PLANS, slice_=ledger(*ENTRIES[:3], first, again))) == []


# -- swallowed (27) and empty (7) -----------------------------------------------------------------------------------


def test_a_swallowed_write() -> None:
    verdict = judged(*PLANS, planned(4, (40, 50)), planned(5, (50, 50)), kafka=kafka(0, 50))
    assert told(verdict, info=True) == [("EMPTY", None, None, None), ("GAP", 0, 40, 50)]
    assert verdict.failures == 1
    assert same_message(verdict.message)


def test_a_swallowed_write_that_expired_since() -> None:
    assert told(judged(*PLANS, planned(4, (40, 50)), kafka=kafka(60, 70))) == [("LOSS_RETENTION", 0, 40, 50)]


def test_kafka_is_asked_before_a_micro_batch_is_called_missing() -> None:
    """A micro-batch of transaction markers, or aborted records, left nothing to write."""
    plans, broker = (*PLANS, planned(4, (40, 50))), kafka(0, 50)
    found = witnesses(LEDGER, delta=LOG, checkpoint=checkpoint(*plans, query_id="q-1"), kafka=broker)
    assert questions(CheckpointCommits(), found) == {(TOPIC, 0): Spans.of([(40, 50)])}
    empty, aborted = probe([(40, 50)]), probe([(40, 50)], [(41, 42)])
    for probes in (empty, aborted):
        assert told(judged(*plans, kafka=broker, probes=probes), info=True) == [("EXPLAINED", 0, 40, 50)]
    one, short = probe([(40, 50)], [(41, 42)], [(41, 42)]), probe([(40, 50)], truncated="the log ends at 49")
    expired = probe([(40, 50)], log_start=50)  # since the log start was asked
    for probes in (one, short, expired, probe([(40, 49)]), {}):
        assert told(judged(*plans, kafka=broker, probes=probes)) == [("GAP", 0, 40, 50)]
    uncommitted = judged(*plans, kafka=broker, probes=aborted, isolation_level="read_uncommitted")
    assert told(uncommitted) == [("GAP", 0, 40, 50)] and same_message(uncommitted.findings[0].message)
    # A topic that was created again says nothing about the one that was read, compaction nothing about what was there.
    for other in (kafka(0, 50, topic_id="id-2"), kafka(0, 50, policy="compact")):
        found = witnesses(LEDGER, delta=LOG, checkpoint=checkpoint(*plans, query_id="q-1"), kafka=other)
        assert questions(CheckpointCommits(), found) == {}
    assert told(judged(*plans, kafka=kafka(0, 50, topic_id="id-2"), probes=empty)) == [("GAP", 0, 40, 50)]


def test_what_an_audit_saw_to_hold_no_record_is_no_loss_once_kafka_deleted_it() -> None:
    level = "read_committed"
    empty = OffsetsWithoutRecord(topic=TOPIC, topic_id=TOPIC_ID, partition=0, isolation_level=level, ranges=((40, 50),))
    known = Proofs(of_sink={SINK: sink_proof(WithoutRecord(offsets=(empty,)))})
    plans, later = (*PLANS, planned(4, (40, 50))), kafka(60, 70)
    assert told(judged(*plans, kafka=later, proofs=known), info=True) == [("EXPLAINED", 0, 40, 50)]
    assert told(judged(*PLANS, planned(4, (40, 55)), kafka=later, proofs=known)) == [("LOSS_RETENTION", 0, 50, 55)]


def test_what_was_seen_for_readers_of_committed_records_is_no_answer_for_one_of_all() -> None:
    """recon.yml had another isolation level in that audit than the query, and was corrected since."""
    plans = (*PLANS, planned(4, (40, 50)))

    def found(seen: str, isolation_level: str) -> list[Any]:
        empty = OffsetsWithoutRecord(
            topic=TOPIC, topic_id=TOPIC_ID, partition=0, isolation_level=seen, ranges=((40, 50),)
        )
        known = Proofs(of_sink={SINK: sink_proof(WithoutRecord(offsets=(empty,)))})
        return told(judged(*plans, kafka=kafka(60, 70), proofs=known, isolation_level=isolation_level), info=True)

    assert found("read_committed", "read_uncommitted") == [("LOSS_RETENTION", 0, 40, 50)]
    assert found("read_uncommitted", "read_committed") == [("EXPLAINED", 0, 40, 50)]


def test_a_range_without_a_record_is_of_the_topic_that_was_asked() -> None:
    """The topic was made anew; what is empty in it says nothing of the offsets of the former one."""
    anew = [span(0, 2)._replace(topic_id="id-2"), span(7, 9)._replace(topic_id="id-2")]
    entries = [Entry(0, (0, 3)), Entry(1, (6, 10)), Entry(2, anew[0]), Entry(4, anew[1])]
    gap = Finding(
        code=Code.GAP,
        message="",
        pipeline=PIPELINE,
        sink=SINK,
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=0,
        start_offset=3,
        end_offset=6,
    )
    known = OpenFinding(finding=gap, check="checkpoint_commits", first_seen=NOW, last_seen=NOW)
    plans = [planned(2, (0, 2)), planned(3, (2, 7)), planned(4, (7, 9))]
    seen = witnesses(
        ledger(*entries),
        delta=delta(*(commit(i, entry) for i, entry in enumerate(entries))),
        checkpoint=checkpoint(*plans, query_id="q-1"),
        kafka=kafka(0, 9, topic_id="id-2"),
        probes=probe([(2, 7)]),
        proofs=Proofs(of_sink={SINK: sink_proof(open=(known,))}),
    )
    verdict = with_open_findings(CheckpointCommits().judge(seen), "checkpoint_commits", seen)
    found = {(f.code, f.topic_id, f.span) for f in verdict.findings}
    assert found >= {(Code.EXPLAINED, "id-2", (2, 7)), (Code.GAP, TOPIC_ID, (3, 6))}
    assert not any(code is Code.REPAIRED for code, _, _ in found)


def test_a_long_range_is_asked_about_in_growing_parts() -> None:
    plans, broker = (*PLANS, planned(4, (40, 200_040))), kafka(0, 200_040)
    found = witnesses(LEDGER, delta=LOG, checkpoint=checkpoint(*plans, query_id="q-1"), kafka=broker)
    asked = []
    for _ in range(4):
        (spans,) = questions(CheckpointCommits(), found).values() or ((),)
        if spans:
            asked.append(spans.size)
            found = replace(found, probes=probe(list(spans)))
    assert asked == [10_000, 100_000, 200_000]
    assert told(CheckpointCommits().judge(found), info=True) == [("EXPLAINED", 0, 40, 200_040)]


def test_a_swallowed_write_in_the_middle() -> None:
    kept = [entry for entry in ENTRIES if entry.batch_id != 2]
    log = delta(*(commit(i, entry) for i, entry in enumerate(kept)))
    assert told(judged(*PLANS, slice_=ledger(*kept), log=log)) == [("GAP", 0, 20, 30)]


def test_a_later_plan_says_that_the_earlier_one_finished() -> None:
    plans = [planned(4, (40, 50), committed=False), planned(5, (50, 60), committed=False, at=SOON)]
    verdict = judged(*PLANS, *plans)
    assert told(verdict) == [("GAP", 0, 40, 50)]
    assert Code.INFLIGHT in codes(verdict)


def test_a_swallowed_write_that_was_read_again() -> None:
    again = Entry(0, (40, 50), epoch=1, query_id="backfill")
    assert told(judged(*PLANS, planned(4, (40, 50)), slice_=ledger(*ENTRIES, again))) == []


def test_a_finished_batch_of_unknown_start_is_not_decided() -> None:
    verdict = judged(planned(9, starts_known=False, at=SOON))
    assert verdict.unproved is not None
    assert verdict.failures == 0


# -- new lives (29-33) -----------------------------------------------------------------------------------------------


def test_a_new_checkpoint_from_earliest() -> None:
    verdict = judged(planned(0, (0, 50), committed=False, at=SOON), query_id="q-2")
    assert told(verdict) == [("OVERLAP", 0, 0, 40)]
    assert codes(verdict) == [Code.INFLIGHT, Code.NEW_EPOCH, Code.OVERLAP]
    epoch = next(f for f in verdict.findings if f.code is Code.NEW_EPOCH)
    assert (epoch.batch_id, epoch.epoch) == (0, 1)


def test_a_new_checkpoint_at_latest() -> None:
    verdict = judged(planned(0, (60, 60), committed=False, at=SOON), query_id="q-2", kafka=kafka(0, 60))
    assert told(verdict) == [("GAP", 0, 40, 60)]
    assert Code.NEW_EPOCH in codes(verdict)
    assert same_message(verdict.message)


def test_a_new_checkpoint_on_another_topic_of_the_name_leaves_nothing_out_and_reads_nothing_again() -> None:
    other = kafka(0, 60, topic_id="id-9", cluster_id="B")
    for plan in (planned(0, (60, 60), at=SOON), planned(0, (0, 30), at=SOON)):
        verdict = judged(replace(plan, committed=False), query_id="q-2", kafka=other)
        assert told(verdict) == []
        assert Code.NEW_EPOCH in codes(verdict)


def test_a_new_checkpoint_that_continues() -> None:
    verdict = judged(planned(0, (40, 50), committed=False, at=SOON), query_id="q-2")
    assert codes(verdict) == [Code.INFLIGHT, Code.NEW_EPOCH]


def test_a_new_epoch_in_the_sink_and_not_in_the_ledger() -> None:
    entry = Entry(0, (30, 50), epoch=1, query_id="q-2")
    verdict = judged(planned(0, (30, 50), at=SOON), query_id="q-2", log=delta(*LOG.commits.values(), commit(4, entry)))
    assert codes(verdict) == [Code.LEDGER_MISSING, Code.NEW_EPOCH, Code.OVERLAP]
    assert told(verdict)[1] == ("OVERLAP", 0, 30, 40)


@pytest.mark.parametrize("committed", [True, False])
def test_a_fixed_app_id_swallows_the_new_checkpoint(committed: bool) -> None:
    verdict = judged(planned(0, (0, 50), committed=committed, at=SOON), query_id="q-2", log=fixed(LOG))
    assert told(verdict) == [("SKIPPED", 0, 40, 50)]  # [0, 40) is in the sink since the epoch before
    assert codes(verdict) == [Code.NEW_EPOCH, Code.SKIPPED]
    assert verdict.findings[0].batch_id == 0
    assert same_message(verdict.message)


def test_the_tables_checksum_knows_the_app_id_of_old_commits() -> None:
    plan = planned(8, (0, 50), at=SOON)
    assert Code.SKIPPED not in codes(judged(plan, query_id="q-2", log=fixed(LOG)))
    known = replace(fixed(LOG), txns={"mine": 9})
    assert Code.SKIPPED in codes(judged(plan, query_id="q-2", log=known))


def test_recons_own_app_id_cannot_swallow_a_new_epoch() -> None:
    verdict = judged(planned(0, (0, 50), at=SOON), query_id="q-2")
    assert Code.SKIPPED not in codes(verdict)
    assert told(verdict) == [("GAP", 0, 40, 50)]  # the new life wrote nothing, and [0, 40) was there before


def test_offsets_deleted_and_metadata_kept() -> None:
    verdict = judged(planned(0, (0, 45), committed=False, at=SOON), log=fixed(LOG))
    assert told(verdict) == [("SKIPPED", 0, 40, 45)]
    assert codes(verdict) == [Code.NEW_EPOCH, Code.SKIPPED]
    epoch = next(f for f in verdict.findings if f.code is Code.NEW_EPOCH)
    assert same_message(epoch.message)


@pytest.mark.parametrize("query_id", ["q-1", "q-2"])
def test_a_dropped_write_of_offsets_that_the_ledger_has_is_no_loss(query_id: str) -> None:
    verdict = judged(planned(0, (0, 35), at=SOON), query_id=query_id, log=fixed(LOG))
    assert told(verdict) == [("STALE_CHECKPOINT", None, None, None)]
    assert codes(verdict) == [Code.NEW_EPOCH, Code.STALE_CHECKPOINT]
    assert same_message(next(f for f in verdict.findings if f.code is Code.STALE_CHECKPOINT).message)


def test_a_dropped_write_of_another_topic_of_the_name_is_in_no_entry() -> None:
    verdict = judged(planned(0, (0, 35), at=SOON), query_id="q-2", log=fixed(LOG), kafka=kafka(0, 60, topic_id="id-9"))
    assert ("SKIPPED", 0, 0, 35) in told(verdict)


def test_a_new_epoch_that_the_ledger_knows_is_no_news() -> None:
    known = Entry(0, (40, 60), epoch=1)
    log = delta(*LOG.commits.values(), commit(4, known))
    assert judged(planned(0, (40, 60), at=SOON), slice_=ledger(*ENTRIES, known), log=log).findings == ()


def test_settings_leaked_into_another_write() -> None:
    plans = (*PLANS, planned(4, (40, 50), committed=False, at=SOON))
    verdict = judged(*plans, log=delta(*fixed(LOG).commits.values(), commit(4, txn={"mine": 4})))
    assert told(verdict) == [("SKIPPED", 0, 40, 50)]
    # recon's own app id goes on behind it: the next start reads the newest version.
    thief = commit(4, txn={f"recon:orders:{SINK}": 5})
    assert codes(judged(*plans, log=delta(*LOG.commits.values(), thief))) == [Code.INFLIGHT]


def test_an_old_checkpoint_put_back() -> None:
    verdict = judged(*PLANS, slice_=ledger(*ENTRIES, Entry(0, (40, 50), epoch=1, query_id="q-2")))
    assert codes(verdict) == [Code.NEW_EPOCH]
    assert same_message(verdict.findings[0].message)


# -- what is not judged, and what proves nothing ---------------------------------------------------------------------


def before_and_after_recon(first: int) -> tuple[list[CheckpointBatch], LedgerSlice, list[TableCommit]]:
    """A query whose micro-batches 7 and 8 have entries, and the commits of these from version `first` on."""
    young = ledger(Entry(7, (70, 80)), Entry(8, (80, 90)))
    before = [planned(i, (10 * i, 10 * i + 10), at=START - timedelta(minutes=10 - i)) for i in range(7)]
    plans = [*before, planned(7, (70, 80)), planned(8, (80, 90))]
    return plans, young, [commit(first + i, Entry(i + 7, (10 * i + 70, 10 * i + 80))) for i in range(2)]


def test_plans_of_earlier_audits_are_not_judged_again() -> None:
    plans, young, commits = before_and_after_recon(0)
    verdict = judged(*plans, slice_=replace(young, anchors=1, complete=False), log=delta(*commits))
    assert verdict.findings == ()
    assert same_message(verdict.message)


def test_what_ran_before_the_ledgers_first_entry_is_not_witnessed() -> None:
    plans, young, commits = before_and_after_recon(1)
    by_others = TableCommit(version=0, timestamp=START, stamp=None, rows_added=70, data_change=True)
    verdict = judged(*plans, slice_=young, log=delta(by_others, *commits))
    assert codes(verdict) == [Code.UNWITNESSED]
    assert same_message(verdict.findings[0].message)
    # Neither does a checkpoint tell that was purged, nor a log that was cleaned up.
    assert codes(judged(*plans[5:], slice_=young, log=delta(*commits))) == [Code.UNWITNESSED]
    cleaned = replace(delta(*commits), first_retained=1)
    assert codes(judged(*plans, slice_=young, log=cleaned)) == [Code.UNWITNESSED]
    empty = [replace(plan, ranges=()) for plan in plans[:7]]
    assert codes(judged(*empty, *plans[7:], slice_=young, log=cleaned)) == []


def test_swallowed_micro_batches_before_the_ledgers_first_entry_are_a_gap() -> None:
    plans, young, commits = before_and_after_recon(0)
    verdict = judged(*plans, slice_=young, log=delta(*commits))
    assert codes(verdict) == [Code.GAP] * 7
    assert [finding.span for finding in verdict.findings] == [(10 * i, 10 * i + 10) for i in range(7)]
    # A sink that was added to a pipeline later is judged from its own first entry on.
    other = replace(ledger(*(Entry(i, (10 * i, 10 * i + 10)) for i in range(9))), sink="older")
    seen = witnesses(young, delta=delta(*commits), checkpoint=checkpoint(*plans))
    assert not isinstance(seen.ledgers, Unavailable)
    both = replace(seen, ledgers={**seen.ledgers, "older": other})
    assert codes(CheckpointCommits().judge(both)) == [Code.UNWITNESSED]


def test_micro_batches_before_the_first_entry_whose_plans_spark_removed() -> None:
    """The checkpoint keeps where the query began, and the first entry says where it had come to."""
    plans, young, commits = before_and_after_recon(0)

    def found(log: TableLog, begins: tuple[tuple[int, str, int, int], ...], **fields: Any) -> Verdict:
        left = replace(checkpoint(*plans[5:]), begins=begins)
        return CheckpointCommits().judge(witnesses(young, delta=log, checkpoint=left, **fields))

    began = ((0, TOPIC, 0, 20),)
    verdict = found(delta(*commits), began)
    assert told(verdict) == [("GAP", 0, 20, 70)]
    assert same_message(verdict.findings[0].message)
    by_others = TableCommit(version=0, timestamp=START, stamp=None, rows_added=70, data_change=True)
    assert codes(found(delta(by_others, *before_and_after_recon(1)[2]), began)) == [Code.UNWITNESSED]
    # Where another partition alone is known, or the topic was created again, nothing says what was read.
    for unknown in ((), ((0, TOPIC, 1, 0),), ((0, TOPIC, 0, 90),)):
        assert codes(found(delta(*commits), unknown)) == [Code.UNWITNESSED]
    # Another sink, whose earlier entries this audit does not have, may have them.
    other = replace(ledger(Entry(8, (80, 90))), sink="older", complete=False)
    ledgers = {SINK: young, "older": other}
    assert codes(found(delta(*commits), began, ledgers=ledgers)) == [Code.UNWITNESSED]


def test_plans_after_the_period_are_not_judged() -> None:
    later = planned(4, (40, 50), at=NOW + timedelta(seconds=1))
    assert judged(*PLANS, later).findings == ()
    past = judged(*PLANS, planned(4, (40, 50), at=START + timedelta(minutes=4)), period_to=START + timedelta(minutes=4))
    assert past.findings == ()


def test_a_checkpoint_without_offsets_is_not_decided() -> None:
    verdict = judged()
    assert verdict.unproved is not None
    assert "its offsets were deleted" in verdict.unproved


def test_missing_witnesses() -> None:
    none = CheckpointCommits().judge(witnesses(LEDGER, delta=LOG))
    assert none.unproved == "checkpoint did not answer"
    none = CheckpointCommits().judge(witnesses(LEDGER, checkpoint=checkpoint(*PLANS), delta=gone("delta")))
    assert none.unproved == "delta did not answer"
    assert judged(*PLANS, slice_=None, log=delta()).unproved is not None


def test_a_file_that_is_missing_between_others_is_a_finding() -> None:
    def with_flaw(batch_id: int, *plans: CheckpointBatch, **fields: Any) -> Verdict:
        flawed = replace(
            checkpoint(*plans), flaws=[CheckpointFlaw(batch_id, f"checkpoint cp has no offsets/{batch_id}")]
        )
        slice_ = fields.pop("slice_", LEDGER)
        return CheckpointCommits().judge(witnesses(slice_, delta=LOG, checkpoint=flawed, **fields))

    after_hole = replace(PLANS[2], ranges=(), starts_known=False)
    verdict = with_flaw(1, PLANS[0], after_hole, PLANS[3])
    assert (codes(verdict), verdict.unproved) == ([Code.INCONCLUSIVE], verdict.findings[0].message)
    assert same_message(verdict.findings[0].message)
    assert codes(with_flaw(4, *PLANS)) == [Code.INCONCLUSIVE], "the newest plan is gone"
    assert codes(with_flaw(0, replace(PLANS[1], ranges=(), starts_known=False), *PLANS[2:])) == [Code.INCONCLUSIVE]
    # What was planned before the entries looked at, or after the period, is another audit's business.
    later = replace(LEDGER, anchors=2, complete=False)
    assert codes(with_flaw(0, *PLANS[1:], slice_=later)) == []
    late = {"period_to": SOON, "now": NOW}
    assert codes(with_flaw(3, *PLANS, planned(5, (50, 60), at=NOW - timedelta(seconds=5)), **late)) != []
    assert codes(with_flaw(4, *PLANS, planned(5, (40, 60), at=NOW - timedelta(seconds=5)), **late)) == []


def test_a_plan_without_offsets_of_kafka_whose_entry_has_some_is_not_empty() -> None:
    overwritten = replace(PLANS[1], ranges=())
    assert Code.INCONCLUSIVE in codes(judged(PLANS[0], overwritten, *PLANS[2:]))


@pytest.mark.parametrize(
    ("end", "topics", "back", "codes_told"),
    [
        (40, (), False, []),  # read to its end
        (45, (), False, ["STALLED"]),
        (45, ("orders", "returns"), False, ["STALLED"]),
        (45, ("orders",), False, []),  # kafka_end_offsets judges what a topic that left recon.yml has
        (45, ("orders", "returns"), True, []),  # a later plan has it
    ],
)
def test_a_topic_partition_that_plans_leave_out(
    end: int, topics: tuple[str, ...], back: bool, codes_told: list[str]
) -> None:
    other = span(20, 40, topic="returns")
    again = (span(40, 45, topic="returns"),) if back else ()
    entries = [Entry(0, (0, 60), other), Entry(1, (60, 80)), Entry(2, (80, 100), *again)]
    plans = checkpoint(planned(0, (0, 60), other), planned(1, (60, 80)), planned(2, (80, 100), *again))
    both = kafka(0, 100)
    witness = replace(both, topics={**both.topics, **kafka(0, end, topic="returns").topics})
    log = delta(*(commit(i, entry) for i, entry in enumerate(entries)))
    seen = witnesses(ledger(*entries), checkpoint=plans, kafka=witness, topics=topics, delta=log)
    verdict = CheckpointCommits().judge(seen)
    assert [code for code, *_ in told(verdict)] == codes_told, verdict.findings


# -- a plan that somebody edited after its entry was made ---------------------------------------------------------


def test_an_edited_plan_is_no_new_epoch_and_nothing_is_skipped() -> None:
    ahead = judged(*PLANS[:3], planned(3, (30, 45)))
    assert codes(ahead) == []  # offset_continuity says what is left out
    back = judged(*PLANS[:3], planned(3, (30, 36)))
    assert codes(back) == [Code.STALE_CHECKPOINT] and same_message(back.findings[0].message)
    entered = Entry(4, (36, 50))
    log = delta(*LOG.commits.values(), commit(4, entered))
    assert (
        codes(judged(*PLANS[:3], planned(3, (30, 36)), planned(4, (36, 50)), slice_=ledger(*ENTRIES, entered), log=log))
        == []
    )


def test_an_edited_plan_that_runs_again() -> None:
    verdict = judged(*PLANS[:3], planned(3, (30, 45), committed=False))
    assert codes(verdict) == [Code.STALE_CHECKPOINT]
    assert "orders-0 offsets [30, 40)" in verdict.findings[0].message
