"""`recon observe` beside a stream that runs: whether every micro-batch is entered before Spark forgets what it read.

A real query with Spark's own Delta sink, a micro-batch every 2 seconds for ten minutes, whose checkpoint keeps 20 of
them: 40 seconds. `recon observe --every 15s` is a process of its own; half-way it is killed (SIGKILL) and started again
20 seconds later, as a service manager does. Then an audit judges. Ours: the offsets that it proves; floor: all offsets
of the topic.

    python -m bench.observe_beside --minutes 1
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MINUTES = 10.0
KEPT = 20  # micro-batches in the checkpoint
EVERY, LOOK_EVERY, AWAY_S = "2 seconds", "15s", 20.0
PARTITIONS = 4


def run(minutes: float = MINUTES) -> dict[str, Any]:
    from bench.native_proved import Shop
    from recon.local.spark import spark_session
    from tests.support.kafka import LocalKafka

    with tempfile.TemporaryDirectory() as scratch, LocalKafka(Path(scratch) / "kafka") as broker:
        conf = {"spark.driver.memory": "2g", "spark.sql.streaming.minBatchesToRetain": str(KEPT)}
        spark = spark_session("observe_beside", conf=conf)
        shop = Shop(Path(scratch) / "shop", broker, spark)
        shop.folder.mkdir()
        broker.create_topic("orders", PARTITIONS)
        shop.write_yml(named=True)
        try:
            query = shop.stream.start(EVERY)
            observer = Observer(shop.folder)
            produced = _feed(broker, minutes, observer)
            _wait_until_read(shop, produced)
            query.stop()
            observer.stop()
            batches = query.lastProgress["batchId"] + 1
            print(table(shop.folder, batches, observer), file=sys.stderr)
            proved = _audited(shop.folder, batches)
        finally:
            spark.stop()
    return {
        "name": "observe_beside",
        "ours": float(proved),
        "floor": float(produced),
        "ratio": proved / produced,
        "unit": "offsets",
        "peers": {},
    }


class Observer:
    """`recon observe` as a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.starts, self.cpu_s = folder, 0, 0.0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "recon.cli", "observe", "--every", LOOK_EVERY, "--project-dir"]
        self.starts += 1
        self.log = self.folder.parent / f"observe-{self.starts}.log"
        with self.log.open("w") as log:
            self._process = subprocess.Popen([*command, str(self.folder)], stdout=log, stderr=subprocess.STDOUT)

    def stop(self) -> None:
        """SIGKILL: nothing is tidied up."""
        assert self._process.poll() is None, self.log.read_text()
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        self.cpu_s += (int(fields[11]) + int(fields[12])) / 100
        self._process.kill()
        self._process.wait()


def _feed(broker: Any, minutes: float, observer: Observer) -> int:
    """Some records every half second; half-way nobody observes for a while."""
    began, produced, away = time.monotonic(), 0, None
    while (passed := time.monotonic() - began) < minutes * 60:
        broker.produce("orders", [(f"k{produced + i}", f"v{i}", i % PARTITIONS) for i in range(100)])
        produced += 100
        if away is None and passed > minutes * 30:
            observer.stop()
            away = time.monotonic()
        elif away is not None and observer.starts == 1 and time.monotonic() - away > AWAY_S:
            observer.start()
        time.sleep(0.5)
    return produced


def _wait_until_read(shop: Any, produced: int) -> None:
    deadline = time.monotonic() + 120
    while shop.spark.read.format("delta").load(str(shop.stream.table)).count() < produced:
        assert time.monotonic() < deadline, "the query does not come to the topic's end"
        time.sleep(2)


def table(folder: Path, batches: int, observer: Observer) -> str:
    """What was there before the audit looked."""
    from deltalake import DeltaTable

    entered = set(DeltaTable(folder / "recon/ledger").to_pyarrow_table(columns=["batch_id"])["batch_id"].to_pylist())
    kept = sum(file.name.isdigit() for file in (folder / "checkpoints/orders/offsets").iterdir())
    cost = f"{observer.starts} starts, {observer.cpu_s:.1f} s of CPU"
    return f"  {batches} micro-batches, {kept} left in the checkpoint, {len(entered)} entered by recon observe ({cost})"


def _audited(folder: Path, batches: int) -> int:
    """The offsets that an audit proves; it must be complete, from the first micro-batch on."""
    command = [sys.executable, "-m", "recon.cli", "audit", "--no-spark", "--project-dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (pipeline,) = json.loads((folder / "target/run_results.json").read_text())["recon"]["pipelines"]
    (sink,) = pipeline["sinks"]
    assert (done.returncode, pipeline["answer"]) == (0, "complete"), done.stdout + done.stderr
    assert sink["batches_proved"] == batches, (sink["batches_proved"], batches)
    return int(sink["account"]["offsets"])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=MINUTES)
    print(json.dumps(run(parser.parse_args(arguments).minutes)))


if __name__ == "__main__":
    main()
