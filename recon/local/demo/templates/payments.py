"""The job `payments`: like orders.py, for a topic without transactions, and with a dangerous setting.

With `failOnDataLoss=false` Spark continues without an error when Kafka no longer holds records that it should read:

    python payments.py
"""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import recon
from recon.local.spark import spark_session

EVENT = "payment_id long, customer string, amount decimal(10, 2)"


def parsed(batch: DataFrame) -> DataFrame:
    """The events' fields. The three _source columns say where each row comes from; recon needs them kept."""
    event = F.from_json(F.col("value").cast("string"), EVENT).alias("event")
    source = ("_source_topic", "_source_partition", "_source_offset")
    return batch.select(event, "timestamp", *source).select("event.*", "timestamp", *source)


def main() -> None:
    """Read the topic to its present end."""
    project = recon.load_project(Path(__file__).parent)
    spark = spark_session("payments")
    query = (
        recon.read_kafka(
            spark, project, "payments", startingOffsets="earliest", failOnDataLoss=False, maxOffsetsPerTrigger=4_000
        )
        .writeStream.foreachBatch(recon.foreach_batch(project, pipeline="payments", transform=parsed))
        .option("checkpointLocation", project.resolve("checkpoints/payments"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
