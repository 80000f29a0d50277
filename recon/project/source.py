"""What a pipeline reads: topics of Kafka, a Delta table, or files of a folder."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from recon.base.text import did_you_mean
from recon.model import FileFormat, FileListing, Passes, delta_offsets, file_offsets
from recon.model.delta_offsets import BEGINNING, offset_of
from recon.model.positions import SourceKind
from recon.model.source_files import age_of
from recon.project.fields import Strict, Texts
from recon.project.messages import BadValue

# What recon sets itself from other keys of recon.yml.
_SOURCE_KEYS = {
    "subscribe": "source: topics",
    "subscribepattern": "source: topics",
    "assign": "source: topics",
    "kafka.bootstrap.servers": "kafka: bootstrap.servers",
    "kafka.isolation.level": "source: isolation_level",
}


# Options of Spark's Delta source of which recon knows what they do to the rows that a stream reads.
_DELTA_OPTIONS = (
    "skipChangeCommits",
    "ignoreChanges",
    "ignoreDeletes",
    "readChangeFeed",
    "startingVersion",
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "failOnDataLoss",
    "schemaTrackingLocation",
)


# Options of Spark's file source that say which files it reads. The format's own say which rows a file has.
_FILE_OPTIONS = (
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "latestFirst",
    "maxFileAge",
    "fileNameOnly",
    "pathGlobFilter",
    "recursiveFileLookup",
    "cleanSource",
    "sourceArchiveDir",
    "maxCachedFiles",
    "discardCachedInputRatio",
    "ignoreMissingFiles",
    "ignoreCorruptFiles",
)
_NEAR = 0.85  # of names that differ by a letter or two
_SWITCHES = (
    "skipChangeCommits",
    "ignoreChanges",
    "ignoreDeletes",
    "readChangeFeed",
    "failOnDataLoss",
    "latestFirst",
    "fileNameOnly",
    "recursiveFileLookup",
    "ignoreMissingFiles",
    "ignoreCorruptFiles",
)


class Source(Strict):
    """What a pipeline reads: topics of Kafka, a Delta table, or files of a folder.

    `isolation_level` is the stream's `kafka.isolation.level`. `delta` is the Delta table that it reads instead of
    topics: a path, a URI, or its name in a catalog. `files` is the folder that it reads files of: a path or a URI, and
    `format` is theirs. `options` are further options of the stream's source. For Kafka `recon.read_kafka` sets them;
    for a Delta table or files they say how the query was started (`skipChangeCommits`, `maxFileAge`, …).
    """

    topics: tuple[str, ...] = ()
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_uncommitted"
    delta: str | None = None
    files: str | None = None
    format: FileFormat = "parquet"
    options: Texts = Field(default_factory=dict, repr=False)

    @property
    def kind(self) -> SourceKind:
        """What kind of source it is."""
        if self.files is not None:
            return "a folder of files"
        return "Kafka" if self.delta is None else "a Delta table"

    @property
    def named(self) -> str:
        """What it reads, and the key of recon.yml that says so, in a sentence."""
        if self.files is not None:
            return f"files of {self.files} (source: files)"
        return "Kafka (source: topics)" if self.delta is None else f"the Delta table {self.delta} (source: delta)"

    @model_validator(mode="after")
    def _reads_one_kind(self) -> Source:
        if self.kind == "Kafka":
            for name in self.options:
                if name.lower() in _SOURCE_KEYS:
                    raise BadValue(f"is set by `{_SOURCE_KEYS[name.lower()]}`; leave it out", "options", name)
        else:
            key = "delta" if self.files is None else "files"
            for other in ("topics", "isolation_level", "delta"):
                if other != key and other in self.model_fields_set:
                    of = "a Delta table" if other == "delta" else "Kafka"
                    raise BadValue(f"is for {of}, and the pipeline reads {self.kind} ({key}); keep one of them", other)
        if self.files is None and "format" in self.model_fields_set:
            raise BadValue("is for a folder of files (files), which the source does not name; leave it out", "format")
        for name, value in self.options.items() if self.kind != "Kafka" else ():
            self._require_option(name, value)
        if self.files is not None and any(character in self.files for character in "*?[]{}"):
            raise BadValue(
                f"is {self.files}: name the folder itself; which of its files the query reads, say with options: "
                "pathGlobFilter",
                "files",
            )
        return self

    def _require_option(self, name: str, value: str) -> None:
        """Raises for an option of which it is not known what the query reads with it."""
        options = _DELTA_OPTIONS if self.files is None else _FILE_OPTIONS
        known = {option.lower(): option for option in options}
        if name.lower() not in known and self.files is None:
            raise BadValue(
                f"is no option of a Delta source of which recon knows what it does to the rows that are read"
                f"{did_you_mean(name, options, 'it knows:')}",
                "options",
                name,
            )
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=_NEAR)
        if near and name.lower() not in known:  # what is near to none is an option of the format
            raise BadValue(f"is no option of Spark's file source; did you mean '{known[near[0]]}'?", "options", name)
        if known.get(name.lower()) in _SWITCHES and value.lower() not in ("true", "false"):
            raise BadValue(f"is {value!r}, and Spark takes true or false there", "options", name)
        if name.lower() == "startingversion" and not value.isdecimal():
            raise BadValue(
                f"is {value!r}: it is needed as the number of the version that the query began with, which the "
                "table's history shows",
                "options",
                name,
            )
        if name.lower() == "maxfileage" and age_of(value) is None:
            raise BadValue(f"is {value!r}, and Spark takes a time such as 7d or 12h there", "options", name)

    @property
    def beginning(self) -> int:
        """Where a new query begins, as an offset: with the Delta table, or the first entry of a file source's log."""
        if self.delta is None:
            return 0
        starting = self._option("startingVersion")
        return BEGINNING if starting is None else offset_of(int(starting), 0)

    @property
    def names(self) -> tuple[str, ...]:
        """What it reads, for people: topics, or the table or folder as recon.yml has it."""
        if self.files is not None:
            return (f"{file_offsets.PREFIX}{self.files}",)
        return self.topics if self.delta is None else (f"{delta_offsets.PREFIX}{self.delta}",)

    @property
    def listing(self) -> FileListing:
        """Which files of the folder the query reads, and how."""
        return FileListing(format=self.format, options={name.lower(): value for name, value in self.options.items()})

    def _is_on(self, option: str) -> bool:
        return (self._option(option) or "").lower() == "true"

    @property
    def passes(self) -> Passes:
        """What the query does with commits of the Delta table that remove data files; "" where no option says it."""
        of: Mapping[str, Passes] = {
            "readChangeFeed": "feed",
            "skipChangeCommits": "skip",
            "ignoreChanges": "changes",
            "ignoreDeletes": "deletes",
        }
        return next((passes for option, passes in of.items() if self._is_on(option)), "")

    def _option(self, option: str) -> str | None:
        """The value of an option, in whatever case it is written, as Spark reads them."""
        return next((value for name, value in self.options.items() if name.lower() == option.lower()), None)
