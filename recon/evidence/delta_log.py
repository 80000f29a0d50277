"""The Delta witness: what a table's log says of each commit, read from the commit files without Spark.

Files and actions are those of Delta's PROTOCOL.md: `_delta_log/<version, 20 digits>.json` holds one JSON
action a line. `commitInfo` is free-form in the protocol; Spark and delta-rs both put `timestamp`,
`operation`, `operationParameters`, `operationMetrics` and `userMetadata` at its top level (delta-rs names
some metrics differently and may leave `operationMetrics` out).

Compacted logs (`<x>.<y>.compacted.json`), checkpoints and `.crc` files are not commits and are not read.
Commits that a catalog coordinates and has not yet published as numbered files (`_staged_commits`,
formerly `_commits`) are not seen: such a table looks older here than it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from recon.errors import EvidenceError
from recon.model import DeltaCommit, DeltaWitness, ReconStamp, SinkCommit, SinkLog, parse_stamp
from recon.storage import Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LOG = "_delta_log"
_LOG_RETENTION = "delta.logRetentionDuration"
_FILE_RETENTION = "delta.deletedFileRetentionDuration"
_DEFAULT_DAYS = {_LOG_RETENTION: 30.0, _FILE_RETENTION: 7.0}
_UNITS = "week|day|hour|minute|second|millisecond|microsecond"
_INTERVAL = re.compile(rf"(-?\d+)\s+({_UNITS})s?", re.IGNORECASE)
_NUM_RECORDS = re.compile(r'\{\s*"numRecords"\s*:\s*(\d+)\s*[,}]')
_HEADROOM = 200  # commits read after the last checkpoint before a listing is the cheaper way


def read(storage: Storage, *, from_version: int | None = None, to_version: int | None = None) -> DeltaWitness:
    """The commits between two versions, both included; without bounds, all that the log still holds.

    One listing and one read per commit. A removed file without statistics (delta-rs writes none) is counted
    with those of its own add action where that is among the commits read; else `rows_removed` is None.

    What lies before the commits read is taken from the newest version's checksum file, which Spark writes:
    table properties, and the `txns` of all app ids. Without it, properties come from the other commits or,
    behind a checkpoint, from deltalake (Delta's defaults where deltalake cannot open the table), and `txns`
    knows the commits read alone; ask `transaction_version` for one app id over the whole table.

    Raises:
        EvidenceError: a commit file is torn or no JSON; the message names it.
    """
    log = storage.child(_LOG)
    names = log.names()
    versions = sorted(v for v in map(_version, names) if v is not None)
    if not versions and not any(".checkpoint." in name for name in names):
        return DeltaWitness(location=storage.uri, exists=False, first_retained=None, last=None, commits={})
    low = versions[0] if versions and from_version is None else from_version or 0
    high = versions[-1] if versions and to_version is None else to_version or 0
    wanted = [v for v in versions if low <= v <= high]

    commits: dict[int, DeltaCommit] = {}
    txns: dict[str, int] = {}
    rows_of: dict[str, int] = {}
    configuration: Mapping[str, str] | None = None
    for version, raw in _contents(log, wanted):
        commit, changed = _commit(log, version, raw, rows_of)
        commits[version] = commit
        txns.update(commit.txn)
        configuration = changed if changed is not None else configuration
    if versions and (0 not in commits or versions[-1] not in commits):  # not the table's whole life
        checksum = _checksum(log, versions[-1])
        if checksum is not None:
            configuration, txns = checksum[0], {**txns, **checksum[1]}
        elif "_last_checkpoint" in names or versions[0] != 0:
            if configuration is None or versions[-1] not in commits:
                configuration = _configuration(storage) or configuration
        elif (later := _newest_properties(log, [v for v in versions if v > high])) is not None:
            configuration = later
        elif configuration is None:
            configuration = _newest_properties(log, [v for v in versions if v < low])
    return DeltaWitness(
        location=storage.uri,
        exists=True,
        first_retained=versions[0] if versions else None,
        last=versions[-1] if versions else None,
        commits=commits,
        txns=txns,
        log_retention_days=_days(storage, configuration or {}, _LOG_RETENTION),
        deleted_file_retention_days=_days(storage, configuration or {}, _FILE_RETENTION),
    )


def find_stamped(storage: Storage, app_id: str, batch_id: int, *, after: int) -> DeltaCommit | None:
    """The commit newer than version `after` whose txn is (app_id, batch_id); None when there is none.

    Reads `after`+1, `after`+2, … until a version is missing: one open each, no listing.

    Raises:
        EvidenceError: a commit file on the way is torn or no JSON.
    """
    log = storage.child(_LOG)
    content = _reader(log)
    version = after + 1
    while True:
        try:
            raw = content(_name(version))
        except FileNotFoundError:
            return None
        commit, _ = _commit(log, version, raw, {})
        if commit.txn.get(app_id) == batch_id:
            return commit
        version += 1


def stamped(storage: Storage, *, after: int | None = None) -> SinkLog:
    """The commits newer than a version that carry recon's mark, as any sink's own record tells its writes.

    Raises:
        EvidenceError: a commit file is torn or no JSON; the message names it.
    """
    found = read(storage, from_version=None if after is None else after + 1)
    commits = [found.commits[version] for version in sorted(found.commits)]
    return SinkLog(
        location=storage.uri,
        exists=found.exists,
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
    content = _reader(log)
    try:
        start = _action(log, "_last_checkpoint", content("_last_checkpoint"))["version"]
        for version in range(start + 1, start + 1 + _HEADROOM):
            try:
                content(_name(version))
            except FileNotFoundError:
                return version - 1
    except (FileNotFoundError, KeyError, TypeError, EvidenceError):
        pass  # the file is only a hint (PROTOCOL.md, "Last Checkpoint File"): without it the listing decides
    return max((v for v in map(_version, log.names()) if v is not None), default=None)


def transaction_version(storage: Storage, app_id: str) -> int | None:
    """The newest txn version of `app_id` over the whole table, checkpoints included; None for none.

    Raises:
        EvidenceError: deltalake cannot open the table.
    """
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        found = _open_table(storage).transaction_version(app_id)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as error:
        raise EvidenceError(
            f"Delta table {storage.uri} cannot be opened to look up txn {app_id}: {error}; check the path "
            "and storage_options in recon.yml"
        ) from error
    return int(found) if found is not None else None


def properties(storage: Storage) -> Mapping[str, str]:
    """The table's properties, as deltalake sees them; empty where it cannot open the table."""
    return _configuration(storage) or {}


def added_files(storage: Storage, version: int) -> list[str]:
    """Data files that `version` added with dataChange, as full paths or URIs, percent-decoded.

    Raises:
        EvidenceError: the log has no such version, or its file is torn.
    """
    return list(added_partitions(storage, version))


def added_partitions(storage: Storage, version: int) -> dict[str, Mapping[str, str | None]]:
    """The files that `added_files` gives, each with its partition values as the log writes them.

    Raises:
        EvidenceError: the log has no such version, or its file is torn.
    """
    log = storage.child(_LOG)
    try:
        raw = log.read(_name(version))
    except FileNotFoundError:
        raise EvidenceError(
            f"Delta table {storage.uri} has no commit file for version {version}: it was never written or "
            "the log was cleaned up; only versions that the log still holds can be read"
        ) from None
    root = str(storage.local) if storage.local is not None else storage.uri.rstrip("/")
    files: dict[str, Mapping[str, str | None]] = {}
    for action in _actions(log, _name(version), raw):
        add = action.get("add")
        if add is not None and add.get("dataChange", True):
            path = unquote(add["path"])
            absolute = path.startswith("/") or re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:/", path)
            files[path if absolute else f"{root}/{path}"] = add.get("partitionValues") or {}
    return files


def _commit(
    log: Storage, version: int, raw: bytes, rows_of: dict[str, int]
) -> tuple[DeltaCommit, Mapping[str, str] | None]:
    """A commit and, if it carries a metaData action, the table properties from there on.

    `rows_of` remembers numRecords per added file, for remove actions that carry no statistics.
    """
    name = _name(version)
    info: Mapping[str, Any] = {}
    txn: dict[str, int] = {}
    configuration: Mapping[str, str] | None = None
    files_added = files_removed = 0
    rows_added: int | None = 0
    rows_removed: int | None = 0
    newest_file = 0
    try:
        for action in _actions(log, name, raw):
            for kind, body in action.items():
                if kind == "add":
                    rows = _num_records(body.get("stats"))
                    if rows is not None:
                        rows_of[body["path"]] = rows
                    newest_file = max(newest_file, body.get("modificationTime") or 0)
                    if body.get("dataChange", True):
                        files_added += 1
                        rows_added = _plus(rows_added, rows, body.get("deletionVector"))
                elif kind == "remove":
                    newest_file = max(newest_file, body.get("deletionTimestamp") or 0)
                    if body.get("dataChange", True):
                        files_removed += 1
                        rows = _num_records(body.get("stats"))
                        rows = rows_of.get(body["path"]) if rows is None else rows
                        rows_removed = _plus(rows_removed, rows, body.get("deletionVector"))
                elif kind == "txn":
                    txn[body["appId"]] = body["version"]
                elif kind == "commitInfo":
                    info = body
                elif kind == "metaData":
                    configuration = body.get("configuration") or {}
                    newest_file = max(newest_file, body.get("createdTime") or 0)
        user_metadata = info.get("userMetadata")
        # In-commit timestamps, where switched on, are the authority (PROTOCOL.md). commitInfo itself is
        # optional; the youngest file then dates the commit best.
        millis = info.get("inCommitTimestamp") or info.get("timestamp") or newest_file
        commit = DeltaCommit(
            version=version,
            timestamp=datetime.fromtimestamp(millis / 1000, UTC),
            operation=info.get("operation") or "",
            operation_parameters=info.get("operationParameters") or {},
            operation_metrics=info.get("operationMetrics") or {},
            txn=txn,
            user_metadata=user_metadata,
            stamp=_stamp(log, name, user_metadata),
            files_added=files_added,
            files_removed=files_removed,
            rows_added=rows_added,
            rows_removed=rows_removed,
            data_change=files_added + files_removed > 0,
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise _broken(log, name, f"an action is not of the protocol's form ({error!r})") from error
    return commit, configuration


def _stamp(log: Storage, name: str, user_metadata: str | None) -> ReconStamp | None:
    try:
        return parse_stamp(user_metadata)
    except EvidenceError as error:
        raise EvidenceError(
            f"Delta log file {log.uri}/{name}: {error}; the commit was edited by hand, or written by "
            "another program that copies recon's mark: restore the file from a copy"
        ) from error


def _plus(total: int | None, rows: int | None, deletion_vector: Mapping[str, Any] | None) -> int | None:
    """`total` and the rows a file really gives: its records less those its deletion vector marks."""
    if total is None or rows is None:
        return None
    return total + rows - (int(deletion_vector["cardinality"]) if deletion_vector else 0)


def _num_records(stats: str | None) -> int | None:
    """The numRecords of an add action's statistics; parsed as JSON only when it does not come first."""
    if not stats:
        return None
    first = _NUM_RECORDS.match(stats)
    if first:
        return int(first[1])
    from pydantic_core import from_json

    found = from_json(stats).get("numRecords")
    return int(found) if found is not None else None


def _actions(log: Storage, name: str, raw: bytes) -> Iterator[Mapping[str, Any]]:
    from pydantic_core import from_json

    if not raw.strip():
        raise _broken(log, name, "it is empty")
    for line in raw.split(b"\n"):
        if line and not line.isspace():
            try:
                action = from_json(line, cache_strings="keys")
            except ValueError:
                action = None
            yield action if isinstance(action, dict) else _action(log, name, line)


def _action(log: Storage, name: str, line: bytes) -> Mapping[str, Any]:
    from pydantic_core import from_json

    try:
        action = from_json(line, cache_strings="keys")
    except ValueError as error:
        raise _broken(log, name, f"{line[:80].decode(errors='replace')!r} is not JSON ({error})") from None
    if not isinstance(action, dict):
        raise _broken(log, name, f"{line[:80].decode(errors='replace')!r} is not an action")
    return action


def _contents(log: Storage, versions: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """The commit files in order; one cleaned up since the listing is left out. Remote stores read ahead."""
    content = _reader(log)

    def fetch(version: int) -> tuple[int, bytes | None]:
        try:
            return version, content(_name(version))
        except FileNotFoundError:
            return version, None

    if log.local is not None:
        yield from ((v, raw) for v, raw in map(fetch, versions) if raw is not None)
        return
    with ThreadPoolExecutor(max_workers=16) as pool:
        yield from ((v, raw) for v, raw in pool.map(fetch, versions) if raw is not None)


def _reader(log: Storage) -> Callable[[str], bytes]:
    """Reads a file of the log by name. A local folder is resolved once, not once per commit."""
    if log.local is None:
        return log.read
    folder = str(log.local)

    def local(name: str) -> bytes:
        try:
            with open(f"{folder}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 - thousands of small files
                return file.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise EvidenceError(f"{folder}/{name} cannot be read: {error}") from error

    return local


def _checksum(log: Storage, version: int) -> tuple[Mapping[str, str], Mapping[str, int]] | None:
    """Properties and txns of the table at `version`, from its checksum file (PROTOCOL.md, "Version Checksum
    File"); None where there is none or it is unusable: it is optional, and the commits stay the authority.
    """
    name = f"{version:020d}.crc"
    try:
        content = _action(log, name, log.read(name))
        txns = {txn["appId"]: txn["version"] for txn in content.get("setTransactions") or ()}
        return content["metadata"].get("configuration") or {}, txns
    except (FileNotFoundError, EvidenceError, AttributeError, KeyError, TypeError):
        return None


def _newest_properties(log: Storage, versions: list[int]) -> Mapping[str, str] | None:
    """The properties that the newest of these commits with a metaData action sets.

    For a log without checkpoints, whose commits any reader must go through: a look for the word is a tenth
    of the cost of replaying the log.
    """
    content = _reader(log)
    for version in reversed(versions):
        try:
            raw = content(_name(version))
        except FileNotFoundError:
            continue
        if b'"metaData"' in raw:
            for action in _actions(log, _name(version), raw):
                if "metaData" in action:
                    return action["metaData"].get("configuration") or {}
    return None


def _configuration(storage: Storage) -> Mapping[str, str] | None:
    """The table's properties as deltalake sees them; None where it cannot open the table."""
    from deltalake.exceptions import DeltaError

    try:
        return dict(_open_table(storage).metadata().configuration)
    except (DeltaError, OSError, ValueError):
        return None


def _open_table(storage: Storage) -> DeltaTable:
    from deltalake import DeltaTable

    where = str(storage.local) if storage.local is not None else storage.uri
    return DeltaTable(where, storage_options=dict(storage.options) or None)


def _days(storage: Storage, configuration: Mapping[str, str], key: str) -> float:
    """An interval property such as "interval 30 days" in days."""
    text = configuration.get(key)
    if text is None:
        return _DEFAULT_DAYS[key]
    words = re.sub(r"^\s*interval\s+", "", text, flags=re.IGNORECASE)
    parts = _INTERVAL.findall(words)
    if not parts or _INTERVAL.sub("", words).strip():
        raise EvidenceError(
            f"Delta table {storage.uri} has {key} = {text!r}, which is no interval of weeks, days, hours or "
            "less; set the property to the form 'interval 30 days'"
        )
    span = sum((timedelta(**{f"{unit.lower()}s": int(number)}) for number, unit in parts), timedelta())
    return span / timedelta(days=1)


def _version(name: str) -> int | None:
    """The version of a commit file's name; None for any other file of the log."""
    return int(name[:20]) if len(name) == 25 and name.endswith(".json") and name[:20].isdecimal() else None


def _name(version: int) -> str:
    return f"{version:020d}.json"


def _broken(log: Storage, name: str, found: str) -> EvidenceError:
    return EvidenceError(
        f"Delta log file {log.uri}/{name} cannot be understood: {found}; it is torn or no Delta commit: "
        "restore it from a copy, since no reader can go past it"
    )
