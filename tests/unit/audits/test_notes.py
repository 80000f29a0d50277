"""Notes of a run: what several pipelines lack is said once."""

from __future__ import annotations

from pathlib import Path

from recon import run_audit
from recon.project import DeltaSink, Pipeline, Project
from tests.support.ledger_entries import project


def test_what_several_pipelines_lack_is_one_note(tmp_path: Path) -> None:
    one = project(tmp_path)
    pipelines = tuple(
        Pipeline.model_validate(
            {
                "name": name,
                "checkpoint": f"cp/{name}",
                "data_tests": ["offset_continuity"],
                "sinks": (DeltaSink(name=name, target=name),),
            }
        )
        for name in ("orders", "payments")
    )
    both = Project(name="lake", ledger=one.ledger, pipelines=pipelines, project_dir=tmp_path)
    notes = [note for note in run_audit(both, no_spark=True).notes if "could not be read" in note]
    (ledgers,) = (note for note in notes if "ledgers" in note)
    assert ledgers.startswith("2 pipelines (orders, payments): ledgers could not be read: there is no ledger at")
    of_checkpoints = [note.partition(":")[0] for note in notes if "checkpoint could" in note]
    assert of_checkpoints == ["pipeline orders", "pipeline payments"], "each has its own reason"
