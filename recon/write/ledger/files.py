"""Rows of a Delta table's data files on a local disk, for the store: delta-rs says which, Parquet is read here.

A day's ledger has 1.7 million offset ranges. Through delta-rs their topic names become as many strings; here they stay
the dictionary that Parquet keeps them in. The ranges of rows that are not wanted are not decoded. Files are not mapped
into memory: where one is cut off while it is read, the system would end the process (SIGBUS).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import date, datetime
from typing import Any, NamedTuple
from urllib.parse import unquote

from recon.base.lazy import pa, pc
from recon.write.ledger import arrow

NESTED = "offsets"
_NAMES = ("offsets.list.element.topic", "offsets.list.element.topic_id")
_STEP = 64  # entries decoded at a time where few of a file are wanted
# Rows of one row group. Parquet keeps the bounds of each, so that only the few that may hold what is wanted are read.
ROW_GROUP = 2_048
_DECODERS = 2  # row groups of one file decoded at the same time
_IN_RANGES = "offsets.list.element."

# A column, and its least and most value; None where there is no such bound.
Bound = tuple[str, str | int | datetime | None, str | int | datetime | None]


class Place(NamedTuple):
    """One offset of a topic partition, whatever the topic's id."""

    topic: str
    partition: int
    offset: int


class Unfamiliar(Exception):
    """A file's columns are not stored as the ledger's writers store them: read it through delta-rs."""


def day_of(path: str) -> date:
    """The partition a data file belongs to, by its folder."""
    return date.fromisoformat(unquote(path.rpartition("/date=")[2].partition("/")[0]))


def schema_of(schema: pa.Schema) -> pa.Schema:
    """The schema that `read` gives: the texts inside the ranges are dictionary-encoded."""
    at = schema.get_field_index(NESTED)
    if at < 0:
        return schema
    coded = pa.dictionary(pa.int32(), pa.string())
    fields = [
        pa.field(f.name, coded if pa.types.is_string(f.type) else f.type) for f in schema.field(at).type.value_type
    ]
    return schema.set(at, pa.field(NESTED, pa.list_(pa.field("element", pa.struct(fields)))))


def read(
    path: str,
    schema: pa.Schema,
    names: Sequence[str],
    filtered_by: Sequence[str],
    wanted: Callable[[pa.Table], pa.ChunkedArray | None],
    added: Collection[str] = (),
    bounds: Sequence[Bound] = (),
) -> pa.Table:
    """The wanted rows of one data file, in the file's order.

    Args:
        path: the file, in a folder `date=YYYY-MM-DD`.
        schema: of the table, as `schema_of` returns it.
        names: the columns to return.
        filtered_by: the columns that `wanted` needs.
        wanted: makes the mask of rows, None for all, from the flat columns.
        added: columns that a file of an earlier version may lack: NULL there.
        bounds: of the wanted rows; row groups that have none within them are not decoded.

    Raises:
        OSError: the file is missing or torn.
        Unfamiliar: another writer wrote it, with other types.
    """
    stored = [n for n in dict.fromkeys((*names, *filtered_by)) if n != "date"]
    with _opened(path, _NAMES if NESTED in stored else ()) as file:
        types = {field.name: field.type for field in file.schema_arrow}
        stored = [n for n in stored if n in types or n not in added]
        if any(types.get(n) != schema.field(n).type for n in stored):
            raise Unfamiliar(path)
        groups = row_groups(file, bounds)
        if not groups:
            return arrow.empty(pa.schema([schema.field(n) for n in names]))
        few = len(groups) == 1 and file.metadata.row_group(groups[0]).num_rows <= _STEP
        flat = stored if few else [n for n in stored if n != NESTED]
        rows = file.read_row_groups(groups, columns=flat, use_threads=not few)
        mask = wanted(rows)
        if mask is not None:
            mask = mask.combine_chunks()
            rows = rows.filter(mask)
        if NESTED in stored and not few:
            rows = rows.append_column(NESTED, _ranges(path, file, groups, mask, rows.num_rows))
    if "date" in names:
        rows = rows.append_column("date", arrow.column([day_of(path)] * rows.num_rows, pa.date32()))
    return arrow.with_nulls(rows, pa.schema([schema.field(n) for n in names]))


def _opened(path: str, coded: Sequence[str], known: pa.parquet.FileMetaData | None = None) -> pa.parquet.ParquetFile:
    """A data file, whose columns `coded` are read as dictionaries; `known` is its footer where that was read."""
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path, metadata=known, read_dictionary=list(coded) or None, pre_buffer=False)
    except KeyError as error:
        raise Unfamiliar(path) from error


def row_groups(file: pa.parquet.ParquetFile, bounds: Iterable[Bound]) -> list[int]:
    """The row groups that may have a row within the bounds, by the statistics in the file's footer."""
    at = {file.schema.column(n).path: n for n in range(len(file.schema.names))}
    known = [(at[name], _stored(least), _stored(most)) for name, least, most in bounds if name in at]
    of_group = file.metadata.row_group
    return [n for n in range(file.metadata.num_row_groups) if _may_hold(of_group(n), known)]


def _may_hold(group: Any, bounds: Sequence[tuple[int, Any, Any]]) -> bool:
    for column, least, most in bounds:
        found = group.column(column).statistics
        if found is None or not found.has_min_max:
            continue
        if (most is not None and found.min_raw > most) or (least is not None and found.max_raw < least):
            return False
    return True


def _stored(value: str | int | datetime | None) -> bytes | int | None:
    """A bound as Parquet stores it: pyarrow's own conversion of an instant imports pandas."""
    if isinstance(value, datetime):
        return arrow.microseconds(value)
    return value.encode() if isinstance(value, str) else value


def _ranges(
    path: str, file: pa.parquet.ParquetFile, groups: Sequence[int], mask: pa.Array | None, count: int
) -> pa.ChunkedArray:
    """The ranges of the rows under the mask; row groups without one are left, and none is decoded behind the last."""
    kind = file.schema_arrow.field(NESTED).type
    if mask is None or count * 2 > len(mask):
        column = pa.chunked_array(_all_ranges(path, file, groups), type=kind)
        return column if mask is None else column.filter(mask)
    parts, begin, left = [], 0, count
    for group in groups:
        at, begin = begin, begin + file.metadata.row_group(group).num_rows
        here = _true(mask.slice(at, begin - at))
        left -= here
        for batch in file.iter_batches(_STEP, row_groups=[group], columns=[NESTED]) if here else ():
            mine = mask.slice(at, len(batch))
            if matching := _true(mine):
                parts.append(batch.column(0).filter(mine))
            at, here = at + len(batch), here - matching
            if not here:
                break
        if not left:
            break
    return pa.chunked_array(parts, type=kind)


def _all_ranges(path: str, file: pa.parquet.ParquetFile, groups: Sequence[int]) -> list[pa.Array]:
    """The ranges of some row groups of a file, in order.

    One row group after the other: Arrow reads no texts inside of lists as dictionaries from several at once. It decodes
    a column in one thread. So several row groups of a day are decoded at the same time, each thread by a reader of its
    own.
    """

    def decoded(first: int) -> list[Sequence[pa.Array]]:
        with nullcontext(file) if first == 0 else _opened(path, _NAMES, file.metadata) as mine:
            return [mine.read_row_group(group, columns=[NESTED])[NESTED].chunks for group in groups[first::_DECODERS]]

    with ThreadPoolExecutor(_DECODERS) if len(groups) > 1 else nullcontext() as pool:
        firsts = range(min(len(groups), _DECODERS))
        shares = list(map(decoded, firsts) if pool is None else pool.map(decoded, firsts))
    return [chunk for place in range(len(groups)) for chunk in shares[place % _DECODERS][place // _DECODERS]]


def _true(mask: pa.Array) -> int:
    return int(pc.sum(mask).as_py() or 0)


def sequences(path: str, equals: Sequence[tuple[str, str]], place: Place) -> list[int]:
    """The sequences of those entries of a data file whose ranges hold an offset, whose texts are the given ones.

    Row groups whose bounds exclude it are not decoded.

    Raises:
        OSError: the file is missing or torn.
        Unfamiliar: another writer wrote it, with columns of other names.
    """
    with _opened(path, _NAMES) as file:
        names = [*(name for name, _ in equals), "sequence"]
        names += [_IN_RANGES + name for name in ("topic", "partition", "start_offset", "end_offset")]
        groups = row_groups(file, _bounds(equals, place))
        return [n for group in groups for n in holding(file.read_row_group(group, columns=names), equals, place)]


def _bounds(equals: Sequence[tuple[str, str]], place: Place) -> Iterator[Bound]:
    yield f"{_IN_RANGES}start_offset", 0, place.offset
    yield f"{_IN_RANGES}end_offset", place.offset + 1, None
    yield f"{_IN_RANGES}partition", place.partition, place.partition
    yield from ((name, text, text) for name, text in equals)


def holding(rows: pa.Table, equals: Sequence[tuple[str, str]], place: Place) -> list[int]:
    """The sequences of those rows whose ranges hold an offset, whose texts are the given ones."""
    for name, text in equals:
        rows = rows.filter(pc.equal(rows[name], arrow.scalar(text)))
    rows = rows.unify_dictionaries().combine_chunks()
    if not rows.num_rows:
        return []
    ranges, numbers = rows[NESTED].chunk(0), rows["sequence"].chunk(0)
    flat = ranges.flatten()
    at = arrow.scalar(place.offset)
    holds = pc.and_(pc.less_equal(flat.field("start_offset"), at), pc.greater(flat.field("end_offset"), at))
    holds = pc.and_(holds, pc.equal(flat.field("partition"), arrow.scalar(place.partition)))
    of_topic = arrow.values(flat.field("topic").filter(holds))
    of_entry = arrow.values(numbers.take(pc.list_parent_indices(ranges).filter(holds)))
    return list(dict.fromkeys(n for n, topic in zip(of_entry, of_topic, strict=True) if topic == place.topic))
