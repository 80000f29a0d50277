"""What was accepted or repaired refutes no micro-batch: a sink's answer and its days say the same, as audits do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recon.audits.accept import accept
from recon.model import Code, Finding
from recon.model.compliance import ComplianceReport
from recon.reports.compliance import render_html, render_markdown
from tests.support.audited_lake import BEGIN, DAY, AuditedLake, days_of
from tests.unit.audits.test_control_days import open_finding

GAP = Finding(
    code=Code.GAP,
    message="rows are missing",
    pipeline="orders",
    sink="orders",
    topic="orders",
    topic_id="id-1",
    partition=0,
    start_offset=2,
    end_offset=5,
)  # of micro-batch 0
ASKED = replace(GAP, code=Code.INCONCLUSIVE, message="the log is gone")
REPAIRED = replace(GAP, code=Code.REPAIRED, message="are there again")
JUDGED = {"source_rows": "pass"}


@pytest.fixture
def lake(tmp_path: Path) -> AuditedLake:
    one = AuditedLake(tmp_path)
    one.write(3)
    return one


def figures(report: ComplianceReport) -> tuple[int, int, int]:
    (sink,) = report.sinks
    return sink.batches_proved, sink.batches_refuted, sink.batches_unproved


@pytest.mark.parametrize(
    ("finding", "before", "answer"),
    [(GAP, (1, 1, 1), "not complete"), (ASKED, (1, 0, 2), "could not be proved")],
)
def test_what_was_accepted_is_what_the_answer_leaves_out(
    lake: AuditedLake, finding: Finding, before: tuple[int, int, int], answer: str
) -> None:
    known = open_finding(finding, 0)
    lake.audit(0, finding, open_=[known])
    lake.audit(1, open_=[known])
    report = lake.report(3)
    assert (figures(report), report.answer) == (before, answer)
    lake.audit(2, open_=[known])
    accept(lake.project, known.id, reason="test data", by="Ada")
    report = lake.report(3)
    assert (figures(report), report.answer) == ((3, 0, 0), "complete")
    assert report.sinks[0].ranges_refuted == report.sinks[0].ranges_unproved == 0
    assert days_of(report, "completeness") == {"answered": [0], "shown": [1, 2]}
    for page in (render_html(report), render_markdown(report)):
        assert "arrived once and is unchanged, but for 1 accepted finding." in page.replace("\\", "")
        assert "every range was proved, but for 1 accepted finding, and" in page.replace("\\", "")


def test_a_check_that_only_asked_what_was_accepted_was_evaluated(lake: AuditedLake) -> None:
    known, error = open_finding(ASKED, 0), {"source_rows": "error"}
    lake.audit(0, ASKED, status=error, open_=[known])
    lake.audit(1, open_=[known])
    lake.audit(2, open_=[known])
    report = lake.report(3)
    assert (figures(report), report.answer) == ((2, 0, 1), "could not be proved")
    assert days_of(report, "completeness")["not shown"] == [0]
    accept(lake.project, known.id, reason="test data", by="Ada")
    report = lake.report(3)
    assert (figures(report), report.answer) == ((3, 0, 0), "complete")
    assert days_of(report, "completeness") == {"answered": [0], "shown": [1, 2]}


def test_a_check_that_could_not_run_proves_nothing_whatever_was_accepted(lake: AuditedLake) -> None:
    known, other = open_finding(ASKED, 0), replace(ASKED, start_offset=7, end_offset=9)
    lake.audit(0, ASKED, other, status={"source_rows": "error"}, open_=[known])
    lake.audit(1, status={"source_rows": "error"})
    lake.audit(2, open_=[known])
    accept(lake.project, known.id, reason="test data", by="Ada")
    report = lake.report(3)
    assert (figures(report), report.answer) == ((1, 0, 2), "could not be proved")


def test_what_was_repaired_is_complete(lake: AuditedLake) -> None:
    lake.audit(0, GAP)
    lake.audit(1, REPAIRED, status=JUDGED)
    lake.audit(2)
    report = lake.report(3)
    assert (figures(report), report.answer) == ((3, 0, 0), "complete")
    assert days_of(report, "completeness") == {"answered": [0], "shown": [1, 2]}
    assert "but for" not in report.exceptions[0].closed and "accepted finding" not in render_markdown(report)


def test_what_was_lost_again_after_a_repair_is_refuted(lake: AuditedLake) -> None:
    lake.audit(0, GAP)
    lake.audit(1, REPAIRED, status=JUDGED)
    lake.audit(2, GAP)
    report = lake.report(3)
    assert (figures(report), report.answer) == ((2, 1, 0), "not complete")
    assert report.exceptions[0].open and days_of(report, "completeness")["refuted"] == [0]


def test_another_loss_of_the_same_micro_batch_stays(lake: AuditedLake) -> None:
    other = replace(GAP, start_offset=7, end_offset=9)
    known = open_finding(GAP, 0)
    lake.audit(0, GAP, other, open_=[known, open_finding(other, 0)])
    lake.audit(1)
    lake.audit(2, other, open_=[known, open_finding(other, 0)])
    accept(lake.project, known.id, reason="test data", by="Ada")
    report = lake.report(3)
    assert (figures(report), report.answer) == ((2, 1, 0), "not complete")


def test_a_question_that_no_audit_looked_at_again_is_not_answered(lake: AuditedLake) -> None:
    """It is not reported any more, as later audits were about other micro-batches."""
    lake.audit(0, ASKED)
    lake.audit(1)
    lake.audit(2)
    report = lake.report(3)
    assert (figures(report), report.answer) == ((2, 0, 1), "could not be proved")
    assert days_of(report, "completeness") == {"not shown": [0], "shown": [1, 2]}
    assert "INCONCLUSIVE not looked at again" in render_markdown(report).replace("\\", "")


def test_an_audit_of_less_than_the_period_of_a_finding_answers_nothing(lake: AuditedLake) -> None:
    """It may have looked at other micro-batches, though it ran later and begins no later."""
    last = replace(GAP, start_offset=22, end_offset=25)  # of micro-batch 2
    lake.audit(2, last, begin=BEGIN, judged=(1, 3))
    lake.audit(3, begin=BEGIN, end=BEGIN + DAY, judged=(1, 1))
    report = lake.report(3)
    assert (figures(report), report.answer) == ((2, 1, 0), "not complete")
    assert report.exceptions[0].open and days_of(report, "completeness")["refuted"] == [2]


def test_what_an_audit_of_a_later_period_found_is_answered_by_one_of_all_of_this_period(lake: AuditedLake) -> None:
    for day in range(3):
        lake.audit(day)
    lake.audit(3, GAP)
    report = lake.report(3)
    assert (figures(report), report.answer) == ((2, 1, 0), "not complete")
    lake.audit(4, begin=BEGIN + DAY, end=BEGIN + 3 * DAY, judged=(2, 3))
    assert lake.report(3).answer == "not complete", "it did not look at the first day"
    lake.audit(5, begin=BEGIN, end=BEGIN + 3 * DAY, judged=(1, 3))
    report = lake.report(3)
    assert (figures(report), report.answer) == ((3, 0, 0), "complete")
    assert days_of(report, "completeness") == {"answered": [0], "shown": [1, 2]}


def test_what_was_accepted_is_answered_though_the_results_of_its_audit_are_gone(lake: AuditedLake) -> None:
    known = open_finding(ASKED, 0)
    for day in range(2):
        lake.audit(day, open_=[known])
    lake.audit(2, begin=BEGIN, judged=(1, 3), open_=[known])
    report = lake.report(3)
    assert figures(report) == (2, 0, 1) and days_of(report, "completeness")["not shown"] == [0]
    accept(lake.project, known.id, reason="test data", by="Ada")
    report = lake.report(3)
    assert figures(report) == (3, 0, 0) and report.accepted_of(*report.sinks) == 1
    assert days_of(report, "completeness") == {"answered": [0], "shown": [1, 2]}


def test_an_accepted_finding_without_offsets_is_one_however_often_audits_reported_it(lake: AuditedLake) -> None:
    """Each later audit adds its age to the message; the audit that follows the acceptance reports it no more."""
    deleted = Finding(code=Code.MUTATED, message="version 3 is a DELETE of 7 rows", pipeline="orders", sink="orders")
    known = open_finding(deleted, 0)
    lake.audit(0, deleted, open_=[known])
    lake.audit(1, replace(deleted, message=deleted.message + known.since), open_=[known])
    report = lake.report(2)
    assert [(one.finding, one.audits, one.open) for one in report.exceptions] == [(deleted, 2, True)]
    accept(lake.project, known.id, reason="a customer asked for it", by="Ada")
    (accepted,) = lake.ledger.proofs.newest("orders", "orders").open
    lake.audit(2, open_=[accepted])
    report = lake.report(3)
    (one,) = report.exceptions
    assert (one.finding, one.id, one.open, one.audits) == (deleted, known.id, False, 2)
    assert report.answer == "complete" and [incident.state for incident in report.incidents] == ["accepted"]
    text = render_markdown(report).replace("\\", "")
    assert text.count(deleted.message) == 3, "as an exception, as what was accepted, and as a change"
    assert "open since" not in text and "but for 1 accepted finding" in text
