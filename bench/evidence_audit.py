"""The evidence-only audit of a day of 8,640 micro-batches x 200 partitions, as a whole process, without a JVM.

Ours: `recon audit --no-spark` by its own process, from exec to exit: reading ledger, checkpoint, Delta log and a
real broker, judging, writing run_results.json and report.html, keeping the results. Every check must pass and the
answer must be "complete", or there is no figure.
Floor: a Python process that reads the same day's ledger rows with deltalake and does nothing else.
For the year, the floor is ours of the day: what more history in the ledger costs.
The next audit goes on from what the one before it proved; its floor is that one, which began with nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.evidence_lake import PARTITIONS, Lake, emptied_topic, midnight
from recon.local.kafka import LocalKafka

RUNS = 7
_WORK = Path(__file__).with_name(".work")
_FLOOR = (
    "import sys, pyarrow as pa; from deltalake import DeltaTable; "
    "t = DeltaTable(sys.argv[1]); "
    'print(pa.table(t.scan(predicate="date = DATE \'" + sys.argv[2] + "\'")).num_rows)'
)


def day() -> dict[str, Any]:
    with lake_of(1) as lake:
        ours, floor = _medians(lambda: _audit_of_day(lake), lambda: _read(lake))
    return _result("evidence_audit_day", ours, floor)


def year() -> dict[str, Any]:
    with lake_of(365) as lake, lake_of(1) as of_day:
        ours, floor = _medians(lambda: _audit_of_day(lake), lambda: _audit_of_day(of_day))
    return _result("evidence_audit_year", ours, floor)


def next_audit() -> dict[str, Any]:
    with lake_of(1) as lake:

        def first() -> float:
            forget_audits(lake)
            return _audit(lake, ())

        # The floor comes first in each turn: what it proves the next one goes on from.
        floor, ours = _medians(first, lambda: _audit(lake, ()))
    return _result("evidence_audit_next", ours, floor)


def _result(name: str, ours: float, floor: float) -> dict[str, Any]:
    return {"name": name, "ours": ours, "floor": floor, "ratio": ours / floor, "unit": "s", "peers": {}}


class lake_of:
    """A lake of so many days with its broker; the lake is kept for the day it was made for."""

    def __init__(self, days: int) -> None:
        self.path = _WORK / f"{days}-{midnight():%Y%m%d}"
        self.days = days

    def __enter__(self) -> Lake:
        self.broker = LocalKafka(self.path / "kafka").start()
        try:
            return self._ready()
        except BaseException:
            self.broker.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.broker.stop()

    def _ready(self) -> Lake:
        folder = self.path / "lake"
        known = self.path / "topic_id"
        if known.exists():
            lake = Lake(folder, self.days, "events", known.read_text())
        else:
            lake = Lake(folder, self.days, "events", self.broker.create_topic("events", PARTITIONS))
            began = time.perf_counter()
            ends = lake.build(midnight())
            self.broker.stop()
            emptied_topic(self.broker, "events", ends.tolist())
            self.broker.start()
            known.write_text(lake.topic_id)
            print(f"  a lake of {self.days} days was made in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        lake.write_yml(self.broker.bootstrap_servers)
        return lake


def _medians(first: Callable[[], float], second: Callable[[], float]) -> tuple[float, float]:
    """The medians of two measurements in turns: a machine that grows slower slows both."""
    firsts, seconds = [], []
    for turn in range(RUNS + 1):
        taken = first(), second()
        if turn:  # the first warms the page cache
            firsts.append(taken[0])
            seconds.append(taken[1])
    return statistics.median(firsts), statistics.median(seconds)


def _audit_of_day(lake: Lake) -> float:
    """A first audit of the lake's last day."""
    forget_audits(lake)
    date = f"{midnight():%Y-%m-%d}"
    return _audit(lake, ("--from", date, "--to", date))


def forget_audits(lake: Lake) -> None:
    """Leaves the results of earlier days' audits, and nothing that they proved."""
    results, kept = lake.path / "_recon/results", lake.path / "results-before"
    if not kept.exists():
        if results.exists():
            shutil.copytree(results, kept)
        else:
            kept.mkdir()
    shutil.rmtree(results, ignore_errors=True)
    shutil.rmtree(lake.path / "_recon/proof", ignore_errors=True)
    if any(kept.iterdir()):
        shutil.copytree(kept, results)


def _audit(lake: Lake, period: Sequence[str]) -> float:
    command = [sys.executable, "-m", "recon.cli", "audit", "--no-spark", "--project-dir", str(lake.path), *period]
    began = time.perf_counter()
    done = subprocess.Popen(command, env=env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = done.communicate()
    taken = time.perf_counter() - began
    run = json.loads((lake.path / "target/run_results.json").read_text())
    statuses = {r["unique_id"]: r["status"] for r in run["results"]}
    assert done.returncode == 0 and set(statuses.values()) == {"pass"}, (statuses, out, err)
    answers = [
        (p["answer"], [s["batches"] - s["batches_proved"] for s in p["sinks"]]) for p in run["recon"]["pipelines"]
    ]
    assert answers == [("complete", [0])], answers  # the day has 8,640
    return taken


def _read(lake: Lake) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-c", _FLOOR, str(lake.ledger), f"{midnight():%Y-%m-%d}"]
    out = subprocess.run(command, env=env(), capture_output=True, text=True, check=True).stdout
    taken = time.perf_counter() - began
    assert int(out) == 8640, out
    return taken


def env() -> dict[str, str]:
    # Without Java on the way a JVM cannot be started by accident.
    env = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "PYTHONDONTWRITEBYTECODE")}
    return {**env, "PATH": str(Path(sys.executable).parent)}
