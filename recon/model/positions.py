"""What a stream may read besides Kafka, by the names of topics: Delta tables and the logs of file sources.

Ranges of them are ranges of offsets, as Kafka's are. The offsets of such a range are positions. Only the source says
how many records it holds, and messages name it by versions or log entries. Topics of Kafka are everything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from recon.model import delta_offsets, file_offsets
from recon.model.delta_offsets import is_delta
from recon.model.file_offsets import is_files
from recon.model.offsets import OffsetSpan

SourceKind = Literal["Kafka", "a Delta table", "a folder of files"]


def is_kafka(topic: str) -> bool:
    """Whether a topic is one of Kafka's, whose offsets are of records.

    >>> is_kafka("orders"), is_kafka("delta:0b9e7c1a"), is_kafka("files:0b9e7c1a")
    (True, False, False)
    """
    return not topic.startswith((delta_offsets.PREFIX, file_offsets.PREFIX))


def kind_of(topic: str) -> SourceKind:
    """What a topic stands for.

    >>> kind_of("orders"), kind_of("delta:0b9e7c1a"), kind_of("files:0b9e7c1a")
    ('Kafka', 'a Delta table', 'a folder of files')
    """
    return "a Delta table" if is_delta(topic) else "a folder of files" if is_files(topic) else "Kafka"


def id_in(topic: str) -> str | None:
    """The id that the name of a topic holds: the table's or the query's; None for Kafka's, whose ids brokers give.

    >>> id_in("delta:0b9e7c1a"), id_in("files:0b9e7c1a"), id_in("orders")
    ('0b9e7c1a', '0b9e7c1a', None)
    """
    return None if is_kafka(topic) else topic.partition(":")[2]


def partition_name(topic: str, partition: int) -> str:
    """A topic partition as Kafka's own tools write it; of other sources there is one alone.

    >>> partition_name("orders", 3), partition_name("delta:0b9e7c1a-55d2", 0), partition_name("files:0b9e7c1a-55d2", 0)
    ('orders-3', 'Delta table 0b9e7c1a', 'file source of query 0b9e7c1a')
    """
    return f"{topic}-{partition}" if is_kafka(topic) else shown(topic)


def shown(topic: str) -> str:
    """A source in a sentence.

    >>> shown("orders"), shown("delta:0b9e7c1a-55d2")
    ('topic orders', 'Delta table 0b9e7c1a')
    """
    if is_delta(topic):
        return delta_offsets.shown(topic)
    return file_offsets.shown(topic) if is_files(topic) else f"topic {topic}"


def described(topic: str, start: int, end: int) -> str:
    """A range of a topic in words.

    >>> described("orders", 3, 9), described("delta:0b9e7c1a", 3_000_000_000, 9_000_000_000)
    ('[3, 9)', 'versions 3 to 8')
    >>> described("files:0b9e7c1a", 3, 9)
    'log entries 3 to 8'
    """
    if is_delta(topic):
        return delta_offsets.described(start, end)
    return file_offsets.described(start, end) if is_files(topic) else f"[{start}, {end})"


def contents(topic: str, start: int, end: int) -> str:
    """What a range of a topic holds, in a sentence.

    >>> contents("orders", 3, 9), contents("delta:0b9e7c1a", 3_000_000_000, 9_000_000_000)
    ('offsets [3, 9)', 'the rows of versions 3 to 8')
    >>> contents("files:0b9e7c1a", 3, 9)
    'the files of log entries 3 to 8'
    """
    held = "the rows of" if is_delta(topic) else "the files of" if is_files(topic) else "offsets"
    return f"{held} {described(topic, start, end)}"


def place(topic: str, offset: int) -> str:
    """An offset of a topic in a sentence.

    >>> place("orders", 3), place("delta:0b9e7c1a", 3_000_000_000), place("files:0b9e7c1a", 3)
    ('3', 'version 3', 'log entry 3')
    """
    if is_delta(topic):
        return delta_offsets.place(offset)
    return file_offsets.place(offset) if is_files(topic) else str(offset)


def beginning(topic: str, offset: int) -> str:
    """Where reading began, in a clause.

    >>> beginning("orders", 3), beginning("files:0b9e7c1a", 0)
    ('from offset 3', 'from log entry 0')
    """
    if is_delta(topic):
        return delta_offsets.beginning(offset)
    return f"from {'offset ' if is_kafka(topic) else ''}{place(topic, offset)}"


def offsets_in(ranges: Iterable[OffsetSpan]) -> int:
    """How many offsets of Kafka some ranges hold; those of other sources are positions, and count nothing."""
    return sum(read.end_offset - read.start_offset for read in ranges if is_kafka(read.topic))


__all__ = [
    "SourceKind",
    "beginning",
    "contents",
    "described",
    "id_in",
    "is_kafka",
    "kind_of",
    "offsets_in",
    "partition_name",
    "place",
    "shown",
]
