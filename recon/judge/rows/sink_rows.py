"""The rows of one sink against the ranges that its ledger's entries read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

from recon.base.text import plural
from recon.judge.coverage import by_partition as by_topic_partition
from recon.judge.findings import Findings, offsets
from recon.judge.history.recon_commits import doubled
from recon.judge.history.record_history import RecordHistory
from recon.judge.history.table_history import TableHistory, removes_rows, rows_lost
from recon.judge.row_counts import Counts, Piece, inside, outside
from recon.judge.rows.spot_check import SpotCheck
from recon.judge.source import Source
from recon.model import (
    WITHOUT_NUMBER,
    AuditTime,
    Code,
    CountedRows,
    EntryHead,
    Finding,
    LedgerSlice,
    RowGroup,
    RowSearch,
    RowsWitness,
    TableCommit,
    Writing,
)
from recon.model.fingerprint import PRIME
from recon.model.grouping import grouped
from recon.model.ledger import named
from recon.model.offsets import Spans
from recon.model.once import Derived
from recon.model.proof import SinkProof

TopicPartition = tuple[str, int]
Explained = dict[TopicPartition, Counter[str]]  # offsets without a row, by the reason for it


@dataclass(frozen=True)
class SinkRows:
    """What was read from one sink, and the findings about it.

    `rows` are those of the whole sink, or of some micro-batches; `spot` has those of some commits. What happened to a
    sink with history is in `table`, to any other in `record`. `sought` are the rows that were looked for in the whole
    sink, `released` the judged releases from quarantine, whose rows it may have had already.
    """

    counts: Counts
    rows: RowsWitness
    spot: SpotCheck
    source: Source
    writing: Writing
    table: TableHistory | None
    record: RecordHistory | None
    proof: SinkProof | None
    time: AuditTime
    sought: RowSearch
    released: Sequence[EntryHead]
    findings: Findings
    derived: Derived = field(default_factory=dict, init=False, repr=False)

    def told(self, source: Source, findings: Findings) -> SinkRows:
        """The same rows with more answers of Kafka's, for other findings.

        What is found of the rows, here and by functions that are `kept`, rests on neither, and stays.
        """
        rows = copy(self)
        rows.__dict__.update(source=source, findings=findings)
        return rows

    @property
    def ledger(self) -> LedgerSlice:
        """The entries."""
        return self.counts.ledger

    @property
    def doubled(self) -> Code:
        """The code of doubled rows."""
        return doubled(self.writing.guarantee)

    @cached_property
    def groups(self) -> Mapping[TopicPartition, Sequence[RowGroup]]:
        """The groups of rows by topic partition."""
        return by_partition(self.rows.groups)

    @cached_property
    def present(self) -> Mapping[TopicPartition, Spans]:
        """The offsets that any row carries."""
        return present(self.groups)

    def doubles(self, entry: int) -> bool:
        """Whether rows of an entry's micro-batch, as far as rows carry its number, have the same offset."""
        return not self._doubling.isdisjoint((self.ledger.heads[entry].batch_id, WITHOUT_NUMBER))

    @cached_property
    def _doubling(self) -> set[int]:
        return {group.batch_id for group in self.rows.groups if group.rows > group.present.size}

    @cached_property
    def repaired(self) -> Mapping[TopicPartition, Spans]:
        """The offsets that repairs read again."""
        repairs = (entry for entry, head in enumerate(self.ledger.heads) if head.is_repair)
        return by_topic_partition(read for entry in repairs for read in self.ledger.ranges.of(entry))

    def held_of(self, batch_id: int) -> CountedRows | None:
        """The rows of a micro-batch; None where they cannot be told from those of other writes.

        Rows carry `_batch_id` and no epoch, and a release or a repair writes rows with the number of another's
        micro-batch.
        """
        of = self.rows.of
        if self._of_batches is None or (of is not None and (0, batch_id) not in of):
            return None
        groups = self._of_batches.get(batch_id, ())
        known = [group.fingerprint for group in groups if group.fingerprint is not None]
        fingerprint = sum(known) % PRIME if len(known) == len(groups) else None
        return CountedRows(sum(group.rows for group in groups), fingerprint)

    @cached_property
    def _of_batches(self) -> Mapping[int, Sequence[RowGroup]] | None:
        """The rows by micro-batch; None where others than micro-batches of epoch 0 wrote some of them."""
        table = self.table
        if table is None or self.time.is_past or not self.are_no_newer or self.writing.observed:
            return None
        writes = (*self.ledger.heads, *(stamp for _, stamp in table.own))
        if set(map(attrgetter("epoch"), writes)) - {0}:
            return None
        found: defaultdict[int, list[RowGroup]] = defaultdict(list)
        # Another pipeline may write this table, and its micro-batches are numbered alike.
        mine = {(key.topic, key.partition) for key in self.counts.covered.incarnations}
        for where in mine:
            for group in self.groups.get(where, ()):
                found[group.batch_id].append(group)
        return found

    @property
    def are_no_newer(self) -> bool:
        """Whether the rows were read at a version that the log's witness knows."""
        last, version = self.table.log.last if self.table is not None else None, self.rows.version
        return last is not None and version is not None and version <= last

    def report(self, code: Code, pieces: Iterable[Piece], what: str, *, records: bool = False, **where: Any) -> None:
        """See `report`; what somebody accepted stays a finding of its own."""
        for apart in self._apart(pieces):
            report(self.ledger, self.findings, code, apart, what, records=records, **where)

    def report_removed(self, pieces: Iterable[Piece], what: str) -> None:
        """Adds a GAP per unbroken range of offsets that had a row; it names the commits that may have removed them."""
        for joined in (joined for apart in self._apart(pieces) for joined in _joined(apart)):
            since = min(self.ledger.heads[piece.entry].sink_version or 0 for piece in joined)
            by = tuple(version for version in self._removing if version > since)
            report(self.ledger, self.findings, Code.GAP, joined, what, records=True, changed_by=by)

    def _apart(self, pieces: Iterable[Piece]) -> Iterator[Sequence[Piece]]:
        """The pieces of each finding that somebody accepted, and the others: these are new, or were not accepted."""
        by_partition = grouped((piece.where, piece) for piece in pieces)
        for where, left in by_partition.items():
            for open_ in self.proof.open if self.proof is not None else ():
                if open_.accepted is not None and open_.is_in(*where):
                    yield list(inside(left, open_.spans))
                    left = list(outside(left, open_.spans))
            yield left

    @cached_property
    def _removing(self) -> Sequence[int]:
        """The versions in which others took rows away; empty where the log of the sink does not show all of them."""
        history = self.table
        first = min((head.sink_version or 0 for head in self.ledger.heads[self.ledger.anchors :]), default=0)
        if history is None or first < min(history.log.commits, default=first + 1):
            return ()
        taking = (commit for commit in history.commits if takes_rows(commit) and not history.is_own(commit))
        return [commit.version for commit in taking if not history.is_lawful(commit)]


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

    `records`: each of the offsets is known to be that of a record. `where` are further fields of `Finding`.
    """
    for joined in (joined for mine in _by_topic(ledger, pieces) for joined in _joined(mine)):
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


def spans_told(findings: Findings, where: TopicPartition, tells: Callable[[Finding], bool]) -> Spans:
    """The offsets of a topic partition that some of the findings are about."""
    there = (found for found in findings.items if (found.topic, found.partition) == where and tells(found))
    return Spans.of(found.span for found in there if found.span is not None)


def takes_rows(commit: TableCommit, removes: Callable[[TableCommit], bool] = removes_rows) -> bool:
    """Whether a commit left fewer rows, or may have."""
    return commit.is_restore or (removes(commit) and rows_lost(commit) != 0)


def by_partition(groups: Iterable[RowGroup]) -> dict[TopicPartition, list[RowGroup]]:
    """Groups of rows by topic partition."""
    return grouped(((group.topic, group.partition), group) for group in groups)


def present(groups: Mapping[TopicPartition, Iterable[RowGroup]]) -> dict[TopicPartition, Spans]:
    """The offsets of rows by topic partition."""
    return {where: Spans.of(span for group in mine for span in group.present) for where, mine in groups.items()}


def tell_explained(explained: Explained, without: str, findings: Findings) -> Counter[str]:
    """One EXPLAINED finding per topic partition, and the sum of all; `without` names what its offsets lack."""
    total: Counter[str] = Counter()
    for (topic, partition), tally in sorted(explained.items()):
        total += tally
        if tally.total():
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(tally.items()) if count)
            message = (
                f"{topic}-{partition}: {plural(tally.total(), 'offset')} without a {without}, all explained: {reasons}"
            )
            findings.add(Code.EXPLAINED, message, topic=topic, partition=partition)
    return total


def _by_topic(ledger: LedgerSlice, pieces: Iterable[Piece]) -> Iterable[Sequence[Piece]]:
    """The pieces apart by topic, where several topics of a name were read: their offsets are other records."""
    several = list(pieces)
    names = {piece.key.topic for piece in several}
    if len({topic_id for _, name, topic_id in ledger.ranges.topics if name in names} - {None}) <= len(names):
        return [several]
    return grouped((_topic_id(ledger, piece), piece) for piece in several).values()


def _topic_id(ledger: LedgerSlice, piece: Piece) -> str | None:
    return next((r.topic_id for r in ledger.ranges.of(piece.entry) if (r.topic, r.partition) == piece.where), None)


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
