"""A sink without versions remembers a day of micro-batches, the hook looks back at the newest entries only."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recon.hook import repair
from recon.ledger import open_ledger
from recon.model import ReconStamp, offsets_text
from recon.model.offsets import OffsetSpan
from recon.model.wire import manifests
from recon.project import FileSink, Pipeline, Project
from recon.recovery import starting_offsets as offsets
from recon.recovery.starting_offsets import starting_offsets
from recon.sinks import open_sink
from recon.storage import Storage
from tests.support.ledger_entries import AT, entry


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(repair, "RECENT", 2)
    monkeypatch.setattr(offsets, "RECENT", 2)
    sink = FileSink(name="orders", kind="parquet", target="files")
    return Project(
        name="lake",
        ledger="_recon",  # type: ignore[arg-type]
        pipelines=(Pipeline(name="orders", checkpoint="cp", sinks=(sink,)),),
        project_dir=tmp_path,
    )


def put(folder: Path, batch_id: int) -> None:
    spans = [OffsetSpan("orders", "id-1", 0, batch_id * 10, batch_id * 10 + 10)]
    fields: dict[str, Any] = {"pipeline": "orders", "sink": "orders", "epoch": 0, "batch_id": batch_id}
    made = manifests.Manifest(
        stamp=ReconStamp(**fields, query_id="q-1", run_id=None, prev_hash="", offsets_text=offsets_text(spans)),
        attempt="a1",
        at=AT + timedelta(seconds=10 * batch_id),
        rows=10,
        layout="x",
        files=(manifests.DataFile("part-0.parquet", 9, 10),),
    )
    Storage(str(folder / "files")).write(manifests.manifest_path(0, batch_id), manifests.dump_manifest(made).encode())


def repair_ledger(project: Project) -> None:
    """What the hook does with its first micro-batch."""
    pipeline = project.pipelines[0]
    spark: Any = None
    repair.open_repaired(
        project, pipeline, pipeline.sinks[0], open_sink(project, pipeline.name, pipeline.sinks[0]), spark
    )


def test_only_what_has_no_entry_is_restored(project: Project) -> None:
    ledger = open_ledger(project)
    for batch_id in range(5):
        put(project.project_dir, batch_id)
        spans = (OffsetSpan("orders", "id-1", 0, batch_id * 10, batch_id * 10 + 10),)
        ledger.append(entry(batch_id, at=AT + timedelta(seconds=10 * batch_id), sink_version=None, offsets=spans))
    repair_ledger(project)
    assert len(open_ledger(project).entries()) == 5
    assert json.loads(starting_offsets(project, "orders")) == {"orders": {"0": 50}}
    put(project.project_dir, 5)  # written, and its entry never was
    assert json.loads(starting_offsets(project, "orders")) == {"orders": {"0": 60}}
    repair_ledger(project)
    found = open_ledger(project).entries()
    assert [(e.batch_id, e.status) for e in found] == [*((n, "committed") for n in range(5)), (5, "rebuilt")]
