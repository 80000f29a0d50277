"""The Iceberg witness: what a table's metadata holds of each snapshot and of the table, read with pyiceberg, no Spark.

A snapshot is a commit, and its sequence number the version. It grows with every commit of a table of format version 2
or later (Iceberg spec, "Sequence Numbers"). The history is the newest snapshot of `main` and its ancestors. No reader
of the table sees any other: those of branches, and those that a rollback left out. The history ends where a parent was
expired; expired snapshots are not known here.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from recon.base.errors import ConfigError, EvidenceError
from recon.base.lazy import pa, pc
from recon.base.limits import S3_S, STATEMENT_S, within
from recon.base.requirements import how_to_install
from recon.base.text import first_line
from recon.model import (
    CommitRows,
    DataFile,
    LiveFiles,
    ReconStamp,
    SinkCommit,
    SinkLog,
    TableCommit,
    TableLog,
    Unavailable,
    parse_stamp,
)
from recon.model.deletion import AskedDeletion, DeletedRows
from recon.model.evidence import ICEBERG_WORDS
from recon.model.offsets import Span
from recon.model.wire.columns import BATCH_ID, SOURCE_COLUMNS
from recon.model.wire.iceberg import MERGED, STAMP, number_property
from recon.model.wire.values import required_time
from recon.witness import commit_rows
from recon.witness import deleted_rows as deleted_rows_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import DataScan, FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

MAIN = "main"
_SNAPSHOT_AGE = "history.expire.max-snapshot-age-ms"
_FIVE_DAYS_MS = 5 * 24 * 60 * 60 * 1000  # Iceberg's default
_WHOLE_TEXT = 16  # Iceberg cuts longer texts off in its statistics
_AT_ONCE = 16  # files that are looked for at once


@dataclass(frozen=True)
class IcebergTable:
    """A table by its name, which begins with the catalog's, and pyiceberg's properties of that catalog."""

    name: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def catalog_name(self) -> str:
        """The catalog's name in the Spark session; a SQL catalog keeps its tables under it."""
        return self.name.split(".")[0]

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog.

        Raises:
            ConfigError: pyiceberg is not installed.
            EvidenceError: the catalog cannot be opened.
        """
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError:
            raise ConfigError(
                "an Iceberg table is confirmed and audited with pyiceberg, which is not installed; "
                f"{how_to_install('iceberg')}"
            ) from None
        # A catalog of SQL tables that are not there is a mistake, and nothing that a reader should make.
        waits = {"s3.connect-timeout": f"{S3_S:g}", "s3.request-timeout": f"{S3_S:g}"}
        properties = {"init_catalog_tables": "false", **waits, **self.properties}
        try:
            catalog = within(
                STATEMENT_S, lambda: load_catalog(self.catalog_name, **properties), self._unopened("it did not answer")
            )
        except EvidenceError:
            raise
        except Exception as error:  # of pyiceberg, SQLAlchemy, a cloud's client
            raise EvidenceError(f"{self._unopened(first_line(error))}; correct `catalog` of the sink") from error
        weakref.finalize(self, catalog.close)  # else a SQL catalog stays connected until the garbage collector runs
        return catalog

    def _unopened(self, why: str) -> str:
        return f"the Iceberg catalog {self.catalog_name} cannot be opened with pyiceberg: {why}"

    def find(self) -> Table | None:
        """The table as its catalog has it now; None where the catalog has none of that name.

        Raises:
            ConfigError: pyiceberg is not installed.
            EvidenceError: the catalog or the table's metadata cannot be read, or its format version is 1.
        """
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        catalog, identifier = self.catalog, tuple(self.name.split(".")[1:])
        slow = f"the table {self.name} cannot be read: its catalog or its store did not answer"
        try:
            table = within(STATEMENT_S, lambda: catalog.load_table(identifier), slow)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except EvidenceError:
            raise
        except Exception as error:  # of pyiceberg, SQLAlchemy, a store
            raise EvidenceError(
                f"the Iceberg table {self.name} cannot be read with pyiceberg: {first_line(error)}; correct `catalog` "
                "of the sink"
            ) from error
        if table.metadata.format_version < 2:
            raise EvidenceError(
                f"the Iceberg table {self.name} has format version 1, whose snapshots have no sequence numbers: run "
                f"ALTER TABLE {self.name} SET TBLPROPERTIES ('format-version'='2')"
            )
        return table


# -- the table ----------------------------------------------------------------------------------------------------


def newest_number(table: Table, pipeline: str, sink: str) -> int:
    """The number of a sink's newest write, 0 before the first.

    Raises:
        EvidenceError: the property that holds it is no number.
    """
    text = table.metadata.properties.get(number_property(pipeline, sink), "0")
    if not text.isdecimal():
        raise EvidenceError(
            f"the table {'.'.join(table.name())} has the property {number_property(pipeline, sink)} = {text!r:.80}, "
            "which recon sets to the number of its newest write: set it to that of the newest stamped snapshot"
        )
    return int(text)


def line(table: Table) -> Iterator[Snapshot]:
    """The snapshots that the table's newest one descends from, itself first."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    snapshot = by_id.get(table.metadata.current_snapshot_id or -1)
    while snapshot is not None:
        yield snapshot
        snapshot = by_id.get(snapshot.parent_snapshot_id or -1)


def snapshot_of(table: Table, version: int) -> Snapshot | None:
    """The snapshot of a version in the table's line."""
    return next((snapshot for snapshot in line(table) if number_of(snapshot) == version), None)


def number_of(snapshot: Snapshot) -> int:
    """The version of a snapshot: its sequence number; 0 for all from before the table had any."""
    return snapshot.sequence_number or 0


def highest_number(table: Table) -> int:
    """The greatest sequence number that the table has given out."""
    from pyiceberg.table.metadata import TableMetadataV1

    return 0 if isinstance(table.metadata, TableMetadataV1) else table.metadata.last_sequence_number


def stamp_of(snapshot: Snapshot) -> ReconStamp | None:
    """The stamp of recon's write that a snapshot publishes.

    Raises:
        EvidenceError: it has a torn one.
    """
    try:
        return parse_stamp(summary_of(snapshot).get(STAMP))
    except EvidenceError as error:
        raise EvidenceError(
            f"snapshot {snapshot.snapshot_id} (sequence number {number_of(snapshot)}): {error}; it was written by "
            "another program that copies recon's stamp"
        ) from error


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """A snapshot's summary as texts."""
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def read(name: str, table: Table | None, *, files: bool = False) -> TableLog:
    """The history of a table, in the form in which a Delta log is judged; with `files`, its data files are looked at.

    Raises:
        EvidenceError: a snapshot's summary is torn.
    """
    if table is None:
        return TableLog(location=name, exists=False, first_retained=None, last=None, commits={}, words=ICEBERG_WORDS)
    snapshots = list(line(table))
    versions = [number_of(snapshot) for snapshot in snapshots]
    witness = TableLog(
        location=name,
        exists=True,
        first_retained=versions[-1] if versions else None,
        last=versions[0] if versions else None,
        commits={commit.version: commit for commit in commits(table)},
        log_retention_days=_kept_days(table),
        table_id=str(table.metadata.table_uuid),
        line=frozenset(versions),
        highest=highest_number(table),
        whole=not snapshots or _is_first(snapshots[-1]),
        words=ICEBERG_WORDS,
    )
    return replace(witness, files=_live_files(table)) if files else witness


def commits(table: Table) -> Iterator[TableCommit]:
    """The snapshots of the table's line as commits, newest first.

    A MERGE of recon's is two snapshots: one with the rows, and its child with the stamp. Snapshots from before the
    table had sequence numbers are left out: there was no recon then.

    Raises:
        EvidenceError: a snapshot's summary is torn.
    """
    snapshots = list(line(table))
    rows_of: dict[int, int] = {}  # the snapshot with the stamp, by that with the rows
    for snapshot, parent in zip_longest(snapshots, snapshots[1:]):
        if not number_of(snapshot) or snapshot.snapshot_id in rows_of:
            continue
        merged = summary_of(snapshot).get(MERGED)
        if merged is None or stamp_of(snapshot) is None:
            yield commit_of(snapshot)
        elif parent is not None and merged == str(parent.snapshot_id):
            rows_of[parent.snapshot_id] = snapshot.snapshot_id
            yield commit_of(snapshot, parent)
        else:  # the snapshot with the rows is expired
            yield replace(commit_of(snapshot), rows_added=None, rows_removed=None, data_change=True)


def _time_of(snapshot: Snapshot) -> datetime:
    try:
        return required_time(snapshot.timestamp_ms)
    except ValueError as error:
        raise EvidenceError(f"snapshot {snapshot.snapshot_id} has no time: {error}") from None


def commit_of(snapshot: Snapshot, rows: Snapshot | None = None) -> TableCommit:
    """A snapshot as a commit; `rows` is the one that has its rows, where that is another.

    Raises:
        EvidenceError: its stamp is torn, or its summary has a count that is no number.
    """
    of = snapshot if rows is None else rows
    counts, operation = _Counts(of), "" if of.summary is None else of.summary.operation.value
    files_added, files_removed = counts["added-data-files"], counts["deleted-data-files"] + counts["added-delete-files"]
    return TableCommit(
        version=number_of(snapshot),
        timestamp=_time_of(snapshot),
        operation=operation.upper(),
        operation_metrics={"numOutputBytes": str(counts["added-files-size"])},
        stamp=stamp_of(snapshot),
        files_added=files_added,
        files_removed=files_removed,
        rows_added=counts["added-records"],
        rows_removed=counts.removed(),
        data_change=operation != "replace" and files_added + files_removed > 0,
        rewrote=counts.rewritten() if operation == "replace" and files_removed else None,
        made_by=_made_by(summary_of(of)),
        properties=summary_of(of),
        # A DELETE that rewrites every file adds all rows that are left: whether they are others, no count shows.
        left_nothing=counts["total-records"] == counts["added-records"] == 0 and "total-records" in counts.summary,
    )


class _Counts:
    """The counts in a snapshot's summary; one that is not there is 0 (spec, "Optional Snapshot Summary Fields")."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.summary, self._snapshot = summary_of(snapshot), snapshot

    def __getitem__(self, name: str) -> int:
        text = self.summary.get(name, "0")
        if not text.isdecimal():
            raise EvidenceError(
                f"snapshot {self._snapshot.snapshot_id} (sequence number {number_of(self._snapshot)}) says {name} = "
                f"{text!r:.80}, which is no count: its summary is damaged"
            )
        return int(text)

    def removed(self) -> int | None:
        """The rows taken away; None where delete files leave it open."""
        if self["added-equality-deletes"] or (self["deleted-data-files"] and self["removed-delete-files"]):
            return None
        by_position = self["added-position-deletes"] - self["removed-position-deletes"]
        return self["deleted-records"] + max(by_position, 0)

    def rewritten(self) -> tuple[int | None, int | None]:
        """The rows of the new files of a rewrite, and of those that they replace.

        Where the table has delete files, before or after, files have more records than rows that a reader sees.
        """
        without = "total-delete-files" in self.summary and not any(
            self[f"{which}-delete-files"] for which in ("total", "removed", "added")
        )
        return (self["added-records"], self["deleted-records"]) if without else (None, None)


def _made_by(summary: Mapping[str, str]) -> dict[str, str]:
    """Who made a snapshot, as far as its summary says."""
    engine = " ".join(summary[key] for key in ("engine-name", "engine-version") if key in summary)
    named = {"engine": engine, "application": summary.get("app-id", "")}
    return {name: text[:200] for name, text in named.items() if text}


def _is_first(snapshot: Snapshot) -> bool:
    """Whether the table had no rows before a snapshot that has no parent.

    Some programs take the parent's id away from a snapshot when they expire the parent, so the totals have to say it.
    """
    counts = _Counts(snapshot)
    return snapshot.parent_snapshot_id is None and all(
        f"total-{what}" in counts.summary and counts[f"total-{what}"] == counts[f"added-{what}"]
        for what in ("records", "data-files")
    )


def _kept_days(table: Table) -> float:
    """For how long expire_snapshots keeps snapshots."""
    text = table.metadata.properties.get(_SNAPSHOT_AGE, "")
    return timedelta(milliseconds=int(text) if text.isdecimal() else _FIVE_DAYS_MS) / timedelta(days=1)


def stamped(name: str, table: Table | None, *, after: int | None = None, since: datetime | None = None) -> SinkLog:
    """The snapshots of the line that carry recon's stamp, oldest first: newer than a version, or all since an instant.

    Raises:
        EvidenceError: a snapshot's summary is torn.
    """
    own = [] if table is None else [commit for commit in commits(table) if after is None or commit.version > after]
    if after is None and since is not None:
        own = [commit for commit in own if commit.timestamp >= since]
    return SinkLog(
        location=name,
        exists=table is not None,
        commits=tuple(
            SinkCommit(version=commit.version, stamp=commit.stamp, rows=commit.rows_taken, at=commit.timestamp)
            for commit in reversed(own)
            if commit.stamp is not None
        ),
    )


# -- data files ---------------------------------------------------------------------------------------------------


def _live_files(table: Table) -> LiveFiles | Unavailable:
    """The data files of the newest snapshot, and those of them that the store does not have."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return LiveFiles(files=0, rows=0)
    try:
        manifests = snapshot.manifests(table.io)
        files = [file for manifest in manifests if not _of_deletes(manifest) for file in _files(table, manifest)]
        deletes = any(_files(table, manifest) for manifest in manifests if _of_deletes(manifest))
        return LiveFiles(
            files=len(files),
            rows=None if deletes else sum(file.record_count for file in files),
            without_statistics=len(files) if deletes else 0,
            gone=[_described(table, file) for file in _missing(table, files)],
        )
    except Exception as error:  # whatever a store raises
        return Unavailable("delta_files", f"the data files of the table cannot be looked for: {first_line(error)}")


def _of_deletes(manifest: ManifestFile) -> bool:
    from pyiceberg.manifest import ManifestContent

    return manifest.content == ManifestContent.DELETES


def _files(table: Table, manifest: ManifestFile, added_by: int | None = None) -> list[IcebergFile]:
    """The live files of a manifest; with `added_by`, those that this snapshot added."""
    from pyiceberg.manifest import ManifestEntryStatus

    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    return [
        entry.data_file
        for entry in entries
        if added_by is None or (entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == added_by)
    ]


def _missing(table: Table, files: Sequence[IcebergFile]) -> list[IcebergFile]:
    def is_there(file: IcebergFile) -> bool:
        return table.io.new_input(file.file_path).exists()

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return [file for file, there in zip(files, pool.map(is_there, files), strict=True) if not there]


def _described(table: Table, file: IcebergFile) -> DataFile:
    """A file with what its statistics say of recon's columns."""
    batches, topics, partitions, offsets = (_bounds(table, file, column) for column in (BATCH_ID, *SOURCE_COLUMNS))
    of_one = (
        topics is not None
        and partitions is not None
        and topics[0] == topics[1]
        and len(topics[0]) < _WHOLE_TEXT
        and partitions[0] == partitions[1]
    )
    return DataFile(
        path=file.file_path,
        rows=file.record_count,
        batch_ids=batches,
        topic=topics[0] if of_one and topics else None,
        partition=partitions[0] if of_one and partitions else None,
        offsets=Span(offsets[0], offsets[1] + 1) if of_one and offsets else None,
    )


def _bounds(table: Table, file: IcebergFile, column: str) -> tuple[Any, Any] | None:
    """The lowest and the highest value of a column in a file; None where it has a NULL or no statistics."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import PrimitiveType

    found = next((field for field in table.schema().fields if field.name == column), None)
    if found is None or not isinstance(found.field_type, PrimitiveType):
        return None
    low, high = ((of or {}).get(found.field_id) for of in (file.lower_bounds, file.upper_bounds))
    if low is None or high is None or (file.null_value_counts or {}).get(found.field_id):
        return None
    return from_bytes(found.field_type, low), from_bytes(found.field_type, high)


def rows_of(table: Table, versions: Collection[int]) -> Mapping[int, CommitRows | Unavailable]:
    """The rows of the data files that each of these versions added, or why they were not looked at."""
    by_version = {number_of(snapshot): snapshot for snapshot in line(table)}
    return {version: _rows_of(table, version, by_version.get(version)) for version in versions}


def _rows_of(table: Table, version: int, snapshot: Snapshot | None) -> CommitRows | Unavailable:
    if snapshot is None:
        return Unavailable("commit_rows", f"the snapshot with sequence number {version} is no longer there")
    try:
        return commit_rows.counted(version, [_source_columns(table, file) for file in added_files(table, snapshot)])
    except FileNotFoundError:
        return Unavailable("commit_rows", "data files are no longer in the store")
    except Exception as error:  # whatever a store or a damaged file raises: nothing was looked at
        return Unavailable("commit_rows", first_line(error))


def added_files(table: Table, snapshot: Snapshot) -> list[IcebergFile]:
    """The data files that a snapshot added."""
    mine = [m for m in snapshot.manifests(table.io) if m.added_snapshot_id == snapshot.snapshot_id]
    return [file for m in mine if not _of_deletes(m) for file in _files(table, m, snapshot.snapshot_id)]


def _source_columns(table: Table, file: IcebergFile) -> Any:
    import pyarrow.parquet as pq

    with table.io.new_input(file.file_path).open() as stream:
        return commit_rows.as_source_columns(pq.ParquetFile(stream))


def deleted_rows(table: Table, asked: Sequence[AskedDeletion]) -> Mapping[int, DeletedRows | Unavailable]:
    """The rows that each of these versions deleted, or why they were not looked at."""
    by_version = {number_of(snapshot): snapshot for snapshot in line(table)}
    return {question.version: _deleted(table, by_version.get(question.version), question) for question in asked}


def _deleted(table: Table, snapshot: Snapshot | None, question: AskedDeletion) -> DeletedRows | Unavailable:
    parent = None if snapshot is None else table.snapshot_by_id(snapshot.parent_snapshot_id or -1)
    if snapshot is None or parent is None:
        return Unavailable("deleted_rows", "the snapshot before it was expired")
    # A DELETE that rewrites files and an UPDATE are one operation: the rows that are left show which of them it was.
    rewrites = commit_of(snapshot).operation == "OVERWRITE"
    columns = ("*",) if rewrites else (*SOURCE_COLUMNS, *([question.column] if question.column else []))
    try:
        before, after = (_scanned(table, of.snapshot_id, columns) for of in (parent, snapshot))
        removed, added = _rows_of_tasks(table, before, after), _rows_of_tasks(table, after, before)
        sides = [
            deleted_rows_of.Side(deleted_rows_of.of_columns(_named(rows), rows.num_rows, question.column), left)
            for rows, left in ((removed, False), (added, True))
        ]
        found = deleted_rows_of.compared(question, lambda: sides)
        return found if found.changed or not rewrites else replace(found, changed=_changed(removed, added, found))
    except FileNotFoundError:
        return Unavailable("deleted_rows", "data files that it removed are no longer in the store")
    except Exception as error:  # whatever a store or a damaged file raises: nothing was looked at
        return Unavailable("deleted_rows", first_line(error))


class _Scan(NamedTuple):
    """The files of a snapshot with those that mark rows of them as deleted, and what is read of them."""

    scan: DataScan
    tasks: Mapping[tuple[str, frozenset[str]], FileScanTask]


def _scanned(table: Table, snapshot_id: int, columns: tuple[str, ...]) -> _Scan:
    known = [column for column in columns if column == "*" or column in table.schema().column_names]
    scan = table.scan(selected_fields=tuple(known), snapshot_id=snapshot_id)
    tasks = {(t.file.file_path, frozenset(d.file_path for d in t.delete_files)): t for t in scan.plan_files()}
    return _Scan(scan, tasks)


def _rows_of_tasks(table: Table, scanned: _Scan, other: _Scan) -> pa.Table:
    """The rows of the files that another snapshot does not have, or not with the same rows."""
    from pyiceberg.io.pyarrow import ArrowScan

    tasks = [task for key, task in scanned.tasks.items() if key not in other.tasks]
    if sum(task.file.record_count for task in tasks) > deleted_rows_of.ROWS_AT_MOST:
        raise EvidenceError(f"its data files have more than {deleted_rows_of.ROWS_AT_MOST:,} rows")
    scan = ArrowScan(table.metadata, table.io, scanned.scan.projection(), scanned.scan.row_filter)
    return scan.to_table(tasks)


def _named(rows: pa.Table) -> Mapping[str, Any]:
    return {name: rows.column(name) for name in rows.column_names}


def _changed(removed: pa.Table, added: pa.Table, found: DeletedRows) -> str:
    """How a commit changed rows that it kept; "" where it did not.

    Raises:
        EvidenceError: which of the rows was which is not known.
    """
    kept = removed.num_rows - added.num_rows == found.rows == sum(of.size for of in found.offsets.values())
    if not kept or not {*SOURCE_COLUMNS} <= {*added.column_names}:
        raise EvidenceError(
            "rows do not all have an offset of their own: whether it changed those it kept is not known"
        )
    order = [(name, "ascending") for name in SOURCE_COLUMNS]
    # Of one record each, so that rows are told apart.
    places = [added[name].to_pylist() for name in SOURCE_COLUMNS]
    keys = set(zip(*places, strict=True))
    if len(keys) != added.num_rows:
        raise EvidenceError("rows that it kept have the same offset: whether it changed them is not known")
    mask = [key in keys for key in zip(*(removed[name].to_pylist() for name in SOURCE_COLUMNS), strict=True)]
    before, after = (_comparable(rows.sort_by(order)) for rows in (removed.filter(pa.array(mask, pa.bool_())), added))
    return "" if before.equals(after) else "it changed rows that it kept"


def _comparable(rows: pa.Table) -> pa.Table:
    """Rows with NULL for NaN, which is like no other value."""
    for place, field_ in enumerate(rows.schema):
        if pa.types.is_floating(field_.type):
            values = rows.column(place)
            rows = rows.set_column(place, field_, pc.if_else(pc.is_nan(values), None, values))
    return rows
