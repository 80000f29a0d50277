"""The books of the pipelines of a project, from ledger entries: hop by hop, sink by sink, day by day. No I/O."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import NamedTuple

from recon.audit.incidents import Item, grouped, ranges_of
from recon.counts import sum_of
from recon.lazy import np
from recon.model import EntryHead, HarmedRange, LedgerSlice
from recon.model.books import BookLine
from recon.model.delta_offsets import BEGINNING, is_delta, position_of, table_of
from recon.project import Pipeline, Project, Sink
from recon.text import plural

Names = tuple[str, str]  # pipeline, sink
Slices = Mapping[Names, LedgerSlice]
_LOST = ("lost", "missing")


def books(
    project: Project,
    slices: Slices,
    items: Mapping[Names, Sequence[Item]],
    *,
    before: Slices | None = None,
    period: tuple[datetime | None, datetime | None] = (None, None),
) -> tuple[BookLine, ...]:
    """A line for each sink and each day of the period on which it was written to, or something arrived for it.

    Args:
        project: whose pipelines these are.
        slices: the ledger by (pipeline, sink); what is before its anchors is not of the period.
        items: what open and accepted findings say of each sink.
        before: entries that come right before those of `slices`, by which more is known of what waited.
        period: begin and end; entries of other days, which a clock that jumped left there, count for the first or the
            last day.
    """
    days = _Days(period)
    tables = _tables(project, slices, before or {}, days)
    hops = _hops(project, slices, tables)
    lines: list[BookLine] = []
    for pipeline in project.pipelines:
        for sink in pipeline.sinks:
            ledger = slices.get((pipeline.name, sink.name))
            if ledger is not None:
                of_sink = _Book(project, pipeline, sink, ledger, tables, hops[pipeline.name], days)
                lines += of_sink.lines(lost_by_day(ledger, items.get((pipeline.name, sink.name), ()), days.of))
    return tuple(sorted(lines, key=lambda line: (line.hop, line.pipeline, line.sink, line.day)))


@dataclass(frozen=True)
class _Days:
    """The days of a period."""

    period: tuple[datetime | None, datetime | None]

    def of(self, head: EntryHead) -> date:
        """The day on which an entry counts."""
        begin, end = self.period
        at = head.committed_at
        if begin is not None and at < begin:
            at = begin
        if end is not None and at >= end:
            return (end - end.resolution).date()
        return at.date()


# -- what was lost ----------------------------------------------------------------------------------------------------


def lost_by_day(ledger: LedgerSlice, items: Sequence[Item], day_of: Callable[[EntryHead], date]) -> Counter[date]:
    """Offsets, or rows where a finding counts them, that findings name as lost or missing.

    They count for the day of the micro-batch that read them, or should have: the first one that read what is behind
    them. What no entry of the period speaks of is left out.
    """
    lost: Counter[date] = Counter()
    mine = [item for item in items if item.harm in _LOST and item.state != "repaired"]
    for group in grouped(mine):
        ranges = [one for one in ranges_of(group) if not is_delta(one.topic)]
        for one in ranges:
            head = _reader(ledger, one)
            if head is not None:
                lost[day_of(head)] += one.end_offset - one.start_offset
        if not ranges:
            counted = {
                (item.finding.epoch, item.finding.batch_id): item.finding.rows
                for item in group
                if item.finding.rows is not None and item.finding.batch_id is not None
            }
            by_number = (
                {(head.epoch, head.batch_id): head for head in ledger.heads[ledger.anchors :]} if counted else {}
            )
            for number, rows in counted.items():
                if number in by_number:
                    lost[day_of(by_number[number])] += rows or 0
    return lost


def _reader(ledger: LedgerSlice, lost: HarmedRange) -> EntryHead | None:
    """The first entry of the period that read a topic partition beyond the beginning of a range."""
    table = ledger.ranges
    topics = [
        place
        for place, (_, name, topic_id) in enumerate(table.topics)
        if name == lost.topic and (None in (topic_id, lost.topic_id) or topic_id == lost.topic_id)
    ]
    found = np.flatnonzero(
        (table.entry >= ledger.anchors)
        & (table.partition == lost.partition)
        & (table.end > lost.start_offset)
        & np.isin(table.topic, topics)
    )
    return ledger.heads[int(table.entry[found[0]])] if len(found) else None


# -- what arrived in the tables between hops --------------------------------------------------------------------------


class _Write(NamedTuple):
    """Rows that a commit brought into a table; None where they were not counted."""

    version: int
    day: date
    rows: int | None
    in_period: bool


@dataclass(frozen=True)
class _Table:
    """A Delta table that pipelines of the project write: by which sinks, and what, from version `known_from` on."""

    sinks: tuple[Names, ...]
    writes: Sequence[_Write]
    known_from: int
    rewritten: bool

    def arrived(self, day: date, first: int) -> int | None:
        """The rows that were written on a day, as version `first` or later."""
        return sum_of(w.rows for w in self.writes if w.in_period and w.day == day and w.version >= first)

    def waiting(self, position: int, day: date | None) -> int | None:
        """The rows behind a position in the table's log that were written up to the end of a day; None if unknown.

        Without a day, those that were written before the period.
        """
        at = position_of(position)
        if position != BEGINNING and (at.files or at.in_snapshot):
            return None  # how many rows the rest of a version has, no entry says
        first = 0 if position == BEGINNING else at.version
        if first < self.known_from:
            return None
        return sum_of(
            write.rows
            for write in self.writes
            if write.version >= first and (not write.in_period if day is None else write.day <= day)
        )


def _tables(project: Project, slices: Slices, before: Slices, days: _Days) -> dict[str, _Table]:
    """The Delta tables that sinks write, by their id."""
    writes: dict[str, list[_Write]] = defaultdict(list)
    sinks: dict[str, dict[Names, Sink]] = defaultdict(dict)
    firsts: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for pipeline in project.pipelines:
        for sink in pipeline.sinks:
            names = (pipeline.name, sink.name)
            whole = _from_the_beginning(slices.get(names), before.get(names))
            for head, in_period in _run(slices.get(names), before.get(names)):
                table_id, version = head.sink_table_id, head.sink_version
                if table_id is None or version is None:
                    continue
                if names not in sinks[table_id]:
                    sinks[table_id][names] = sink
                    firsts[table_id].append((version, whole))
                if _brings(head):
                    day = days.of(head) if in_period else head.date
                    writes[table_id].append(_Write(version, day, head.rows_written, in_period))
    return {
        table_id: _Table(
            tuple(of_table),
            sorted(writes[table_id], key=lambda write: write.version),
            _known_from(firsts[table_id]),
            any(sink.rewrites for sink in of_table.values()),
        )
        for table_id, of_table in sinks.items()
    }


def _known_from(firsts: Sequence[tuple[int, bool]]) -> int:
    """From which version on every row that came into a table is known.

    `firsts` are the first version of each sink in these entries, and whether it is the sink's very first. A sink that
    has earlier entries wrote earlier versions. What came before the first of all, but for the version that made the
    table, was there before recon.
    """
    of_whole = [version for version, whole in firsts if whole]
    begin = min(of_whole, default=0)
    return max(begin if begin > 1 else 0, *(version for version, whole in firsts if not whole), 0)


def _run(ledger: LedgerSlice | None, before: LedgerSlice | None) -> Iterator[tuple[EntryHead, bool]]:
    """The entries of a sink without a break, in order, each once; and whether they are of the period."""
    seen: set[int] = set()
    for of_sink, of_period in ((before, False), (ledger, True)):
        if of_sink is None:
            continue
        # The last anchor is the entry before the run; one before it may be of long ago.
        for place in range(max(of_sink.anchors - 1, 0), len(of_sink.heads)):
            head = of_sink.heads[place]
            if head.sequence not in seen:
                seen.add(head.sequence)
                yield head, of_period and place >= of_sink.anchors


def _from_the_beginning(ledger: LedgerSlice | None, before: LedgerSlice | None) -> bool:
    return any(of_sink is not None and of_sink.complete for of_sink in (ledger, before))


def _brings(head: EntryHead) -> bool:
    return not head.is_removal and head.status != "already_committed"


# -- the order of the hops --------------------------------------------------------------------------------------------


def _hops(project: Project, slices: Slices, tables: Mapping[str, _Table]) -> dict[str, int]:
    """The hop of each pipeline."""
    reads = {
        pipeline.name: {
            writer for table_id in _tables_read(pipeline, slices) for writer, _ in _writers(tables, table_id)
        }
        for pipeline in project.pipelines
    }
    hops: dict[str, int] = {}

    def hop_of(name: str, seen: frozenset[str]) -> int:
        if name not in hops:
            above = [hop_of(writer, seen | {name}) for writer in reads[name] if writer not in seen | {name}]
            hops[name] = 1 + max(above, default=0)
        return hops[name]

    for name in reads:
        hop_of(name, frozenset())
    return hops


def _writers(tables: Mapping[str, _Table], table_id: str) -> Sequence[Names]:
    return tables[table_id].sinks if table_id in tables else ()


def _tables_read(pipeline: Pipeline, slices: Slices) -> Sequence[str]:
    """The ids of the Delta tables that a pipeline's entries read."""
    topics = {
        topic
        for sink in pipeline.sinks
        if (pipeline.name, sink.name) in slices
        for _, topic, _ in slices[pipeline.name, sink.name].ranges.topics
    }
    return sorted({table_of(topic) for topic in topics if is_delta(topic)})


# -- the lines of a sink ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Book:
    project: Project
    pipeline: Pipeline
    sink: Sink
    ledger: LedgerSlice
    tables: Mapping[str, _Table]
    hop: int
    days: _Days

    def lines(self, lost: Mapping[date, int]) -> Iterator[BookLine]:
        """A line for each day, in order."""
        by_day: dict[date, list[EntryHead]] = defaultdict(list)
        for head in self.ledger.heads[self.ledger.anchors :]:
            by_day[self.days.of(head)].append(head)
        table, why = self._table_read()
        arriving = {write.day for write in table.writes if write.in_period} if table is not None else set()
        positions = self._positions()
        position = positions.get(None)
        # What was in the table before the version at which the query was told to begin is none of its business.
        first = position_of(position).version if position is not None and self.ledger.complete else 0
        before = table.waiting(position, None) if table is not None and position is not None else None
        for day in sorted({*by_day, *arriving}):
            position = positions.get(day, position)
            after = table.waiting(position, day) if table is not None and position is not None else None
            yield self._line(
                day,
                by_day[day],
                lost.get(day, 0),
                waiting=(before, after),
                arrived=table.arrived(day, first) if table is not None else None,
                unknown_source=why,
            )
            before = after

    def _table_read(self) -> tuple[_Table | None, str]:
        """The table between this hop and the one before it; why nothing is known of it."""
        read = _tables_read(self.pipeline, {(self.pipeline.name, self.sink.name): self.ledger})
        found = [self.tables[table_id] for table_id in read if table_id in self.tables]
        if self.pipeline.of_kafka:
            return None, "Kafka does not say how many records arrived on a day"
        if len(read) != 1 or not found:
            return None, "no pipeline of this project writes the table that is read"
        if found[0].rewritten:
            return None, "rows of the table that is read replace earlier ones"
        return found[0], ""

    def _positions(self) -> dict[date | None, int]:
        """Where in the table's log reading stood: before the period (None), and at the end of each day."""
        table = self.ledger.ranges
        of_table = np.array([is_delta(name) for _, name, _ in table.topics], np.bool_)
        positions: dict[date | None, int] = {}
        for row in np.flatnonzero(of_table[table.topic]).tolist() if of_table.any() else ():
            head = self.ledger.heads[int(table.entry[row])]
            if not head.reads:
                continue
            if int(table.entry[row]) < self.ledger.anchors:
                positions[None] = int(table.end[row])
                continue
            positions.setdefault(None, int(table.start[row]))
            positions[self.days.of(head)] = int(table.end[row])
        return positions

    def _line(
        self,
        day: date,
        heads: Sequence[EntryHead],
        lost: int,
        *,
        waiting: tuple[int | None, int | None],
        arrived: int | None,
        unknown_source: str,
    ) -> BookLine:
        reading = [head for head in heads if head.reads and head.status != "already_committed"]
        counts = [_Counts.of(head, routed=self._routed) for head in reading]
        return BookLine(
            pipeline=self.pipeline.name,
            sink=self.sink.name,
            day=day,
            hop=self.hop,
            source=self._source(),
            micro_batches=len({(head.epoch, head.batch_id) for head in reading if head.is_micro_batch}),
            waiting_before=waiting[0],
            arrived=arrived,
            read=sum_of(count.read for count in counts),
            filtered=sum_of(count.filtered for count in counts),
            made=sum_of(count.made for count in counts),
            quarantined=sum_of(head.rows_quarantined for head in reading),
            written=sum_of(head.rows_written for head in reading),
            released=sum_of(head.rows_written for head in heads if head.is_release and _brings(head)),
            lost=lost,
            waiting_after=waiting[1],
            unknown_source=unknown_source or self._why_not_known(waiting),
            unknown_rows=self._why_rows_do_not_add(counts),
            routed=self._routed,
        )

    @property
    def _routed(self) -> bool:
        return self.pipeline.routes is not None and self.sink.name in self.pipeline.routes.sinks

    def _source(self) -> tuple[str, ...]:
        read = _tables_read(self.pipeline, {(self.pipeline.name, self.sink.name): self.ledger})
        writers = [f"{pipeline}.{sink}" for table_id in read for pipeline, sink in _writers(self.tables, table_id)]
        if writers:
            return tuple(writers)
        topics = sorted({topic for _, topic, _ in self.ledger.ranges.topics if not is_delta(topic)})
        return tuple(topics) or self.pipeline.source.names

    def _why_not_known(self, waiting: tuple[int | None, int | None]) -> str:
        if None in waiting:
            return "how many rows waited is not known: a version was read in part, or was written before these entries"
        return ""

    def _why_rows_do_not_add(self, counts: Sequence[_Counts]) -> str:
        uncounted = sum(count.filtered is None for count in counts)
        if self.sink.rewrites:
            return "rows of this sink replace earlier ones"
        if uncounted:
            return f"of {plural(uncounted, 'write')} the rows behind the transform were not counted"
        return ""


class _Counts(NamedTuple):
    """What the transform did in one write, by the rows that were counted before it and behind it."""

    read: int | None
    filtered: int | None
    made: int | None

    @classmethod
    def of(cls, head: EntryHead, *, routed: bool) -> _Counts:
        """Never from the rows written, which the books hold against it."""
        if head.rows_read is None:
            return cls(None, None, None)
        if routed:
            return cls(head.rows_read, head.rows_filtered, None if head.rows_filtered is None else 0)
        if head.rows_returned is None:
            return cls(head.rows_read, None, None)
        more = head.rows_returned - head.rows_read
        return cls(head.rows_read, max(-more, 0), max(more, 0))


__all__ = ["books", "lost_by_day"]
