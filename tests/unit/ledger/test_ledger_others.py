"""What a driver that is still running learns of entries that another one appended meanwhile."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from recon.base.errors import NewEpochError
from recon.model.offsets import OffsetSpan
from recon.write.hook.epochs import Batch, Epochs
from recon.write.ledger import open_ledger
from tests.support.ledger_entries import AT, entry, project
from tests.support.messages import raises


def test_entries_of_others_are_told_once(tmp_path: Path) -> None:
    ours, theirs = open_ledger(project(tmp_path)), open_ledger(project(tmp_path))
    assert ours.others("orders", "orders") == [], "nothing was looked at yet"
    ours.append(entry(0))
    assert ours.others("orders", "orders") == [], "our own entry is no other's"
    theirs.append(entry(1, at=AT + timedelta(seconds=1), query_id="q-2", epoch=1))
    theirs.append(entry(2, at=AT + timedelta(seconds=2), query_id="q-2", epoch=1))
    assert [(e.query_id, e.batch_id) for e in ours.others("orders", "orders")] == [("q-2", 1), ("q-2", 2)]
    ours.head_hash("orders", "orders")
    assert ours.others("orders", "orders") == []
    ours.append(entry(3, at=AT + timedelta(seconds=3)))
    assert ours.verify() == [] and len(ours.entries()) == 4


def test_a_driver_that_was_replaced_does_not_write_on(tmp_path: Path) -> None:
    ours, theirs = open_ledger(project(tmp_path)), open_ledger(project(tmp_path))
    sink = project(tmp_path).pipelines[0].sinks[0]
    first = ours.append(entry(0))
    epochs = Epochs(ours, "orders", sink, "cp", [first])
    # The heir has a fresh checkpoint that begins where the ledger ends.
    theirs.append(entry(0, at=AT + timedelta(seconds=1), query_id="q-2", epoch=1, offsets=entry(1).offsets))
    for other in ours.others("orders", "orders"):
        epochs.add(other)
    ranges = tuple(OffsetSpan("orders", "id-1", p, 10, 20) for p in range(2))
    with raises(NewEpochError):
        epochs.place(Batch(query_id="q-1", run_id=None, batch_id=1, ranges=ranges))
