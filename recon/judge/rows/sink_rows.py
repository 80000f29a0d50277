"""The rows of one sink against the ranges that its ledger's entries read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from recon.judge.findings import Findings, named, offsets
from recon.judge.history.table_history import TableHistory, history_of, removes_rows, rows_lost
from recon.judge.row_counts import Counts, Piece
from recon.model import WITHOUT_NUMBER, Code, CountedRows, LedgerSlice, RowGroup, RowsWitness, Witnesses
from recon.model.fingerprint import PRIME
from recon.model.offsets import Span, Spans
from recon.model.once import once
from recon.text import plural

TopicPartition = tuple[str, int]
Explained = dict[TopicPartition, Counter[str]]  # offsets without a row, by the reason for it


@dataclass(frozen=True)
class SinkRows:
    """What was read from one sink, and the findings about it."""

    witnesses: Witnesses
    ledger: LedgerSlice
    counts: Counts
    rows: RowsWitness
    findings: Findings

    @property
    def history(self) -> TableHistory | None:
        """What happened to the sink's table; None where it has no history."""
        return history_of(self.witnesses, self.ledger)

    @property
    def groups(self) -> Mapping[TopicPartition, Sequence[RowGroup]]:
        """The groups of rows by topic partition."""
        return once(self.counts, "groups", lambda: by_partition(self.rows.groups), self.rows)

    @property
    def present(self) -> Mapping[TopicPartition, Spans]:
        """The offsets that any row carries."""
        return once(self.counts, "present", lambda: present(self.groups), self.rows)

    def doubles(self, entry: int) -> bool:
        """Whether rows of an entry's micro-batch, as far as rows carry its number, have the same offset."""
        return not self._doubling.isdisjoint((self.ledger.heads[entry].batch_id, WITHOUT_NUMBER))

    @cached_property
    def _doubling(self) -> set[int]:
        return {group.batch_id for group in self.rows.groups if group.rows > group.present.size}

    @cached_property
    def repaired(self) -> Mapping[TopicPartition, Spans]:
        """The offsets that repairs read again."""
        again: dict[TopicPartition, list[Span]] = {}
        for entry, head in enumerate(self.ledger.heads):
            for read in self.ledger.ranges.of(entry) if head.is_repair else ():
                again.setdefault((read.topic, read.partition), []).append(read.span)
        return {where: Spans.of(span for span in spans if span.size > 0) for where, spans in again.items()}

    def has_other_topics(self, topic: str, topic_id: str) -> bool:
        """Whether the ledger has ranges of a topic of this name with another id."""
        return any(name == topic and of not in (topic_id, None) for _, name, of in self.ledger.ranges.topics)

    def held_of(self, batch_id: int) -> CountedRows | None:
        """The rows of a micro-batch; None where they cannot be told from those of other writes.

        Rows carry `_batch_id` and no epoch, and a release or a repair writes rows with the number of another's
        micro-batch.
        """
        of = self.rows.of
        if self._held is None or (of is not None and (0, batch_id) not in of):
            return None
        return self._held.get(batch_id, CountedRows(0, 0))

    @cached_property
    def _held(self) -> Mapping[int, CountedRows] | None:
        """The rows of the sink by micro-batch; None where other epochs than 0 wrote some of them."""
        history = self.history
        if history is None or self.witnesses.period_to < self.witnesses.now or not rows_are_no_newer(self):
            return None
        if self.witnesses.observed:
            return None
        epochs = {head.epoch for head in self.ledger.heads}
        epochs.update(stamp.epoch for _, stamp in history.own)
        if epochs - {0}:
            return None
        held: dict[int, CountedRows] = {}
        mine = {(key.topic, key.partition) for key in self.counts.covered.incarnations}
        # Another pipeline may write this table, and its micro-batches are numbered alike.
        for group in (group for group in self.rows.groups if (group.topic, group.partition) in mine):
            rows, known = held.get(group.batch_id, CountedRows(0, 0)), group.fingerprint
            both = None if known is None or rows.fingerprint is None else (rows.fingerprint + known) % PRIME
            held[group.batch_id] = CountedRows(rows.rows + group.rows, both)
        return held

    def report(self, code: Code, pieces: Iterable[Piece], what: str, *, records: bool = False, **where: Any) -> None:
        """Adds one finding per unbroken range; it names the micro-batches that read the range.

        `records`: each of the offsets is known to be that of a record. `where` are further fields of `Finding`.
        """
        report(self.ledger, self.findings, code, pieces, what, records=records, **where)

    def report_removed(self, pieces: Iterable[Piece], what: str) -> None:
        """Adds a GAP per unbroken range of offsets that had a row; it names the commits that may have removed them."""
        for piece in _joined(pieces):
            since = min(self.ledger.heads[one.entry].sink_version or 0 for one in piece)
            by = tuple(version for version in self._removing if version > since)
            report(self.ledger, self.findings, Code.GAP, piece, what, records=True, changed_by=by)

    @cached_property
    def _removing(self) -> Sequence[int]:
        """The versions in which others took rows away; empty where the log of the sink does not show all of them."""
        history = self.history
        first = min((head.sink_version or 0 for head in self.ledger.heads[self.ledger.anchors :]), default=0)
        if history is None or first < min(history.log.commits, default=first + 1):
            return ()
        theirs = (commit for commit in history.commits if not history.is_own(commit))
        return [c.version for c in theirs if c.is_restore or (removes_rows(c) and rows_lost(c) != 0)]


def report(
    ledger: LedgerSlice,
    findings: Findings,
    code: Code,
    pieces: Iterable[Piece],
    what: str,
    *,
    records: bool = False,
    **where: Any,
) -> None:
    """Adds one finding per unbroken range; it names the micro-batches that read the range.

    `records` and `where` are as in `SinkRows.report`.
    """
    for joined in _joined(pieces):
        first, last = (ledger.heads[piece.entry] for piece in (joined[0], joined[-1]))
        key, start, end = joined[0].key, joined[0].start, joined[-1].end
        by = f"{named(first)} to {named(last)}" if first is not last else named(first)
        findings.add(
            code,
            f"{key}: {offsets(start, end)} of {by} {what}",
            head=first,
            key=key,
            span=(start, end),
            rows=end - start if records else None,
            **where,
        )


def rows_are_no_newer(sink: SinkRows) -> bool:
    """Whether the rows were read at a version that the Delta log's witness knows."""
    log, version = sink.witnesses.table_log, sink.rows.version
    return log is not None and log.last is not None and version is not None and version <= log.last


def by_partition(groups: Iterable[RowGroup]) -> dict[TopicPartition, list[RowGroup]]:
    """Groups of rows by topic partition."""
    by: dict[TopicPartition, list[RowGroup]] = {}
    for group in groups:
        by.setdefault((group.topic, group.partition), []).append(group)
    return by


def present(groups: Mapping[TopicPartition, Iterable[RowGroup]]) -> dict[TopicPartition, Spans]:
    """The offsets of rows by topic partition."""
    return {where: Spans.of(span for group in mine for span in group.present) for where, mine in groups.items()}


def rewrites(witnesses: Witnesses) -> bool:
    """Whether later micro-batches may replace the rows of earlier ones, so that a missing row proves nothing."""
    return witnesses.sink in witnesses.rewriting


def judged_by_counts(witnesses: Witnesses) -> bool:
    """Whether only numbers of rows can be judged.

    In a sink that later micro-batches rewrite a missing row proves nothing.
    """
    return rewrites(witnesses) or rows_lack_source(witnesses)


def rows_lack_source(witnesses: Witnesses) -> bool:
    """Whether no row says which record it was made of.

    Rows that Spark's own sink wrote without source columns do not, nor do those that were read from a Delta table.
    """
    return witnesses.source_log is not None or (witnesses.observed and not witnesses.source_columns)


def tell_explained(explained: Explained, without: str, findings: Findings) -> Counter[str]:
    """One EXPLAINED finding per topic partition, and the sum of all; `without` names what its offsets lack."""
    total: Counter[str] = Counter()
    for (topic, partition), tally in sorted(explained.items()):
        total += tally
        if tally.total():
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(tally.items()) if count)
            findings.add(
                Code.EXPLAINED,
                f"{topic}-{partition}: {plural(tally.total(), 'offset')} without a {without}, all explained: {reasons}",
                topic=topic,
                partition=partition,
            )
    return total


def _joined(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces that touch, together."""
    run: list[Piece] = []
    for piece in sorted(pieces, key=lambda p: (p.key, p.start)):
        if run and (run[-1].key, run[-1].end) != (piece.key, piece.start):
            yield run
            run = []
        run.append(piece)
    if run:
        yield run
