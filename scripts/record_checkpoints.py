"""Records checkpoints of real queries, with what Spark itself reported of each micro-batch, for tests/unit/evidence.

    build/matrix/4.2.0+4.4.0/bin/python -m scripts.record_checkpoints

Writes tests/unit/evidence/checkpoints/<pyspark's version>.json, by scene: the checkpoint's `files` without state and
checksums, and its `progress`: for each micro-batch the start and end offsets of each source, as Spark reported them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from recon.local.spark import spark_session
from tests.support.kafka import LocalKafka

RECORDED = Path(__file__).parents[1] / "tests" / "unit" / "evidence" / "checkpoints"
TOPICS = ("orders", "returns")
_KEPT = ("metadata", "offsets/*", "commits/*", "sources/*/*")
_STREAMING = "org.apache.spark.sql.execution.streaming"
_V2 = {"spark.sql.streaming.offsetLog.formatVersion": "2"}
_NAMED = {**_V2, "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true"}
_NAMED_SINK = {**_NAMED, "spark.sql.streaming.queryEvolution.enableSinkEvolution": "true"}
_STATE_IDS = {
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
}


class Scene(NamedTuple):
    """How a query is run: Spark's settings, names for its sources, a name for its sink, an operator with state."""

    conf: Mapping[str, str] = {}
    named: bool = False
    sink: str | None = None
    stateful: bool = False


def scenes(spark: str) -> Mapping[str, Scene]:
    """The scenes of a Spark version."""
    found = {"plain": Scene()}
    if spark >= "4.0":
        found["state_ids"] = Scene(_STATE_IDS, stateful=True)  # commits of version 2
    if spark >= "4.2":
        found["offsets_v2"] = Scene(_V2)
        found["named"] = Scene(_NAMED, named=True)
        found["named_sink"] = Scene(_NAMED_SINK, named=True, sink="lake")  # commits of version 3
    return found


def main() -> None:
    """Record every scene of the installed Spark."""
    spark = spark_session("record")
    recorded: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch, LocalKafka(Path(scratch) / "kafka") as broker:
        for name, scene in scenes(version("pyspark")).items():
            checkpoint = Path(scratch) / name
            for topic in TOPICS:
                broker.create_topic(f"{topic}_{name}", 2)
            progress: dict[str, Any] = {}
            for lap in range(3):
                for topic in TOPICS[: lap + 1]:  # the second source begins with nothing
                    if lap == 2:
                        broker.add_partitions(f"{topic}_{name}", 3)
                    broker.produce(f"{topic}_{name}", [(str(i), str(i)) for i in range(7 + lap)])
                progress |= micro_batches(spark, broker, name, checkpoint, scene)
            files = (file for pattern in _KEPT for file in sorted(checkpoint.glob(pattern)))
            kept = {str(f.relative_to(checkpoint)): f.read_text() for f in files if not f.name.startswith(".")}
            recorded[name] = {"files": kept, "progress": progress}
            print(f"{name}: {len(progress)} micro-batches")  # noqa: T201
    RECORDED.mkdir(parents=True, exist_ok=True)
    (RECORDED / f"{version('pyspark')}.json").write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    spark.stop()


def micro_batches(spark: Any, broker: Any, name: str, checkpoint: Path, scene: Scene) -> dict[str, Any]:
    """Runs the query until it has read everything; start and end offsets of each source, by micro-batch."""
    for key, value in scene.conf.items():
        spark.conf.set(key, value)
    try:
        sources = []
        for topic in TOPICS:
            reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)
            reader = reader.option("subscribe", f"{topic}_{name}").option("startingOffsets", "earliest")
            reader = reader.option("maxOffsetsPerTrigger", 6)
            sources.append((reader.name(topic) if scene.named else reader).load().select("key", "value"))
        rows = sources[0].union(sources[1])
        writer = (rows.dropDuplicates(["key"]) if scene.stateful else rows).writeStream.format("noop")
        if scene.sink:
            writer._jwrite.name(scene.sink)  # noqa: SLF001 - Python has no method for it yet
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return {str(p["batchId"]): _ranges(p) for p in query.recentProgress if _ranges(p)}
    finally:
        for key in scene.conf:
            spark.conf.unset(key)


def _ranges(progress: Any) -> list[Any]:
    document = json.loads(progress.json) if hasattr(progress, "json") else progress
    return [[_offsets(s["startOffset"]), _offsets(s["endOffset"])] for s in document["sources"] if s["endOffset"]]


def _offsets(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


if __name__ == "__main__":
    sys.exit(main())
