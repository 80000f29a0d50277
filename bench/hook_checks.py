"""What six row checks with quarantine add to the hook, on micro-batches of which no row fails.

The stream is that of `hook_overhead`, with a transform that takes the record apart. Three hooks drain it in turn in one
session: without checks (floor), with six checks that write failing rows to quarantine (ours), and, printed beside the
figure, the same six with a range that one row in a thousand is outside of.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.hook_overhead import PARTITIONS, PER_BATCH, drain, produce

BATCHES = 11
WARM_UP = 2
CHECKS = """
          - not_null: {{column_name: id, on_failure: quarantine}}
          - not_null: {{column_name: order_id, on_failure: quarantine}}
          - matches_regex: {{column_name: order_id, regex: "^[0-9a-f-]{{36}}$", on_failure: quarantine}}
          - accepted_values: {{column_name: status, values: [new, paid, shipped], on_failure: quarantine}}
          - accepted_range: {{column_name: amount, min_value: 0, max_value: {most}, on_failure: quarantine}}
          - not_empty_string: {{column_name: note, on_failure: quarantine}}"""


def run() -> dict[str, Any]:
    """Medians of the seconds inside foreachBatch."""
    from recon.local.kafka import LocalKafka
    from recon.local.spark import spark_session

    with tempfile.TemporaryDirectory() as name, LocalKafka(Path(name) / "kafka") as broker:
        broker.create_topic("events", PARTITIONS)
        spark = spark_session("hook_checks", conf={"spark.driver.memory": "6g"})
        try:
            produce(spark, broker.bootstrap_servers, BATCHES)
            folder, bootstrap = Path(name), broker.bootstrap_servers
            hooks = {
                "floor": _hook(folder, "floor", bootstrap, ""),
                "ours": _hook(folder, "ours", bootstrap, CHECKS.format(most=1)),
                "failing": _hook(folder, "failing", bootstrap, CHECKS.format(most=0.999)),
            }
            taken = drain(spark, bootstrap, folder, hooks, BATCHES)
            for table in hooks:
                _arrived(spark, folder, table)
        finally:
            spark.stop()
    seconds = {name: statistics.median(times[WARM_UP:]) for name, times in taken.items()}
    aside = seconds["failing"] / seconds["floor"]
    print(f"hook_checks: where 1 row in 1,000 is put aside: {json.dumps(seconds)}, {aside:.3f}", file=sys.stderr)
    return {
        "name": "hook_checks",
        "ours": seconds["ours"],
        "floor": seconds["floor"],
        "ratio": seconds["ours"] / seconds["floor"],
        "unit": "s",
        "peers": {},
    }


def _hook(folder: Path, name: str, bootstrap: str, checks: str) -> Any:
    import recon

    project = folder / name
    project.mkdir()
    (project / "recon.yml").write_text(
        f"""\
name: hook_checks
ledger: ledger
kafka: {{bootstrap.servers: "{bootstrap}"}}
pipelines:
  - name: events
    checkpoint: ../{name}-checkpoint
    source: {{topics: [events]}}
    sinks:
      - name: events
        target: events
"""
        + (f"        post_batch:{checks}\n" if checks else "")
    )
    return recon.foreach_batch(project, pipeline="events", transform=_apart)


def _apart(frame: Any) -> Any:
    from pyspark.sql import functions as F

    parsed = F.from_json(
        F.col("value").cast("string"), "id long, order_id string, status string, amount double, note string"
    )
    return frame.select(parsed.alias("r"), "_source_topic", "_source_partition", "_source_offset").select(
        "r.*", "_source_topic", "_source_partition", "_source_offset"
    )


def _arrived(spark: Any, folder: Path, name: str) -> None:
    """Every row is in the sink or, where some were to fail, in quarantine."""
    rows = spark.read.format("delta").load(str(folder / name / "events")).count()
    aside = folder / name / "ledger" / "quarantine" / "events" / "events"
    put_aside = spark.read.format("delta").load(str(aside)).count() if aside.exists() else 0
    assert rows + put_aside == PER_BATCH * BATCHES and bool(put_aside) == (name == "failing"), (name, rows, put_aside)
