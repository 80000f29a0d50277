"""Entries are numbered; their order, and what is read of a chain, does not depend on what clocks said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from recon.model import Code, RangeTable
from recon.model.integrity import verify
from recon.write.ledger import Ledger, coverage, open_ledger
from recon.write.ledger.chain import link
from recon.write.ledger.columns import ENTRIES
from recon.write.ledger.proofs import PROOF
from recon.write.ledger.results import RESULTS
from recon.write.ledger.store import Filter
from tests.support.ledger_entries import AT, entry, project
from tests.support.messages import same_message
from tests.truth.memory import MemoryStore, memory_ledger

DAY = timedelta(days=1)
ONE = ("orders", "orders")


class WatchedStore(MemoryStore):
    """A store that keeps the days that were read; None stands for a reading of all days."""

    def __init__(self) -> None:
        super().__init__(ENTRIES)
        self.days_read: list[date | None] = []

    @override
    def read(self, which: Filter, columns: Sequence[str] | None = None) -> pa.Table:
        bounded = [day for day in self.dates() if which.covers(day)]
        self.days_read += [None] if len(bounded) == len(self.dates()) else bounded
        return super().read(which, columns)


def _clocks(ledger: Ledger, *days: float) -> None:
    """A chain whose clock said so many days after AT at each entry."""
    for n, day in enumerate(days):
        ledger.append(entry(n, at=AT + day * DAY))


def test_entries_are_numbered_and_keep_what_the_clock_said(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    _clocks(ledger, 0, -0.5, 365, 0)
    ledger.append(entry(0, sink="copy"))
    for again in (ledger, open_ledger(project(tmp_path))):
        written = again.entries(*ONE)
        assert [e.sequence for e in written] == [1, 2, 3, 4]
        assert [(e.committed_at - AT) / DAY for e in written] == [0, -0.5, 365, 0]
        assert (again.position(*ONE), again.position("orders", "copy"), again.position("orders", "none")) == (4, 1, 0)
        assert again.verify() == []
    assert open_ledger(project(tmp_path)).append(entry(4, at=AT - DAY)).sequence == 5


def test_the_newest_entry_is_the_last_of_the_chain_though_its_clock_was_behind(tmp_path: Path) -> None:
    _clocks(open_ledger(project(tmp_path)), 0, 1, 365, 2, -30)
    ledger = open_ledger(project(tmp_path))
    assert [e.batch_id for e in ledger.last(*ONE, 2)] == [3, 4]
    tail = ledger.tail(*ONE)
    assert tail is not None and tail.entry_hash == ledger.head_hash(*ONE) and tail.batch_id == 4
    assert ledger.append(entry(5, at=AT + 3 * DAY)).prev_hash == tail.entry_hash


def test_a_slice_by_position(tmp_path: Path) -> None:
    _clocks(open_ledger(project(tmp_path)), 0, 365, 1, -30, 2)
    ledger = open_ledger(project(tmp_path))
    cut = ledger.slice(*ONE, after=2)
    assert [h.sequence for h in cut.heads] == [2, 3, 4, 5] and cut.anchors == 1 and not cut.complete
    assert (verify(cut), cut.broken, cut.later) == ([], [], ())
    assert cut.ranges.end.tolist() == [h.batch_id * 10 + 10 for h in cut.heads for _ in range(2)]
    whole = ledger.slice(*ONE, after=0)
    assert [h.sequence for h in whole.heads] == [1, 2, 3, 4, 5] and whole.anchors == 0 and whole.complete
    nothing_new = ledger.slice(*ONE, after=5)
    assert [h.sequence for h in nothing_new.heads] == [5] and nothing_new.anchors == 1
    ended = ledger.slice(*ONE, to=AT + 1.5 * DAY, after=2)
    assert [h.sequence for h in ended.heads[ended.anchors :]] == [3, 4] and ended.later == {("q-1", 4)}
    with pytest.raises(ValueError, match="not both"):
        ledger.slice(*ONE, AT, after=1)


def test_a_run_is_read_with_the_entry_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _clocks(open_ledger(project(tmp_path)), *(n / 100 for n in range(12)))
    ledger = open_ledger(project(tmp_path))
    readings, read = [], ledger.store.read

    def counted(which: Filter, columns: Sequence[str] | None = None) -> pa.Table:
        readings.append(columns)
        return read(which, columns)

    monkeypatch.setattr(ledger.store, "read", counted)
    cut = ledger.slice(*ONE, after=9)
    assert [h.sequence for h in cut.heads] == [9, 10, 11, 12] and cut.anchors == 1
    assert readings.count(None) == 1, "offset ranges were decoded more than once"


def test_files_are_read_in_the_order_of_the_chain(tmp_path: Path) -> None:
    _clocks(open_ledger(project(tmp_path)), *(n / 100 for n in range(12)))
    ledger = open_ledger(project(tmp_path))
    assert ledger.store.read(Filter.of(*ONE))["sequence"].to_pylist() == list(range(1, 13)), "it would be sorted"


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1]), st.sampled_from([0, 3, 70_000]), st.integers(0, 30), st.integers(0, 9)),
        max_size=30,
    )
)
def test_what_ranges_cover_in_whatever_order_they_come(ranges: list[tuple[int, int, int, int]]) -> None:
    topics = [(0, "orders", None), (0, "returns", "id")]
    columns = [np.array(column, np.int64) for column in zip(*ranges, strict=True)] or [np.zeros(0, np.int64)] * 4
    topic, partition, start, size = columns
    table = RangeTable(np.arange(len(ranges)), topic.astype(np.int32), partition, start, start + size, topics)
    expected: dict[tuple[str, str | None, int], set[int]] = {}
    for number, place, first, count in ranges:
        if count:
            _, name, topic_id = topics[number]
            expected.setdefault((name, topic_id, place), set()).update(range(first, first + count))
    covered = {key: {o for span in spans for o in range(*span)} for key, spans in coverage.of(table).items()}
    assert covered == expected


def test_a_position_for_a_time(tmp_path: Path) -> None:
    _clocks(open_ledger(project(tmp_path)), 0, 3, 1, 2)
    ledger = open_ledger(project(tmp_path))
    since = [ledger.first_since(*ONE, AT + day * DAY) for day in (0, 1, 2.5, 4)]
    assert since == [1, 2, 2, None]


def test_a_year_ahead_once_drops_nothing_from_the_days(tmp_path: Path) -> None:
    _clocks(open_ledger(project(tmp_path)), 0, 0.1, 365, 0.2, 1, 1.1)
    ledger = open_ledger(project(tmp_path))
    first, second = (ledger.slice(*ONE, AT + day * DAY, AT + (day + 1) * DAY) for day in range(2))
    assert [h.sequence for h in first.heads[first.anchors :]] == [1, 2, 3, 4]
    assert [h.sequence for h in second.heads[second.anchors :]] == [5, 6]
    to_present = ledger.slice(*ONE, AT + 0.05 * DAY)
    assert [h.sequence for h in to_present.heads[to_present.anchors :]] == [2, 3, 4, 5, 6]


def test_a_year_ahead_between_two_days_belongs_to_the_later(tmp_path: Path) -> None:
    _clocks(open_ledger(project(tmp_path)), 0, 0.1, 365, 1, 1.1)
    ledger = open_ledger(project(tmp_path))
    runs = [ledger.slice(*ONE, AT + day * DAY, AT + (day + 1) * DAY) for day in range(2)]
    assert [[h.sequence for h in cut.heads[cut.anchors :]] for cut in runs] == [[1, 2], [3, 4, 5]]


@given(st.lists(st.integers(-12, 12), min_size=1, max_size=9), st.data())
def test_whatever_the_clocks_said(jumps: list[int], data: st.DataObject) -> None:
    """Four entries a day; `jumps` are quarters of a day by which the clock was wrong at each entry, often by none."""
    ledger, count = memory_ledger(), len(jumps)
    _clocks(ledger, *((n + (jump if abs(jump) > 6 else 0)) / 4 for n, jump in enumerate(jumps)))
    every = list(range(1, count + 1))

    assert [e.sequence for e in ledger.entries(*ONE)] == every and ledger.position(*ONE) == count
    for n in every:
        assert [e.sequence for e in ledger.last(*ONE, n)] == every[-n:]
    for position in range(count + 1):
        cut = ledger.slice(*ONE, after=position)
        assert [h.sequence for h in cut.heads[cut.anchors :]] == every[position:]
        assert [h.sequence for h in cut.heads[: cut.anchors]][-1:] == every[:position][-1:]
        assert verify(cut) == []

    bounds = [None, *(AT + quarter * DAY / 4 for quarter in sorted(data.draw(st.sets(st.integers(-8, 20))))), None]
    seen: set[int] = set()
    for begin, end in pairwise(bounds):
        cut = ledger.slice(*ONE, begin, end)
        run = [h.sequence for h in cut.heads[cut.anchors :]]
        assert run == list(range(run[0], run[-1] + 1)) if run else True, "a run has no hole"
        assert verify(cut) == []
        timed = {
            e.sequence
            for e in ledger.entries(*ONE)
            if (begin is None or e.committed_at >= begin) and (end is None or e.committed_at < end)
        }
        assert timed <= set(run), "what the clock puts into the period belongs to it"
        later = {("q-1", n - 1) for n in every if run and n > run[-1]} if end is not None else set()
        assert not run or set(cut.later) == later
        seen |= set(run)
    assert seen == set(every), "periods that follow each other leave nothing out"


def test_the_furthest_micro_batch_is_an_anchor_though_the_clock_jumped_behind_it() -> None:
    ledger = memory_ledger()
    _clocks(ledger, 0, 1, 2)
    ledger.append(entry(1, at=AT - 30 * DAY, attempt=2, status="already_committed"))
    ledger.append(entry(3, at=AT + 3 * DAY))
    cut = ledger.slice(*ONE, after=4)
    assert [h.batch_id for h in cut.heads] == [2, 1, 3] and cut.anchors == 2 and verify(cut) == []


def _year() -> tuple[Ledger, WatchedStore]:
    store = WatchedStore()
    ledger = Ledger(store, MemoryStore(RESULTS), MemoryStore(PROOF))
    _clocks(ledger, *(n / 4 for n in range(4 * 60)))
    store.days_read.clear()
    return Ledger(store, MemoryStore(RESULTS), MemoryStore(PROOF)), store


def test_the_end_of_a_long_chain_costs_its_last_days() -> None:
    ledger, store = _year()
    last = max(store.dates())
    assert ledger.head_hash(*ONE)
    assert store.days_read == [last]
    store.days_read.clear()
    cut = ledger.slice(*ONE, after=4 * 60 - 1)
    assert [h.sequence for h in cut.heads] == [239, 240] and {*store.days_read} == {last}
    store.days_read.clear()
    ledger.slice(*ONE, AT + 58 * DAY)
    assert {*store.days_read} <= {last, last - DAY, last - 2 * DAY}


def test_a_clock_that_once_ran_ahead_costs_one_day_more() -> None:
    ledger, store = _year()
    ledger.append(entry(240, at=AT + 300 * DAY))
    ledger.append(entry(241, at=AT + 60.3 * DAY))
    store.days_read.clear()
    ahead, today = (AT + 300 * DAY).date(), (AT + 60.3 * DAY).date()
    tail = ledger.tail(*ONE)
    assert tail is not None and tail.sequence == 242 and store.days_read == [ahead, today]


def _without(path: Path, sequence: int) -> None:
    DeltaTable(str(path / "_recon/ledger")).delete(f"sequence = {sequence}")


def test_entries_removed_from_the_end_leave_a_hole_in_the_numbers(tmp_path: Path) -> None:
    _clocks(open_ledger(project(tmp_path)), 0, 1, 2)
    _without(tmp_path, 3)
    ledger = open_ledger(project(tmp_path))
    assert [e.sequence for e in ledger.last(*ONE, 1)] == [2] and ledger.position(*ONE) == 2
    again = ledger.append(entry(2, at=AT + 3 * DAY))
    assert again.sequence == 4, "a number is not given twice"
    for cut in (ledger.slice(*ONE), ledger.slice(*ONE, after=2)):
        (finding,) = [f for f in verify(replace(cut, operations=())) if f.code is Code.TAMPERED]
        assert finding.batch_id == 2
        assert same_message(finding.message)


def test_an_entry_removed_from_the_middle_is_one_finding(tmp_path: Path) -> None:
    _clocks(open_ledger(project(tmp_path)), 0, 1, 2, 3)
    _without(tmp_path, 2)
    ledger = open_ledger(project(tmp_path))
    for cut in (ledger.slice(*ONE), ledger.slice(*ONE, after=1), ledger.slice(*ONE, AT + 0.5 * DAY)):
        assert [(f.code, f.batch_id) for f in verify(replace(cut, operations=()))] == [(Code.TAMPERED, 2)]


@pytest.mark.parametrize("which", [1, 3])
def test_a_number_that_was_edited_breaks_the_seal_and_nothing_else(tmp_path: Path, which: int) -> None:
    _clocks(open_ledger(project(tmp_path)), 0, 1, 2)
    table = DeltaTable(str(tmp_path / "_recon/ledger"))
    table.update({"sequence": str(9 if which == 3 else 0)}, predicate=f"sequence = {which}")
    cut = open_ledger(project(tmp_path)).slice(*ONE)
    assert [(f.code, f.batch_id) for f in verify(replace(cut, operations=()))] == [(Code.TAMPERED, which - 1)]


def test_a_chain_rewritten_with_other_numbers_is_tampered(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    _clocks(ledger, 0, 1, 2)
    written = ledger.entries(*ONE)
    cut = ledger.slice(*ONE)
    for numbers, told in (((1, 2, 5), [2]), ((2, 3, 4), [0]), ((1, 1, 2), [1])):
        heads, before = [], ""
        for one, number in zip(written, numbers, strict=True):
            heads.append(link(replace(one, sequence=number), before))
            before = heads[-1].entry_hash
        found = verify(replace(cut, heads=heads, operations=()))
        assert [(f.code, f.batch_id) for f in found] == [(Code.TAMPERED, batch_id) for batch_id in told]
        assert same_message(found[0].message)


def test_entries_of_two_chains_stand_by_time_and_each_in_its_order() -> None:
    ledger = memory_ledger()
    for n, (sink, day) in enumerate((("a", 0), ("b", 1), ("a", 365), ("b", 2), ("a", 3), ("b", 4), ("a", -30))):
        ledger.append(entry(n, sink=sink, at=AT + day * DAY))
    listed = ledger.entries()
    for sink in ("a", "b"):
        of_sink = [e.sequence for e in listed if e.sink == sink]
        assert of_sink == sorted(of_sink)
    assert [e.batch_id for e in ledger.entries(limit=1)] == [5], "a clock that once ran ahead is not the newest"


def test_a_copy_that_forgot_how_long_the_chain_is_is_read_whole() -> None:
    ledger = memory_ledger()
    _clocks(ledger, 0, 1, 365, 2)
    store = ledger.store
    assert isinstance(store, MemoryStore)
    store.lengths.clear()
    assert ledger.position(*ONE) == 4 and [h.sequence for h in ledger.slice(*ONE, after=1).heads] == [1, 2, 3, 4]


def test_a_ledger_without_entries_has_no_position(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    assert (ledger.position(*ONE), ledger.first_since(*ONE, AT)) == (0, None)
    assert ledger.slice(*ONE, after=3).heads == [] and not ledger.exists()
