"""Deletion vectors of Delta tables: which rows of a data file they mark as deleted (PROTOCOL.md, "Deletion Vectors").

A vector is a roaring bitmap of 64-bit row numbers, beside the table's files, or in the log itself.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from recon.base.errors import EvidenceError
from recon.base.lazy import np
from recon.base.storage import Storage

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_MAGIC = 1681511377
_WITHOUT_RUNS, _WITH_RUNS = 12346, 12347  # how a bitmap of 32-bit numbers begins
_FEW = 4  # containers from which on a bitmap with runs says where each begins
_MOST = 4096  # numbers that a container lists; more are bits
_UUID = 20  # characters of the file's id, behind the name of its folder


def marked(storage: Storage, vector: Mapping[str, Any] | None) -> Ints:
    """The numbers of the rows that a deletion vector marks, ascending; none without one.

    Raises:
        EvidenceError: it is of a kind that recon does not read, or torn.
        FileNotFoundError: its file is no longer in the store.
    """
    if not vector:
        return np.zeros(0, np.int64)
    kind, text = vector["storageType"], str(vector["pathOrInlineDv"])
    size, offset = int(vector["sizeInBytes"]), int(vector.get("offset") or 0)
    if kind == "i":
        stored = z85(text)[:size]
    elif kind == "u":
        folder, name = text[:-_UUID], f"deletion_vector_{UUID(bytes=z85(text[-_UUID:]))}.bin"
        stored = _stored(storage.read(f"{folder}/{name}" if folder else name), offset, size)
    else:
        raise EvidenceError(f"a deletion vector is stored in a way that is not read (storageType {kind!r:.20})")
    try:
        rows = numbers(stored)
    except (struct.error, ValueError, IndexError) as error:
        raise EvidenceError(f"a deletion vector cannot be read: {error}") from error
    if len(rows) != int(vector["cardinality"]):
        raise EvidenceError(f"a deletion vector marks {len(rows):,} rows, and the log says {vector['cardinality']}")
    return rows


def _stored(content: bytes, offset: int, size: int) -> bytes:
    """A vector in its file: behind its size, and before its checksum."""
    if content[offset : offset + 4] != size.to_bytes(4, "big"):
        raise EvidenceError("the file of a deletion vector has another size in it than the log says")
    return content[offset + 4 : offset + 4 + size]


def z85(text: str) -> bytes:
    """Bytes that are written as Z85.

    >>> z85("HelloWorld").hex()
    '864fd26fb559f75b'
    """
    words = (text[start : start + 5] for start in range(0, len(text), 5))
    return b"".join(_word(word).to_bytes(4, "big") for word in words)


def _word(text: str) -> int:
    value = 0
    for character in text:
        value = value * 85 + _Z85.index(character)
    return value


def numbers(stored: bytes) -> Ints:
    """The numbers of a roaring bitmap of 64-bit numbers, ascending.

    Raises:
        ValueError: it is none, or torn; so say struct.error and IndexError.
    """
    magic, bitmaps = struct.unpack_from("<iq", stored)
    if magic != _MAGIC:
        raise ValueError(f"its first number is {magic}")
    at, found = 12, [np.zeros(0, np.int64)]
    for _ in range(bitmaps):
        (high,) = struct.unpack_from("<i", stored, at)
        low, at = _bitmap(stored, at + 4)
        found.append(low + (high << 32))
    return np.concatenate(found)


def _bitmap(stored: bytes, at: int) -> tuple[Ints, int]:
    """A bitmap of 32-bit numbers, and where it ends (RoaringFormatSpec)."""
    (cookie,) = struct.unpack_from("<I", stored, at)
    runs = b""
    if cookie & 0xFFFF == _WITH_RUNS:
        containers, at = (cookie >> 16) + 1, at + 4
        runs = stored[at : at + (containers + 7) // 8]
        at += len(runs)
    elif cookie == _WITHOUT_RUNS:
        containers, at = struct.unpack_from("<I", stored, at + 4)[0], at + 8
    else:
        raise ValueError(f"a bitmap begins with {cookie}")
    sizes = struct.unpack_from(f"<{2 * containers}H", stored, at)
    at += 4 * containers
    if not runs or containers >= _FEW:
        at += 4 * containers  # where each container begins
    found = [np.zeros(0, np.int64)]
    for number, (key, fewer) in enumerate(zip(sizes[::2], sizes[1::2], strict=True)):
        is_run = bool(runs) and bool(runs[number // 8] >> (number % 8) & 1)
        low, at = _container(stored, at, fewer + 1, is_run=is_run)
        found.append(low + (key << 16))
    return np.concatenate(found), at


def _container(stored: bytes, at: int, count: int, *, is_run: bool) -> tuple[Ints, int]:
    """The 16-bit numbers of a container, and where it ends."""
    if is_run:
        (several,) = struct.unpack_from("<H", stored, at)
        pairs = struct.unpack_from(f"<{2 * several}H", stored, at + 2)
        spans = [np.arange(first, first + more + 1) for first, more in zip(pairs[::2], pairs[1::2], strict=True)]
        return np.concatenate(spans).astype(np.int64), at + 2 + 4 * several
    if count > _MOST:
        bits = np.frombuffer(stored, np.uint8, 8192, at)
        return np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.int64), at + 8192
    return np.frombuffer(stored, "<u2", count, at).astype(np.int64), at + 2 * count
