"""Whether what an audit found belongs to a period: one that ran after it has judged what was written later, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from recon.base.lazy import np
from recon.model import Finding, LedgerSlice, RangeTable
from recon.model.ledger import sortable

Where = Literal["before", "within", "after"]


@dataclass(frozen=True)
class Extent:
    """The micro-batches and offsets that a sink's ledger has in a period, and what comes before it.

    Keys are epochs, and (topic, topic_id, partition). `within` has the half-open run of each that the period reaches
    over, `before` the end of what comes before.
    """

    within: Mapping[Any, tuple[int, int]]
    before: Mapping[Any, int]

    @classmethod
    def of(cls, ledger: LedgerSlice) -> Extent:
        """Of the slice of the period."""
        judged = ledger.ranges.entry >= ledger.anchors
        within, before = _runs(ledger.ranges.take(judged)), _runs(ledger.ranges.take(~judged))
        for place, head in enumerate(ledger.heads):
            runs = within if place >= ledger.anchors else before
            low, high = runs.get(head.epoch, (head.batch_id, head.batch_id))
            runs[head.epoch] = (min(low, head.batch_id), max(high, head.batch_id + 1))
        return cls(within, {key: end for key, (_, end) in before.items()})

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written in the period or before it."""
        return not self.within and not self.before

    def where(self, finding: Finding) -> Where | None:
        """Where a finding's micro-batch or offsets lie; None where it names none, or none that is known here."""
        if finding.epoch is not None and finding.epoch >= 0 and finding.batch_id is not None:
            place = self._where(finding.epoch, finding.batch_id, finding.batch_id + 1)
            if place is not None:
                return place
        if finding.start_offset is None or finding.end_offset is None:
            return None
        key = (finding.topic, finding.topic_id, finding.partition)
        return self._where(key, finding.start_offset, finding.end_offset)

    def _where(self, key: Any, start: int, end: int) -> Where | None:
        if key in self.within:
            low, high = self.within[key]
            return "before" if end <= low else "after" if start >= high else "within"
        if key in self.before:
            return "before" if end <= self.before[key] else "after"
        return None


def _runs(ranges: RangeTable) -> dict[Any, tuple[int, int]]:
    """From the least offset to the greatest of each topic partition."""
    runs: dict[Any, tuple[int, int]] = {}
    if not len(ranges):
        return runs
    width = int(ranges.partition.max()) + 1
    code = sortable(ranges.topic.astype(np.int64) * width + ranges.partition)
    order = np.argsort(code, kind="stable")
    code = code[order]
    low = np.flatnonzero(np.append(True, code[1:] != code[:-1]))
    starts, ends = np.minimum.reduceat(ranges.start[order], low), np.maximum.reduceat(ranges.end[order], low)
    for place, start, end in zip(code[low].tolist(), starts.tolist(), ends.tolist(), strict=True):
        _, name, topic_id = ranges.topics[place // width]
        runs[name, topic_id, place % width] = (start, end)
    return runs
