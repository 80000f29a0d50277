"""Compares the offsets that the ledger covers with those of a micro-batch. No I/O.

Keys are (topic, topic id, partition): a new checkpoint may number its sources another way, the records are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recon.base.lazy import np
from recon.base.text import plural
from recon.model import RangeTable, positions
from recon.model.ledger import sortable
from recon.model.offsets import OffsetSpan, Spans

if TYPE_CHECKING:
    import numpy.typing as npt

Key = tuple[str, str | None, int]


def key_of(span: OffsetSpan) -> Key:
    """The topic partition of a span."""
    return (span.topic, span.topic_id, span.partition)


def of(table: RangeTable) -> dict[Key, Spans]:
    """What the entries cover; joined in columns, since a day has 1.7 million ranges."""
    full = np.flatnonzero(table.end > table.start)
    if not len(full):
        return {}
    code = sortable(table.topic[full].astype(np.int64) * (int(table.partition.max()) + 1) + table.partition[full])
    order = full[_in_order(code, table.start[full])]
    topic, partition, start, end = (column[order] for column in (table.topic, table.partition, table.start, table.end))
    # A stretch ends where the next range starts behind it; ranges that overlap are joined by Spans.
    breaks = (np.diff(topic) != 0) | (np.diff(partition) != 0) | (start[1:] != end[:-1])
    first = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    last = np.append(first[1:], len(order)) - 1
    spans_of: dict[Key, list[tuple[int, int]]] = {}
    for a, b in zip(first.tolist(), last.tolist(), strict=True):
        _, name, topic_id = table.topics[int(topic[a])]
        spans_of.setdefault((name, topic_id, int(partition[a])), []).append((int(start[a]), int(end[b])))
    return {key: Spans.of(spans) for key, spans in spans_of.items()}


def _in_order(code: npt.NDArray[Any], start: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The order by topic partition and start offset; micro-batches mostly follow each other with ascending starts."""
    order = np.argsort(code, kind="stable")
    code_, start_ = code[order], start[order]
    ascending = (start_[1:] >= start_[:-1]) | (code_[1:] != code_[:-1])
    return order if ascending.all() else np.lexsort((start, code))


def plus(held: Mapping[Key, Spans], written: Sequence[OffsetSpan]) -> dict[Key, Spans]:
    """What is covered after another write."""
    covered = dict(held)
    for span in written:
        covered[key_of(span)] = covered.get(key_of(span), Spans()).union(Spans.of([span.span]))
    return covered


def _by_partition(held: Mapping[Key, Spans]) -> dict[tuple[str, int], list[tuple[str | None, Spans]]]:
    """What is held of each topic partition, by topic id: a micro-batch of many partitions looks up each once."""
    found: dict[tuple[str, int], list[tuple[str | None, Spans]]] = {}
    for (topic, topic_id, partition), spans in held.items():
        found.setdefault((topic, partition), []).append((topic_id, spans))
    return found


def _of(held: Mapping[tuple[str, int], Sequence[tuple[str | None, Spans]]], span: OffsetSpan) -> Spans:
    """What is held of the span's topic partition; an unknown topic id matches any."""
    covered = Spans()
    for topic_id, spans in held.get((span.topic, span.partition), ()):
        if topic_id == span.topic_id or None in (topic_id, span.topic_id):
            covered = covered.union(spans) if covered else spans
    return covered


def relation(held: Mapping[Key, Spans], wanted: Sequence[OffsetSpan]) -> tuple[list[OffsetSpan], list[OffsetSpan]]:
    """(overlaps, gaps): what is wanted again, and what lies between the end of what is held and what is wanted.

    A re-created topic (another topic id) is another topic: nothing of it is held.
    """
    overlaps, gaps, known = [], [], _by_partition(held)
    for span in wanted:
        mine = _of(known, span)
        again = mine.intersect(Spans.of([span.span])).hull
        if again is not None:
            overlaps.append(span._replace(start_offset=again.start, end_offset=again.end))
        elif mine.hull is not None and span.start_offset > mine.hull.end:
            gaps.append(span._replace(start_offset=mine.hull.end, end_offset=span.start_offset))
    return overlaps, gaps


def remainder(held: Mapping[Key, Spans], wanted: Sequence[OffsetSpan]) -> tuple[OffsetSpan, ...]:
    """The parts of `wanted` that are not held; a partition held whole keeps an empty range at its end.

    The empty range says how far the ledger has come there, so that the next write has something to
    continue from.
    """
    left: list[OffsetSpan] = []
    known = _by_partition(held)
    for span in wanted:
        mine = _of(known, span)
        parts = Spans.of([span.span]).minus(mine)
        end = max(span.end_offset, mine.hull.end if mine.hull else 0)
        left.extend(span._replace(start_offset=p.start, end_offset=p.end) for p in parts)
        if not parts:
            left.append(span._replace(start_offset=end, end_offset=end))
    return tuple(left)


def described(spans: Sequence[OffsetSpan]) -> str:
    """A few ranges for a sentence: `orders-0 [0, 500) and 7 more partitions`."""
    first = spans[0]
    comma = "" if positions.is_kafka(first.topic) else ","
    held = positions.described(first.topic, *first.span)
    text = f"{positions.partition_name(first.topic, first.partition)}{comma} {held}"
    return text + (f" and {plural(len(spans) - 1, 'more partition')}" if len(spans) > 1 else "")
