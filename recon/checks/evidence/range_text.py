"""Offset ranges of ledger entries as text."""

from __future__ import annotations

from collections.abc import Callable

from recon.model import LedgerSlice, offsets_text
from recon.model.offsets import OffsetSpan


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
