"""What a table gained since a state was kept, by its Delta log; and when that cannot be told by appends alone.

A state covers a version of the table: all rows that it held then. The versions after it are new micro-batches as long
as each is an append of ours. Anything else that changed data makes what was measured untrue, so that the table has to
be read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from recon.errors import EvidenceError
from recon.model import DeltaCommit, DeltaWitness, ReconStamp
from recon.model.offsets import Spans

# They move rows between files, or remove files that no version since needs, and leave every row as it is.
_HARMLESS = ("OPTIMIZE", "VACUUM START", "VACUUM END")

Batches = Mapping[str, Mapping[int, Spans]]


class StaleState(EvidenceError):
    """A kept state does not hold for the table as it is now; the message says why."""


@dataclass(frozen=True)
class Position:
    """What a state covers: a version of the table, told by its commit, and the micro-batches in it.

    `batches` has a set of batch ids per writer ("pipeline/sink") and epoch.
    """

    version: int
    commit: str
    batches: Batches

    def as_json(self) -> dict[str, Any]:
        """In JSON's types."""
        batches = {
            writer: {str(epoch): [list(span) for span in spans] for epoch, spans in epochs.items()}
            for writer, epochs in self.batches.items()
        }
        return {"version": self.version, "commit": self.commit, "batches": batches}

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Position:
        """From what `as_json` gave.

        Raises:
            KeyError, TypeError, ValueError, EvidenceError: it did not.
        """
        batches = {
            str(writer): {int(epoch): Spans.of((int(a), int(b)) for a, b in spans) for epoch, spans in epochs.items()}
            for writer, epochs in found["batches"].items()
        }
        return cls(int(found["version"]), str(found["commit"]), batches)


@dataclass(frozen=True)
class News:
    """What came after a position: the versions whose files are new, and where that leads.

    `rows` is how many rows they added, None where the log does not tell.
    """

    position: Position
    versions: tuple[int, ...]
    batches: int
    rows: int | None


def identity(commit: DeltaCommit) -> str:
    """What tells a commit from another of the same version, such as that of a table made anew at the same place."""
    said = (commit.version, commit.timestamp, commit.operation, commit.user_metadata, commit.files_added)
    return hashlib.sha256(repr(said).encode()).hexdigest()


def position_at(version: int, log: DeltaWitness, landed: Iterable[tuple[str, int, int]]) -> Position:
    """The position of a whole table at a version.

    Args:
        version: one whose commit is among the log's.
        log: the table's log.
        landed: (writer, epoch, batch id) of every ledger entry whose rows are in that version.

    Raises:
        StaleState: the log does not hold the version.
    """
    if version not in log.commits:
        raise StaleState(f"the log does not hold version {version}")
    ids: dict[str, dict[int, set[int]]] = {}
    for writer, epoch, batch_id in landed:
        ids.setdefault(writer, {}).setdefault(epoch, set()).add(batch_id)
    batches = {w: {epoch: Spans.of_offsets(found) for epoch, found in epochs.items()} for w, epochs in ids.items()}
    return Position(version, identity(log.commits[version]), batches)


def since(position: Position, log: DeltaWitness) -> News:
    """The micro-batches that the table gained after a position.

    Args:
        position: what a state covers.
        log: the table's log from that version on.

    Raises:
        StaleState: something else changed the table, or the log does not tell.
    """
    _require_same(position, log)
    assert log.last is not None
    covered = {w: dict(epochs) for w, epochs in position.batches.items()}
    versions, batches, rows = [], 0, 0
    unknown = False
    for version in range(position.version + 1, log.last + 1):
        commit = log.commits.get(version)
        if commit is None:
            raise StaleState(f"the log lacks version {version}")
        stamp = _appended(commit)
        if stamp is None:
            continue
        writer = f"{stamp.pipeline}/{stamp.sink}"
        epochs = covered.setdefault(writer, {})
        known = epochs.get(stamp.epoch, Spans())
        if stamp.batch_id in known:
            raise StaleState(f"version {version} wrote micro-batch {stamp.batch_id} (epoch {stamp.epoch}) again")
        epochs[stamp.epoch] = known.union(Spans.of_offsets([stamp.batch_id]))
        batches += 1
        if commit.data_change:
            versions.append(version)
            unknown = unknown or commit.rows_added is None
            rows += commit.rows_added or 0
    reached = Position(log.last, identity(log.commits[log.last]), covered)
    return News(reached, tuple(versions), batches, None if unknown else rows)


def require_partitions(file: str, partitions: Iterable[str], types: Mapping[str, str]) -> None:
    """Reading a file alone, Spark takes partition columns from its folders: they have to tell what the log tells.

    Args:
        file: its path or URI.
        partitions: the columns that the log gives it a value of.
        types: Spark's name of each column's type.

    Raises:
        StaleState: a column has no folder, or its values are written otherwise in folders than in the log.
    """
    for column in partitions:
        kind = types.get(column, "")
        if kind.startswith("timestamp") or kind == "binary":
            raise StaleState(f"partition column {column} is a {kind}, which folders do not tell exactly")
        if f"/{column}=" not in file:
            raise StaleState(f"{file} lies in no folder of partition column {column}")


def _require_same(position: Position, log: DeltaWitness) -> None:
    if not log.exists or log.last is None:
        raise StaleState("the table has no log")
    if log.last < position.version:
        raise StaleState(
            f"the table is at version {log.last}, before the version {position.version} that was measured: it was "
            "replaced"
        )
    commit = log.commits.get(position.version)
    if commit is None:
        raise StaleState(f"the log no longer holds version {position.version}, the last that was measured")
    if identity(commit) != position.commit:
        raise StaleState(f"version {position.version} is not the commit that was measured: the table was replaced")


def _appended(commit: DeltaCommit) -> ReconStamp | None:
    """The stamp of a micro-batch's append; None for a commit that leaves the rows as they are.

    Raises:
        StaleState: it is neither.
    """
    if commit.stamp is not None and not commit.files_removed:
        return commit.stamp
    if not commit.data_change and commit.operation in _HARMLESS:
        return None
    operation = commit.operation or "commit of unknown kind"
    if commit.data_change and not commit.files_removed:
        raise StaleState(f"version {commit.version} is a {operation} that recon did not make")
    raise StaleState(f"version {commit.version} is a {operation}")


__all__ = ["Batches", "News", "Position", "StaleState", "identity", "position_at", "require_partitions", "since"]
