"""From Kafka to bronze, silver and gold: three streams, one recon.yml, one audit, and a record followed through all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recon import trace
from recon.model import RunResult
from recon.project import CheckSpec, Pipeline, Project
from recon.reports.books import balance
from recon.write.hook import foreach_batch
from tests.support import fault_cases
from tests.support.kafka import LocalKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
PROOF = ("ledger_integrity", "offset_continuity", "checkpoint_commits", "delta_history", "source_rows")


def project(folder: Path, kafka: LocalKafka, topic: str) -> Project:
    def pipeline(name: str, source: dict[str, Any], **more: Any) -> Pipeline:
        names = PROOF if "topics" in source else (*PROOF, "source_table")
        sink = {"name": name, "target": name, "data_tests": tuple(CheckSpec(test=one) for one in names)}
        return Pipeline.model_validate(
            {"name": name, "checkpoint": f"checkpoints/{name}", "source": source, "sinks": [sink], **more}
        )

    return Project(
        name="layers",
        ledger="recon",  # type: ignore[arg-type]
        kafka={"bootstrap.servers": kafka.bootstrap_servers},
        project_dir=folder,
        pipelines=(
            pipeline("bronze", {"topics": [topic]}),
            pipeline("silver", {"delta": "bronze"}),
            pipeline("gold", {"delta": "silver"}, write="native", rows={"filters": False}),
        ),
    )


def odd_keys(rows: DataFrame) -> DataFrame:
    return rows.where(F.col("_source_offset") % 2 == 1)


def test_three_streams(spark: Any, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> None:
    name = topic("t", 1)
    whole = project(tmp_path, kafka, name)

    def drain(pipeline: str, frame: DataFrame, **options: Any) -> None:
        writer = frame.writeStream
        if pipeline == "gold":
            writer = writer.format("delta").option("path", str(tmp_path / "gold"))
        else:
            writer = writer.foreachBatch(foreach_batch(whole, pipeline=pipeline, **options))
        checkpoint = str(tmp_path / "checkpoints" / pipeline)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination(120)
        assert not query.isActive

    def of_table(table: str) -> DataFrame:
        return spark.readStream.format("delta").load(str(tmp_path / table))

    for _ in range(2):
        kafka.produce(name, [(f"k{i}", f"v{i}", 0) for i in range(6)])
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        drain("bronze", reader.option("subscribe", name).option("startingOffsets", "earliest").load())
        drain("silver", of_table("bronze"), transform=odd_keys)
        drain("gold", of_table("silver"))

    run: RunResult = fault_cases.audit(whole, spark=spark)
    assert {one.name: one.answer for one in run.pipelines} == dict.fromkeys(("bronze", "silver", "gold"), "complete")
    filtered = {r.pipeline: r.evidence["filtered"] for r in run.results if r.check == "source_rows"}
    assert (filtered["bronze"], filtered["silver"]) == (0, 6)
    assert spark.read.format("delta").load(str(tmp_path / "gold")).count() == 6

    lines = [(one.hop, one.source, one.written_before, one.read, one.filtered, one.written) for one in run.books]
    assert lines == [
        (1, (name,), None, 12, 0, 12),
        (2, ("bronze.bronze",), 12, 12, 6, 6),
        (3, ("silver.silver",), 6, None, None, 6),  # Spark's own sink counts what it writes alone
    ]
    assert [balance(one)[0] for one in run.books] == ["balances", "balances", "not known"]
    found = trace(whole, f"{name}/0/9")
    assert [(path.pipeline, path.outcome) for path in found.paths] == [
        ("bronze", "found"),
        ("silver", "found"),
        ("gold", "found"),
    ]
    assert [[write.batch_id for write in path.writes] for path in found.paths] == [[1], [1], [1]]
    dropped = trace(whole, f"{name}/0/8")
    # Some rows of the micro-batch were filtered, and which ones nothing records.
    assert [(path.pipeline, path.outcome) for path in dropped.paths] == [("bronze", "found"), ("silver", "not decided")]
