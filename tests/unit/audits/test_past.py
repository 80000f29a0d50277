"""Trends: what stored results of earlier audits say, day by day."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from recon.audits import past as module
from recon.audits.past import past_audits
from recon.model import CheckResult, Code, Finding, RunRecord, RunResult
from recon.model.past import PastAudits, Spell
from recon.project import Project
from recon.write.ledger import open_ledger
from recon.write.ledger.results import append_run, rows_of
from tests.support.ledger_entries import AT, entry, project

CHECKS = (
    "ledger_integrity",
    "offset_continuity",
    "checkpoint_commits",
    "delta_history",
    "source_rows",
    "kafka_end_offsets",
)
DAY = timedelta(days=1)
TODAY = AT.date()
GAP = Finding(
    code=Code.GAP, message="offsets are missing", pipeline="orders", sink="orders", topic="orders", partition=0,
    start_offset=3, end_offset=5, epoch=0, batch_id=7,
)  # fmt: skip


def audit(
    name: str,
    days: float,
    *findings: Finding,
    checks: tuple[str, ...] = CHECKS,
    lag: int | None = 0,
    warned: bool = False,
) -> RunResult:
    """An audit so many days after AT, in which `offset_continuity` reports the findings."""

    def status(check: str) -> str:
        if check == "kafka_end_offsets" and lag is None:
            return "error"
        if check == "offset_continuity":
            return "fail" if findings else "warn" if warned else "pass"
        return "pass"

    at = AT + days * DAY
    results = tuple(
        CheckResult(
            unique_id=f"test.lake.{check}", name=check, check=check, kind="evidence", status=status(check),
            failures=len(findings) if check == "offset_continuity" else 0, message="", pipeline="orders", sink="orders",
            execution_time=0.5, findings=findings if check == "offset_continuity" else (),
            evidence={"lag": lag} if check == "kafka_end_offsets" and lag is not None else {},
        )
        for check in checks
    )  # fmt: skip
    return RunResult(
        invocation_id=name, project="lake", recon_version="0", generated_at=at, period_from=None, period_to=at,
        elapsed_time=1.0, results=results,
    )  # fmt: skip


def read(of: Project, until: datetime, since: datetime | None = None) -> PastAudits:
    return past_audits(of, partial(open_ledger, of), until, since=since)


def stored(folder: Path, *runs: RunResult):
    store = open_ledger(project(folder)).results
    for run in runs:
        append_run(store, run)
    return read(project(folder), AT)


def day(n: int) -> date:
    return TODAY + n * DAY


def test_days_without_an_audit_are_in_no_spell_and_days_on_end_are_one(tmp_path):
    found = stored(tmp_path, audit("a", -9), audit("b", -8), audit("c", -5, GAP), audit("d", -4), audit("e", 0))
    assert (found.first_day, found.last_day, found.audits) == (day(-29), day(0), 5)
    expected = (
        Spell(first=day(-9), last=day(-8), state="complete", audits=2),
        Spell(first=day(-5), last=day(-5), state="not complete", audits=1),
        Spell(first=day(-4), last=day(-4), state="complete", audits=1),
        Spell(first=day(0), last=day(0), state="complete", audits=1),
    )
    assert found.project == expected
    assert [(strip.name, strip.days) for strip in found.pipelines] == [("orders", expected)]


def test_a_day_has_its_worst_answer_and_a_partial_audit_counts_where_it_refutes_or_is_alone(tmp_path):
    found = stored(
        tmp_path,
        audit("refuted", -3, GAP), audit("repaired", -2.9),
        audit("whole", -2), audit("some checks", -1.9, checks=("source_rows",)),
        audit("whole too", -1), audit("refutes", -0.9, GAP, checks=("offset_continuity",)),
        audit("alone", 0, checks=("source_rows",)),
    )  # fmt: skip
    states = {spell.first: spell.state for spell in found.project}
    assert states == {
        day(-3): "not complete", day(-2): "complete", day(-1): "not complete", day(0): "could not be proved",
    }  # fmt: skip


def test_results_that_were_edited_prove_nothing(tmp_path):
    rows = rows_of(audit("edited", 0, GAP))
    changed = [
        {**row, "status": "pass", "findings": "[]"} if row["check"] == "offset_continuity" else row for row in rows
    ]
    open_ledger(project(tmp_path)).results.append_rows(changed)
    found = read(project(tmp_path), AT)
    assert [spell.state for spell in found.project] == ["could not be proved"]
    assert [one.edited for one in found.recent] == [True]


def test_the_record_of_who_ran_an_audit_is_no_check(tmp_path):
    found = stored(tmp_path, replace(audit("a", 0), record=RunRecord(by="ann on lake", checks={"orders": 6})))
    assert sum(found.recent[0].counts.values()) == len(CHECKS)
    assert found.recent[0].edited is False


def test_checks_that_failed_in_most_audits_come_first(tmp_path):
    found = stored(
        tmp_path,
        audit("a", -2, lag=None), audit("b", -1, GAP, replace(GAP, partition=1), lag=None), audit("c", 0, warned=True),
    )  # fmt: skip
    assert found.checks_total == 2
    first, second = found.checks
    assert (first.name, first.failed, first.failures) == ("kafka_end_offsets", 2, None)
    assert (second.name, second.failed, second.failures) == ("offset_continuity", 1, 2)
    assert [spell.state for spell in second.days] == ["pass", "fail", "warn"]


def test_lag_and_cost_by_day_and_unknown_lag_is_not_none(tmp_path):
    found = stored(
        tmp_path, audit("a", -2, lag=70), audit("b", -1.9, lag=900), audit("c", -1, lag=None), audit("d", 0, lag=5)
    )
    (lag,) = found.lags
    assert [(one.day, one.lag) for one in lag.days] == [(day(-2), 900), (day(-1), None), (day(0), 5)]
    assert [(cost.audits, cost.seconds, cost.longest) for cost in found.costs] == [
        (2, 6.0, 3.0),
        (1, 3.0, 3.0),
        (1, 3.0, 3.0),
    ]


def test_time_to_detect_is_from_the_commit_to_the_audit_that_reported_it_first(tmp_path):
    ledger = open_ledger(project(tmp_path))
    committed = AT - 2.25 * DAY
    ledger.append(entry(7, at=committed))
    found = stored(
        tmp_path, audit("a", -2, GAP), audit("b", -1, GAP), audit("c", 0, GAP, replace(GAP, batch_id=None, partition=1))
    )
    assert [(one.first_seen, one.happened_at, one.seconds, one.findings) for one in found.detections] == [
        (AT, None, None, 1),
        (AT - 2 * DAY, committed, 0.25 * 86400, 1),
    ]


def test_what_the_first_audit_of_the_time_reports_may_be_older(tmp_path):
    found = stored(tmp_path, audit("before", -40, GAP), audit("a", -2, GAP), audit("b", 0, GAP))
    assert (found.audits, found.detections) == (2, ())


def test_a_commit_that_changed_the_sink_is_dated_by_the_sinks_own_log(tmp_path):
    log = tmp_path / "orders" / "_delta_log"
    log.mkdir(parents=True)
    at = AT - 0.5 * DAY
    info = {"commitInfo": {"timestamp": int(at.timestamp() * 1000), "operation": "DELETE"}}
    (log / f"{3:020}.json").write_text(json.dumps(info) + "\n")
    mutated = replace(GAP, code=Code.MUTATED, batch_id=None, changed_by=(3,))
    torn = replace(mutated, partition=1, changed_by=(4,))
    (log / f"{4:020}.json").write_text("{")
    found = stored(tmp_path, audit("a", 0, mutated, torn))
    assert {(one.codes, one.happened_at) for one in found.detections} == {(("MUTATED",), at), (("MUTATED",), None)}


def test_too_many_results_leave_the_oldest_days_out(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_ROWS", 2 * len(CHECKS))
    found = stored(tmp_path, *(audit(f"{n}", -n) for n in range(4)))
    assert (found.audits, found.read_from) == (2, day(-1))


def test_quiet_days_before_full_ones_do_not_let_too_many_results_in(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_ROWS", 6 * len(CHECKS))
    full = [audit(f"{n}-{part}", -n + part / 24) for n in (4, 5, 6) for part in range(4)]
    found = stored(tmp_path, *(audit(f"{n}", -n) for n in range(4)), *full)
    assert (found.audits, found.read_from) == (8, day(-4))


def test_a_longer_time_is_shown_where_it_is_asked_for_up_to_a_calendar(tmp_path):
    stored(tmp_path, audit("old", -60, GAP), audit("new", 0))
    longer = read(project(tmp_path), AT, since=AT - 70 * DAY)
    assert (longer.audits, longer.first_day) == (2, day(-70))
    longest = read(project(tmp_path), AT, since=AT - 400 * DAY)
    assert longest.first_day == day(1 - module.MAX_DAYS)


def test_results_that_cannot_be_read_are_said_and_break_nothing(tmp_path):
    stored(tmp_path, audit("a", 0))
    for file in (tmp_path / "_recon" / "results").rglob("*.parquet"):
        file.write_bytes(b"PAR1")
    found = read(project(tmp_path), AT)
    assert found.unknown
    assert (found.audits, found.project) == (0, ())


@pytest.mark.parametrize("name", ["results", "nothing"])
def test_before_the_first_audit_nothing_is_known(tmp_path, name):
    if name == "results":
        stored(tmp_path, audit("later", 3))
    found = read(project(tmp_path), AT)
    assert (found.audits, found.project, found.unknown) == (0, (), "")
