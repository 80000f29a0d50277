"""Findings by their cause: what belongs together is one incident, and nothing else is."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from recon.audits.incidents import incidents_of
from recon.checks.base import EvidenceCheck
from recon.checks.evidence.checkpoint_commits import CheckpointCommits
from recon.checks.evidence.delta_history import DeltaHistory
from recon.checks.evidence.offset_continuity import OffsetContinuity
from recon.checks.evidence.source_rows import SourceRows
from recon.judge.open_findings import with_open_findings
from recon.model import CheckResult, Code, Finding, Incident, KafkaPartition, Witnesses
from recon.model.proof import Acceptance, OpenFinding, Proofs
from recon.testing.evidence import NOW, PIPELINE, SINK, START, TOPIC, TOPIC_ID, Entry, checkpoint, kafka, ledger, span
from recon.testing.evidence import planned as plan
from tests.support.witnesses import commit, delta, group, rows, sink_proof, witnesses

PARTITIONS = 5
MADE_BY = {"user": "ada@example.org", "job id": "17"}


def whole(batch_id: int, start: int, end: int, **head: Any) -> Entry:
    return Entry(batch_id, *(span(start, end, partition) for partition in range(PARTITIONS)), **head)


ENTRIES = [whole(0, 0, 10), whole(1, 10, 20)]
WRITTEN = [commit(version, entry, rows_added=50) for version, entry in enumerate(ENTRIES)]


def delete(version: int, took: int, **fields: Any) -> Any:
    made: dict[str, Any] = {
        "operation": "DELETE",
        "operation_parameters": {"predicate": '["(amount < 0)"]'},
        "operation_metrics": {"numDeletedRows": str(took)},
        "files_removed": 1,
        "rows_added": 40,
        "rows_removed": 40 + took,
        "made_by": MADE_BY,
    }
    return commit(version, **{**made, **fields})


def held(lost: Any = (12, 13)) -> Any:
    """The rows of two micro-batches, without one row of the second in each partition."""
    low, high = lost
    return rows(
        *(group(0, (0, 10), partition=partition) for partition in range(PARTITIONS)),
        *(group(1, (10, low), (high, 20), partition=partition) for partition in range(PARTITIONS)),
        version=9,
    )


def result(check: EvidenceCheck, seen: Witnesses) -> CheckResult:
    """What an audit makes of a check."""
    verdict = with_open_findings(check.judge(seen), check.test, seen)
    status = "fail" if verdict.failures else "error" if verdict.unproved else "pass"
    return CheckResult(
        unique_id=check.test, name=check.test, check=check.test, kind="evidence", status=status,
        failures=verdict.failures, message=verdict.message, pipeline=PIPELINE, sink=SINK,
        findings=verdict.findings, evidence=verdict.evidence,
    )  # fmt: skip


def passed(check: str) -> CheckResult:
    return CheckResult(
        unique_id=check, name=check, check=check, kind="evidence", status="pass", failures=0, message="",
        pipeline=PIPELINE, sink=SINK,
    )  # fmt: skip


OTHERS = [passed(name) for name in ("ledger_integrity", "offset_continuity", "checkpoint_commits")]


def incidents(seen: Witnesses, results: list[CheckResult], *, keeps: bool = True) -> tuple[Incident, ...]:
    return incidents_of(seen, results, [SINK], keeps=keeps)


def deleted(*commits: Any, **fields: Any) -> tuple[Incident, ...]:
    """The incidents of a table from which somebody deleted rows."""
    log = delta(*WRITTEN, *commits)
    seen = witnesses(ledger(*ENTRIES), delta=log, rows=held(), **fields)
    return incidents(seen, [result(DeltaHistory(), seen), result(SourceRows(), seen), *OTHERS])


def test_one_delete_is_one_incident_with_its_five_ranges() -> None:
    (one,) = deleted(delete(2, 5))
    assert one.codes == ("MUTATED", "GAP")
    assert one.checks == ("delta_history", "source_rows")
    assert (one.state, one.harm, one.sink) == ("open", "removed", SINK)
    assert [(r.partition, r.start_offset, r.end_offset, r.harm) for r in one.ranges] == [
        (p, 12, 13, "removed") for p in range(PARTITIONS)
    ]
    (count,) = one.counts
    assert (count.harm, count.offsets, count.rows) == ("removed", 5, 5)
    (change,) = one.changes
    assert (change.version, change.operation, change.predicate, change.rows) == (2, "DELETE", '["(amount < 0)"]', 5)
    assert change.made_by == MADE_BY
    assert one.cause == 'DELETE where ["(amount < 0)"] took away 5 rows: version 2 of lake/orders'
    assert one.first_seen == NOW


def test_two_deletes_whose_rows_cannot_be_told_apart_are_one_incident_that_says_so() -> None:
    (one,) = deleted(delete(2, 3), delete(3, 2, operation_parameters={"predicate": '["(id = 7)"]'}))
    assert [change.version for change in one.changes] == [2, 3]
    assert one.counts[0].rows == 5
    assert one.cause.endswith("which of these took which rows is not known")


def test_two_deletes_are_two_incidents_where_no_rows_were_read() -> None:
    log = delta(*WRITTEN, delete(2, 3), delete(3, 2))
    seen = witnesses(ledger(*ENTRIES), delta=log)
    found = incidents(seen, [result(DeltaHistory(), seen)])
    assert [one.changes[0].version for one in found] == [2, 3]
    assert [(one.counts[0].offsets, one.counts[0].rows) for one in found] == [(0, 3), (0, 2)]


def test_a_log_that_does_not_reach_back_names_no_commit() -> None:
    """Rows are gone, and which commit took them is not known: nothing is invented."""
    log = delta(WRITTEN[1], delete(2, 5), first_retained=1)
    seen = witnesses(ledger(*ENTRIES), delta=log, rows=held())
    (one,) = incidents(seen, [result(SourceRows(), seen)])
    assert (one.changes, one.counts[0].harm, one.counts[0].rows) == ((), "removed", 5)


def test_a_delete_of_unknown_size_counts_no_rows() -> None:
    log = delta(*WRITTEN, delete(2, 5, operation_metrics={}, rows_removed=None))
    seen = witnesses(ledger(*ENTRIES), delta=log)
    (one,) = incidents(seen, [result(DeltaHistory(), seen)])
    assert one.counts[0].rows is None
    assert "an unknown number of rows" in one.cause


def test_one_swallowed_micro_batch_is_one_incident_though_several_checks_see_it() -> None:
    entries = [ENTRIES[0], whole(2, 20, 30, sink_version=1)]
    log = delta(WRITTEN[0], commit(1, entries[1], rows_added=50))
    planned = [plan(e.batch_id, *e.ranges) for e in (ENTRIES[0], ENTRIES[1], whole(2, 20, 30))]
    others = [
        KafkaPartition(partition=p, log_start=0, log_end=30, high_watermark=30, last_stable=30)
        for p in range(1, PARTITIONS)
    ]
    broker = kafka(log_end=30, more=others)
    seen = witnesses(ledger(*entries), delta=log, checkpoint=checkpoint(*planned), kafka=broker)
    results = [result(OffsetContinuity(), seen), result(CheckpointCommits(), seen)]
    assert [sum(f.code is Code.GAP for f in r.findings) for r in results] == [5, 5]
    (one,) = incidents(seen, results)
    assert one.checks == ("checkpoint_commits", "offset_continuity")
    assert (one.harm, one.counts[0].offsets, one.counts[0].rows) == ("missing", 50, None)
    assert one.cause == "no micro-batch wrote these offsets (micro-batch 1 (epoch 0))"
    assert len(one.findings) == 5  # several checks, one id each


def finding(code: Code, start: int | None = None, end: int | None = None, partition: int = 0, **more: Any) -> Finding:
    where = {"topic": TOPIC, "topic_id": TOPIC_ID, "partition": partition} if start is not None else {}
    made = {"pipeline": PIPELINE, "sink": SINK, "message": f"{code} {start} {partition}", **where}
    return Finding(code=code, start_offset=start, end_offset=end, **{**made, **more})


def of(*findings: Finding, check: str = "source_rows", **fields: Any) -> tuple[Incident, ...]:
    seen = witnesses(ledger(*ENTRIES), **fields)
    reported = CheckResult(
        unique_id=check, name=check, check=check, kind="evidence", status="fail", failures=1, message="",
        pipeline=PIPELINE, sink=SINK, findings=findings,
    )  # fmt: skip
    proved = [passed(name) for name in ("delta_history", "source_rows") if name != check]
    return incidents(seen, [reported, *proved, *OTHERS])


def test_one_retention_loss_of_several_partitions_is_one_incident() -> None:
    lost = [finding(Code.LOSS_RETENTION, 10, 15, p, batch_id=1, epoch=0) for p in range(3)]
    (one,) = of(*lost)
    assert (one.harm, one.counts[0].offsets, one.counts[0].rows) == ("lost", 15, None)
    assert one.cause.startswith("Kafka deleted these offsets before a micro-batch read them")
    other_day = [finding(Code.LOSS_RETENTION, 50, 60, p, batch_id=9, epoch=0) for p in range(3)]
    assert len(of(*lost, *other_day)) == 2


def test_a_range_that_retention_passed_in_part_is_one_incident_with_both_numbers() -> None:
    (one,) = of(
        finding(Code.LOSS_RETENTION, 10, 14, batch_id=2, epoch=0),
        finding(Code.GAP, 14, 20, batch_id=2, epoch=0),
        check="offset_continuity",
    )
    assert {(count.harm, count.offsets) for count in one.counts} == {("lost", 4), ("missing", 6)}
    assert [(r.start_offset, r.end_offset, r.harm) for r in one.ranges] == [(10, 14, "lost"), (14, 20, "missing")]


def test_what_meets_in_no_offset_and_no_micro_batch_stays_apart() -> None:
    found = of(
        finding(Code.GAP, 10, 12, batch_id=1, epoch=0),
        finding(Code.GAP, 15, 16, batch_id=3, epoch=0),
        finding(Code.DUPLICATE, 15, 16, batch_id=3, epoch=0, rows=1),
        finding(Code.GAP, 10, 12, 1, batch_id=4, epoch=0, topic_id="another"),
    )
    assert [(one.harm, one.counts[0].offsets) for one in found] == [
        ("missing", 2), ("missing", 2), ("missing", 1), ("twice", 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("inner", "rows"),
    [
        ([], 3),
        ([(12, 13, 1)], 3),
        ([(12, 13, 1), (14, 15, 4)], 5),  # rows of others, which the count of the micro-batch does not have
        ([(10, 20, 2)], 3),
        ([(12, 13, None)], None),
        ([(15, 25, 1)], None),
    ],
)
def test_doubled_rows_of_a_range_and_of_its_offsets_are_counted_once(inner: Any, rows: int | None) -> None:
    parts = [finding(Code.DUPLICATE, a, b, rows=many) for a, b, many in inner]
    (one,) = of(finding(Code.DUPLICATE, 10, 20, batch_id=1, epoch=0, rows=3), *parts)
    assert [count.rows for count in one.counts] == [rows]


def test_offsets_that_two_checks_report_are_counted_once() -> None:
    seen = witnesses(ledger(*ENTRIES))
    results = [
        dataclasses.replace(passed(check), findings=(finding(code, *reach, **more),))
        for check, code, reach, more in (
            ("offset_continuity", Code.OVERLAP, (10, 20), {}),
            ("source_rows", Code.DUPLICATE, (12, 20), {"rows": 8}),
        )
    ]
    (one,) = incidents(seen, results)
    assert (one.counts[0].offsets, one.counts[0].rows) == (10, None), "of two offsets it is not known"


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([finding(Code.GAP, 1, 2, batch_id=0, epoch=0)], ["recon repair plan", "recon accept"]),
        ([finding(Code.LOSS_RETENTION, 1, 2, batch_id=0, epoch=0)], ["recon accept"]),
        ([finding(Code.INCONCLUSIVE, 1, 2)], ["recon audit --full", "recon accept"]),
        ([finding(Code.INCONCLUSIVE, 1, 2, undecidable=True)], ["recon accept"]),
        ([finding(Code.TAMPERED)], ["recon ledger verify", "recon accept"]),
        ([finding(Code.STALLED)], ["recon explain"]),
        ([finding(Code.LOSS_AHEAD)], ["recon advise"]),
        ([finding(Code.RECREATED)], ["recon explain", "recon offsets", "recon accept"]),
    ],
)
def test_what_to_do_next(findings: list[Finding], expected: list[str]) -> None:
    (one,) = of(*findings)
    commands = [step.command for step in one.steps]
    assert [next(e for e in expected if c.startswith(e)) for c in commands] == expected
    for command in commands:
        if command.startswith("recon accept"):
            assert command.split()[2] in one.findings
            assert "--reason" in command and "--by" in command
        elif command.startswith("recon repair plan"):
            assert command == f"recon repair plan --pipeline orders --sink lake --finding {one.id}"


def test_commands_quote_names() -> None:
    seen = dataclasses.replace(witnesses(ledger(*ENTRIES)), pipeline="a b; rm -rf ~")
    results = [dataclasses.replace(passed("x"), findings=(finding(Code.STALLED),))]
    (one,) = incidents(seen, results)
    assert one.steps[0].command == "recon explain --pipeline 'a b; rm -rf ~'"


@pytest.mark.parametrize(
    ("code", "whole", "keeps", "stored"),
    [
        (Code.GAP, True, True, True),
        (Code.GAP, True, False, False),
        (Code.GAP, False, True, True),  # a refutation stays open, whatever else was not evaluated
        (Code.INCONCLUSIVE, True, True, True),
        (Code.INCONCLUSIVE, False, True, False),  # the next audit, which evaluates all checks, may answer it
    ],
)
def test_only_what_the_audit_stores_has_an_id_to_accept(code: Code, whole: bool, keeps: bool, stored: bool) -> None:
    seen = witnesses(ledger(*ENTRIES))
    results = [dataclasses.replace(passed("source_rows"), findings=(finding(code, 1, 2),)), *OTHERS]
    results += [passed("delta_history")] if whole else []
    (incident,) = incidents(seen, results, keeps=keeps)
    commands = [step.command for step in incident.steps]
    assert any(command.startswith("recon accept") for command in commands) is stored
    assert ("recon audit" in commands) is not stored


def earlier(one: Finding, check: str = "source_rows", **fields: Any) -> Proofs:
    known = OpenFinding(finding=one, check=check, first_seen=START, last_seen=START, **fields)
    return Proofs(of_sink={SINK: sink_proof(open=(known,))})


def test_an_incident_that_an_earlier_audit_found_keeps_its_age_and_its_id() -> None:
    gap = finding(Code.GAP, 1, 2, batch_id=0, epoch=0)
    proofs = earlier(gap)
    (known,) = proofs.of_sink[SINK].open
    again = dataclasses.replace(gap, message=gap.message + known.since)
    (one,) = of(again, proofs=proofs)
    assert (one.first_seen, one.findings) == (START, (known.id,))
    assert one.messages == (gap.message,)


def test_accepted_repaired_and_carried_findings_have_their_state() -> None:
    gap = finding(Code.GAP, 1, 3, batch_id=0, epoch=0)
    by = Acceptance(by="Ada", reason="test data", at=START + timedelta(days=1))
    (accepted,) = of(proofs=earlier(gap, accepted=by))
    assert (accepted.state, accepted.steps) == ("accepted", ())
    assert accepted.accepted == f"accepted by Ada on {by.at:%Y-%m-%d}: test data"
    assert accepted.counts[0].offsets == 2

    repaired = dataclasses.replace(gap, code=Code.REPAIRED, message="it is in order")
    (one,) = of(repaired, proofs=earlier(gap))
    assert (one.state, one.codes, one.first_seen) == ("repaired", ("GAP",), START)

    (carried,) = of(check="kafka_end_offsets", proofs=earlier(gap, check="atomicity"))
    assert (carried.state, carried.codes) == ("open", ("GAP",))


def test_a_part_that_was_repaired_is_not_counted_any_more() -> None:
    gap = finding(Code.GAP, 0, 10, batch_id=0, epoch=0)
    left = dataclasses.replace(gap, start_offset=4)
    mended = dataclasses.replace(gap, code=Code.REPAIRED, end_offset=4)
    found = of(left, mended, proofs=earlier(gap))
    assert sum(one.counts[0].offsets for one in found if one.state == "open") == 6


def test_every_fourth_record_of_many_micro_batches_is_one_incident_with_all_its_findings() -> None:
    lost = [finding(Code.GAP, at, at + 1, batch_id=at // 40, epoch=0, rows=1) for at in range(3, 400, 4)]
    (one,) = of(*lost)
    assert one.pattern is not None and one.pattern.shape == "every_nth"
    assert (one.counts[0].offsets, one.counts[0].rows, len(one.findings), len(one.ranges)) == (100, 100, 100, 100)
    assert set(one.findings) == {each.subject.id for each in lost} and one.id == lost[0].subject.id


def test_rows_that_are_counted_in_ranges_apart_are_summed_up() -> None:
    (one,) = of(*(finding(Code.GAP, 40 * n, 40 * n + 40, batch_id=n, epoch=0, rows=10) for n in range(5)))
    assert one.pattern is not None and one.pattern.shape == "part_of_each"
    assert (one.counts[0].offsets, one.counts[0].rows) == (200, 50)


def test_of_more_findings_than_are_listed_all_are_counted() -> None:
    listed = [finding(Code.GAP, at, at + 1, batch_id=at // 40, epoch=0, rows=1) for at in range(3, 400, 4)]
    (one,) = of(*listed, finding(Code.GAP, rows=251, about="not listed: 0123abcd"))
    assert one.counts[0].rows == 351
    assert one.pattern is not None and "not listed" in one.pattern.says
