"""Checkpoints of a query that reads a Delta table: its positions as offsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recon.base.errors import EvidenceError
from recon.model.delta_offsets import BEGINNING, offset_of
from recon.model.offsets import OffsetSpan
from recon.witness import checkpoint
from recon.witness.observed import ranges_of
from tests.support.messages import raises
from tests.unit.evidence.test_checkpoint_files import Checkpoint

TOPIC = "delta:id-1"


def at(version: int, index: int = -1, *, in_snapshot: bool = False, table_id: str = "id-1", **other: Any) -> Any:
    """A position as Spark writes it."""
    return {
        "sourceVersion": 1,
        "reservoirId": table_id,
        "reservoirVersion": version,
        "index": index,
        "isStartingVersion": in_snapshot,
        **other,
    }


@pytest.fixture
def made(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path)


def ranges(made: Checkpoint, beginning: int = BEGINNING) -> list[list[tuple[int, int]]]:
    witness = checkpoint.read(made.storage, positions=True)
    return [[span.span for span in ranges_of(batch, beginning)] for batch in witness.batches]


def test_a_query_begins_with_the_table_as_it_is(made: Checkpoint) -> None:
    made.planned(0, at(4, 2, in_snapshot=True))
    made.planned(1, at(5))
    made.planned(2, at(7, 3))
    made.planned(3, at(8, -20, sourceVersion=3))
    assert ranges(made) == [
        [(BEGINNING, offset_of(4, 3, in_snapshot=True))],
        [(offset_of(4, 3, in_snapshot=True), offset_of(5, 0))],
        [(offset_of(5, 0), offset_of(7, 4))],
        [(offset_of(7, 4), offset_of(8, 0))],
    ]
    batch = checkpoint.read_batch(made.storage, 1, positions=True)
    assert batch.ranges == (OffsetSpan(TOPIC, "id-1", 0, 4_500_000_003, 5_000_000_000),)
    assert checkpoint.planned_ends(made.storage, 2, positions=True) == [(0, TOPIC, 0, 7_000_000_004)]


def test_where_a_query_begins_the_checkpoint_does_not_say(made: Checkpoint) -> None:
    made.planned(0, at(9))
    (batch,) = checkpoint.read(made.storage, positions=True).batches
    assert (batch.ranges, batch.new_partitions, batch.starts_known) == ((), ((0, TOPIC, 0, offset_of(9, 0)),), True)
    assert ranges(made, offset_of(3, 0)) == [[(offset_of(3, 0), offset_of(9, 0))]]


def test_beside_kafka(made: Checkpoint) -> None:
    made.initial({"orders": {"0": 5}}, source=1)
    made.planned(0, at(1), {"orders": {"0": 9}})
    (batch,) = checkpoint.read(made.storage, positions=True).batches
    assert ranges_of(batch) == (
        OffsetSpan("orders", None, 0, 5, 9, 1),
        OffsetSpan(TOPIC, "id-1", 0, BEGINNING, offset_of(1, 0), 0),
    )


def test_two_tables(made: Checkpoint) -> None:
    made.planned(0, at(1), at(2, table_id="id-2"))
    (batch,) = checkpoint.read(made.storage, positions=True).batches
    assert [span.topic for span in ranges_of(batch)] == [TOPIC, "delta:id-2"]


def test_a_table_that_nobody_named_gives_no_ranges(made: Checkpoint) -> None:
    made.planned(0, at(1))
    (batch,) = checkpoint.read(made.storage).batches
    assert (batch.ranges, batch.new_partitions) == ((), ())


@pytest.mark.parametrize(
    "position",
    [
        at(-1),
        at(2**62),
        at(1, 500_000_000),
        at(1, "2"),  # type: ignore[arg-type]
        at(1.5),  # type: ignore[arg-type]
        at(1, in_snapshot=1),  # type: ignore[arg-type]
        at(1, sourceVersion=2),
        at(1, sourceVersion=4),
        {"reservoirId": "id-1"},
    ],
)
def test_what_is_no_position(made: Checkpoint, position: Any) -> None:
    made.planned(0, position)
    with raises(EvidenceError):
        checkpoint.read(made.storage, positions=True)
