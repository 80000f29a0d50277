"""A lake whose query writes with Spark's own Delta sink, as streams run that never heard of recon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from typing_extensions import override

from recon.project import CheckSpec, DeltaSink, LedgerConfig, Pipeline, Project, Source
from recon.project.model import Rows
from tests.cases.lake import Lake

SOURCE_COLUMNS = {"partition": "kafka_partition", "offset": "kafka_offset"}
CHECKS = ("ledger_integrity", "offset_continuity", "checkpoint_commits", "delta_history", "source_rows")


@dataclass
class NativeLake(Lake):
    """The query keeps Kafka's partition and offset in columns of its own; whether recon.yml names them a test says."""

    checks: tuple[str, ...] = CHECKS
    declared: Mapping[str, bool] = field(default_factory=lambda: {"filters": False})

    @property
    @override
    def project(self) -> Project:
        tests = tuple(CheckSpec(test=name) for name in self.checks)
        pipeline = Pipeline(
            name="p",
            checkpoint=self.checkpoint_name,
            write="native",
            rows=Rows(**self.declared),
            source=Source.model_validate({"topics": (self.topic,), "isolation_level": self.isolation_level}),
            sinks=(DeltaSink.model_validate({"name": "s", "target": "table", "data_tests": tests, **self.sink}),),
        )
        return Project(
            name="lake",
            ledger=LedgerConfig(location="recon"),
            kafka={"bootstrap.servers": self.kafka.bootstrap_servers},
            project_dir=self.path,
            pipelines=(pipeline,),
        )

    def named(self) -> NativeLake:
        """The same lake, whose recon.yml names the columns with the source of each row."""
        return replace(self, sink={**self.sink, "source_columns": SOURCE_COLUMNS})

    def stream(
        self,
        transform: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        *,
        starting: str = "earliest",
        per_trigger: int | None = None,
        **options: str,
    ) -> None:
        """Drains the topic into the table with availableNow; recon takes no part."""
        reader = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.kafka.bootstrap_servers)
            .option("kafka.isolation.level", self.isolation_level)
            .option("startingOffsets", starting)
            .option("subscribe", self.topic)
            .options(**options)
        )
        if per_trigger:
            reader = reader.option("maxOffsetsPerTrigger", per_trigger)
        frame = reader.load().selectExpr(
            "CAST(value AS STRING) AS value", "partition AS kafka_partition", "offset AS kafka_offset"
        )
        query = (
            transform(frame)
            .writeStream.format("delta")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start(str(self.table))
        )
        query.awaitTermination(180)
        assert not query.isActive, "the stream did not drain in time"

    @override
    def values(self) -> list[tuple[int, int]]:
        return sorted((r["kafka_partition"], r["kafka_offset"]) for r in self.rows())
