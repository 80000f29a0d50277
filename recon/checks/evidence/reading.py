"""What the stream read and wrote: the ledger's entries, and behind them recon's commits in the sink that lack one.

A crash, or a running query, leaves a commit whose entry does not stand yet. It is judged as the entry that `recon
ledger rebuild` would write: its rows may be lost or doubled as well as any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recon.checks.evidence.own_writes import unrecorded
from recon.lazy import np
from recon.model import EntryHead, LedgerSlice, RangeTable, SinkCommit, Witnesses, parse_offsets
from recon.model.offsets import OffsetSpan

_READING = "reading"  # in `LedgerSlice.derived`


def reading_of(witnesses: Witnesses) -> LedgerSlice | None:
    """The judged sink's entries with an entry more for each commit that lacks one; None without any entry.

    Where the sink's record was not read, the ledger alone.
    """
    ledger = witnesses.of_sink(witnesses.ledgers)
    if ledger is None or not ledger.heads:
        return None
    record = witnesses.of_sink(witnesses.delta) or witnesses.of_sink(witnesses.sink_logs)
    known = ledger.derived.get(_READING)
    if known is None or known[0] is not record:
        known = ledger.derived[_READING] = (record, _with(ledger, unrecorded(witnesses)))
    reading: LedgerSlice = known[1]
    return reading


def _with(ledger: LedgerSlice, commits: Sequence[SinkCommit]) -> LedgerSlice:
    if not commits:
        return ledger
    last = ledger.heads[-1]
    offsets = [parse_offsets(commit.stamp.offsets_text) for commit in commits]
    texts = [*ledger.offsets_texts, *(commit.stamp.offsets_text for commit in commits)] if ledger.offsets_texts else ()
    return replace(
        ledger,
        heads=[*ledger.heads, *(_head(commit, last, place) for place, commit in enumerate(commits, last.sequence + 1))],
        ranges=_appended(ledger.ranges, len(ledger.heads), offsets),
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


def _appended(table: RangeTable, entries: int, offsets: Sequence[Sequence[OffsetSpan]]) -> RangeTable:
    """The table with the ranges of further entries, which are counted from `entries` on."""
    topics = {topic: place for place, topic in enumerate(table.topics)}
    rows = [
        (entries + i, topics.setdefault((s.source, s.topic, s.topic_id), len(topics)), s.partition, *s.span)
        for i, spans in enumerate(offsets)
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
