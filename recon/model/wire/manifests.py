"""The manifests of a file sink: which files of which micro-batch count, and the stamp of their write.

`<target>/_recon_manifests/<epoch>/<batch_id // 1000>/<batch_id>.json` is written after the micro-batch's files, whole
or not at all. Before it, the same content is made as `writes/<number>.json`, by the number of the write, which must not
be there yet: that is the commit. The next start writes the manifest where a crash came between the two. A thousand
micro-batches later the folder is merged into one file `<batch_id // 1000>.jsonl.gz`. So a year of 10 s micro-batches is
some 3,200 files, and its newest day ten. The files' format, schema and reader's options are stored once per layout in
`layouts/<hash>.json`.

Readers of data skip the folder by its name: it begins with `_` and holds no `=`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from recon.base.errors import EvidenceError
from recon.model.evidence import ReconStamp
from recon.model.wire import values
from recon.model.wire.columns import ATTEMPT, BATCH_ID, EPOCH
from recon.model.wire.stamp import dump_stamp, parse_stamp

FOLDER = "_recon_manifests"
LAYOUTS = f"{FOLDER}/layouts"
WRITES = f"{FOLDER}/writes"
PER_GROUP = 1000  # micro-batches whose manifests are merged into one file
_MARK = "recon_manifest"
_ATTEMPT = re.compile(rf"({EPOCH}=-?\d+/{BATCH_ID}=\d+/{ATTEMPT}=[^/]+)/.")


class DataFile(NamedTuple):
    """A file of a micro-batch: its path in the micro-batch's folder, size, and rows where they are known per file."""

    path: str
    size: int
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The files of one micro-batch and its stamp.

    `attempt` names the folder of the attempt that wrote them, `layout` the file that says how to read them. A repair
    writes rows that belong to another micro-batch, `owner`, which is the `_batch_id` of their folder; else it is None.
    """

    stamp: ReconStamp
    attempt: str
    at: datetime
    rows: int | None
    layout: str
    files: tuple[DataFile, ...]
    owner: int | None = None

    @property
    def batch_id(self) -> int:
        """The micro-batch that the rows belong to."""
        return self.stamp.batch_id if self.owner is None else self.owner

    @property
    def folder(self) -> str:
        """The folder of the attempt that wrote the micro-batch, relative to the sink's target."""
        return f"{folder_of(self.stamp.epoch, self.batch_id)}/{ATTEMPT}={self.attempt}"

    @property
    def row_count(self) -> int | None:
        """The rows of the micro-batch, or of its files where all of these have a count; None where neither is known."""
        of_files = [file.rows for file in self.files if file.rows is not None]
        counted = bool(self.files) and len(of_files) == len(self.files)
        return sum(of_files) if self.rows is None and counted else self.rows

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
    """A micro-batch's folder below the target, which Spark and others read as two partition columns.

    Each attempt has a folder in it, so that no driver removes or adds to what another one has written.
    """
    return f"{EPOCH}={epoch}/{BATCH_ID}={batch_id}"


def attempt_of(path: str) -> str | None:
    """The folder of the attempt that a file is in, both relative to the sink's target; None for any other file."""
    match = _ATTEMPT.match(path)
    return match[1] if match else None


def is_data(path: str) -> bool:
    """Whether Spark would read the file: no part of its path is hidden."""
    return not any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in path.split("/"))


def group_of(batch_id: int) -> int:
    """The group of micro-batches whose manifests are merged into one file."""
    return batch_id // PER_GROUP


def manifest_path(epoch: int, batch_id: int) -> str:
    """A manifest's path below the target."""
    return f"{FOLDER}/{epoch}/{group_of(batch_id)}/{batch_id}.json"


def merged_path(epoch: int, group: int) -> str:
    """The path below the target of the merged manifests of one group of micro-batches."""
    return f"{FOLDER}/{epoch}/{group}.jsonl.gz"


def write_path(number: int) -> str:
    """The path below the target of the file that a write with this number must be the first to make."""
    return f"{WRITES}/{number}.json"


def layout_path(layout: str) -> str:
    """A layout's path below the target."""
    return f"{LAYOUTS}/{layout}.json"


def dump_manifest(manifest: Manifest) -> str:
    """A manifest as one line of JSON."""
    document = {
        _MARK: 1,
        "stamp": dump_stamp(manifest.stamp),
        "attempt": manifest.attempt,
        "at": manifest.at.isoformat(),
        "rows": manifest.rows,
        "layout": manifest.layout,
        "files": manifest.files,
        **({} if manifest.owner is None else {"owner": manifest.owner}),
    }
    return json.dumps(document, separators=(",", ":"))


def parse_manifest(text: str | bytes, place: str) -> Manifest:
    """The manifest that a line stands for; `place` is for the error.

    Raises:
        EvidenceError: it is none, or torn.
    """
    try:
        document = values.loads(text)
        stamp = parse_stamp(values.text(document["stamp"]))
        if document[_MARK] != 1 or stamp is None:
            raise ValueError("not a manifest of version 1")
        files = tuple(_file(*file) for file in document["files"])
        manifest = Manifest(
            stamp=stamp,
            attempt=_name(document["attempt"]),
            at=values.instant(document["at"]),
            rows=values.optional(_count, document["rows"]),
            layout=_name(document["layout"]),
            files=files,
            owner=values.optional(values.whole, document.get("owner")),
        )
    except (ValueError, TypeError, KeyError, EvidenceError) as error:
        raise EvidenceError(
            f"{place} is no manifest of recon ({error}): another program overwrote it; remove it, and the micro-batch "
            "counts as not written"
        ) from error
    of_files = [file.rows for file in files]
    held = None if None in of_files else sum(rows or 0 for rows in of_files)
    if None not in (manifest.rows, held) and manifest.rows != held:
        raise EvidenceError(
            f"{place} says {manifest.rows:,} rows, and the files that it names have {held:,}: another program changed "
            "it; restore the file from a copy, or from the file of the write's number in the folder `writes`"
        )
    return manifest


def _file(path: object, size: object, rows: object = None) -> DataFile:
    return DataFile(_inside(values.text(path)), _count(size), values.optional(_count, rows))


def _inside(path: str) -> str:
    """A path of a file in the folder of its attempt; raises ValueError for one that leads out of it."""
    if path.startswith("/") or "\\" in path or "://" in path or ".." in path.split("/") or "\x00" in path:
        raise ValueError(f"it names {path[:200]!r}, which is not in its folder")
    return path


def _name(value: object) -> str:
    """A name of a file or a folder; raises ValueError for a path."""
    name = values.text(value)
    if "/" in name or name in ("", ".", ".."):
        raise ValueError(f"it names {name[:200]!r}, which is a path")
    return _inside(name)


def _count(value: object) -> int:
    return values.whole(value, 0)


def dump_layout(layout: Layout) -> bytes:
    """A layout as JSON with sorted keys, so that equal layouts have equal bytes."""
    return json.dumps(vars(layout), separators=(",", ":"), sort_keys=True).encode()


def name_of_layout(content: bytes) -> str:
    """The name of the file that holds a layout: it says what is in it."""
    return hashlib.sha256(content).hexdigest()[:16]


def parse_layout(content: bytes) -> Layout:
    """The layout that a file's content stands for.

    Raises:
        ValueError, TypeError, KeyError: it is none.
    """
    document = values.loads(content)
    return Layout(
        format=values.text(document["format"]),
        schema=values.mapping(document["schema"]),
        partition_by=tuple(map(values.text, document["partition_by"])),
        options=values.mapping(document["options"]),
    )
