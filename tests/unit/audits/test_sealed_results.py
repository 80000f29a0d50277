"""The stored results of audits are sealed: what is edited, removed or added shows in the compliance report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from recon.audits.compliance import compliance
from recon.model import CheckResult, Code, Finding, RunRecord, RunResult, Status
from recon.model.compliance import ComplianceReport
from recon.model.proof import Acceptance, OpenFinding, SinkProof
from recon.write.ledger import open_ledger
from recon.write.ledger.results import append_run, hash_of, rows_of
from tests.support.ledger_entries import AT, entry, project

NOW = AT + timedelta(hours=1)
PROVING = ("ledger_integrity", "offset_continuity", "checkpoint_commits", "delta_history", "source_rows")
GAP = Finding(
    code=Code.GAP,
    message="orders-0: offsets [3, 5) were read by no micro-batch",
    pipeline="orders",
    sink="orders",
    topic="orders",
    partition=0,
    start_offset=3,
    end_offset=5,
)


def audit_of(name: str, record: RunRecord | None = None, **judged: tuple[Status, tuple[Finding, ...]]) -> RunResult:
    """An audit of all checks that a proof rests on; those not in `judged` passed."""
    results = []
    for check in PROVING:
        status, findings = judged.get(check, ("pass", ()))
        one = CheckResult(
            unique_id=f"test.lake.{check}",
            name=check,
            check=check,
            kind="evidence",
            status=status,
            failures=len(findings),
            message="",
            pipeline="orders",
            sink="orders",
            findings=findings,
            evidence={"judged": [1, 2]} if check == "ledger_integrity" else {},
        )
        results.append(one)
    return RunResult(
        invocation_id=name,
        project="lake",
        recon_version="0",
        generated_at=NOW,
        period_from=None,
        period_to=NOW,
        elapsed_time=0,
        results=tuple(results),
        record=record,
    )


def audited(folder: Path, *findings: Finding, open_: tuple[OpenFinding, ...] = ()) -> None:
    """Two ledger entries, and one audit that judged them and left these findings."""
    ledger = open_ledger(project(folder))
    for n in range(2):
        ledger.append(entry(n, at=AT + timedelta(seconds=n)))
    run = audit_of("run-1", offset_continuity=("fail" if findings else "pass", findings))
    append_run(ledger.results, run)
    state = SinkProof(
        pipeline="orders",
        sink="orders",
        at=NOW,
        invocation_id="run-1",
        position=2,
        chain_head="h",
        first_epoch=0,
        first_batch_id=0,
        results_hash=hash_of(rows_of(run)),
        open=open_,
    )
    assert ledger.proofs.append(state, after=0, prev_hash="", cause="audit", at=NOW)


def report(folder: Path) -> ComplianceReport:
    return compliance(project(folder), AT - timedelta(hours=1), NOW)


def test_what_was_stored_is_what_is_reported(tmp_path: Path) -> None:
    audited(tmp_path)
    told = report(tmp_path)
    assert (told.answer, told.sinks[0].batches_proved, told.exceptions) == ("complete", 2, ())


EDITS: dict[str, Callable[[DeltaTable], object]] = {
    "a status": lambda table: table.update(updates={"status": "'pass'"}, predicate="check = 'offset_continuity'"),
    "findings": lambda table: table.update(updates={"findings": "'[]'"}, predicate="check = 'offset_continuity'"),
    "a row": lambda table: table.delete("check = 'offset_continuity'"),
    "all rows": lambda table: table.delete(),
}


@pytest.mark.parametrize("edit", EDITS)
def test_results_that_somebody_changed_prove_nothing(tmp_path: Path, edit: str) -> None:
    audited(tmp_path, GAP)
    assert [e.finding.code for e in report(tmp_path).exceptions] == [Code.GAP]
    EDITS[edit](DeltaTable(open_ledger(project(tmp_path)).results.location))
    told = report(tmp_path)
    assert told.answer == "not complete" and told.sinks[0].batches_proved == 0
    assert {e.finding.code for e in told.exceptions} == {Code.TAMPERED}
    assert any("audit run-1 " in e.finding.message for e in told.exceptions)


@pytest.mark.parametrize("removed", ["status = 'fail'", "status = 'skipped'", "check = 'ledger_integrity'"])
def test_results_that_are_gone_of_an_audit_without_a_proof_refute_the_trail(tmp_path: Path, removed: str) -> None:
    audited(tmp_path)
    record = RunRecord(by="ada on lake-1", checks={"orders": len(PROVING)})
    later = audit_of("run-2", record, offset_continuity=("fail", (GAP,)), source_rows=("skipped", ()))
    append_run(open_ledger(project(tmp_path)).results, later)
    told = report(tmp_path)
    assert (told.answer, [e.finding.code for e in told.exceptions]) == ("not complete", [Code.GAP])
    DeltaTable(open_ledger(project(tmp_path)).results.location).delete(f"invocation_id = 'run-2' AND {removed}")
    told = report(tmp_path)
    assert (told.answer, [e.finding.code for e in told.exceptions]) == ("not complete", [Code.TAMPERED])
    message = "audit run-2 stored 5 results, and 4 are there: some were removed or added"
    assert told.exceptions[0].finding.message == message


def test_an_edited_proof_is_an_exception(tmp_path: Path) -> None:
    audited(tmp_path)
    DeltaTable(open_ledger(project(tmp_path)).proofs.store.location).update(updates={"state": "'{}'"})
    told = report(tmp_path)
    assert [e.finding.code for e in told.exceptions] == [Code.TAMPERED] and told.answer == "not complete"


def test_an_accepted_finding_is_listed_with_who_accepted_it(tmp_path: Path) -> None:
    left = OpenFinding(finding=GAP, check="offset_continuity", first_seen=NOW, last_seen=NOW)
    audited(tmp_path, GAP, open_=(left,))
    assert [(e.open, e.accepted) for e in report(tmp_path).exceptions] == [(True, "")]
    proofs = open_ledger(project(tmp_path)).proofs
    state = proofs.newest("orders", "orders")
    assert state is not None
    accepted = replace(left, accepted=Acceptance(by="Ada", reason="test data", at=NOW))
    after = replace(state, open=(accepted,))
    assert proofs.append(after, after=1, prev_hash=state.entry_hash, cause="accept", at=NOW)
    (exception,) = report(tmp_path).exceptions
    assert (exception.open, exception.accepted) == (False, f"accepted by Ada on {NOW:%Y-%m-%d}: test data")
