"""Two layers of a lake: a Delta table, bronze, that a stream reads, and the table that it writes, silver."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from recon.model import LedgerEntry, RunResult
from recon.project import CheckSpec, DeltaSink, LedgerConfig, Pipeline, Project, Source
from recon.project.model import Rows
from recon.write.hook import ForeachBatch, foreach_batch
from recon.write.ledger import open_ledger
from tests.support import fault_cases

CHECKS = ("ledger_integrity", "offset_continuity", "checkpoint_commits", "delta_history", "source_rows")


@dataclass
class Layers:
    """One pipeline `p` from bronze to sink `s`, silver; a test breaks any part of it."""

    path: Path
    spark: SparkSession
    write: Literal["recon", "native"] = "recon"
    options: Mapping[str, str] = field(default_factory=dict)  # of Spark's Delta source, in recon.yml as well
    unsaid: Mapping[str, str] = field(default_factory=dict)  # those that recon.yml does not name
    rows: Mapping[str, bool] = field(default_factory=dict)
    sink: Mapping[str, Any] = field(default_factory=dict)

    @property
    def bronze(self) -> Path:
        return self.path / "bronze"

    @property
    def silver(self) -> Path:
        return self.path / "silver"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def source(self) -> Source:
        return Source(delta="bronze", options=dict(self.options))

    def read(self) -> DataFrame:
        """The stream of what the query reads."""
        reader = self.spark.readStream.format("delta").options(**self.options, **self.unsaid)
        return reader.load(str(self.bronze))

    @property
    def project(self) -> Project:
        of_source = "source_table" if self.source.delta is not None else "source_files"
        tests = tuple(CheckSpec(test=name) for name in (*CHECKS, of_source))
        pipeline = Pipeline(
            name="p",
            checkpoint="checkpoint",
            write=self.write,
            source=self.source,
            rows=Rows(**self.rows),
            sinks=(DeltaSink.model_validate({"name": "s", "target": "silver", "data_tests": tests, **self.sink}),),
        )
        return Project(
            name="layers", ledger=LedgerConfig(location="recon"), project_dir=self.path, pipelines=(pipeline,)
        )

    def with_(self, **changes: Any) -> Layers:
        return replace(self, **changes)

    def add(self, *counts: int) -> None:
        """Commits to bronze, each with so many rows."""
        for count in counts:
            first = DeltaTable(str(self.bronze)).version() + 1 if self.bronze.exists() else 0
            rows = pa.table(
                {"version": pa.array([first] * count, pa.int64()), "id": pa.array(range(count), pa.int64())}
            )
            write_deltalake(str(self.bronze), rows, mode="append")

    def hook(self, **options: Any) -> ForeachBatch:
        hook = foreach_batch(self.project, pipeline="p", sink="s", **options)
        assert isinstance(hook, ForeachBatch)
        return hook

    def run(
        self,
        hook: Callable[[DataFrame, int], None] | None = None,
        *,
        transform: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        **options: Any,
    ) -> None:
        """Reads all that there is with availableNow; raises what the stream raises."""
        frame = self.read()
        if self.write == "native":
            writer = transform(frame).writeStream.format("delta").option("path", str(self.silver))
        else:
            writer = frame.writeStream.foreachBatch(hook or self.hook(**options))
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination(180)
        assert not query.isActive, "the stream did not drain in time"

    def entries(self) -> list[LedgerEntry]:
        return open_ledger(self.project).entries("p", "s")

    def ranges(self) -> list[tuple[int, int]]:
        """What each entry read, oldest first."""
        return [(s.start_offset, s.end_offset) for entry in self.entries() for s in entry.offsets]

    def forget_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    def audit(self, **options: Any) -> RunResult:
        return fault_cases.audit(self.project, spark=self.spark, **options)
