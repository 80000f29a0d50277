"""Recon's own writes in a sink's record, a Delta log or another, compared with the ledger's entries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from recon.judge.findings import Findings
from recon.judge.history.table_history import TableHistory, history_of, removes_rows
from recon.model import (
    Code,
    EntryHead,
    LedgerSlice,
    ReconStamp,
    SinkCommit,
    Witnesses,
    known,
    offsets_text,
    parse_offsets,
    same_ranges,
)
from recon.model.ledger import Numbered, named
from recon.model.offsets import OffsetSpan, Spans

_BEFORE_ALL = (0, -1)  # (epoch, batch_id) before any micro-batch's; those of releases and repairs are lower
_EDGE = timedelta(minutes=5)  # how long after its write a ledger entry may come


def own_writes(witnesses: Witnesses) -> Sequence[SinkCommit]:
    """Recon's own writes of the judged sink, as its log or another record has them, in order; none where not read."""
    history, record = history_of(witnesses, witnesses.ledger), witnesses.sink_record
    if history is not None:
        return history.own_writes
    commits = record.commits if record is not None else ()
    return [commit for commit in commits if commit.stamp.is_of(witnesses.pipeline, witnesses.sink)]


def unrecorded(witnesses: Witnesses) -> list[SinkCommit]:
    """The writes of the judged sink, in its own record, that no entry records: the newest of each micro-batch.

    Left out are those that earlier audits looked at, and those so late that their entry may follow: it is not known
    yet what the hook counted, nor whether failing rows are in quarantine.
    """
    ledger = witnesses.ledger
    entered = _entered(ledger)
    newest = {_number(write.stamp): write for write in own_writes(witnesses)}
    missing = [write for number, write in newest.items() if number not in entered]
    history = history_of(witnesses, ledger)
    if history is not None:
        return [write for write in missing if _is_asked_of_log(write, history, witnesses)]
    # Clocks may be wrong. A micro-batch behind the newest one before the period is of the period at any time, and the
    # entry of one before the newest entry of all does not follow any more.
    heads, anchors = (ledger.heads, ledger.anchors) if ledger is not None else ((), 0)
    first, last = _newest_number(heads[:anchors]), _newest_number(heads)
    return [write for write in missing if _is_asked_of_record(write, first, last, witnesses)]


def _entered(ledger: LedgerSlice | None) -> Collection[tuple[int, int]]:
    """The (epoch, batch_id) of all entries."""
    if ledger is None:
        return ()
    return {*map(_number, ledger.heads), *((epoch, batch_id) for epoch, batch_id, _ in ledger.recorded)}


def _is_asked_of_log(write: SinkCommit, history: TableHistory, witnesses: Witnesses) -> bool:
    """Whether a commit ought to have an entry, and earlier audits did not look at it."""
    version, at = write.version or 0, write.at
    if version <= history.looked_up_to or at > witnesses.now or _is_of_earlier(write, history, witnesses):
        return False
    # The entry comes a moment after the commit.
    may_follow = version > history.last_entered and entry_may_follow(at, witnesses)
    return not may_follow and not is_in_progress(witnesses, write.stamp, at, version)


def _is_of_earlier(write: SinkCommit, history: TableHistory, witnesses: Witnesses) -> bool:
    """Whether a release or a repair is the business of earlier audits.

    Of those before the period only the newest are in the slice.
    """
    if witnesses.period_from is None or write.at >= witnesses.period_from:
        return False
    newer = (head for head in history.anchors if not head.is_micro_batch and head.epoch == write.stamp.epoch)
    return any(head.batch_id > write.stamp.batch_id for head in newer)


def _is_asked_of_record(write: SinkCommit, first: tuple[int, int], last: tuple[int, int], witnesses: Witnesses) -> bool:
    """The same of a write in another record, by the newest micro-batches before the period, and of all entries."""
    begin, number = witnesses.period_from, _number(write.stamp)
    before = begin is not None and write.at < begin and not _BEFORE_ALL < first < number
    if before or _BEFORE_ALL < number < last:
        return not before
    return not (entry_may_follow(write.at, witnesses) or is_in_progress(witnesses, write.stamp, write.at))


def _number(write: Numbered) -> tuple[int, int]:
    return write.epoch, write.batch_id


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
