"""The Delta witness: what a table's log holds of each commit and of the table, read without Spark.

Compacted logs (`<x>.<y>.compacted.json`), checkpoints and `.crc` files are not commits and are not read as such.
A table whose commits a catalog takes (table feature `catalogManaged`) is not read: commits that are not numbered files
yet would be missed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from recon.base.errors import EvidenceError
from recon.base.limits import delta_rs_options
from recon.base.storage import Storage
from recon.model import LiveFiles, SinkCommit, SinkLog, TableCommit, TableLog, Unavailable
from recon.model.wire.values import loads, mapping, optional, text, whole
from recon.witness import delta_files
from recon.witness.delta_commits import (
    FileOrigins,
    action_of,
    actions,
    contents,
    file_name,
    is_by_catalog,
    parse_commit,
    reader,
    version_of,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LOG = "_delta_log"
_STAGED = "_staged_commits"  # folder in the log of commits that a catalog takes; Spark makes it in every log
_LOG_RETENTION = "delta.logRetentionDuration"
MAPPING = "delta.columnMapping.mode"
_PHYSICAL = "delta.columnMapping.physicalName"
_UNITS = "week|day|hour|minute|second|millisecond|microsecond"
_ABSOLUTE = re.compile(r"/|[a-zA-Z][a-zA-Z0-9+.-]*:/")  # of a data file that is not below its table
_INTERVAL = re.compile(rf"(-?\d+)\s+({_UNITS})s?", re.IGNORECASE)
_TABLE_ID = re.compile(rb'"metadata":\{"id":"([0-9A-Za-z-]+)"')  # of a checksum file
_HEADROOM = 200  # commits read after the last checkpoint before a listing is the cheaper way
_NEAR = 10  # newest commits that are searched for a txn before the table is opened


def read(
    storage: Storage, *, from_version: int | None = None, to_version: int | None = None, files: bool = False
) -> TableLog:
    """The commits between two versions, both included; without bounds, all that the log still holds.

    One listing and one read per commit. A removed file without statistics (delta-rs writes none) is counted by its add
    action, where that is among the commits read; else `rows_removed` is None. Rows that a commit of another program
    only copied count neither as added nor as removed, where its metrics say so.

    Table properties, id, and the `txns` of all app ids come from the newest version's checksum file, which Spark
    writes. Without it, properties come from the other commits; behind a checkpoint from deltalake, or Delta's defaults
    where it cannot open the table. `txns` then holds those of the commits read; `transaction_version` looks one app id
    up over the whole table.

    With `files`, the table's data files are looked at, too: this reads the newest checkpoint and every commit after it,
    and lists the folders of the files.

    Raises:
        EvidenceError: a commit file is torn or no JSON; the message names it. Or a catalog takes the table's commits.
    """
    log = storage.child(_LOG)
    names = log.names()
    versions = sorted(v for v in map(version_of, names) if v is not None)
    if not versions and not any(".checkpoint." in name for name in names):
        return TableLog(location=storage.uri, exists=False, first_retained=None, last=None, commits={})
    low = versions[0] if versions and from_version is None else from_version or 0
    high = versions[-1] if versions and to_version is None else to_version or 0
    wanted = [v for v in versions if low <= v <= high]
    replay = delta_files.Replay(log, names) if files else None

    commits, configuration = _commits(log, versions, set(wanted), replay)
    txns: dict[str, int] = {}
    for commit in commits.values():
        txns.update(commit.txn)
    table_id = next((c.table_id for c in reversed(commits.values()) if c.table_id), None)
    by_catalog = next((c.by_catalog for c in reversed(commits.values()) if c.by_catalog is not None), None)
    if replay is not None:
        table_id = replay.table_id or table_id
    if versions and (0 not in commits or versions[-1] not in commits):  # not the table's whole history
        checksum = _checksum(log, versions[-1])
        if checksum is not None:
            configuration, txns = checksum.properties, {**txns, **checksum.txns}
            table_id = checksum.table_id or table_id
            by_catalog = by_catalog if checksum.by_catalog is None else checksum.by_catalog
        elif "_last_checkpoint" in names or versions[0] != 0:
            if configuration is None or versions[-1] not in commits:
                configuration = properties(storage) or configuration
        elif (later := _newest_properties(log, [v for v in versions if v > high])) is not None:
            configuration = later
        elif configuration is None:
            configuration = _newest_properties(log, [v for v in versions if v < low])
    if by_catalog or (by_catalog is None and _STAGED in names and log.names(_STAGED)):
        raise EvidenceError(
            f"a catalog takes the commits of {storage.uri} (table feature catalogManaged): the newest may not be in "
            "its log yet, so that nothing can be proved of the table; write to a table whose commits are in its log"
        )
    witness = TableLog(
        location=storage.uri,
        exists=True,
        first_retained=versions[0] if versions else None,
        last=versions[-1] if versions else None,
        commits=commits,
        txns=txns,
        log_retention_days=_log_retention_days(storage, configuration or {}),
        table_id=table_id,
    )
    return witness if replay is None else replace(witness, files=_live_files(storage, log, replay))


def _commits(
    log: Storage, versions: Sequence[int], wanted: Collection[int], replay: delta_files.Replay | None
) -> tuple[dict[int, TableCommit], Mapping[str, str] | None]:
    """The wanted commits, and the properties that the newest of them sets; others are read for the replay alone."""
    commits: dict[int, TableCommit] = {}
    rows_of: dict[str, int] = {}
    origins = FileOrigins()
    configuration: Mapping[str, str] | None = None
    needed = [v for v in versions if v in wanted or (replay is not None and v > replay.after)]
    for version, raw in contents(log, needed):
        files = replay if replay is not None and version > replay.after else None
        if files is not None:
            files.next_commit(version)
        commit, changed = parse_commit(log, version, raw, rows_of, files, origins)
        if files is not None:
            files.table_id = commit.table_id or files.table_id
        if version in wanted:
            commits[version] = commit
            configuration = changed if changed is not None else configuration
    return commits, configuration


def _live_files(storage: Storage, log: Storage, replay: delta_files.Replay) -> LiveFiles | Unavailable:
    """The table's data files; one that is gone is looked at again, since a commit may have removed it meanwhile."""
    physical = partial(physical_names, storage)
    files = replay.witness(storage, physical)
    if isinstance(files, Unavailable) or not files.gone:
        return files
    newer = sorted(v for v in map(version_of, log.names()) if v is not None and v > replay.upto)
    if not newer:
        return files
    rows_of: dict[str, int] = {}
    for version, raw in contents(log, newer):
        replay.next_commit(version)
        parse_commit(log, version, raw, rows_of, replay)
    again = replay.witness(storage, physical)
    return again if isinstance(again, Unavailable) else replace(files, gone=again.gone)


def find_stamped(storage: Storage, app_id: str, batch_id: int, *, after: int) -> TableCommit | None:
    """The commit newer than version `after` whose txn is (app_id, batch_id); None when there is none.

    Reads `after`+1, `after`+2, … until a version is missing: one open each, no listing.

    Raises:
        EvidenceError: a commit file read for it is torn or no JSON.
    """
    log = storage.child(_LOG)
    read_commit = reader(log)
    version = after + 1
    while (raw := read_commit(version)) is not None:
        commit, _ = parse_commit(log, version, raw, {})
        if commit.txn.get(app_id) == batch_id:
            return commit
        version += 1
    return None


def numbered(storage: Storage, app_id: str, number: int) -> TableCommit | None:
    """The commit whose txn is (app_id, number), numbers of the app id ascending; searched from the newest one back.

    None where there is none, or the log has it no more.

    Raises:
        EvidenceError: a commit file read for it is torn or no JSON.
    """
    log, latest = storage.child(_LOG), latest_version(storage)
    read_commit = reader(log)
    for version in range(-1 if latest is None else latest, -1, -1):
        if (raw := read_commit(version)) is None:
            return None
        commit, _ = parse_commit(log, version, raw, {})
        if commit.txn.get(app_id, number + 1) <= number:
            return commit if commit.txn[app_id] == number else None
    return None


def standing(storage: Storage, since: datetime) -> Iterator[TableCommit]:
    """The commits of an instant and later, newest first, without those that a RESTORE undid.

    Raises:
        EvidenceError: a commit file read for it is torn or no JSON.
    """
    log, version = storage.child(_LOG), latest_version(storage)
    read_commit = reader(log)
    while version is not None and version >= 0 and (raw := read_commit(version)) is not None:
        commit, _ = parse_commit(log, version, raw, {})
        if commit.timestamp < since:
            return
        yield commit
        target = commit.restored_version
        version = version - 1 if target is None or target >= version else target


def table_id(storage: Storage, version: int) -> str | None:
    """The id of the table at a version, from its checksum file or, where the commit sets it, from the commit.

    None where neither has it, or cannot be read.
    """
    log = storage.child(_LOG)
    try:
        checksum = _TABLE_ID.search(log.find(f"{version:020d}.crc") or b"")  # it may list all data files: no parsing
        if checksum is not None:
            return checksum[1].decode()
        raw = reader(log)(version)
        return None if raw is None else parse_commit(log, version, raw, {})[0].table_id
    except EvidenceError:
        return None


def stamped(storage: Storage, *, after: int | None = None) -> SinkLog:
    """The commits newer than a version that carry recon's stamp, as the sink's own record of its writes.

    Raises:
        EvidenceError: a commit file is torn or no JSON; the message names it.
    """
    witness = read(storage, from_version=None if after is None else after + 1)
    commits = [witness.commits[version] for version in sorted(witness.commits)]
    return SinkLog(
        location=storage.uri,
        exists=witness.exists,
        commits=tuple(
            SinkCommit(version=commit.version, stamp=commit.stamp, rows=commit.rows_taken, at=commit.timestamp)
            for commit in commits
            if commit.stamp is not None
        ),
    )


def latest_version(storage: Storage) -> int | None:
    """The newest version of the table; None when there is no table.

    Starts at `_last_checkpoint` where that exists and is near the end, else lists the log.
    """
    log = storage.child(_LOG)
    read_commit = reader(log)
    try:
        hint = action_of(log, "_last_checkpoint", log.read("_last_checkpoint"))
        start = whole(hint["version"], 0)
        for version in range(start, start + 1 + _HEADROOM):
            if read_commit(version) is None:
                if version == start:
                    break  # cleaned up, or never there
                return version - 1
    except (FileNotFoundError, KeyError, TypeError, ValueError, EvidenceError):
        pass  # the file is only a hint (PROTOCOL.md, "Last Checkpoint File"): without it the listing decides
    return max((v for v in map(version_of, log.names()) if v is not None), default=None)


def transaction_version(storage: Storage, app_id: str) -> int | None:
    """The newest txn version of `app_id` over the whole table, checkpoints included; None for none.

    A few of the newest commits are read first; where they do not have it, the table is opened with deltalake.

    Raises:
        EvidenceError: a commit file is torn, or deltalake cannot open the table.
    """
    log = storage.child(_LOG)
    read_commit, latest = reader(log), latest_version(storage)
    if latest is None:
        return None
    for version in range(latest, max(-1, latest - _NEAR), -1):
        if (raw := read_commit(version)) is None:
            break
        commit, _ = parse_commit(log, version, raw, {})
        if app_id in commit.txn:
            return commit.txn[app_id]
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        known = open_table(storage).transaction_version(app_id)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as error:
        raise EvidenceError(
            f"Delta table {storage.uri} cannot be opened to look up txn {app_id}: {error}; check the path "
            "and storage_options in recon.yml"
        ) from error
    return int(known) if known is not None else None


def data_files(storage: Storage, paths: Iterable[str]) -> list[str]:
    """The full paths or URIs of data files, percent-decoded, by their paths in the log."""
    root = str(storage.local) if storage.local is not None else storage.uri.rstrip("/")
    decoded = (unquote(path) if "%" in path else path for path in paths)
    return [path if _ABSOLUTE.match(path) else f"{root}/{path}" for path in decoded]


def added_files(storage: Storage, version: int) -> dict[str, Mapping[str, Any]]:
    """The add actions with dataChange of `version`, by the data file's full path or URI, percent-decoded.

    Raises:
        EvidenceError: the log has no such version, or its file is torn.
    """
    log = storage.child(_LOG)
    raw = log.find(file_name(version))
    if raw is None:
        raise EvidenceError(
            f"Delta table {storage.uri} has no commit file for version {version}: it was never written or "
            "the log was cleaned up; only versions that the log still holds can be read"
        )
    files: dict[str, Mapping[str, Any]] = {}
    try:
        for action in actions(log, file_name(version), raw):
            add = action.get("add")
            if add is not None and mapping(add).get("dataChange", True):
                files[data_files(storage, [text(add["path"])])[0]] = add
    except (KeyError, TypeError) as error:
        raise EvidenceError(
            f"Delta log file {log.uri}/{file_name(version)} has an add action that is not of the protocol's form "
            f"({error}): restore the file from a copy"
        ) from error
    return files


class _Checksum(NamedTuple):
    schema: str | None
    properties: Mapping[str, str]
    txns: Mapping[str, int]
    table_id: str | None
    by_catalog: bool | None


def _checksum(log: Storage, version: int) -> _Checksum | None:
    """Properties, txns and id of the table at `version`, from its checksum file (PROTOCOL.md, "Version Checksum File").
    None where there is none or it is unusable: it is optional, and the commits are what counts.
    """
    name = f"{version:020d}.crc"
    try:
        content = action_of(log, name, log.read(name))
        txns = {text(txn["appId"]): whole(txn["version"]) for txn in content.get("setTransactions") or ()}
        metadata = content["metadata"]
        return _Checksum(
            optional(text, metadata.get("schemaString")),
            mapping(metadata.get("configuration") or {}),
            txns,
            optional(text, metadata.get("id")),
            optional(is_by_catalog, content.get("protocol")),
        )
    except (FileNotFoundError, EvidenceError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _newest_properties(log: Storage, versions: list[int]) -> Mapping[str, str] | None:
    """The properties that the newest of these commits with a metaData action sets.

    For a log without checkpoints, whose commits any reader must go through: a search for the word costs a tenth of
    replaying the log.
    """
    read_commit = reader(log)
    for version in reversed(versions):
        raw = read_commit(version)
        if raw is not None and b'"metaData"' in raw:
            for action in actions(log, file_name(version), raw):
                if "metaData" in action:
                    return _configuration(log, version, action["metaData"])
    return None


def _configuration(log: Storage, version: int, metadata: Any) -> Mapping[str, str]:
    try:
        return mapping(mapping(metadata).get("configuration") or {})
    except TypeError as error:
        raise EvidenceError(
            f"Delta log file {log.uri}/{file_name(version)} has a metaData action that is not of the protocol's form "
            f"({error}): restore the file from a copy"
        ) from error


def properties(storage: Storage) -> Mapping[str, str] | None:
    """The table's properties as deltalake reads them; None where it cannot open the table."""
    from deltalake.exceptions import DeltaError

    try:
        return dict(open_table(storage).metadata().configuration)
    except (DeltaError, OSError, ValueError):
        return None


def physical_names(storage: Storage, version: int | None = None) -> Mapping[str, str]:
    """What columns are called in a table's data files, by their names at a version; {} where it is the same.

    With `delta.columnMapping.mode` (PROTOCOL.md, "Column Mapping") files, statistics and partition values have physical
    names. A column keeps its physical name for good, whatever it is called later. Where neither the version's checksum
    file nor deltalake gives the table's schema, names are taken to be the same. By default it is the newest version.
    """
    from deltalake.exceptions import DeltaError

    version = latest_version(storage) if version is None else version
    checksum = None if version is None else _checksum(storage.child(_LOG), version)
    try:
        if checksum is not None and checksum.schema is not None:
            schema, properties = checksum.schema, checksum.properties
        else:
            table = open_table(storage)
            schema, properties = table.schema().to_json(), table.metadata().configuration
        if properties.get(MAPPING, "none") == "none":
            return {}
        named = {field["name"]: field["metadata"].get(_PHYSICAL, field["name"]) for field in loads(schema)["fields"]}
    except (DeltaError, OSError, AttributeError, KeyError, TypeError, ValueError):
        return {}
    return {column: physical for column, physical in named.items() if column != physical}


def current_table_id(storage: Storage, version: int) -> str | None:
    """The id of the table at its newest version, also where neither checksum file nor commit have it."""
    known = table_id(storage, version)
    if known is not None:
        return known
    from deltalake.exceptions import DeltaError

    try:
        return str(open_table(storage).metadata().id)
    except (DeltaError, OSError):
        return None


def open_table(storage: Storage) -> DeltaTable:
    """The table through deltalake, which raises where it cannot read it."""
    from deltalake import DeltaTable

    where = str(storage.local) if storage.local is not None else storage.uri
    return DeltaTable(where, storage_options=delta_rs_options(where, storage.options))


def _log_retention_days(storage: Storage, configuration: Mapping[str, str]) -> float:
    """The property is an interval such as "interval 30 days", which is Delta's default."""
    interval = configuration.get(_LOG_RETENTION, "interval 30 days")
    try:
        words = re.sub(r"^\s*interval\s+", "", interval, flags=re.IGNORECASE)
        parts = _INTERVAL.findall(words)
        if not parts or _INTERVAL.sub("", words).strip():
            raise ValueError(interval)
        span = sum((timedelta(**{f"{unit.lower()}s": int(number)}) for number, unit in parts), timedelta())
    except (ValueError, TypeError, OverflowError):
        raise EvidenceError(
            f"Delta table {storage.uri} has {_LOG_RETENTION} = {interval!r:.80}, which is no interval of weeks, days, "
            "hours or less; set the property to the form 'interval 30 days'"
        ) from None
    return span / timedelta(days=1)
