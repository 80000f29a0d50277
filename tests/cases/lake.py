"""A small real pipeline for fault cases: topic → Spark stream through the hook → Delta → audit."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from typing_extensions import override

from recon.model import Finding, LedgerEntry, Level, ReconStamp, RunResult
from recon.project import CheckSpec, DeltaSink, LedgerConfig, Pipeline, Project, Sink, Source
from recon.write.hook import ForeachBatch, foreach_batch
from recon.write.ledger import open_ledger
from recon.write.sinks.delta.append import DeltaAppend
from tests.support import fault_cases
from tests.support.kafka import LocalKafka

EVIDENCE = ("offset_continuity", "kafka_end_offsets", "checkpoint_commits", "delta_history", "source_rows")


def listed(names: Iterable[str]) -> tuple[CheckSpec, ...]:
    """Checks without arguments, as `data_tests` lists them."""
    return tuple(CheckSpec(test=name) for name in names)


@dataclass
class Lake:
    """One pipeline `p` with one sink `s`; every part of it can be broken by a test."""

    path: Path
    kafka: LocalKafka
    spark: SparkSession
    topic: str
    isolation_level: str = "read_uncommitted"
    sink: Mapping[str, Any] = field(default_factory=dict)
    stream_options: dict[str, str] = field(default_factory=dict)
    checkpoint_name: str = "checkpoint"
    checks: tuple[str, ...] = EVIDENCE

    @property
    def checkpoint(self) -> Path:
        return self.path / self.checkpoint_name

    @property
    def table(self) -> Path:
        return self.path / "table"

    @property
    def sink_of_project(self) -> Sink | dict[str, Any]:
        """The sink `s` as recon.yml would have it; other kinds of lakes have others."""
        return DeltaSink.model_validate(
            {"name": "s", "target": "table", "data_tests": listed(self.checks), **self.sink}
        )

    @property
    def project(self) -> Project:
        return Project(
            name="lake",
            ledger=LedgerConfig(location="recon"),
            kafka={"bootstrap.servers": self.kafka.bootstrap_servers},
            project_dir=self.path,
            pipelines=(
                Pipeline(
                    name="p",
                    checkpoint=self.checkpoint_name,
                    source=Source.model_validate({"topics": (self.topic,), "isolation_level": self.isolation_level}),
                    sinks=(self.sink_of_project,),  # type: ignore[arg-type]
                ),
            ),
        )

    def produce(self, count: int, partition: int = 0) -> None:
        self.kafka.produce(self.topic, [(f"k{i}", f"v{i}", partition) for i in range(count)])

    def hook(self, **options: Any) -> ForeachBatch:
        return foreach_batch(self.project, pipeline="p", sink="s", **options)

    def run(
        self,
        hook: Callable[[DataFrame, int], None] | None = None,
        *,
        starting: str = "earliest",
        per_trigger: int | None = None,
        fail_on_data_loss: bool = True,
        **options: Any,
    ) -> None:
        """Drain the topic with availableNow; raises what the stream raises.

        It subscribes to the topic unless `stream_options` assign its partitions.
        """
        subscription = {} if "assign" in self.stream_options else {"subscribe": self.topic}
        reader = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.kafka.bootstrap_servers)
            .option("kafka.isolation.level", self.isolation_level)
            .option("startingOffsets", starting)
            .option("failOnDataLoss", str(fail_on_data_loss).lower())
            .options(**subscription, **self.stream_options)
        )
        if per_trigger:
            reader = reader.option("maxOffsetsPerTrigger", per_trigger)
        query = (
            reader.load()
            .writeStream.foreachBatch(hook or self.hook(**options))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(180)
        assert not query.isActive, "the stream did not drain in time"

    def entries(self) -> list[LedgerEntry]:
        return open_ledger(self.project).entries("p", "s")

    def rows(self) -> list[Any]:
        return self.spark.read.format("delta").load(str(self.table)).collect()

    def values(self) -> list[tuple[int, int]]:
        """(partition, offset) of every row in the sink, sorted."""
        return sorted((r["_source_partition"], r["_source_offset"]) for r in self.rows())

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(table=f"delta.`{self.table}`"))

    def forget_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    def audit(self, **options: Any) -> RunResult:
        return fault_cases.audit(self.project, spark=self.spark, **options)


class Keeps(DeltaAppend):
    """Writes only those of the rows that it was given for which a condition holds."""

    def __init__(self, lake: Lake, condition: str) -> None:
        super().__init__(str(lake.table))
        self.condition = condition

    @override
    def write(self, frame: DataFrame, stamp: ReconStamp) -> None:
        super().write(frame.where(self.condition), stamp)


def statuses(run: RunResult) -> dict[str, str]:
    return {r.check: r.status for r in run.results}


def findings(run: RunResult, *codes: str) -> list[Finding]:
    """Findings with one of the codes, or all of them; the same range told by two checks counts once."""
    found: dict[tuple[Any, ...], Finding] = {}
    for result in run.results:
        for f in result.findings:
            if not codes or str(f.code) in codes:
                found.setdefault((f.code, f.topic, f.partition, f.start_offset, f.end_offset, f.epoch), f)
    return list(found.values())


def failing(run: RunResult) -> set[str]:
    """Codes that refute something."""
    return {str(f.code) for f in findings(run) if f.level is Level.FAIL}


def refuted(run: RunResult, *codes: str) -> bool:
    """Whether the answer is "not complete", for these codes and no others."""
    return [p.answer for p in run.pipelines] == ["not complete"] and failing(run) == set(codes)


def complete(run: RunResult) -> bool:
    """Whether the answer is "complete" and nothing is refuted."""
    return {p.answer for p in run.pipelines} == {"complete"} and not failing(run)


def told(run: RunResult) -> list[tuple[str, str]]:
    """What the audit found, for the message of an assertion."""
    return [(str(f.code), f.message) for f in findings(run) if f.level is not Level.INFO]


def ranges(found: Iterable[Finding]) -> set[tuple[int | None, int | None, int | None]]:
    return {(f.partition, f.start_offset, f.end_offset) for f in found}


__all__ = [
    "EVIDENCE",
    "Keeps",
    "Lake",
    "complete",
    "failing",
    "findings",
    "ranges",
    "refuted",
    "replace",
    "statuses",
    "told",
]
