"""What a stream reads of a folder: the log of Spark's file source, and the files that are in the folder now."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Literal, NamedTuple

from recon.model.file_offsets import is_files, query_of, topic_of
from recon.model.offsets import Spans
from recon.model.positions import shown

FileFormat = Literal["parquet", "orc", "json", "csv", "text", "avro", "xml", "binaryFile"]
# Times as Spark's options have them (JavaUtils.timeStringAsMs); a number alone is in milliseconds.
_AGE = re.compile(r"\s*(\d{1,12})(us|ms|s|m|min|h|d)?\s*", re.IGNORECASE)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def age_of(text: str) -> timedelta | None:
    """A time as the option `maxFileAge` has it; None for a text that is none.

    >>> age_of("7d"), age_of("90min"), age_of("500"), age_of("soon")
    (datetime.timedelta(days=7), datetime.timedelta(seconds=5400), datetime.timedelta(microseconds=500000), None)
    """
    matched = _AGE.fullmatch(text)
    if matched is None:
        return None
    try:
        return timedelta(seconds=int(matched[1]) * _SECONDS[(matched[2] or "ms").lower()])
    except OverflowError:
        return timedelta.max


@dataclass(frozen=True, kw_only=True)
class FileListing:
    """Which files of a folder Spark reads, and how, by what recon.yml says: their format, and the source's options.

    Names of options are in lower case.
    """

    format: FileFormat = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)

    def is_on(self, option: str) -> bool:
        """Whether an option is true."""
        return self.options.get(option, "").lower() == "true"

    @property
    def pattern(self) -> str | None:
        """The glob that names of files match; None for all."""
        return self.options.get("pathglobfilter")

    @property
    def max_age(self) -> timedelta | None:
        """By how much a file may be older than the newest one that was read; None where Spark does not look at that.

        So it is where Spark reads the newest files first, and not all of them.
        """
        limited = self.options.keys() & {"maxfilespertrigger", "maxbytespertrigger"}
        return None if self.is_on("latestfirst") and limited else age_of(self.max_age_text)

    @property
    def max_age_text(self) -> str:
        """The same as the option has it."""
        return self.options.get("maxfileage", "7d")


class SourceFile(NamedTuple):
    """A file by its path below the folder, and when it was last modified (UTC).

    `rows` is how many rows it has; or, in a clause, why that is not known.
    """

    path: str
    modified: datetime
    rows: int | str = "its rows were not counted"


class ChangedFile(NamedTuple):
    """A file that the log has at two entries, or that was written again since: the entries, and when it was modified.

    `before` is the path at its first entry, where it was renamed since.
    """

    path: str
    entry: int
    modified: datetime
    again: int | None
    modified_again: datetime
    before: str | None = None


@dataclass(frozen=True, kw_only=True)
class SourceFiles:
    """The files that a stream reads, as the log of its file source and the folder are now, `read_at` (UTC).

    Attributes:
        query_id: the id of the query whose checkpoint has the log.
        last: the number of the log's newest entry; None for a log without any.
        entries: by number, the files of the log's entries from the period on; `missing` are the numbers that it lacks.
        newest: the latest modification time of a file in the log.
        unread: files of the folder that are not in the log; of `known_names` only the name is there.
        twice: files at two entries.
        replaced: files that were modified since they were read.
        elsewhere: how many files of the log are not below the folder.
        renamed: files that have the exact time of one that was read before and is gone.
        unlisted: files that Spark would not have listed by what recon.yml says.
        gone: how many files of the log are no longer there.
        below: how many files in subfolders are not read.
        sources: the file sources of the query.
        digests: checksums of the log up to the ends of ranges that were read (recon.witness.source_files.LogDigest).
    """

    location: str
    exists: bool
    read_at: datetime
    query_id: str
    listing: FileListing = FileListing()
    last: int | None = None
    entries: Mapping[int, Sequence[SourceFile]] = field(default_factory=dict)
    missing: Spans = field(default_factory=Spans)
    files: int = 0
    newest: datetime | None = None
    unread: Sequence[SourceFile] = ()
    known_names: frozenset[str] = frozenset()
    twice: Sequence[ChangedFile] = ()
    replaced: Sequence[ChangedFile] = ()
    elsewhere: int = 0
    gone: int = 0
    below: int = 0
    sources: int = 1
    digests: Mapping[int, str] = field(default_factory=dict)
    unlisted: Sequence[str] = ()
    renamed: Sequence[ChangedFile] = ()

    @property
    def topic(self) -> str:
        """The log as a topic."""
        return topic_of(self.query_id)

    def why_other(self, topic: str) -> str:
        """Why the log as it is now says nothing of what was read, in a clause; "" where it does."""
        if not is_files(topic):
            return f"recon.yml names a folder of files as the source, and it read the {shown(topic)}"
        if topic != self.topic:
            return f"query {query_of(topic)} read it, and the checkpoint, with the log of files, is of {self.query_id}"
        return ""

    def records(self, start: int, end: int) -> int | str:
        """How many rows the files of some log entries have; or, in a clause, why that is not known."""
        total = 0
        for number in range(start, end):
            files = self.entries.get(number)
            if files is None:
                return f"the log of the file source has no entry {number}"
            for file in files:
                if isinstance(file.rows, str):
                    return f"{file.path} of log entry {number}: {file.rows}"
                total += file.rows
        return total

    @cached_property
    def passed_over(self) -> Sequence[tuple[SourceFile, str]]:
        """The files that Spark will not read any more, and why, in a clause."""
        found = []
        for file in self.unread:
            if file.path in self.known_names:
                found.append((file, "a file of the same name was read before (fileNameOnly)"))
            elif self._is_too_old(file.modified):
                more = f"more than {self.listing.max_age_text} (maxFileAge)"
                found.append((file, f"it is older than the newest file that was read by {more}"))
        return found

    def _is_too_old(self, modified: datetime) -> bool:
        age = self.listing.max_age
        return self.newest is not None and age is not None and self.newest - modified > age

    @property
    def waiting(self) -> Sequence[SourceFile]:
        """The files of the folder that Spark reads next."""
        passed_over = {file.path for file, _ in self.passed_over}
        return [file for file in self.unread if file.path not in passed_over]
