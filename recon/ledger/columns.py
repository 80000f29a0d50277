"""Ledger entries as Arrow columns, and back: entry by entry for the hook, in columns for the audit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from recon.ledger.chain import seal
from recon.model import EntryHead, LedgerEntry, LedgerSlice, RangeTable, sort_key
from recon.offsets import OffsetSpan

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

HEAD_COLUMNS = tuple(f.name for f in fields(EntryHead))


def schema() -> pa.Schema:
    """The ledger's Arrow schema; `date` is its partition column."""
    import pyarrow as pa

    span = pa.struct(
        [
            ("topic", pa.string()),
            ("topic_id", pa.string()),
            ("partition", pa.int32()),
            ("start_offset", pa.int64()),
            ("end_offset", pa.int64()),
            ("source", pa.int32()),
        ]
    )
    instant = pa.timestamp("us", tz="UTC")
    return pa.schema(
        [
            ("pipeline", pa.string()),
            ("sink", pa.string()),
            ("sink_kind", pa.string()),
            ("target", pa.string()),
            ("guarantee", pa.string()),
            ("query_id", pa.string()),
            ("run_id", pa.string()),
            ("epoch", pa.int64()),
            ("batch_id", pa.int64()),
            ("attempt", pa.int32()),
            ("status", pa.string()),
            ("offsets", pa.list_(span)),
            ("rows_read", pa.int64()),
            ("rows_written", pa.int64()),
            ("rows_quarantined", pa.int64()),
            ("rows_filtered", pa.int64()),
            ("sink_version", pa.int64()),
            ("started_at", instant),
            ("committed_at", instant),
            ("spark_version", pa.string()),
            ("recon_version", pa.string()),
            ("checks_fingerprint", pa.string()),
            ("prev_hash", pa.string()),
            ("entry_hash", pa.string()),
            ("date", pa.date32()),
        ]
    )


def to_table(entries: Sequence[LedgerEntry]) -> pa.Table:
    """Entries as an Arrow table in the ledger's schema, ranges in canonical order."""
    import pyarrow as pa

    rows = []
    for entry in entries:
        row = {name: getattr(entry, name) for name in HEAD_COLUMNS}
        row["offsets"] = [span._asdict() for span in sorted(entry.offsets, key=sort_key)]
        row["date"] = entry.date
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=schema())


def heads(table: pa.Table) -> list[EntryHead]:
    """The entries' heads, in the table's order."""
    return [EntryHead(**row) for row in table.select(list(HEAD_COLUMNS)).to_pylist()]


def entries(table: pa.Table) -> list[LedgerEntry]:
    """Whole entries, in the table's order; for few entries, a day's audit stays in columns."""
    found = []
    for row in table.select([*HEAD_COLUMNS, "offsets"]).to_pylist():
        spans = tuple(OffsetSpan(**span) for span in row.pop("offsets") or ())
        found.append(LedgerEntry(**row, offsets=spans))
    return found


def ranges(table: pa.Table) -> RangeTable:
    """All offset ranges of the table in NumPy columns."""
    import numpy as np
    import pyarrow as pa

    lists = table.column("offsets").combine_chunks()
    if isinstance(lists, pa.ChunkedArray):  # an empty table has no chunk to combine
        lists = pa.array([], type=table.schema.field("offsets").type)
    flat = lists.flatten()
    lengths = np.diff(lists.offsets.to_numpy(zero_copy_only=False))
    columns = {name: flat.field(name) for name in ("topic", "topic_id", "partition", "start_offset", "end_offset")}
    source = flat.field("source").fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    topics = columns["topic"].dictionary_encode()
    ids = columns["topic_id"].dictionary_encode(null_encoding="encode")
    width = (len(topics.dictionary) + 1, len(ids.dictionary) + 1)
    code = (source * width[0] + topics.indices.to_numpy(zero_copy_only=False)) * width[1] + ids.indices.to_numpy(
        zero_copy_only=False
    )
    unique, compact = np.unique(code, return_inverse=True)
    names = [
        (
            int(value // (width[0] * width[1])),
            topics.dictionary[int(value // width[1] % width[0])].as_py(),
            ids.dictionary[int(value % width[1])].as_py(),
        )
        for value in unique
    ]
    return RangeTable(
        entry=np.repeat(np.arange(len(lengths), dtype=np.int64), lengths),
        topic=compact.astype(np.int32),
        partition=columns["partition"].to_numpy(zero_copy_only=False).astype(np.int64),
        start=columns["start_offset"].to_numpy(zero_copy_only=False).astype(np.int64),
        end=columns["end_offset"].to_numpy(zero_copy_only=False).astype(np.int64),
        topics=names,
    )


def texts(table: RangeTable, count: int) -> list[str]:
    """The canonical text of each entry's ranges (`recon.model.offsets_text`), made in columns.

    `count` is the number of entries; one without ranges gets `[]`.
    """
    import numpy as np

    parts: list[list[str]] = [[] for _ in range(count)]
    if len(table):
        changes = (np.diff(table.entry) != 0) | (np.diff(table.topic) != 0)
        starts = np.concatenate(([0], np.flatnonzero(changes) + 1))
        bounds = np.append(starts, len(table))
        columns = [_joined(values, bounds) for values in (table.partition, table.start, table.end)]
        named = [
            f"[{source},{json.dumps(topic, ensure_ascii=False)},{json.dumps(topic_id)},"
            for source, topic, topic_id in table.topics
        ]
        of_entry, of_topic = table.entry[starts].tolist(), table.topic[starts].tolist()
        for entry, topic, partitions, begin, end in zip(of_entry, of_topic, *columns, strict=True):
            parts[entry].append(f"{named[topic]}[{partitions}],[{begin}],[{end}]]")
    return [f"[{','.join(groups)}]" for groups in parts]


def _joined(values: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64]) -> list[str]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    strings = pc.cast(pa.array(values), pa.string())
    lists = pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), strings)
    joined: list[str] = pc.binary_join(lists, ",").to_pylist()
    return joined


def to_slice(
    table: pa.Table,
    *,
    pipeline: str,
    sink: str,
    anchors: int,
    complete: bool,
    operations: Sequence[tuple[int, str]],
) -> LedgerSlice:
    """An Arrow table in chain order as the slice that judges read, every seal recomputed."""
    of_heads = heads(table)
    of_ranges = ranges(table)
    of_texts = texts(of_ranges, len(of_heads))
    broken = [
        i for i, (head, text) in enumerate(zip(of_heads, of_texts, strict=True)) if seal(head, text) != head.entry_hash
    ]
    return LedgerSlice(
        pipeline=pipeline,
        sink=sink,
        heads=of_heads,
        ranges=of_ranges,
        anchors=anchors,
        broken=broken,
        operations=operations,
        complete=complete,
        offsets_texts=of_texts,
    )
