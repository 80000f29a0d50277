"""Finds the micro-batches that a table gained since a state was saved, by its Delta log.

A state covers a version of the table: all rows that it held then. The versions after it are new micro-batches as long
as each is an append that recon made. After any other change of data the saved state is stale, and the whole table has
to be read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from recon.base.errors import EvidenceError
from recon.model import ReconStamp, TableCommit, TableLog
from recon.model.offsets import Spans

# Operations that move rows between files, or remove files that no later version needs, and change no row.
_HARMLESS = ("OPTIMIZE", "VACUUM START", "VACUUM END")

Batches = Mapping[str, Mapping[int, Spans]]


class StaleState(EvidenceError):
    """A saved state does not hold for the table as it is now; the message says why."""


@dataclass(frozen=True)
class CoveredVersion:
    """What a state covers: a version of the table, identified by its commit, and the micro-batches in it.

    `batches` has a set of batch ids per writer ("pipeline/sink") and epoch.
    """

    version: int
    commit: str
    batches: Batches

    def as_json(self) -> dict[str, Any]:
        """Values that JSON can hold."""
        batches = {
            writer: {str(epoch): [list(span) for span in spans] for epoch, spans in epochs.items()}
            for writer, epochs in self.batches.items()
        }
        return {"version": self.version, "commit": self.commit, "batches": batches}

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> CoveredVersion:
        """The inverse of `as_json`.

        Raises:
            KeyError, TypeError, ValueError, EvidenceError: the document is of another form.
        """
        batches = {
            str(writer): {int(epoch): Spans.of((int(a), int(b)) for a, b in spans) for epoch, spans in epochs.items()}
            for writer, epochs in document["batches"].items()
        }
        return cls(int(document["version"]), str(document["commit"]), batches)


@dataclass(frozen=True)
class NewBatches:
    """The micro-batches after a covered version.

    `reached` is the version up to which they lead; `versions` are those that added files. `count` is the number of
    micro-batches; `rows` is the number of rows that they added, None where the log lacks statistics.
    """

    reached: CoveredVersion
    versions: tuple[int, ...]
    count: int
    rows: int | None


def commit_identity(commit: TableCommit) -> str:
    """A hash that differs between two commits of one version, such as those of a table and of its replacement."""
    fields = (commit.version, commit.timestamp, commit.operation, commit.user_metadata, commit.files_added)
    return hashlib.sha256(repr(fields).encode()).hexdigest()


def covered_version(version: int, log: TableLog, landed: Iterable[tuple[str, int, int]]) -> CoveredVersion:
    """A version of the table with the micro-batches in it.

    `landed` has (writer, epoch, batch id) of every ledger entry whose rows are in that version.

    Raises:
        StaleState: the log does not hold the version.
    """
    if version not in log.commits:
        raise StaleState(f"the log does not hold version {version}")
    ids: dict[str, dict[int, set[int]]] = {}
    for writer, epoch, batch_id in landed:
        ids.setdefault(writer, {}).setdefault(epoch, set()).add(batch_id)
    batches = {w: {epoch: Spans.of_offsets(those) for epoch, those in epochs.items()} for w, epochs in ids.items()}
    return CoveredVersion(version, commit_identity(log.commits[version]), batches)


def new_batches(covered: CoveredVersion, log: TableLog) -> NewBatches:
    """The micro-batches that the table gained after the version that a state covers; `log` begins there.

    Raises:
        StaleState: something else changed the table, or the log lacks a version.
    """
    _require_same(covered, log)
    assert log.last is not None
    batches = {w: dict(epochs) for w, epochs in covered.batches.items()}
    versions, count, rows = [], 0, 0
    unknown = False
    for version in range(covered.version + 1, log.last + 1):
        commit = log.commits.get(version)
        if commit is None:
            raise StaleState(f"the log lacks version {version}")
        stamp = _appended(commit)
        if stamp is None:
            continue
        writer = f"{stamp.pipeline}/{stamp.sink}"
        epochs = batches.setdefault(writer, {})
        batch_ids = epochs.get(stamp.epoch, Spans())
        if stamp.batch_id in batch_ids:
            raise StaleState(f"version {version} wrote micro-batch {stamp.batch_id} (epoch {stamp.epoch}) again")
        epochs[stamp.epoch] = batch_ids.union(Spans.of_offsets([stamp.batch_id]))
        count += 1
        if commit.data_change:
            versions.append(version)
            unknown = unknown or commit.rows_added is None
            rows += commit.rows_added or 0
    reached = CoveredVersion(log.last, commit_identity(log.commits[log.last]), batches)
    return NewBatches(reached, tuple(versions), count, None if unknown else rows)


def require_partitions(file: str, partitions: Iterable[str], types: Mapping[str, str]) -> None:
    """Checks that a file's folders give its partition columns the values that the log gives them.

    Spark takes partition columns from the folders when it reads a file alone. `partitions` are the columns for which
    the log has the file's value, `types` Spark's names of the columns' types.

    Raises:
        StaleState: a column has no folder, or folders write its type in another form than the log.
    """
    for column in partitions:
        kind = types.get(column, "")
        if kind.startswith("timestamp") or kind == "binary":
            raise StaleState(f"partition column {column} is a {kind}, whose exact value cannot be read from folders")
        if f"/{column}=" not in file:
            raise StaleState(f"{file} is in no folder of partition column {column}")


def _require_same(covered: CoveredVersion, log: TableLog) -> None:
    if not log.exists or log.last is None:
        raise StaleState("the table has no log")
    if log.last < covered.version:
        raise StaleState(
            f"the table is at version {log.last}, before the version {covered.version} that was measured: it was "
            "replaced"
        )
    commit = log.commits.get(covered.version)
    if commit is None:
        raise StaleState(f"the log no longer holds version {covered.version}, the last that was measured")
    if commit_identity(commit) != covered.commit:
        raise StaleState(f"version {covered.version} is not the commit that was measured: the table was replaced")


def _appended(commit: TableCommit) -> ReconStamp | None:
    """The stamp of a micro-batch's append; None for a commit that changes no row.

    Raises:
        StaleState: the commit is neither.
    """
    if commit.stamp is not None and not commit.files_removed:
        return commit.stamp
    if not commit.data_change and commit.operation in _HARMLESS:
        return None
    operation = commit.operation or "commit of unknown kind"
    if commit.data_change and not commit.files_removed:
        raise StaleState(f"version {commit.version} is a {operation} that recon did not make")
    raise StaleState(f"version {commit.version} is a {operation}")
