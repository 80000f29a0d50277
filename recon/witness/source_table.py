"""The Delta table that a stream reads: which rows its commits gave the stream, by the table's log, without Spark.

A stream reads the data files that a commit added with dataChange=true, in the order of the commit's actions
(`DeltaSource.filterAndGetIndexedFiles`). A new query first reads those of a snapshot, by modification time and path
(`DeltaSourceSnapshot`). Their numbers of rows are in the statistics of the add actions.

Of a table's change data feed it reads the files of cdc actions; only the files themselves say how many rows these have.
Of a commit without cdc actions it reads the files that were added and removed
(`DeltaSourceCDCSupport.filterCDCActions`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from recon.base.clock import utc_now
from recon.base.errors import EvidenceError
from recon.base.lazy import pa
from recon.base.limits import delta_rs_options
from recon.base.storage import Storage
from recon.base.text import first_line
from recon.model import Passes, SourceCommit, SourceTable, TableCommit
from recon.model.delta_offsets import BEGINNING, position_of
from recon.model.offsets import OffsetSpan
from recon.witness import delta_log
from recon.witness.delta_commits import actions, contents, file_name, num_records, parse_commit, version_of

_LOG = "_delta_log"
_CHANGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")  # by a MERGE


def read(storage: Storage, ranges: Collection[OffsetSpan], passes: Passes = "") -> SourceTable:
    """The table's log from the first commit on that some ranges hold.

    Args:
        storage: the table's folder.
        ranges: what micro-batches read of it, and perhaps of other tables.
        passes: what the query does with commits that remove data files, as in `SourceTable`.

    Raises:
        EvidenceError: a commit file is torn or no JSON; the message names it.
    """
    read_at = utc_now()
    log = storage.child(_LOG)
    names = log.names()
    versions = sorted(v for v in map(version_of, names) if v is not None)
    if not versions:
        exists = any(".checkpoint." in name for name in names)
        return SourceTable(location=storage.uri, exists=exists, read_at=read_at, passes=passes)
    table_id = delta_log.current_table_id(storage, versions[-1])
    mine = {read.span for read in ranges if read.topic_id == table_id}
    first = min((_first_commit(*span) for span in mine), default=versions[-1])
    commits: dict[int, SourceCommit] = {}
    for version, raw in contents(log, [v for v in versions if v >= first]):
        files = _Files()
        commit, _ = parse_commit(log, version, raw, {}, files)
        commits[version] = SourceCommit(
            version=version,
            timestamp=commit.timestamp,
            operation=commit.operation,
            files=_feed(storage, version, raw, commit) if passes == "feed" else tuple(files.rows),
            removes=commit.files_removed > 0,
            vectors=files.vectors,
            metrics=commit.operation_metrics,
        )
    return SourceTable(
        location=storage.uri,
        exists=True,
        read_at=read_at,
        table_id=table_id,
        first_retained=versions[0],
        last=versions[-1],
        commits=commits,
        snapshots={version: _snapshot(storage, version) for version in sorted(_snapshots(mine))},
        passes=passes,
    )


class _Files:
    """The rows of each data file that a commit added, in its order."""

    def __init__(self) -> None:
        self.rows: list[int | None] = []
        self.vectors = False

    def add(self, action: Mapping[str, Any], rows: int | None) -> None:
        """An add action, and the numRecords of its statistics."""
        if action.get("dataChange", True):
            vector = action.get("deletionVector")
            self.vectors = self.vectors or bool(vector)
            self.rows.append(None if rows is None else rows - (int(vector["cardinality"]) if vector else 0))

    def remove(self, action: Mapping[str, Any]) -> None:
        """A remove action."""


def _feed(storage: Storage, version: int, raw: bytes, commit: TableCommit) -> tuple[int | None, ...]:
    """The rows of each file that a commit gives a reader of the change data feed; None for a number that is not known.

    A file with a deletion vector is compared with the file that it takes the place of: only Spark tells the rows.
    """
    listed = list(actions(storage.child(_LOG), file_name(version), raw))
    changes = [action["cdc"] for action in listed if "cdc" in action]
    if changes:
        return tuple(_rows_in(storage, unquote(file["path"])) for file in changes)
    if commit.is_merge and all(commit.metric(name) == 0 for name in _CHANGED):
        return ()
    files = [body for action in listed for kind, body in action.items() if kind in ("add", "remove")]
    changing = [body for body in files if body.get("dataChange", True)]
    if any(body.get("deletionVector") for body in changing):
        return (None,) * len(changing)
    return tuple(num_records(body.get("stats")) for body in changing)


def _rows_in(storage: Storage, path: str) -> int | None:
    """The rows of a Parquet file, by its footer; None where it cannot be read any more."""
    import pyarrow.parquet as pq

    try:
        with storage.opened(path) as file:
            return int(pq.ParquetFile(file).metadata.num_rows)
    except (OSError, EvidenceError, pa.ArrowException):
        return None


def _first_commit(start: int, end: int) -> int:
    """The first version whose commit a range holds, or may hold next."""
    low, high = position_of(start), position_of(end)
    if start == BEGINNING:
        return high.version + high.in_snapshot
    return low.version + low.in_snapshot


def _snapshots(ranges: Iterable[tuple[int, int]]) -> set[int]:
    """The versions of the table as a whole that ranges hold files of."""
    found = set()
    for start, end in ranges:
        low, high = position_of(start), position_of(end)
        if end <= start:
            continue
        if start == BEGINNING:
            found.add(high.version if high.in_snapshot else high.version - 1)
        elif low.in_snapshot:
            found.add(low.version)
    return found


def _snapshot(storage: Storage, version: int) -> Sequence[int | None] | str:
    """The rows of each data file of the table at a version, in the order of a new stream; or why they are not known."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    where = str(storage.local) if storage.local is not None else storage.uri
    try:
        table = DeltaTable(where, version=version, storage_options=delta_rs_options(where, storage.options))
        if table.version() != version:
            return f"{storage.uri} has no version {version} any more"
        if "deletionVectors" in (table.protocol().reader_features or ()):
            return f"{storage.uri} may have deletion vectors, which the statistics of its files do not count"
        actions = table.get_add_actions(flatten=True)
    except (DeltaError, OSError, ValueError, EvidenceError) as error:
        return f"what {storage.uri} was at version {version} cannot be read any more: {first_line(error)}"
    columns = {name: actions.column(name).to_pylist() for name in ("path", "modification_time", "num_records")}
    files = zip(columns["modification_time"], columns["path"], columns["num_records"], strict=True)
    return [rows for _, _, rows in sorted(files, key=lambda file: file[:2])]
