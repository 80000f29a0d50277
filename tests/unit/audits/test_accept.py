"""Findings of the proof on disk, and accepting one: from Python and from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from recon import accept, open_findings
from recon.audits.run import run_audit
from recon.audits.summary import unanswered
from recon.base.errors import ConfigError, LedgerError
from recon.judge.memories import MEMORIES
from recon.model import Code, Finding
from recon.model.proof import OpenFinding, Proofs, SinkProof
from recon.model.wire.proof import dump_proof, parse_proof
from recon.project import Project, load
from recon.write.ledger import open_ledger
from recon.write.ledger.proofs import PROOF, ProofEdited, ProofTable
from tests.support.messages import raises, same_message
from tests.unit.cli.test_cli import BASE, Ended, recon  # noqa: F401

AT = datetime(2026, 11, 20, 6, tzinfo=UTC)


def lost(start: int, end: int, check: str = "offset_continuity", code: Code = Code.GAP) -> OpenFinding:
    finding = Finding(
        code=code,
        message=f"orders-0: offsets [{start}, {end}) were read by no micro-batch",
        pipeline="orders",
        sink="orders",
        topic="orders",
        partition=0,
        start_offset=start,
        end_offset=end,
    )
    return OpenFinding(finding=finding, check=check, first_seen=AT, last_seen=AT)


@pytest.fixture
def lake(tmp_path: Path) -> Project:
    """A proof with two losses, one of them reported by two checks."""
    (tmp_path / "recon.yml").write_text(BASE)
    project = load(tmp_path)
    state = SinkProof(
        pipeline="orders",
        sink="orders",
        at=AT,
        invocation_id="run-1",
        position=12,
        chain_head="h",
        first_epoch=0,
        first_batch_id=0,
        open=(lost(10, 20), lost(10, 20, "source_rows", Code.LOSS_RETENTION), lost(40, 50)),
    )
    assert open_ledger(project).proofs.append(state, after=0, prev_hash="", cause="audit", at=AT)
    return project


def test_all_that_report_one_loss_are_accepted_together(lake: Project) -> None:
    first, again, other = open_findings(lake)
    assert first.id == again.id != other.id
    accepted = accept(lake, first.id[:4], reason=" not needed ", by="Ada")
    assert [(one.check, one.accepted and one.accepted.reason) for one in accepted] == [
        ("offset_continuity", "not needed"),
        ("source_rows", "not needed"),
    ]
    assert [one.id for one in open_findings(lake) if one.accepted is None] == [other.id]
    table = open_ledger(lake).proofs
    newest = table.newest("orders", "orders")
    assert newest is not None and (newest.sequence, newest.position) == (2, 12)


@pytest.mark.parametrize(
    ("finding", "reason", "by"),
    [("00000000", "r", "b"), ("", "r", "b"), ("abc", "r", "b"), ("{}", " ", "b"), ("{}", "r", "")],
)
def test_what_cannot_be_accepted(lake: Project, finding: str, reason: str, by: str) -> None:
    with raises(ConfigError):
        accept(lake, finding.format(open_findings(lake)[0].id), reason=reason, by=by)


def test_a_finding_is_accepted_once(lake: Project) -> None:
    known = open_findings(lake)[0].id
    accept(lake, known, reason="r", by="Ada")
    with pytest.raises(ConfigError) as error:
        accept(lake, known, reason="r", by="Bob")
    assert f"finding {known} was accepted by Ada on " in str(error.value)


def test_an_audit_that_is_faster_is_not_overwritten(lake: Project) -> None:
    table = open_ledger(lake).proofs
    state = table.newest("orders", "orders")
    assert state is not None
    assert not table.append(state, after=0, prev_hash="", cause="audit", at=AT + timedelta(seconds=1))
    assert table.length("orders", "orders") == 1


def test_nothing_was_audited(tmp_path: Path) -> None:
    (tmp_path / "recon.yml").write_text(BASE)
    assert open_findings(tmp_path) == []
    with raises(ConfigError):
        accept(tmp_path, "3f9c02aa", reason="r", by="b")


def test_a_table_of_a_newer_version_and_an_edited_one(lake: Project, tmp_path: Path) -> None:
    location = open_ledger(lake).proofs.store.location
    table = DeltaTable(location)
    table.update(updates={"state": "replace(state, '\"position\":12', '\"position\":99')"})
    with pytest.raises(ProofEdited, match="does not match its own entry_hash: it was edited"):
        open_findings(lake)
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "recon.yml").write_text(BASE)
    place = open_ledger(load(newer)).proofs.store.location
    DeltaTable.create(place, schema=PROOF.schema, description="recon proof, schema version 2")
    with pytest.raises(LedgerError, match="has schema version 2 and this recon reads up to 1; upgrade spark-recon"):
        open_findings(newer)


def test_the_commands(lake: Project, recon: Callable[..., Ended], tmp_path: Path) -> None:  # noqa: F811
    listed = recon("findings")
    known = open_findings(lake)[0].id
    assert (listed.code, listed.out.count(known), listed.out.count("open")) == (0, 2, 3)
    done = recon("accept", known, "--reason", "test data", "--by", "Ada")
    assert done.code == 0 and done.out.count("Accepted") == 2
    assert "accepted by Ada: test data" in recon("findings").out
    rows = json.loads(recon("findings", "--output", "json").out)
    assert [row["accepted"] and row["accepted"]["by"] for row in rows] == ["Ada", "Ada", None]
    assert recon("findings", "--sink", "nosuch").code == 2
    wrong = recon("accept", "00000000", "--reason", "r", "--by", "b")
    assert wrong.code == 2
    assert same_message(wrong.err)
    assert recon("accept", known, "--reason", "r").code == 2


def test_findings_of_two_topics_of_one_name_have_ids_of_their_own(
    lake: Project,
    recon: Callable[..., Ended],  # noqa: F811
) -> None:
    table = open_ledger(lake).proofs
    state = table.newest("orders", "orders")
    assert state is not None and "topic id" not in recon("findings").out
    found = lost(10, 20)
    of_both = tuple(replace(found, finding=replace(found.finding, topic_id=name)) for name in ("id-1", "id-2", None))
    assert len({one.id for one in of_both}) == 3
    table.append(replace(state, open=of_both), after=1, prev_hash=state.entry_hash, cause="audit", at=AT)
    listed = recon("findings").out
    assert "(topic id id-1)" in listed and "(topic id id-2)" in listed and "(topic id not known)" in listed
    rows = json.loads(recon("findings", "--output", "json").out)
    assert {row["finding"]["topic_id"] for row in rows} == {"id-1", "id-2", None}
    accept(lake, of_both[0].id, reason="test data", by="Ada")
    assert {one.finding.topic_id for one in open_findings(lake) if one.accepted is None} == {"id-2", None}


def test_a_state_that_an_older_version_stored_has_findings_without_a_topic_id(lake: Project) -> None:
    state = open_ledger(lake).proofs.newest("orders", "orders")
    assert state is not None
    document = json.loads(dump_proof(state))
    for one in document["open"]:
        assert one["finding"].pop("topic_id") is None
    assert parse_proof(json.dumps(document), MEMORIES).open == state.open


@pytest.mark.parametrize("old", ["  - name: orders\n    checkpoint", "      - name: orders\n        target"])
def test_what_is_open_under_names_that_are_gone_is_listed_and_accepted(lake: Project, tmp_path: Path, old: str) -> None:
    known = {found.id for found in open_findings(lake)}
    (tmp_path / "recon.yml").write_text(BASE.replace(old, old.replace("orders", "renamed", 1)))
    renamed = load(tmp_path)
    assert {found.id for found in open_findings(renamed)} == known
    for finding in known:
        accept(renamed, finding, reason="not needed", by="Ada")
    assert all(found.accepted is not None for found in open_findings(renamed))


def test_what_is_open_of_a_sink_that_is_gone_refutes_until_it_is_accepted(lake: Project) -> None:
    state = open_ledger(lake).proofs.newest("orders", "orders")
    assert state is not None
    first, *others = unanswered([], Proofs(gone=[state]))
    assert len(others) == 2
    assert "sink orders, which recon.yml no longer has under these names" in first.message
    for finding in {found.id for found in open_findings(lake)}:
        accept(lake, finding, reason="not needed", by="Ada")
    state = open_ledger(lake).proofs.newest("orders", "orders")
    assert state is not None
    assert not unanswered([], Proofs(gone=[state]))


@pytest.mark.parametrize(
    "names", [("--pipeline", "orders"), ("--sink", "orders"), ("--pipeline", "orders", "--sink", "orders")]
)
def test_findings_takes_names_that_only_the_proof_has(
    lake: Project,
    tmp_path: Path,
    recon: Callable[..., Ended],  # noqa: F811
    names: tuple[str, ...],
) -> None:
    (tmp_path / "recon.yml").write_text(BASE.replace("name: orders\n", "name: renamed\n"))
    listed = json.loads(recon("findings", *names, "--output", "json").out)
    assert {found["id"] for found in listed} == {found.id for found in open_findings(lake)}
    assert recon("findings", "--pipeline", "order").code == 2


def test_an_audit_notes_what_is_open_of_a_pipeline_that_is_gone(lake: Project, tmp_path: Path) -> None:
    (tmp_path / "recon.yml").write_text(BASE.replace("name: orders\n", "name: renamed\n"))
    renamed = load(tmp_path)
    noted = [note for note in run_audit(renamed, no_spark=True).notes if "no longer has" in note]
    assert len(noted) == 1
    assert "`recon findings --pipeline orders --sink orders`" in noted[0]
    assert "pipeline orders, sink orders" in noted[0]
    assert "2 open findings, on which no answer here rests" in noted[0]
    for finding in {found.id for found in open_findings(renamed)}:
        accept(renamed, finding, reason="not needed", by="Ada")
    assert not [note for note in run_audit(renamed, no_spark=True).notes if "no longer has" in note]


def test_the_proof_is_asked_for_names_once(lake: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recon.yml").write_text(BASE.replace("name: orders\n", "name: renamed\n"))
    asked: list[object] = []
    chains = ProofTable.chains
    monkeypatch.setattr(ProofTable, "chains", lambda table: asked.append(table) or chains(table))
    run_audit(load(tmp_path), no_spark=True)
    assert len(asked) == 1
