"""Rows of a Delta table's data files on a local disk, for the store: delta-rs says which, Parquet is read here.

A day's ledger has 1.7 million offset ranges. Read through delta-rs their topic names become as many strings; here
they stay the dictionary that Parquet keeps them in, and the ranges of rows that are not wanted are not decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import date
from urllib.parse import unquote

from recon.lazy import pa, pc
from recon.ledger import arrow

NESTED = "offsets"
_NAMES = ("offsets.list.element.topic", "offsets.list.element.topic_id")
_STEP = 64  # entries decoded at a time where few of a file are wanted


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
) -> pa.Table:
    """The wanted rows of one data file, in the file's order.

    Args:
        path: the file, in a folder `date=YYYY-MM-DD`.
        schema: of the table, as `schema_of` returns it.
        names: the columns to return.
        filtered_by: the columns that `wanted` needs.
        wanted: makes the mask of rows, None for all, from the flat columns.
        added: columns that a file of an earlier version may lack: NULL there.

    Raises:
        OSError: the file is missing or torn.
        Unfamiliar: another writer wrote it, with other types.
    """
    import pyarrow.parquet as pq

    stored = [n for n in dict.fromkeys((*names, *filtered_by)) if n != "date"]
    try:
        opened = pq.ParquetFile(
            pa.memory_map(path), read_dictionary=list(_NAMES) if NESTED in stored else None, pre_buffer=False
        )
    except KeyError as error:
        raise Unfamiliar(path) from error
    with opened as file:
        types = {field.name: field.type for field in file.schema_arrow}
        stored = [n for n in stored if n in types or n not in added]
        if any(types.get(n) != schema.field(n).type for n in stored):
            raise Unfamiliar(path)
        few = file.metadata.num_rows <= _STEP
        rows = file.read(columns=stored if few else [n for n in stored if n != NESTED], use_threads=not few)
        mask = wanted(rows)
        if mask is not None:
            mask = mask.combine_chunks()
            rows = rows.filter(mask)
        if NESTED in stored and not few:
            rows = rows.append_column(NESTED, _ranges(file, mask, rows.num_rows))
    if "date" in names:
        rows = rows.append_column("date", arrow.column([day_of(path)] * rows.num_rows, pa.date32()))
    return arrow.with_nulls(rows, pa.schema([schema.field(n) for n in names]))


def _ranges(file: pa.parquet.ParquetFile, mask: pa.Array | None, count: int) -> pa.ChunkedArray:
    """The ranges of the rows under the mask; decoding stops at the last of them."""
    if mask is None or count * 2 > len(mask):
        column = file.read(columns=[NESTED])[NESTED]
        return column if mask is None else column.filter(mask)
    parts, at, left = [], 0, count
    for batch in file.iter_batches(_STEP, columns=[NESTED]) if left else ():
        mine = mask.slice(at, len(batch))
        matching = int(pc.sum(mine).as_py() or 0)
        if matching:
            parts.append(batch.column(0).filter(mine))
        at, left = at + len(batch), left - matching
        if not left:
            break
    return pa.chunked_array(parts, type=file.schema_arrow.field(NESTED).type)
