"""`recon offsets` where the ledger lacks entries: what the sink has of recon's own counts as read."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recon.base.errors import ConfigError, EvidenceError
from recon.base.storage import Storage
from recon.model import REMOVALS, REPAIRS, ReconStamp, dump_stamp
from recon.model import offsets_text as text_of
from recon.model.offsets import OffsetSpan
from recon.model.wire import manifests
from recon.model.wire.kafka_state import Cluster, KafkaState, dump_kafka_state
from recon.project import DeltaSink, FileSink, Pipeline, Project, Sink
from recon.recovery.starting_offsets import starting_offsets
from recon.testing.evidence import kafka
from recon.write.ledger import open_ledger
from tests.support.broker import Broker
from tests.support.ledger_entries import AT, entry
from tests.support.messages import raises, same_message

Ranges = Sequence[OffsetSpan]


def span(start: int, end: int, topic_id: str | None = "id-1", partition: int = 0) -> OffsetSpan:
    return OffsetSpan("orders", topic_id, partition, start, end)


def stamp(batch_id: int, offsets: Ranges, epoch: int = 0) -> ReconStamp:
    return ReconStamp(
        pipeline="orders",
        sink="orders",
        epoch=epoch,
        batch_id=batch_id,
        query_id="q-1",
        run_id=None,
        prev_hash="",
        offsets_text=text_of(offsets),
    )


def project_of(folder: Path, sink: Sink) -> Project:
    return Project(
        name="lake",
        ledger="_recon",  # type: ignore[arg-type]
        pipelines=(Pipeline(name="orders", checkpoint="cp", sinks=(sink,)),),
        project_dir=folder,
    )


class Files:
    """A file sink: what it has, and what the ledger has of it."""

    def __init__(self, folder: Path) -> None:
        self.project = project_of(folder, FileSink(name="orders", kind="parquet", target="files"))
        self.ledger = open_ledger(self.project)
        self.minutes = 0

    def write(self, batch_id: int, *offsets: OffsetSpan, epoch: int = 0, entered: bool = True) -> None:
        self.minutes += 1
        at = AT + timedelta(minutes=self.minutes)
        made = manifests.Manifest(
            stamp=stamp(batch_id, offsets, epoch),
            attempt="a1",
            at=at,
            rows=10,
            layout="x",
            files=(manifests.DataFile("part-0.parquet", 9, 10),),
        )
        target = Storage(str(self.project.project_dir / "files"))
        target.write(manifests.manifest_path(epoch, batch_id), manifests.dump_manifest(made).encode())
        if entered:
            self.ledger.append(entry(batch_id, at=at, epoch=epoch, sink_version=None, offsets=tuple(offsets)))

    def starting(self) -> Any:
        return json.loads(starting_offsets(self.project, "orders"))["orders"]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_commit_without_entry_counts_as_read(files: Files) -> None:
    files.write(0, span(0, 10), span(0, 7, partition=1))
    files.write(1, span(10, 20), span(7, 7, partition=1), entered=False)
    assert files.starting() == {"0": 20, "1": 7}


def test_commits_without_a_ledger_count_as_read(files: Files) -> None:
    for batch_id in range(3):
        files.write(batch_id, span(10 * batch_id, 10 * batch_id + 10), entered=False)
    assert files.starting() == {"0": 30}


def test_nothing_anywhere(files: Files) -> None:
    with pytest.raises(ConfigError) as caught:
        files.starting()
    assert same_message(str(caught.value))


def test_an_older_commit_without_entry_takes_nothing_back(files: Files) -> None:
    """Its entry was lost between others, as from a ledger that was put together from copies."""
    for batch_id in range(4):
        files.write(batch_id, span(10 * batch_id, 10 * batch_id + 10), entered=batch_id != 1)
    assert files.starting() == {"0": 40}


def test_a_new_epoch_without_entries_that_reads_old_offsets_again(files: Files) -> None:
    files.write(0, span(0, 40))
    files.write(0, span(20, 30), epoch=1, entered=False)
    assert files.starting() == {"0": 40}


@pytest.mark.parametrize("entered", [True, False])
def test_a_repair_that_read_beyond_the_last_micro_batch(files: Files, entered: bool) -> None:
    """Spark took the last micro-batch for done, nothing of it was written, and a repair read it; then the checkpoint
    was lost."""
    files.write(0, span(0, 10))
    files.write(1, span(10, 20), epoch=REPAIRS, entered=entered)
    assert files.starting() == {"0": 20}


def test_a_removal_reads_nothing(files: Files) -> None:
    files.write(0, span(0, 10))
    files.write(1, span(5, 8), epoch=REMOVALS, entered=False)
    assert files.starting() == {"0": 10}


# -- topics that were made anew -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "starting"),
    [
        ("id-2", 7),  # of which the commit without entry read 7
        ("id-3", 2),  # made anew once more: none of it was read
        (None, 7),
    ],
)
def test_a_commit_without_entry_of_a_topic_that_was_made_anew(
    files: Files, broker: Broker, now: str | None, starting: int
) -> None:
    files.project = files.project.model_copy(update={"kafka": {"bootstrap.servers": "b"}})
    files.write(0, span(0, 50))
    files.write(0, span(0, 7, "id-2"), epoch=1, entered=False)
    broker.has(kafka(2, 99, topic_id=now))
    assert files.starting() == {"0": starting}


def test_a_topic_of_another_cluster_has_no_answer(files: Files, broker: Broker) -> None:
    files.project = files.project.model_copy(update={"kafka": {"bootstrap.servers": "b"}})
    at_a = KafkaState(asked_at=AT, after=0, topics={}, cluster=Cluster("A", {"orders": "id-1"}))
    files.ledger.append(entry(0, offsets=(span(0, 50),), kafka_state=dump_kafka_state(at_a)))
    broker.has(kafka(2, 99, topic_id="id-2", cluster_id="B"))
    with raises(EvidenceError):
        files.starting()
    broker.has(kafka(2, 99, topic_id="id-2", cluster_id="A"))
    assert files.starting() == {"0": 2}, "made anew on its own cluster"


# -- Delta tables ---------------------------------------------------------------------------------------------------


class Table:
    """A Delta table by its log alone."""

    def __init__(self, folder: Path) -> None:
        self.project = project_of(folder, DeltaSink(name="orders", target="orders"))
        self.ledger = open_ledger(self.project)
        self.log = folder / "orders" / "_delta_log"
        self.create("table-1")

    def create(self, table_id: str) -> None:
        self.table_id = table_id
        self.log.mkdir(parents=True, exist_ok=True)
        for file in self.log.iterdir():
            file.unlink()
        metadata = {"metaData": {"id": table_id, "configuration": {}, "createdTime": 0}}
        self.commit({"operation": "CREATE TABLE"}, metadata)

    def commit(self, info: dict[str, Any], *actions: dict[str, Any]) -> int:
        version = len(list(self.log.iterdir()))
        at = int(AT.timestamp() * 1000) + version
        lines = [{"commitInfo": {"timestamp": at, **info}}, *actions]
        (self.log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, lines)) + "\n")
        return version

    def write(self, batch_id: int, start: int, end: int, *, entered: bool = True) -> None:
        made = stamp(batch_id, [span(start, end)])
        add = {"add": {"path": f"{self.table_id}-{batch_id}", "dataChange": True, "stats": '{"numRecords": 10}'}}
        version = self.commit({"operation": "WRITE", "userMetadata": dump_stamp(made)}, add)
        if entered:
            made_entry = entry(batch_id, sink_version=version, sink_table_id=self.table_id, offsets=(span(start, end),))
            self.ledger.append(made_entry)

    def starting(self) -> Any:
        return json.loads(starting_offsets(self.project, "orders"))["orders"]


@pytest.fixture
def table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Table:
    caplog.set_level(logging.WARNING, "recon")
    return Table(tmp_path)


def test_a_commit_without_entry_that_a_restore_undid(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """The next start restores its entry, so that it counts as read; its rows are a matter of `recon repair`."""
    table.write(0, 0, 10)
    table.write(1, 10, 20, entered=False)
    assert table.starting() == {"0": 20} and not caplog.messages
    table.commit({"operation": "RESTORE", "operationParameters": {"version": "1"}})
    assert table.starting() == {"0": 20}
    (message,) = caplog.messages
    assert same_message(message)


@pytest.mark.parametrize("entered", [0, 2])
def test_commits_without_entry_of_a_table_that_was_made_anew(
    table: Table, caplog: pytest.LogCaptureFixture, entered: int
) -> None:
    """Its versions begin at 0 again, below those of the ledger's entries."""
    for batch_id in range(6):
        table.write(batch_id, 10 * batch_id, 10 * batch_id + 10)
    table.create("table-2")
    for batch_id in range(6, 9):
        table.write(batch_id, 10 * batch_id, 10 * batch_id + 10, entered=batch_id < 6 + entered)
    assert table.starting() == {"0": 90}
    assert len(caplog.messages) == (entered == 0), caplog.messages
