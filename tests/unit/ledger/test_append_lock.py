"""Writers of one host append one after another; one that cannot have the lock goes on without it."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

import pytest

from recon.write.ledger.store.append_lock import turn


def test_one_waits_until_the_other_is_done(tmp_path: Path) -> None:
    order: list[str] = []
    holds = threading.Event()

    def first() -> None:
        with turn(tmp_path):
            holds.set()
            time.sleep(0.1)
            order.append("first")

    other = threading.Thread(target=first)
    other.start()
    assert holds.wait(5)
    with turn(tmp_path / "in" / ".."):
        order.append("second")
    other.join()
    assert order == ["first", "second"]


def test_a_writer_goes_on_when_it_has_waited_long_enough(tmp_path: Path) -> None:
    with turn(tmp_path):
        began = time.monotonic()
        with turn(tmp_path, wait_s=0.05):
            waited = time.monotonic() - began
    assert waited >= 0.05


def test_a_host_without_a_folder_for_locks_appends_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with turn(tmp_path / "table"):
        pass


def test_a_table_that_is_not_on_a_disk_of_the_host_is_not_waited_for() -> None:
    with turn(None), turn(None):
        pass


def test_an_error_ends_the_turn(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), turn(tmp_path):
        raise RuntimeError
    with turn(tmp_path, wait_s=600):
        pass
