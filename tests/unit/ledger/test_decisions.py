"""Who released or repaired, and why: sealed in the ledger's entries, in tables of earlier versions, too."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from recon.audits.exception_history import actions
from recon.base.decision import Decision, this_user
from recon.base.errors import ConfigError
from recon.model import LedgerEntry, ReconStamp, SinkCommit, dump_stamp, offsets_text, parse_stamp
from recon.model.compliance import ActionRecord
from recon.model.wire.app_ids import chain_id
from recon.model.wire.quarantine import ClaimNote, dump_claim, parse_claim
from recon.project import DeltaSink
from recon.write.ledger import Ledger, open_ledger
from recon.write.ledger.chain import link, seal
from recon.write.ledger.columns import ENTRIES, to_table
from recon.write.ledger.rebuild import entry_of
from recon.write.ledger.store import DeltalakeStore, LedgerTable
from tests.support.ledger_entries import AT, entry, project
from tests.support.messages import raises
from tests.unit.cli.test_cli import Ended, recon  # noqa: F401 - a fixture
from tests.unit.cli.test_cli import project as on_disk  # noqa: F401 - a fixture

DECIDED = {"by": "Ada Lovelace", "reason": "ticket 7"}


def released(number: int = 0, **changes: str | None) -> LedgerEntry:
    return replace(entry(number, status="released", epoch=-1, offsets=(), at=AT + timedelta(hours=1)), **changes)


def earlier_version(folder: Path, *entries: LedgerEntry) -> None:
    """A ledger as recon wrote it before its entries had `by` and `reason`."""
    columns = {name: of for name, of in ENTRIES.columns.items() if name not in ENTRIES.added}
    store = DeltalakeStore(LedgerTable(kind="ledger", time="committed_at", columns=columns), str(folder / "ledger"))
    before = ""
    for number, one in enumerate(entries):
        linked = link(replace(one, sequence=number + 1), before)
        rows = to_table([linked]).drop_columns(list(ENTRIES.added))
        store.append(rows, chain=chain_id("orders", "orders"), after=number)
        before = linked.entry_hash


def columns_of(ledger: Ledger) -> set[str]:
    from deltalake import DeltaTable

    return {field.name for field in DeltaTable(ledger.location).schema().fields}


def test_an_entry_without_a_decision_has_the_hash_that_it_always_had() -> None:
    known = "6730ca4b9c3e270ef26b2e0e90abe6b0481360d861629277dada7a5320e962ed"
    assert link(entry(3, status="released", epoch=-1, offsets=()), "abc").entry_hash == known
    assert link(entry(3, status="released", epoch=-1, offsets=(), by="Ada"), "abc").entry_hash != known


@pytest.mark.parametrize("edited", [{"by": "Bob"}, {"reason": "none"}, {"by": None}, {"by": None, "reason": None}])
def test_an_edited_decision_breaks_the_seal(tmp_path: Path, edited: dict[str, str | None]) -> None:
    ledger = open_ledger(project(tmp_path))
    stored = ledger.append(released(**DECIDED))
    assert (stored.by, stored.reason) == ("Ada Lovelace", "ticket 7")
    assert ledger.verify() == []
    forged = open_ledger(project(tmp_path / "forged"))
    forged.store.append(to_table([replace(stored, **edited)]), chain=chain_id("orders", "orders"), after=0)
    assert [finding.code for finding in forged.verify()] == ["TAMPERED"]


def test_a_ledger_of_an_earlier_version_is_read_and_gains_the_columns_by_a_decision_alone(tmp_path: Path) -> None:
    earlier_version(tmp_path / "_recon", entry(0), entry(1))
    one, other = open_ledger(project(tmp_path)), open_ledger(project(tmp_path))
    assert one.verify() == [] and [e.by for e in one.entries()] == [None, None]
    one.append(entry(2))
    other.append(entry(3))
    assert not columns_of(one) & set(ENTRIES.added)
    one.append(released(**DECIDED))
    assert columns_of(one) >= set(DECIDED)
    other.append(entry(4))  # its snapshot is of the table without the columns
    for ledger in (one, other, open_ledger(project(tmp_path))):
        assert ledger.verify() == []
        assert [(e.by, e.reason) for e in ledger.entries() if e.is_release] == [("Ada Lovelace", "ticket 7")]
        assert len(ledger.entries()) == 6
    one.compact()
    again = open_ledger(project(tmp_path))
    assert again.verify() == [] and [e.by for e in again.entries() if e.is_release] == ["Ada Lovelace"]


def test_the_checksum_of_a_log_of_files_is_sealed_and_added_when_it_is_needed(tmp_path: Path) -> None:
    earlier_version(tmp_path / "_recon", entry(0))
    ledger = open_ledger(project(tmp_path))
    ledger.append(replace(entry(1), files_digest="0" * 64))
    assert ledger.verify() == [] and [e.files_digest for e in ledger.entries()] == [None, "0" * 64]
    assert "files_digest" in columns_of(ledger)
    forged = [replace(e, files_digest=e.files_digest and "1" * 64) for e in ledger.entries()]
    assert [seal(e, offsets_text(e.offsets)) == e.entry_hash for e in forged] == [True, False]


def test_a_ledger_of_an_earlier_version_is_read_through_delta_rs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an object store, where recon does not read the files itself."""
    earlier_version(tmp_path / "_recon", entry(0))
    ledger = open_ledger(project(tmp_path))
    assert isinstance(ledger.store, DeltalakeStore)
    monkeypatch.setattr(ledger.store, "_local", None)
    assert ledger.verify() == [] and [e.by for e in ledger.entries()] == [None]
    ledger.append(released(**DECIDED))
    assert ledger.verify() == [] and [e.by for e in ledger.entries()] == [None, "Ada Lovelace"]


def test_a_restored_entry_has_the_decision_of_its_commit() -> None:
    stamp = ReconStamp(
        pipeline="orders", sink="orders", epoch=-2, batch_id=0, query_id="repair-1", run_id=None, prev_hash="",
        offsets_text="[]", **DECIDED,
    )  # fmt: skip
    assert parse_stamp(dump_stamp(stamp)) == stamp
    restored = entry_of(
        SinkCommit(version=3, stamp=stamp, rows=2, at=AT), DeltaSink(name="orders", target="o"), target="o"
    )
    assert (restored.by, restored.reason, restored.status) == ("Ada Lovelace", "ticket 7", "rebuilt")
    assert '"by"' not in dump_stamp(replace(stamp, by=None, reason=None))


def test_a_restored_entry_has_the_checksum_of_its_commit() -> None:
    stamp = ReconStamp(
        pipeline="orders", sink="orders", epoch=0, batch_id=0, query_id="q", run_id=None, prev_hash="",
        offsets_text="[]", files_digest="0" * 64,
    )  # fmt: skip
    assert parse_stamp(dump_stamp(stamp)) == stamp
    commit = SinkCommit(version=3, stamp=stamp, rows=2, at=AT)
    assert entry_of(commit, DeltaSink(name="orders", target="o"), target="o").files_digest == "0" * 64
    assert "files_digest" not in dump_stamp(replace(stamp, files_digest=None))


def test_an_interrupted_release_keeps_who_began_it() -> None:
    note = ClaimNote(token="t", **DECIDED)
    assert parse_claim(dump_claim(note)) == note
    of_an_earlier_version = json.dumps({k: v for k, v in json.loads(dump_claim(note)).items() if k not in DECIDED})
    assert parse_claim(of_an_earlier_version) == replace(note, by=None, reason=None)


def test_who_decides_is_the_user_where_nobody_says_so() -> None:
    assert Decision.of(None, None) == Decision(by=this_user())
    assert Decision.of(" Ada ", " why ") == Decision(by="Ada", reason="why")
    for empty in ({"by": " ", "reason": None}, {"by": None, "reason": ""}):
        with pytest.raises(ConfigError, match="is empty; an auditor will ask for it"):
            Decision.of(**empty)


@pytest.mark.parametrize(
    ("stored", "who", "why"),
    [
        (DECIDED, "Ada Lovelace", "ticket 7"),
        ({"by": "Ada Lovelace"}, "Ada Lovelace", "no reason given"),
        ({}, "not recorded", "not recorded"),
    ],
)
def test_what_a_compliance_report_says(tmp_path: Path, stored: dict[str, str], who: str, why: str) -> None:
    ledger = open_ledger(project(tmp_path))
    ledger.append(entry(0))
    ledger.append(released(**stored))
    ledger.append(replace(entry(0, status="rebuilt", epoch=-2, at=AT + timedelta(hours=2)), **stored))
    names = ("orders", "orders")
    release, repair = actions({names: ledger.slice(*names)}, [], AT, AT + timedelta(days=1))
    assert (release.kind, release.who, release.why) == ("released", who, why)
    assert (repair.kind, repair.who) == ("repaired", who) and "restored from the sink's own record" in repair.what
    assert isinstance(release, ActionRecord)


@pytest.mark.parametrize("command", [("quarantine", "release"), ("repair", "apply")])
@pytest.mark.parametrize("option", ["--by", "--reason"])
def test_an_empty_decision_is_refused(
    recon: Callable[..., Ended],  # noqa: F811
    on_disk: Path,  # noqa: F811
    command: tuple[str, str],
    option: str,
) -> None:
    ended = recon(*command, "--pipeline", "orders", option, " ")
    assert (ended.code, ended.out) == (2, "") and f"{option[2:]} is empty" in ended.err


def test_a_reason_that_is_no_text_is_refused() -> None:
    """Bytes of the command line that are no UTF-8: no row of the ledger can hold them."""
    with raises(ConfigError):
        Decision.of("ann", "a\udcff")
    assert Decision.of(" ann ", " é — \U0001f600 ").reason == "é — \U0001f600"
