"""What the stream lives through besides its own death: broker, database and disk that fail, drivers that meet."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from recon.model import Level, ReconStamp
from recon.recovery.starting_offsets import starting_offsets
from recon.write.ledger import open_ledger
from tests.cases.lake import Lake, failing, statuses
from tests.support.kafka import LocalKafka
from tests.support.processes import until

# `make soak` has the broker away for the 30 s that a restart of a real one takes.
AWAY_S = float(os.environ.get("RECON_CRASH_AWAY", "6"))


@pytest.fixture
def lake_on(broker: LocalKafka, spark: SparkSession, tmp_path: Path) -> Lake:
    name = f"outage-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, 1)
    return Lake(tmp_path, broker, spark, name)


def message_of(caught: pytest.ExceptionInfo[StreamingQueryException]) -> str:
    """recon's own sentence out of Spark's wrapping."""
    found = re.search(r"recon\.base\.errors\.(\w+: .*)", str(caught.value))
    assert found, str(caught.value)
    return found[1]


def exactly(lake: Lake, count: int) -> None:
    """Every record once in the sink and in the ledger; the chain whole; the audit without a failure."""
    assert lake.values() == [(0, offset) for offset in range(count)]
    covered = sorted(o for e in lake.entries() if e.attempt == 1 for s in e.offsets for o in range(*s.span))
    assert covered == list(range(count))
    assert [f for f in open_ledger(lake.project).verify() if f.level is Level.FAIL] == []
    run = lake.audit()
    assert failing(run) == set() and set(statuses(run).values()) <= {"pass", "warn"}, statuses(run)


# -- the broker ------------------------------------------------------------------------------------


def test_the_broker_goes_away_and_comes_back(lake_on: Lake) -> None:
    lake, broker = lake_on, lake_on.kafka
    lake.produce(100)
    query = (
        lake.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", lake.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 20)
        .load()
        .writeStream.foreachBatch(lake.hook())
        .option("checkpointLocation", str(lake.checkpoint))
        .start()
    )
    try:
        assert until(lambda: len(lake.entries()) >= 1, 120)
        broker.stop()
        began = len(lake.entries())
        time.sleep(AWAY_S)
        assert query.isActive, query.exception()
        # What was planned before is in Spark's hands; nothing more can be.
        assert began <= len(lake.entries()) <= began + 1 < 5
        broker.start()
        lake.produce(20)
        query.processAllAvailable()
    finally:
        broker.start()
        query.stop()
    exactly(lake, 120)


# -- the disk --------------------------------------------------------------------------------------


@contextmanager
def small_disk(at: Path, size: str) -> Iterator[None]:
    """A tmpfs of this size; only root may mount one."""
    at.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("a full disk is made by mounting a small tmpfs, and there is no mount command here")
    if mounted.returncode:
        pytest.skip(f"a full disk is made by mounting a small tmpfs, and this user may not: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def fill(folder: Path, *, leave: int) -> Path:
    """A file that leaves so many bytes of the disk free."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(b"\0" * 4096)
            except OSError:
                break
        file.truncate(max(0, file.tell() - leave))
    return filler


def test_the_ledgers_disk_is_full(lake_on: Lake) -> None:
    lake = lake_on
    with small_disk(lake.path / "recon", "2m"):
        lake.produce(10)
        lake.run()
        produced = 10
        # With nothing left the ledger's data file fails; with a little, the commit file after it.
        for leave in (0, 12288):
            lake.produce(10)
            filler = fill(lake.path / "recon", leave=leave)
            entries = lake.entries()
            try:
                lake.run()
            except StreamingQueryException as error:
                caught: Any = type("caught", (), {"value": error})
                assert message_of(caught).startswith("LedgerError: "), message_of(caught)
                print(f"with {leave} bytes left: {message_of(caught)}")
                # The sentence's promise: the rows are there, the entry is not.
                assert lake.values() == [(0, offset) for offset in range(produced + 10)]
                assert lake.entries() == entries
            else:
                assert leave, "an entry was written to a full disk"
            filler.unlink()
            produced += 10
            lake.run()
            exactly(lake, produced)
        assert {entry.status for entry in lake.entries()} >= {"rebuilt"}


# -- the checkpoint --------------------------------------------------------------------------------


def test_an_older_copy_of_the_checkpoint_is_put_back(lake_on: Lake) -> None:
    lake, older = lake_on, lake_on.path / "older"
    lake.produce(10)
    lake.run(per_trigger=10)
    shutil.copytree(lake.checkpoint, older)
    lake.produce(30)
    lake.run(per_trigger=10)
    assert [e.batch_id for e in lake.entries()] == list(range(4))

    def put_back() -> None:
        shutil.rmtree(lake.checkpoint)
        shutil.copytree(older, lake.checkpoint)

    # Planned again as it was: the ledger knows these micro-batches, and nothing is written.
    put_back()
    lake.run(per_trigger=10)
    assert [(e.batch_id, e.status, e.attempt) for e in lake.entries()[4:]] == [
        (1, "already_committed", 2), (2, "already_committed", 2), (3, "already_committed", 2)
    ]  # fmt: skip
    exactly(lake, 40)

    # Planned with other ranges: no micro-batch that the ledger knows, and records that it holds.
    put_back()
    lake.produce(10)
    with pytest.raises(StreamingQueryException) as caught:
        lake.run(per_trigger=20)
    assert message_of(caught).startswith("NewEpochError: ") and f"{lake.topic}-0 [10, 30)" in message_of(caught)
    assert "recon offsets --pipeline p --sink s" in message_of(caught)
    assert lake.values() == [(0, offset) for offset in range(40)]

    # The way out that the sentence names.
    lake.forget_checkpoint()
    lake.run(starting=starting_offsets(lake.project, "p", "s"))
    exactly(lake, 50)


# -- two drivers -----------------------------------------------------------------------------------


class Meeting:
    """Two streams that wait for each other at one point of their first micro-batch."""

    def __init__(self, point: str) -> None:
        self._point, self._barrier = point, threading.Barrier(2, timeout=60)
        self.met = 0

    def failpoint(self, point: str, _: ReconStamp) -> None:
        if point == self._point and self.met < 2:
            self._barrier.wait()
            self.met += 1


@pytest.mark.parametrize("per_trigger", [(10, 15), (10, 10)], ids=["other ranges", "same ranges"])
def test_two_checkpoints_feed_one_sink(lake_on: Lake, per_trigger: tuple[int, int]) -> None:
    """Two queries of one pipeline, each with a checkpoint of its own, begin at the same moment."""
    lake = lake_on
    lake.produce(30)
    meeting, ended = Meeting("before_write"), list[StreamingQueryException]()

    def drive(name: str, limit: int) -> None:
        driver = Lake(lake.path, lake.kafka, lake.spark, lake.topic, checkpoint_name=name)
        hook = driver.hook(failpoint=meeting.failpoint)
        try:
            driver.run(hook, per_trigger=limit)
        except StreamingQueryException as error:
            ended.append(error)

    drivers = [threading.Thread(target=drive, args=(f"c{n}", limit)) for n, limit in enumerate(per_trigger)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(180)
    assert meeting.met == 2
    sentences = [re.search(r"recon\.base\.errors\.(\w+: .*)", str(error)) for error in ended]
    print(
        f"{per_trigger}: {[found[1] if found else str(error) for found, error in zip(sentences, ended, strict=True)]}"
    )
    assert len(ended) == 1 and sentences[0], "one of them goes on, and the other stops with recon's sentence"
    assert lake.values() == [(0, offset) for offset in range(30)]


def test_a_driver_that_was_replaced_wakes_up(lake_on: Lake) -> None:
    """A driver stalls, another one goes on with a fresh checkpoint where the ledger ends, and the first one wakes."""
    lake = lake_on
    stalled, stalled_hook = lake, lake.hook()
    lake.produce(10)
    stalled.run(stalled_hook)
    lake.produce(10)
    heir = Lake(lake.path, lake.kafka, lake.spark, lake.topic, checkpoint_name="fresh")
    heir.run(starting=starting_offsets(lake.project, "p", "s"))
    with pytest.raises(StreamingQueryException) as caught:
        stalled.run(stalled_hook)
    assert message_of(caught).startswith("NewEpochError: ") and f"{lake.topic}-0 [10, 20)" in message_of(caught)
    assert lake.values() == [(0, offset) for offset in range(20)]
