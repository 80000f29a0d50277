"""What audits and reports say of signed heads; a key that is none, a place that fails, a ledger that was changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recon.audits.compliance import compliance
from recon.audits.pack import pack
from recon.audits.run import run_audit
from recon.base.clock import clock
from recon.base.errors import ConfigError, LedgerError
from recon.model import Code, RunResult
from recon.project import Project
from recon.project.checks import CheckSpec
from recon.reports import compliance as compliance_report
from recon.reports import html, run_results
from recon.write.ledger import open_ledger
from recon.write.ledger.heads.signing import public_keys
from recon.write.ledger.store import Filter
from tests.support.heads import NOW, OTHER_SEED, files, grow, linked, publish_heads, rewrite, signing_project
from tests.support.messages import raises, same_message

ONE = ("orders", "orders")


def _project(folder: Path, *names: str, **heads: Any) -> Project:
    """One sink, or some, whose only check is the ledger's integrity."""
    project = signing_project(folder, *names, **heads)
    (pipeline,) = project.pipelines
    tests = {"data_tests": (CheckSpec(test="ledger_integrity"),)}
    sinks = tuple(sink.model_copy(update=tests) for sink in pipeline.sinks)
    return project.model_copy(update={"pipelines": (pipeline.model_copy(update={"sinks": sinks}),)})


def _audit(project: Project) -> RunResult:
    return run_audit(project, select="test_name:ledger_integrity", no_spark=True)


def test_an_audit_signs_and_publishes(tmp_path: Path) -> None:
    project = _project(tmp_path)
    grow(project, 3)
    run = _audit(project)
    assert run.heads == f"1 head signed, published at {tmp_path / 'outside'}"
    assert len(files(tmp_path / "outside")) == 1
    assert [result.status for result in run.results] == ["pass"]
    page = html.render(run)
    assert "1 head signed, published at" in page
    assert run_results.from_dict(run_results.as_dict(run)).heads == run.heads
    report = compliance(project, "2026-11-01", "2026-11-22")
    assert report.sinks[0].chain.signed.startswith("3 entries, signed ")
    assert "3 entries, signed" in compliance_report.render_html(report)
    assert "3 entries, signed" in compliance_report.render_markdown(report)


def test_without_a_key_everything_is_as_before_and_the_reports_say_so(tmp_path: Path) -> None:
    project = _project(tmp_path, key=None)
    grow(project, 3)
    run = _audit(project)
    assert run.heads == "not anchored outside"
    assert not (tmp_path / "outside").exists() and not (tmp_path / "_recon" / "heads").exists()
    assert "not anchored outside" in html.render(run)
    report = compliance(project, "2026-11-01", "2026-11-22")
    assert "not anchored outside" in compliance_report.render_html(report)
    artefact = run_results.as_dict(run)
    del artefact["recon"]["heads"], artefact["recon"]["sha256"]  # of a version before
    assert run_results.from_dict(artefact).heads == "not anchored outside"


def test_heads_that_no_place_has_are_not_anchored_outside_and_the_verdict_stays(tmp_path: Path) -> None:
    project = _project(tmp_path, publish=[{"command": ["no-such-program"]}])
    grow(project, 3)
    run = _audit(project)
    assert run.heads == "1 head signed, not anchored outside"
    assert "not published at command no-such-program: no-such-program is not installed" in run.notes[-1]
    assert (run.results[0].status, run.exit_code) == ("pass", 0)
    assert _audit(_project(tmp_path, publish=[])).heads == "1 head signed, not anchored outside"


def test_a_place_that_no_audit_reads_back_is_said(tmp_path: Path) -> None:
    project = _project(tmp_path, publish=[{"command": ["cat"]}])
    grow(project, 3)
    run = _audit(project)
    assert run.heads.startswith("1 head signed, published at command cat; no audit reads them there")
    both = _project(tmp_path, publish=[{"command": ["cat"]}, {"folder": "outside"}])
    assert "no audit reads" not in _audit(both).heads


def test_a_key_that_is_none_ends_the_audit_before_it_begins(tmp_path: Path) -> None:
    grow(_project(tmp_path), 3)
    for heads in ({"key": "x"}, {"key": None, "key_file": "none.pem"}, {"public_keys": ["x"]}):
        with pytest.raises(ConfigError):
            _audit(_project(tmp_path, **heads))
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("also_beside", [False, True])
def test_an_audit_of_a_ledger_that_was_written_anew_is_refuted(tmp_path: Path, also_beside: bool) -> None:
    """One who can write the whole ledger, and what is kept beside it, but not the place of the heads."""
    import shutil

    project = _project(tmp_path)
    entries = grow(project, 4).entries(*ONE)
    assert _audit(project).exit_code == 0
    published = files(tmp_path / "outside")
    shutil.rmtree(tmp_path / "_recon")
    grow(project, 1)
    rewrite(project, linked([replace(one, rows_written=19) for one in entries]))
    if also_beside:
        shutil.rmtree(tmp_path / "_recon" / "heads", ignore_errors=True)
    run = _audit(project)
    assert run.results[0].status == "fail"
    assert [f.code for f in run.results[0].findings if "do not lead" in f.message] == [Code.TAMPERED]
    assert any("do not lead to the head of 4 entries" in note for note in run.notes)
    assert run.heads == "not anchored outside" and files(tmp_path / "outside") == published
    report = compliance(project, "2026-11-01", "2026-11-22")
    assert report.sinks[0].chain.verified is False


def _with_two_heads(folder: Path) -> tuple[Project, Path]:
    """Heads of 10 and 15 entries, published at `outside`, and 15 entries; the first document."""
    project = _project(folder)
    grow(project, 10)
    publish_heads(project)
    (first,) = (folder / "outside").iterdir()
    grow(project, 5)
    publish_heads(project, NOW + timedelta(hours=1))
    return project, first


def _roll_back(project: Project, count: int) -> None:
    import shutil

    entries = open_ledger(project).entries(*ONE)[:count]
    shutil.rmtree(project.project_dir / "_recon")
    grow(project, 1)
    rewrite(project, entries)


LAST = "29991231T235959Z-000000000000.json"


@pytest.mark.parametrize("added", [None, b"x", b"[" * 200_000, b'{"notes": ["\\ud800"], "origin": "x"}'])
def test_a_ledger_that_was_rolled_back_is_refuted_whatever_is_added_to_the_place(
    tmp_path: Path, added: bytes | None
) -> None:
    project, first = _with_two_heads(tmp_path)
    _roll_back(project, 10)
    (first.parent / LAST).write_bytes(first.read_bytes() if added is None else added)
    before = files(tmp_path / "outside")
    run = _audit(project)
    (finding,) = [found for found in run.results[0].findings if "signed" in found.message]
    assert finding.code is Code.TAMPERED and "the head of 15 entries" in finding.message
    assert any(LAST in note and "left out" in note for note in run.notes)
    assert run.heads == "not anchored outside" and files(tmp_path / "outside") == before
    assert compliance(project, "2026-11-01", "2026-11-22").sinks[0].chain.verified is False


def test_a_file_that_is_added_to_the_place_is_named_and_stops_nobody(tmp_path: Path) -> None:
    project, first = _with_two_heads(tmp_path)
    (first.parent / LAST).write_bytes(b'{"consistency": {"a": {"from": Infinity}}}')
    for one in (project, _project(tmp_path, key=None, public_keys=[str(public_keys(project)[0])])):
        run = _audit(one)
        assert run.results[0].status == "pass"
        assert [note for note in run.notes if LAST in note and "Infinity is no number" in note]
    assert compliance(project, "2026-11-01", "2026-11-22").sinks[0].chain.verified
    (chain,) = pack(project, "2026-11-01", "2026-11-22").chains
    assert chain.note and not chain.reason


def test_a_place_that_cannot_be_compared_is_not_known_and_nothing_is_signed(tmp_path: Path) -> None:
    project, first = _with_two_heads(tmp_path)
    for file in first.parent.iterdir():
        file.write_bytes(b"x")
    before = files(tmp_path / "outside")
    run = _audit(project)
    (finding,) = [found for found in run.results[0].findings if "signed" in found.message]
    assert finding.code is Code.INCONCLUSIVE and "no document there is right" in finding.message
    assert run.heads == "not anchored outside" and files(tmp_path / "outside") == before
    (sink,) = compliance(project, "2026-11-01", "2026-11-22").sinks
    assert sink.chain.verified is None and "could not be compared" in sink.chain.reason
    assert sink.chain.signed.startswith("15 entries, signed")
    _roll_back(project, 14)  # with what is beside the ledger: no head is left that says so
    found = [f.code for f in _audit(project).results[0].findings if "signed" in f.message]
    assert found == [Code.INCONCLUSIVE]


def test_a_chain_that_cannot_be_compared_with_its_head_is_not_known_and_the_others_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    from recon.write.ledger.heads import leaves

    project = _project(tmp_path, "orders", "items")
    entries = [*grow(project, 4).entries(*ONE), *grow(project, 4, "items").entries("orders", "items")]
    assert _audit(project).exit_code == 0
    shutil.rmtree(tmp_path / "_recon")
    grow(project, 1)
    rewrite(
        project,
        [
            one
            for sink in ("orders", "items")
            for one in linked([replace(e, rows_written=19) for e in entries if e.sink == sink])
        ],
    )
    whole = leaves.whole

    def unforeseen(store: Any, pipeline: str, sink: str) -> Any:
        return 1 // 0 if sink == "orders" else whole(store, pipeline, sink)

    monkeypatch.setattr(leaves, "whole", unforeseen)
    run = _audit(project)
    about_heads = {"orders": "the head that was signed", "items": "do not lead to the head"}
    found = {r.sink: [f for f in r.findings if about_heads[str(r.sink)] in f.message] for r in run.results}
    assert {sink: [f.code for f in of_sink] for sink, of_sink in found.items()} == {
        "orders": [Code.INCONCLUSIVE],
        "items": [Code.TAMPERED],
    }
    assert same_message(found["orders"][0].message)
    with raises(LedgerError):
        compliance(project, "2026-11-01", "2026-11-22")


def test_results_that_were_removed_or_edited_are_found(tmp_path: Path) -> None:
    """One who seals the edited results anew, and removes what earlier audits proved."""
    import shutil

    from deltalake import write_deltalake

    from recon.model import Finding
    from recon.write.ledger import arrow
    from recon.write.ledger.heads import verifying
    from recon.write.ledger.results import sealed

    project = _project(tmp_path)
    grow(project, 3)
    first, second = _audit(project), _audit(project)

    def compared() -> list[Finding]:
        published = verifying.read([str(tmp_path / "outside")], public_keys(project), project)
        return list(verifying.compare(project, open_ledger(project), published).findings)

    assert not compared()
    shutil.rmtree(tmp_path / "_recon" / "proof", ignore_errors=True)
    results = open_ledger(project).results
    rows = arrow.rows(results.read(Filter()))
    assert {row["invocation_id"] for row in rows} == {first.invocation_id, second.invocation_id}
    kept = [row for row in rows if row["invocation_id"] == second.invocation_id]
    edited = [{**sealed({**row, "message": "nothing to see"}), "date": row["date"]} for row in kept]
    for changed, what in ((rows + kept, set()), (kept, {"are gone"}), (edited, {"are gone", "were edited"})):
        write_deltalake(results.location, arrow.table(changed, results.schema), mode="overwrite")
        findings = compared()
        assert {f.code for f in findings} <= {Code.TAMPERED}
        assert len(findings) == len(what) and all(any(word in f.message for f in findings) for word in what)


def test_an_earlier_key_is_known_by_its_public_half(tmp_path: Path) -> None:
    from recon.write.ledger.heads.signing import key_of

    old = _project(tmp_path)
    grow(old, 3)
    _audit(old)
    key = key_of(old)
    assert key is not None
    stranger = _project(tmp_path, key=OTHER_SEED)
    assert any("could not be compared" in note for note in _audit(stranger).notes)
    new = _project(tmp_path, key=OTHER_SEED, public_keys=[str(key.public)])
    assert not [note for note in _audit(new).notes if "could not be compared" in note]


def test_two_pipelines_ledgers_of_one_audit_are_in_one_document(tmp_path: Path) -> None:
    project = signing_project(tmp_path, "orders", "copy")
    grow(project, 3)
    grow(project, 2, "copy")
    run = run_audit(project, no_spark=True)
    assert run.heads.startswith("2 heads signed, published at")
    assert len(files(tmp_path / "outside")) == 1
    assert open_ledger(project).entries(*ONE)


@pytest.mark.parametrize("changed", ["put back", "removed"])
def test_results_that_the_newest_signed_head_covers_must_be_there(tmp_path: Path, changed: str) -> None:
    """Older copies of the tables of results and proofs and of the kept heads; every entry of the ledger stays."""
    import shutil

    project, lake = _project(tmp_path), tmp_path / "_recon"
    grow(project, 3)
    for minute in range(3):
        with clock(lambda minute=minute: NOW + timedelta(minutes=minute)):
            assert _audit(project).exit_code == 0
        if not minute:
            shutil.copytree(lake, tmp_path / "older")
    for part in ("results", "proof", "heads"):
        shutil.rmtree(lake / part, ignore_errors=True)
        if changed == "put back" and (tmp_path / "older" / part).exists():
            shutil.copytree(tmp_path / "older" / part, lake / part)
    with clock(lambda: NOW + timedelta(minutes=3)):
        run = _audit(project)
    assert [f.code for f in run.results[0].findings] == [Code.TAMPERED]
    assert "the results of audit " in run.results[0].findings[0].message
    # It stays open, though the heads that this audit signed cover its own results.
    with clock(lambda: NOW + timedelta(minutes=4)):
        assert _audit(project).results[0].status == "fail"
