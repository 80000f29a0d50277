"""Where a micro-batch stands that a repair has read already."""

from __future__ import annotations

from pathlib import Path

import pytest

from recon.errors import NewEpochError
from recon.hook.epochs import Batch, Epochs
from recon.ledger import open_ledger
from recon.model import REPAIRS, LedgerEntry
from recon.model.offsets import OffsetSpan
from tests.support.ledger_entries import entry, project
from tests.support.messages import raises


def epochs(folder: Path, *entries: LedgerEntry, **of_sink: str) -> Epochs:
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


def test_it_can_be_accepted(tmp_path: Path) -> None:
    assert epochs(tmp_path, entry(0), repaired(1), on_new_epoch="warn").place(batch(1, 10, 20)).epoch == 1
