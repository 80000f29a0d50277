"""Damaged files of a witness: the audit always ends with an answer, and never with "complete" where something was lost.

Two worlds, each damaged in one place at a time. In the whole one, "complete" is right only as long as the reader still
reads everything that a judge goes by. In the other, records were lost in a way that this witness alone shows, so that
"complete" is never right. Each is there twice: once counts and fingerprints say all, and once there are markers of
transactions among the offsets, so that the judge reads rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

from recon.base.errors import ReconError
from recon.base.storage import Storage
from recon.model import CheckpointBatch, parse_offsets
from recon.witness import checkpoint, delta_log, manifests
from tests.fuzz.lakes import Lake
from tests.fuzz.mutations import damaged
from tests.truth.world import World

MUTATIONS, CHUNK = int(os.environ.get("RECON_MUTATIONS", "500")), 100
Transaction = Literal["committed"] | None
TRANSACTIONS: tuple[Transaction, ...] = (None, "committed")


def whole_world(transaction: Transaction = None) -> World:
    world = World()
    for _ in range(4):
        world.produce(transaction=transaction)
        world.micro_batch()
    return world


def last_one_swallowed(transaction: Transaction) -> World:
    """Only the checkpoint tells that a micro-batch was planned and finished: nothing came after it."""
    world = whole_world(transaction)
    world.produce(transaction=transaction)
    world.micro_batch(swallow=True)
    return world


def rows_deleted(transaction: Transaction) -> World:
    """Only the Delta log tells that rows were removed."""
    world = whole_world(transaction)
    world.delete(lambda row: row.batch_id == 1)
    return world


def write_undone(transaction: Transaction) -> World:
    """Only the sink's own record tells that a micro-batch is not there: its manifest is gone."""
    world = whole_world(transaction)
    del world.commits[max(world.commits)]
    return world


def of_checkpoint(lake: Lake) -> Any:
    read = checkpoint.read(Storage(str(lake.folder / "cp")))
    return read.flaws, [(b.batch_id, b.committed, _planned(b), b.starts_known) for b in read.batches]


def _planned(batch: CheckpointBatch) -> set[tuple[int, str, int, int, int]]:
    """A new partition is one that begins at 0; when a micro-batch was planned matters for those without entry alone."""
    spans = {(s.source, s.topic, s.partition, s.start_offset, s.end_offset) for s in batch.ranges}
    return spans | {(source, topic, partition, 0, end) for source, topic, partition, end in batch.new_partitions}


def of_log(lake: Lake) -> Any:
    read = delta_log.read(Storage(str(lake.folder / "orders")))
    # Counts come from the files or from the metrics; a txn serves to recognise a replay, and proves nothing.
    return [(c.version, _known(c.stamp), c.rows_taken, c.rows_removed, c.data_change) for c in read.commits.values()]


def of_manifests(lake: Lake) -> Any:
    return [
        (_known(commit.stamp), commit.rows) for commit in manifests.log(Storage(str(lake.folder / "orders"))).commits
    ]


def _known(stamp: Any) -> Any:
    """What of a stamp is compared with the ledger."""
    if stamp is None:
        return None
    spans = [
        span._replace(topic_id=None) for span in parse_offsets(stamp.offsets_text)
    ]  # a broker may not have told it
    return stamp.pipeline, stamp.sink, stamp.epoch, stamp.batch_id, stamp.query_id, spans


WITNESSES: dict[str, tuple[str, Callable[[Transaction], World], Callable[[Lake], Any]]] = {
    "checkpoint": ("cp/**/*", last_one_swallowed, of_checkpoint),
    "delta log": ("orders/_delta_log/*", rows_deleted, of_log),
    "manifests": ("orders/**/*.json", write_undone, of_manifests),
}


def _removes(lake: Lake) -> bool:
    try:
        return any(commit.rows_removed != 0 for commit in lake.history(lake.pipeline.sinks[0], None).commits.values())
    except ReconError:
        return True


def lake_of(witness: str, world: World, folder: Path) -> Lake:
    lake = Lake(world, folder, files=witness == "manifests")
    if witness == "manifests" and len(world.commits) < 4:
        assert lake.answer() == "not complete"
    return lake


@pytest.mark.parametrize("transaction", TRANSACTIONS)
@pytest.mark.parametrize("witness", WITNESSES)
def test_undamaged(witness: str, transaction: Transaction, tmp_path: Path) -> None:
    _, lossy, _ = WITNESSES[witness]
    whole = lake_of(witness, whole_world(transaction), tmp_path / "whole")
    assert whole.answer() == "complete"
    assert whole.rows_read == (transaction is not None), "the judge reads rows where counts do not say all"
    assert lake_of(witness, lossy(transaction), tmp_path / "lossy").answer() == "not complete"


@pytest.mark.parametrize("first", range(0, MUTATIONS, CHUNK))
@pytest.mark.parametrize("witness", WITNESSES)
def test_damaged(witness: str, first: int, tmp_path: Path) -> None:
    pattern, lossy, read = WITNESSES[witness]
    worlds = [make(transaction) for transaction in TRANSACTIONS for make in (whole_world, lossy)]
    lakes = [lake_of(witness, world, tmp_path / str(at)) for at, world in enumerate(worlds)]
    undamaged = [read(lake) for lake in lakes]
    for seed in range(first, first + CHUNK):
        random = Random(seed)
        which, lost = seed % len(lakes), seed % 2
        lake = lakes[which]
        file = random.choice(sorted(path for path in lake.folder.glob(pattern) if path.is_file()))
        content = file.read_bytes()
        new = damaged(content, random)
        story = f"seed {seed}: {file.relative_to(lake.folder)}\n{content!r}\n{new!r}"
        file.write_bytes(new)
        try:
            try:
                same = read(lake) == undamaged[which]
            except ReconError as error:
                assert "\n" not in str(error), story
                same = False
            if lost and witness == "delta log" and not _removes(lake):
                continue  # the log is the table: without the line that removes them, the rows are there again
            answer = lake.answer()
            assert answer != "complete" or (same and not lost), story
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(story) from error
        finally:
            file.write_bytes(content)
