"""The lines of one sink: what is compared in each entry, added up by days."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from itertools import pairwise
from typing import Any

from recon.audits.books.chain import Chain
from recon.audits.books.harmed import LOST, TWICE, Harmed
from recon.audits.books.tables import UNEXPLAINED, WrittenTable
from recon.audits.incidents import Item
from recon.base.counts import sum_of
from recon.base.lazy import np
from recon.judge.coverage import Coverage, Hole, coverage
from recon.judge.row_counts import cut
from recon.model import EntryHead, LedgerSlice
from recon.model.books import BookLine
from recon.model.delta_offsets import is_delta, offset_of, table_of
from recon.model.offsets import Span
from recon.model.positions import is_kafka
from recon.project import Pipeline, Sink

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
_COUNTS = ("read", "filtered", "made", "quarantined", "written", "released_or_repaired")
_OF_TABLES = ("unread", "more_read", "passed_over", "again")
_DIFFERENCES = ("lost", "twice", *_OF_TABLES, "unwritten", "more_written")


@dataclass(frozen=True)
class Days:
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
        first, second = terms
        if first is None or second is None:
            self.say(entry, why)
        elif first != second:
            self.differences[names[0] if first > second else names[1]] += abs(first - second)

    def say(self, entry: int, why: str) -> None:
        """That nothing can be said of a write."""
        self.unknown[why] = None
        self.unknown_writes.add(entry)


@dataclass(frozen=True)
class SinkBook:
    """Compares the entries of one sink with each other, with the tables that they read, and with findings."""

    pipeline: Pipeline
    sink: Sink
    ledger: LedgerSlice
    tables: Mapping[str, WrittenTable]
    chain: Chain
    days: Days

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
                of_day.counts["released_or_repaired"].append(head.rows_written)
                if head.rows_written is None:
                    of_day.say(entry, _NOT_WRITTEN)
                continue
            of_day.numbers.add((head.epoch, head.batch_id))
            self._transformed(of_day, entry, head)
            if self._reads_table:
                self._offered(of_day, entry, head)
        if self._reads_table:
            self._skipped(sums)
        if items or self.ledger.broken:
            self._name_harmed(sums, items)
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
        of_day.counts["written_before"].append(offered)
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
        return (None, UNEXPLAINED) if table is None else table.offered(start, end, self._passes)

    @cached_property
    def _passes(self) -> str:
        return self.pipeline.source.passes

    def _skipped(self, sums: Mapping[date, _Sums]) -> None:
        """What no micro-batch read, and what one read again, by the positions in the tables' logs."""
        for key, incarnations in self._covered.incarnations.items():
            if not is_delta(key.topic):
                continue
            for walked in (incarnation.walked for incarnation in incarnations):
                for hole in walked.holes:
                    if self._restored_later(hole):
                        self._say(sums, hole.at.first, _LATER)
                        continue
                    self._differ(sums, hole.at.first, "passed_over", key.topic, hole.start, hole.end)
                for stretch, spans in walked.overlaps:
                    for start, end in spans:
                        for piece in cut(self._covered, key, stretch, Span(start, end)):
                            self._differ(sums, piece.entry, "again", key.topic, piece.start, piece.end)
        self._left_behind(sums)

    def _left_behind(self, sums: Mapping[date, _Sums]) -> None:
        """What a table still had when the query went on with another one: that of the same name, made anew."""
        reading = {
            key.topic: [stretch for incarnation in incarnations for stretch in incarnation.stretches]
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

    def _name_harmed(self, sums: Mapping[date, _Sums], items: Sequence[Item]) -> None:
        """Adds what findings name, and says of which entries they leave it unknown."""
        harmed = Harmed(self.ledger, self._covered, items)
        for difference, harms in (("lost", LOST), ("twice", TWICE)):
            for named in harmed.named(harms):
                of_day = sums[self.days.of(self.ledger.heads[named.entry])]
                if named.rows is None:
                    of_day.say(named.entry, _UNCOUNTED)
                elif not (named.of_table and any(of_day.differences[name] for name in _OF_TABLES)):
                    of_day.differences[difference] += named.rows  # else the books found the same rows themselves
        for entry, why in harmed.doubted():
            sums[self.days.of(self.ledger.heads[entry])].say(entry, why)

    def _line(self, day: date, of_day: _Sums) -> BookLine:
        counts: dict[str, Any] = {name: sum_of(of_day.counts[name]) for name in _COUNTS}
        counts |= {name: of_day.differences[name] for name in _DIFFERENCES}
        return BookLine(
            pipeline=self.pipeline.name,
            sink=self.sink.name,
            day=day,
            hop=self.chain.hops[self.pipeline.name],
            source=self._source(),
            reads_table=self._reads_table,
            micro_batches=len(of_day.numbers),
            written_before=sum_of(of_day.counts["written_before"]) if self._reads_table else None,
            **counts,
            unknown=tuple(of_day.unknown),
            unknown_writes=len(of_day.unknown_writes),
        )

    def _source(self) -> tuple[str, ...]:
        above = self.chain.sources[self.pipeline.name]
        if above:
            return tuple(f"{pipeline}.{sink}" for pipeline, sink in above)
        topics = sorted({topic for _, topic, _ in self.ledger.ranges.topics if is_kafka(topic)})
        return tuple(topics) or self.pipeline.source.names
