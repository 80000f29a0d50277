"""Ledgers as hypothesis makes them."""

from __future__ import annotations

from hypothesis import strategies as st

from recon.model import LedgerSlice
from recon.model.offsets import OffsetSpan
from recon.testing.evidence import Entry, ledger, span


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerSlice:
    """Entries that go on, leave out, read again, go back, come from two sources and from a topic created again."""
    position = {0: 0, 1: 0}
    entries = []
    topic_id = "id-1"
    for batch_id in range(draw(st.integers(1, 9))):
        if draw(st.integers(0, 6)) == 0:
            topic_id = "id-2"
        read: list[OffsetSpan] = []
        for source in draw(st.sampled_from([[0], [0], [0, 1]])):
            start = max(position[source] + draw(st.sampled_from([0, 0, 0, 2, -3, -8])), 0)
            end = max(start + draw(st.sampled_from([5, 5, 3, 0, -2])), 0)
            position[source] = end
            read.append(span(start, end, topic_id=topic_id, source=source))
        width = sum(max(r.end_offset - r.start_offset, 0) for r in read)
        filtered = min(width, draw(st.sampled_from([0, 0, 1])))
        again = draw(st.sampled_from([1, 1, 1, 2]))
        for attempt in range(again):
            entries.append(
                Entry(
                    batch_id,
                    *read,
                    rows_written=width - filtered,
                    rows_filtered=filtered,
                    sink_version=batch_id,
                    status="already_committed" if attempt else "committed",
                )
            )
    return ledger(*entries, anchors=draw(st.integers(0, len(entries) - 1)), complete=draw(st.booleans()))
