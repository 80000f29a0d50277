"""A query that writes with Spark's own Delta sink and knows nothing of recon, for the benches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


@dataclass
class NativeStream:
    """Reads a topic into `lake/orders` with the checkpoint `checkpoints/orders`; rows keep partition and offset."""

    spark: SparkSession
    bootstrap_servers: str
    topic: str
    folder: Path

    @property
    def table(self) -> Path:
        return self.folder / "lake/orders"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoints/orders"

    def drain(self, *, per_trigger: int, starting: str = "earliest", **options: str) -> None:
        """Micro-batches of so many offsets, until the topic's end."""
        reader = self._rows(starting, maxOffsetsPerTrigger=str(per_trigger), **options)
        self._writer(reader).trigger(availableNow=True).start(str(self.table)).awaitTermination()

    def start(self, every: str) -> StreamingQuery:
        """The query as it runs day and night, with a micro-batch `every` so long."""
        return self._writer(self._rows("earliest")).trigger(processingTime=every).start(str(self.table))

    def _rows(self, starting: str, **options: str) -> DataFrame:
        return (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", starting)
            .options(**options)
            .load()
            .selectExpr(
                "CAST(key AS STRING) AS order_id", "partition AS kafka_partition", "offset AS kafka_offset", "value"
            )
        )

    def _writer(self, rows: DataFrame) -> DataStreamWriter:
        return rows.writeStream.format("delta").option("checkpointLocation", str(self.checkpoint))
