"""The commit files of a Delta log, read and parsed without Spark.

Files and actions are those of Delta's PROTOCOL.md: `_delta_log/<version, 20 digits>.json` holds one JSON
action a line. `commitInfo` is free-form in the protocol. Spark and delta-rs both put `timestamp`, `operation`,
`operationParameters`, `operationMetrics` and `userMetadata` at its top level. delta-rs names some metrics differently
and may leave `operationMetrics` out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

import orjson

from recon.base.errors import EvidenceError
from recon.base.storage import Storage, read_ahead, read_file
from recon.model import ReconStamp, TableCommit, parse_stamp
from recon.model.wire.values import loads, mapping, optional, required_time, text, whole

# PROTOCOL.md, "Actions": anything else in a line is damage, or changes the table in a way that is not known here.
_KINDS = frozenset(
    (
        "add",
        "remove",
        "txn",
        "commitInfo",
        "metaData",
        "protocol",
        "cdc",
        "domainMetadata",
        "checkpointMetadata",
        "sidecar",
    )
)
# Table features with which a commit is in the log only once the catalog publishes it (Delta's RFC "Catalog-Managed
# Tables", and the previews of it).
_BY_CATALOG = frozenset(
    ("catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview", "managedCommit-dev", "managedCommit")
)
# Rows of new files that a rewrite copied from the old ones, as Spark and delta-rs name them.
_COPIED = ("numCopiedRows", "num_copied_rows", "numTargetRowsCopied", "num_target_rows_copied")
NUM_RECORDS = r'\{\s*"numRecords"\s*:\s*(?P<rows>\d+)\s*[,}]'  # the beginning of statistics
_NUM_RECORDS = re.compile(NUM_RECORDS)


def contents(log: Storage, versions: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """The commit files in order; one cleaned up since the listing is left out."""
    wanted = list(versions)
    read = read_ahead(reader(log), wanted, remote=log.local is None)
    yield from ((version, raw) for version, raw in zip(wanted, read, strict=True) if raw is not None)


def reader(log: Storage) -> Callable[[int], bytes | None]:
    """A function that reads the commit file of a version, None where there is none; it raises EvidenceError."""
    if log.local is None:
        return lambda version: log.find(file_name(version))
    folder = str(log.local)  # resolved once for thousands of files

    def local(version: int) -> bytes | None:
        path = f"{folder}/{file_name(version)}"
        try:
            return read_file(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EvidenceError(f"{path} cannot be read: {error}") from error

    return local


class FileOrigins:
    """Which versions wrote the rows of each data file, as the commits tell that were parsed so far.

    A file that a commit writes in the place of others has the rows of these, and new ones if it added any.
    """

    def __init__(self) -> None:
        self._of: dict[str, frozenset[int] | None] = {}

    def of(self, paths: Iterable[str]) -> frozenset[int] | None:
        """The versions that wrote the rows of some files; None where a commit that was not parsed added one of them."""
        found = [self._of.get(path) for path in paths]
        known = [of for of in found if of is not None]
        return frozenset().union(*known) if len(known) == len(found) else None

    def replaced(
        self, version: int, added: Iterable[str], removed: Collection[str], *, adds_rows: bool
    ) -> frozenset[int] | None:
        """Takes in a commit; returns the versions that wrote the rows of the files that it removed."""
        before = self.of(removed)
        new = frozenset((version,)) if adds_rows or not removed else frozenset()
        for path in added:
            self._of.setdefault(path, None if before is None else before | new)
        return before


class FileActions(Protocol):
    """What follows the data files of a table while its commits are parsed."""

    def add(self, action: Mapping[str, Any], rows: int | None) -> None:
        """An add action, and the numRecords of its statistics."""

    def remove(self, action: Mapping[str, Any]) -> None:
        """A remove action."""


def parse_commit(
    log: Storage,
    version: int,
    raw: bytes,
    rows_of: dict[str, int],
    files: FileActions | None = None,
    origins: FileOrigins | None = None,
) -> tuple[TableCommit, Mapping[str, str] | None]:
    """A commit and, if it carries a metaData action, the table properties from there on.

    `rows_of` keeps numRecords per added file, for remove actions that carry no statistics. `files` is told of each add
    and remove action. `origins` is where the rows of files come from, so far.
    """
    name = file_name(version)
    info: Mapping[str, Any] | None = None
    txn: dict[str, int] = {}
    configuration: Mapping[str, str] | None = None
    table_id: str | None = None
    by_catalog: bool | None = None
    files_added = files_removed = 0
    rows_added: int | None = 0
    rows_removed: int | None = 0
    in_place: tuple[int | None, int | None] = (0, 0)
    replaces_files = False
    newest_file = 0
    added: set[str] = set()
    marked: dict[str, int] = {}  # rows of files with a deletion vector
    removed: set[str] = set()
    replaced: list[str] = []  # whether the commit says that it changes data, or not
    try:
        for action in actions(log, name, raw):
            if len(action) != 1:
                raise ValueError(f"{len(action)} actions in a line")
            for kind, body in action.items():
                if kind not in _KINDS:
                    raise ValueError(f"there is no action {kind[:80]!r}")
                if kind == "add":
                    if body["path"] in added:
                        raise ValueError(f"the file {body['path'][:80]!r} is added twice")
                    added.add(body["path"])
                    rows = num_records(body.get("stats"))
                    if rows is not None:
                        rows_of[body["path"]] = rows
                    if files is not None:
                        files.add(body, rows)
                    newest_file = max(newest_file, body.get("modificationTime") or 0)
                    if _changes_data(body):
                        files_added += 1
                        rows_added = _plus(rows_added, rows, body.get("deletionVector"))
                        if body.get("deletionVector"):
                            marked[body["path"]] = _plus(0, rows, body["deletionVector"]) or 0
                    else:
                        in_place = _plus(in_place[0], rows, body.get("deletionVector")), in_place[1]
                elif kind == "remove":
                    if files is not None:
                        files.remove(body)
                    newest_file = max(newest_file, body.get("deletionTimestamp") or 0)
                    replaced.append(body["path"])
                    rows = num_records(body.get("stats"))
                    rows = rows_of.get(body["path"]) if rows is None else rows
                    if _changes_data(body):
                        files_removed += 1
                        rows_removed = _plus(rows_removed, rows, body.get("deletionVector"))
                        removed.add(body["path"])
                    else:
                        replaces_files = True
                        in_place = in_place[0], _plus(in_place[1], rows, body.get("deletionVector"))
                elif kind == "txn":
                    txn[text(body["appId"])] = whole(body["version"])
                elif kind == "commitInfo":
                    if info is not None:
                        raise ValueError("there are two of commitInfo")
                    info = mapping(body)
                elif kind == "protocol":
                    by_catalog = is_by_catalog(body)
                elif kind == "metaData":
                    configuration = mapping(body.get("configuration") or {})
                    table_id = optional(text, body.get("id"))
                    newest_file = max(newest_file, body.get("createdTime") or 0)
        info = info or {}
        user_metadata = optional(text, info.get("userMetadata"))
        # In-commit timestamps, where switched on, decide (PROTOCOL.md). commitInfo itself is optional; the time of
        # the newest file is then nearest to the commit's.
        millis = info.get("inCommitTimestamp") or info.get("timestamp") or newest_file
        stamp = _stamp(log, name, user_metadata)
        if stamp is None:
            kept = sum(rows for path, rows in marked.items() if path in removed)
            rows_added, rows_removed = _without_copied(rows_added, rows_removed, kept, info)
        commit = TableCommit(
            version=version,
            timestamp=required_time(millis),
            operation=text(info.get("operation") or ""),
            operation_parameters=mapping(info.get("operationParameters") or {}),
            operation_metrics=mapping(info.get("operationMetrics") or {}),
            txn=txn,
            user_metadata=user_metadata,
            stamp=stamp,
            files_added=files_added,
            files_removed=files_removed,
            rows_added=rows_added,
            rows_removed=rows_removed,
            data_change=files_added + files_removed > 0,
            # Files that are added alone are there already: statistics or tags are new.
            rewrote=in_place if replaces_files and not files_added + files_removed else None,
            table_id=table_id,
            by_catalog=by_catalog,
            removed_rows_of=_origins(origins, version, added, replaced, adds_rows=files_added > 0 and rows_added != 0),
            made_by=made_by(info) if stamp is None else {},
            wrote=_streamed(info, txn) if stamp is None else None,
        )
    except RecursionError:
        raise _broken(log, name, "an action is nested too deep") from None
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError) as error:
        raise _broken(log, name, f"an action is not of the protocol's form ({_excerpt(error)})") from error
    return commit, configuration


def _origins(
    origins: FileOrigins | None, version: int, added: Collection[str], removed: Collection[str], *, adds_rows: bool
) -> frozenset[int] | None:
    if origins is None:
        return None if removed else frozenset()
    return origins.replaced(version, added, removed, adds_rows=adds_rows)


def _without_copied(
    added: int | None, removed: int | None, kept: int, info: Mapping[str, Any]
) -> tuple[int | None, int | None]:
    """The rows that another program added and removed, where it says that all rows of its new files were there before.

    So a DELETE writes the rows that it leaves into other files, or keeps their file and marks the others (`kept`). A
    count that does not agree with the files, as a retried stage may inflate it, tells nothing.
    """
    metrics = mapping(info.get("operationMetrics") or {})
    texts = [str(metrics[name]) for name in _COPIED if metrics.get(name) is not None]
    copied = kept + (int(texts[0]) if texts and texts[0].isdecimal() else 0)
    if added is None or removed is None or not copied == added <= removed:
        return added, removed
    return 0, removed - copied


def is_by_catalog(protocol: object) -> bool:
    """Whether a protocol action gives the table's commits to a catalog."""
    given = mapping(protocol)
    features = [name for key in ("readerFeatures", "writerFeatures") for name in given.get(key) or ()]
    return not _BY_CATALOG.isdisjoint(features)


def _streamed(info: Mapping[str, Any], txn: Mapping[str, int]) -> tuple[str, int] | None:
    """The (query_id, batch_id) of a micro-batch that Spark's own Delta sink committed; None for another commit.

    The sink (DeltaSink.addBatch) writes operation STREAMING UPDATE with queryId and epochId, and a txn of the same two.
    The txn decides, as Delta drops a second write by it.
    """
    parameters = info.get("operationParameters")
    if info.get("operation") != "STREAMING UPDATE" or not isinstance(parameters, dict):
        return None
    query = str(parameters.get("queryId", "")).strip('"')
    return (query, txn[query]) if query in txn else None


# Databricks writes user, job, notebook and cluster into commitInfo; Spark its version (engineInfo), delta-rs its own.
_MADE_BY = {
    "user": ("userName",),
    "user id": ("userId",),
    "job": ("job", "jobName"),
    "job id": ("job", "jobId"),
    "job run": ("job", "jobRunId"),
    "notebook": ("notebook", "notebookPath"),
    "notebook id": ("notebook", "notebookId"),
    "cluster": ("clusterId",),
    "query": ("queryHistoryStatementId",),
    "engine": ("engineInfo",),
    "client": ("clientVersion",),
}


def made_by(info: Mapping[str, Any]) -> dict[str, str]:
    """Who made a commit, as far as its commitInfo says; whoever writes the log can write anything there.

    >>> made_by({"userName": "ada@example.org", "job": {"jobId": "17"}, "engineInfo": "Apache-Spark/4.0.0"})
    {'user': 'ada@example.org', 'job id': '17', 'engine': 'Apache-Spark/4.0.0'}
    """
    found: dict[str, str] = {}
    for name, path in _MADE_BY.items():
        value: Any = info
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value):
            found[name] = str(value)[:200]
    return found


def _changes_data(file: Mapping[str, Any]) -> bool:
    """Whether an add or remove action changes the table's data."""
    value = file.get("dataChange", True)
    if not isinstance(value, bool):
        raise TypeError(f"dataChange is {value!r}")
    return value


def _excerpt(error: Exception) -> str:
    return repr(error)[:200]


def _stamp(log: Storage, name: str, user_metadata: str | None) -> ReconStamp | None:
    try:
        return parse_stamp(user_metadata)
    except EvidenceError as error:
        raise EvidenceError(
            f"Delta log file {log.uri}/{name}: {error}; the commit was edited by hand, or written by "
            "another program that copies recon's stamp: restore the file from a copy"
        ) from error


def _plus(total: int | None, rows: int | None, deletion_vector: Mapping[str, Any] | None) -> int | None:
    """`total` and the rows of a file: its records less those that its deletion vector marks as deleted."""
    if total is None or rows is None:
        return None
    return total + rows - (whole(deletion_vector["cardinality"], 0) if deletion_vector else 0)


def num_records(stats: str | None) -> int | None:
    """The numRecords of an add action's statistics, None without; parsed as JSON only when it does not come first."""
    if not stats:
        return None
    first = _NUM_RECORDS.match(stats)
    if first:
        return whole(int(first[1]))
    rows = mapping(loads(stats, nan=True)).get("numRecords")
    return None if rows is None else whole(rows, 0)


def actions(log: Storage, name: str, raw: bytes) -> Iterator[Mapping[str, Any]]:
    """The actions of a commit file.

    Raises:
        EvidenceError: the file is empty, torn or no JSON; the message names it.
    """
    if not raw.strip():
        raise _broken(log, name, "it is empty")
    for line in raw.split(b"\n"):
        if line and not line.isspace():
            try:
                action = orjson.loads(line)
            except ValueError:
                action = None
            yield action if isinstance(action, dict) else action_of(log, name, line)


def action_of(log: Storage, name: str, line: bytes) -> Mapping[str, Any]:
    """One line of a file of the log; raises EvidenceError where it is not a JSON object."""
    try:
        action = orjson.loads(line)
    except ValueError as error:
        raise _broken(log, name, f"{line[:80].decode(errors='replace')!r} is not JSON ({error})") from None
    if not isinstance(action, dict):
        raise _broken(log, name, f"{line[:80].decode(errors='replace')!r} is not an action")
    return action


def version_of(name: str) -> int | None:
    """The version of a commit file's name; None for any other file of the log."""
    return int(name[:20]) if len(name) == 25 and name.endswith(".json") and name[:20].isdecimal() else None


def file_name(version: int) -> str:
    """The name of the commit file of a version."""
    return f"{version:020d}.json"


def _broken(log: Storage, name: str, problem: str) -> EvidenceError:
    return EvidenceError(
        f"Delta log file {log.uri}/{name} cannot be understood: {problem}; it is torn or no Delta commit: "
        "restore it from a copy, since no reader can go past it"
    )
