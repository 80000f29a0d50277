"""What the stream read and wrote: the ledger's entries, and behind them recon's commits in the sink that lack one.

A crash, or a running query, leaves a commit whose entry does not stand yet. It is judged as the entry that `recon
ledger rebuild` would write: its rows may be lost or doubled as well as any.
Where the commit of an entry carries other offset ranges than the entry, one of them was edited, which other checks
report. The ranges are then the commit's where the entry does not match its own hash, else those that both have: neither
an entry nor a stamp that was edited to cover a gap hides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from recon.base.lazy import np
from recon.judge.history.sink_history import SinkHistory
from recon.model import (
    AuditTime,
    CheckpointWitness,
    EntryHead,
    LedgerSlice,
    RangeTable,
    ReconStamp,
    SinkCommit,
    offsets_text,
    parse_offsets,
)
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.model.once import kept


@kept
def with_unrecorded_commits(
    ledger: LedgerSlice, history: SinkHistory, time: AuditTime, checkpoint: CheckpointWitness | None
) -> LedgerSlice:
    """A sink's entries, with an entry more for each commit that lacks one."""
    return _with(_as_stamped(ledger, history), history.unrecorded(time, checkpoint))


def _as_stamped(ledger: LedgerSlice, history: SinkHistory) -> LedgerSlice:
    """The entries, with the ranges that they do not only claim where no commit of their micro-batch carries theirs."""
    written: dict[tuple[int, int], list[ReconStamp]] = {}
    for write in history.own_writes:
        written.setdefault((write.stamp.epoch, write.stamp.batch_id), []).append(write.stamp)
    broken = {*ledger.broken}
    other = {
        entry: _ranges_of(ledger, entry, of_batch[-1], believed=entry not in broken)
        for entry, head in enumerate(ledger.heads)
        # What recon did not write itself carries no stamp: its ranges follow from the entries.
        if not head.is_observed and (of_batch := written.get((head.epoch, head.batch_id)))
        if not any(history.has_ranges_of(entry, stamp) for stamp in of_batch)
    }
    if not other:
        return ledger
    texts = list(ledger.offsets_texts)
    for entry, spans in other.items() if texts else ():
        texts[entry] = offsets_text(spans)
    return replace(ledger, ranges=_replaced(ledger.ranges, other), offsets_texts=texts)


def _ranges_of(ledger: LedgerSlice, entry: int, stamp: ReconStamp, *, believed: bool) -> Sequence[OffsetSpan]:
    """The ranges of a stamp; where the entry is `believed` as well, as far as both have them."""
    stamped = parse_offsets(stamp.offsets_text)
    if not believed:
        return stamped
    entered: dict[tuple[int, str, int], list[Span]] = {}
    for read in ledger.ranges.of(entry):
        entered.setdefault((read.source, read.topic, read.partition), []).append(read.span)
    return [
        read._replace(start_offset=span.start, end_offset=span.end)
        for read in stamped
        for span in Spans.of([read.span]).intersect(
            Spans.of(entered.get((read.source, read.topic, read.partition), ()))
        )
    ]


def _replaced(table: RangeTable, other: Mapping[int, Sequence[OffsetSpan]]) -> RangeTable:
    """The table with other ranges of some entries."""
    joined = _appended(table.take(~np.isin(table.entry, list(other))), other)
    return joined.take(np.argsort(joined.entry, kind="stable"))


def _with(ledger: LedgerSlice, commits: Sequence[SinkCommit]) -> LedgerSlice:
    if not commits:
        return ledger
    last = ledger.heads[-1]
    offsets = {
        entry: parse_offsets(commit.stamp.offsets_text) for entry, commit in enumerate(commits, len(ledger.heads))
    }
    texts = [*ledger.offsets_texts, *(commit.stamp.offsets_text for commit in commits)] if ledger.offsets_texts else ()
    return replace(
        ledger,
        heads=[*ledger.heads, *(_head(commit, last, place) for place, commit in enumerate(commits, last.sequence + 1))],
        ranges=_appended(ledger.ranges, offsets),
        offsets_texts=texts,
    )


def _head(commit: SinkCommit, last: EntryHead, sequence: int) -> EntryHead:
    """The entry that a commit stands for; what no stamp says of the sink is as in its `last` entry."""
    stamp = commit.stamp
    return replace(
        last,
        sequence=sequence,
        query_id=stamp.query_id,
        run_id=stamp.run_id,
        epoch=stamp.epoch,
        batch_id=stamp.batch_id,
        attempt=1,
        status="observed" if last.is_observed else "rebuilt",
        rows_read=stamp.rows_read,
        rows_written=commit.rows,
        rows_quarantined=None,
        rows_filtered=stamp.filtered if stamp.given is None else None,
        rows_returned=None,
        rows_given=None,
        rows_removed=stamp.removed,
        transform=None,
        fingerprint_read=None,
        fingerprint_returned=None,
        fingerprint_given=None,
        isolation_level=None,
        kafka_state=None,
        sink_table_id=None,
        files_digest=stamp.files_digest,
        sink_version=commit.version,
        started_at=commit.at,
        committed_at=commit.at,
        prev_hash="",
        entry_hash="",
    )


def _appended(table: RangeTable, offsets: Mapping[int, Sequence[OffsetSpan]]) -> RangeTable:
    """The table with the ranges of further entries behind its own."""
    topics = {topic: place for place, topic in enumerate(table.topics)}
    rows = [
        (entry, topics.setdefault((s.source, s.topic, s.topic_id), len(topics)), s.partition, *s.span)
        for entry, spans in offsets.items()
        for s in spans
    ]
    entry, topic, partition, start, end = np.array(rows, np.int64).reshape(-1, 5).T
    return RangeTable(
        np.concatenate((table.entry, entry)),
        np.concatenate((table.topic, topic.astype(np.int32))),
        np.concatenate((table.partition, partition)),
        np.concatenate((table.start, start)),
        np.concatenate((table.end, end)),
        list(topics),
    )
