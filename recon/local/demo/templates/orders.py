"""The job `orders`: events of the topic orders, written to a Delta table through recon's hook.

It reads what the topic holds now, micro-batch by micro-batch, and ends; started again, it goes on from there:

    python orders.py
"""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import recon
from recon.local.spark import spark_session

EVENT = "order_id long, line int, status string, amount decimal(10, 2)"


def parsed(batch: DataFrame) -> DataFrame:
    """The events' fields. The three _source columns say where each row comes from; recon needs them kept."""
    event = F.from_json(F.col("value").cast("string"), EVENT).alias("event")
    source = ("_source_topic", "_source_partition", "_source_offset")
    return batch.select(event, "timestamp", *source).select("event.*", "timestamp", *source)


def main() -> None:
    """Read the topic to its present end."""
    project = recon.load_project(Path(__file__).parent)
    spark = spark_session("orders")
    query = (
        # The broker, the topic and read_committed are recon.yml's: aborted transactions must not arrive.
        recon.read_kafka(spark, project, "orders", startingOffsets="earliest", maxOffsetsPerTrigger=18_000)
        # The one line that recon needs: write each micro-batch, confirm it, enter it in the ledger.
        .writeStream.foreachBatch(recon.foreach_batch(project, pipeline="orders", transform=parsed))
        .option("checkpointLocation", project.resolve("checkpoints/orders"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
