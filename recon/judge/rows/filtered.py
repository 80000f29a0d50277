"""Rows that the transform filtered: how many, and whether they are more than agreed or more than usual."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import ClassVar, Self

from typing_extensions import override

from recon.judge.findings import Findings
from recon.judge.row_counts import Counts
from recon.model import Code, EntryHead, Witnesses
from recon.model.memory import SinkAudit, SinkMemory

_LOOKED_BACK = 100  # micro-batches whose median is the usual share
_BEFORE = 4  # micro-batches with which one is compared, at least
_FACTOR, _MORE = 3.0, 0.05  # unusual: so many times the median share of those before it, and so much above it


@dataclass(frozen=True, kw_only=True)
class Filtered(SinkMemory):
    """That the transform dropped rows of a micro-batch that was judged."""

    name: ClassVar[str] = "filtered"

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        return before or (cls() if any(head.rows_filtered for head in audit.settled) else None)


def rows_filtered(counts: Counts) -> int:
    """Rows that the transform dropped in the period, as far as they were counted; of a route, those of others, too."""
    return sum((counted.dropped or 0) - counted.dropped_by_state for counted in counts.counted.values())


def judge_filtered(counts: Counts, witnesses: Witnesses, findings: Findings) -> None:
    """Adds findings for micro-batches of which the transform filtered more than agreed, or more than of others."""
    heads, most = counts.covered.slice.heads, witnesses.declared.max_filtered
    if witnesses.sink in witnesses.routed:
        return  # in a route's entry, the rows of other routes count as filtered
    if most is not None:
        above = [heads[entry] for entry in counts.counted if (_share(heads[entry]) or 0.0) > most]
        findings.add_for_all(Code.UNUSUAL, above, f"the transform filtered more than {most:.2%} of the rows")
        return
    unusual: list[EntryHead] = []
    before: list[float] = []
    for entry in counts.covered.micro_batches:
        share = _share(heads[entry])
        if share is None:
            continue
        usual = median(before[-_LOOKED_BACK:]) if len(before) >= _BEFORE else None
        if usual is not None and share > max(_FACTOR * usual, usual + _MORE) and counts.covered.judged(entry):
            unusual.append(heads[entry])
        before.append(share)
    findings.add_for_all(
        Code.UNUSUAL,
        unusual,
        "the transform filtered a far larger share of the rows than of the micro-batches before: look at what the "
        "source sent, or say with max_filtered in recon.yml what is usual",
    )


def _share(head: EntryHead) -> float | None:
    """The share of the rows read that the transform filtered; None where it was not counted, or nothing was read."""
    if not head.rows_read or head.rows_filtered is None or head.status == "already_committed":
        return None
    return head.rows_filtered / head.rows_read
