"""A lake whose query writes without recon, by Spark's own Delta sink or a function of its own for foreachBatch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter
from typing_extensions import override

from recon.project import CheckSpec, DeltaSink, LedgerConfig, Pipeline, Project, Source
from recon.project.model import Rows
from tests.cases.lake import Lake

APP = "orders-writer"  # what the function names itself by in Delta's transactions
COLUMNS = ("CAST(value AS STRING) AS value", "partition AS kafka_partition", "offset AS kafka_offset")
SOURCE_COLUMNS = {"partition": "kafka_partition", "offset": "kafka_offset"}
CHECKS = ("ledger_integrity", "offset_continuity", "checkpoint_commits", "delta_history", "source_rows")


@dataclass
class NativeLake(Lake):
    """The query keeps Kafka's partition and offset in columns of its own; whether recon.yml names them a test says."""

    checks: tuple[str, ...] = CHECKS
    declared: Mapping[str, bool] = field(default_factory=lambda: {"filters": False})
    write: Literal["native", "foreach_batch", "recon"] = "native"
    more_topics: tuple[str, ...] = ()
    numbered: bool = True  # whether the function gives Delta the numbers of its micro-batches

    @property
    @override
    def project(self) -> Project:
        tests = tuple(CheckSpec(test=name) for name in self.checks)
        app = {"txn_app_id": APP} if self.write == "foreach_batch" and self.numbered else {}
        pipeline = Pipeline(
            name="p",
            checkpoint=self.checkpoint_name,
            write=self.write,
            rows=Rows(**self.declared),
            source=Source.model_validate(
                {"topics": (self.topic, *self.more_topics), "isolation_level": self.isolation_level}
            ),
            sinks=(
                DeltaSink.model_validate({"name": "s", "target": "table", "data_tests": tests, **app, **self.sink}),
            ),
        )
        return Project(
            name="lake",
            ledger=LedgerConfig(location="recon"),
            kafka={"bootstrap.servers": self.kafka.bootstrap_servers},
            project_dir=self.path,
            pipelines=(pipeline,),
        )

    def taken_over(self, **sink: str) -> Project:
        """The project once recon writes the table."""
        return replace(self, write="recon", sink=sink).project

    def named(self) -> NativeLake:
        """The same lake, whose recon.yml names the columns with the source of each row."""
        return replace(self, sink={**self.sink, "source_columns": SOURCE_COLUMNS})

    def stream(
        self,
        transform: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        *,
        starting: str = "earliest",
        per_trigger: int | None = None,
        format: str = "delta",
        **options: str,
    ) -> None:
        """Drains the topic into the table with availableNow; recon takes no part."""
        query = self._frame(starting, per_trigger, options)
        self._drain(transform(query).writeStream.format(format).option("path", str(self.table)))

    def run(
        self,
        function: Callable[[DataFrame, int], None],
        *,
        starting: str = "earliest",
        per_trigger: int | None = None,
        fails: bool = False,
        columns: Sequence[str] = COLUMNS,
        **options: str,
    ) -> None:
        """Drains the topic through a function for foreachBatch."""
        frame = self._frame(starting, per_trigger, options, columns)
        writer = frame.writeStream.foreachBatch(function)
        if fails:
            with pytest.raises(StreamingQueryException):
                self._drain(writer)
        else:
            self._drain(writer)

    def append(self, frame: DataFrame, batch_id: int) -> None:
        """Such a function, as Delta's documentation has it, so that a retry writes nothing; or without a number."""
        options = {"txnAppId": APP, "txnVersion": str(batch_id)} if self.numbered else {}
        frame.write.format("delta").mode("append").options(**options).save(str(self.table))

    def _frame(
        self, starting: str, per_trigger: int | None, options: Mapping[str, str], columns: Sequence[str] = COLUMNS
    ) -> DataFrame:
        reader = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.kafka.bootstrap_servers)
            .option("kafka.isolation.level", self.isolation_level)
            .option("startingOffsets", starting)
            .options(**{"subscribe": self.topic, **options})
        )
        if per_trigger:
            reader = reader.option("maxOffsetsPerTrigger", per_trigger)
        return reader.load().selectExpr(*columns)

    def _drain(self, writer: DataStreamWriter) -> None:
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination(180)
        assert not query.isActive, "the stream did not drain in time"

    @override
    def values(self) -> list[tuple[int, int]]:
        return sorted((r["kafka_partition"], r["kafka_offset"]) for r in self.rows())
