"""Many small files in order: in threads where reading is slow, and never much further than somebody wants them."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from recon.base.storage import Storage, read_ahead

HERE = threading.get_ident


def test_slow_files_are_read_in_threads_and_fast_ones_are_not() -> None:
    readers: list[int] = []

    def read(key: int) -> int:
        readers.append(HERE())
        if key >= 2_000:
            time.sleep(0.002)
        return key * 2

    for remote in (False, True):
        readers.clear()
        assert list(read_ahead(read, range(1_500), remote=remote)) == [2 * key for key in range(1_500)]
        assert (set(readers) == {HERE()}) is not remote
    readers.clear()
    # Of each block the first few are timed.
    assert list(read_ahead(read, range(976, 2_100), remote=False)) == [2 * key for key in range(976, 2_100)]
    assert set(readers[:1_024]) == {HERE()} and len(set(readers[1_040:])) > 2


@pytest.mark.parametrize("remote", [False, True])
def test_what_is_read_ahead_has_a_bound_and_an_error_keeps_its_place(remote: bool) -> None:
    begun: list[int] = []

    def read(key: int) -> int:
        begun.append(key)
        if key == 50:
            raise OSError("torn")
        return key

    with closing(read_ahead(read, iter(range(9_000)), remote=remote)) as values:  # type: ignore[type-var]
        assert [next(values), next(values)] == [0, 1]
    assert max(begun) < 1_024
    wanted: list[int] = []
    with pytest.raises(OSError, match="torn"):
        for value in read_ahead(read, range(9_000), remote=remote):
            wanted.append(value)
    assert wanted == list(range(50)) and max(begun) < 1_024
    assert list(read_ahead(read, range(0), remote=remote)) == []


def test_commits_that_are_slow_to_read(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from recon.witness import delta_commits

    log = Storage(str(tmp_path))
    for version in range(200):
        if version != 150:
            log.write(delta_commits.file_name(version), b"%d" % version)
    plain = list(delta_commits.contents(log, range(200)))
    of_disk = delta_commits.read_file

    def slow(path: str) -> bytes:
        time.sleep(0.002)
        return of_disk(path)

    monkeypatch.setattr(delta_commits, "read_file", slow)
    assert list(delta_commits.contents(log, range(200))) == plain
    assert [version for version, _ in plain] == [v for v in range(200) if v != 150], "one was cleaned up meanwhile"
