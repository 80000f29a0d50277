"""recon ledger verify: the chain against the commits of its sink."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from recon.ledger import Ledger, open_ledger
from recon.ledger.results import append_run, hash_of, rows_of
from recon.model import CheckResult, Code, Finding, RunRecord, RunResult
from recon.model.proof import Acceptance, OpenFinding, SinkProof
from recon.recovery.verify import verify
from tests.support.ledger_entries import AT, entry, project
from tests.support.messages import same_message


def test_a_sink_whose_commits_cannot_be_read_is_said_and_the_chain_is_verified(tmp_path: Path) -> None:
    lake = project(tmp_path)
    ledger = open_ledger(lake)
    for batch_id in range(2):
        ledger.append(entry(batch_id))
    assert verify(lake, ledger) == []
    log = tmp_path / "orders/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text('{"commitInfo": {')
    (found,) = verify(lake, ledger)
    assert (found.code, found.pipeline, found.sink) == (Code.INCONCLUSIVE, "orders", "orders")
    assert same_message(found.message)
    assert verify(lake, ledger, sink="other") == []


def audited(ledger: Ledger, name: str, upto: int, *, proved: bool = True, open_: tuple[OpenFinding, ...] = ()) -> None:
    """An audit that judged the entries up to a number; not `proved`, it left its results alone."""
    states = ledger.proofs.length("orders", "orders")
    one = CheckResult(
        unique_id="test.lake.ledger_integrity",
        name="ledger_integrity",
        check="ledger_integrity",
        kind="evidence",
        status="pass",
        failures=0,
        message="",
        pipeline="orders",
        sink="orders",
        evidence={"proof_states": states},
    )
    run = RunResult(
        invocation_id=name,
        project="lake",
        recon_version="0",
        generated_at=AT,
        period_from=None,
        period_to=AT,
        elapsed_time=0,
        results=(one, replace(one, unique_id="test.lake.other", name="other", check="other")),
        record=RunRecord(by="ada", checks={"orders": 2}),
    )
    append_run(ledger.results, run)
    if not proved:
        return
    state = SinkProof(
        pipeline="orders",
        sink="orders",
        at=AT,
        invocation_id=name,
        position=upto,
        chain_head=ledger.slice("orders", "orders").heads[upto - 1].entry_hash,
        first_epoch=0,
        first_batch_id=0,
        results_hash=hash_of(rows_of(run)),
        open=open_,
    )
    before = ledger.proofs.newest("orders", "orders")
    prev_hash = before.entry_hash if before is not None else ""
    assert ledger.proofs.append(state, after=states, prev_hash=prev_hash, cause="audit", at=AT)


def put_back(folder: Path, *, rewritten: bool) -> None:
    """The ledger, not its proof, is an older copy; `rewritten`, others follow in the place of those that are gone."""
    shutil.rmtree(folder / "_recon/ledger")
    shutil.move(folder / "copy", folder / "_recon/ledger")
    if rewritten:
        ledger = open_ledger(project(folder))
        for batch_id in (1, 2, 3):
            ledger.append(entry(batch_id, rows_read=19))


@pytest.mark.parametrize("rewritten", [False, True])
@pytest.mark.parametrize("accepted", [False, True])
def test_a_ledger_that_was_put_back_is_not_what_audits_judged(tmp_path: Path, rewritten: bool, accepted: bool) -> None:
    """Its sink has no commits to compare it with, as where table and checkpoint were put back with it."""
    lake = project(tmp_path)
    ledger = open_ledger(lake)
    ledger.append(entry(0))
    shutil.copytree(tmp_path / "_recon/ledger", tmp_path / "copy")
    for batch_id in (1, 2):
        ledger.append(entry(batch_id))
        audited(ledger, f"run-{batch_id}", upto=batch_id + 1)
    assert verify(lake, ledger) == []
    put_back(tmp_path, rewritten=rewritten)
    ledger = open_ledger(lake)
    (found,) = verify(lake, ledger)
    assert found.code is Code.TAMPERED and same_message(found.message)
    assert verify(lake, ledger, pipeline="another") == []
    # What somebody accepted, an auditor reads in the report of the audit.
    by = Acceptance(by="Ada", reason="restored from the backup of Sunday", at=AT)
    tampered = Finding(code=Code.TAMPERED, message="entries were replaced", pipeline="orders", sink="orders")
    one = OpenFinding(finding=tampered, check="ledger_integrity", first_seen=AT, last_seen=AT)
    audited(ledger, "run-3", upto=1, open_=(replace(one, accepted=by if accepted else None),))
    assert [f.code for f in verify(lake, ledger)] == ([] if accepted else [Code.TAMPERED])


def remove_a_result(folder: Path) -> None:
    DeltaTable(folder / "_recon/results").delete("name = 'other'")


def remove_an_audit(folder: Path) -> None:
    DeltaTable(folder / "_recon/results").delete("invocation_id = 'run-1'")


def edit_a_result(folder: Path) -> None:
    DeltaTable(folder / "_recon/results").update({"status": "'fail'"}, predicate="name = 'other'")


def remove_the_proof(folder: Path) -> None:
    shutil.rmtree(folder / "_recon/proof")


@pytest.mark.parametrize(
    ("tamper", "proved", "found"),
    [
        (remove_a_result, True, 2),
        (remove_a_result, False, 2),
        (remove_an_audit, True, 1),
        (edit_a_result, True, 2),
        (remove_the_proof, True, 1),
    ],
)
def test_results_and_states_that_are_others_than_audits_stored(
    tmp_path: Path, tamper: Callable[[Path], None], proved: bool, found: int
) -> None:
    lake = project(tmp_path)
    ledger = open_ledger(lake)
    ledger.append(entry(0))
    for run in ("run-1", "run-2"):
        audited(ledger, run, upto=1, proved=proved)
    assert verify(lake, ledger) == []
    tamper(tmp_path)
    findings = verify(lake, open_ledger(lake))
    assert len(findings) == found and {f.code for f in findings} == {Code.TAMPERED}
    assert all(same_message(f.message) for f in findings)
