"""recon ledger verify: the chain against the commits of its sink."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from recon.model import Code, Finding
from recon.model.proof import Acceptance, OpenFinding
from recon.recovery.verify import verify
from recon.write.ledger import open_ledger
from recon.write.ledger.results import previous_audit
from recon.write.ledger.unsaved_findings import with_unstored
from tests.support.audited_lake import BEGIN, AuditedLake
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
    lake = AuditedLake(tmp_path)
    lake.write(1)
    shutil.copytree(tmp_path / "_recon/ledger", tmp_path / "copy")
    for day in (1, 2):
        lake.ledger.append(entry(day))
        lake.audit(day)
    assert verify(lake.project, lake.ledger) == []
    put_back(tmp_path, rewritten=rewritten)
    (found,) = verify(lake.project, lake.ledger)
    assert found.code is Code.TAMPERED and same_message(found.message)
    assert verify(lake.project, lake.ledger, pipeline="another") == []
    # What somebody accepted, an auditor reads in the report of the audit.
    by = Acceptance(by="Ada", reason="restored from the backup of Sunday", at=AT)
    tampered = Finding(code=Code.TAMPERED, message="entries were replaced", pipeline="orders", sink="orders")
    one = OpenFinding(finding=tampered, check="ledger_integrity", first_seen=AT, last_seen=AT)
    lake.audit(0, open_=(replace(one, accepted=by if accepted else None),))
    # Until then it is told besides.
    assert [f.code for f in verify(lake.project, lake.ledger)] == ([] if accepted else [Code.TAMPERED] * 2)


def remove_a_result(folder: Path) -> None:
    DeltaTable(folder / "_recon/results").delete("check = 'source_rows'")


def remove_an_audit(folder: Path) -> None:
    DeltaTable(folder / "_recon/results").delete("invocation_id = 'orders-0'")


def edit_a_result(folder: Path) -> None:
    DeltaTable(folder / "_recon/results").update({"status": "'fail'"}, predicate="check = 'source_rows'")


def remove_the_proof(folder: Path) -> None:
    shutil.rmtree(folder / "_recon/proof")


@pytest.mark.parametrize(
    ("tamper", "proves", "found"),
    [
        (remove_a_result, True, 2),
        (remove_a_result, False, 2),
        (remove_an_audit, True, 1),
        (edit_a_result, True, 2),
        (remove_the_proof, True, 1),
    ],
)
def test_results_and_states_that_are_others_than_audits_stored(
    tmp_path: Path, tamper: Callable[[Path], None], proves: bool, found: int
) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(2)
    for day in range(2):
        lake.audit(day, proves=proves)
    assert verify(lake.project, lake.ledger) == []
    tamper(tmp_path)
    findings = verify(lake.project, lake.ledger)
    assert len(findings) == found and {f.code for f in findings} == {Code.TAMPERED}
    assert all(same_message(f.message) for f in findings)


@pytest.mark.parametrize(
    ("again", "states", "told"),
    [
        ({}, 2, False),
        ({}, 1, True),  # the newest state was removed, or never stored
        ({}, 0, True),
        ({"args": {"from": "2026-10-01T00:00:00+00:00", "to": None}}, 1, False),  # of a period that is examined again
    ],
)
def test_a_refutation_of_which_the_proof_has_no_state(
    tmp_path: Path, again: dict[str, Any], states: int, told: bool
) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(2)
    gap = Finding(code=Code.GAP, message="rows are gone", pipeline="orders", sink="orders", rows=2)
    one = OpenFinding(finding=gap, check="source_rows", first_seen=AT, last_seen=AT)
    if states:
        lake.audit(0)
    lake.audit(1, gap, open_=(one,), proves=states == 2, **again)
    found = verify(lake.project, lake.ledger)
    assert [f.code for f in found] == [Code.INCONCLUSIVE] * told
    assert all(same_message(f.message) for f in found)


@pytest.mark.parametrize(("others", "expected"), [(False, {"of all", "of this one"}), (True, {"of this one"})])
def test_a_sink_without_a_state_takes_over_its_own_findings(tmp_path: Path, others: bool, expected: set[str]) -> None:
    """What was found of all sinks is in the states of the others, and somebody may have answered it there."""
    lake = AuditedLake(tmp_path)
    lake.write(1)
    gap = Finding(code=Code.GAP, message="of this one", pipeline="orders", sink="orders", rows=2)
    lake.audit(0, gap, proves=False)
    lake.audit(0, replace(gap, message="of all"), proves=False, sink=None)
    before = previous_audit(lake.ledger.results, "orders", BEGIN)
    assert before is not None
    state = with_unstored(None, "orders", "orders", before.found, lake.ledger.proofs, AT, others=others)
    assert state is not None and {one.finding.message for one in state.open} == expected and state.position == 0
