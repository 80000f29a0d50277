"""What is already known of a stream that runs: its checkpoint, the table that it writes, and Kafka.

For `recon init --from`, which writes a recon.yml of it. Nothing is guessed that a witness can show. A column counts as
the source of rows only where a commit's rows agree with the offsets that its micro-batch read.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from recon.base.errors import ConfigError, EvidenceError
from recon.base.storage import Storage
from recon.base.text import short_path, some
from recon.model import (
    CheckpointBatch,
    CheckpointWitness,
    CommitRows,
    FileFormat,
    FileListing,
    TableCommit,
    TableLog,
)
from recon.model.file_offsets import is_files
from recon.model.offsets import OffsetSpan
from recon.model.wire.columns import BATCH_ID, SourceNames
from recon.witness import checkpoint, commit_rows, delta_log, file_logs, source_files
from recon.witness.observed import attributed, is_of_plan, plans, ranges_of, written
from recon.witness.observed_rows import are_within, placed

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
        batches: the micro-batches that the checkpoint has whole: the first and the last batch_id; None for none.
        target: the table's path or URI.
        native: whether Spark's own sink writes the table; False where its commits are of foreachBatch, or of recon.
        app_id: the txn application id under which a function for foreachBatch writes the table, with batch ids as
            versions; None where no commit has one, or several fit.
        by_rows: whether commits without such a number have rows of what one micro-batch of the query read.
        stamped: whether recon's hook writes it.
        columns: the table's columns and their types.
        keys: columns that look like a key of its rows.
        source_columns: those with the source of each row, by their names; None for none.
        doubt: why they are not taken for it: their rows do not agree, or were not looked at; "" where they are.
        as_many: whether each micro-batch that was compared and read something has as many rows as offsets; None where
            none could be compared.
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
    doubt: str = ""
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
    where = target if target is not None else _table_of(state, location, topics)
    storage = Storage(where, options)
    log = delta_log.read(storage)
    if not log.exists:
        raise ConfigError(f"{_what_is_there(storage)} {_let_recon_write(location, topics)}")
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
        source_columns=names,
        doubt=(_doubt_of_topic(log, names, state) or _doubt_of(storage, names, looked)) if names is not None else "",
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
    at: Storage, folder: Storage, looked: Sequence[tuple[TableCommit, CheckpointBatch]], format_: FileFormat | None
) -> Callable[[OffsetSpan], int | str]:
    """Tells how many rows the files of a range have."""
    spans = [span for _, batch in looked for span in ranges_of(batch)]
    source = source_files.read(at, folder, spans, FileListing(format=format_ or "parquet"))
    return lambda span: source.records(*span.span)


def _topics(state: CheckpointWitness) -> dict[str, dict[int, int]]:
    """How far the newest plan goes in each topic partition; of those whose start the checkpoint tells."""
    last = next((batch for batch in reversed(state.batches) if batch.starts_known), state.last)
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


def _table_of(state: CheckpointWitness, location: str, topics: Collection[str]) -> str:
    """The Delta table around a local checkpoint that its query wrote last."""
    folder = Storage(location).local
    if folder is None:
        raise ConfigError(f"name the Delta table that the query of checkpoint {location} writes with --target")
    inside = [parent for parent in folder.parents if (parent / _LOG).is_dir()][:1]
    candidates = inside or list(_near(folder.parent.parent, _LOG))
    mine = [table for table in candidates if _wrote(table, state.query_id)]
    if len(mine) == 1:
        return str(mine[0])
    where = f"the table that query {state.query_id} of checkpoint {location} writes was not found"
    if mine:
        raise ConfigError(f"{where}: {some(map(str, mine))} have commits of it; name it with --target")
    files = [str(place) for place in _near(folder.parent.parent, file_logs.SINK) if _wrote_files(place, state, folder)]
    as_files = f" (Spark's file sink wrote {some(files)} at the time of its newest micro-batch)" if files else ""
    raise ConfigError(
        f"{where}: no Delta table around it has a commit of it{as_files}, and recon observes Delta tables alone; if "
        "the query writes one elsewhere, or by a function of its own, name it with --target, else "
        f"{_let_recon_write(location, topics)}"
    )


def _what_is_there(storage: Storage) -> str:
    """What stands where no Delta table is, as the beginning of a sentence."""
    alone = "recon observes Delta tables alone;"
    if file_logs.is_there(storage.child(file_logs.SINK)):
        return f"{storage.uri} is a folder that Spark's own file sink writes ({file_logs.SINK}), and {alone}"
    if any(name.endswith(".metadata.json") for name in storage.names("metadata")):
        return f"{storage.uri} is an Iceberg table, and {alone}"
    there = f"{storage.uri} has no Delta log" if storage.names() else f"there is no Delta table at {storage.uri}"
    return f"{there}, and {alone} name the table that the query writes with --target, or"


def _let_recon_write(location: str, topics: Collection[str]) -> str:
    """What to do where recon cannot observe what a query writes."""
    local = Storage(location).local
    options = ["--topic", *topics] if len(topics) == 1 else []
    command = shlex.join(["recon", "init", *options, "--checkpoint", short_path(local) if local else location])
    return (
        f"let recon write: `{command}` makes a recon.yml, whose sink docs/sinks.md shows for what the query writes "
        "(files, Kafka, Iceberg, a database); files need a new folder as target"
    )


def _near(root: Path, marker: str) -> Iterable[Path]:
    """The folders in a folder and below that have a folder of this name, as far as a search is bounded."""
    for seen, (current, folders, _) in enumerate(os.walk(root)):
        if marker in folders:
            yield Path(current)
            folders.clear()
        elif seen > _FOLDERS or len(Path(current).relative_to(root).parts) >= _DEPTH:
            folders.clear()
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]


def _wrote_files(place: Path, state: CheckpointWitness, folder: Path) -> bool:
    """Whether Spark's file sink wrote the checkpoint's newest micro-batch there: between its plan and its end."""
    wrote, batch = file_logs.newest_of_sink(Storage(str(place))), state.last
    if wrote is None or batch is None or batch.planned_at is None or wrote[0] != batch.batch_id:
        return False
    ended = Storage(str(folder)).stored("commits").get(str(batch.batch_id))
    planned = int(batch.planned_at.timestamp() * 1000)
    return planned <= wrote[1] and (ended is None or wrote[1] <= ended.modified)


def _wrote(table: Path, query_id: str) -> bool:
    try:
        return any(wrote[0] == query_id for _, wrote in written(delta_log.read(Storage(str(table)))))
    except EvidenceError:
        return False


def _require_of_query(state: CheckpointWitness, log: TableLog, *, native: bool) -> None:
    """A table that Spark's own sink writes is this query's."""
    others = sorted({query_id for _, (query_id, _) in written(log)} - {state.query_id})
    if others and not native:
        raise ConfigError(
            f"{log.location} was written by query {some(others)}, and checkpoint {state.location} is of query "
            f"{state.query_id}: name the checkpoint and the table of one query"
        )


def _app_of(log: TableLog, state: CheckpointWitness) -> str | None:
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
    return {field.name: str(getattr(field.type, "type", "nested")) for field in fields}


def _keys(columns: Mapping[str, str], target: str) -> list[str]:
    """The first column that is named as a key of the table's rows."""
    table = target.rstrip("/").rpartition("/")[2].lower()
    names = ("id", "uuid", "event_id", f"{table}_id", f"{table.removesuffix('s')}_id", f"{table.removesuffix('es')}_id")
    return [column for column in columns if column.lower() in names][:1]


def _newest(log: TableLog) -> TableLog:
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


def _doubt_of_topic(log: TableLog, names: SourceNames, state: CheckpointWitness) -> str:
    """Why columns without the topic are not taken for the source of rows: another query's have the same offsets."""
    others = sorted({query_id for _, (query_id, _) in written(log) if query_id} - {state.query_id})
    if names.topic is not None or not others:
        return ""
    return f"query {some(others)} writes the table, too, and no column has the topic"


def _doubt_of(storage: Storage, names: SourceNames, looked: Sequence[tuple[TableCommit, CheckpointBatch]]) -> str:
    """Why columns are not taken for the source of rows: those of the newest micro-batch have to carry what it read."""
    for commit, batch in reversed(looked):
        if commit.rows_added:
            rows = commit_rows.read(storage, [commit.version], names)[commit.version]
            if not isinstance(rows, CommitRows):
                return f"rows of version {commit.version} could not be read: {rows.reason}"
            agree = are_within(rows.spans, ranges_of(batch))
            return "" if agree else f"rows of version {commit.version} carry other offsets than their micro-batch read"
    return "no micro-batch that was looked at has rows"


def _as_many(
    looked: Sequence[tuple[TableCommit, CheckpointBatch]], rows_of: Callable[[OffsetSpan], int | str] | None
) -> bool | None:
    """Whether micro-batches that read something have as many rows as offsets; or as their files, by `rows_of`."""
    in_source = rows_of or (lambda span: span.span.size)
    counted = [([in_source(span) for span in ranges_of(batch)], commit.rows_taken) for commit, batch in looked]
    sizes = [(sum(of for of in held if not isinstance(of, str)), rows) for held, rows in counted]
    if any(isinstance(of, str) for held, _ in counted for of in held):
        return None
    with_offsets = [(size, rows) for size, rows in sizes if size]
    return all(size == rows for size, rows in with_offsets) if with_offsets else None
