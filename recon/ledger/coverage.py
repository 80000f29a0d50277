"""What the ledger covers, against what a micro-batch wants to read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from recon.model import RangeTable
from recon.offsets import OffsetSpan, Spans

_Key = tuple[int, str, str | None, int]


def _key(span: OffsetSpan) -> _Key:
    return (span.source, span.topic, span.topic_id, span.partition)


def relation(held: Sequence[OffsetSpan], wanted: Sequence[OffsetSpan]) -> tuple[list[OffsetSpan], list[OffsetSpan]]:
    """(overlaps, gaps) between the end of one write and the start of the next, per topic partition.

    A re-created topic (another topic id) is another topic: nothing of it is held. A missing id matches any.
    """
    overlaps, gaps = [], []
    ends: dict[tuple[int, str, int], list[OffsetSpan]] = {}
    for span in held:
        ends.setdefault((span.source, span.topic, span.partition), []).append(span)
    for span in wanted:
        known = [
            old
            for old in ends.get((span.source, span.topic, span.partition), ())
            if old.topic_id == span.topic_id or None in (old.topic_id, span.topic_id)
        ]
        if not known:
            continue
        end = max(old.end_offset for old in known)
        if span.start_offset < end:
            overlaps.append(span._replace(end_offset=end))
        elif span.start_offset > end:
            gaps.append(span._replace(start_offset=end, end_offset=span.start_offset))
    return overlaps, gaps


def of(table: RangeTable, entries: Iterable[int] | None = None) -> Mapping[_Key, Spans]:
    """What the entries (all, or those at these places) cover, per (source, topic, topic id, partition)."""
    found: dict[_Key, list[tuple[int, int]]] = {}
    wanted = None if entries is None else set(entries)
    columns = (table.entry, table.topic, table.partition, table.start, table.end)
    for entry, topic, partition, start, end in zip(*(column.tolist() for column in columns), strict=True):
        if wanted is not None and entry not in wanted:
            continue
        found.setdefault((*table.topics[topic], partition), []).append((start, end))
    return {key: Spans.of(spans) for key, spans in found.items()}


def remainder(held: Mapping[_Key, Spans], wanted: Sequence[OffsetSpan]) -> tuple[OffsetSpan, ...]:
    """The parts of `wanted` that are not held; a partition held whole keeps an empty range at its end.

    The empty range says how far the ledger has come there, so that the next write has something to
    continue from.
    """
    left: list[OffsetSpan] = []
    for span in wanted:
        mine = held.get(_key(span), Spans())
        parts = Spans.of([span.span]).minus(mine)
        end = max(span.end_offset, mine.hull.end if mine.hull else 0)
        left.extend(span._replace(start_offset=p.start, end_offset=p.end) for p in parts)
        if not parts:
            left.append(span._replace(start_offset=end, end_offset=end))
    return tuple(left)


def told(spans: Sequence[OffsetSpan]) -> str:
    """A few ranges for a sentence: `orders-0 [0, 500) and 7 more partitions`."""
    first = spans[0]
    said = f"{first.topic}-{first.partition} [{first.start_offset}, {first.end_offset})"
    more = len(spans) - 1
    return said + (f" and {more} more partition{'s' if more > 1 else ''}" if more else "")
