"""The checkpoint of a query that reads files, and the folder that it reads, made by hand and without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recon.base.storage import Storage
from recon.model import FileListing, SourceFiles
from recon.model.offsets import OffsetSpan
from recon.witness import source_files

QUERY = "0b9e7c1a-55d2-4a43-9a5e-1f0d2c3b4a59"
TOPIC = f"files:{QUERY}"
MADE = 1_764_000_000_123


@dataclass
class FileStream:
    """The log of files in `checkpoint/sources/0`, and the folder `landing`."""

    path: Path

    def __post_init__(self) -> None:
        (self.state / "sources" / "0").mkdir(parents=True)
        (self.state / "offsets").mkdir()
        (self.state / "metadata").write_text(json.dumps({"id": QUERY}))
        self.folder.mkdir()

    @property
    def state(self) -> Path:
        return self.path / "checkpoint"

    @property
    def folder(self) -> Path:
        return self.path / "landing"

    def put(self, name: str, rows: int = 1, *, made: int = MADE) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"id": 1}\n' * rows)
        os.utime(path, ns=(made * 1_000_000, made * 1_000_000))
        return path.as_uri()

    def logged(self, entry: int, *uris: str, made: int = MADE, name: str | None = None) -> None:
        self.log(name or str(entry), *({"path": uri, "timestamp": made, "batchId": entry} for uri in uris))

    def log(self, name: str, *files: Mapping[str, Any]) -> None:
        lines = ["v1", *(json.dumps(file) for file in files)]
        (self.state / "sources" / "0" / name).write_text("\n".join(lines))

    def written(self, name: str, *uris: str, **fields: Any) -> None:
        """An entry of the log that Spark's file sink has in the folder, or a compacted one."""
        like = {"size": 10, "isDir": False, "modificationTime": MADE, "blockReplication": 1, "blockSize": 1}
        lines = ["v1", *(json.dumps({"path": uri, **like, "action": "add", **fields}) for uri in uris)]
        (self.folder / "_spark_metadata").mkdir(exist_ok=True)
        (self.folder / "_spark_metadata" / name).write_text("\n".join(lines))

    def read(self, *ranges: tuple[int, int], source: int = 0, **listing: Any) -> SourceFiles:
        spans = [OffsetSpan(TOPIC, QUERY, 0, start, end, source) for start, end in ranges]
        how = FileListing(**{"format": "json", **listing})
        return source_files.read(Storage(str(self.state)), Storage(str(self.folder)), spans, how)
