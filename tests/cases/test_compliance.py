"""The compliance report and the rebuilt ledger, from real streams and audits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from recon.audits.accept import accept, open_findings
from recon.audits.compliance import compliance
from recon.audits.verify_report import verify
from recon.base.errors import ConfigError, LedgerError
from recon.model.compliance import ComplianceReport
from recon.recovery.rebuild import rebuild
from recon.reports.compliance import render_markdown, write
from recon.reports.control_days import said
from tests.cases.lake import Lake, failing, findings
from tests.cases.test_cases import dying
from tests.support.messages import raises

MakeLake = Callable[..., Lake]


def today(lake: Lake) -> ComplianceReport:
    day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return compliance(lake.project, day, day + timedelta(days=1))


def test_a_clean_period(make_lake: MakeLake) -> None:
    lake = make_lake(partitions=2)
    lake.produce(60)
    lake.run(per_trigger=20)
    assert lake.audit().exit_code == 0
    report = today(lake)
    sink = report.sinks[0]
    assert (sink.batches, sink.batches_proved, sink.batches_refuted, sink.batches_unproved) == (3, 3, 0, 0)
    assert (sink.ranges, sink.ranges_proved, sink.offsets, sink.rows_written) == (6, 6, 60, 60)
    assert sink.chain.verified and sink.chain.entries == 3 and sink.chain.last == lake.entries()[-1].entry_hash
    assert report.answer == "complete" and report.days_without_audit == ()
    assert [a.outcome for a in report.audits] == ["complete"]


def test_what_no_audit_has_seen_is_not_provable(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(20)
    lake.run()
    report = today(lake)
    assert (report.sinks[0].batches_proved, report.sinks[0].batches_unproved) == (0, 1)
    assert report.answer == "could not be proved" and report.days_without_audit == (datetime.now(UTC).date(),)


@pytest.mark.long
def test_a_refuted_batch_stays_refuted(make_lake: MakeLake) -> None:
    lake = make_lake(sink={"on_new_epoch": "warn"})
    lake.produce(60)
    lake.run(per_trigger=20)
    lake.forget_checkpoint()
    lake.run(starting=f'{{"{lake.topic}": {{"0": 40}}}}')
    assert failing(lake.audit()) == {"OVERLAP", "DUPLICATE"}
    report = today(lake)
    sink = report.sinks[0]
    assert (sink.batches, sink.batches_proved, sink.batches_refuted) == (4, 2, 2)
    assert {str(e.finding.code) for e in report.exceptions} == {"OVERLAP", "DUPLICATE"}
    assert report.answer == "not complete" and len(sink.epochs) == 2


def test_a_delete_that_was_accepted_is_told_once_and_where_it_was_found(written: Lake, tmp_path: Path) -> None:
    """A stream of today, in a report of the month: nothing is said of the days before it."""
    lake = written
    assert lake.audit().exit_code == 0
    lake.sql("DELETE FROM {table} WHERE _source_offset < 7")
    for _ in range(2):  # the second one tells since when
        assert "MUTATED" in failing(lake.audit())
    day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    month = (day - timedelta(days=28), day + timedelta(days=1))
    before = compliance(lake.project, *month)
    assert before.answer == "not complete"
    for known in dict.fromkeys(one.id for one in open_findings(lake.project)):
        accept(lake.project, known, by="Ada Lovelace", reason="a customer asked for it")
    assert lake.audit().pipelines[0].answer == "complete"
    report = compliance(lake.project, *month)
    assert report.answer == "complete"
    messages = [one.finding.message for one in report.exceptions]
    assert len(messages) == len(set(messages)) and not any("open since" in message for message in messages)
    assert all(one.accepted for one in report.exceptions)
    of_controls = {one.id: one for one in report.controls}
    for name in ("timeliness", "audit trail", "change control"):
        assert of_controls[name].count("not yet there") == 28 and of_controls[name].total == 29
    assert of_controls["change control"].state == "answered" and of_controls["audit trail"].state == "shown"
    assert said(of_controls["change control"]) == ("Found on 1 day: MUTATED accepted.", "")
    text = render_markdown(report)
    assert "none was found" not in text and "no finding says that" not in text
    assert "shown on 0 of 29 days; found, and answered on 1; not yet there on 28" in text
    for format in ("html", "json"):
        file = write(report, tmp_path / f"report.{format}", format)
        assert verify(lake.project, file).is_same


def test_an_empty_period_and_no_ledger_are_told(make_lake: MakeLake) -> None:
    lake = make_lake()
    now = datetime.now(UTC)
    with raises(ConfigError):
        compliance(lake.project, datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC))
    with raises(LedgerError):
        compliance(lake.project, now - timedelta(days=1), now)


@pytest.mark.long
def test_rebuild_restores_what_a_crash_left_out(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(30)
    lake.run()
    lake.produce(30)
    with pytest.raises(StreamingQueryException):
        lake.run(dying(lake))
    assert [(e.batch_id, e.status, e.rows_written) for e in rebuild(lake.project)] == [(1, "rebuilt", 30)]
    assert rebuild(lake.project) == []
    run = lake.audit()
    assert failing(run) == set() and findings(run, "REBUILT")
    lake.run()
    assert [(e.batch_id, e.attempt, e.status) for e in lake.entries()][-1] == (1, 2, "already_committed")
    assert len(lake.rows()) == 60 and lake.audit().pipelines[0].answer == "complete"


def test_rebuild_restores_a_whole_ledger(written: Lake) -> None:
    lake = written
    before = lake.entries()
    shutil.rmtree(lake.path / "recon")
    restored = rebuild(lake.project, "p", "s")
    assert [(e.batch_id, e.offsets, e.sink_version) for e in restored] == [
        (e.batch_id, e.offsets, e.sink_version) for e in before
    ]
    assert lake.audit().pipelines[0].answer == "complete"
