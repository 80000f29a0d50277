"""Where a micro-batch stands whose offsets another epoch, or a repair, has read already."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recon.base.errors import NewEpochError
from recon.model import REPAIRS, LedgerEntry
from recon.model.offsets import OffsetSpan
from recon.write.hook.epochs import Batch, Epochs
from recon.write.ledger import Ledger, open_ledger
from tests.support.ledger_entries import entry, project
from tests.support.messages import raises


def epochs(folder: Path, *entries: LedgerEntry, **of_sink: Any) -> Epochs:
    sink = project(folder).pipelines[0].sinks[0].model_copy(update=of_sink)
    ledger = open_ledger(project(folder))
    return Epochs(ledger, "orders", sink, "cp", [ledger.append(one) for one in entries])


def batch(number: int, start: int, end: int, topic_id: str = "id-1") -> Batch:
    ranges = tuple(OffsetSpan("orders", topic_id, partition, start, end) for partition in range(2))
    return Batch(query_id="q-1", run_id=None, batch_id=number, ranges=ranges)


def repaired(number: int) -> LedgerEntry:
    """A repair that read what micro-batch `number` would read."""
    return entry(0, epoch=REPAIRS, query_id="repair-1", status="repaired", offsets=entry(number).offsets)


@pytest.mark.parametrize("before", [(), (entry(0),)], ids=["no entry", "an entry before it"])
def test_a_micro_batch_that_a_repair_has_read_is_not_written_again(
    tmp_path: Path, before: tuple[LedgerEntry, ...]
) -> None:
    """Spark took it for done; then a checkpoint was put back that had not."""
    number = len(before)
    known = epochs(tmp_path, *before, repaired(number))
    with raises(NewEpochError):
        known.place(batch(number, number * 10, number * 10 + 10))


def test_the_one_behind_it_is_written(tmp_path: Path) -> None:
    placed = epochs(tmp_path, entry(0), repaired(1)).place(batch(2, 20, 30))
    assert (placed.epoch, placed.replays) == (0, None)


def test_a_replay_of_another_one_is_still_known(tmp_path: Path) -> None:
    placed = epochs(tmp_path, entry(0), entry(2), repaired(1)).place(batch(2, 20, 30))
    assert placed.epoch == 0 and placed.replays is not None


def test_a_topic_that_was_made_anew_is_another(tmp_path: Path) -> None:
    assert epochs(tmp_path, entry(0), repaired(1)).place(batch(2, 10, 20, "id-2")).epoch == 0


def test_it_can_be_accepted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    known = epochs(tmp_path, entry(0), repaired(1), repaired(2), on_new_epoch="warn")
    with caplog.at_level(logging.WARNING, "recon"):
        assert [known.place(batch(n, n * 10, n * 10 + 10)).epoch for n in (1, 2)] == [0, 0]
    assert len(caplog.records) == 1, "once, not with every micro-batch"


def test_it_can_be_trimmed(tmp_path: Path) -> None:
    known = epochs(tmp_path, entry(0), repaired(1), trim_replayed_offsets=True)
    reads = batch(1, 10, 25)
    assert [s.span for s in known.effective(reads, known.place(reads).epoch)] == [(20, 25), (20, 25)]


def in_a_hole(batch_id: int, start: int, end: int, **changes: Any) -> Batch:
    """A micro-batch of a query whose fresh checkpoint began at offset 10."""
    return replace(batch(batch_id, start, end, **changes), query_id="q-2")


def test_a_checkpoint_that_starts_in_a_hole_stops_where_the_hole_ends(tmp_path: Path) -> None:
    known = epochs(tmp_path, entry(0), entry(3))
    first = known.place(in_a_hole(0, 10, 15))
    assert (first.epoch, first.replays) == (1, None)
    known.add(entry(0, epoch=1, query_id="q-2", offsets=in_a_hole(0, 10, 15).ranges))
    assert known.place(in_a_hole(1, 15, 30)).epoch == 1
    with raises(NewEpochError):
        known.place(in_a_hole(1, 15, 31))


def test_it_stops_after_a_restart_too(tmp_path: Path) -> None:
    written = entry(0, epoch=1, query_id="q-2", offsets=in_a_hole(0, 10, 15).ranges)
    known = epochs(tmp_path, entry(0), entry(3), written)
    assert known.place(in_a_hole(1, 15, 30)).epoch == 1
    with pytest.raises(NewEpochError, match="goes on with epoch 1 and its ranges overlap"):
        known.place(in_a_hole(1, 15, 31))


@pytest.mark.parametrize("topic_id", ["id-2", ""], ids=["made anew", "no id now"])
def test_a_broker_that_gives_no_id_now_does_not_stop_a_topic_that_was_made_anew(tmp_path: Path, topic_id: str) -> None:
    written = entry(0, epoch=1, query_id="q-2", offsets=in_a_hole(0, 0, 5, topic_id="id-2").ranges)
    reads = in_a_hole(1, 5, 10)
    ranges = tuple(span._replace(topic_id=topic_id or None) for span in reads.ranges)
    assert epochs(tmp_path, entry(0), written).place(replace(reads, ranges=ranges)).epoch == 1


def test_a_copy_of_the_checkpoint_wrote_the_offsets(tmp_path: Path) -> None:
    """One driver's micro-batch 0 was swallowed; the other, on a copy, planned it longer and wrote it."""
    known = epochs(tmp_path, entry(0, offsets=batch(0, 0, 30).ranges))
    with pytest.raises(NewEpochError, match="goes on with epoch 0 and its ranges overlap"):
        known.place(batch(1, 10, 20))
    assert known.place(batch(1, 30, 40)).epoch == 0


def test_two_sources_of_one_topic_are_not_each_others(tmp_path: Path) -> None:
    first = OffsetSpan("orders", "id-1", 0, 0, 10, 0), OffsetSpan("orders", "id-1", 0, 0, 5, 1)
    second = OffsetSpan("orders", "id-1", 0, 10, 20, 0), OffsetSpan("orders", "id-1", 0, 5, 20, 1)
    placed = epochs(tmp_path, entry(0, offsets=first)).place(replace(batch(1, 0, 1), ranges=second))
    assert placed.epoch == 0


def test_the_ledger_is_read_once_and_not_per_micro_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    coverage = Ledger.coverage
    monkeypatch.setattr(Ledger, "coverage", lambda *args, **named: reads.append(named) or coverage(*args, **named))
    known = epochs(tmp_path, entry(0), entry(0, epoch=1, query_id="q-2", offsets=in_a_hole(0, 10, 15).ranges))
    for n in range(1, 4):
        reading = in_a_hole(n, 5 + 10 * n, 15 + 10 * n)
        assert known.place(reading).epoch == 1
        known.add(entry(n, epoch=1, query_id="q-2", offsets=reading.ranges))
    assert reads == [{"apart_from": 1}]
