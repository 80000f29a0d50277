"""What is stored of each audit itself: who ran it, with which recon.yml, and which checks were selected."""

from __future__ import annotations

import getpass
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from recon.audits.options import Options
from recon.audits.run import audit
from recon.audits.stored_report import stored_run
from recon.base.errors import LedgerError
from recon.model import RunResult
from recon.project import Project, load
from recon.reports import run_results
from recon.write.ledger import arrow, open_ledger
from recon.write.ledger.results import append_run, hash_of, record_of, rows_of
from recon.write.ledger.store import Filter
from tests.support.ledger_entries import entry
from tests.support.ledger_entries import project as made_in_python

RECON_YML = """
version: 2
name: lake
ledger: _recon
kafka: {bootstrap.servers: "localhost:1"}
pipelines:
  - name: orders
    checkpoint: cp
    source: {topics: [orders]}
    data_tests: [offset_continuity, checkpoint_commits]
    sinks:
      - {name: orders, kind: delta, target: orders, data_tests: [delta_history]}
"""


@pytest.fixture
def lake(tmp_path: Path) -> Project:
    (tmp_path / "recon.yml").write_bytes(RECON_YML.replace("\n", "\r\n").encode())
    project = load(tmp_path)
    open_ledger(project).append(entry())
    return project


def audited(project: Project) -> RunResult:
    return audit(project, Options(select=["test_name:ledger_integrity"], no_spark=True))


def test_an_audit_stores_who_ran_it_with_which_file_and_which_checks(lake: Project) -> None:
    run = audited(lake)
    stored = stored_run(lake, run.invocation_id)
    assert stored.record == run.record and stored.record is not None
    assert stored.record.by.startswith(f"{getpass.getuser()} on ")
    assert stored.record.config == "recon.yml"
    assert stored.record.config_hash == hashlib.sha256((lake.project_dir / "recon.yml").read_bytes()).hexdigest()
    assert stored.record.checks == {"orders": 4} and len(stored.results) == 1
    assert (stored.args["select"], stored.versions) == (["test_name:ledger_integrity"], run.versions)


def test_an_edited_record_is_noticed(lake: Project) -> None:
    run = audited(lake)
    results = open_ledger(lake).results
    DeltaTable(results.location).update(updates={"evidence": "'{}'"}, predicate="kind = 'run'")
    with pytest.raises(LedgerError):
        stored_run(lake, run.invocation_id)


def test_the_record_is_part_of_what_proofs_are_hashed_with(lake: Project) -> None:
    run = audited(lake)
    other = replace(run, args={**run.args, "select": []})
    assert hash_of(rows_of(run)) != hash_of(rows_of(other))


def test_an_audit_of_an_older_version_has_no_record(lake: Project) -> None:
    run = replace(audited(lake), invocation_id="older", record=None)
    append_run(open_ledger(lake).results, run)
    assert stored_run(lake, "older").record is None
    assert record_of(arrow.rows(open_ledger(lake).results.read(Filter())[:0])).record is None


def test_run_results_json_has_the_record(lake: Project, tmp_path: Path) -> None:
    run = audited(lake)
    assert run_results.read(run_results.write(run, tmp_path / "run_results.json")).record == run.record
    content = run_results.as_dict(run)
    del content["recon"]["record"], content["recon"]["sha256"]
    assert run_results.from_dict(content).record is None


def test_a_project_made_in_python_has_no_file(tmp_path: Path) -> None:
    record = audited(made_in_python(tmp_path)).record
    assert record is not None and (record.config, record.config_hash) == ("", None)
