"""A Delta sink knows whether its table is the one that an entry of the ledger was written into."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from recon.base.errors import TableReplacedError
from recon.model import LedgerEntry
from recon.project import DeltaSink
from recon.project.sinks import IcebergSink
from recon.write.hook.repair import require_same_table
from recon.write.sinks.delta.append import DeltaAppend
from tests.support.ledger_entries import entry, project
from tests.support.messages import raises, same_message


def append(table: Path, times: int = 1) -> None:
    for _ in range(times):
        deltalake.write_deltalake(str(table), pa.table({"n": [1]}), mode="append")


def id_of(table: Path) -> str:
    first = (table / "_delta_log" / f"{0:020d}.json").read_text()
    return next(action["metaData"]["id"] for line in first.splitlines() if "metaData" in (action := json.loads(line)))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    append(tmp_path / "table", 3)
    return tmp_path / "table"


@pytest.fixture
def newest(table: Path) -> LedgerEntry:
    """The ledger's newest entry: version 2 of the table."""
    return entry(sink_version=2, sink_table_id=id_of(table))


def sink_of(table: Path) -> DeltaAppend:
    return DeltaAppend(str(table))


def test_the_same_table(table: Path, newest: LedgerEntry) -> None:
    assert sink_of(table).replaced(newest) == ""
    append(table)
    assert sink_of(table).replaced(newest) == ""
    assert sink_of(table).replaced(replace(newest, sink_version=None)) == "", "a sink without versions"
    assert sink_of(table).replaced(replace(newest, sink_table_id=None)) == "", "an entry that does not know the id"


def test_the_table_is_gone(table: Path, newest: LedgerEntry) -> None:
    shutil.rmtree(table)
    assert same_message(sink_of(table).replaced(newest))


@pytest.mark.parametrize("commits", [1, 5])
def test_the_table_was_made_anew(table: Path, newest: LedgerEntry, commits: int) -> None:
    """With fewer versions than before, and with more."""
    shutil.rmtree(table)
    append(table, commits)
    assert same_message(
        sink_of(table).replaced(newest).replace(id_of(table), "NEW").replace(newest.sink_table_id or "", "OLD")
    )


def test_an_older_copy_was_put_back(table: Path, newest: LedgerEntry) -> None:
    (table / "_delta_log" / f"{2:020d}.json").unlink()
    assert same_message(sink_of(table).replaced(newest))


def test_a_start_stops_unless_it_is_accepted(
    table: Path, newest: LedgerEntry, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(table)
    pipeline = project(table).find_pipeline("orders")
    sink, writer = DeltaSink(name="lake", target=str(table)), sink_of(table)
    require_same_table(pipeline, sink, writer, [])
    with raises(TableReplacedError):
        require_same_table(pipeline, sink, writer, [newest])
    require_same_table(pipeline, sink.model_copy(update={"on_new_epoch": "warn"}), writer, [newest])
    assert "there is no Delta table" in caplog.text


def test_what_a_repair_does_not_write_is_read_again_through_the_hook(table: Path, newest: LedgerEntry) -> None:
    shutil.rmtree(table)
    sink = IcebergSink(
        kind="iceberg", name="lake", target="lake.db.orders", catalog={"type": "rest", "uri": "http://localhost"}
    )
    with raises(TableReplacedError):
        require_same_table(project(table).find_pipeline("orders"), sink, sink_of(table), [newest])
