"""Deletions that recon.yml declares, and the rows that one commit deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from recon.base.text import some
from recon.model.offsets import Spans

TopicPartition = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class DeclaredDeletion:
    """Which commits may delete rows of a table, and which rows.

    Attributes:
        columns: those that the condition of the DELETE names, and no others; () for any condition.
        user_metadata: the userMetadata of the commit, or its beginning and `*`; "" for any.
        made_by: what the log has to say of who made the commit, by the names of `TableCommit.made_by`.
        properties: what the summary of the Iceberg snapshot has to hold.
        older_than: the age that deleted rows must have; None for any.
        age: that in words.
        column: the column of the rows that has their time; "" to count from when the stream read their record.
    """

    columns: tuple[str, ...] = ()
    user_metadata: str = ""
    made_by: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    older_than: timedelta | None = None
    age: str = ""
    column: str = ""

    @property
    def label(self) -> str:
        """It in words.

        >>> DeclaredDeletion(columns=("event_time",), older_than=timedelta(30), age="30 days").label
        'by predicate event_time, older than 30 days'
        """
        named = [f"predicate {', '.join(self.columns)}"] if self.columns else []
        named += [f"user_metadata {self.user_metadata}"] if self.user_metadata else []
        named += [f"{name} {value}" for name, value in self.made_by.items()]
        named += [f"snapshot property {name} {value}" for name, value in self.properties.items()]
        old = f", older than {self.age}" if self.older_than is not None else ""
        return f"by {' and '.join(named)}{old}{f' by {self.column}' if self.column else ''}"


class AskedDeletion(NamedTuple):
    """Whose deleted rows are asked for: of a version, with those that have a time before `before` in a column."""

    version: int
    column: str = ""
    before: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class DeletedRows:
    """The rows that a commit deleted, read from the data files that it removed and added.

    Attributes:
        version: of the commit.
        rows: how many rows it deleted; `unplaced` of them do not say which record they were made of.
        offsets: the source offsets of the others.
        older: those of them whose time is before the one that was asked for.
        ageless: those of them that have no such time.
        changed: how it also changed rows, or added some; "" for a deletion alone.
    """

    version: int
    rows: int
    unplaced: int = 0
    offsets: Mapping[TopicPartition, Spans] = field(default_factory=dict)
    older: Mapping[TopicPartition, Spans] = field(default_factory=dict)
    ageless: Mapping[TopicPartition, Spans] = field(default_factory=dict)
    changed: str = ""


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """What a declaration says of one commit.

    Attributes:
        version: of the commit.
        at: the time of the commit.
        label: of the declaration.
        inside: the offsets whose rows were deleted as declared.
        young: those whose rows were younger.
        ageless: those whose rows have no known age.
        changed: as `DeletedRows.changed`.
        unknown: why it is not known which rows were deleted; "" where it is.
        rows: how many rows were deleted, None where that is not known.
    """

    version: int
    at: datetime
    label: str
    inside: Mapping[TopicPartition, Spans] = field(default_factory=dict)
    young: Mapping[TopicPartition, Spans] = field(default_factory=dict)
    ageless: Mapping[TopicPartition, Spans] = field(default_factory=dict)
    changed: str = ""
    unknown: str = ""
    rows: int | None = None

    @property
    def is_lawful(self) -> bool:
        """Whether every row that it deleted is known, and was declared."""
        return not (self.young or self.ageless or self.changed or self.unknown)


def size_of(offsets: Mapping[TopicPartition, Spans]) -> int:
    """How many offsets there are."""
    return sum(spans.size for spans in offsets.values())


def places_of(offsets: Mapping[TopicPartition, Spans]) -> str:
    """Some of the ranges, in a sentence."""
    spans = ((*where, *span) for where, of in sorted(offsets.items()) for span in of)
    return some(f"{topic}-{number} [{start}, {end})" for topic, number, start, end in spans)
