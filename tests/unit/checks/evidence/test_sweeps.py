"""The sweeps over sorted ranges, held to the quadratic code that they replaced, which is kept here as the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recon.judge.coverage import Hole, Key, Stretch, TopicIncarnation, ranges_of
from recon.judge.row_counts import Counts, Piece, counted_entries, inside
from recon.model import LedgerSlice
from recon.model.offsets import GrowingSpans, Span, Spans
from recon.testing.evidence import TOPIC
from tests.support.ledgers import ledgers

KEY = Key(0, TOPIC, 0)

ranges = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda at: (at[0], at[0] + at[1]))
spans = st.lists(ranges, max_size=8).map(Spans.of)


def _offsets(of: Spans) -> set[int]:
    return {offset for start, end in of for offset in range(start, end)}


# -- sets of offsets ---------------------------------------------------------------------------------------------------


@given(spans, spans)
def test_sets_of_offsets(one: Spans, other: Spans) -> None:
    assert one.intersect(other) == Spans.of_offsets(_offsets(one) & _offsets(other))
    assert one.minus(other) == Spans.of_offsets(_offsets(one) - _offsets(other))
    assert [offset in one for offset in range(80)] == [offset in _offsets(one) for offset in range(80)]


@given(st.lists(ranges, max_size=12))
def test_a_growing_set_tells_what_is_new(added: Sequence[tuple[int, int]]) -> None:
    growing, known = GrowingSpans(), Spans()
    for start, end in added:
        mine = Spans.of([(start, end)])
        assert growing.add(start, end) == list(mine.minus(known))
        known = known.union(mine)
        assert growing.spans == known


# -- one incarnation of a topic partition ------------------------------------------------------------------------------


def _walk(incarnation: TopicIncarnation) -> tuple[list[Hole], list[tuple[Stretch, Spans]], Spans, int]:
    holes: list[Hole] = []
    overlaps: list[tuple[Stretch, Spans]] = []
    covered: list[Span] = []
    frontier: int | None = None
    before: Stretch | None = None
    for stretch in incarnation.stretches:
        start, end = stretch.start, stretch.end
        if end < start:
            frontier, before = end, stretch
            continue
        if stretch.first < incarnation.anchors or before is None:
            begin = min(frontier or 0, start) if stretch.first < incarnation.anchors else start
            covered = list(Spans.of([*covered, Span(begin, end)]))
            frontier = max(frontier or 0, end)
        elif start >= frontier:
            if start > frontier:
                holes.append(Hole(frontier, start, stretch, before))
            covered.append(Span(start, end))
            frontier = end
        elif end > start:
            mine = Spans.of([(start, end)])
            known = Spans.of(covered)
            twice = mine.intersect(known)
            if twice:
                overlaps.append((stretch, twice))
            holes = [part for hole in holes for part in hole.without(mine)]
            covered = list(known.union(mine))
            frontier = max(frontier, end)
        before = stretch
    return holes, overlaps, Spans.of(covered), frontier or 0


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(-6, 12)), min_size=1, max_size=12), st.integers(0, 4))
def test_holes_and_overlaps(read: Sequence[tuple[int, int]], anchors: int) -> None:
    stretches = [Stretch(start, max(start + width, 0), n, n, (n, n + 1)) for n, (start, width) in enumerate(read)]
    incarnation = TopicIncarnation("id", stretches, anchors)
    assert tuple(incarnation.walked) == _walk(incarnation)


# -- ledgers -----------------------------------------------------------------------------------------------------------


def _pieces(counts: Counts, stretches: Sequence[tuple[Key, Stretch]], wanted: Spans) -> Iterator[Piece]:
    left = wanted
    for key, stretch in stretches:
        if not left:
            return
        mine = left.intersect(Spans.of([(stretch.start, stretch.end)]))
        left = left.minus(mine)
        low, high = stretch.rows
        for start, end in mine:
            row = low + int(np.searchsorted(counts.covered.ends[low:high], start, side="right"))
            begin = int(counts.covered.ends[row - 1]) if row > low else stretch.start
            while start < end:
                upto = min(end, int(counts.covered.ends[row]))
                yield Piece(int(counts.covered.entries[row]), key, start, upto, start == begin)
                start = begin = upto
                row += 1


def _within_each(pieces: Sequence[Piece], wanted: Spans) -> Iterator[Piece]:
    for piece in pieces:
        for start, end in wanted:
            low, high = max(piece.start, start), min(piece.end, end)
            if low < high:
                yield piece._replace(start=low, end=high, leads=piece.leads and low == piece.start)


@given(ledgers(), spans, spans)
def test_offsets_cut_up_by_the_entries_that_read_them(slice_: LedgerSlice, wanted: Spans, within: Spans) -> None:
    counts = counted_entries(slice_)
    for stretches in counts.judged.values():
        pieces = list(stretches.pieces(wanted))
        assert pieces == list(_pieces(counts, stretches.stretches, wanted))
        assert list(inside(pieces, within)) == list(_within_each(pieces, within))
        readings = [piece for one in stretches.stretches for piece in _pieces(counts, [one], wanted)]
        assert list(stretches.readings(wanted)) == readings
        assert stretches.incarnations == max(len(counts.covered.incarnations[key]) for key, _ in stretches.stretches)


@given(ledgers())
def test_offsets_read_twice(slice_: LedgerSlice) -> None:
    counts = counted_entries(slice_)
    found: dict[Key, Spans] = {}
    for key, incarnations in counts.covered.incarnations.items():
        for incarnation in incarnations:
            for stretch, twice in _walk(incarnation)[1]:
                if counts.covered.judged(stretch.first):
                    found[key] = found.get(key, Spans()).union(twice)
    assert counts.overlaps == found


@given(ledgers())
def test_the_ranges_of_an_entry(slice_: LedgerSlice) -> None:
    table = slice_.ranges
    for entry in range(len(slice_.heads)):
        rows = np.flatnonzero(table.entry == entry).tolist()
        assert ranges_of(slice_, entry) == tuple(
            sorted(
                (*table.topics[table.topic[i]][:2], int(table.partition[i]), int(table.start[i]), int(table.end[i]))
                for i in rows
            )
        )
