"""Offset ranges as text: those of ledger entries, and whether two texts say the same."""

from __future__ import annotations

from collections.abc import Callable

from recon.errors import EvidenceError
from recon.model import LedgerSlice, offsets_text, parse_offsets
from recon.offsets import OffsetSpan


def texts(ledger: LedgerSlice) -> Callable[[int], str]:
    """The canonical text of an entry's ranges: the one the ledger was read with, else made from the ranges."""
    if len(ledger.offsets_texts) == len(ledger.heads):
        return ledger.offsets_texts.__getitem__
    table, spans = ledger.ranges, [list[OffsetSpan]() for _ in ledger.heads]
    columns = (table.entry, table.topic, table.partition, table.start, table.end)
    for entry, topic, partition, start, end in zip(*(c.tolist() for c in columns), strict=True):
        source, name, topic_id = table.topics[topic]
        spans[entry].append(OffsetSpan(name, topic_id, partition, start, end, source))
    texts = [offsets_text(mine) for mine in spans]
    return texts.__getitem__


def same_ranges(one: str, other: str) -> bool:
    """Whether two texts differ in topic ids alone, and there only because one of them knows none."""
    try:
        mine, theirs = ({(s.source, s.topic, *s[2:5]): s.topic_id for s in parse_offsets(t)} for t in (one, other))
    except EvidenceError:
        return False
    return mine.keys() == theirs.keys() and all(
        topic_id == theirs[span] or None in (topic_id, theirs[span]) for span, topic_id in mine.items()
    )
