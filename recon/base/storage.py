"""Lists, reads and atomically writes files on the filesystems that checkpoints and tables are on.

Local paths go straight to the operating system, as a day's audit opens thousands of small files. Every other scheme
goes through `pyarrow.fs`, whose drivers (S3, ADLS Gen2, GCS, HDFS) take the project's `storage_options`.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from stat import S_ISREG
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from urllib.parse import unquote, urlparse

from typing_extensions import override

from recon.base.errors import ConfigError, EvidenceError
from recon.base.limits import S3_S, STORE_S, within

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

K = TypeVar("K")
T = TypeVar("T")

FILE_MODE = "RECON_FILE_MODE"

# How a location on Databricks' file system begins, and where its machines have it as a folder.
DBFS = "dbfs:"
DBFS_MOUNT = Path("/dbfs")
# Before the name of a table whose location is known to a catalog alone.
CATALOG = "catalog:"

_PART = 65_536  # bytes of a local file read at once
# Many small files in order: the first few of each block show whether reading a file takes much longer than a thread
# costs. On a disk it does not: 10 µs from the page cache, else 0.1 ms. On a network file system it does.
_BLOCK, _TRIED, _SLOW_S, _READERS = 1_024, 16, 0.0003, 16
# Spark's s3a is s3 for pyarrow.
_ARROW_SCHEMES = {"s3a": "s3", "s3n": "s3"}
# pyarrow's names for the options of an S3 store.
_S3_OPTIONS = {
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
    "region": "region",
    "endpoint_url": "endpoint_override",
}


class StoredFile(NamedTuple):
    """A file: its size in bytes, and when it was last modified, in milliseconds since 1970."""

    size: int
    modified: int


@dataclass(frozen=True)
class Storage:
    """A folder on some filesystem, by its URI or local path.

    Args:
        uri: `file:/…`, `dbfs:/…`, a local path, `s3a://…`, `abfss://…`, `hdfs://…`.
        options: credentials and endpoints, passed on as they are.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def local(self) -> Path | None:
        """The folder as a local path; None when it is on another filesystem."""
        parsed = urlparse(self.uri)
        if parsed.scheme == "file":
            return Path(unquote(parsed.path))
        if self.uri.startswith(DBFS):
            return DBFS_MOUNT / self.uri.removeprefix(DBFS).lstrip("/")
        if parsed.scheme == "" or (os.name == "nt" and len(parsed.scheme) == 1):
            return Path(self.uri)
        return None

    def child(self, name: str) -> Storage:
        """The folder `name` inside this one."""
        return replace(self, uri=f"{self.uri.rstrip('/')}/{name}")

    def read(self, name: str, most: int | None = None) -> bytes:
        """A file's content; of one that is larger than `most`, so many bytes.

        Raises:
            FileNotFoundError: there is no such file.
            EvidenceError: it is there and cannot be read.
        """
        try:
            if self.local is not None:
                with (self.local / name).open("rb") as file:
                    return file.read(most)
            return self._in_time(name, lambda: self._read(name, most))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise EvidenceError(f"{self.uri}/{name} cannot be read: {error}") from error

    def find(self, name: str) -> bytes | None:
        """A file's content; None when there is no such file.

        Raises:
            EvidenceError: it is there and cannot be read.
        """
        try:
            return self.read(name)
        except FileNotFoundError:
            return None

    def _unlisted(self, folder: str, error: OSError) -> EvidenceError:
        step = "check its path, the storage_options, and what this user may read there"
        return EvidenceError(f"{self.uri}/{folder} cannot be listed: {error.strerror or error}; {step}")

    def names(self, folder: str = "") -> list[str]:
        """Names directly inside `folder`, unsorted; empty when the folder does not exist."""
        try:
            if self.local is not None:
                return os.listdir(self.local / folder)  # noqa: PTH208 - tens of thousands of names, and names alone
            return [info.base_name for info in self._in_time(folder, lambda: self._listed(folder))]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._unlisted(folder, error) from error

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Sizes of the files directly inside `folder`, by name; one that vanishes meanwhile is left out."""
        try:
            if self.local is None:
                infos = self._in_time(folder, lambda: self._listed(folder))
                return {info.base_name: info.size for info in infos if info.is_file}
            sizes = {}
            with os.scandir(self.local / folder) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        of = entry.stat()
                        if S_ISREG(of.st_mode):
                            sizes[entry.name] = of.st_size
            return sizes
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise self._unlisted(folder, error) from error

    def opened(self, name: str) -> IO[bytes]:
        """A file to read in parts, such as the footer alone; close it.

        Raises:
            OSError: it cannot be opened, or a part of it is not read in time.
        """
        if self.local is not None:
            return (self.local / name).open("rb")

        def opened() -> IO[bytes]:
            filesystem, path = self._arrow(name)
            return cast("IO[bytes]", filesystem.open_input_file(path))

        late = f"{self.uri}/{name} cannot be read: the store did not answer"
        return cast("IO[bytes]", _InTime(within(STORE_S, opened, late, TimeoutError), late))

    def files(self, folder: str = "") -> dict[str, int]:
        """Sizes of all files below `folder`, as `stored` lists them."""
        return {path: file.size for path, file in self.stored(folder).items()}

    def stored(self, folder: str = "", *, links: bool = False) -> dict[str, StoredFile]:
        """All files below `folder`, by their path relative to it; empty when the folder does not exist.

        A file that vanishes meanwhile is left out. With `links`, folders that are reached by a symbolic link are
        listed, too, each once.

        Raises:
            EvidenceError: a folder cannot be listed.
        """
        try:
            if self.local is not None:
                return dict(_local_files(str(self.local / folder), links=links))
            return self._in_time(folder, lambda: self._stored(folder))
        except OSError as error:
            raise self._unlisted(folder, error) from error

    def _stored(self, folder: str) -> dict[str, StoredFile]:
        from pyarrow.fs import FileSelector, FileType

        filesystem, path = self._arrow(folder)
        infos = filesystem.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
        return {
            info.path[len(path) + 1 :]: StoredFile(info.size, (info.mtime_ns or 0) // 1_000_000)
            for info in infos
            if info.type == FileType.File
        }

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, replacing an existing one: a reader sees the whole new content, the earlier one, or no file.

        An object store's put is atomic; elsewhere the file is written under another name and renamed.

        Raises:
            OSError: it cannot be written.
        """
        if self.local is not None:
            write_file(self.local / name, content)
        else:
            self._written_in_time(name, lambda: self._write(name, content))

    def _write(self, name: str, content: bytes) -> None:
        filesystem, path = self._arrow(name)
        if filesystem.type_name in ("s3", "gcs"):
            with filesystem.open_output_stream(path) as stream:
                stream.write(content)
            return
        folder, _, last = path.rpartition("/")
        filesystem.create_dir(folder, recursive=True)
        beside = f"{folder}/.{last}.{uuid.uuid4().hex}"
        with filesystem.open_output_stream(beside) as stream:
            stream.write(content)
        filesystem.move(beside, path)

    def create(self, name: str, content: bytes, mode: int | None = None) -> bool:
        """Writes a file that must not be there yet; whether it was this call that made it.

        `mode` are a local file's permissions; by default what the umask leaves.

        On a local filesystem with hard links one of several calls at the same moment makes it. Elsewhere it looks
        before it writes.

        Raises:
            OSError: it cannot be written.
        """
        if self.local is not None:
            return create_file(self.local / name, content, mode)
        return self._written_in_time(name, lambda: self._create(name, content))

    def _create(self, name: str, content: bytes) -> bool:
        from pyarrow.fs import FileType

        filesystem, path = self._arrow(name)
        if filesystem.get_file_info(path).type != FileType.NotFound:
            return False
        self._write(name, content)
        return True

    def remove(self, name: str) -> None:
        """Removes a file or a folder with its content, where it exists.

        Raises:
            OSError: it cannot be removed.
        """
        if self.local is not None:
            place = self.local / name
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)
        else:
            self._written_in_time(name, lambda: self._remove(name))

    def _remove(self, name: str) -> None:
        from pyarrow.fs import FileType

        filesystem, path = self._arrow(name)
        kind = filesystem.get_file_info(path).type
        if kind == FileType.Directory:
            filesystem.delete_dir(path)
        elif kind == FileType.File:
            filesystem.delete_file(path)

    def _in_time(self, name: str, call: Callable[[], T]) -> T:
        return within(STORE_S, call, f"{self.uri}/{name} cannot be read: the store did not answer")

    def _written_in_time(self, name: str, call: Callable[[], T]) -> T:
        late = f"{self.uri}/{name} cannot be written or removed: the store did not answer"
        return within(STORE_S, call, late, TimeoutError)

    def _read(self, name: str, most: int | None) -> bytes:
        filesystem, path = self._arrow(name)
        with filesystem.open_input_stream(path) as stream:
            return bytes(stream.read(most))

    def _listed(self, folder: str) -> Sequence[FileInfo]:
        from pyarrow.fs import FileSelector

        filesystem, path = self._arrow(folder)
        return list(filesystem.get_file_info(FileSelector(path, allow_not_found=True)))

    def _arrow(self, name: str) -> tuple[FileSystem, str]:
        """The filesystem, and the path of `name` on it."""
        import pyarrow.fs as pafs

        require_location(self)
        parsed = urlparse(self.uri)
        scheme = _ARROW_SCHEMES.get(parsed.scheme, parsed.scheme)
        options: dict[str, Any] = {k.lower().removeprefix("aws_"): v for k, v in self.options.items()}
        try:
            if scheme == "s3" and options:
                s3_options = {_S3_OPTIONS[k]: v for k, v in options.items() if k in _S3_OPTIONS}
                waits = {"connect_timeout": S3_S, "request_timeout": S3_S}
                filesystem, root = pafs.S3FileSystem(**s3_options, **waits), f"{parsed.netloc}{parsed.path}"
            else:
                uri = self.uri.replace(f"{parsed.scheme}://", f"{scheme}://", 1)
                filesystem, root = pafs.FileSystem.from_uri(uri)
            return filesystem, f"{root.rstrip('/')}/{name}".rstrip("/")
        except (OSError, ValueError, ImportError) as error:
            raise ConfigError(
                f"{self.uri} cannot be opened: {error}; check the scheme and storage_options in recon.yml"
            ) from None  # what pyarrow raises quotes the URI, with the credentials in it


class _InTime(io.RawIOBase):
    """A file of an object store; each part of it is read in time, or TimeoutError is raised."""

    def __init__(self, file: IO[bytes], late: str) -> None:
        self._file, self._late = file, late

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True

    @override
    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    @override
    def tell(self) -> int:
        return self._file.tell()

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        wanted = -1 if size is None else size
        return bytes(within(STORE_S, lambda: self._file.read(wanted), self._late, TimeoutError))

    @override
    def readinto(self, buffer: Any, /) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    @override
    def close(self) -> None:
        self._file.close()
        super().close()


def require_location(storage: Storage) -> None:
    """Raises EvidenceError for a table that is known by its name alone."""
    if storage.uri.startswith(CATALOG):
        raise EvidenceError(unlocated(storage.uri.removeprefix(CATALOG).split("/")[0]))


def unlocated(table: str) -> str:
    """Why nothing can be read of a table that is known by its name alone."""
    return (
        f"the location of {table} is known to a catalog alone, and no Spark session was asked for it; run this where "
        "one is active (an audit without --no-spark starts one), name its Unity Catalog (catalogs in recon.yml), or "
        "write the table's location as target"
    )


def dbfs_is_mounted() -> bool:
    """Whether this machine has Databricks' file system as a folder."""
    return DBFS_MOUNT.is_dir()


def _local_files(root: str, *, links: bool = False) -> Iterator[tuple[str, StoredFile]]:
    """The path below `root`, with slashes, and each file; OSError where a folder cannot be listed."""

    def raise_unless_gone(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise error

    seen: set[str] = set()
    for where, folders, names in os.walk(root, onerror=raise_unless_gone, followlinks=links):
        if links:
            real = os.path.realpath(where)
            if real in seen:
                folders.clear()  # a link in a circle, or a second way to the folder
                continue
            seen.add(real)
        folder = where[len(root) :].replace(os.sep, "/").lstrip("/")
        for name in names:
            with suppress(FileNotFoundError):
                stat = os.stat(f"{where}{os.sep}{name}")  # noqa: PTH116 - there may be millions
                file = StoredFile(stat.st_size, stat.st_mtime_ns // 1_000_000)
                yield f"{folder}/{name}" if folder else name, file


def arrow_filesystem(uri: str) -> FileSystem | None:
    """A local folder as a filesystem of Arrow's own, to read a Delta table's dataset through; None for another store.

    The filesystem that delta-rs gives to Arrow is made in Python, and Arrow's threads close its files at some later
    moment. A process that ends at that moment is aborted with exit code 134, after all of its output.
    """
    local = Storage(uri).local
    if local is None:
        return None
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    return SubTreeFileSystem(str(local.absolute()), LocalFileSystem())


def read_ahead(read: Callable[[K], T], keys: Iterable[K], *, remote: bool) -> Iterator[T]:
    """`read` of each key, in order; in threads, up to a thousand ahead, where that is slow or `remote`.

    `read` is called from several threads then. An error is raised at the place of its key.
    """
    left = iter(keys)
    with ThreadPoolExecutor(_READERS) as pool:  # which starts no thread before it is needed
        while block := list(islice(left, _BLOCK)):
            tried = [] if remote else block[:_TRIED]
            taken = []
            for key in tried:
                began = time.perf_counter()
                value = read(key)
                taken.append(time.perf_counter() - began)
                yield value
            slow = remote or sorted(taken)[len(taken) // 2] > _SLOW_S
            yield from (pool.map if slow else map)(read, block[len(tried) :])


def read_file(path: str) -> bytes:
    """A local file; thousands of small ones in half the time that `open` takes.

    Raises:
        OSError: it cannot be read.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        content = os.read(file, _PART)
        while part := os.read(file, _PART):
            content += part
    finally:
        os.close(file)
    return content


def write_file(path: Path, content: bytes, mode: int | None = None) -> Path:
    """Writes a local file in one step, as `Storage.write` does; makes its folder when it is missing.

    `mode` are its permissions, by default what the umask leaves.

    Raises:
        OSError: it cannot be written.
    """
    with _beside(path, content, mode) as beside:
        beside.replace(path)
    return path


def write_private(path: Path, content: bytes) -> Path:
    """Writes a report or results in one step, for their owner alone, or with the permissions of RECON_FILE_MODE.

    Raises:
        ConfigError: RECON_FILE_MODE is no mode.
        OSError: it cannot be written.
    """
    mode = private_mode()
    make_private_folder(path.parent)
    return write_file(path, content, mode)


def make_private_folder(folder: Path) -> None:
    """Makes a folder that is missing, for its owner alone, or for those whom RECON_FILE_MODE lets read files in it."""
    if not folder.is_dir():
        mode = private_mode()
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode | (mode & 0o444) >> 2)


def private_mode() -> int:
    """The permissions of reports, results and stored failures: 0600, or what RECON_FILE_MODE says.

    Raises:
        ConfigError: RECON_FILE_MODE is no mode.
    """
    text = os.environ.get(FILE_MODE, "600")
    if not re.fullmatch(r"0?o?[67][0-7][0-7]", text):
        raise ConfigError(
            f"{FILE_MODE} is {text!r}; set it to three octal digits that let the owner read and write, such as 640"
        )
    return int(text[-3:], 8) & 0o666


def create_file(path: Path, content: bytes, mode: int | None = None) -> bool:
    """Makes a local file in one step, as `Storage.create` does.

    Raises:
        OSError: it cannot be written.
    """
    with _beside(path, content, mode) as beside:
        try:
            path.hardlink_to(beside)
        except FileExistsError:
            return False
        except OSError:  # a filesystem without hard links
            if path.exists():
                return False
            beside.replace(path)
    return True


@contextmanager
def _beside(path: Path, content: bytes, mode: int | None) -> Iterator[Path]:
    """A file with this content in the folder of `path`, removed afterwards unless it was renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    try:
        # Never wider than it will be: nobody may open it between its making and a chmod.
        with os.fdopen(
            os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode), "wb"
        ) as file:
            if mode is not None:
                beside.chmod(mode)  # whatever the umask took away
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield beside
    finally:
        beside.unlink(missing_ok=True)
