"""The Delta table that a stream reads, as its log shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from recon.model.delta_offsets import BEGINNING, is_delta, position_of, table_of, topic_of
from recon.model.positions import shown

Passes = Literal["", "skip", "changes", "deletes", "feed"]
_COPIED = ("numCopiedRows", "num_copied_rows", "numTargetRowsCopied", "num_target_rows_copied")


@dataclass(frozen=True, kw_only=True)
class SourceCommit:
    """One version of a Delta table that a stream reads.

    `files` has the rows of each data file that it added with dataChange=true, in the order in which the stream reads
    them; None for a file without statistics. `removes` is whether it also removed data files with dataChange=true,
    `vectors` whether a file that it added has a deletion vector.
    """

    version: int
    timestamp: datetime
    operation: str
    files: tuple[int | None, ...]
    removes: bool = False
    vectors: bool = False
    metrics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def adds_new(self) -> bool:
        """Whether its files may have rows that were in no version before."""
        return not self.operation.upper().startswith(("DELETE", "RESTORE"))

    @property
    def is_restore(self) -> bool:
        """Whether it put an older version in place of the newest."""
        return self.operation.upper().startswith("RESTORE")

    @property
    def copied(self) -> int | None:
        """The rows of its files that it copied as they were; None where its metrics do not say.

        Spark and delta-rs name the metric otherwise. Of a file with a deletion vector all rows that are left were there
        before.
        """
        texts = [str(self.metrics[name]) for name in _COPIED if self.metrics.get(name) is not None]
        if not texts and self.operation.upper().startswith(("WRITE", "CREATE", "REPLACE", "STREAMING UPDATE")):
            return 0
        return int(texts[0]) if texts and texts[0].isdecimal() and not self.vectors else None

    @property
    def rows(self) -> int | None:
        """The rows of its new files."""
        return None if None in self.files else sum(rows for rows in self.files if rows is not None)


@dataclass(frozen=True, kw_only=True)
class SourceTable:
    """The Delta table that a stream reads, as its log is now, `read_at` (UTC, after the ledger).

    `first_retained` is the oldest version whose commit the log still has, `last` the newest. `commits` are those that
    the stream read in the period, and later ones. `snapshots` has, by version, the rows of each data file of the table,
    in the order in which a new query reads them; or why they are not known.

    `passes` is what recon.yml says that the query does with commits that remove files. It skips them (`skip`:
    skipChangeCommits), reads their new files (`changes`: ignoreChanges), ignores those that only delete (`deletes`:
    ignoreDeletes), or reads the change data `feed`, whose files the commits then have. "" where it says nothing: Spark
    then stops the query.
    """

    location: str
    exists: bool
    read_at: datetime
    table_id: str | None = None
    first_retained: int | None = None
    last: int | None = None
    commits: Mapping[int, SourceCommit] = field(default_factory=dict)
    snapshots: Mapping[int, Sequence[int | None] | str] = field(default_factory=dict)
    passes: Passes = ""

    @property
    def topic(self) -> str:
        """Its name as a topic; "" where its id is not known."""
        return "" if self.table_id is None else topic_of(self.table_id)

    def why_other(self, topic: str) -> str:
        """Why the table as it is now says nothing of what was read, in a clause; "" where it does."""
        if not is_delta(topic):
            return f"recon.yml names a Delta table as the source, and it read the {shown(topic)}"
        if not self.exists:
            return f"there is no Delta table at {self.location} any more"
        if self.table_id is not None and table_of(topic) != self.table_id:
            return f"{self.location} was made anew since (its id was {table_of(topic)} and is {self.table_id})"
        return ""

    def records(self, start: int, end: int) -> int | str:
        """How many rows a stream gets from one offset to another; or, in a clause, why that is not known."""
        low, high = position_of(start), position_of(end)
        if start >= end:
            return 0
        files: list[int | None] = []
        first = low.version
        if low.in_snapshot:
            version = low.version if start != BEGINNING else high.version if high.in_snapshot else high.version - 1
            snapshot = self.snapshots.get(version, f"what the table was at version {version} was not looked at")
            if isinstance(snapshot, str):
                return snapshot
            files += snapshot[low.files : high.files if high.in_snapshot else None]
            first = version + 1
        for version in range(first, high.version + bool(high.files) if not high.in_snapshot else first):
            commit = self.commits.get(version)
            if commit is None:
                return f"the log of {self.location} has no version {version} any more"
            taken = self._taken(commit)
            if isinstance(taken, str):
                return taken
            until = high.files if version == high.version else None
            files += taken[low.files if version == low.version and not low.in_snapshot else 0 : until]
        if None in files:
            return f"a data file of {self.location} has no statistics with its number of rows"
        return sum(rows for rows in files if rows is not None)

    def _taken(self, commit: SourceCommit) -> Sequence[int | None] | str:
        """The files of a commit that a stream reads."""
        if not commit.removes or not commit.files or self.passes in ("changes", "feed"):
            return commit.files
        if self.passes == "skip":
            return ()
        return (
            f"version {commit.version} of {self.location} ({commit.operation}) replaced data files, and whether the "
            "query reads the new ones (ignoreChanges) or passes over them (skipChangeCommits) recon.yml does not say"
        )
