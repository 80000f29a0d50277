"""The log of a ledger's table on a local disk, kept short.

delta-rs lists the whole log folder at every commit and every refresh. 10,000 files take 50 ms, and twelve streams of 10
s micro-batches leave 100,000 a day. (An object store lists from the newest checkpoint on.) So commit files that a
checkpoint covers leave the folder. recon only needs the operation of each version: files of 1,000 versions and more in
the table's folder `_recon_log` keep it as long as the log would. Spark, delta-rs and their VACUUM pass over folders
that begin with an underscore.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import orjson

from recon.base.storage import read_ahead, read_file, write_file
from recon.write.ledger.store.base import operation_of
from recon.write.ledger.store.housekeeping import Housekeeping

HISTORY = "_recon_log"
_HISTORY_KEPT_S = 2 * 24 * 3600.0  # as `delta.logRetentionDuration` of the table

_VERSION = re.compile(r"(\d{20})\.")
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_OF_VERSIONS = re.compile(r"(\d{20})-(\d{20})\.json")

Operations = list[tuple[int, str]]


def commit_file(table: Path, version: int) -> Path:
    """Where the commit of a version is while its file stays."""
    return table / f"_delta_log/{version:020d}.json"


def may_be_updated(table: Path, version: int, housekeeping: Housekeeping) -> bool:
    """Whether a table that was opened at a version can be brought forward: its log, as it was then, is still there.

    That the whole log is gone, who reads or writes the table finds out. A table that was opened half of the versions
    ago that stay is opened anew.
    """
    if not commit_file(table, version).exists():
        return not (table / "_delta_log").is_dir()
    return not commit_file(table, version + housekeeping.log_versions // 2).exists()


def operations(table: Path, last: int, after: int) -> Operations:
    """(version, operation) from the version after `after` to `last`, as far back as they are kept, ascending.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is damaged.
    """
    found: Operations = []
    for version, operation in _of_commits(table, range(last, after, -1)):
        if operation is None:
            break  # it left the folder, like all before it
        found.append((version, operation))
    at = found[-1][0] - 1 if found else last
    history = _history(table, after) if at > after else {}
    while at in history and at > after:
        found.append((at, history[at]))
        at -= 1
    return found[::-1]


def shorten(table: Path, newest: int, housekeeping: Housekeeping) -> None:
    """Removes commit files that a checkpoint stands for, once they are many; their operations go to the history.

    `newest` is the table's version. A process that does the same at this moment, or is killed on the way, does no harm:
    operations are written to the history before their commit files are removed.

    Raises:
        OSError: a file cannot be read, written or removed.
        ValueError: a commit file is damaged; all stay.
    """
    log = table / "_delta_log"
    names = sorted(os.listdir(log))  # noqa: PTH208 - thousands of names, and names alone
    first = next((int(found[1]) for found in map(_COMMIT.fullmatch, names) if found), newest)
    checkpoints = (found for found in map(_CHECKPOINT.fullmatch, reversed(names)) if found)
    oldest, latest = first + housekeeping.log_at_once, newest - housekeeping.log_versions
    old = (found for found in checkpoints if oldest <= int(found[1]) <= latest)
    upto = next((int(found[1]) for found in old if _is_parquet(log / found[0])), None)
    if upto is None:
        return
    told = list(_of_commits(table, range(first, upto)))
    if any(operation is None for _, operation in told):
        return  # another process does so, or somebody removed one: what is left of the log stays as it is
    write_file(table / HISTORY / f"{first:020d}-{upto - 1:020d}.json", orjson.dumps(told))
    for name in names:  # the oldest first, so that no hole is left where this process is killed
        at = _VERSION.match(name)
        if at and int(at[1]) < upto:
            (log / name).unlink(missing_ok=True)
    _forget_old(table / HISTORY)


def _is_parquet(path: Path) -> bool:
    """Whether a file is whole, as its first and last bytes say: without its checkpoint a shortened log is of no use."""
    try:
        with path.open("rb") as file:
            begin = file.read(4)
            file.seek(-4, os.SEEK_END)
            return begin == file.read(4) == b"PAR1" and file.tell() > 8
    except OSError:  # a folder, a link to nothing, or fewer bytes than four
        return False


def _of_commits(table: Path, versions: range) -> Iterator[tuple[int, str | None]]:
    """The operation of each version, in their order; None where its commit file is gone."""

    def read(version: int) -> bytes | None:
        with suppress(FileNotFoundError):
            return read_file(str(commit_file(table, version)))
        return None

    for version, raw in zip(versions, read_ahead(read, versions, remote=False), strict=True):
        yield version, None if raw is None else _operation(raw)


def _operation(commit: bytes) -> str:
    lines = (line for line in commit.split(b"\n") if b'"commitInfo"' in line)
    try:
        infos = [action["commitInfo"] for action in map(orjson.loads, lines) if "commitInfo" in action]
        return operation_of(infos[0] if infos else {})
    except (AttributeError, RecursionError, TypeError) as error:
        raise ValueError(f"its commitInfo is damaged: {error}") from error


def _history(table: Path, after: int) -> Mapping[int, str]:
    """The operations of the versions behind `after` whose commit files left the folder."""
    found: dict[int, str] = {}
    for path in (table / HISTORY).glob("*.json"):
        name = _OF_VERSIONS.fullmatch(path.name)
        if name is None or int(name[2]) <= after:
            continue
        try:
            found.update((int(version), str(operation)) for version, operation in orjson.loads(path.read_bytes()))
        except FileNotFoundError:
            continue  # its time is over
        except TypeError as error:
            raise ValueError(f"{path} is damaged: {error}") from error
    return found


def _forget_old(history: Path) -> None:
    for path in history.glob("*.json"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _HISTORY_KEPT_S:
                path.unlink()
