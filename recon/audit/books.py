"""The books of the pipelines of a project, from ledger entries: hop by hop, sink by sink, day by day. No I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from itertools import accumulate
from typing import Any

from recon.audit.incidents import Item, grouped, ranges_of
from recon.checks.evidence.coverage import Coverage, Stretch, coverage
from recon.counts import sum_of
from recon.lazy import np
from recon.ledger import Ledger
from recon.model import REMOVALS, EntryHead, HarmedRange, LedgerSlice
from recon.model.books import BookLine, TableWrite
from recon.model.delta_offsets import BEGINNING, is_delta, position_of, table_of
from recon.model.incident import Harm
from recon.project import Pipeline, Project, Sink

Names = tuple[str, str]  # pipeline, sink
Slices = Mapping[Names, LedgerSlice]
Writes = Mapping[Names, Sequence[TableWrite]]
_EARLIER = 20_000  # writes: two days of a micro-batch every 10 seconds
_LOST: tuple[Harm, ...] = ("lost", "missing", "removed")
_TWICE: tuple[Harm, ...] = ("twice",)
_IN_PART = "a version was read in part"
_REPLACED = "rows of the table that is read replace earlier ones"
_REMOVED = "rows were removed from the table that is read"
_UNEXPLAINED = "a version that was read has no ledger entry here, or one that counts no rows"
_NOT_COUNTED = "the rows read were not counted"
_NOT_RETURNED = "the rows that the transform returned were not counted apart"
_NOT_WRITTEN = "the rows written were not counted"
_KEEPS_NEWEST = "rows of this sink replace earlier ones"


def books(
    project: Project,
    slices: Slices,
    items: Mapping[Names, Sequence[Item]],
    *,
    writes: Writes,
    period: tuple[datetime | None, datetime | None] = (None, None),
) -> tuple[BookLine, ...]:
    """A line for each sink and each day on which entries of the slices wrote to it.

    Args:
        project: whose pipelines these are.
        slices: the ledger by (pipeline, sink); what is before its anchors is not of the period.
        items: what open and accepted findings say of each sink.
        writes: what sinks wrote into the tables that pipelines read, in the order of the chain, without a break, also
            before and behind the slices: what is not among it nobody knows.
        period: begin and end; an entry of another day, as a clock that jumped left it, counts for the first or last.
    """
    tables = _tables(project, writes)
    lines: list[BookLine] = []
    chain = _Chain(project, slices, tables)
    for pipeline in project.pipelines:
        for sink in pipeline.sinks:
            names = (pipeline.name, sink.name)
            if names in slices:
                book = _Book(pipeline, sink, slices[names], tables, chain, _Days(period))
                lines += book.lines(items.get(names, ()))
    return tuple(sorted(lines, key=lambda line: (line.hop, line.pipeline, line.sink, line.day)))


def writes_of(project: Project, ledger: Ledger, slices: Slices) -> Writes:
    """What the sinks of a project wrote into Delta tables, where a pipeline reads one: also a while before the slices.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    if all(pipeline.of_kafka for pipeline in project.pipelines):
        return {}
    chains = [(pipe.name, sink.name) for pipe in project.pipelines for sink in pipe.sinks if sink.is_delta]
    return {names: ledger.writes(*names, above=_above(slices.get(names))) for names in chains}


def _above(ledger: LedgerSlice | None) -> int:
    """The entry behind which writes are read: a reader may be behind by that many."""
    heads = ledger.heads[ledger.anchors :] if ledger is not None else ()
    return max(0, heads[0].sequence - 1 - _EARLIER) if heads else 0


@dataclass(frozen=True)
class _Days:
    """The days of a period."""

    period: tuple[datetime | None, datetime | None]

    def of(self, head: EntryHead) -> date:
        """The day on which an entry counts."""
        (begin, end), at = self.period, head.committed_at
        if begin is not None and at < begin:
            return begin.date()
        if end is not None and at >= end:
            return (end - end.resolution).date()
        return at.date()


# -- what the tables between hops were given ---------------------------------------------------------------------------


@dataclass
class _Table:
    """What pipelines of the project wrote into one Delta table, version by version."""

    sinks: dict[Names, Sink] = field(default_factory=dict)
    rows: dict[int, int | None] = field(default_factory=dict)  # by version
    removals: set[int] = field(default_factory=set)  # versions that took doubled rows out

    def add(self, names: Names, sink: Sink, write: TableWrite) -> None:
        self.sinks[names] = sink
        if write.version is None:
            return
        if write.epoch == REMOVALS:
            self.removals.add(write.version)
            self.rows[write.version] = 0
        elif write.status == "already_committed":  # the replay of a write that has an entry, or has none
            self.rows.setdefault(write.version, write.rows)
        else:
            self.rows[write.version] = write.rows

    def offered(self, start: int, end: int, passes: str) -> tuple[int | None, str]:
        """The rows in a range of positions; None, and why, where they are not known."""
        low, high = position_of(start), position_of(end)
        whole = start == BEGINNING
        if high.files or high.in_snapshot or (not whole and (low.files or low.in_snapshot)):
            return None, _IN_PART
        if self._is_rewritten:
            return None, _REPLACED
        first = 0 if whole else low.version
        if self.removals and (whole or passes != "skip") and any(first <= v < high.version for v in self.removals):
            return None, _REMOVED
        at, upto = bisect_left(self._versions, first), bisect_left(self._versions, high.version)
        if upto - at != high.version - first:
            return None, _UNEXPLAINED
        return self._sums[upto] - self._sums[at], ""

    @cached_property
    def _is_rewritten(self) -> bool:
        return any(sink.rewrites for sink in self.sinks.values())

    @cached_property
    def _versions(self) -> Sequence[int]:
        """Those whose rows are known."""
        return sorted(version for version, rows in self.rows.items() if rows is not None)

    @cached_property
    def _sums(self) -> Sequence[int]:
        """The rows of all versions before each of these."""
        return list(accumulate((self.rows[version] or 0 for version in self._versions), initial=0))


def _tables(project: Project, writes: Writes) -> dict[str, _Table]:
    """The tables that sinks wrote, by id."""
    tables: dict[str, _Table] = defaultdict(_Table)
    for names, of_sink in writes.items():
        sink = project.find_sink(*names)[1]
        for write, table_id in zip(of_sink, _table_ids(of_sink), strict=True):
            if table_id is not None:
                tables[table_id].add(names, sink, write)
    return dict(tables)


def _table_ids(writes: Sequence[TableWrite]) -> list[str | None]:
    """The table of each write; one that does not say it is of the table of those around it, where these agree."""
    before, behind = _filled(writes), _filled(writes[::-1])[::-1]
    return [
        one if one == other or other is None else other if one is None else None
        for one, other in zip(before, behind, strict=True)
    ]


def _filled(writes: Sequence[TableWrite]) -> list[str | None]:
    """The table of each write, or of the last one before it that says it."""
    known: str | None = None
    found = []
    for write in writes:
        known = write.table_id or known
        found.append(known)
    return found


# -- the order of the hops --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Chain:
    """Which pipeline reads what another one writes: by recon.yml, and by the ids of tables in the ledger."""

    project: Project
    slices: Slices
    tables: Mapping[str, _Table]

    @cached_property
    def sources(self) -> Mapping[str, Sequence[Names]]:
        """Pipeline -> the sinks whose table it reads."""
        return {pipeline.name: self._sources(pipeline) for pipeline in self.project.pipelines}

    def _sources(self, pipeline: Pipeline) -> Sequence[Names]:
        if pipeline.source.delta is None:
            return ()
        location = self.project.table_location(pipeline.source.delta)
        by_name = [
            (other.name, sink.name)
            for other in self.project.pipelines
            for sink in other.sinks
            if sink.is_delta and self.project.location(sink) == location
        ]
        ids = {
            table_of(topic)
            for sink in pipeline.sinks
            if (pipeline.name, sink.name) in self.slices
            for _, topic, _ in self.slices[pipeline.name, sink.name].ranges.topics
            if is_delta(topic)
        }
        by_id = [names for table_id in sorted(ids & self.tables.keys()) for names in self.tables[table_id].sinks]
        return tuple(dict.fromkeys([*by_name, *by_id]))

    def hop(self, name: str) -> int:
        """The hop of a pipeline; those that read each other's tables in a circle have one."""
        around = self._above(name)
        above = {writer for writer in around if name not in self._above(writer)}
        return 1 + max((self.hop(writer) for writer in above), default=0)

    def _above(self, name: str) -> set[str]:
        """The pipelines before one, however far."""
        found: set[str] = set()
        waiting = [writer for writer, _ in self.sources[name]]
        while waiting:
            writer = waiting.pop()
            if writer not in found:
                found.add(writer)
                waiting += [other for other, _ in self.sources[writer]]
        return found


# -- the lines of a sink ----------------------------------------------------------------------------------------------


@dataclass
class _Sums:
    """What is added up of one day."""

    numbers: set[tuple[int, int]] = field(default_factory=set)
    counts: dict[str, list[int | None]] = field(default_factory=lambda: defaultdict(list))
    differences: Counter[str] = field(default_factory=Counter)
    unknown: dict[str, None] = field(default_factory=dict)
    unknown_writes: set[int] = field(default_factory=set)

    def compare(self, entry: int, terms: tuple[int | None, int | None], names: tuple[str, str], why: str) -> None:
        """Adds what the first term has more than the second, or less; says why where one of them is not known."""
        one, other = terms
        if one is None or other is None:
            self.say(entry, why)
        elif one != other:
            self.differences[names[0] if one > other else names[1]] += abs(one - other)

    def say(self, entry: int, why: str) -> None:
        """That nothing can be said of a write."""
        self.unknown[why] = None
        self.unknown_writes.add(entry)


@dataclass(frozen=True)
class _Book:
    pipeline: Pipeline
    sink: Sink
    ledger: LedgerSlice
    tables: Mapping[str, _Table]
    chain: _Chain
    days: _Days

    def lines(self, items: Sequence[Item]) -> Iterator[BookLine]:
        """A line for each day."""
        sums: dict[date, _Sums] = defaultdict(_Sums)
        replays = self._covered.replays
        for entry in range(self.ledger.anchors, len(self.ledger.heads)):
            head = self.ledger.heads[entry]
            if entry in replays or head.status == "already_committed" or head.is_removal:
                continue
            of_day = sums[self.days.of(head)]
            if not head.is_micro_batch:
                of_day.counts["later"].append(head.rows_written)
                continue
            of_day.numbers.add((head.epoch, head.batch_id))
            self._transformed(of_day, entry, head)
            if self._reads_table:
                self._offered(of_day, entry, head)
        if self._reads_table:
            self._skipped(sums)
        for name, harms in (("lost", _LOST), ("twice", _TWICE)):
            for entry, count in self._harmed(items, harms):
                sums[self.days.of(self.ledger.heads[entry])].differences[name] += count
        for day, of_day in sorted(sums.items()):
            yield self._line(day, of_day)

    @cached_property
    def _covered(self) -> Coverage:
        return coverage(self.ledger)

    @cached_property
    def _reads_table(self) -> bool:
        return bool(self.chain.sources[self.pipeline.name])

    def _transformed(self, of_day: _Sums, entry: int, head: EntryHead) -> None:
        """Compares the rows that the transform returned with those quarantined and written."""
        read, returned = head.rows_read, head.rows_returned
        more = None if read is None or returned is None else returned - read
        stored = sum_of((head.rows_quarantined, head.rows_written))
        for name, rows in (
            ("read", read),
            ("filtered", None if more is None else max(-more, 0)),
            ("made", None if more is None else max(more, 0)),
            ("quarantined", head.rows_quarantined),
            ("written", head.rows_written),
        ):
            of_day.counts[name].append(rows)
        if self.sink.rewrites:
            of_day.say(entry, _KEEPS_NEWEST)
            return
        why = _NOT_COUNTED if read is None else _NOT_RETURNED if returned is None else _NOT_WRITTEN
        of_day.compare(entry, (None if more is None else returned, stored), ("unwritten", "more_written"), why)

    def _offered(self, of_day: _Sums, entry: int, head: EntryHead) -> None:
        """Compares the rows read with those that were written into the versions that were read."""
        found = [self._rows_in(*of_table) for of_table in self._read.get(entry, ())]
        offered = sum_of(rows for rows, _ in found)
        of_day.counts["offered"].append(offered)
        why = next((why for _, why in found if why), _NOT_COUNTED)
        of_day.compare(entry, (offered, head.rows_read), ("unread", "more_read"), why)

    @cached_property
    def _read(self) -> Mapping[int, Sequence[tuple[str, int, int]]]:
        """The ranges of tables that each entry read: (topic, start, end)."""
        ranges = self.ledger.ranges
        of_table = np.array([is_delta(name) for _, name, _ in ranges.topics] or [False], np.bool_)
        rows = np.flatnonzero(of_table[ranges.topic])
        columns = (column[rows].tolist() for column in (ranges.entry, ranges.topic, ranges.start, ranges.end))
        found: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
        for entry, topic, start, end in zip(*columns, strict=True):
            found[entry].append((ranges.topics[topic][1], start, end))
        return found

    def _rows_in(self, topic: str, start: int, end: int) -> tuple[int | None, str]:
        if end <= start:
            return 0, ""
        table = self.tables.get(table_of(topic))
        return (None, _UNEXPLAINED) if table is None else table.offered(start, end, self._passes)

    @cached_property
    def _passes(self) -> str:
        return self.pipeline.source.passes

    def _skipped(self, sums: Mapping[date, _Sums]) -> None:
        """What no micro-batch read, and what one read again, by the positions in the tables' logs."""
        for key, incarnations in self._covered.incarnations.items():
            if not is_delta(key.topic):
                continue
            for walked in (one.walked for one in incarnations):
                for hole in walked.holes:
                    self._differ(sums, hole.at.first, "passed_over", key.topic, hole.start, hole.end)
                for stretch, spans in walked.overlaps:
                    for start, end in spans:
                        for entry, low, high in self._cut(stretch, start, end):
                            self._differ(sums, entry, "again", key.topic, low, high)

    def _differ(self, sums: Mapping[date, _Sums], entry: int, name: str, topic: str, start: int, end: int) -> None:
        if not self._covered.judged(entry):
            return
        of_day = sums[self.days.of(self.ledger.heads[entry])]
        rows, why = self._rows_in(topic, start, end)
        if rows is None:
            of_day.say(entry, why)
        else:
            of_day.differences[name] += rows

    def _harmed(self, items: Sequence[Item], harms: Sequence[Harm]) -> Iterator[tuple[int, int]]:
        """Offsets, or rows where a finding counts them, that findings name, with the entry that they count for.

        It is the one that read them, or should have: the first one that read what is behind them.
        """
        mine = [item for item in items if item.harm in harms and item.state != "repaired"]
        judged = range(self.ledger.anchors, len(self.ledger.heads)) if mine else ()
        entry_of: dict[tuple[int | None, int | None], int] = {
            (self.ledger.heads[at].epoch, self.ledger.heads[at].batch_id): at for at in judged
        }
        for group in grouped(mine):
            ranges = [one for one in ranges_of(group) if not is_delta(one.topic)]
            for one in ranges:
                yield from self._readers(one)
            if not ranges:
                rows: dict[int, int] = {}  # several findings of one micro-batch count the same rows
                for found in (item.finding for item in group):
                    entry = entry_of.get((found.epoch, found.batch_id))
                    if entry is not None:
                        rows[entry] = max(rows.get(entry, 0), found.rows or 0)
                yield from rows.items()

    def _readers(self, harmed: HarmedRange) -> Iterator[tuple[int, int]]:
        """The entries that a range counts for, each with its part of it."""
        start, covered = harmed.start_offset, self._covered
        for key, incarnations in covered.incarnations.items():
            if (key.topic, key.partition) != (harmed.topic, harmed.partition):
                continue
            for one in incarnations:
                if None not in (one.topic_id, harmed.topic_id) and one.topic_id != harmed.topic_id:
                    continue
                for stretch in (s for s in one.stretches if covered.judged(s.first) and start < s.end > s.start):
                    if stretch.start >= harmed.end_offset:  # what nobody read before is the business of this one
                        yield stretch.first, harmed.end_offset - start
                        return
                    for entry, _, upto in self._cut(stretch, max(start, stretch.start), harmed.end_offset):
                        yield entry, upto - start
                        start = upto
                    if start >= harmed.end_offset:
                        return

    def _cut(self, stretch: Stretch, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """A range cut up by the entries of a stretch that read it: (entry, start, end)."""
        low, high = stretch.rows
        ends, entries = self._covered.ends, self._covered.entries
        row = low + int(np.searchsorted(ends[low:high], start, side="right"))
        while start < end and row < high:
            upto = min(end, int(ends[row]))
            if upto > start:
                yield int(entries[row]), start, upto
            start, row = max(start, upto), row + 1

    def _line(self, day: date, of_day: _Sums) -> BookLine:
        counts: dict[str, Any] = {
            name: sum_of(of_day.counts[name]) for name in ("read", "filtered", "made", "quarantined", "written")
        }
        counts |= {name: of_day.differences[name] for name in _DIFFERENCES}
        return BookLine(
            pipeline=self.pipeline.name,
            sink=self.sink.name,
            day=day,
            hop=self.chain.hop(self.pipeline.name),
            source=self._source(),
            reads_table=self._reads_table,
            micro_batches=len(of_day.numbers),
            offered=sum_of(of_day.counts["offered"]) if self._reads_table else None,
            **counts,
            later=sum_of(of_day.counts["later"]),
            unknown=tuple(of_day.unknown),
            unknown_writes=len(of_day.unknown_writes),
        )

    def _source(self) -> tuple[str, ...]:
        above = self.chain.sources[self.pipeline.name]
        if above:
            return tuple(f"{pipeline}.{sink}" for pipeline, sink in above)
        topics = sorted({topic for _, topic, _ in self.ledger.ranges.topics if not is_delta(topic)})
        return tuple(topics) or self.pipeline.source.names


_DIFFERENCES = ("lost", "twice", "unread", "more_read", "passed_over", "again", "unwritten", "more_written")


__all__ = ["books", "writes_of"]
