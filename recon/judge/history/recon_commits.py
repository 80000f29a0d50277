"""Recon's own writes in a sink's record, a Delta log or another, compared with the ledger's entries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from recon.judge.findings import Findings
from recon.judge.history.table_history import TableHistory, history_of, removes_rows
from recon.model import (
    Code,
    EntryHead,
    LedgerSlice,
    ReconStamp,
    SinkCommit,
    SinkLog,
    Witnesses,
    known,
    offsets_text,
    parse_offsets,
    same_ranges,
)
from recon.model.ledger import named
from recon.model.offsets import OffsetSpan, Spans

_BEFORE_ALL = (0, -1)  # (epoch, batch_id) before any micro-batch's; those of releases and repairs are lower
_EDGE = timedelta(minutes=5)  # how long after its write a ledger entry may come


def unrecorded(witnesses: Witnesses) -> list[SinkCommit]:
    """The writes of the judged sink, in its own record, that no entry records: the newest of each micro-batch.

    Left out are those that earlier audits looked at, and those so late that their entry may follow: it is not known
    yet what the hook counted, nor whether failing rows are in quarantine.
    """
    ledger, record, entered = witnesses.ledger, witnesses.sink_record, set[tuple[int, int]]()
    history = history_of(witnesses, ledger)
    if ledger is not None:
        entered = {(head.epoch, head.batch_id) for head in ledger.heads}
        entered |= {(epoch, batch_id) for epoch, batch_id, _ in ledger.recorded}
    if history is not None:
        return list(_unrecorded_in_log(witnesses, history, entered))
    return list(_unrecorded_in_record(witnesses, record, entered)) if record is not None else []


def _unrecorded_in_log(
    witnesses: Witnesses, history: TableHistory, entered: Collection[tuple[int, int]]
) -> Iterator[SinkCommit]:
    heads, begin = history.heads, witnesses.period_from
    last = max((head.sink_version for head in heads if head.sink_version is not None), default=-1)
    # Of the releases and repairs before the period only the newest are in the slice; the others are the business of
    # earlier audits.
    numbers = {head.epoch: head.batch_id for head in sorted(history.anchors, key=_number) if not head.is_micro_batch}
    newest = {(stamp.epoch, stamp.batch_id): (commit, stamp) for commit, stamp in history.own}
    for commit, stamp in (of for number, of in newest.items() if number not in entered):
        at = commit.timestamp
        earlier = stamp.batch_id < numbers.get(stamp.epoch, -1) and begin is not None and at < begin
        # The entry comes a moment after the commit.
        may_follow = (
            at > witnesses.now
            or is_in_progress(witnesses, stamp, at, commit.version)
            or (commit.version > last and entry_may_follow(at, witnesses))
        )
        if commit.version > history.looked_up_to and not earlier and not may_follow:
            yield SinkCommit(version=commit.version, stamp=stamp, rows=commit.rows_taken, at=at)


def _unrecorded_in_record(
    witnesses: Witnesses, record: SinkLog, entered: Collection[tuple[int, int]]
) -> Iterator[SinkCommit]:
    begin, ledger = witnesses.period_from, witnesses.ledger
    heads = ledger.heads if ledger is not None else ()
    # Clocks may be wrong. A micro-batch behind the newest one before the period is of the period at any time, and the
    # entry of one before the newest entry of all does not follow any more.
    first = _newest_number(heads[: ledger.anchors] if ledger is not None else ())
    last = _newest_number(heads)
    own = [commit for commit in record.commits if commit.stamp.is_of(witnesses.pipeline, witnesses.sink)]
    newest = {(commit.stamp.epoch, commit.stamp.batch_id): commit for commit in own}
    for number, commit in ((number, commit) for number, commit in newest.items() if number not in entered):
        before = begin is not None and commit.at < begin and not _BEFORE_ALL < first < number
        may_follow = entry_may_follow(commit.at, witnesses) or is_in_progress(witnesses, commit.stamp, commit.at)
        if not before and not (may_follow and not _BEFORE_ALL < number < last):
            yield commit


def _number(head: EntryHead) -> tuple[int, int]:
    return head.epoch, head.batch_id


def _newest_number(heads: Iterable[EntryHead]) -> tuple[int, int]:
    """The highest (epoch, batch_id) of micro-batches; one before all of them where there is none."""
    return max((_number(head) for head in heads if head.is_micro_batch), default=_BEFORE_ALL)


def same_offsets(ledger: LedgerSlice, entry: int, stamp: ReconStamp) -> bool:
    """Whether a write carries the ranges of a ledger entry."""
    texts = ledger.offsets_texts
    text = texts[entry] if texts else offsets_text(ledger.ranges.of(entry))
    return stamp.offsets_text == text or same_ranges(stamp.offsets_text, text)


def looked_at_all(spans: Sequence[OffsetSpan], stamp: ReconStamp) -> bool:
    """Whether repairs that looked for doubled rows in these ranges, if any did, saw every offset of a write."""
    left = (
        Spans.of([read.span]).minus(
            Spans.of(s.span for s in spans if (s.topic, s.partition) == (read.topic, read.partition))
        )
        for read in parse_offsets(stamp.offsets_text)
        if read.span.size > 0
    )
    return bool(spans) and not any(left)


def doubled(witnesses: Witnesses) -> tuple[Code, str]:
    """The code of doubled rows in a sink, and the guarantee that it claims: perhaps only that no row is lost.

    Spark's own sink, which is observed, writes a micro-batch once.
    """
    claimed = witnesses.guarantees.get(witnesses.sink or "", "exactly-once")
    return Code.DUPLICATE if claimed.startswith(("exactly-once", "observed")) else Code.REPEATED, claimed


def entry_may_follow(at: datetime, witnesses: Witnesses) -> bool:
    """Whether a write was so late that its entry need not be in this audit's slice of the ledger."""
    return at > witnesses.now or (witnesses.period_to < witnesses.now and at > witnesses.period_to - _EDGE)


def is_in_progress(witnesses: Witnesses, stamp: ReconStamp, at: datetime, version: int | None = None) -> bool:
    """Whether a write is of the micro-batch that the query is in, so that its entry follows in a moment.

    The checkpoint has it planned and not finished. Minutes later it is no longer in progress: the query stopped there.
    Nor is it once a later commit took rows away: which of them were of this one (`version`) must be judged at once.
    """
    checkpoint = known(witnesses.checkpoint)
    if checkpoint is None or checkpoint.last is None or checkpoint.last.committed:
        return False
    planned = (checkpoint.query_id, checkpoint.last.batch_id)
    if planned != (stamp.query_id, stamp.batch_id) or at <= witnesses.now - _EDGE:
        return False
    log = witnesses.table_log
    if log is None or version is None:
        return True
    later = (commit for number, commit in log.commits.items() if number > version)
    return not any(commit.is_restore or removes_rows(commit) for commit in later)


def report_orphan(head: EntryHead, write: str, reason: str, findings: Findings) -> None:
    """Adds a finding for an entry without its write, which the sink calls a `write` or a `commit`."""
    sentence = f"{named(head)} has a ledger entry without the {write} that belongs to it: {reason}"
    findings.add(Code.LEDGER_ORPHAN, sentence, head=head)


def report_unrecorded(holder: str, stamp: ReconStamp, findings: Findings, *, observed: bool = False) -> None:
    """Adds a finding for a write that no entry records; where recon observes, the next look enters it."""
    if observed:
        findings.add(
            Code.INFLIGHT,
            f"{holder} holds {named(stamp)}, which is not entered in the ledger yet; the next audit, or `recon "
            "observe`, enters it",
            head=stamp,
        )
        return
    findings.add(
        Code.LEDGER_MISSING,
        f"{holder} holds {named(stamp)}, and the ledger has no entry of it; the query's next start, or `recon ledger "
        "rebuild`, restores it",
        head=stamp,
    )
