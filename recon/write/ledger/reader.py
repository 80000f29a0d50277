"""Reads one chain of the ledger in its own order, which is that of `sequence`, whatever the clocks said.

The table is partitioned by the UTC day of `committed_at`. Days are read newest first, and reading stops when the
sequences that were found have no hole: normally after the last day. Where a driver's clock jumped, entries are in other
days, a hole stays, and further days are read until it is filled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING

from recon.base.lazy import np, pa, pc
from recon.model.wire.app_ids import chain_id
from recon.write.ledger import arrow
from recon.write.ledger.store import SEQUENCE, Filter, Store

if TYPE_CHECKING:
    import numpy.typing as npt

_KEYS = ("epoch", "batch_id", "attempt", "committed_at", "status", SEQUENCE)


@dataclass(frozen=True)
class Period:
    """The run of a chain that belongs to a period.

    `above` is the sequence before its first entry; `upto` that of its last, None for the chain's end. `day` is where
    the entries before the period are looked for first; `before` are those of them that were read with the run.
    """

    entries: pa.Table
    above: int
    upto: int | None
    day: date | None
    before: pa.Table | None = None


@dataclass(frozen=True)
class ChainReader:
    """The entries of one (pipeline, sink) in a store."""

    store: Store
    pipeline: str
    sink: str

    def _where(self) -> Filter:
        return Filter.of(self.pipeline, self.sink)

    def _length(self) -> int:
        return self.store.length(chain_id(self.pipeline, self.sink))

    def run(self, above: int, upto: int | None = None, names: Sequence[str] | None = None) -> pa.Table:
        """Entries with a sequence above one and up to another, None for the chain's end; in chain order."""
        where = replace(self._where(), above=above or None, upto=upto)
        if not self.store.quick or (above == 0 and upto is None):
            return in_order(self.store.read(where, _with_sequence(names)))
        length = self._length()

        def whole(parts: Sequence[pa.Table]) -> bool:
            found = _sequences(parts)
            last = int(found.max(initial=length)) if upto is None else upto
            # Without a length (a copy of the table has none) nobody knows where the chain ends.
            return (length > 0 or upto is not None) and len(found) == max(last - above, 0)

        return self._by_days(where, whole, names)

    def newest(self, count: int, names: Sequence[str] | None = None) -> pa.Table:
        """The newest `count` entries, in chain order."""
        before = max(0, self._length() - count)
        entries = self.run(before, None, names)
        if before and entries.num_rows < count:  # the newest entries are not there any more
            entries = self.run(0, None, names)
        return entries.slice(max(0, entries.num_rows - count))

    def _by_days(
        self,
        where: Filter,
        enough: Callable[[Sequence[pa.Table]], bool],
        names: Sequence[str] | None = None,
        around: date | None = None,
    ) -> pa.Table:
        """Entries day by day until there are enough; in chain order.

        Days up to `around` come first, the newest of them before the others: a year of days costs what one costs.
        """
        names = _with_sequence(names)
        parts: list[pa.Table] = []
        if not enough(parts):
            days = self.store.dates()[::-1]
            later = [day for day in days if around is not None and day > around]
            for day in (day for day in (*days[len(later) :], *later) if where.covers(day)):
                part = self.store.read(replace(where, dates=(day,)), names)
                parts += [part] if part.num_rows else []
                if enough(parts):
                    break
        empty = arrow.empty(self.store.schema)
        return in_order(pa.concat_tables(parts) if parts else empty.select(names or empty.column_names))

    def period(self, from_: datetime | None, to: datetime | None, read: pa.Table | None = None) -> Period:
        """The run of a chain that belongs to [from_, to); None where it is open. See `Ledger.slice`.

        `read` are the chain's entries whose clock said so, where they were read already.
        """
        length = 0 if to is not None else self._length()
        timed = in_order(self.store.read(Filter.of(self.pipeline, self.sink, from_, to)) if read is None else read)
        if from_ is None and to is None:
            return Period(timed, 0, None, None)
        found = arrow.numbers(timed[SEQUENCE])
        above = 0
        if from_ is not None:
            above = self._last_before(from_)
            above = min(above, int(found[0]) - 1) if len(found) else above
        upto = None if to is None else int(found.max(initial=above))
        last = int(found.max(initial=length)) if upto is None else upto
        if len(np.unique(found)) != max(last - above, 0):
            timed = self.run(above, upto)
        return Period(timed, above, upto, from_.date() if from_ is not None else None)

    def behind(self, position: int, to: datetime | None) -> Period:
        """The run of a chain behind a position, up to the last entry that was committed before `to`."""
        # With the entry at the position, an anchor: it is mostly in the file that the run is read from.
        read, upto = self.run(max(position - 1, 0)), None
        anchors = int(np.searchsorted(arrow.numbers(read[SEQUENCE]), position, side="right"))
        before, entries = read.slice(0, anchors), read.slice(anchors)
        if to is not None:
            earlier = entries.filter(pc.less(entries["committed_at"], arrow.scalar(to)))
            upto = int(arrow.numbers(earlier[SEQUENCE]).max(initial=position))
            entries = entries.filter(pc.less_equal(entries[SEQUENCE], arrow.scalar(upto)))
        # The entry at the position is most likely of the day of the one behind it.
        first = arrow.values(entries["committed_at"].slice(0, 1))
        return Period(entries, position, upto, first[0].date() if first else None, before)

    def _last_before(self, at: datetime) -> int:
        """The sequence of the entry with the latest `committed_at` before an instant; 0 without one.

        Not the last one in the chain: that may be of much later, written while the clock was behind.
        """
        names, before = ("committed_at", SEQUENCE), replace(self._where(), to=at)
        if self.store.quick:
            # The newest day that has an entry before the instant has the latest.
            entries = self._by_days(before, bool, names, around=at.date())
        else:
            entries = in_order(self.store.read(before, names))
        if not entries.num_rows:
            return 0
        times = arrow.numbers(entries["committed_at"])
        return int(arrow.numbers(entries[SEQUENCE])[len(times) - 1 - int(np.argmax(times[::-1]))])

    def anchors(self, position: int, around: date | None = None, read: pa.Table | None = None) -> pa.Table:
        """What comes before a run: the entry at `position`, and the furthest micro-batch of every epoch up to there.

        The entry before the run is what the chain goes on from. It need not be the furthest: it may be a replay, or an
        older micro-batch that was restored later. Earlier epochs are there so that a later one that read their offsets
        again does not look like the first. `around` is the day to look at first, `read` has
        the entry at the position where it was read already.
        """
        if position <= 0:
            return arrow.empty(self.store.schema)
        where = replace(self._where(), upto=position)

        def settled(parts: Sequence[pa.Table]) -> bool:
            # A micro-batch that was written, and everything behind it.
            found = _sequences(parts)
            written = [part.filter(pc.equal(part["status"], arrow.scalar("committed"))) for part in parts]
            newest = _sequences(written).max(initial=0)
            return bool(newest) and len(found[found >= newest]) == position - newest + 1

        if self.store.quick:
            recent = self._by_days(where, settled, _KEYS, around)
        else:
            recent = in_order(self.store.read(where, _KEYS))
        if not recent.num_rows:
            return arrow.empty(self.store.schema)
        furthest = _furthest(recent)
        chosen = _places(recent, [*furthest.values(), recent.num_rows - 1])
        if max(furthest) > 0:
            whole = in_order(self.store.read(where, _KEYS))
            chosen |= _places(whole, [place for epoch, place in _furthest(whole).items() if epoch not in furthest])
        # Ranges are read for these few alone.
        return in_order(pa.concat_tables([self._entry(sequence, time, read) for sequence, time in sorted(chosen)]))

    def _entry(self, sequence: int, time: datetime, read: pa.Table | None) -> pa.Table:
        if read is not None and list(arrow.tuples(read, SEQUENCE, "committed_at")) == [(sequence, time)]:
            return read
        return self.store.read(replace(self._where(), dates=(time.date(),), above=sequence - 1, upto=sequence))


def in_order(table: pa.Table) -> pa.Table:
    """Entries of one chain in its order."""
    return arrow.ascending(table, SEQUENCE)


def by_time(table: pa.Table) -> pa.Table:
    """Entries of many chains, oldest first; those of one chain in its order.

    An entry comes no later than those that follow it in its chain: a clock that once ran a year ahead does not make it
    the newest of all.
    """
    chained = [(name, "ascending") for name in ("pipeline", "sink", SEQUENCE)]
    table = table.take(pc.sort_indices(table.select([name for name, _ in chained]), sort_keys=chained))
    times = arrow.numbers(table["committed_at"]).copy()
    chains = list(arrow.tuples(table, "pipeline", "sink"))
    for place in range(len(times) - 2, -1, -1):
        if chains[place] == chains[place + 1]:
            times[place] = min(times[place], times[place + 1])
    return table.take(arrow.array(np.argsort(times, kind="stable")))


def _with_sequence(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(dict.fromkeys((*names, SEQUENCE)))


def _sequences(parts: Sequence[pa.Table]) -> npt.NDArray[np.int64]:
    """The distinct sequences of some tables, ascending."""
    found = [arrow.numbers(part[SEQUENCE]) for part in parts]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)


def _furthest(table: pa.Table) -> dict[int, int]:
    """The place of the highest batch_id of each epoch, the newest of equals."""
    if not table.num_rows:
        return {}
    epochs, batch_ids = arrow.numbers(table["epoch"]), arrow.numbers(table["batch_id"])
    # Sorted by epoch and batch_id, equals in order: the last one of each epoch.
    order = np.lexsort((batch_ids, epochs))
    last = np.append(np.flatnonzero(np.diff(epochs[order])), len(order) - 1)
    return dict(zip(epochs[order[last]].tolist(), order[last].tolist(), strict=True))


def _places(table: pa.Table, places: Sequence[int]) -> set[tuple[int, datetime]]:
    """(sequence, committed_at) of some entries."""
    return set(arrow.tuples(table.take(arrow.array(np.array(places, np.int64))), SEQUENCE, "committed_at"))
