"""The manifests of a file sink: which files of which micro-batch count, and what stamped them.

`<target>/_recon_manifests/<epoch>/<batch_id // 1000>/<batch_id>.json` is written after the micro-batch's files, whole
or not at all: it is the commit. A thousand micro-batches later the folder is merged into one file
`<batch_id // 1000>.jsonl.gz`, so that a year of 10 s micro-batches is some 3,200 files and its newest day ten. What
the files hold (format, schema, reader's options) stands once per layout in `layouts/<hash>.json`.

Readers of data skip the folder by its name: it begins with `_` and holds no `=`.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recon.errors import EvidenceError
from recon.model import ReconStamp, SinkCommit, SinkLog, dump_stamp, parse_stamp
from recon.storage import Storage

FOLDER = "_recon_manifests"
EPOCH, BATCH = "_recon_epoch", "_batch_id"
TOGETHER = 1000  # micro-batches that are merged into one file
_MARK = "recon_manifest"
_THREADS = 16


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file of a micro-batch: its path in the micro-batch's folder, size, and rows where they are known per file."""

    path: str
    size: int
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What one micro-batch left: its stamp and its files. `layout` names the file that says how to read them."""

    stamp: ReconStamp
    at: datetime
    rows: int | None
    layout: str
    files: tuple[DataFile, ...]

    @property
    def folder(self) -> str:
        """The micro-batch's folder, relative to the sink's target."""
        return folder_of(self.stamp.epoch, self.stamp.batch_id)

    @property
    def paths(self) -> list[str]:
        """Its files, relative to the sink's target."""
        return [f"{self.folder}/{file.path}" for file in self.files]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How files are to be read: Spark's format, schema (without the columns of the folders) and options."""

    format: str
    schema: Mapping[str, Any]
    partition_by: tuple[str, ...]
    options: Mapping[str, str]


def folder_of(epoch: int, batch_id: int) -> str:
    """A micro-batch's folder below the target, which Spark and others read as two partition columns."""
    return f"{EPOCH}={epoch}/{BATCH}={batch_id}"


def name_of(epoch: int, batch_id: int) -> str:
    """A manifest's path below the target."""
    return f"{FOLDER}/{epoch}/{batch_id // TOGETHER}/{batch_id}.json"


def merged_name(epoch: int, group: int) -> str:
    """Where the manifests of a thousand micro-batches are together."""
    return f"{FOLDER}/{epoch}/{group}.jsonl.gz"


def layout_name(layout: str) -> str:
    """A layout's path below the target."""
    return f"{FOLDER}/layouts/{layout}.json"


def dump(manifest: Manifest) -> str:
    """A manifest as one line of JSON."""
    document = {
        _MARK: 1,
        "stamp": dump_stamp(manifest.stamp),
        "at": manifest.at.isoformat(),
        "rows": manifest.rows,
        "layout": manifest.layout,
        "files": [[file.path, file.size, file.rows] for file in manifest.files],
    }
    return json.dumps(document, separators=(",", ":"))


def parse(text: str, place: str) -> Manifest:
    """The manifest that a line stands for; `place` is for the error.

    Raises:
        EvidenceError: it is none, or torn.
    """
    try:
        document = json.loads(text)
        stamp = parse_stamp(document["stamp"])
        if document[_MARK] != 1 or stamp is None:
            raise ValueError("not a manifest of version 1")
        return Manifest(
            stamp=stamp,
            at=datetime.fromisoformat(document["at"]),
            rows=document["rows"],
            layout=document["layout"],
            files=tuple(DataFile(path=path, size=size, rows=rows) for path, size, rows in document["files"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise EvidenceError(
            f"{place} is no manifest of recon ({error}): somebody wrote over it; remove it, and the micro-batch "
            "counts as not written"
        ) from error


def find(target: Storage, epoch: int, batch_id: int) -> Manifest | None:
    """The manifest of one micro-batch; None when there is none."""
    name = name_of(epoch, batch_id)
    try:
        return parse(target.read(name).decode(), f"{target.uri}/{name}")
    except FileNotFoundError:
        merged = _merged(target, epoch, batch_id // TOGETHER)
        return next((found for found in merged if found.stamp.batch_id == batch_id), None)


def read(target: Storage, *, since: datetime | None = None, batches: Collection[int] | None = None) -> list[Manifest]:
    """All manifests, oldest first.

    Args:
        target: the sink's target.
        since: read back to the thousand that holds this instant; micro-batches of an epoch are written in order.
        batches: only these batch ids, of whatever epoch.
    """
    wanted = None if batches is None else {batch // TOGETHER for batch in batches}
    found: list[Manifest] = []
    for epoch in sorted(epochs(target), reverse=True):
        for group in sorted(groups(target, epoch), reverse=True):
            if wanted is not None and group not in wanted:
                continue
            mine = read_group(target, epoch, group)
            found += mine
            if since is not None and mine and max(manifest.at for manifest in mine) < since:
                return _in_order(found, since, batches)
    return _in_order(found, since, batches)


def _in_order(found: Iterable[Manifest], since: datetime | None, batches: Collection[int] | None) -> list[Manifest]:
    kept = (
        manifest
        for manifest in found
        if (since is None or manifest.at >= since) and (batches is None or manifest.stamp.batch_id in batches)
    )
    return sorted(kept, key=lambda manifest: (manifest.stamp.epoch, manifest.stamp.batch_id))


def log(target: Storage, since: datetime | None = None) -> SinkLog:
    """The manifests as what the sink remembers of its writes."""
    commits = tuple(
        SinkCommit(version=None, stamp=manifest.stamp, rows=manifest.rows, at=manifest.at)
        for manifest in read(target, since=since)
    )
    exists = bool(commits) or FOLDER in target.names()
    return SinkLog(location=target.uri, exists=exists, commits=commits, since=since)


def epochs(target: Storage) -> list[int]:
    """The epochs that have manifests."""
    return [int(name) for name in target.names(FOLDER) if re.fullmatch(r"-?\d+", name)]


def groups(target: Storage, epoch: int) -> set[int]:
    """The thousands of an epoch that have manifests, merged or not."""
    names = target.names(f"{FOLDER}/{epoch}")
    return {int(found[1]) for name in names if (found := re.fullmatch(r"(\d+)(\.jsonl\.gz)?", name))}


def loose(target: Storage, epoch: int) -> list[int]:
    """The thousands of an epoch that are not merged yet."""
    return [int(name) for name in target.names(f"{FOLDER}/{epoch}") if re.fullmatch(r"-?\d+", name)]


def read_group(target: Storage, epoch: int, group: int) -> list[Manifest]:
    """The manifests of one thousand.

    Single ones are read first: they are removed only after the merged file is there. A single one is newer than the
    merged one of its micro-batch.
    """
    folder = f"{FOLDER}/{epoch}/{group}"
    names = [f"{folder}/{name}" for name in target.names(folder) if re.fullmatch(r"\d+\.json", name)]

    def single(name: str) -> Manifest | None:
        try:
            return parse(target.read(name).decode(), f"{target.uri}/{name}")
        except FileNotFoundError:
            return None  # merged meanwhile

    if target.local is not None or len(names) < 2:
        singles = [single(name) for name in names]
    else:
        with ThreadPoolExecutor(_THREADS) as pool:
            singles = list(pool.map(single, names))
    found = {manifest.stamp.batch_id: manifest for manifest in _merged(target, epoch, group)}
    found |= {manifest.stamp.batch_id: manifest for manifest in singles if manifest is not None}
    return [found[batch_id] for batch_id in sorted(found)]


def _merged(target: Storage, epoch: int, group: int) -> Iterator[Manifest]:
    name = merged_name(epoch, group)
    try:
        text = gzip.decompress(target.read(name)).decode()
    except FileNotFoundError:
        return
    except (OSError, EOFError) as error:
        raise EvidenceError(f"{target.uri}/{name} cannot be read: {error}") from error
    for line in filter(None, text.split("\n")):
        yield parse(line, f"{target.uri}/{name}")


def layout(target: Storage, name: str) -> Layout:
    """How the files of manifests with this layout are to be read.

    Raises:
        EvidenceError: the layout's file is gone or torn.
    """
    try:
        document = json.loads(target.read(layout_name(name)))
        return Layout(
            format=document["format"],
            schema=document["schema"],
            partition_by=tuple(document["partition_by"]),
            options=document["options"],
        )
    except (FileNotFoundError, ValueError, TypeError, KeyError) as error:
        raise EvidenceError(
            f"{target.uri}/{layout_name(name)}, which says how the sink's files are to be read, is gone or torn "
            f"({type(error).__name__}); restore the file from a backup, or read the files yourself"
        ) from error
