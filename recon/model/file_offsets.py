"""Positions in the log of a file source, as offsets: the log is a topic with one partition, 0.

Spark's file source (`FileStreamSource`) writes each set of files that it is to read as an entry of a log in the
checkpoint, `sources/<i>/<N>`. Its position is the number of the newest entry, `{"logOffset":N}`, and so is an offset
here. The topic is named by the query's id: a fresh checkpoint has another log, of other entries.
"""

from __future__ import annotations

# No topic of Kafka's has a colon in its name.
PREFIX = "files:"


def is_files(topic: str) -> bool:
    """Whether a topic stands for the log of a file source."""
    return topic.startswith(PREFIX)


def topic_of(query_id: str) -> str:
    """The topic that stands for the file sources of a query."""
    return f"{PREFIX}{query_id}"


def query_of(topic: str) -> str:
    """The id of the query whose file source a topic stands for."""
    return topic.removeprefix(PREFIX)


def shown(topic: str) -> str:
    """The source in a sentence.

    >>> shown("files:0b9e7c1a-55d2-4a43-9a5e-1f0d2c3b4a59")
    'file source of query 0b9e7c1a'
    """
    return f"file source of query {query_of(topic)[:8]}"


def place(offset: int) -> str:
    """A position in words.

    >>> place(7)
    'log entry 7'
    """
    return f"log entry {offset:,}"


def described(start: int, end: int) -> str:
    """A range in a sentence.

    >>> described(3, 7), described(3, 4), described(3, 3)
    ('log entries 3 to 6', 'log entry 3', 'no log entry')
    """
    if start >= end:
        return "no log entry"
    return place(start) if end == start + 1 else f"log entries {start:,} to {end - 1:,}"


__all__ = ["PREFIX", "described", "is_files", "place", "query_of", "shown", "topic_of"]
