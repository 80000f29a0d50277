"""Ledger entries as Arrow columns, and back: entry by entry for the hook, in columns for the audit."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import orjson

from recon.base.errors import LedgerError
from recon.base.lazy import np, pa, pc
from recon.model import EntryHead, LedgerEntry, LedgerSlice, RangeTable, sort_key
from recon.model.offsets import OffsetSpan
from recon.write.ledger import arrow
from recon.write.ledger.chain import ADDED, seals
from recon.write.ledger.store import INT32, LedgerTable

if TYPE_CHECKING:
    import numpy.typing as npt

HEAD_COLUMNS = tuple(f.name for f in fields(EntryHead))


# One row per sink write.
ENTRIES = LedgerTable(
    kind="ledger",
    time="committed_at",
    columns={
        "pipeline": str,
        "sink": str,
        "sequence": int,
        "sink_kind": str,
        "target": str,
        "guarantee": str,
        "query_id": str,
        "run_id": str,
        "epoch": int,
        "batch_id": int,
        "attempt": INT32,
        "status": str,
        "offsets": [
            {
                "topic": str,
                "topic_id": str,
                "partition": INT32,
                "start_offset": int,
                "end_offset": int,
                "source": INT32,
            }
        ],
        "rows_read": int,
        "rows_written": int,
        "rows_quarantined": int,
        "rows_filtered": int,
        "rows_returned": int,
        "rows_given": int,
        "fingerprint_read": int,
        "fingerprint_returned": int,
        "fingerprint_given": int,
        "rows_removed": int,
        "isolation_level": str,
        "kafka_state": str,
        "sink_table_id": str,
        "sink_version": int,
        "started_at": datetime,
        "committed_at": datetime,
        "spark_version": str,
        "recon_version": str,
        "checks_fingerprint": str,
        "transform": str,
        **dict.fromkeys(ADDED, str),
        "prev_hash": str,
        "entry_hash": str,
    },
    added=ADDED,
)


def to_table(entries: Sequence[LedgerEntry]) -> pa.Table:
    """Entries as an Arrow table in the ledger's schema, ranges in canonical order."""
    rows = [
        {
            **{name: getattr(entry, name) for name in HEAD_COLUMNS},
            "offsets": [span._asdict() for span in sorted(entry.offsets, key=sort_key)],
            "date": entry.date,
        }
        for entry in entries
    ]
    # One conversion of whole rows: one for each of the columns costs three times as much.
    structs = pa.array(rows, ENTRIES.row_type)
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(structs)], schema=ENTRIES.schema)


def _parted(table: pa.Table) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The columns of the entries' heads: the value of each that all have in common, and the cells of the others.

    The hash is always among the others, so that these have as many rows as there are entries.
    """
    same, cells = {}, {}
    for name in HEAD_COLUMNS:
        column = table[name]
        if name != "entry_hash" and len(column) and arrow.in_common(column):
            same[name] = arrow.values(column.slice(0, 1))[0]
        else:
            cells[name] = arrow.values(column)
    return same, cells


def _heads(same: Mapping[str, Any], cells: Mapping[str, Sequence[Any]]) -> list[EntryHead]:
    """Heads without their constructor, which sets its frozen fields one by one: a day has 8,640 of them."""
    made = []
    for row in zip(*cells.values(), strict=True):
        head = object.__new__(EntryHead)
        values = head.__dict__
        values.update(same)
        values.update(zip(cells, row, strict=True))
        made.append(head)
    return made


def entries(table: pa.Table) -> list[LedgerEntry]:
    """Whole entries, in the table's order; for few entries, a day's audit stays in columns."""
    listed = []
    for row in table.select([*HEAD_COLUMNS, "offsets"]).to_pylist():
        spans = tuple(OffsetSpan(**span) for span in row.pop("offsets") or ())
        listed.append(LedgerEntry(**row, offsets=spans))
    return listed


def ranges(table: pa.Table) -> RangeTable:
    """All offset ranges of the table in NumPy columns.

    Raises:
        LedgerError: an entry was edited: a range lacks a value.
    """
    lists = table.column("offsets")
    lengths = arrow.numbers(_filled(pc.list_value_length(lists)))
    flat = pc.list_flatten(lists)
    if isinstance(flat, pa.Array):  # an empty column has no chunks to flatten
        flat = pa.chunked_array([flat])
    parts = {f.name: pc.struct_field(flat, f.name) for f in flat.type}
    for name in ("topic", "partition", "start_offset", "end_offset"):
        if parts[name].null_count:  # it would be read as 0
            raise LedgerError(
                f"an entry of the ledger has a range without {name}: it was edited; restore the table from a backup, "
                "or move it away and run `recon ledger rebuild`"
            )
    source = arrow.numbers(_filled(parts["source"]))
    if len(source) and not source.any():
        source = np.zeros(1, np.int32)
    topic, names = _coded(parts["topic"])
    topic_id, ids = _coded(parts["topic_id"])
    # What is the same in all ranges (most queries read one topic) has length 1 here, and so has their combination.
    code = (source.astype(np.int64) * len(names) + topic) * len(ids) + topic_id
    present = np.flatnonzero(np.bincount(code))
    place = np.zeros(int(present[-1]) + 1 if len(present) else 0, np.int32)
    place[present] = np.arange(len(present), dtype=np.int32)
    topics = [
        (value // (len(names) * len(ids)), names[value // len(ids) % len(names)], ids[value % len(ids)])
        for value in present.tolist()
    ]
    return RangeTable(
        entry=np.repeat(np.arange(len(lengths), dtype=np.int64), lengths),
        topic=np.broadcast_to(place[code], len(flat)),
        partition=arrow.numbers(parts["partition"]).astype(np.int64),
        start=arrow.numbers(parts["start_offset"]),
        end=arrow.numbers(parts["end_offset"]),
        topics=topics,
    )


def _coded(values: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """Texts as numbers (one, if all are the same), and what each number stands for; the last one is None."""
    coded = values.unify_dictionaries() if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    if not len(coded):
        return np.zeros(0, np.int64), [None]
    names = [*coded.chunk(0).dictionary.to_pylist(), None]
    if len(names) == 2 and not coded.null_count:
        return np.zeros(1, np.int64), names
    numbers = pa.chunked_array([chunk.indices for chunk in coded.chunks])
    return arrow.numbers(_filled(numbers, len(names) - 1)).astype(np.int64), names


def _filled(column: pa.ChunkedArray, with_: int = 0) -> pa.ChunkedArray:
    """The column of integers with a number in place of nulls."""
    return pc.fill_null(column, with_) if column.null_count else column


def texts(table: RangeTable, count: int) -> list[str]:
    """The canonical text of each entry's ranges (`recon.model.offsets_text`), made in columns.

    `count` is the number of entries; one without ranges gets `[]`.
    """
    parts: list[list[str]] = [[] for _ in range(count)]
    if len(table):
        changes = (np.diff(table.entry) != 0) | (np.diff(table.topic) != 0)
        starts = np.concatenate(([0], np.flatnonzero(changes) + 1))
        bounds = np.append(starts, len(table))
        columns = _listed_columns(table, bounds)
        named = [
            f"[{source},{json.dumps(topic, ensure_ascii=False)},{json.dumps(topic_id)},"
            for source, topic, topic_id in table.topics
        ]
        of_entry, of_topic = table.entry[starts].tolist(), table.topic[starts].tolist()
        if of_entry == list(range(count)):  # each entry read one topic, as most do: no part is copied again
            whole = zip(of_topic, *columns, strict=True)
            return [f"[{named[topic]}{partitions},{begin},{end}]]" for topic, partitions, begin, end in whole]
        for entry, topic, partitions, begin, end in zip(of_entry, of_topic, *columns, strict=True):
            parts[entry].append(f"{named[topic]}{partitions},{begin},{end}]")
    return [f"[{','.join(groups)}]" for groups in parts]


def _listed_columns(table: RangeTable, bounds: npt.NDArray[np.int64]) -> tuple[list[str], list[str], list[str]]:
    """Partitions, starts and ends of each group, as JSON lists.

    A micro-batch mostly has the partitions of the one before it and starts where that one ended: such text is made
    once.
    """
    widths = np.diff(bounds)
    if (widths != widths[0]).any():
        partitions, begins, ends = (
            _listed(values[begin:end] for begin, end in pairwise(bounds.tolist()))
            for values in (table.partition, table.start, table.end)
        )
        return partitions, begins, ends
    partition, start, end = (values.reshape(-1, widths[0]) for values in (table.partition, table.start, table.end))
    other = np.append(True, (partition[1:] != partition[:-1]).any(axis=1))
    jumps = np.append(True, (start[1:] != end[:-1]).any(axis=1))
    distinct, ends, begun = _listed(partition[other]), _listed(end), iter(_listed(start[jumps]))
    partitions = [distinct[place] for place in (np.cumsum(other) - 1).tolist()]
    begins = [next(begun) if jump else ends[group - 1] for group, jump in enumerate(jumps.tolist())]
    return partitions, begins, ends


def _listed(rows: Iterable[npt.NDArray[np.int64]]) -> list[str]:
    """Each row of numbers as a JSON list; orjson takes a quarter of the time that Arrow's cast and join take."""
    return [orjson.dumps(row, np.ndarray.tolist, orjson.OPT_SERIALIZE_NUMPY).decode() for row in rows]


def to_slice(
    table: pa.Table,
    *,
    pipeline: str,
    sink: str,
    anchors: int,
    complete: bool,
    operations: Sequence[tuple[int, str]],
    later: Collection[tuple[str, int]] = (),
    transforms_later: bool | None = None,
) -> LedgerSlice:
    """An Arrow table in chain order as the slice that judges read, every seal recomputed."""
    same, cells = _parted(table)
    of_heads = _heads(same, cells)
    of_ranges = ranges(table)
    of_texts = texts(of_ranges, len(of_heads))
    of_content = seals(same, cells, of_texts)
    broken = [i for i, head in enumerate(of_heads) if head.entry_hash != of_content[i]]
    return LedgerSlice(
        pipeline=pipeline,
        sink=sink,
        heads=of_heads,
        ranges=of_ranges,
        anchors=anchors,
        broken=broken,
        operations=operations,
        complete=complete,
        later=later,
        transforms_later=transforms_later,
        offsets_texts=of_texts,
    )
