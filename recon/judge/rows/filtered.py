"""Rows that the transform filtered: how many, whether they are more than agreed or usual, and what they may hide.

Where a second call of the hook for a micro-batch was not written, what it would have written may seem filtered.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from recon.judge.coverage import by_partition
from recon.judge.findings import Findings
from recon.judge.row_counts import Counts
from recon.judge.rows.sink_rows import spans_told
from recon.judge.second_calls import SecondCall, second_calls
from recon.model import Code, EntryHead, Level
from recon.model.ledger import named
from recon.model.offsets import Spans

_LOOKED_BACK = 100  # micro-batches whose median is the usual share
_BEFORE = 4  # micro-batches with which one is compared, at least
_FACTOR, _MORE = 3.0, 0.05  # unusual: so many times the median share of those before it, and so much above it


def rows_filtered(counts: Counts) -> int:
    """Rows that the transform dropped in the period, as far as they were counted; of a route, those of others, too."""
    return sum((counted.dropped or 0) - counted.dropped_by_state for counted in counts.counted.values())


def judge_filtered(counts: Counts, most: float | None, findings: Findings) -> None:
    """Adds findings for micro-batches of which the transform filtered more than agreed, or more than of others.

    `most` is the share that is agreed, None where none is.
    """
    heads = counts.ledger.heads
    if most is not None:
        above = [heads[entry] for entry in counts.counted if (_share(heads[entry]) or 0.0) > most]
        findings.add_for_all(Code.UNUSUAL, above, f"the transform filtered more than {most:.2%} of the rows")
        return
    said = "the transform filtered a far larger share of the rows than of the micro-batches before: look at what the "
    said += "source sent, or say with max_filtered in recon.yml what is usual"
    findings.add_for_all(Code.UNUSUAL, list(_unusual(counts)), said)


def _unusual(counts: Counts) -> Iterator[EntryHead]:
    before: list[float] = []
    for entry in counts.covered.micro_batches:
        head = counts.covered.slice.heads[entry]
        share = _share(head)
        if share is None:
            continue
        usual = median(before[-_LOOKED_BACK:]) if len(before) >= _BEFORE else 1.0
        if share > max(_FACTOR * usual, usual + _MORE) and counts.covered.judged(entry):
            yield head
        before.append(share)


def _share(head: EntryHead) -> float | None:
    """The share of the rows read that the transform filtered; None where it was not counted, or nothing was read."""
    if not head.rows_read or head.rows_filtered is None or head.status == "already_committed":
        return None
    return head.rows_filtered / head.rows_read


def judge_unwritten(counts: Counts, findings: Findings) -> None:
    """Adds a question for each micro-batch of which a second call was not written, where no finding is about it.

    Offsets do not show all that a transform returns, and Kafka may not show any more what was filtered. Where the entry
    that was written was judged earlier, its rows are not looked at now.
    """
    covered, heads = counts.covered, counts.covered.slice.heads
    for call in second_calls(covered).values():
        first, again = heads[call.entry], heads[call.again]
        asked = covered.judged(call.again) and (call.differs or first.rows_filtered)
        if not asked or _is_answered(counts, call, findings):
            continue
        step = (
            "whether a row is missing is not known; `recon audit --full` tells which records have none; else compare "
        )
        step += "the sink with what it returns, then accept it"
        transforms = f"with {again.transform or 'no transform'} after {first.transform or 'no transform'}"
        called = f"the hook was called again, {transforms}, and nothing of that call was written"
        findings.add(Code.INCONCLUSIVE, f"{named(again)}: {called}: {step}", head=again)


def _is_answered(counts: Counts, call: SecondCall, findings: Findings) -> bool:
    """Whether offsets of the micro-batch are known to lack a row, or a repair has read some again."""
    ledger = counts.covered.slice
    repairs = (entry for entry in range(call.entry + 1, len(ledger.heads)) if ledger.heads[entry].is_repair)
    again = by_partition(read for entry in repairs for read in ledger.ranges.of(entry))
    for where, mine in by_partition(ledger.ranges.of(call.entry)).items():
        told = spans_told(findings, where, lambda found: found.level in (Level.FAIL, Level.UNPROVED))
        if mine.intersect(told.union(again.get(where, Spans()))):
            return True
    return False
