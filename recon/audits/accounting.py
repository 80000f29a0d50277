"""The sums of a sink's account, as reports show them. No I/O."""

from __future__ import annotations

from dataclasses import replace

from recon.judge.account.lines import account_of
from recon.model import OffsetSums, SinkFacts, Witnesses
from recon.model.account import KNOWN, HowKnown, OffsetClass, SinkAccount


def with_account(sink: SinkFacts, witnesses: Witnesses) -> SinkFacts:
    """A sink's figures with what became of its offsets; entries count a filtered record again that was read again."""
    account = account_of(witnesses)
    if account is None:
        return sink
    sums = sums_of(account)
    # Where an entry did not count, those that nobody could decide may be filtered as well.
    known = sink.rows_filtered is not None or not sums.undecided
    # In a route's entry, the rows of other routes count as filtered.
    filtered = sums.filtered if known and sink.name not in witnesses.routed else None
    return replace(sink, account=sums, rows_filtered=filtered)


def sums_of(account: SinkAccount) -> OffsetSums:
    """What became of the offsets that micro-batches and repairs read; what nobody read is no part of it."""
    was_read = account.entry >= 0
    read = account if was_read.all() else account.take(was_read)
    of_class = read.sums
    declared = read.offsets[read.how == KNOWN.index(HowKnown.DECLARED)]
    deleted = int(declared.sum())
    return OffsetSums(
        offsets=read.read,
        rows=of_class[OffsetClass.IN_A_ROW],
        filtered=of_class[OffsetClass.FILTERED] + of_class[OffsetClass.RELEASED],
        quarantined=of_class[OffsetClass.QUARANTINED],
        control=of_class[OffsetClass.MARKER],
        aborted=of_class[OffsetClass.ABORTED],
        compacted=of_class[OffsetClass.COMPACTED],
        without_record=of_class[OffsetClass.WITHOUT_RECORD],
        lost=of_class[OffsetClass.DELETED],
        removed=of_class[OffsetClass.REMOVED] - deleted,
        missing=of_class[OffsetClass.LOST],
        undecided=of_class[OffsetClass.NOT_KNOWN],
        deleted=deleted,
        rows_read=bool((read.how == KNOWN.index(HowKnown.ROWS)).any()),
    )
