"""A compliance report speaks of its own period: not of days to come, of other months, or of what was read before."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from recon.audits.compliance import compliance, derive
from recon.base.errors import ConfigError
from recon.model import CheckResult, Code, Finding, RunResult
from recon.model.compliance import ComplianceReport
from recon.recovery.sample import sample
from recon.reports.compliance import render_html, render_markdown
from recon.write.ledger import open_ledger
from recon.write.ledger.results import append_run
from tests.support.ledger_entries import entry, project
from tests.support.messages import raises

FIRST = datetime(2026, 10, 31, 23, tzinfo=UTC)  # micro-batch 0; one more every hour, so the second one is of November
PROVING = ("ledger_integrity", "offset_continuity", "checkpoint_commits", "delta_history", "source_rows")
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def written(folder: Path, count: int = 3) -> None:
    ledger = open_ledger(project(folder))
    for n in range(count):
        ledger.append(entry(n, at=FIRST + n * HOUR))


def audited(folder: Path, at: datetime, *findings: Finding, from_: datetime | None = None, judged: int = 3) -> None:
    results = tuple(
        CheckResult(
            unique_id=f"test.lake.{check}",
            name=check,
            check=check,
            kind="evidence",
            status="fail" if check == "source_rows" and findings else "pass",
            failures=len(findings),
            message="",
            pipeline="orders",
            sink="orders",
            findings=findings if check == "source_rows" else (),
            evidence={"judged": [1, judged]} if check == "ledger_integrity" else {},
        )
        for check in PROVING
    )
    run = RunResult(
        invocation_id=f"run-{at:%d-%H}",
        project="lake",
        recon_version="0",
        generated_at=at,
        period_from=from_,
        period_to=at,
        elapsed_time=0,
        results=results,
    )
    append_run(open_ledger(project(folder)).results, run)


def gap(batch_id: int, *, offsets: bool = False) -> Finding:
    about = Finding(code=Code.GAP, message=f"a row of batch {batch_id} is missing", pipeline="orders", sink="orders")
    if offsets:
        start = 10 * batch_id
        return replace(about, topic="orders", topic_id="id-1", partition=1, start_offset=start, end_offset=start + 1)
    return replace(about, epoch=0, batch_id=batch_id)


def october(folder: Path) -> ComplianceReport:
    return compliance(project(folder), datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC))


def test_a_period_that_has_not_begun_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    tomorrow = datetime.now(UTC).replace(hour=0) + DAY
    with pytest.raises(ConfigError):
        compliance(project(tmp_path), tomorrow, tomorrow + DAY)


def test_days_to_come_are_not_audited_days(tmp_path: Path) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    written(tmp_path)
    report = compliance(project(tmp_path), today, today + 3 * DAY)
    assert report.days_to_come == 2 and report.days_without_audit == (today.date(),)
    for text in (render_markdown(report), render_html(report)):
        assert "2 days of the period are still to come: nothing is said about them." in text
        assert f"1 day of the period without an audit: {today:%Y-%m-%d}." in text
        assert "was audited" not in text
    audited(tmp_path, datetime.now(UTC))
    report = compliance(project(tmp_path), today, today + 3 * DAY)
    assert "Every day of the period up to now was audited. 2 days" in render_markdown(report)


def test_the_last_day_of_a_period_is_the_one_before_its_end(tmp_path: Path) -> None:
    written(tmp_path)
    report = october(tmp_path)
    assert report.last_day == date(2026, 10, 31)
    assert "<title>Compliance report · lake · 2026-10-01 to 2026-10-31</title>" in render_html(report)


def test_a_month_before_the_first_entry_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    audited(tmp_path, FIRST + 3 * HOUR, gap(1))
    with raises(ConfigError):
        compliance(project(tmp_path), datetime(2026, 9, 1, tzinfo=UTC), datetime(2026, 10, 1, tzinfo=UTC))
    with raises(ConfigError):
        sample(project(tmp_path), datetime(2026, 9, 1, tzinfo=UTC), datetime(2026, 10, 1, tzinfo=UTC), seed="7")


def test_a_month_before_the_first_entry_has_no_audit_and_no_exception(tmp_path: Path) -> None:
    """As `recon compliance verify` derives the report that an earlier version wrote of it."""
    written(tmp_path)
    audited(tmp_path, FIRST + 3 * HOUR, gap(1))
    of = project(tmp_path)
    report = derive(of, datetime(2026, 9, 1, tzinfo=UTC), datetime(2026, 10, 1, tzinfo=UTC), open_ledger(of))
    assert (report.audits, report.exceptions, report.answer) == ((), (), "could not be proved")
    assert report.days_without_audit == () and {one.state for one in report.controls} == {"not yet there"}
    assert "No audit ran in the period." in render_markdown(report)


@pytest.mark.parametrize("offsets", [False, True])
def test_what_an_audit_behind_the_period_found_is_of_the_period_it_is_about(tmp_path: Path, offsets: bool) -> None:
    written(tmp_path)
    audited(tmp_path, FIRST + 3 * HOUR, gap(0, offsets=offsets), gap(1, offsets=offsets))
    report = october(tmp_path)
    assert [e.finding for e in report.exceptions] == [gap(0, offsets=offsets)]
    assert (report.sinks[0].batches, report.sinks[0].batches_refuted, report.answer) == (1, 1, "not complete")
    november = compliance(project(tmp_path), datetime(2026, 11, 1, tzinfo=UTC), FIRST + 3 * HOUR + DAY)
    found = {e.finding.message for e in november.exceptions}
    assert found == {gap(0).message, gap(1).message}, "the audit ran in November, so it is of that month, too"


def test_a_finding_without_a_place_is_of_every_period_that_its_audit_looked_at(tmp_path: Path) -> None:
    written(tmp_path)
    changed = Finding(code=Code.MUTATED, message="version 7 deleted rows", pipeline="orders", sink="orders")
    audited(tmp_path, FIRST + 3 * HOUR, changed)
    assert [e.finding for e in october(tmp_path).exceptions] == [changed]


def test_a_replay_counts_nothing_twice(tmp_path: Path) -> None:
    written(tmp_path, 1)
    ledger = open_ledger(project(tmp_path))
    ledger.append(entry(0, at=FIRST + HOUR / 2, attempt=2, status="already_committed"))
    ledger.append(entry(0, at=FIRST + 2 * HOUR, attempt=3, status="already_committed"))  # in November
    audited(tmp_path, FIRST + 3 * HOUR)
    sink = october(tmp_path).sinks[0]
    assert (sink.batches, sink.ranges, sink.offsets, sink.rows_written, sink.chain.entries) == (1, 2, 20, 20, 2)
    assert (sink.batches_proved, sink.ranges_proved) == (1, 2)
    (november,) = compliance(project(tmp_path), datetime(2026, 11, 1, tzinfo=UTC), FIRST + DAY).sinks
    assert (november.batches, november.ranges, november.offsets, november.chain.entries) == (0, 0, 0, 1)


def test_a_day_that_no_audit_looked_at_is_not_complete(tmp_path: Path) -> None:
    written(tmp_path, 1)
    audited(tmp_path, FIRST - DAY, judged=1)
    report = october(tmp_path)
    assert report.sinks[0].batches_proved == 1
    assert report.sinks[0].days_without_audit == (date(2026, 10, 31),), "the ledger begins on that day"
    assert report.answer == "could not be proved"
    assert "No audit looked at 1 day of the period." in render_markdown(report)
    audited(tmp_path, FIRST + HOUR, from_=FIRST - DAY, judged=1)
    assert october(tmp_path).answer == "complete"
