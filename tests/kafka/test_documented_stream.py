"""The Python of README.md, index.md, api.md and quarantine.md, run as it stands there on a real broker and stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import recon as library
from recon.cli import main
from tests.support import pages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.kafka import LocalKafka

DOCS = pages.ROOT / "docs"
CHECKPOINT = ("--checkpoint", "checkpoints/orders", "--target", "lake/orders")
PARSED = "from_json(CAST(value AS STRING), 'id int, amount int, customer string, kind string') AS r"
STAMPS = ("_source_topic", "_source_partition", "_source_offset")


def ended(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return int(end.value.code or 0)


def absolute(folder: Path) -> dict[str, str]:
    """The JVM's working directory is not that of the test."""
    return {'"checkpointLocation", "checkpoints/orders"': f'"checkpointLocation", "{folder / "checkpoints/orders"}"'}


def finish(namespace: dict[str, Any]) -> None:
    """Waits for what the page's query reads, and stops it."""
    query = namespace.pop("query", None)
    if query is not None:
        query.processAllAvailable()
        query.stop()


@pytest.fixture
def namespace(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka.bootstrap_servers)
    return {"spark": spark, "recon": library, "parse": lambda batch: batch}


def test_the_first_stream_and_the_api(
    namespace: dict[str, Any], kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic("orders")
    # The command of README.md, with this topic's name.
    assert ended("init", "--pipeline", "orders", "--topic", name, *CHECKPOINT) == 0
    kafka.produce(name, [("k", f"v{n}", 0) for n in range(5)])
    pages.run(pages.ROOT / "README.md", namespace, absolute(tmp_path), then=lambda: finish(namespace))
    first = [str(block.parsed) for block in pages.examples(pages.ROOT / "README.md", "python")]
    assert [str(block.parsed) for block in pages.examples(DOCS / "index.md", "python")] == first

    kafka.produce(name, [("k", f"v{n}", 0) for n in range(7)])
    pages.run(DOCS / "api.md", namespace, absolute(tmp_path), then=lambda: finish(namespace))
    (pipeline,) = namespace["run"].pipelines
    assert pipeline.answer == "complete"
    assert sum(sink.rows_written for sink in pipeline.sinks) == 12


@pytest.mark.long
def test_a_release_with_a_function(
    namespace: dict[str, Any], kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    has_customer = {"column_name": "customer", "name": "has_customer", "on_failure": "quarantine"}
    name = topic("orders")
    sink = {"name": "orders", "target": "lake/orders", "quarantine": {}, "post_batch": [{"not_null": has_customer}]}
    project = {
        "version": 2,
        "name": "lake",
        "ledger": "_recon",
        "kafka": {"bootstrap.servers": kafka.bootstrap_servers},
        "pipelines": [
            {
                "name": "orders",
                "checkpoint": "checkpoints/orders",
                "source": {"topics": [name]},
                "sinks": [sink],
            }
        ],
    }
    (tmp_path / "recon.yml").write_text(json.dumps(project))
    records = [{"id": 1, "amount": 5, "customer": "ada", "kind": "sale"}, {"id": 2, "amount": 6, "kind": "sale"}]
    kafka.produce(name, [("k", json.dumps(r), 0) for r in records])
    write = library.foreach_batch(
        "recon.yml", pipeline="orders", transform=lambda b: b.selectExpr(PARSED, *STAMPS).selectExpr("r.*", *STAMPS)
    )
    events = library.read_kafka(namespace["spark"], "recon.yml", "orders", startingOffsets="earliest")
    stream = events.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoints/orders"))
    finish({"query": stream.start()})

    namespace["known_customers"] = namespace["spark"].createDataFrame([(2, "grace")], "id int, customer string")
    pages.run(DOCS / "quarantine.md", namespace)
    assert (namespace["released"].rows, namespace["released"].failing) == (1, 0)
    rows = namespace["spark"].read.format("delta").load(str(tmp_path / "lake/orders")).collect()
    assert {row["id"]: row["customer"] for row in rows} == {1: "ada", 2: "grace"}
