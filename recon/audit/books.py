"""The books of the pipelines of a project, from ledger entries: hop by hop, sink by sink, day by day. No I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from recon.audit.incidents import Item, grouped, ranges_of
from recon.checks.evidence.coverage import Coverage, Hole, Stretch, TopicIncarnation, coverage
from recon.counts import sum_of
from recon.lazy import np
from recon.ledger import Ledger
from recon.model import REMOVALS, EntryHead, HarmedRange, LedgerSlice
from recon.model.books import BookLine, TableWrite
from recon.model.delta_offsets import BEGINNING, is_delta, offset_of, position_of, table_of
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
_NO_RANGES = "an entry does not say what it read"
_BACKWARD = "the query went back in the table's log"
_LATER = "the entry of a micro-batch was written after the period"
_AGAIN = "it was written again, by a sink that does not tell whether the first write is there"
_ONLY_AGAIN = "a replay found its rows, and the first write has no entry here"
_UNCOUNTED = "a finding does not say how many rows"
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
            known = self.rows.get(write.version, write.rows)
            # One number with two counts: the table was put back to an older copy, and which one was read nobody knows.
            self.rows[write.version] = write.rows if known in (None, write.rows) else None

    def offered(self, start: int, end: int, passes: str) -> tuple[int | None, str]:
        """The rows in a range of positions; None, and why, where they are not known."""
        low, high = position_of(start), position_of(end)
        whole = start == BEGINNING
        if high.files or high.in_snapshot or (not whole and (low.files or low.in_snapshot)):
            return None, _IN_PART
        if self._is_rewritten:
            return None, _REPLACED
        first = 0 if whole else low.version
        if (whole or passes != "skip") and self._removals_in(first, high.version):
            return None, _REMOVED
        at, upto = bisect_left(self._versions, first), bisect_left(self._versions, high.version)
        if upto - at != high.version - first:
            return None, _UNEXPLAINED
        return self._sums[upto] - self._sums[at], ""

    def _removals_in(self, first: int, end: int) -> int:
        return bisect_left(self._removals, end) - bisect_left(self._removals, first)

    @cached_property
    def _removals(self) -> Sequence[int]:
        return sorted(self.removals)

    @cached_property
    def newest(self) -> int:
        """The newest version that an entry has; -1 for none."""
        return max(self.rows, default=-1)

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
    before, behind = _last_said(writes), _last_said(writes[::-1])[::-1]
    found: list[str | None] = []
    for write, one, other in zip(writes, before, behind, strict=True):
        around = {said.table_id for said in (one, other) if said is not None}
        fits = write.version is not None and (
            (one is None or one.version is None or one.version < write.version)
            and (other is None or other.version is None or write.version < other.version)
        )
        found.append(write.table_id or (around.pop() if fits and len(around) == 1 else None))
    return found


def _last_said(writes: Sequence[TableWrite]) -> list[TableWrite | None]:
    """For each write the last one before it that says its table; a replay says an older one."""
    last: TableWrite | None = None
    found: list[TableWrite | None] = []
    for write in writes:
        found.append(last)
        last = write if write.table_id is not None and write.status != "already_committed" else last
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

    @cached_property
    def hops(self) -> Mapping[str, int]:
        """The hop of each pipeline; those that read each other's tables in a circle have one."""
        above = {name: self._above(name) for name in self.sources}
        found: dict[str, int] = {}
        # A pipeline has fewer before it than those behind it have.
        for name in sorted(above, key=lambda name: len(above[name] - {name})):
            before = [writer for writer in above[name] if name not in above[writer]]
            found[name] = 1 + max((found[writer] for writer in before), default=0)
        return found

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
            if head.is_removal or (entry in replays and not self._may_be_twice(entry)):
                continue
            of_day = sums[self.days.of(head)]
            if entry in replays or head.status == "already_committed":
                of_day.say(entry, _AGAIN if entry in replays else _ONLY_AGAIN)
                continue
            if not head.is_micro_batch:
                of_day.counts["later"].append(head.rows_written)
                if head.rows_written is None:
                    of_day.say(entry, _NOT_WRITTEN)
                continue
            of_day.numbers.add((head.epoch, head.batch_id))
            self._transformed(of_day, entry, head)
            if self._reads_table:
                self._offered(of_day, entry, head)
        if self._reads_table:
            self._skipped(sums)
        for name, harms in (("lost", _LOST), ("twice", _TWICE)):
            self._name_harmed(sums, items, name, harms)
        for day, of_day in sorted(sums.items()):
            yield self._line(day, of_day)

    def _may_be_twice(self, entry: int) -> bool:
        """Whether what looks like a replay wrote again: a sink without versions cannot tell."""
        first, again = self.ledger.heads[self._covered.replays[entry]], self.ledger.heads[entry]
        return (first.status, again.status, again.sink_version) == ("committed", "committed", None)

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
        read = self._read.get(entry, ())
        if not read and entry in self._with_ranges:
            return  # of Kafka, which the pipeline read before
        if not read or any(end < start for _, start, end in read):
            of_day.say(entry, _NO_RANGES if not read else _BACKWARD)
            return
        found = [self._rows_in(*of_table) for of_table in read]
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

    @cached_property
    def _with_ranges(self) -> set[int]:
        return set(np.unique(self.ledger.ranges.entry).tolist())

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
                    if self._restored_later(hole):
                        self._say(sums, hole.at.first, _LATER)
                        continue
                    self._differ(sums, hole.at.first, "passed_over", key.topic, hole.start, hole.end)
                for stretch, spans in walked.overlaps:
                    for start, end in spans:
                        for entry, low, high in self._cut(stretch, start, end):
                            self._differ(sums, entry, "again", key.topic, low, high)

        self._left_behind(sums)

    def _left_behind(self, sums: Mapping[date, _Sums]) -> None:
        """What a table still had when the query went on with another one: that of the same name, made anew."""
        reading = {
            key.topic: [stretch for one in incarnations for stretch in one.stretches]
            for key, incarnations in self._covered.incarnations.items()
            if is_delta(key.topic)
        }
        order = sorted((topic for topic in reading if reading[topic]), key=lambda topic: reading[topic][-1].last)
        for topic, then in pairwise(order):
            table, end = self.tables.get(table_of(topic)), max(stretch.end for stretch in reading[topic])
            if table is not None and offset_of(table.newest + 1, 0) > end:
                self._differ(sums, reading[then][0].first, "passed_over", topic, end, offset_of(table.newest + 1, 0))

    def _restored_later(self, hole: Hole) -> bool:
        """Whether the entry of a micro-batch between two was written after the period."""
        before, behind = self.ledger.heads[hole.before.last], self.ledger.heads[hole.at.first]
        return any(
            query_id == behind.query_id and before.batch_id < batch_id < behind.batch_id
            for query_id, batch_id in self.ledger.later
        )

    def _say(self, sums: Mapping[date, _Sums], entry: int, why: str) -> None:
        if self._covered.judged(entry):
            sums[self.days.of(self.ledger.heads[entry])].say(entry, why)

    def _differ(self, sums: Mapping[date, _Sums], entry: int, name: str, topic: str, start: int, end: int) -> None:
        if not self._covered.judged(entry):
            return
        of_day = sums[self.days.of(self.ledger.heads[entry])]
        rows, why = self._rows_in(topic, start, end)
        if name == "again" and self.sink.rewrites:
            rows, why = None, _KEEPS_NEWEST
        if rows is None:
            of_day.say(entry, why)
        else:
            of_day.differences[name] += rows

    def _name_harmed(self, sums: Mapping[date, _Sums], items: Sequence[Item], name: str, harms: Sequence[Harm]) -> None:
        """Adds the offsets, or rows where findings count them, that findings name.

        They count for the entries that read them, or should have: the first one that read what is behind them. Of a
        table that is read, findings and these books may speak of the same rows.
        """
        mine = [item for item in items if item.harm in harms and item.state != "repaired"]
        if not mine or self.ledger.anchors == len(self.ledger.heads):
            return
        for group in grouped(mine):
            ranges = [one for one in ranges_of(group) if not is_delta(one.topic)]
            for entry, offsets in (found for one in ranges for found in self._readers(one, again=name == "twice")):
                sums[self.days.of(self.ledger.heads[entry])].differences[name] += offsets
            if ranges:
                continue
            rows: dict[int, int | None] = {}  # several findings of one micro-batch count the same rows
            for item in group:
                entry_ = self._entry_of(item)
                if entry_ is not None:
                    counts = [count for count in (rows.get(entry_), item.finding.rows) if count is not None]
                    rows[entry_] = max(counts, default=None)
            for entry, count in rows.items():
                of_day = sums[self.days.of(self.ledger.heads[entry])]
                if any(of_day.differences[difference] for difference in _OF_TABLES):
                    continue
                if count is None:
                    of_day.say(entry, _UNCOUNTED)
                else:
                    of_day.differences[name] += count

    def _entry_of(self, item: Item) -> int | None:
        """The entry that a finding without offsets of Kafka counts for; None for one of before, or of a later period.

        One that is open and names no place counts for the last entry.
        """
        found, last = item.finding, len(self.ledger.heads) - 1
        if found.batch_id is not None:
            of_number = self._by_number.get((found.epoch, found.batch_id))
            return of_number if of_number is not None else self._by_number.get((None, found.batch_id))
        versions = {version for version in found.changed_by or () if version is not None}
        at = next((at for at in self._judged if self.ledger.heads[at].sink_version in versions), None)
        return at if at is not None else last if item.state == "open" else None

    @cached_property
    def _judged(self) -> Sequence[int]:
        return range(self.ledger.anchors, len(self.ledger.heads))

    @cached_property
    def _by_number(self) -> Mapping[tuple[int | None, int], int]:
        """The entries by (epoch, batch_id); for findings without an epoch also by the latter, the newest epoch's."""
        heads = self.ledger.heads
        found: dict[tuple[int | None, int], int] = {(None, heads[at].batch_id): at for at in self._judged}
        return found | {(heads[at].epoch, heads[at].batch_id): at for at in self._judged}

    def _readers(self, harmed: HarmedRange, *, again: bool) -> Iterator[tuple[int, int]]:
        """The entries that a range counts for, each with its part of it.

        What was read before these entries is not of the period, but for what one of them read again.
        """
        start, end, covered = harmed.start_offset, harmed.end_offset, self._covered
        for one in self._incarnations.get((harmed.topic, harmed.partition), ()):
            if None not in (one.topic_id, harmed.topic_id) and one.topic_id != harmed.topic_id:
                continue
            if not again:
                start = max(start, *(s.end for s in one.stretches if not covered.judged(s.first)), 0)
            for stretch in (s for s in one.stretches if covered.judged(s.first) and start < s.end > s.start):
                if start >= end:
                    return
                if stretch.start >= end:  # what nobody read before is the business of this one
                    yield stretch.first, end - start
                    return
                for entry, _, upto in self._cut(stretch, max(start, stretch.start), end):
                    yield entry, upto - start
                    start = upto
        if start < end:  # behind everything that was read
            yield len(self.ledger.heads) - 1, end - start

    @cached_property
    def _incarnations(self) -> Mapping[tuple[str, int], Sequence[TopicIncarnation]]:
        found: dict[tuple[str, int], list[TopicIncarnation]] = defaultdict(list)
        for key, incarnations in self._covered.incarnations.items():
            found[key.topic, key.partition] += incarnations
        return found

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
            hop=self.chain.hops[self.pipeline.name],
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


_OF_TABLES = ("unread", "more_read", "passed_over", "again")
_DIFFERENCES = ("lost", "twice", "unread", "more_read", "passed_over", "again", "unwritten", "more_written")


__all__ = ["books", "writes_of"]
