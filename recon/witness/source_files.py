"""The files that a stream reads of a folder: the log of Spark's file source in the checkpoint, and the folder itself.

A stream reads those files of the folder that Spark lists (`InMemoryFileIndex`). None is listed whose name, or that of a
folder above, begins with `_` or `.`. Those of subfolders are listed where these are partitions (`date=2026-11-26`), or
with recursiveFileLookup. Of a folder that Spark's file sink writes it lists what the log of that sink names
(`MetadataLogFileIndex`).
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import os
import posixpath
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urlparse

from recon.base.clock import utc_now
from recon.base.errors import EvidenceError
from recon.base.lazy import pa
from recon.base.storage import Storage, StoredFile
from recon.base.text import first_line
from recon.model import ChangedFile, FileFormat, FileListing, SourceFile, SourceFiles
from recon.model.file_offsets import is_files
from recon.model.offsets import OffsetSpan, Spans
from recon.model.wire.values import of_millis
from recon.witness import checkpoint, file_logs
from recon.witness.file_logs import is_there, place

# Options with which a line of a file is not a row of it.
_NOT_BY_LINES = ("multiline", "linesep", "wholetext", "encoding", "charset", "comment")
_FORMATS: Mapping[str, FileFormat] = {
    "parquet": "parquet",
    "orc": "orc",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "csv": "csv",
    "txt": "text",
    "avro": "avro",
    "xml": "xml",
}
_JSON_SPACES = " \t\r\n"
_ANOTHER = re.compile(r"\}\s*[\[{]")  # an object may end there, and another value begin
_SUMMARIES = ("_metadata", "_common_metadata")
_SPACES = "".join(map(chr, range(0x21)))  # as Java's trim has them
_FEW = 100  # entries that are read one by one
_OPENED: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
_UNKNOWN_CODECS = (".zst", ".snappy", ".lz4", ".deflate", ".xz", ".br")


def read(state: Storage, folder: Storage, ranges: Collection[OffsetSpan], listing: FileListing) -> SourceFiles:
    """The log of a query's file source, with the rows of the files of some ranges, and what is in the folder.

    Args:
        state: the query's checkpoint.
        folder: the folder that the query reads.
        ranges: what micro-batches read of it, and perhaps of other sources.
        listing: which files Spark reads, and how.

    Raises:
        EvidenceError: there is no checkpoint, a file of the log is torn or no JSON, or the folder cannot be listed.
    """
    read_at = utc_now()
    query_id = checkpoint.query_id(state)
    mine = [span for span in ranges if is_files(span.topic)]
    sources = sorted({span.source for span in mine}) or [0]
    # The folder before the log: a file that is read meanwhile is in the log, and does not look unread.
    by_sink = file_logs.of_sink(folder)
    stored = folder.stored(links=True)
    logged = file_logs.of_source(state, sources[0]).entries()
    last = max(logged, default=None)
    in_log = Spans.of([(number, number + 1) for number in logged])
    wanted = Spans.of([span.span for span in mine]).intersect(in_log)
    first = wanted.hull.start if wanted.hull is not None else last or 0
    archived = listing.options.get("sourcearchivedir")
    archive = None if archived is None else Storage(archived, folder.options)
    roots = [place(folder.uri)]
    if folder.local is not None:
        given = str(folder.local)
        roots = [given.rstrip("/"), os.path.normpath(given), os.path.realpath(given)]
    seen = _Seen(folder, roots, stored, listing, archive)
    files = [
        _Logged(number, seen.below(path), _time(millis)) for number in sorted(logged) for path, millis in logged[number]
    ]
    known = {file.path for file in files if file.path is not None}
    counted = {number for start, end in wanted for number in range(start, end)}
    names = {path.rpartition("/")[2] for path in known}
    listed = seen.listed(by_sink)
    unread = [SourceFile(path, _time(listed[path])) for path in sorted(listed.keys() - known)]
    return SourceFiles(
        location=folder.uri,
        exists=bool(stored) or is_there(folder) or "cleansource" in listing.options,
        read_at=read_at,
        query_id=query_id,
        listing=listing,
        last=last,
        entries={
            number: [seen.file(path, millis, count=number in counted) for path, millis in logged[number]]
            for number in logged
            if number >= first
        },
        missing=Spans.of([(0, 0 if last is None else last + 1)]).minus(in_log),
        files=len(files),
        newest=max((file.modified for file in files), default=None),
        unread=unread,
        known_names=frozenset(
            file.path for file in unread if listing.is_on("filenameonly") and file.path.rpartition("/")[2] in names
        ),
        twice=tuple(_twice(files)),
        replaced=tuple(_replaced(files, stored)),
        elsewhere=sum(file.path is None for file in files),
        gone=len(known - stored.keys()),
        below=sum(_is_below(path, listing) for path in stored),
        sources=len(sources),
        digests=_digests(logged, {span.end_offset for span in mine}),
        unlisted=tuple(sorted(path for path in known if not _is_listed(path, listing))),
        renamed=tuple(_renamed(files, stored, counted)),
    )


class _Logged(NamedTuple):
    """A file of the log: its entry, its path below the folder (None where it is not in it), its modification time."""

    number: int
    path: str | None
    modified: datetime


class LogDigest:
    """The checksum of a query's log of files up to an entry: it tells whether the log is still the one that was read.

    Each entry's numbers, paths and times go into it after those of the entries before. As long as the log grows, only
    its new entries are read.
    """

    def __init__(self, state: Storage) -> None:
        self._state = state
        self._known: dict[int, tuple[int, str]] = {}  # by source: up to which entry, and the checksum

    def of(self, ranges: Iterable[OffsetSpan]) -> str | None:
        """The checksum up to the end of some ranges; None where these are of no files, or the log has not all entries.

        Of a query with several file sources it is that of the first.
        """
        read = min((span for span in ranges if is_files(span.topic)), key=lambda span: span.source, default=None)
        if read is None:
            return None
        end, digest = self._known.get(read.source, (0, ""))
        if end > read.end_offset:
            end, digest = 0, ""
        log = file_logs.of_source(self._state, read.source)
        try:
            few = range(end, read.end_offset) if read.end_offset - end <= _FEW else range(0)
            entries = [log.entry(number) for number in few]
            if not few or None in entries:
                entries, end, digest = _first(log.entries(), read.end_offset), 0, ""
        except EvidenceError:
            return None
        for number, files in enumerate(entries, end):
            if files is None:
                return None
            digest = _folded(digest, number, files)
        self._known[read.source] = (read.end_offset, digest)
        return digest or None


def _first(logged: Mapping[int, list[tuple[str, int]]], end: int) -> list[list[tuple[str, int]] | None]:
    """The first entries of a log; None at the end for one that it lacks, behind which nothing is looked at."""
    entries: list[list[tuple[str, int]] | None] = []
    while len(entries) < end and (not entries or entries[-1] is not None):
        entries.append(logged.get(len(entries)))
    return entries


def _folded(digest: str, number: int, files: Iterable[tuple[str, int]]) -> str:
    lines = "\n".join(f"{millis} {path}" for path, millis in sorted(files))
    return hashlib.sha256(f"{digest}\n{number}\n{lines}".encode()).hexdigest()


def _digests(logged: Mapping[int, list[tuple[str, int]]], ends: Collection[int]) -> dict[int, str]:
    """The checksums of a log up to some ends, as far as it has all entries."""
    found, digest = {}, ""
    for number, files in enumerate(_first(logged, max(ends, default=0))):
        if files is None:
            break
        digest = _folded(digest, number, files)
        if number + 1 in ends:
            found[number + 1] = digest
    return found


def found(state: Storage, source: int) -> tuple[str, FileFormat | None]:
    """The folder that a query's log names, as a path or URI, and the format that names of files in it have, if any.

    Raises:
        EvidenceError: the log has no file, files of several stores, or cannot be read.
    """
    uris = [uri for of_entry in file_logs.of_source(state, source).entries().values() for uri, _ in of_entry]
    stores = {urlparse(uri)[:2] for uri in uris}
    if len(stores) != 1:
        what = "files of several stores" if stores else "no file"
        raise EvidenceError(f"checkpoint {state.uri}: the log of files in sources/{source} has {what}")
    scheme, netloc = stores.pop()
    folders = [takewhile(lambda name: "=" not in name, urlparse(uri).path.split("/")[:-1]) for uri in uris]
    folder = f"{scheme}://{netloc}{posixpath.commonpath(['/'.join(names) or '/' for names in folders])}"
    local = Storage(folder).local
    plain = Counter(re.sub(r"\.(gz|bz2|zst|snappy|lz4)$", "", uri).rpartition(".")[2].lower() for uri in uris)
    return folder if local is None else str(local), _FORMATS.get(plain.most_common(1)[0][0])


def _time(millis: int) -> datetime:
    return of_millis(millis) or datetime.max.replace(tzinfo=UTC)


def _is_same_time(logged: datetime, now: datetime) -> bool:
    """Whether a file has the time that it was read with; some stores tell seconds to one, and milliseconds to all.

    A file that is written again within a second there looks the same.
    """
    if logged == now:
        return True
    return logged.replace(microsecond=0) == now.replace(microsecond=0) and 0 in (logged.microsecond, now.microsecond)


def _is_hidden(path: str) -> bool:
    """Whether Spark passes over a file by its name, or that of a folder above it."""
    return any(
        (_has_no_rows(name) and not name.startswith(_SUMMARIES)) or name.endswith("._COPYING_")
        for name in path.split("/")
    )


def _has_no_rows(name: str) -> bool:
    """Whether Spark reads no rows of a file of this name, though it may list it, as it does summaries of Parquet."""
    return (name.startswith("_") and "=" not in name) or name.startswith(".")


def _is_below(path: str, listing: FileListing) -> bool:
    """Whether a file is in a subfolder that Spark does not list."""
    folders = path.split("/")[:-1]
    return (
        bool(folders)
        and not listing.is_on("recursivefilelookup")
        and not all("=" in name for name in folders)
        and not _is_hidden(path)
    )


def _is_listed(path: str, listing: FileListing) -> bool:
    if _is_hidden(path) or _is_below(path, listing):
        return False
    return listing.pattern is None or _matches(path.rpartition("/")[2], listing.pattern)


def _matches(name: str, pattern: str) -> bool:
    """Hadoop's globs for one name: `{a,b}` are alternatives, the rest as fnmatch has it."""
    braces = re.search(r"\{([^{}]*)\}", pattern)
    if braces is None:
        return fnmatchcase(name, pattern.replace("[^", "[!"))
    before, behind = pattern[: braces.start()], pattern[braces.end() :]
    return any(_matches(name, f"{before}{part}{behind}") for part in braces[1].split(","))


def _twice(files: Iterable[_Logged]) -> Iterator[ChangedFile]:
    first: dict[str, _Logged] = {}
    for file in files:
        if file.path is None:
            continue
        if file.path in first:
            before = first[file.path]
            yield ChangedFile(file.path, before.number, before.modified, file.number, file.modified)
        first[file.path] = file


def _renamed(
    files: Iterable[_Logged], stored: Mapping[str, StoredFile], counted: Collection[int]
) -> Iterator[ChangedFile]:
    """Files that were read in some entries, and have the very time of one that was read before and is gone.

    Renaming keeps the time. Where a store keeps seconds alone, many files have the same, and nothing is said.
    """
    gone: dict[datetime, _Logged] = {}
    for file in files:
        if file.path is None or not file.modified.microsecond:
            continue
        if file.path not in stored:
            gone.setdefault(file.modified, file)
        elif file.number in counted and (before := gone.get(file.modified)) and before.number < file.number:
            yield ChangedFile(file.path, before.number, before.modified, file.number, file.modified, before.path)


def _replaced(files: Iterable[_Logged], stored: Mapping[str, StoredFile]) -> Iterator[ChangedFile]:
    newest = {file.path: file for file in files if file.path is not None}
    for path, file in newest.items():
        now = stored.get(path)
        if now is not None and not _is_same_time(file.modified, _time(now.modified)):
            yield ChangedFile(path, file.number, file.modified, None, _time(now.modified))


@dataclass(frozen=True)
class _Seen:
    """The folder as it was listed; tells of files of the log what they are now.

    `roots` are the folder's path as given, without dots, and without links. `linked` has, by the folder of a file,
    another path of the listed folder that leads to it.
    """

    folder: Storage
    roots: Sequence[str]
    stored: Mapping[str, StoredFile]
    listing: FileListing
    archive: Storage | None
    linked: dict[str, str | None] = field(default_factory=dict)

    def below(self, uri: str) -> str | None:
        """The path of a logged file below the folder; None where it is not in it.

        The folder may be reached by a link, in recon.yml or in the query.
        """
        whole = place(uri)
        for root in self.roots:
            if whole.startswith(f"{root}/"):
                return whole[len(root) + 1 :]
        if self.folder.local is None:
            return None
        parent = whole.rpartition("/")[0]
        if parent not in self.linked:
            above = (str(folder) for folder in (Path(parent), *Path(parent).parents))
            self.linked[parent] = next((folder for folder in above if os.path.realpath(folder) == self.roots[-1]), None)
        way = self.linked[parent]
        return None if way is None else whole[len(way) + 1 :]

    def listed(self, by_sink: file_logs.Files | None) -> dict[str, int]:
        """The files that Spark lists in the folder, by path, with their modification times in milliseconds.

        `by_sink` are those that the log of Spark's file sink names: a file beside them is not read, and Spark takes the
        time that the log has.
        """
        if by_sink is None:
            files = {path: file.modified for path, file in self.stored.items()}
        else:
            files = {path: millis for uri, millis in by_sink if (path := self.below(uri)) is not None}
        return {path: millis for path, millis in files.items() if _is_listed(path, self.listing)}

    def file(self, uri: str, millis: int, *, count: bool) -> SourceFile:
        """A logged file; with `count`, its rows are counted."""
        path, modified = self.below(uri), _time(millis)
        if path is None:
            return SourceFile(uri, modified, f"it is not in {self.folder.uri}")
        if not count:
            return SourceFile(path, modified)
        at, where = self.folder, path
        if path not in self.stored:
            if self.archive is None:
                return SourceFile(path, modified, "the file is gone")
            # cleanSource: archive moves a file to its whole path below the archive.
            at, where = self.archive, unquote(urlparse(uri).path).lstrip("/")
        elif not _is_same_time(modified, _time(self.stored[path].modified)):
            return SourceFile(path, modified, "the file was written again since")
        try:
            return SourceFile(path, modified, _rows(at, where, self.listing))
        except (OSError, EvidenceError, EOFError, zlib.error, pa.ArrowException) as error:
            return SourceFile(path, modified, f"it cannot be read: {first_line(error)}")


def _rows(folder: Storage, path: str, listing: FileListing) -> int | str:
    """The rows that Spark makes of a file, or why they are not known.

    Spark splits the text of a file at each end of a line, unless an option says otherwise. Of JSON and CSV it leaves
    out lines with nothing but spaces, of CSV with a header the first of the others.
    """
    options, kind = listing.options, listing.format
    if _has_no_rows(path.rpartition("/")[2]):
        return 0
    if kind in ("parquet", "orc"):
        with folder.opened(path) as file:
            return _in_footer(file, kind)
    permissive = options.get("mode", "permissive").lower() == "permissive"
    by_lines = kind in ("json", "csv", "text") and permissive and not any(name in options for name in _NOT_BY_LINES)
    name = path.lower()  # Hadoop knows codecs by their endings in any case
    if not by_lines or name.endswith(_UNKNOWN_CODECS):
        return f"how many rows the query makes of a file of format {kind} only Spark can tell"
    lines = filled = objects = 0
    unpacked = next((opened for suffix, opened in _OPENED.items() if name.endswith(suffix)), None)
    with folder.opened(path) as file:
        # Latin-1 has a character for each byte; Spark ends lines at \r, too, as universal newlines do.
        for line in io.TextIOWrapper(file if unpacked is None else unpacked(file), encoding="latin-1"):
            text = line.strip(_JSON_SPACES if kind == "json" else _SPACES)
            lines, filled, objects = lines + 1, filled + bool(text), objects + (kind == "json" and _is_one(text))
    if kind == "text":
        return lines
    if kind == "csv":
        return max(filled - listing.is_on("header"), 0)
    return filled if filled == objects else "a line of it is not one JSON object, and may give several rows or none"


def _is_one(text: str) -> bool:
    """Whether a line is one JSON object, perhaps a broken one, of which Spark makes a row: it drops a second one."""
    if not text.startswith("{"):
        return False
    if text.count("{") == 1:  # what else stands on the line is no object
        return "}" not in text or "[" not in text.rpartition("}")[2]
    try:
        end = json.JSONDecoder().raw_decode(text)[1]
    except ValueError:
        return not _ANOTHER.search(text)
    return end == len(text)


def _in_footer(file: IO[bytes], kind: str) -> int:
    import pyarrow.orc as orc
    import pyarrow.parquet as pq

    return int(pq.ParquetFile(file).metadata.num_rows if kind == "parquet" else orc.ORCFile(file).nrows)
