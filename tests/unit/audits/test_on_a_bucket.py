"""An audit whose checkpoints, tables and ledger are in a bucket of an object store finds what it finds on a disk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from recon.audits.options import Options
from recon.audits.run import audit
from recon.local.demo import trial
from recon.local.demo.recorded import RecordedSources
from recon.model import RowsWitness, RunResult, Unavailable
from recon.project import load
from tests.support.s3 import bucket, upload


def _found(run: RunResult) -> dict[str, Any]:
    answers = {pipeline.name: pipeline.says for pipeline in run.pipelines}
    return {
        "answers": answers,
        "checks": {result.name: result.status for result in run.results},
        "findings": sorted(
            (str(f.code), f.topic or "", f.partition or 0, f.start_offset or 0, f.end_offset or 0)
            for result in run.results
            for f in result.findings
        ),
    }


def test_a_bucket_holds_what_a_disk_holds(tmp_path: Path) -> None:
    on_disk, beside = tmp_path / "disk", tmp_path / "beside"
    recorded_at = trial.unpack(on_disk)
    expected = _found(trial.audited(on_disk, recorded_at))
    trial.unpack(beside)

    class Sources(RecordedSources):
        """Rows are read from the files on the disk: with Spark they would be read by its own connector."""

        def rows(self, sink: Any, *args: Any, **given: Any) -> RowsWitness | Unavailable:
            local = sink.model_copy(update={"target": str(on_disk / "lake" / sink.name)})
            return super().rows(local, *args, **given)

    with bucket("lake") as options:
        for folder in ("checkpoints", "lake"):
            upload(beside / folder, f"s3://lake/{folder}", options)
        text = (beside / "recon.yml").read_text()
        text = re.sub(r"(checkpoint|target): (checkpoints|lake)/", r"\1: s3a://lake/\2/", text)
        text = text.replace("ledger: lake/_recon", f"ledger: s3://lake/lake/_recon\nstorage_options: {options}")
        (beside / "recon.yml").write_text(text)
        project = load(beside)
        first = audit(project, Options(no_spark=True, sources=Sources, now=recorded_at))
        assert _found(first) == expected
        again = audit(load(beside), Options(no_spark=True, sources=Sources, now=recorded_at))
        assert _found(again)["answers"] == expected["answers"], "it goes on from the proof in the bucket"
