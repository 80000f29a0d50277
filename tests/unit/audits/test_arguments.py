"""What `run_audit` and `compliance_report` understand as times and selectors, and what they refuse."""

from __future__ import annotations

import inspect
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest

import recon
from recon.audits.compliance import compliance
from recon.audits.options import texts
from recon.audits.run import run_audit
from recon.base.errors import ConfigError
from recon.base.instants import instant
from recon.reports.audit_run import AuditRun
from recon.write.ledger import open_ledger
from tests.support.ledger_entries import AT, entry, project
from tests.support.messages import raises
from tests.support.sample_run import sample_run

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "ends", "at"),
    [
        (None, True, None),
        (NOON, True, NOON),
        (datetime(2026, 11, 20, 12), False, NOON),
        (datetime(2026, 11, 20, 14, tzinfo=timezone(timedelta(hours=2))), False, NOON),
        (date(2026, 11, 20), False, NOON.replace(hour=0)),
        (date(2026, 11, 20), True, NOON.replace(hour=0) + timedelta(days=1)),
        ("2026-11-20", False, NOON.replace(hour=0)),
        ("2026-11-20", True, NOON.replace(hour=0) + timedelta(days=1)),
        ("2026-11-20T12:00", True, NOON),
        (" 2026-11-20T14:00+02:00 ", False, NOON),
        ("36h", False, NOON - timedelta(hours=36)),
    ],
)
def test_times(value: object, ends: bool, at: datetime | None) -> None:
    assert instant("to", value, ends=ends, now=NOON) == at


@pytest.mark.parametrize("value", ["yesterday", "", "2026-13-01", "99999999999d", 20261120, 1.5, [NOON]])
def test_what_is_no_time(value: object) -> None:
    with raises(ConfigError):
        instant("from_", value, now=NOON)


def test_selectors() -> None:
    assert texts("select", "tag:nightly") == ("tag:nightly",)
    assert texts("select", ["a", "b"]) == ("a", "b") and texts("select", ()) == texts("select", None) == ()
    for value in (7, [7]):
        with raises(ConfigError):
            texts("select", value)


def test_an_audit_and_a_report_refuse_what_they_do_not_understand(tmp_path: Path) -> None:
    lake = project(tmp_path)
    open_ledger(lake).append(entry(0))
    with raises(ConfigError):
        run_audit(lake, from_="last week", no_spark=True)
    with raises(ConfigError):
        run_audit(lake, select=7, no_spark=True)  # type: ignore[arg-type]
    with raises(ConfigError):
        compliance(lake, None, AT)  # type: ignore[arg-type]
    report = compliance(lake, "2026-11-20", date(2026, 11, 20))
    assert report.sinks[0].batches == 1 and report.period_to - report.period_from == timedelta(days=1)
    run = run_audit(lake, select="ledger_integrity_orders", from_=date(2026, 11, 20), no_spark=True, keep=False)
    assert [result.status for result in run.results] == ["pass"]


def test_a_project_that_is_none() -> None:
    for call in (recon.audit, recon.run_audit, recon.open_ledger):
        with pytest.raises(ConfigError, match=r"project is 5; give the folder of recon.yml"):
            call(5)  # type: ignore[operator]


def test_a_notebook_shows_what_audit_takes() -> None:
    assert inspect.signature(recon.audit) == inspect.signature(recon.run_audit)


def test_a_run_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = AuditRun.of(sample_run())
    with pytest.raises(ConfigError, match=r"file cannot be written: .*; choose another folder"):
        run.write(tmp_path / "file")
    with pytest.raises(ConfigError, match=r"folder is 5; give a path"):
        run.write(5)  # type: ignore[arg-type]
