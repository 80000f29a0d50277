"""One source record followed through a year of micro-batches: `recon trace`, from exec to exit.

The lake of `evidence_audit_year`: 3.15 million micro-batches × 200 partitions in the ledger, the sink's commits of the
last day in its log. The data files of the micro-batches that are asked for are written with their rows; the others are
empty, as no trace opens them. Kafka is there and is not asked, since each record has its row.

Ours: the whole process; every answer is "found", with the micro-batch that the lake was made with. Floor: a Python
process that reads that entry's ranges from the ledger with deltalake, told its day and its number.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from typing import Any
from urllib.parse import unquote

from bench.evidence_audit import env, lake_of
from bench.evidence_lake import BATCHES, FILES, PIPELINE, SINK, Lake, midnight

RECORDS = 20
_FLOOR = (
    "import sys, pyarrow as pa; from deltalake import DeltaTable; "
    "t = DeltaTable(sys.argv[1]); where = f\"date = DATE '{sys.argv[2]}' AND sequence = {sys.argv[3]}\"; "
    "print(pa.table(t.scan(columns=['sequence', 'offsets'], predicate=where)).num_rows)"
)


def run() -> dict[str, Any]:
    """Median seconds of one trace."""
    rng = random.Random(11)
    with lake_of(365) as lake:
        asked = [_written(lake, rng) for _ in range(RECORDS)]
        _traced(lake, *asked[0])  # warms the page cache
        ours = [_traced(lake, record, number) for record, number in asked]
        floor = [_read(lake, number) for _, number in asked]
    taken, bare = statistics.median(ours), statistics.median(floor)
    return {"name": "trace_year", "ours": taken, "floor": bare, "ratio": taken / bare, "unit": "s", "peers": {}}


def _written(lake: Lake, rng: random.Random) -> tuple[str, int]:
    """A random record of the last day, whose data files get their rows, and its entry's sequence."""
    from recon.project import load
    from recon.write.ledger import open_ledger
    from recon.write.ledger.store import Filter

    number = (lake.days - 1) * BATCHES + rng.randrange(BATCHES) + 1
    store = open_ledger(load(lake.path)).store
    table = store.read(Filter(equals=(("pipeline", PIPELINE), ("sink", SINK)), above=number - 1, upto=number))
    (offsets,) = table["offsets"].to_pylist()
    span = rng.choice(offsets)
    commit = lake.table / "_delta_log" / f"{number - 1:020d}.json"
    added = [json.loads(line)["add"]["path"] for line in commit.read_text().splitlines() if '"add"' in line[:8]]
    assert len(added) == FILES
    for at, path in enumerate(added):
        _write_rows(lake.table / unquote(path), number - 1, offsets[at::FILES])
    return f"{span['topic']}/{span['partition']}/{rng.randrange(span['start_offset'], span['end_offset'])}", number


def _write_rows(file: Any, batch_id: int, ranges: list[dict[str, Any]]) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    sizes = [span["end_offset"] - span["start_offset"] for span in ranges]
    rows = sum(sizes)
    offsets = np.concatenate([np.arange(span["start_offset"], span["end_offset"]) for span in ranges])
    columns = {
        "value": pa.repeat(pa.scalar("a value"), rows),
        "_batch_id": pa.repeat(pa.scalar(batch_id), rows),
        "_source_topic": pa.repeat(pa.scalar(ranges[0]["topic"]), rows),
        "_source_partition": pa.array(np.repeat(np.array([span["partition"] for span in ranges], np.int32), sizes)),
        "_source_offset": pa.array(offsets),
    }
    pq.write_table(pa.table(columns), file)


def _traced(lake: Lake, record: str, number: int) -> float:
    command = [sys.executable, "-m", "recon.cli", "trace", record, "--output", "json"]
    began = time.perf_counter()
    done = subprocess.run(
        [*command, "--project-dir", str(lake.path)], env=env(), capture_output=True, text=True, check=False
    )
    taken = time.perf_counter() - began
    assert done.returncode == 0, done.stderr
    ((path,),) = [traced["paths"] for traced in json.loads(done.stdout)["records"]]
    found = [(write["sequence"], write["batch_id"], write["confirmed"]) for write in path["writes"]]
    assert (path["outcome"], found) == ("found", [(number, number - 1, True)]), path
    return taken


def _read(lake: Lake, number: int) -> float:
    command = [sys.executable, "-c", _FLOOR, str(lake.ledger), f"{midnight():%Y-%m-%d}", str(number)]
    began = time.perf_counter()
    out = subprocess.run(command, env=env(), capture_output=True, text=True, check=True).stdout
    taken = time.perf_counter() - began
    assert int(out) == 1, out
    return taken
