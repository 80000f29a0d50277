"""Attempts to make a compliance report say more than audits showed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from recon.audits.compliance import compliance
from recon.model import Code, Finding, RunRecord
from recon.reports.compliance import render_html
from tests.support.audited_lake import BEGIN, DAY, HOUR, PROVING, AuditedLake, at_batch, days_of
from tests.support.ledger_entries import entry
from tests.unit.audits.test_control_days import GAP, open_finding


def test_a_past_period_that_ends_at_noon_is_partly_covered(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(1)
    lake.audit(0)  # ran at 01:00 of the next day
    report = compliance(lake.project, BEGIN, BEGIN + DAY + 12 * HOUR)
    assert days_of(report, "completeness") == {"shown": [0], "partly covered": [1]}
    assert len(report.days_partly_audited) == 1 and report.answer == "could not be proved"


def test_a_quiet_day_that_only_a_partial_audit_looked_at_is_not_complete(tmp_path: Path) -> None:
    """Nobody asked Kafka what it held on that day, and no entry of it is there to be judged."""
    lake = AuditedLake(tmp_path)
    lake.write(1)
    lake.audit(0)
    assert lake.report(1).answer == "complete"
    record = RunRecord(by="ada on lake-1", checks={"orders": 6})
    lake.audit(1, checks=("ledger_integrity",), judged=(1, 1), record=record, args={"select": ["ledger_integrity"]})
    report = lake.report(2)
    assert days_of(report, "completeness") == {"shown": [0], "not shown": [1]}
    assert report.answer == "could not be proved"


@pytest.mark.parametrize("by_offsets", [False, True])
def test_what_a_later_audit_found_of_the_periods_rows_is_of_the_period(tmp_path: Path, by_offsets: bool) -> None:
    """Rows of the first day are deleted a month later, and an audit of that day says so."""
    lake = AuditedLake(tmp_path)
    lake.write(31)
    for day in range(30):
        lake.audit(day)
    place = {"topic": "orders", "topic_id": "id-1", "partition": 0, "start_offset": 2, "end_offset": 4}
    gone = replace(GAP, **place) if by_offsets else at_batch(GAP, 0)
    assert lake.report(2).answer == "complete"
    of_later = at_batch(replace(GAP, message="of the last day"), 30)
    lake.audit(30, gone, of_later, open_=[open_finding(gone, 30), open_finding(of_later, 30)])
    report = lake.report(2)
    assert days_of(report, "completeness") == {"refuted": [0], "shown": [1]}
    assert [one.finding for one in report.exceptions] == [gone] and report.exceptions[0].open
    assert (report.answer, report.sinks[0].batches_refuted) == ("not complete", 1)
    assert [audit.invocation_id for audit in report.audits] == ["orders-0", "orders-1"], "it is no audit of the period"


def test_what_a_later_audit_saw_repaired_is_closed(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(4)
    gap = replace(GAP, topic="orders", topic_id="id-1", partition=0, start_offset=2, end_offset=4)
    for day in range(3):
        lake.audit(day, gap, open_=[open_finding(gap, 0)])
    assert days_of(lake.report(1), "completeness") == {"refuted": [0]}
    lake.audit(3, replace(gap, code=Code.REPAIRED))
    report = lake.report(1)
    assert days_of(report, "completeness") == {"answered": [0]}
    assert [one.closed for one in report.exceptions] == ["repaired, as the audit of 2026-10-05 01:00 found"]


def test_days_before_the_ledgers_first_entry_are_not_shown_where_nobody_witnessed_them(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    for n in (5, 6):
        lake.ledger.append(entry(n, at=BEGIN + n * DAY + 12 * HOUR, pipeline="orders"))
    before = Finding(code=Code.UNWITNESSED, message="0 to 4", pipeline="orders", sink="orders", batch_id=4)
    lake.audit(6, before, judged=(1, 2), begin=BEGIN - 3 * DAY)
    report = lake.report(7)
    for control in ("completeness", "uniqueness", "accuracy"):
        assert days_of(report, control) == {"not shown": [0, 1, 2, 3, 4, 5], "shown": [6]}
    assert days_of(report, "audit trail") == {"not yet there": list(range(5)), "shown": [5, 6]}
    assert report.answer == "could not be proved" and "UNWITNESSED" in render_html(report)


def test_entries_of_a_pipeline_that_is_not_in_recon_yml_any_more_are_named(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path, names=("orders", "payments"))
    lake.write(1)
    lake.audit(0)
    lake.audit(0, at_batch(replace(GAP, pipeline="payments"), 0), pipeline="payments")
    assert lake.report(1).answer == "not complete" and "not in recon.yml" not in " ".join(lake.report(1).unproved)
    lake.names = ("orders",)
    assert "The ledger has entries of pipeline payments, sink orders, which is not in recon.yml" in " ".join(
        lake.report(1).unproved
    )


@pytest.mark.parametrize(
    ("check", "place", "state"),
    [
        ("atomicity", {}, "not shown"),
        ("kafka_end_offsets", {"partition": 0}, "not shown"),  # the log was cut off: what was read cannot be compared
        ("kafka_end_offsets", {}, "shown"),  # the age of unread records is not known
        ("kafka_end_offsets", {"partition": 0, "start_offset": 90, "end_offset": 99}, "shown"),
    ],
)
def test_a_question_of_another_check_leaves_completeness_open(
    tmp_path: Path, check: str, place: dict[str, int], state: str
) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(1)
    lake.audit(
        0,
        Finding(code=Code.INCONCLUSIVE, message="?", pipeline="orders", sink="orders", topic="orders", **place),
        checks=(*PROVING, *{"kafka_end_offsets", check}),
        of=check,
    )
    assert days_of(lake.report(1), "completeness") == {state: [0]}


def test_a_test_of_rows_that_could_not_be_evaluated_leaves_its_control_open(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(1)
    lake.audit(0, data=[("not_null", "error"), ("unique", "pass")])
    report = lake.report(1)
    assert days_of(report, "accuracy") == {"not shown": [0]} and days_of(report, "uniqueness") == {"shown": [0]}


def test_an_audit_of_the_pipelines_checks_alone_did_not_say_complete(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(1)
    lake.audit(0, checks=("kafka_end_offsets",), sink=None)
    assert [audit.outcome for audit in lake.report(1).audits] == ["could not be proved"]


def test_what_the_proof_has_counts_though_the_results_of_its_audit_are_gone(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(3)
    lake.audit(0)
    gap = at_batch(GAP, 0)
    lake.audit(1, gap, begin=BEGIN, judged=(1, 2), open_=[open_finding(gap, 1)])
    assert days_of(lake.report(1), "completeness") == {"refuted": [0]}
    DeltaTable(lake.ledger.results.location).delete("invocation_id = 'orders-1'")
    report = lake.report(1)
    assert days_of(report, "completeness") == {"refuted": [0]} and days_of(report, "audit trail") == {"refuted": [0]}
    (known,) = [one for one in report.exceptions if one.finding.code is Code.GAP]
    assert (known.open, known.audits) == (True, 0) and known.id and known.checks == ("source_rows",)


def test_a_proof_that_is_gone_refutes_the_trail(tmp_path: Path) -> None:
    """With it, what was open and what was accepted is gone."""
    lake = AuditedLake(tmp_path)
    lake.write(3)
    for day in range(3):
        lake.audit(day)
    assert days_of(lake.report(3), "audit trail") == {"shown": [0, 1, 2]}
    shutil.rmtree(lake.ledger.proofs.store.location)
    report = lake.report(3)
    assert days_of(report, "audit trail") == {"refuted": [0, 1, 2]} and report.answer == "not complete"
    assert "an audit read 2" in render_html(report)
