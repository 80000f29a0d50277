"""Micro-batches of which a second call of the hook was not written, where no offset without a row shows it."""

from __future__ import annotations

from recon.judge.findings import Findings
from recon.judge.row_counts import Counts
from recon.judge.second_calls import SecondCall, second_calls
from recon.model import Code, Level
from recon.model.ledger import named
from recon.model.offsets import Spans


def judge_unwritten(counts: Counts, findings: Findings) -> None:
    """Adds a question for each of them that no finding is about.

    Offsets do not show all that a transform returns, and Kafka may not show any more what was filtered. Where the entry
    that was written was judged earlier, its rows are not looked at now.
    """
    covered, heads = counts.covered, counts.covered.slice.heads
    for call in second_calls(covered).values():
        first, again = heads[call.entry], heads[call.again]
        if not covered.judged(call.again) or _is_answered(counts, call, findings):
            continue
        if not (call.differs or first.rows_filtered):
            continue
        called = (
            f"{named(again)}: the hook was called again, {_with(counts, call)}, and nothing of that call was written"
        )
        step = "whether a row is missing is not known; compare the sink with what it returns, then accept it"
        if not covered.judged(call.entry):
            step = "an audit had judged the micro-batch before; `recon audit --full` tells which records have no row"
        findings.add(Code.INCONCLUSIVE, f"{called}: {step}", head=again)


def _with(counts: Counts, call: SecondCall) -> str:
    heads = counts.covered.slice.heads
    first, second = (heads[entry].transform or "no transform" for entry in (call.entry, call.again))
    return f"with {second} after {first}"


def _is_answered(counts: Counts, call: SecondCall, findings: Findings) -> bool:
    """Whether offsets of the micro-batch are known to lack a row, or a repair has read some again."""
    ledger = counts.covered.slice
    for read in ledger.ranges.of(call.entry):
        mine = Spans.of([read.span]) if read.span.size > 0 else Spans()
        where = (read.topic, read.partition)
        found = (f for f in findings.items if f.level in (Level.FAIL, Level.UNPROVED) and f.span is not None)
        if mine.intersect(Spans.of(f.span for f in found if (f.topic, f.partition) == where and f.span is not None)):
            return True
        repairs = (i for i, head in enumerate(ledger.heads) if head.is_repair and i > call.entry)
        again = (s.span for i in repairs for s in ledger.ranges.of(i) if (s.topic, s.partition) == where)
        if mine.intersect(Spans.of(span for span in again if span.size > 0)):
            return True
    return False
