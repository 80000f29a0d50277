"""The log folder of a ledger's table stays short, and nothing that recon asks it for is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from recon.base.errors import LedgerError
from recon.write.ledger import Ledger, open_ledger
from recon.write.ledger.store import Housekeeping, short_log
from tests.support.ledger_entries import AT, entry, project

# A log that is long after some ten versions, and no files that are merged.
FEW = Housekeeping(many_files=10**6, checkpoint_interval=5, log_versions=6, log_at_once=10)


def opened(folder: Path) -> Ledger:
    return open_ledger(project(folder), housekeeping=FEW)


def appended(ledger: Ledger, numbers: range) -> Ledger:
    for n in numbers:
        ledger.append(entry(n, at=AT + timedelta(seconds=n)))
    return ledger


def log_of(folder: Path) -> Path:
    return folder / "_recon/ledger/_delta_log"


def commits(folder: Path) -> Sequence[int]:
    return sorted(int(path.stem) for path in log_of(folder).glob("*.json"))


def test_the_log_is_shortened_and_every_operation_is_still_known(tmp_path: Path) -> None:
    ledger = appended(opened(tmp_path), range(40))
    before = ledger.store.operations()
    assert commits(tmp_path) == list(range(41)) == [version for version, _ in before]
    ledger.tidy()
    left = commits(tmp_path)
    assert left == list(range(34, 41)), "from the newest checkpoint that is six versions old"
    assert sorted(path.name[:20] for path in log_of(tmp_path).glob("*.checkpoint.parquet"))[0] == f"{34:020d}"
    for store in (ledger.store, opened(tmp_path).store):
        assert store.operations() == before
        assert store.operations(after=12) == before[13:] and store.operations(after=35) == before[36:]
    appended(ledger, range(40, 60))
    again = opened(tmp_path)
    again.tidy()
    assert commits(tmp_path)[0] == 54
    assert len(list((tmp_path / "_recon/ledger/_recon_log").iterdir())) == 2
    assert [version for version, _ in again.store.operations()] == list(range(61))
    assert again.verify() == [] and [head.batch_id for head in again.entries()] == list(range(60))


def test_a_log_that_is_not_long_stays(tmp_path: Path) -> None:
    ledger = appended(opened(tmp_path), range(15))
    ledger.tidy()
    assert commits(tmp_path) == list(range(16)) and not (tmp_path / "_recon/ledger/_recon_log").exists()


def test_an_operation_that_changed_entries_is_known_when_its_commit_file_is_gone(tmp_path: Path) -> None:
    ledger = appended(opened(tmp_path), range(5))
    DeltaTable(str(tmp_path / "_recon/ledger")).delete("batch_id = 99")
    DeltaTable(str(tmp_path / "_recon/ledger")).delete("batch_id = 4")
    appended(opened(tmp_path), range(5, 40))
    ledger = opened(tmp_path)
    found = {finding.message for finding in ledger.verify()}
    ledger.tidy()
    assert commits(tmp_path)[0] > 7
    assert {finding.message for finding in opened(tmp_path).verify()} == found
    assert any("was made by DELETE" in message for message in found)


@pytest.mark.parametrize("of", [None, "orders", "other"])
def test_what_removed_every_entry_is_known(tmp_path: Path, of: str | None) -> None:
    ledger = opened(tmp_path)
    ledger.append(entry(0))
    DeltaTable(str(tmp_path / "_recon/ledger")).delete()
    again = opened(tmp_path)
    found = again.verify(of)
    assert again.entries() == [] and [finding.code for finding in found] == ["TAMPERED"]
    assert "was made by DELETE" in found[0].message and found[0].pipeline == of


def test_writers_and_readers_that_opened_the_table_long_ago_go_on(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    writer.append(entry(0, pipeline="other"))
    reader = opened(tmp_path)
    assert len(reader.entries()) == 1
    appended(opened(tmp_path), range(40)).tidy()
    assert commits(tmp_path)[0] > 3, "the version that both know is not in the log any more"
    assert len(reader.entries()) == 41
    assert writer.append(entry(1, pipeline="other")).sequence == 2
    assert reader.head_hash("other", "lake") == writer.head_hash("other", "lake")


def test_a_process_that_is_killed_on_the_way_leaves_a_log_that_the_next_one_shortens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = appended(opened(tmp_path), range(40))
    before, unlink, removed = ledger.store.operations(), Path.unlink, list[Path]()

    def killed_at_the_eighth(path: Path, missing_ok: bool = False) -> None:
        if len(removed) == 8:
            raise KeyboardInterrupt
        removed.append(path)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", killed_at_the_eighth)
    with pytest.raises(KeyboardInterrupt):
        ledger.tidy()
    monkeypatch.setattr(Path, "unlink", unlink)
    left = commits(tmp_path)
    assert left == list(range(left[0], 41)) and 0 < left[0] < 34
    again = opened(tmp_path)
    assert again.store.operations() == before
    again.tidy()
    assert commits(tmp_path)[0] == 34 and again.store.operations() == before


def test_while_another_process_shortens_it_nothing_of_the_history_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, names = appended(opened(tmp_path), range(40)), os.listdir
    before = ledger.store.operations()

    def listed_before_the_other_one(folder: Path) -> list[str]:
        found = names(folder)
        monkeypatch.setattr(os, "listdir", names)
        short_log.shorten(tmp_path / "_recon/ledger", 40, FEW)
        return found

    monkeypatch.setattr(os, "listdir", listed_before_the_other_one)
    short_log.shorten(tmp_path / "_recon/ledger", 40, FEW)
    assert commits(tmp_path)[0] == 34 and opened(tmp_path).store.operations() == before


@pytest.mark.parametrize("damage", [b"", b'{"commitInfo":', b'{"commitInfo":7}', b"\x00\xff"])
def test_a_log_with_a_damaged_commit_file_is_not_shortened(tmp_path: Path, damage: bytes) -> None:
    ledger = appended(opened(tmp_path), range(40))
    short_log.commit_file(tmp_path / "_recon/ledger", 7).write_bytes(damage)
    ledger.tidy()
    # Of a file without a commitInfo nobody knows which operation it was, and that is a finding for good.
    kept = {7: "UNKNOWN"} if damage in (b"", b"\x00\xff") else {}
    assert commits(tmp_path)[0] == (34 if kept else 0)
    if kept:
        assert dict(ledger.store.operations())[7] == "UNKNOWN"


@pytest.mark.parametrize("damage", [b"", b"[[1]]", b"[7]", b"{", b'[["x","WRITE"]]'])
def test_a_damaged_history_is_named(tmp_path: Path, damage: bytes) -> None:
    appended(opened(tmp_path), range(40)).tidy()
    next((tmp_path / "_recon/ledger/_recon_log").iterdir()).write_bytes(damage)
    ledger = opened(tmp_path)
    assert len(ledger.store.operations(after=34)) == 6, "who does not ask for that time does not read it"
    with pytest.raises(LedgerError, match="_recon/ledger cannot be read"):
        ledger.store.operations()


def test_a_history_that_somebody_removed_is_missed(tmp_path: Path) -> None:
    ledger = appended(opened(tmp_path), range(40))
    ledger.tidy()
    next((tmp_path / "_recon/ledger/_recon_log").iterdir()).unlink()
    assert [version for version, _ in ledger.store.operations()] == list(range(34, 41))


def test_the_history_is_kept_for_two_days(tmp_path: Path) -> None:
    ledger = appended(opened(tmp_path), range(40))
    ledger.tidy()
    old = next((tmp_path / "_recon/ledger/_recon_log").iterdir())
    os.utime(old, (time.time() - 3 * 24 * 3600,) * 2)
    appended(ledger, range(40, 60)).tidy()
    assert not old.exists() and ledger.store.operations()[0][0] == 34


def test_a_log_that_cannot_be_shortened_stops_nothing(tmp_path: Path) -> None:
    ledger = appended(opened(tmp_path), range(40))
    (tmp_path / "_recon/ledger/_recon_log").write_text("a file where the folder should be")
    ledger.tidy()
    assert commits(tmp_path) == list(range(41)) and len(appended(ledger, range(40, 42)).entries()) == 42


@pytest.mark.parametrize("other", ["empty", "cut", "folder", "link to nothing"])
def test_what_is_no_whole_checkpoint_stands_for_no_commit(tmp_path: Path, other: str) -> None:
    ledger = appended(opened(tmp_path), range(40))
    for checkpoint in log_of(tmp_path).glob("*.checkpoint.parquet"):
        content = checkpoint.read_bytes()
        checkpoint.unlink()
        if other == "folder":
            checkpoint.mkdir()
        elif other == "link to nothing":
            checkpoint.symlink_to(tmp_path / "nothing")
        else:
            checkpoint.write_bytes(content[: len(content) // 2] if other == "cut" else b"")
    ledger.tidy()
    assert commits(tmp_path) == list(range(41))


@pytest.mark.parametrize("name", [f"{10**18:020d}.x.json", f"{10**20 - 1}.json", f"{3:020d}.x.json"])
def test_files_of_other_names_do_not_say_how_long_the_log_is(tmp_path: Path, name: str) -> None:
    ledger = appended(opened(tmp_path), range(40))
    (log_of(tmp_path) / name).write_text("{}")
    short_log.shorten(tmp_path / "_recon/ledger", 40, FEW)
    assert sorted(path.name for path in log_of(tmp_path).glob("*.json"))[0] == f"{34:020d}.json"
    assert len(ledger.entries()) == 40


def test_a_writer_whose_ledger_is_gone_says_that_it_cannot_be_written(tmp_path: Path) -> None:
    ledger = appended(opened(tmp_path), range(2))
    folder = tmp_path / "_recon/ledger"
    folder.rename(tmp_path / "moved")
    folder.write_text("a file where the ledger should be")
    with pytest.raises(LedgerError, match="cannot be written"):
        ledger.append(entry(2))
    folder.unlink()
    (tmp_path / "moved").rename(folder)
    assert ledger.append(entry(2)).sequence == 3
