"""The audit of 200 pipelines that share a ledger of 200 files nobody has merged, as a whole process, without a JVM.

Ours: `recon audit --no-spark` by its own process, from exec to exit; each pipeline has `offset_continuity` and
`ledger_integrity`, which read its chain of the ledger. Every check must pass, or there is no figure. Floor: the same
audit of one of the pipelines. Each turn begins with a fresh copy of the ledger, since an audit merges its small files.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.evidence_audit import env
from bench.evidence_lake import midnight

PIPELINES = 200
RUNS = 5
_HEAD = "version: 2\nname: bench\nledger: _recon\npipelines:\n"
_PIPELINE = """\
  - name: {name}
    checkpoint: checkpoints/{name}
    source: {{topics: [orders]}}
    data_tests: [offset_continuity]
    sinks: [{{name: lake, target: tables/{name}}}]
"""


def run() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder)
        names = [f"stream_{n:03}" for n in range(PIPELINES)]
        _build(lake, names)
        ours, floor = [], []
        for turn in range(RUNS + 1):
            all_of_them, alone = _audit(lake, names), _audit(lake, names[:1])
            if turn:  # the first warms the page cache
                ours.append(all_of_them)
                floor.append(alone)
    taken, least = statistics.median(ours), statistics.median(floor)
    return {"name": "many_pipelines", "ours": taken, "floor": least, "ratio": taken / least, "unit": "s", "peers": {}}


def _build(lake: Path, names: Sequence[str]) -> None:
    """A ledger with an entry, and so a file, of each pipeline."""
    from recon.write.ledger import open_ledger
    from recon.write.ledger.store import Housekeeping
    from tests.support.ledger_entries import entry, project

    nothing_is_merged = Housekeeping(many_files=10 * len(names))
    kept = open_ledger(project(lake, location=str(lake / "before")), housekeeping=nothing_is_merged)
    for n, name in enumerate(names):
        kept.append(entry(0, at=midnight() + timedelta(seconds=n), pipeline=name, sink="lake"))
    files = len(list(lake.glob("before/ledger/date=*/*.parquet")))
    assert files == len(names), files


def _audit(lake: Path, names: Sequence[str]) -> float:
    shutil.rmtree(lake / "_recon", ignore_errors=True)
    shutil.copytree(lake / "before", lake / "_recon")
    (lake / "recon.yml").write_text(_HEAD + "".join(_PIPELINE.format(name=name) for name in names))
    command = [sys.executable, "-m", "recon.cli", "audit", "--no-spark", "--project-dir", str(lake)]
    began = time.perf_counter()
    done = subprocess.run(command, env=env(), capture_output=True, text=True)
    taken = time.perf_counter() - began
    results = json.loads((lake / "target/run_results.json").read_text())["results"]
    statuses = [r["status"] for r in results]
    assert done.returncode == 0 and statuses == ["pass"] * 2 * len(names), done.stdout + done.stderr
    return taken
