"""Which ranges findings speak of, held to the comparison of each finding with each range that it replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from recon.audits.summary import touched_ranges
from recon.model import Code, Finding, LedgerSlice, Level
from recon.testing.evidence import PIPELINE, SINK, Entry, ledger, span


def _touched(slice_: LedgerSlice, findings: Sequence[Finding], level: Level) -> npt.NDArray[np.bool_]:
    table, heads = slice_.ranges, slice_.heads
    mask = np.zeros(len(table), dtype=bool)
    for finding in findings:
        if finding.level is not level:
            continue
        where = finding.span
        if where is not None and finding.topic is not None and finding.partition is not None:
            codes = [code for code, (_, name, _) in enumerate(table.topics) if name == finding.topic]
            touched = (table.start < where.end) & (table.end > where.start)
            touched &= np.isin(table.topic, codes) & (table.partition == finding.partition)
            mask |= touched
            if touched.any():
                continue
        if finding.batch_id is not None:
            entries = [
                i
                for i, head in enumerate(heads)
                if head.batch_id == finding.batch_id and finding.epoch in (None, head.epoch)
            ]
            mask |= np.isin(table.entry, entries)
    return mask


places = st.integers(0, 20)
read = st.builds(
    lambda start, width, partition, topic, topic_id: span(start, max(start + width, 0), partition, topic, topic_id),
    places,
    st.integers(-2, 6),
    st.integers(0, 2),
    st.sampled_from(["orders", "clicks"]),
    st.sampled_from(["id-1", "id-2"]),
)
entries = st.builds(
    lambda batch_id, epoch, ranges: Entry(batch_id, *ranges, epoch=epoch),
    st.integers(0, 3),
    st.integers(0, 1),
    st.lists(read, max_size=3),
)


@st.composite
def findings(draw: st.DrawFn) -> Finding:
    fields: dict[str, Any] = {}
    if draw(st.booleans()):
        start = draw(places)
        fields |= {"start_offset": start, "end_offset": start + draw(st.integers(0, 5))}
    fields["topic"] = draw(st.sampled_from(["orders", "clicks", "others", None]))
    fields["partition"] = draw(st.sampled_from([0, 1, 2, 7, None]))
    fields["batch_id"] = draw(st.sampled_from([0, 1, 2, None]))
    fields["epoch"] = draw(st.sampled_from([0, 1, None]))
    code = draw(st.sampled_from([Code.GAP, Code.DUPLICATE, Code.INCONCLUSIVE]))
    return Finding(code=code, message="", pipeline=PIPELINE, sink=SINK, **fields)


@given(st.lists(entries, max_size=6), st.lists(findings(), max_size=6))
def test_touched_ranges(made: Sequence[Entry], found: Sequence[Finding]) -> None:
    slice_ = ledger(*made)
    for level in (Level.FAIL, Level.UNPROVED):
        assert touched_ranges(slice_, found, level).tolist() == _touched(slice_, found, level).tolist()
