"""A compliance report that is verified later: the same as of its own time, and what came since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from recon.audits.accept import accept
from recon.audits.verify_report import Verification, verify
from recon.base.clock import clock
from recon.base.errors import LedgerError
from recon.model.compliance import ComplianceReport
from recon.project.heads import Heads
from recon.reports import compliance as reports
from recon.write.ledger.view import ledger_up_to
from tests.support.audited_lake import BEGIN, DAY, HOUR, AuditedLake
from tests.support.heads import SEED, publish_heads
from tests.support.ledger_entries import entry
from tests.unit.audits.test_compliance_answered import GAP, JUDGED, REPAIRED
from tests.unit.audits.test_control_days import open_finding

KNOWN = open_finding(GAP, 0)
THIRD_DAY = BEGIN + 2 * DAY + 2 * HOUR  # behind the audit of the second day
Report = Callable[..., ComplianceReport]


@pytest.fixture
def lake(tmp_path: Path) -> AuditedLake:
    one = AuditedLake(tmp_path)
    one.write(2)
    one.audit(0, GAP, open_=[KNOWN])
    one.audit(1, open_=[KNOWN])
    return one


@pytest.fixture
def report_at(lake: AuditedLake) -> Report:
    def made(at: datetime, days: int = 2) -> ComplianceReport:
        with clock(lambda: at):
            return lake.report(days)

    return made


def verified(lake: AuditedLake, report: ComplianceReport) -> Verification:
    return verify(lake.project, reports.write(report, lake.folder / "c.json", "json"))


def test_nothing_came_since(lake: AuditedLake, report_at: Report) -> None:
    result = verified(lake, report_at(THIRD_DAY))
    assert (result.is_same, result.differences, result.since) == (True, (), ())


def test_a_finding_that_was_accepted_since(lake: AuditedLake, report_at: Report) -> None:
    report = report_at(THIRD_DAY)
    assert report.answer == "not complete"
    accept(lake.project, KNOWN.id, reason="test data", by="Ada")
    result = verified(lake, report)
    assert (result.is_same, result.differences) == (True, ())
    accepted, answer = result.since
    assert accepted.startswith(f"finding {KNOWN.id}, GAP: ") and "accepted by Ada" in accepted
    assert answer == "the answer is complete now, and was not complete"
    assert verified(lake, lake.report(2)).since == (), "one of today knows it"


def test_an_audit_since_that_found_a_repair(lake: AuditedLake, report_at: Report) -> None:
    report = report_at(THIRD_DAY)
    lake.audit(2, REPAIRED, status=JUDGED, begin=BEGIN, judged=(1, 2))
    result = verified(lake, report)
    assert (result.is_same, result.differences) == (True, ())
    said = " ".join(result.since)
    assert "audit orders-2 of 2026-10-04 01:00 UTC: complete" in said and "repaired, as the audit of" in said


def test_a_period_that_was_not_over(lake: AuditedLake, report_at: Report) -> None:
    report = report_at(THIRD_DAY, days=4)
    assert report.days_to_come == 1
    lake.ledger.append(entry(2, at=BEGIN + 2 * DAY + 12 * HOUR))
    lake.audit(2, open_=[KNOWN])
    result = verified(lake, report)
    assert (result.is_same, result.differences) == (True, ())
    assert result.since[0] == "1 ledger entry of the period, of pipeline orders, sink orders"


def test_an_entry_whose_clock_is_behind_is_a_difference(lake: AuditedLake, report_at: Report) -> None:
    """Whether it was there is not known: the report may leave it out."""
    report = report_at(THIRD_DAY)
    lake.ledger.append(entry(2, at=BEGIN + DAY + 13 * HOUR))
    assert "sinks[orders.orders].batches" in {one.path for one in verified(lake, report).differences}


def test_clocks_that_were_ahead_of_the_report(lake: AuditedLake, report_at: Report) -> None:
    """What the report has was there, whatever its time."""
    report = report_at(BEGIN + DAY + 30 * HOUR / 60)
    assert report.generated_at < report.audits[0].generated_at
    assert len(report.audits) == 2 and report.sinks[0].batches == 2
    result = verified(lake, report)
    assert (result.is_same, result.differences) == (True, ())


@pytest.mark.parametrize("left_out", [{"audits": ()}, {"exceptions": ()}, {"incidents": ()}])
def test_what_a_report_left_out_at_its_own_time_is_a_difference(
    lake: AuditedLake, report_at: Report, left_out: dict[str, tuple[()]]
) -> None:
    report = replace(report_at(THIRD_DAY), **left_out)
    accept(lake.project, KNOWN.id, reason="test data", by="Ada")
    result = verified(lake, report)
    assert not result.is_same and {one.path.split("[")[0] for one in result.differences} == set(left_out)


def test_a_figure_that_only_later_entries_give(lake: AuditedLake, report_at: Report) -> None:
    """A report that says more than there was at its time."""
    report = report_at(THIRD_DAY, days=4)
    lake.ledger.append(entry(2, at=BEGIN + 2 * DAY + 12 * HOUR))
    sinks = tuple(replace(sink, batches=3) for sink in report.sinks)
    (one,) = verified(lake, replace(report, sinks=sinks)).differences
    assert (one.path, one.document, one.now) == ("sinks[orders.orders].batches", 3, 2)


@pytest.mark.parametrize("at", [BEGIN - DAY, datetime.max.replace(tzinfo=BEGIN.tzinfo)])
def test_a_report_of_a_time_that_cannot_be(lake: AuditedLake, report_at: Report, at: datetime) -> None:
    """It is held against the ledger as it is."""
    report = replace(report_at(THIRD_DAY), generated_at=at)
    accept(lake.project, KNOWN.id, reason="test data", by="Ada")
    assert verified(lake, report).differences


def test_a_head_that_was_signed_since(lake: AuditedLake, report_at: Report) -> None:
    outside = [{"folder": str(lake.folder / "outside")}]
    lake.more = {"heads": Heads.model_validate({"origin": "example.org/lake", "key": SEED, "publish": outside})}
    publish_heads(lake.project, THIRD_DAY - HOUR)
    report = report_at(THIRD_DAY)
    assert report.sinks[0].chain.signed.startswith("2 entries, signed ")
    lake.ledger.append(entry(2, at=BEGIN + 2 * DAY + 12 * HOUR))
    publish_heads(lake.project, THIRD_DAY + DAY)
    assert lake.report(2).sinks[0].chain.signed.startswith("3 entries, signed ")
    assert verified(lake, report).differences == ()


def test_a_sink_of_another_recon_yml_that_wrote_since(lake: AuditedLake, report_at: Report) -> None:
    """A report names sinks that have entries and are not in recon.yml."""
    lake.ledger.append(entry(0, at=BEGIN + 12 * HOUR, pipeline="payments"))
    report = report_at(THIRD_DAY, days=4)
    named = [sentence for sentence in report.unproved if "not in recon.yml" in sentence]
    assert len(named) == 1 and "pipeline payments," in named[0]
    lake.ledger.append(entry(1, at=BEGIN + 2 * DAY + 12 * HOUR, pipeline="payments"))
    lake.ledger.append(entry(0, at=BEGIN + 2 * DAY + 12 * HOUR, pipeline="refunds"))
    assert verified(lake, report).differences == ()
    forged = replace(report, unproved=tuple(one for one in report.unproved if one not in named))
    assert {one.path.split("[")[0] for one in verified(lake, forged).differences} == {"unproved"}


def test_what_an_audit_of_a_later_period_found_since(lake: AuditedLake, report_at: Report) -> None:
    report = report_at(THIRD_DAY)
    again = replace(GAP, start_offset=6, end_offset=8)
    lake.audit(2, again, open_=[KNOWN, open_finding(again, 2)])
    result = verified(lake, report)
    assert result.differences == ()
    assert [one for one in result.since if "GAP" in one and "reported first on 2026-10-04" in one]


def test_a_ledger_as_it_was_takes_no_entry(lake: AuditedLake) -> None:
    view = ledger_up_to(lake.ledger, {("orders", "orders"): 1}, {("orders", "orders"): 0}, ())
    assert [one.batch_id for one in view.entries()] == [0] and view.verify() == []
    with pytest.raises(LedgerError, match="is read as it was"):
        view.append(entry(5))
