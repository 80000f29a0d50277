"""A sink without versions remembers a day of micro-batches, the hook looks back at the newest entries only."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recon.base.storage import Storage
from recon.model import ReconStamp, offsets_text
from recon.model.offsets import OffsetSpan
from recon.model.wire import manifests
from recon.project import FileSink, Pipeline, Project
from recon.recovery.starting_offsets import starting_offsets
from recon.write.hook import repair
from recon.write.hook.epochs import RECENT
from recon.write.ledger import open_ledger
from recon.write.sinks import open_sink
from tests.support.ledger_entries import AT, entry


@pytest.fixture
def project(tmp_path: Path) -> Project:
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
    """Among more entries than the hook, or `recon offsets`, looks at."""
    count, entries = RECENT + 3, []
    for batch_id in (0, 1, count - 2, count - 1):
        put(project.project_dir, batch_id)
    for batch_id in range(count):
        spans = (OffsetSpan("orders", "id-1", 0, batch_id * 10, batch_id * 10 + 10),)
        entries.append(entry(batch_id, at=AT + timedelta(seconds=10 * batch_id), sink_version=None, offsets=spans))
    open_ledger(project).extend(entries, after=0)
    repair_ledger(project)
    assert len(open_ledger(project).entries()) == count
    assert json.loads(starting_offsets(project, "orders")) == {"orders": {"0": 10 * count}}
    put(project.project_dir, count)  # written, and its entry never was
    assert json.loads(starting_offsets(project, "orders")) == {"orders": {"0": 10 * count + 10}}
    repair_ledger(project)
    found = open_ledger(project).entries()
    assert [(e.batch_id, e.status) for e in found[-2:]] == [(count - 1, "committed"), (count, "rebuilt")]
    assert [e.batch_id for e in found] == list(range(count + 1))
