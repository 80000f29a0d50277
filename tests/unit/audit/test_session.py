"""What the pipelines of an audit share."""

from __future__ import annotations

from pathlib import Path

import pytest

from recon.audit.session import AuditSession
from recon.errors import LedgerError
from recon.ledger import Ledger, open_ledger
from tests.support.ledger_entries import entry, project


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose ledger has four small files, one more than an audit leaves."""
    ledger = open_ledger(project(tmp_path))
    for batch_id in range(4):
        ledger.append(entry(batch_id))
    monkeypatch.setattr("recon.ledger.store.base.MANY_FILES", 3)
    return tmp_path


@pytest.mark.parametrize(("tidies", "files"), [(True, 1), (False, 4)])
def test_the_ledger_is_opened_once_and_its_small_files_are_merged_before_it_is_read(
    folder: Path, tidies: bool, files: int
) -> None:
    session = AuditSession(project(folder), True, None, tidies=tidies)
    ledger = session.ledger()
    assert session.ledger() is ledger and session.progress() is session.progress()
    assert ledger.store.small_files() == files
    open_ledger(project(folder)).append(entry(4))
    assert [found.batch_id for found in ledger.entries()] == [0, 1, 2, 3, 4], "entries written meanwhile are read"


def test_files_that_cannot_be_merged_are_read_as_they_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Ledger) -> None:
        raise LedgerError("another audit merges them")

    monkeypatch.setattr(Ledger, "tidy", broken)
    ledger = AuditSession(project(folder), True, None, tidies=True).ledger()
    assert ledger.store.small_files() == 4 and len(ledger.entries()) == 4
