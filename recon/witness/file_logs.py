"""Spark's logs of files, read as Spark reads them: of a file source in a checkpoint, and of a file sink in its folder.

Both (`CompactibleFileStreamLog`) have a file `<N>` for each entry: a line `v1`, then a line of JSON for each file.
Every tenth is a `<N>.compact` with the files of all entries so far; older files may then be gone. Paths are URIs,
percent-encoded; times are modification times, in milliseconds.

- The source's (`FileStreamSourceLog`) is `sources/<i>` of the checkpoint. A line is
  `{"path":"file:///landing/a.json","timestamp":1764000000000,"batchId":N}`. An entry without files is not written.
- The sink's (`FileStreamSinkLog`) is `_spark_metadata` of the folder that it writes. A line is
  `{"path":…,"isDir":false,"modificationTime":…,"action":"add",…}`, and does not say of which entry it is. Spark reads
  such a folder by this log, and does not list it (`FileStreamSource.fetchAllFiles`, `MetadataLogFileIndex`). A file
  that the log does not name, as one of an attempt that failed, is never read. Spark 4 looks at no `action`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

from recon.base.errors import EvidenceError
from recon.base.storage import Storage
from recon.model.wire.values import loads, whole

SINK = "_spark_metadata"
_ENTRY = re.compile(r"(0|[1-9][0-9]{0,17})(\.compact)?")
_LISTINGS = 3  # tries: Spark may remove files of the log while they are read

Files = list[tuple[str, int]]  # paths and modification times


class _Line(NamedTuple):
    entry: int
    path: object
    modified: int


def _of_source(document: Mapping[str, Any], _: int) -> _Line:
    return _Line(whole(document["batchId"], 0), document["path"], whole(document["timestamp"], 0))


def _of_sink(document: Mapping[str, Any], number: int) -> _Line:
    return _Line(number, document["path"], whole(document["modificationTime"], 0))


@dataclass(frozen=True)
class FileLog:
    """A log of files in a folder of some storage.

    `line` reads a line of the file of an entry. `every_entry` is whether an entry without files is written, too: none
    may lack then.
    """

    at: Storage
    folder: str
    line: Callable[[Mapping[str, Any], int], _Line] = _of_source
    every_entry: bool = False

    def entries(self) -> dict[int, Files]:
        """The files of each entry.

        Raises:
            EvidenceError: a file of the log is torn or no JSON, lacks, or vanishes each time that the log is read.
        """
        for _ in range(_LISTINGS):
            logged = self._listed()
            if logged is not None:
                return logged
        raise EvidenceError(f"files of {self.at.uri}/{self.folder} vanish while they are read; audit again")

    def entry(self, number: int) -> Files | None:
        """The files of one entry, where it has a file of its own or is the last one of a compacted file."""
        for name in (f"{self.folder}/{number}", f"{self.folder}/{number}.compact"):
            raw = self.at.find(name)
            if raw is not None:
                return [(path, millis) for of, path, millis in self._lines(name, number, raw) if of == number] or None
        return None

    def _listed(self) -> dict[int, Files] | None:
        """The entries as listed once; None where a file was gone when it was read, as one compacted meanwhile."""
        found = [match for name in self.at.names(self.folder) if (match := _ENTRY.fullmatch(name))]
        compacted = max((int(match[1]) for match in found if match[2]), default=None)
        logged: dict[int, Files] = {}
        for match in sorted(found, key=lambda match: int(match[1])):
            number = int(match[1])
            if compacted is not None and (number < compacted or (number == compacted and not match[2])):
                continue
            name = f"{self.folder}/{match[0]}"
            raw = self.at.find(name)
            if raw is None:
                return None
            lines = list(self._lines(name, number, raw))
            if self.every_entry:
                logged[number] = []
            elif not lines:
                raise self._broken(name, "it names no file")
            for entry, path, millis in lines:
                if entry > number or (entry < number and not match[2]):
                    raise self._broken(name, f"it has a file of entry {entry}")
                logged.setdefault(entry, []).append((path, millis))
        numbers = range(compacted or 0, max(logged, default=-1)) if self.every_entry else ()
        if (lacking := next((number for number in numbers if number not in logged), None)) is not None:
            raise EvidenceError(
                f"{self.at.uri}/{self.folder} lacks entry {lacking}: which files Spark reads of the folder is not "
                "known, and a query that reads it fails there, too; restore the file from a copy"
            )
        return logged

    def _lines(self, name: str, number: int, raw: bytes) -> Iterator[tuple[int, str, int]]:
        """The entry, path and modification time of each file that a file of the log names."""
        version, *lines = raw.decode(errors="replace").removesuffix("\n").split("\n")
        if version.strip() != "v1":
            raise self._broken(name, f"its first line is {version[:80]!r} where v1 is expected")
        for line in lines:
            try:
                document = loads(line)
                entry, path, millis = self.line(document, number)
                if not isinstance(path, str) or not path or "\0" in place(path):  # no file has such a name
                    raise ValueError("path")
                is_folder = document.get("isDir", False)
            except (ValueError, KeyError, TypeError):
                raise self._broken(name, f"a line names no file: {line[:80]!r}") from None
            if not is_folder:
                yield entry, path, millis

    def _broken(self, name: str, problem: str) -> EvidenceError:
        return EvidenceError(
            f"log file {self.at.uri}/{name} cannot be understood: {problem}; it is torn, or written by a Spark that "
            "this recon does not know: restore the file, or leave source_files out of the audit"
        )


def of_source(state: Storage, source: int) -> FileLog:
    """The log of a file source of a query, in its checkpoint."""
    return FileLog(state, f"sources/{source}")


def of_sink(folder: Storage) -> Files | None:
    """The files that Spark's file sink wrote into a folder; None for a folder that it does not write.

    Raises:
        EvidenceError: the log cannot be read, or is not whole.
    """
    if not is_there(folder.child(SINK)):
        return None
    return [file for files in FileLog(folder, SINK, _of_sink, every_entry=True).entries().values() for file in files]


def newest_of_sink(folder: Storage) -> tuple[int, int] | None:
    """The number of the newest micro-batch that Spark's file sink wrote into a folder, and when, in milliseconds.

    None where it wrote none.
    """
    stored = folder.stored(SINK).items()
    return max(((int(match[1]), of.modified) for name, of in stored if (match := _ENTRY.fullmatch(name))), default=None)


def is_there(folder: Storage) -> bool:
    """Whether a folder exists; in an object store it does where it has files."""
    return bool(folder.names()) or (folder.local is not None and folder.local.is_dir())


def place(location: str) -> str:
    """A path or URI without its scheme and encoding: Spark writes file:///a and file:/a, s3 and s3a of one place."""
    parsed = urlparse(location)
    if len(parsed.scheme) > 1:
        return f"{parsed.netloc}{unquote(parsed.path)}".rstrip("/")
    return location.rstrip("/")
