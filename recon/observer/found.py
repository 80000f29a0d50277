"""What is already known of a stream that runs: its checkpoint, the table that it writes, and Kafka.

For `recon init --from`, which writes a recon.yml of it. Nothing is guessed that a witness can show: a column is taken
for the source of rows only where the rows of a commit agree with the offsets that its micro-batch read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from recon.errors import ConfigError, EvidenceError
from recon.evidence import checkpoint, commit_rows, delta_log, source_files
from recon.evidence.observed import attributed, is_of_plan, plans, ranges_of, written
from recon.evidence.observed_rows import are_within, placed
from recon.model import (
    CheckpointBatch,
    CheckpointWitness,
    CommitRows,
    DeltaCommit,
    DeltaWitness,
    FileFormat,
    FileListing,
)
from recon.model.file_offsets import is_files
from recon.model.offsets import OffsetSpan
from recon.model.wire.columns import BATCH_ID, SourceNames
from recon.storage import Storage
from recon.text import some

_LOG = "_delta_log"
# Folders that are searched for the table of a query, and how deep: lake/bronze/orders beside checkpoints/orders.
_FOLDERS, _DEPTH = 2000, 3
_COMMITS = 20  # newest micro-batches that are compared with their plans
# Names that people give the columns with Kafka's topic, partition and offset.
_NAMES = {
    "topic": ("topic", "kafka_topic", "source_topic", "_topic", "_kafka_topic", "__topic"),
    "partition": ("partition", "kafka_partition", "source_partition", "_partition", "_kafka_partition", "__partition"),
    "offset": ("offset", "kafka_offset", "source_offset", "_offset", "_kafka_offset", "__offset"),
}
_WHOLE = ("byte", "short", "integer", "long")


@dataclass(frozen=True, kw_only=True)
class FoundStream:
    """A stream as its checkpoint and its table show it.

    Attributes:
        checkpoint: the checkpoint's folder or URI.
        query_id: the query's.
        topics: the topics that it reads, with how far it has come in each partition; none where it reads files.
        files: the folder that it reads files of, a path or URI; None where it reads Kafka.
        format: the format of these files, where their names say it.
        batches: the micro-batches that the checkpoint has whole: the first and the last one's number; None for none.
        target: the table's path or URI.
        native: whether Spark's own sink writes the table; False where its commits are of foreachBatch, or of recon.
        app_id: the application id under which a function for foreachBatch writes the table, with the numbers of the
            query's micro-batches; None where no commit has one, or those of several fit.
        by_rows: whether commits without such a number have rows of what one micro-batch of the query read.
        stamped: whether recon's hook writes it.
        columns: the table's columns and their types.
        keys: columns that look like a key of its rows.
        source_columns: those with the source of each row, where the rows agree; None for none.
        as_many: whether each micro-batch that read something, as far as was looked, has as many rows as offsets; None
            where none was there to be looked at.
    """

    checkpoint: str
    query_id: str
    topics: Mapping[str, Mapping[int, int]]
    batches: tuple[int, int] | None
    target: str
    native: bool
    stamped: bool
    columns: Mapping[str, str]
    keys: Sequence[str] = ()
    source_columns: SourceNames | None = None
    as_many: bool | None = None
    app_id: str | None = None
    by_rows: bool = False
    files: str | None = None
    format: FileFormat | None = None

    @property
    def observed(self) -> bool:
        """Whether recon can observe what writes the table now."""
        return (self.native or self.app_id is not None or self.by_rows) and not self.stamped


def found_stream(location: str, target: str | None, options: Mapping[str, str]) -> FoundStream:
    """Reads a checkpoint and the table that its query writes.

    Args:
        location: the checkpoint's folder or URI.
        target: the table; None to search for it around a local checkpoint.
        options: of the object store.

    Raises:
        ConfigError: the query reads neither Kafka nor files, or its table is not found or is none.
        EvidenceError: the checkpoint, or the table's log, cannot be read.
    """
    at = Storage(location, options)
    state = checkpoint.read(at)
    source = _file_source(at)
    files, format_ = (None, None) if source is None else source_files.found(at, source)
    if files is not None:
        state = checkpoint.read(at, positions=True)
    topics = _topics(state) if files is None else {}
    where = target if target is not None else _table_of(state, location)
    storage = Storage(where, options)
    log = delta_log.read(storage)
    if not log.exists:
        raise ConfigError(f"there is no Delta table at {where}; name the table that the query writes with --target")
    native = any(wrote[0] == state.query_id for _, wrote in written(log))
    _require_of_query(state, log, native=native)
    app_id = None if native else _app_of(log, state)
    columns = _columns(storage)
    names = _named_as_sources(columns, sorted(topics))
    numbers: Mapping[int, int] = {}
    if not native and app_id is None and names is not None:
        numbers = placed(_newest(log), state, (), partial(commit_rows.together, storage, names=names)).numbers
    commits = [
        (commit, wrote)
        for commit, wrote in written(attributed(log, app_id, state, by_rows=numbers))
        if wrote[0] == state.query_id
    ]
    planned = plans(state)
    looked = [
        (commit, planned[wrote])
        for commit, wrote in commits[-_COMMITS:]
        if wrote in planned and is_of_plan(commit, planned[wrote])
    ]
    whole = [batch.batch_id for batch in planned.values()]
    return FoundStream(
        checkpoint=location,
        query_id=state.query_id,
        topics=topics,
        batches=(min(whole), max(whole)) if whole else None,
        target=where,
        native=native,
        stamped=any(commit.stamp is not None for commit in log.commits.values()),
        columns=columns,
        keys=_keys(columns, where),
        source_columns=names if names is not None and _agree(storage, names, looked) else None,
        as_many=_as_many(looked, _rows_of_files(at, Storage(files, options), looked, format_) if files else None),
        app_id=app_id,
        by_rows=bool(numbers),
        files=files,
        format=format_,
    )


def _file_source(at: Storage) -> int | None:
    """The number of the one source of a query that reads files and nothing else; None for another query."""
    last = checkpoint.read(at, positions=True).last
    sources = [(span.source, span.topic) for span in last.ranges] if last is not None else []
    return sources[0][0] if len(sources) == 1 and is_files(sources[0][1]) else None


def _rows_of_files(
    at: Storage, folder: Storage, looked: Sequence[tuple[DeltaCommit, CheckpointBatch]], format_: FileFormat | None
) -> Callable[[OffsetSpan], int | str]:
    """Tells how many rows the files of a range have."""
    spans = [span for _, batch in looked for span in ranges_of(batch)]
    source = source_files.read(at, folder, spans, FileListing(format=format_ or "parquet"))
    return lambda span: source.records(*span.span)


def _topics(state: CheckpointWitness) -> dict[str, dict[int, int]]:
    """How far the newest plan goes in each topic partition."""
    last = state.last
    if last is None:
        raise ConfigError(
            f"checkpoint {state.location} holds no micro-batch; start the query once, then run recon init again"
        )
    ends = [(span.topic, span.partition, span.end_offset) for span in last.ranges]
    ends += [(topic, partition, end) for _, topic, partition, end in last.new_partitions]
    if not ends:
        raise ConfigError(
            f"the query of checkpoint {state.location} has no offsets of Kafka in its newest micro-batch: name the "
            "checkpoint of a query that reads Kafka or files, or, where it reads a Delta table, write recon.yml by "
            "hand (source: {delta: …}), as the checkpoint does not say where the table is"
        )
    topics: dict[str, dict[int, int]] = {}
    for topic, partition, end in sorted(ends):
        topics.setdefault(topic, {})[partition] = end
    return topics


def _table_of(state: CheckpointWitness, location: str) -> str:
    """The Delta table around a local checkpoint that its query wrote last."""
    folder = Storage(location).local
    if folder is None:
        raise ConfigError(f"name the table that the query of checkpoint {location} writes with --target")
    inside = [parent for parent in folder.parents if (parent / _LOG).is_dir()][:1]
    candidates = inside or list(_tables_near(folder.parent.parent))
    mine = [table for table in candidates if _wrote(table, state.query_id)]
    if len(mine) == 1:
        return str(mine[0])
    found = f"{some(map(str, mine))} have commits of it" if mine else "no Delta table around it has a commit of it"
    raise ConfigError(
        f"the table that query {state.query_id} of checkpoint {location} writes was not found: {found}; "
        "name it with --target"
    )


def _tables_near(root: Path) -> Iterable[Path]:
    """The Delta tables in a folder and below, as far as a search is bounded."""
    for seen, (current, folders, _) in enumerate(os.walk(root)):
        if _LOG in folders:
            yield Path(current)
            folders.clear()
        elif seen > _FOLDERS or len(Path(current).relative_to(root).parts) >= _DEPTH:
            folders.clear()
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]


def _wrote(table: Path, query_id: str) -> bool:
    try:
        return any(wrote[0] == query_id for _, wrote in written(delta_log.read(Storage(str(table)))))
    except EvidenceError:
        return False


def _require_of_query(state: CheckpointWitness, log: DeltaWitness, *, native: bool) -> None:
    """A table that Spark's own sink writes is this query's."""
    others = sorted({query_id for _, (query_id, _) in written(log)} - {state.query_id})
    if others and not native:
        raise ConfigError(
            f"{log.location} was written by query {some(others)}, and checkpoint {state.location} is of query "
            f"{state.query_id}: name the checkpoint and the table of one query"
        )


def _app_of(log: DeltaWitness, state: CheckpointWitness) -> str | None:
    """The one application id whose numbers are those of micro-batches that were planned before."""
    planned = {batch.batch_id: batch for batch in state.batches}
    apps = {
        app
        for commit in log.commits.values()
        if commit.stamp is None and commit.wrote is None
        for app, number in commit.txn.items()
        if number in planned and is_of_plan(commit, planned[number])
    }
    return apps.pop() if len(apps) == 1 else None


def _columns(storage: Storage) -> dict[str, str]:
    """The table's columns with the names of Delta's types."""
    try:
        fields = delta_log.open_table(storage).schema().fields
    except Exception as error:  # deltalake raises several kinds where it cannot read a table
        raise EvidenceError(f"the schema of {storage.uri} cannot be read: {error}") from error
    return {one.name: str(getattr(one.type, "type", "nested")) for one in fields}


def _keys(columns: Mapping[str, str], target: str) -> list[str]:
    """The first column that is named as a key of the table's rows."""
    table = target.rstrip("/").rpartition("/")[2].lower()
    names = ("id", "uuid", "event_id", f"{table}_id", f"{table.removesuffix('s')}_id", f"{table.removesuffix('es')}_id")
    return [column for column in columns if column.lower() in names][:1]


def _newest(log: DeltaWitness) -> DeltaWitness:
    """The log with the newest commits alone."""
    newest = sorted(log.commits)[-_COMMITS:]
    return replace(log, commits={version: log.commits[version] for version in newest})


def _named_as_sources(columns: Mapping[str, str], topics: Sequence[str]) -> SourceNames | None:
    """The columns that are named as people name those with Kafka's topic, partition and offset."""
    by_name = {column.lower(): column for column in columns}

    def named(what: str, types: Sequence[str]) -> str | None:
        there = (by_name[name] for name in _NAMES[what] if name in by_name)
        return next((column for column in there if columns[column] in types), None)

    partition, offset, topic = named("partition", _WHOLE), named("offset", _WHOLE), named("topic", ("string",))
    if not topics or partition is None or offset is None or BATCH_ID in columns or (topic is None and len(topics) > 1):
        return None
    return SourceNames(topic, partition, offset, "" if topic is not None else topics[0])


def _agree(storage: Storage, names: SourceNames, looked: Sequence[tuple[DeltaCommit, CheckpointBatch]]) -> bool:
    """Whether the rows of the newest micro-batch that has some carry offsets that it read."""
    for commit, batch in reversed(looked):
        if commit.rows_added:
            rows = commit_rows.read(storage, [commit.version], names)[commit.version]
            return isinstance(rows, CommitRows) and are_within(rows.spans, ranges_of(batch))
    return False


def _as_many(
    looked: Sequence[tuple[DeltaCommit, CheckpointBatch]], rows_of: Callable[[OffsetSpan], int | str] | None
) -> bool | None:
    """Whether micro-batches that read something have as many rows as offsets; or as their files, by `rows_of`."""
    in_source = rows_of or (lambda span: span.span.size)
    counted = [([in_source(span) for span in ranges_of(batch)], commit.rows_taken) for commit, batch in looked]
    sizes = [(sum(of for of in held if not isinstance(of, str)), rows) for held, rows in counted]
    if any(isinstance(of, str) for held, _ in counted for of in held):
        return None
    with_offsets = [(size, rows) for size, rows in sizes if size]
    return all(size == rows for size, rows in with_offsets) if with_offsets else None
