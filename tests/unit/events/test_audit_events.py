"""What audits tell: start, answers, incidents, recovery; a consumer that fails or hangs changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from recon.audits.accept import accept
from recon.audits.audit_events import recovered
from recon.audits.run import run_audit
from recon.base.errors import ConfigError
from recon.model import CheckResult, Code, Finding, RunResult, Unavailable, Witnesses
from recon.model.proof import OpenFinding, Proofs, SinkProof
from recon.write.ledger import open_ledger
from tests.support.events import Install, Kept, consumers  # noqa: F401
from tests.support.heads import grow
from tests.unit.audits.test_anchor import _project

AT = datetime(2026, 11, 20, 6, tzinfo=UTC)


def _open(start: int, end: int, check: str = "offset_continuity") -> OpenFinding:
    finding = Finding(
        code=Code.GAP,
        message=f"orders-0: offsets [{start}, {end}) were read by no micro-batch",
        pipeline="orders",
        sink="orders",
        topic="orders",
        partition=0,
        start_offset=start,
        end_offset=end,
    )
    return OpenFinding(finding=finding, check=check, first_seen=AT, last_seen=AT)


def _state(*findings: OpenFinding) -> SinkProof:
    return SinkProof(
        pipeline="orders",
        sink="orders",
        at=AT,
        invocation_id="run-1",
        position=0,
        chain_head="",
        first_epoch=0,
        first_batch_id=0,
        open=findings,
    )


def test_an_audit_tells_its_start_and_its_answers(tmp_path: Path, consumers: Install) -> None:  # noqa: F811
    kept = Kept()
    consumers(kept)
    project = _project(tmp_path)
    grow(project, 3)
    run = run_audit(project, select="test_name:ledger_integrity", no_spark=True)
    assert (kept.seen[0], kept.seen[-1]) == ("audit.started", "audit.finished")
    first, last = kept.dicts[0], kept.dicts[-1]
    assert first["schema_version"] == last["schema_version"] == 1
    assert first["invocation_id"] == last["invocation_id"] == run.invocation_id
    assert (first["checks"], first["pipelines"]) == (1, ["orders"])
    assert last["answers"][0]["pipeline"] == "orders"
    assert last["answers"][0]["answer"] == run.pipelines[0].answer
    assert (last["counts"]["pass"], last["exit_code"], last["kept"], last["goes_on"]) == (1, 0, True, True)
    assert "run" not in last


def test_an_incident_is_opened_once_and_then_still_open(tmp_path: Path, consumers: Install) -> None:  # noqa: F811
    project = _project(tmp_path)
    grow(project, 3)
    table = open_ledger(project).proofs
    assert table.append(_state(_open(10, 20)), after=0, prev_hash="", cause="audit", at=AT)
    kept = Kept(kinds=["incident.*", "finding.*"])
    consumers(kept)
    run_audit(project, select="test_name:ledger_integrity", no_spark=True)
    (told,) = kept.dicts
    assert told["kind"] == "incident.still_open"
    assert (told["pipeline"], told["sink"], told["codes"]) == ("orders", "orders", ["GAP"])
    assert told["findings"] == [_open(10, 20).id] and told["first_seen"] == "2026-11-20T06:00:00Z"
    kept.events.clear()
    accept(project, _open(10, 20).id, reason="not needed", by="Ada")
    (told,) = kept.dicts
    assert (told["kind"], told["finding"]) == ("finding.accepted", _open(10, 20).id)
    assert (told["by"], told["reason"]) == ("Ada", "not needed")
    kept.events.clear()
    run_audit(project, select="test_name:ledger_integrity", no_spark=True)
    assert kept.seen == ["incident.accepted"]


def test_a_consumer_that_fails_changes_no_result_and_is_noted(
    tmp_path: Path,
    consumers: Install,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    project = _project(tmp_path)
    grow(project, 3)
    quiet = run_audit(project, select="test_name:ledger_integrity", no_spark=True)
    failing = Kept("alerts to oncall")
    failing.fails = OSError("connection refused")
    consumers(failing)
    run = run_audit(project, select="test_name:ledger_integrity", no_spark=True)
    assert (run.exit_code, run.counts()) == (quiet.exit_code, quiet.counts())
    assert [note for note in run.notes if note not in quiet.notes] == ["alerts to oncall: OSError: connection refused"]
    assert "connection refused" not in caplog.text  # the note says it


def test_a_consumer_that_hangs_is_waited_for_a_limited_time(
    tmp_path: Path,
    consumers: Install,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recon.audits.audit_events.FINISH_S", 0.05)
    project = _project(tmp_path)
    grow(project, 3)
    hanging = Kept("alerts to oncall", hold=True)
    consumers(hanging)
    run = run_audit(project, select="test_name:ledger_integrity", no_spark=True)
    assert run.exit_code == 0 and "alerts to oncall: 2 events not delivered" in run.notes[-1]
    hanging.go.set()


def test_an_audit_that_breaks_says_so(
    tmp_path: Path,
    consumers: Install,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Kept()
    consumers(kept)
    project = _project(tmp_path)
    grow(project, 1)

    def breaks(*_: object) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr("recon.audits.run.store", breaks)
    with pytest.raises(RuntimeError):
        run_audit(project, select="test_name:ledger_integrity", no_spark=True)
    assert kept.seen == ["audit.started", "audit.failed"]
    assert (kept.dicts[1]["error"], kept.dicts[1]["message"]) == ("RuntimeError", "the disk is full")


def test_an_audit_of_nothing_tells_nothing(tmp_path: Path, consumers: Install) -> None:  # noqa: F811
    kept = Kept()
    consumers(kept)
    with pytest.raises(ConfigError):
        run_audit(_project(tmp_path), select="nosuch", no_spark=True)
    assert kept.events == []


# -- recovered: only where a check saw all it needed, and reports nothing of it ---------------------------------------


def _recovered(result: CheckResult | None, one: OpenFinding) -> list[str]:
    lacking = Unavailable("", "not read")
    witnesses = Witnesses(
        pipeline="orders",
        sink=None,
        now=AT + timedelta(days=1),
        isolation_level="read_committed",
        period_from=None,
        period_to=AT,
        ledgers=lacking,
        checkpoint=lacking,
        kafka=lacking,
        delta=lacking,
        rows=lacking,
        proofs=Proofs(of_sink={"orders": _state(one)}),
    )
    run = RunResult(
        invocation_id="i",
        project="x",
        recon_version="1",
        generated_at=AT,
        period_from=None,
        period_to=AT,
        elapsed_time=0.0,
        results=() if result is None else (result,),
    )
    return [gone.id for gone in recovered(witnesses, run)]


def _result(status: str, *findings: Finding, check: str = "offset_continuity") -> CheckResult:
    return CheckResult(
        unique_id="u",
        name="n",
        check=check,
        kind="evidence",
        status=status,  # type: ignore[arg-type]
        failures=0,
        message="",
        pipeline="orders",
        sink="orders",
        findings=findings,
    )


def test_recovered_is_what_its_check_looked_for_and_did_not_find() -> None:
    one = _open(10, 20)
    assert _recovered(_result("pass"), one) == [one.id]
    assert _recovered(_result("fail", _open(30, 40).finding), one) == [one.id]
    # A part of it is still there.
    assert _recovered(_result("fail", _open(15, 40).finding), one) == []
    # Nobody looked.
    assert _recovered(None, one) == []
    assert _recovered(_result("skipped"), one) == []
    assert _recovered(_result("error"), one) == []
    assert _recovered(_result("pass", check="source_rows"), one) == []
