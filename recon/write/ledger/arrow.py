"""Converts between Arrow, NumPy and Python without copies where they share memory.

pyarrow's own conversions (`to_numpy`, `pa.array`, `pa.scalar`, `as_py` of a timestamp) import pandas when first used,
which costs an audit without Spark a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from recon.base.lazy import np, pa, pc

if TYPE_CHECKING:
    import numpy.typing as npt

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FEW_RUNS = 100  # of rows that are in order: slices of so few are made without a copy


def numbers(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column of integers or instants (as microseconds) without nulls, as NumPy; one chunk is not copied."""
    chunks = getattr(column, "chunks", [column])
    width = column.type.bit_width
    views = [np.frombuffer(c.buffers()[1], f"i{width // 8}", len(c), c.offset * width // 8) for c in chunks if len(c)]
    if not views:
        return np.zeros(0, f"i{width // 8}")
    return views[0] if len(views) == 1 else np.concatenate(views)


def array(values: npt.NDArray[np.integer[Any]]) -> pa.Array:
    """Integers as an Arrow array; nothing is copied."""
    whole = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(whole.dtype), len(whole), [None, pa.py_buffer(whole)])


def scalar(value: str | int | datetime) -> pa.Scalar:
    """A text, an integer, or an instant in microseconds, as an Arrow scalar."""
    if isinstance(value, int):
        return column([value], pa.int64())[0]
    return column([value], pa.string() if isinstance(value, str) else pa.timestamp("us", tz="UTC"))[0]


def values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """A column as Python values; instants in UTC."""
    if not pa.types.is_timestamp(column.type):
        return list(column.to_pylist())
    if column.null_count:
        filled = column.cast(pa.int64()).to_pylist()
        return [None if micros is None else _EPOCH + timedelta(microseconds=micros) for micros in filled]
    # NumPy makes naive ones faster than anybody makes aware ones.
    return [at.replace(tzinfo=UTC) for at in numbers(column).astype("datetime64[us]").tolist()]


def ascending(table: pa.Table, by: str) -> pa.Table:
    """Rows by a column of numbers, ascending; what lies together in that order already is not copied."""
    if table.num_rows < 2:
        return table
    order = pc.sort_indices(table.select([by]), sort_keys=[(by, "ascending")])
    places = numbers(order).astype(np.int64)
    begins = [0, *(np.flatnonzero(np.diff(places) != 1) + 1).tolist()]
    if len(begins) == 1:
        return table
    if len(begins) > _FEW_RUNS:
        return table.take(order)
    return pa.concat_tables([table.slice(places[a], b - a) for a, b in pairwise([*begins, len(places)])])


def distinct(column: pa.ChunkedArray) -> tuple[list[Any], list[int]]:
    """The distinct values of a flat column, NULL among them, and the place there of each row's value."""
    coded = column.dictionary_encode("encode")
    if not len(coded):
        return [], []
    indices = pa.chunked_array([chunk.indices for chunk in coded.chunks])
    return values(coded.chunk(0).dictionary), numbers(indices).tolist()


def in_common(column: pa.ChunkedArray) -> bool:
    """Whether all rows of a column that has some have one value, which may be NULL: each that of the row before it."""
    return bool(column.slice(1).equals(column.slice(0, len(column) - 1)))


def empty(schema: pa.Schema) -> pa.Table:
    """A table without rows."""
    return pa.Table.from_batches([], schema=schema)


def with_nulls(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema, by name; NULL where the table has no such column."""
    there = set(table.column_names)
    for field in schema:
        if field.name not in there:
            table = table.append_column(field, column([None] * table.num_rows, field.type))
    return table.select(schema.names)


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """A table of flat columns row by row."""
    names = table.column_names
    return [dict(zip(names, row, strict=True)) for row in tuples(table, *names)]


def tuples(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    """Some flat columns of a table row by row."""
    return zip(*(values(table[name]) for name in names), strict=True)


def table(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows of texts, numbers, instants and days as an Arrow table."""
    listed = list(rows)
    columns = [column([row[field.name] for row in listed], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def column(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Texts, numbers, instants or days, None among them, as an Arrow array."""
    known = [cell is not None for cell in cells]
    there = None if all(known) else pa.py_buffer(np.packbits(np.array(known, bool), bitorder="little"))
    if pa.types.is_string(kind):
        texts = [b"" if cell is None else cell.encode() for cell in cells]
        bounds = np.fromiter(accumulate(map(len, texts), initial=0), np.int32, len(texts) + 1)
        return pa.Array.from_buffers(kind, len(cells), [there, pa.py_buffer(bounds), pa.py_buffer(b"".join(texts))])
    if pa.types.is_timestamp(kind):
        cells = [None if at is None else microseconds(at) for at in cells]
    elif pa.types.is_date(kind):
        cells = [None if day is None else (day - _EPOCH.date()).days for day in cells]
    width = f"{'f' if pa.types.is_floating(kind) else 'i'}{kind.bit_width // 8}"
    numeric = np.array([0 if cell is None else cell for cell in cells], width)
    return pa.Array.from_buffers(kind, len(cells), [there, pa.py_buffer(numeric)])


def microseconds(at: datetime) -> int:
    """An instant as Arrow and Parquet keep it: microseconds since 1970."""
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
