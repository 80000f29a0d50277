"""A query that writes with Spark's own Delta sink and knows nothing of recon, for the benches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        query = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", starting)
            .option("maxOffsetsPerTrigger", per_trigger)
            .options(**options)
            .load()
            .selectExpr(
                "CAST(key AS STRING) AS order_id", "partition AS kafka_partition", "offset AS kafka_offset", "value"
            )
            .writeStream.format("delta")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start(str(self.table))
        )
        query.awaitTermination()
