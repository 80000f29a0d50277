"""The source offsets of the rows that commits added to a Delta table, read from their data files without Spark.

The files of an append stay in the store until VACUUM removes them, whatever later commits do to its rows. So they show
what the sink made of the rows that it was given. Only three columns of them are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from recon.base.errors import EvidenceError
from recon.base.lazy import np, pa
from recon.base.limits import STORE_S, within
from recon.base.storage import Storage
from recon.base.text import first_line, some
from recon.model import CommitRows, CountedRows, Unavailable
from recon.model.fingerprint import coefficients, of_columns
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.model.wire.columns import OWN_NAMES, SOURCE_COLUMNS, SOURCE_TOPIC, SourceNames
from recon.witness import delta_log

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

_AT_ONCE = 16  # commits that are read at once from a remote store
_PLACES_PER_ROW = 64  # offsets that lie further apart are sorted, to count them, and not marked in a bitmap


def read(
    storage: Storage, versions: Sequence[int], names: SourceNames = OWN_NAMES
) -> Mapping[int, CommitRows | Unavailable]:
    """The rows of the data files that each of these versions added, or why they were not looked at.

    Rows are not looked at where VACUUM removed a file, or it cannot be read, has a deletion vector or no source
    columns. That is no fault of the table. A store that did not answer in time is not asked again.
    """
    if storage.local is not None:
        physical = delta_log.physical_names(storage) if versions else {}
        return {version: _rows_of(storage, version, names, physical) for version in versions}
    silent: list[Unavailable] = []
    mapped = cache(lambda: delta_log.physical_names(storage))

    def in_time(version: int) -> CommitRows | Unavailable:
        if silent:
            return silent[0]
        slow = f"version {version} of {storage.uri} cannot be read: the store did not answer"
        try:
            return within(STORE_S, lambda: _rows_of(storage, version, names, mapped()), slow)
        except EvidenceError as error:
            silent.append(Unavailable("commit_rows", str(error)))
            return silent[0]

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return dict(zip(versions, pool.map(in_time, versions), strict=True))


def _rows_of(
    storage: Storage, version: int, names: SourceNames, physical: Mapping[str, str]
) -> CommitRows | Unavailable:
    try:
        added = delta_log.added_files(storage, version)
        tables = [source_columns(storage, path, action, names, physical) for path, action in added.items()]
        return counted(version, tables)
    except FileNotFoundError:
        return Unavailable("commit_rows", "data files are no longer in the store")
    except Exception as error:  # whatever a store or a damaged file raises: nothing was looked at
        return Unavailable("commit_rows", first_line(error))


def together(storage: Storage, versions: Sequence[int], names: SourceNames = OWN_NAMES) -> CommitRows | Unavailable:
    """The rows that several versions added, as if one commit had; or why nobody will ever know their offsets.

    Raises:
        EvidenceError: the store did not answer, or gave something else; another time it may.
    """

    def added() -> CommitRows | Unavailable:
        files = [file for version in versions for file in delta_log.added_files(storage, version).items()]
        physical = delta_log.physical_names(storage)
        try:
            tables = [source_columns(storage, path, action, names, physical) for path, action in files]
            return counted(max(versions), tables)
        except FileNotFoundError:
            return Unavailable("commit_rows", "data files are no longer in the store")
        except (EvidenceError, ValueError, TypeError, LookupError, NotImplementedError) as error:
            # ValueError, among others, of Arrow: a file that is no Parquet, an offset that is no whole number.
            return Unavailable("commit_rows", first_line(error))

    what = f"version {some(versions)} of {storage.uri} cannot be read"
    try:
        return within(STORE_S, added, f"{what}: the store did not answer")
    except EvidenceError:
        raise
    except Exception as error:  # whatever a store or a damaged file raises
        raise EvidenceError(f"{what}: {first_line(error)}") from error


def source_columns(
    storage: Storage,
    path: str,
    action: Mapping[str, Any],
    names: SourceNames = OWN_NAMES,
    physical: Mapping[str, str] = MappingProxyType({}),
) -> pa.Table:
    """The source columns of a data file, from itself or, where the table is partitioned by one, from the log.

    They have recon's names in the result, whatever they are called in the table, and in the file (`physical`).

    Raises:
        EvidenceError: the file has a deletion vector, or lacks a source column.
    """
    import pyarrow.parquet as pq

    folder, _, name = path.rpartition("/")
    if action.get("deletionVector"):
        raise EvidenceError("data files have deletion vectors")
    logical = {physical.get(column, column): column for column in names.renamed}
    renamed = {column: names.renamed[of] for column, of in logical.items()}
    values = {renamed[c]: v for c, v in (action.get("partitionValues") or {}).items() if c in renamed}
    if names.topic is None:
        values[SOURCE_TOPIC] = names.only_topic
    with Storage(folder, storage.options).opened(name) as opened:
        metadata = pq.read_metadata(opened)
        stored = [column for column in renamed if column in metadata.schema.names]
        missing = [logical[column] for column in renamed if column not in stored and renamed[column] not in values]
        if missing:
            raise EvidenceError(f"data files have no {', '.join(missing)}")
        texts = [column for column in stored if renamed[column] == SOURCE_TOPIC] or None
        file = pq.ParquetFile(opened, metadata=metadata, read_dictionary=texts, pre_buffer=storage.local is None)
        table = file.read(columns=stored, use_threads=False)
    table = table.rename_columns([renamed[column] for column in table.column_names])
    for column in values.keys() - {*table.column_names}:
        table = table.append_column(column, pa.array([values[column]] * table.num_rows, pa.string()))
    return _typed(table)


def as_source_columns(file: Any) -> pa.Table:
    """The source columns of an open Parquet file (pyarrow's ParquetFile) that has them by recon's names.

    Raises:
        EvidenceError: the file lacks a source column.
    """
    if not {*SOURCE_COLUMNS} <= {*file.schema_arrow.names}:
        raise EvidenceError(f"data files have no {', '.join(SOURCE_COLUMNS)}")
    return _typed(file.read(columns=list(SOURCE_COLUMNS), use_threads=False))


def _typed(table: pa.Table) -> pa.Table:
    if any(table.column(column).null_count for column in SOURCE_COLUMNS):
        raise EvidenceError("rows have no source offset")
    return table.select(list(SOURCE_COLUMNS)).cast(_types())


def _types() -> pa.Schema:
    topic = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(zip(SOURCE_COLUMNS, (topic, pa.int64(), pa.int64()), strict=True))


def counted(version: int, tables: Sequence[pa.Table]) -> CommitRows:
    """Counts the rows of a commit, and the different offsets that they carry."""
    rows = pa.concat_tables([*tables, _types().empty_table()]).unify_dictionaries().combine_chunks()
    if not rows.num_rows:
        return CommitRows(version=version, held=CountedRows(0, 0), offsets=0)
    topic, partition, offset = (rows.column(column).chunk(0) for column in SOURCE_COLUMNS)
    topics, offsets = topic.dictionary.to_pylist(), offset.to_numpy()
    # The topic partitions in a row, as numbers from 0 on.
    _, first, where = np.unique(
        topic.indices.to_numpy().astype(np.int64) << 32 | partition.to_numpy(), return_index=True, return_inverse=True
    )
    names = [(topics[topic.indices[row].as_py()], partition[row].as_py()) for row in first.tolist()]
    low, high = np.full(len(names), np.iinfo(np.int64).max), np.zeros(len(names), np.int64)
    np.minimum.at(low, where, offsets)
    np.maximum.at(high, where, offsets)
    of_row = np.array([coefficients(*name) for name in names], np.int64)[where]
    runs = _runs(offsets, where, low, high - low + 1)
    return CommitRows(
        version=version,
        held=CountedRows(rows.num_rows, of_columns(offsets, *of_row.T)),
        offsets=int((runs.ends - runs.starts).sum()),
        spans=sorted(
            OffsetSpan(name, None, number, start, end + 1)
            for (name, number), start, end in zip(names, low.tolist(), high.tolist(), strict=True)
        ),
        present=lambda: [runs.of(place) for place in sorted(range(len(names)), key=names.__getitem__)],
    )


class _Runs(NamedTuple):
    """Unbroken ranges of offsets [start, end), each with the number of its topic partition, which ascends."""

    starts: Ints
    ends: Ints
    where: Ints

    def of(self, number: int) -> Spans:
        """Those of one topic partition."""
        begin, end = np.searchsorted(self.where, [number, number + 1])
        spans = zip(self.starts[begin:end].tolist(), self.ends[begin:end].tolist(), strict=True)
        return Spans(tuple(Span(*span) for span in spans))


def _runs(offsets: Ints, where: Ints, low: Ints, size: Ints) -> _Runs:
    """The offsets that rows carry, each once.

    Each (topic partition, offset) has a place of its own; one between two topic partitions stays free.
    """
    begin = np.cumsum(size + 1) - size
    places, all_places = begin[where] + offsets - low[where], int((size + 1).sum()) + 1
    if all_places > _PLACES_PER_ROW * len(offsets):
        different = np.unique(places)
        breaks = np.flatnonzero(np.diff(different) > 1)
        starts, ends = different[np.append(0, breaks + 1)], different[np.append(breaks, len(different) - 1)] + 1
    else:
        marked = np.zeros(all_places, np.bool_)
        marked[places] = True
        edges = np.flatnonzero(marked[1:] != marked[:-1]) + 1
        starts, ends = edges[::2], edges[1::2]
    of_run = np.searchsorted(begin, starts, side="right") - 1
    shift = low[of_run] - begin[of_run]
    return _Runs(starts + shift, ends + shift, of_run)
