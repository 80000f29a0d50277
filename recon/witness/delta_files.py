"""The data files that a Delta table consists of, and which of them are no longer in the store; read without Spark.

The add and remove actions since the newest checkpoint are applied to that checkpoint (PROTOCOL.md, "Action
Reconciliation"). Classic, multi-part and V2 checkpoints are read. Files are looked for by listing the folders that they
are in, one request for a thousand files, and not one by one. Nothing is ever written.

Files of deletion vectors are not looked for: a reader of the table stops where one is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote

from recon.base.errors import ConfigError, EvidenceError
from recon.base.lazy import pa, pc
from recon.base.storage import Storage
from recon.model import DataFile, LiveFiles, Unavailable
from recon.model.offsets import Span
from recon.model.wire.columns import BATCH_ID, SOURCE_COLUMNS
from recon.model.wire.values import loads, mapping
from recon.witness.delta_commits import NUM_RECORDS, actions, num_records

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.([0-9a-fA-F-]{36}))?\.(parquet|json)")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/")
MANY_FOLDERS = 100  # on a remote store the whole table is then listed at once
_COLUMNS = ("add.path", "add.stats", "add.deletionVector", "metaData.id", "sidecar.path", "add.stats_parsed.numRecords")

Key = tuple[str, str]  # a file's path, percent-decoded, and its deletion vector


class _Live(NamedTuple):
    """A live file: its rows, and its statistics as text, or where a column of a checkpoint holds them."""

    rows: int | None
    stats: str | None = None
    column: pa.Array | None = None
    place: int = 0

    @property
    def text(self) -> str | None:
        return self.stats if self.column is None else self.column[self.place].as_py()


class Replay:
    """The live files of a table while its log is read; feed it every commit newer than `after`, in order.

    `after` is the version of the checkpoint that it begins with, -1 for the table's first commit. `broken` is why the
    files are not known.
    """

    def __init__(self, log: Storage, names: Iterable[str]) -> None:
        """`names` are the files of the log."""
        self._log = log
        self._live: dict[Key, _Live] = {}
        self.table_id: str | None = None
        self.broken = ""
        found = _newest_checkpoint(names)
        self.after = -1 if found is None else found[0]
        self.upto = self.after
        try:
            for name in () if found is None else found[1]:
                self._read(log, name)
        except (OSError, EvidenceError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
            self.broken = f"checkpoint {self.after} of {log.uri} cannot be read: {error}"

    def next_commit(self, version: int) -> None:
        """Says which commit's actions follow."""
        if version != self.upto + 1 and not self.broken:
            self.broken = f"{self._log.uri} has no commit file for version {self.upto + 1}"
        self.upto = version

    def add(self, action: Mapping[str, Any], rows: int | None) -> None:
        """An add action, and the numRecords of its statistics."""
        vector = action.get("deletionVector")
        self._live[_key(action["path"], vector)] = _Live(_less(rows, vector), action.get("stats"))

    def remove(self, action: Mapping[str, Any]) -> None:
        """A remove action."""
        self._live.pop(_key(action["path"], action.get("deletionVector")), None)

    def witness(self, storage: Storage, physical: Callable[[], Mapping[str, str]]) -> LiveFiles | Unavailable:
        """The live files, and those of them that the table's store does not have.

        `physical` gives what columns are called in files and their statistics (recon.witness.delta_log).
        """
        if self.broken:
            return Unavailable("delta_files", self.broken)
        counts = [live.rows for live in self._live.values() if live.rows is not None]
        without = len(self._live) - len(counts)
        return LiveFiles(
            files=len(self._live),
            rows=None if without else sum(counts),
            without_statistics=without,
            gone=self._gone(storage, physical),
        )

    def _gone(self, storage: Storage, physical: Callable[[], Mapping[str, str]]) -> Sequence[DataFile] | Unavailable:
        try:
            missing = list(_missing(storage, {path for path, _ in self._live}))
        except (EvidenceError, ConfigError, OSError, ValueError) as error:
            return Unavailable("delta_files", f"the data files of {storage.uri} cannot be listed: {error}")
        if not missing:
            return ()
        paths, names = set(missing), physical()
        return [_described(path, live, names) for (path, _), live in self._live.items() if path in paths]

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def _read(self, folder: Storage, name: str) -> None:
        """A file of a checkpoint, and the sidecars that it names."""
        sidecars: list[str] = []
        if name.endswith(".json"):
            for action in actions(folder, name, folder.read(name)):
                if "add" in action:
                    self.add(action["add"], num_records(action["add"].get("stats")))
                elif "metaData" in action:
                    self.table_id = action["metaData"].get("id")
                elif "sidecar" in action:
                    sidecars.append(action["sidecar"]["path"])
        else:
            sidecars = self._read_parquet(folder, name)
        for sidecar in sidecars:
            self._read_parquet(self._log.child("_sidecars"), sidecar.rpartition("/")[2])

    def _read_parquet(self, folder: Storage, name: str) -> list[str]:
        import pyarrow.parquet as pq

        with folder.opened(name) as file:
            table = pq.ParquetFile(file).read(columns=list(_COLUMNS))
        columns = {column: table.column(column).combine_chunks() for column in table.column_names}
        for table_id in _values(columns, "metaData", "id"):
            self.table_id = table_id or self.table_id
        if "add" in columns:
            self._read_adds(columns["add"])
        return [path for path in _values(columns, "sidecar", "path") if path]  # "" or None: a row of another action

    def _read_adds(self, adds: pa.StructArray) -> None:
        """The add actions of a checkpoint's file, in columns; a row of another action has no path."""
        names = {field.name for field in adds.type}
        nothing = [None] * len(adds)
        stats = adds.field("stats") if "stats" in names else pa.nulls(len(adds), pa.string())
        vectors = adds.field("deletionVector").to_pylist() if "deletionVector" in names else nothing
        parsed = adds.field("stats_parsed").field("numRecords").to_pylist() if "stats_parsed" in names else nothing
        columns = (adds.field("path").to_pylist(), numbers_of_records(stats), vectors, parsed)
        for place, (path, counted, vector, of_parsed) in enumerate(zip(*columns, strict=True)):
            if not path:
                continue
            vector = vector if vector and vector.get("storageType") else None
            rows = _less(of_parsed if counted is None else counted, vector)
            self._live[_key(path, vector)] = _Live(rows, None, stats, place)


def numbers_of_records(stats: pa.Array) -> list[int | None]:
    """`num_records` of every text: in columns where a text begins with it, as Delta's writers make them."""
    first = pc.struct_field(pc.extract_regex(stats, f"^{NUM_RECORDS}"), "rows")
    counts: list[int | None] = first.cast(pa.int64()).to_pylist()
    other = pc.and_(pc.is_valid(stats), pc.is_null(first))
    for place in pc.indices_nonzero(other).to_pylist():
        counts[place] = num_records(stats[place].as_py())
    return counts


def _newest_checkpoint(names: Iterable[str]) -> tuple[int, list[str]] | None:
    """The version and the files of the newest checkpoint that has all its parts."""
    found: dict[tuple[int, str], list[tuple[str, int]]] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match:
            version, _, parts, unique, _ = match.groups()
            found.setdefault((int(version), unique or parts or ""), []).append((name, int(parts or 1)))
    whole = [
        (version, sorted(name for name, _ in files))
        for (version, _), files in found.items()
        if len(files) == files[0][1]
    ]
    return max(whole, default=None)


def _values(columns: Mapping[str, pa.Array], struct: str, field: str) -> list[Any]:
    return columns[struct].field(field).to_pylist() if struct in columns else []


def _key(path: str, vector: Mapping[str, Any] | None) -> Key:
    """A file is live once per deletion vector."""
    path = unquote(path) if "%" in path else path
    return path, "" if not vector else f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


def _less(rows: int | None, vector: Mapping[str, Any] | None) -> int | None:
    """A file's rows without those that its deletion vector marks as deleted."""
    return None if rows is None else rows - (int(vector["cardinality"]) if vector else 0)


# -- the store -----------------------------------------------------------------------------------------------------


def _missing(storage: Storage, paths: Iterable[str]) -> Iterator[str]:
    """The paths of which the store has no file; a shallow clone's are outside of the table's folder."""
    inside: dict[str, dict[str, str]] = {}  # path by name, by folder
    outside: dict[str, dict[str, str]] = {}
    root = (str(storage.local) if storage.local is not None else storage.uri).rstrip("/") + "/"
    for path in paths:
        of, place = inside, path
        if ":/" in path or path.startswith("/"):  # of 40,000 files hardly ever one
            place = re.sub("^file:/+", "/", path).removeprefix(root)
            of = outside if place.startswith("/") or _SCHEME.match(place) else inside
        folder, _, name = place.rpartition("/")
        of.setdefault(folder, {})[name] = path
    if storage.local is None and len(inside) > MANY_FOLDERS:
        stored = storage.files()
        for folder, files in inside.items():
            yield from (path for name, path in files.items() if str(PurePosixPath(folder, name)) not in stored)
        inside = {}
    wanted = [(storage, folder, files) for folder, files in inside.items()]
    wanted += [(Storage(folder, storage.options), "", files) for folder, files in outside.items()]
    with ThreadPoolExecutor(max_workers=1 if storage.local is not None else 16) as pool:
        for (_, _, files), names in zip(
            wanted, pool.map(lambda of_folder: of_folder[0].names(of_folder[1]), wanted), strict=True
        ):
            stored_names = set(names)
            yield from (path for name, path in files.items() if name not in stored_names)


def _described(path: str, live: _Live, physical: Mapping[str, str]) -> DataFile:
    """A file with what its statistics say of recon's columns, which `physical` may name otherwise there."""
    try:
        stats = mapping(loads(live.text, nan=True)) if live.text else {}
        low, high = (stats.get(name) or {} for name in ("minValues", "maxValues"))
        batch_id, *source = (physical.get(column, column) for column in (BATCH_ID, *SOURCE_COLUMNS))
        batches, topics, partitions, offsets = (
            None if None in (low.get(column), high.get(column)) else (low[column], high[column])
            for column in (batch_id, *source)
        )
        nulls = stats.get("nullCount") or {}
        of_one = (
            partitions is not None
            and topics is not None
            and (partitions[0], topics[0]) == (partitions[1], topics[1])
            and not any(map(nulls.get, source))
        )
        return DataFile(
            path=path,
            rows=live.rows,
            batch_ids=(int(batches[0]), int(batches[1])) if batches else None,
            topic=topics[0] if of_one and topics else None,
            partition=int(partitions[0]) if of_one and partitions else None,
            offsets=Span(int(offsets[0]), int(offsets[1]) + 1) if of_one and offsets else None,
        )
    except (ValueError, TypeError, AttributeError):  # statistics of no use: the file's rows are known all the same
        return DataFile(path=path, rows=live.rows)
