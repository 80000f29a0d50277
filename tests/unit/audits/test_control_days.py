"""The six controls of the compliance report, day by day: unknown is never shown, and no false alarm."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from recon.audits.accept import accept
from recon.audits.compliance import compliance
from recon.model import Code, Finding, Level, RunRecord
from recon.model.controls import AGAINST, CONTROLS
from recon.model.proof import OpenFinding
from recon.project.compliance import Compliance
from recon.reports.compliance import render_html, render_markdown
from tests.support.audited_lake import BEGIN, DAY, HOUR, PROVING, AuditedLake, at_batch, days_of
from tests.support.ledger_entries import entry

GAP = Finding(code=Code.GAP, message="a row is missing", pipeline="orders", sink="orders")
BAD = "<script>alert('x')</script>|a`b\n# c"


def open_finding(finding: Finding, day: int) -> OpenFinding:
    at = BEGIN + (day + 1) * DAY + HOUR
    return OpenFinding(finding=finding, check="source_rows", first_seen=at, last_seen=at)


def test_days_that_audits_covered_with_every_check_are_shown(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(3)
    for day in range(3):
        lake.audit(day)
    report = lake.report(3)
    assert all(days_of(report, name) == {"shown": [0, 1, 2]} for name in CONTROLS)
    assert {s.state for f in report.frameworks for s in f.statements} == {"shown"}
    assert report.answer == "complete" and "shown on 3 of 3 days" in render_markdown(report)


def test_a_day_without_an_audit_is_named_and_never_shown(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(5)
    for day in (0, 1, 4):
        lake.audit(day)
    report = lake.report(5)
    for name in CONTROLS:
        # The audit of day 1 ran an hour after it, and that of day 4 begins with that day.
        assert days_of(report, name) == {"shown": [0, 1, 4], "partly covered": [2], "no audit": [3]}
    assert all(s.state == "no audit" for f in report.frameworks for s in f.statements)
    text, told = render_markdown(report), " ".join(report.unproved)
    assert "no audit 2026-10-04" in text and "shown on 3 of 5 days; partly covered on 1; no audit on 1" in text
    assert "partly covered 2026-10-03: from 00:00 to 01:00 UTC; 1 ledger entry judged by no audit" in text
    assert "No audit looked at 1 day" in told and "Audits looked at a part of 1 day" in told
    assert report.answer == "could not be proved"


def test_a_day_that_audits_looked_at_twice_and_not_as_a_whole_says_when(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(2)
    lake.audit(0)
    lake.audit(1, begin=BEGIN + DAY + 11 * HOUR, end=BEGIN + DAY + 17 * HOUR)
    report = lake.report(2)
    assert days_of(report, "completeness") == {"shown": [0], "partly covered": [1]}
    assert "partly covered 2026-10-02: from 00:00 to 01:00 and from 11:00 to 17:00 UTC" in render_markdown(report)


@pytest.mark.parametrize("audited_since", [BEGIN - 30 * DAY, None])
def test_a_day_before_the_ledgers_first_entry_is_not_yet_there(tmp_path: Path, audited_since: datetime | None) -> None:
    """A stream is two hours old: the audit's period reaches back over days on which there was nothing."""
    lake = AuditedLake(tmp_path)
    lake.write(1)
    lake.audit(0, begin=audited_since, at=BEGIN + 14 * HOUR)
    report = compliance(lake.project, BEGIN - 29 * DAY, BEGIN + DAY)
    for name in CONTROLS:
        assert days_of(report, name) == {"not yet there": list(range(-29, 0)), "partly covered": [0]}
    text = render_markdown(report)
    assert "shown on 0 of 30 days; partly covered on 1; not yet there on 29" in text
    assert "partly covered 2026-10-01: from 12:00 to 14:00 UTC" in text and "29 of" not in text
    assert report.answer == "could not be proved"
    lake.audit(1, begin=BEGIN)
    report = compliance(lake.project, BEGIN - 29 * DAY, BEGIN + DAY)
    assert all(days_of(report, name) == {"not yet there": list(range(-29, 0)), "shown": [0]} for name in CONTROLS)
    text = render_markdown(report)
    assert "shown on 1 of 30 days; not yet there on 29" in text
    assert report.answer == "complete" and "nothing was recorded on 29 days of the period before that" in text
    assert {s.state for f in report.frameworks for s in f.statements} == {"shown"}


def test_a_finding_before_the_first_entry_is_of_the_days_that_its_audit_looked_at(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.ledger.append(entry(0, at=BEGIN + 3 * DAY + 12 * HOUR, pipeline="orders"))
    lake.audit(0, replace(GAP, code=Code.MUTATED), proves=False)
    lake.audit(3, replace(GAP, code=Code.TAMPERED), judged=(1, 1), begin=BEGIN, proves=False)
    report = lake.report(4)
    assert days_of(report, "change control") == {"answered": [0, 1], "not yet there": [2], "shown": [3]}
    assert days_of(report, "audit trail") == {"not yet there": [0, 1, 2], "refuted": [3]}


def test_a_sink_that_wrote_nothing_yet_has_no_day_and_is_not_complete(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path, names=("orders", "payments"))
    lake.ledger.append(entry(0, at=BEGIN + 12 * HOUR, pipeline="orders"))
    lake.audit(0)
    report = lake.report(1)
    assert days_of(report, "completeness", "payments") == {"not yet there": [0]}
    assert [report.answer_of(sink) for sink in report.sinks] == ["complete", "could not be proved"]
    told = "No ledger entry of pipeline payments, sink orders, is of the period or before it"
    assert told in " ".join(report.unproved)


def test_a_later_audit_of_the_whole_ledger_shows_the_day_after_all(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(3)
    lake.audit(0)
    assert days_of(lake.report(3), "completeness") == {"shown": [0], "partly covered": [1], "no audit": [2]}
    lake.audit(2, judged=(1, 3), begin=BEGIN)
    assert days_of(lake.report(3), "completeness") == {"shown": [0, 1, 2]}


def test_an_entry_that_no_audit_judged_is_not_shown_though_an_audits_period_covers_it(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(2)
    lake.audit(0)
    lake.audit(1, judged=(1, 1))
    report = lake.report(2)
    assert days_of(report, "completeness") == {"shown": [0], "not shown": [1]}
    assert "1 ledger entry judged by no such audit" in render_markdown(report)


def test_a_partial_audit_is_named_and_shows_only_what_it_ran(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(2)
    lake.audit(0)
    record = RunRecord(by="ada on lake-1", checks={"orders": 6})
    lake.audit(1, checks=("ledger_integrity", "delta_history"), record=record, args={"select": ["delta_history"]})
    report = lake.report(2)
    assert days_of(report, "completeness") == {"shown": [0], "not shown": [1]}
    assert days_of(report, "change control") == {"shown": [0, 1]}
    assert [a.partial for a in report.audits] == ["", "orders: 2 of 6 checks: --select delta_history"]
    text = render_markdown(report)
    assert "**partial audit**" in text
    assert "offset\\_continuity did not run, as the audit was a partial one" in text
    assert "<b>Partial audit:</b>" in render_html(report)


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"select": ["pipeline:orders"]}, "of what was selected: --select pipeline:orders"),
        ({"from": "2d"}, "of a period that was asked for: --from 2d"),
    ],
)
def test_an_audit_of_every_check_may_be_partial(tmp_path: Path, args: dict[str, Any], why: str) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(1)
    lake.audit(0, checks=("ledger_integrity",), record=RunRecord(by="ada", checks={"orders": 1}), args=args)
    assert [a.partial for a in lake.report(1).audits] == [f"orders: {why}"]


@pytest.mark.parametrize("status", ["error", "skipped"])
def test_what_could_not_be_evaluated_is_not_shown(tmp_path: Path, status: str) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(1)
    lake.audit(0, status={"source_rows": status})
    report = lake.report(1)
    assert days_of(report, "completeness") == {"not shown": [0]} and days_of(report, "audit trail") == {"shown": [0]}
    assert f"source_rows could not be evaluated: {status} of source_rows" in " ".join(report.unproved)


def test_a_finding_refutes_the_day_of_its_micro_batch_alone(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(3)
    gap = at_batch(GAP, 1)
    for day in range(3):
        lake.audit(day, *([gap] if day else []), open_=[open_finding(gap, 1)] if day else [])
    report = lake.report(3)
    assert days_of(report, "completeness") == {"shown": [0, 2], "refuted": [1]}
    assert days_of(report, "uniqueness") == {"shown": [0, 1, 2]}
    (incident,) = report.incidents
    assert (incident.state, incident.codes, incident.detected_at) == ("open", (Code.GAP,), BEGIN + 2 * DAY + HOUR)
    states = {s.id: s.state for f in report.frameworks for s in f.statements if f.name == "bcbs_239"}
    # A row that is missing is no row that agrees with its source.
    assert states == {"Principle 3": "refuted", "Principle 4": "refuted", "Principle 5": "shown"}


@pytest.mark.parametrize(("start", "day"), [(10, 1), (12, 1), (25, 2)])
def test_a_finding_about_offsets_is_of_the_day_that_read_them(tmp_path: Path, start: int, day: int) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(3)
    gap = replace(GAP, topic="orders", topic_id="id-1", partition=0, start_offset=start, end_offset=start + 2)
    for n in range(3):
        lake.audit(n, *([gap] if n == 2 else []))
    assert days_of(lake.report(3), "completeness")["refuted"] == [day]


def test_a_finding_without_a_place_is_of_every_day_that_its_audit_looked_at(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(3)
    lake.audit(0)
    lake.audit(2, replace(GAP, code=Code.MUTATED), judged=(2, 3), begin=BEGIN + DAY)
    report = lake.report(3)
    assert days_of(report, "change control") == {"shown": [0], "refuted": [1, 2]}
    assert [change.code for change in report.changes] == [Code.MUTATED]


def test_an_accepted_finding_is_answered_with_who_and_why(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path, pipeline={"meta": {"owner": "team-orders"}})
    lake.write(2)
    gap = at_batch(GAP, 0)
    known = open_finding(gap, 0)
    lake.audit(0, gap, open_=[known])
    accept(lake.project, known.id, reason="test data", by="Ada Lovelace")
    (accepted,) = lake.ledger.proofs.newest("orders", "orders").open
    lake.audit(1, open_=[accepted])
    report = lake.report(400)
    assert days_of(report, "completeness")["answered"] == [0]
    (incident,) = report.incidents
    assert (incident.state, incident.owner, incident.id) == ("accepted", "team-orders", known.id)
    assert "accepted by Ada Lovelace" in incident.ended and incident.closed_at is not None
    (action,) = report.actions
    assert (action.kind, action.by, action.reason) == ("accepted", "Ada Lovelace", "test data")
    assert "Ada Lovelace" in render_html(report) and "team-orders" in render_html(report)


def test_a_repaired_finding_is_closed_by_the_audit_that_saw_it(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(2)
    gap = replace(GAP, topic="orders", topic_id="id-1", partition=0, start_offset=2, end_offset=4)
    lake.audit(0, gap, open_=[open_finding(gap, 0)])
    lake.audit(1, replace(gap, code=Code.REPAIRED))
    report = lake.report(2)
    assert days_of(report, "completeness") == {"answered": [0], "shown": [1]}
    (incident,) = report.incidents
    assert (incident.state, incident.closed_at) == ("closed", BEGIN + 2 * DAY + HOUR)
    assert incident.ended == "repaired, as the audit of 2026-10-03 01:00 found"


def test_one_pipelines_fault_and_acceptance_are_not_the_others(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path, names=("orders", "payments"))
    lake.write(1)
    gap = at_batch(GAP, 0)
    known = open_finding(gap, 0)
    lake.audit(0, gap, open_=[known])
    lake.audit(0, replace(gap, pipeline="payments"), pipeline="payments",
               open_=[open_finding(replace(gap, pipeline="payments"), 0)])  # fmt: skip
    accept(lake.project, known.id, reason="test data", by="Ada")
    report = lake.report(1)
    assert days_of(report, "completeness", "orders") == {"answered": [0]}
    assert days_of(report, "completeness", "payments") == {"refuted": [0]}
    assert {(i.pipeline, i.state) for i in report.incidents} == {("orders", "accepted"), ("payments", "open")}


def test_a_ledger_that_was_edited_shows_nothing(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(2)
    lake.audit(0)
    lake.audit(1)
    DeltaTable(lake.ledger.location).update(updates={"rows_written": "21"}, predicate="batch_id = 1")
    report = lake.report(2)
    assert days_of(report, "audit trail") == {"refuted": [0, 1]}
    assert days_of(report, "completeness") == {"not shown": [0, 1]}
    assert report.answer == "not complete"


def test_results_that_were_edited_are_no_audit_and_refute_the_trail(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(2)
    lake.audit(0)
    lake.audit(1)
    DeltaTable(lake.ledger.results.location).update(
        updates={"status": "'pass'"}, predicate="invocation_id = 'orders-1' and kind = 'run'"
    )
    assert days_of(lake.report(2), "audit trail") == {"shown": [0, 1]}, "the status was pass before"
    DeltaTable(lake.ledger.results.location).update(
        updates={"evidence": "'{}'"}, predicate="invocation_id = 'orders-1' and kind = 'run'"
    )
    report = lake.report(2)
    assert days_of(report, "audit trail") == {"refuted": [0, 1]}
    assert days_of(report, "completeness") == {"shown": [0], "partly covered": [1]}


def test_timeliness_is_shown_only_against_a_limit(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(3)
    lake.audit(0, evidence={})
    lag = replace(GAP, code=Code.LAG, message="unread records are 7 minutes old")
    lake.audit(1, lag)
    lake.audit(2)
    report = lake.report(3)
    assert days_of(report, "timeliness")["not shown"] == [0]
    assert "kafka_end_offsets has no limit (warn_after or error_after)" in " ".join(report.unproved)
    assert days_of(report, "completeness") == {"shown": [0, 1, 2]}


def test_a_test_of_rows_refutes_the_control_that_it_is_about(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(1)
    lake.audit(0, data=[("unique", "fail"), ("not_null", "pass")])
    report = lake.report(1)
    assert days_of(report, "uniqueness") == {"refuted": [0]} and days_of(report, "accuracy") == {"shown": [0]}
    (incident,) = report.incidents
    assert incident.codes == (Code.VIOLATION,)


def test_a_test_that_only_warns_refutes_nothing(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(1)
    lake.audit(0, data=[("unique", "warn", "2 values of order_id occur more than once"), ("not_null", "pass")])
    report = lake.report(1)
    assert report.answer == "complete" and [audit.outcome for audit in report.audits] == ["complete"]
    assert days_of(report, "uniqueness") == days_of(report, "accuracy") == {"shown": [0]}
    (one,) = report.exceptions
    assert (one.finding.code, one.finding.level, one.open) == (Code.VIOLATION_WARN, Level.WARN, True)
    assert "2 values of order_id occur more than once" in render_html(report)
    (incident,) = report.incidents
    assert incident.state == "open" and incident.cause.startswith("unique_orders: ")


def test_what_rests_on_a_test_that_warns_is_not_shown(tmp_path: Path) -> None:
    checks = "[ledger_integrity, kafka_end_offsets, freshness]"
    control = f"{{id: timeliness, title: T, control: timeliness, checks: {checks}, shown: S., limits: L.}}"
    (tmp_path / "controls.yml").write_text(f"controls: [{control}]")
    lake = AuditedLake(tmp_path, more={"compliance": Compliance(controls="controls.yml")})
    lake.write(2)
    lake.audit(0, data=[("freshness", "warn")])
    lake.audit(1, data=[("freshness", "warn")])
    report = lake.report(2)
    assert days_of(report, "timeliness") == {"not shown": [0, 1]} and report.answer == "complete"
    assert "VIOLATION_WARN open" in " ".join(report.unproved)


def test_who_ran_each_audit_with_which_version_of_the_file(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(3)
    for day, digest in enumerate(("aa", "bb", "bb")):
        lake.audit(day, record=RunRecord(by="cron on lake-1", config_hash=digest * 32, checks={"orders": 6}))
    report = lake.report(3)
    assert [(v.config_hash, v.audits) for v in report.config_versions] == [("aa" * 32, 1), ("bb" * 32, 2)]
    assert {a.by for a in report.audits} == {"cron on lake-1"}
    assert dict(report.audits[0].checks) == dict.fromkeys((*PROVING, "kafka_end_offsets"), 1)
    assert "aa" * 32 in render_html(report) and "cron on lake-1" in render_html(report)


def test_a_period_that_ends_today_has_no_day_to_come(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(1)
    lake.audit(0)
    report = lake.report(1000)
    control = report.controls[0].sinks[0]
    assert control.stretches[0].first == BEGIN.date() and control.stretches[-1].last < date(2029, 1, 1)
    assert control.total == (report.generated_at.date() - BEGIN.date()).days + 1
    assert report.days_to_come == 1000 - control.total


def test_hostile_names_are_inert(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path, pipeline={"owner": BAD})
    lake.write(2)
    gap = at_batch(replace(GAP, message=BAD), 0)
    known = open_finding(gap, 0)
    lake.audit(0, gap, open_=[known], record=RunRecord(by=BAD, config_hash=BAD, checks={"orders": 9}),
               args={"select": [BAD]})  # fmt: skip
    lake.audit(1, status={"source_rows": "error"}, checks=(*PROVING, BAD), open_=[known])
    accept(lake.project, known.id, reason=BAD, by=BAD)
    report = lake.report(400)
    page, text = render_html(report), render_markdown(report)
    assert page.count("<script>") == 1 and "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert "<script>" not in text and "\n# c" not in text


def test_every_code_that_refutes_contradicts_a_control() -> None:
    of_controls = frozenset().union(*AGAINST.values())
    assert {code for code in Code if code.level is Level.FAIL} - of_controls == {Code.VIOLATION}


def test_audits_behind_the_period_show_its_last_day(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(2)
    lake.audit(1, judged=(1, 2), begin=BEGIN)
    report = lake.report(1)
    assert report.audits[0].generated_at > report.period_to
    assert days_of(report, "completeness") == {"shown": [0]}
    assert timedelta(0) < report.audits[0].generated_at - report.period_to
