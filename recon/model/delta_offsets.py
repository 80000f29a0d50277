"""Positions in a Delta table that a stream reads, as offsets: the table is a topic with one partition, 0.

The topic is named by the table's id: where the table is, and what recon.yml calls it, may change.

Spark's position (`DeltaSourceOffset`) is a version of the table and a number of its data files. Its offset here is
version x 1,000,000,000 + files. So half-open ranges of offsets hold whole files, those of a version in the order of its
commit. A new query first reads a snapshot of the table. The snapshot's files count from 500,000,000 on, in the order of
(modificationTime, path), so its position comes after that of the version's own commit.

>>> offset_of(7, 2), position_of(7_000_000_002)
(7000000002, Position(version=7, files=2, in_snapshot=False))
>>> offset_of(12, 40, in_snapshot=True)
12500000040
"""

from __future__ import annotations

from typing import NamedTuple

# No topic of Kafka's has a colon in its name.
PREFIX = "delta:"
_VERSION, _SNAPSHOT = 1_000_000_000, 500_000_000
FILES_AT_MOST = _SNAPSHOT  # of one version
VERSIONS_AT_MOST = 2**63 // _VERSION
BEGINNING = _SNAPSHOT  # where a query begins that first reads the whole table, whatever its version


class Position(NamedTuple):
    """How far a stream has come: the files of a version that it has read, of its commit or of the table's snapshot."""

    version: int
    files: int
    in_snapshot: bool


def is_delta(topic: str) -> bool:
    """Whether a topic stands for a Delta table."""
    return topic.startswith(PREFIX)


def topic_of(table_id: str) -> str:
    """The topic that stands for a Delta table."""
    return f"{PREFIX}{table_id}"


def table_of(topic: str) -> str:
    """The id of the table that a topic stands for."""
    return topic.removeprefix(PREFIX)


def shown(topic: str) -> str:
    """The table in a sentence.

    >>> shown("delta:0b9e7c1a-55d2-4a43-9a5e-1f0d2c3b4a59")
    'Delta table 0b9e7c1a'
    """
    return f"Delta table {table_of(topic)[:8]}"


def offset_of(version: int, files: int, *, in_snapshot: bool = False) -> int:
    """The offset of a position."""
    return version * _VERSION + (_SNAPSHOT if in_snapshot else 0) + files


def position_of(offset: int) -> Position:
    """The position of an offset."""
    version, rest = divmod(offset, _VERSION)
    return Position(version, rest % _SNAPSHOT, rest >= _SNAPSHOT)


def beginning(offset: int) -> str:
    """Where reading began, in words.

    >>> beginning(BEGINNING), beginning(offset_of(7, 0))
    ('as a whole', 'from version 7')
    """
    return "as a whole" if offset == BEGINNING else f"from {place(offset)}"


def place(offset: int) -> str:
    """A position in words.

    >>> place(offset_of(7, 0)), place(offset_of(7, 2)), place(offset_of(7, 2, in_snapshot=True))
    ('version 7', 'version 7, file 3', 'file 3 of the table at version 7')
    """
    version, files, in_snapshot = position_of(offset)
    if in_snapshot:
        return "the whole table" if offset == BEGINNING else f"file {files + 1} of the table at version {version}"
    return f"version {version}" + (f", file {files + 1}" if files else "")


def described(start: int, end: int) -> str:
    """A range in a sentence.

    >>> described(3_000_000_000, 7_000_000_000)
    'versions 3 to 6'
    >>> described(3_000_000_000, 3_000_000_002)
    'version 3 (the first 2 files)'
    >>> described(3_000_000_002, 5_000_000_001)
    'versions 3 (from file 3 on) to 5 (the first 1 file)'
    >>> described(BEGINNING, 4_000_000_000)
    'the whole table at version 3'
    >>> described(4_500_000_002, 4_500_000_005)
    'files 3 to 5 of the table at version 4'
    """
    if start >= end:
        return "no version"
    low, high = position_of(start), position_of(end)
    if start == BEGINNING and high.in_snapshot:
        return f"the first {_files(high.files)} of the table at version {high.version}"
    if start == BEGINNING:
        whole = f"the whole table at version {high.version - 1}"
        return whole if not high.files else f"{whole} and version {high.version} (the first {_files(high.files)})"
    if low.in_snapshot and high.in_snapshot:
        return f"files {low.files + 1} to {high.files} of the table at version {low.version}"
    if low.in_snapshot:
        rest = f"the table at version {low.version} from file {low.files + 1} on"
        after = offset_of(low.version + 1, 0)
        return rest if end <= after else f"{rest} and {described(after, end)}"
    first = f"{low.version}" + (f" (from file {low.files + 1} on)" if low.files else "")
    if high.files and low.version == high.version:
        of = f"files {low.files + 1} to {high.files}" if low.files else f"the first {_files(high.files)}"
        return f"version {low.version} ({of})"
    last = f"{high.version} (the first {_files(high.files)})" if high.files else f"{high.version - 1}"
    newest = high.version if high.files else high.version - 1
    return f"version {first}" if newest == low.version else f"versions {first} to {last}"


def _files(count: int) -> str:
    return f"{count:,} file" if count == 1 else f"{count:,} files"


__all__ = [
    "BEGINNING",
    "FILES_AT_MOST",
    "PREFIX",
    "VERSIONS_AT_MOST",
    "Position",
    "beginning",
    "described",
    "is_delta",
    "offset_of",
    "place",
    "position_of",
    "shown",
    "table_of",
    "topic_of",
]
