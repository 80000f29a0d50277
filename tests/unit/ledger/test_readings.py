"""Which entries read an offset: found by the bounds of the data files, and never another set than reading all gives."""

from __future__ import annotations

import os
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recon.base.errors import LedgerError
from recon.model import LedgerEntry
from recon.model.offsets import OffsetSpan
from recon.model.wire.app_ids import chain_id
from recon.write.ledger import Ledger, columns, files, open_ledger
from recon.write.ledger.chain import link
from recon.write.ledger.store.base import Filter
from tests.support.ledger_entries import AT, entry, project

TOPICS = (("orders", "id-1"), ("orders", "id-2"), ("orders-eu", None), ("ördërs", "id-3"))


def history(seed: int, count: int, sink: str = "orders") -> list[LedgerEntry]:
    """Micro-batches that mostly go on, and now and then go back, skip, or read nothing; partitions are far apart."""
    rng = random.Random(seed)
    at = {(topic, p): rng.choice((0, 10**6, 3 * 10**12)) for topic in TOPICS for p in range(3)}
    made, day = [], AT
    for number in range(count):
        spans = []
        for ((topic, topic_id), partition), begin in at.items():
            start = max(0, begin + rng.choice((0, 0, 0, 0, 0, 0, 0, 0, -15, 7)))
            end = start + rng.choice((0, 1, 5, 10))
            at[(topic, topic_id), partition] = end
            spans.append(OffsetSpan(topic, topic_id, partition, start, end))
        day += timedelta(minutes=rng.choice((1, 1, 300)))
        made.append(entry(number, sink=sink, offsets=tuple(spans), at=day))
    return made


def expected(entries: list[LedgerEntry], place: tuple[str, int, int]) -> list[int]:
    topic, partition, offset = place
    return [
        one.sequence
        for one in entries
        if any(
            s[0] == topic and s.partition == partition and s.start_offset <= offset < s.end_offset for s in one.offsets
        )
    ]


def places(entries: list[LedgerEntry], count: int) -> list[tuple[str, int, int]]:
    rng = random.Random(7)
    found = []
    for _ in range(count):
        span = rng.choice(rng.choice(entries).offsets)
        found.append(
            (span.topic, span.partition, max(0, rng.choice((span.start_offset, span.end_offset)) - rng.choice((0, 1))))
        )
    return [*found, ("orders", 9, 5), ("none", 0, 0), ("orders", 0, 2**62)]


def check(ledger: Ledger, sink: str, asked: int) -> None:
    entries = ledger.entries("orders", sink)
    for place in places(entries, asked):
        found = ledger.readings("orders", sink, *place)
        assert [head.sequence for head in found.heads] == expected(entries, place), place
        assert not found.broken


@pytest.mark.parametrize("seed", range(3))
def test_the_entries_that_read_an_offset_are_those_that_hold_it(tmp_path: Path, seed: int) -> None:
    ledger = open_ledger(project(tmp_path))
    for one in history(seed, 40):
        ledger.append(one)
    for one in history(seed + 100, 10, "archive"):
        ledger.append(one)
    check(ledger, "orders", 60)
    ledger.compact()
    check(ledger, "orders", 60)
    check(ledger, "archive", 20)


def test_row_groups_of_a_large_file_are_looked_at_by_their_bounds(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    before, made = "", []
    for number, one in enumerate(history(9, 2 * files.ROW_GROUP + 100), 1):
        same_day = {"sequence": number, "committed_at": AT, "started_at": AT}
        made.append(link(entry(number, offsets=one.offsets, **same_day), before))
        before = made[-1].entry_hash
    ledger.store.append(columns.to_table(made), chain=chain_id("orders", "orders"), after=0)
    (file,) = (tmp_path / "_recon").rglob("*.parquet")
    import pyarrow.parquet as pq

    assert pq.ParquetFile(file).metadata.num_row_groups == 3
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == "SNAPPY"
    check(ledger, "orders", 150)
    newest = ledger.last("orders", "orders", 3)
    assert [one.batch_id for one in newest] == [one.batch_id for one in made[-3:]]
    assert newest == made[-3:], "ranges of the last row group are those of its rows"
    whole = ledger.slice("orders", "orders")
    assert not whole.broken, "each entry has the ranges that its seal covers, in whichever thread they were decoded"
    middle = ledger.slice("orders", "orders", after=files.ROW_GROUP - 1)
    assert list(middle.ranges.of(middle.anchors)) == sorted(made[files.ROW_GROUP - 1].offsets, key=columns.sort_key)


def test_what_a_filter_reads_of_a_large_file_is_what_it_says(tmp_path: Path) -> None:
    """Row groups are left by their bounds: never one with an entry that matches."""
    rng = random.Random(11)
    ledger, made = open_ledger(project(tmp_path)), []
    for number in range(1, 2 * files.ROW_GROUP + 101):
        at = AT + timedelta(seconds=number + rng.choice((0, 0, 0, -900)), microseconds=number)  # a clock that jumps
        spans = (OffsetSpan("orders", "id-1", number % 3, number, number + 1),)
        sink = rng.choice(("orders", "archive")) if number > files.ROW_GROUP else "orders"
        made.append(link(entry(number, sequence=number, at=at, sink=sink, offsets=spans), ""))
    ledger.store.append(columns.to_table(made))
    for _ in range(80):
        first, last = sorted(rng.choices(range(-10, len(made) + 10), k=2))
        which = Filter(
            (("sink", rng.choice(("archive", "orders", "none"))),) if rng.random() < 0.7 else (),
            from_=rng.choice((None, AT + timedelta(seconds=first, microseconds=first))),
            to=rng.choice((None, AT + timedelta(seconds=last, microseconds=last))),
            above=rng.choice((None, first)),
            upto=rng.choice((None, last)),
        )
        found = ledger.store.read(which)
        numbers = [one.sequence for one in made if _meets(one, which)]
        assert found["sequence"].to_pylist() == columns.ranges(found).start.tolist() == numbers, which
    (path,) = tmp_path.rglob("*.parquet")
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for which, groups in (
            (Filter(above=len(made) - 2), [2]),
            (Filter(upto=files.ROW_GROUP), [0]),
            (Filter(to=AT + timedelta(minutes=5)), [0]),
            (Filter.of(sink="archive"), [1, 2]),
            (Filter.of(sink="returns"), []),
        ):
            assert files.row_groups(file, which.bounds("committed_at")) == groups


def _meets(one: LedgerEntry, which: Filter) -> bool:
    return (
        all(getattr(one, name) == text for name, text in which.equals)
        and (which.from_ is None or one.committed_at >= which.from_)
        and (which.to is None or one.committed_at < which.to)
        and (which.above is None or one.sequence > which.above)
        and (which.upto is None or one.sequence <= which.upto)
    )


def test_merged_files_are_compressed_by_zstd(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    for n in range(3):
        ledger.append(entry(n, at=AT))
    ledger.compact()
    (merged,) = (tmp_path / "_recon/ledger").rglob("*.zstd.parquet")
    import pyarrow.parquet as pq

    assert pq.ParquetFile(merged).metadata.row_group(0).column(0).compression == "ZSTD"
    assert [one.batch_id for one in ledger.entries("orders", "orders")] == [0, 1, 2]


def test_a_file_that_is_cut_off_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system; a file that is mapped into memory would end the process here."""
    ledger = open_ledger(project(tmp_path))
    for n in range(70):  # ranges of so many are decoded after the other columns
        spans = tuple(OffsetSpan("orders", "id-1", p, n * n * p, (n + 1) ** 2 * p) for p in range(1, 100))
        ledger.append(entry(n, offsets=spans, at=AT + timedelta(seconds=n)))
    ledger.compact()
    mask = Filter.mask

    def cut(which: Filter, *arguments: Any, **named: Any) -> Any:
        for file in tmp_path.rglob("*.parquet"):
            os.truncate(file, 0)
        return mask(which, *arguments, **named)

    monkeypatch.setattr(Filter, "mask", cut)
    with pytest.raises(LedgerError, match="cannot be read"):
        ledger.entries("orders", "orders")
