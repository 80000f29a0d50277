"""Looks single source records up in a Delta table and in the files of its commits, without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from recon.base.errors import EvidenceError
from recon.base.lazy import np, pa
from recon.base.storage import Storage, arrow_filesystem
from recon.base.text import first_line
from recon.model.sample import Place
from recon.model.wire.columns import BATCH_ID, OWN_NAMES, SOURCE_COLUMNS, SourceNames
from recon.witness import delta_log
from recon.witness.commit_rows import source_columns

if TYPE_CHECKING:
    import pyarrow.dataset as ds

Row = tuple[str, dict[str, Any]]  # the data file, and the wanted columns


def find(
    storage: Storage,
    places: Collection[Place],
    also: Sequence[str] = (),
    names: SourceNames = OWN_NAMES,
    *,
    numbered: bool | None = None,
) -> dict[Place, list[Row]]:
    """The rows of the table's newest version that carry these source offsets, by place; files are pruned by statistics.

    Args:
        storage: the table.
        places: the source offsets.
        also: further columns that are wanted, beside `_batch_id`.
        names: the columns with the source of each row.
        numbered: whether `_batch_id` is wanted; by default where these columns are recon's.

    Raises:
        EvidenceError: the table cannot be read without Spark, or its rows have no source columns.
    """
    try:
        table, physical = delta_log.open_table(storage), delta_log.physical_names(storage)
        schema = pa.schema(table.schema().to_arrow())
        numbered = names == OWN_NAMES if numbered is None else numbered
        needed = (*((BATCH_ID,) if numbered else ()), *names.renamed)
        lacking = [name for name in needed if name not in schema.names]
        if lacking:
            raise EvidenceError(f"{storage.uri} has no column {lacking[0]}, so its rows name no source record")
        wanted = [name for name in (*needed, *also) if name in schema.names]
        stored = schema if not physical else pa.schema([f.with_name(physical.get(f.name, f.name)) for f in schema])
        dataset = table.to_pyarrow_dataset(filesystem=arrow_filesystem(storage.uri), schema=stored)
        found: dict[Place, list[Row]] = {}
        among = one_of(places, names, physical)
        for fragment in dataset.get_fragments(among):
            columns = [physical.get(name, name) for name in wanted]
            rows = fragment.to_table(schema=stored, columns=columns, filter=among).rename_columns(wanted)
            for place, row in placed(rows, names):
                found.setdefault(place, []).append((fragment.path, row))
        return found
    except EvidenceError:
        raise
    except Exception as error:  # whatever delta-rs, Arrow or a store raises: nothing was looked at
        raise EvidenceError(f"the rows of {storage.uri} cannot be read without Spark: {first_line(error)}") from error


def live_files(storage: Storage) -> Collection[str] | None:
    """The data files of the table's newest version, as `in_commit` names them.

    None for a table with deletion vectors: rows of a file may be gone then.

    Raises:
        EvidenceError: the table cannot be read without Spark.
    """
    try:
        table = delta_log.open_table(storage)
        if table.protocol().min_reader_version > 2:
            return None
        listed = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()["path"].to_pylist()
        return set(delta_log.data_files(storage, listed))
    except Exception as error:  # as of `find`
        raise EvidenceError(f"the files of {storage.uri} cannot be listed: {first_line(error)}") from error


def _counted(table: pa.Table, places: Iterable[Place]) -> Iterator[tuple[Place, int]]:
    """How many rows of a file carry each of these source offsets, where any do; imports no pandas, as filters would."""
    topics, *numbers = (table[name] for name in SOURCE_COLUMNS)
    partitions, offsets = (
        np.concatenate([np.frombuffer(c.buffers()[1], np.int64, len(c), 8 * c.offset) for c in column.chunks if len(c)])
        if table.num_rows
        else np.zeros(0, np.int64)
        for column in numbers
    )
    for place in places:
        rows = np.flatnonzero((partitions == place[1]) & (offsets == place[2])).tolist()
        if count := sum(topics[row].as_py() == place[0] for row in rows):
            yield place, count


def one_of(
    places: Iterable[Place], names: SourceNames = OWN_NAMES, physical: Mapping[str, str] = MappingProxyType({})
) -> ds.Expression:
    """The condition that a row carries one of these source offsets; `physical` are names of columns in the files."""
    import pyarrow.dataset as ds

    offsets: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset in places:
        offsets.setdefault((topic, partition), []).append(offset)

    def column(name: str) -> ds.Expression:
        return ds.field(physical.get(name, name))

    partition_column, offset_column = column(names.partition), column(names.offset)
    condition = ds.scalar(False)
    for (topic, partition), of_partition in offsets.items():
        among = offset_column.isin(of_partition) & (offset_column >= min(of_partition))
        among &= offset_column <= max(of_partition)  # ranges are what statistics are compared with
        of_topic = ds.scalar(names.only_topic == topic) if names.topic is None else column(names.topic) == topic
        condition |= of_topic & (partition_column == partition) & among
    return condition


def placed(table: pa.Table, names: SourceNames = OWN_NAMES) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Each row of a table with its source offset."""
    for row in table.to_pylist():
        topic = names.only_topic if names.topic is None else row[names.topic]
        yield (str(topic), int(row[names.partition]), int(row[names.offset])), row


def in_commit(
    storage: Storage, version: int, places: Collection[Place], names: SourceNames = OWN_NAMES
) -> dict[Place, dict[str, int]]:
    """The data files that a commit added and that have rows of these source offsets, whatever became of them since.

    With how many rows each file has of an offset.

    Raises:
        EvidenceError: the commit or one of its files is there no more, or cannot be read.
    """
    found: dict[Place, dict[str, int]] = {}
    try:
        physical = delta_log.physical_names(storage)
        for path, action in delta_log.added_files(storage, version).items():
            for place, count in _counted(source_columns(storage, path, action, names, physical), places):
                found.setdefault(place, {})[path] = count
    except EvidenceError:
        raise
    except FileNotFoundError as error:
        raise EvidenceError(f"data files of version {version} are no longer in the store") from error
    except Exception as error:  # whatever a store or a damaged file raises
        raise EvidenceError(f"the files of version {version} cannot be read: {first_line(error)}") from error
    return found
