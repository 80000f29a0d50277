"""From `pip install` to the first verdict on a stream that never heard of recon, as docs/quickstart.md goes.

Ours: `pip install` of the wheel into an empty environment, `recon init --from`, `recon audit --no-spark`; the last
answers "complete". Building the wheel and the stream itself are not in it. Floor: the five minutes that it may take. In
`peers` the share of each step.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WANTED_S = 300.0
_ROOT = Path(__file__).parents[1]


def run() -> dict[str, Any]:
    from bench.native_stream import NativeStream
    from recon.local.kafka import LocalKafka
    from recon.local.spark import spark_session

    with tempfile.TemporaryDirectory() as scratch, LocalKafka(Path(scratch) / "kafka") as broker:
        folder = Path(scratch) / "shop"
        folder.mkdir()
        broker.create_topic("orders", 2)
        broker.produce("orders", [(f"k{i}", f"v{i}", i % 2) for i in range(2000)])
        spark = spark_session("first_verdict")
        try:
            NativeStream(spark, broker.bootstrap_servers, "orders", folder).drain(per_trigger=500)
        finally:
            spark.stop()
        build = [sys.executable, "-m", "build", "--wheel", "--outdir", f"{scratch}/dist", str(_ROOT)]
        subprocess.run(build, check=True, capture_output=True)
        wheel = next(Path(scratch, "dist").glob("*.whl"))
        subprocess.run([sys.executable, "-m", "venv", f"{scratch}/venv"], check=True)
        bin_ = Path(scratch) / "venv/bin"
        install = [str(bin_ / "python"), "-m", "pip", "install", "-q", "-c", str(_ROOT / "constraints.txt"), str(wheel)]
        recon = str(bin_ / "recon")
        init = [recon, "init", "--from", "checkpoints/orders", "--kafka", broker.bootstrap_servers]
        took, said = {}, ""
        for name, command in (("install", install), ("init", init), ("audit", [recon, "audit", "--no-spark"])):
            took[name], said = _timed(command, folder)
            print(f"  {name}: {took[name]:.1f} s", file=sys.stderr)
        assert "Pipeline orders: complete." in said, said
    ours = sum(took.values())
    return {
        "name": "first_verdict",
        "ours": ours,
        "floor": WANTED_S,
        "ratio": ours / WANTED_S,
        "unit": "s",
        "peers": {name: seconds / ours for name, seconds in took.items()},
    }


def _timed(command: list[str], folder: Path) -> tuple[float, str]:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - began
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return taken, done.stdout
