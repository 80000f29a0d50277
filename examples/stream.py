"""A streaming job with the hook: Kafka → Delta, every micro-batch proved and recorded.

    spark-submit --packages … examples/stream.py recon.yml orders

Reads the pipeline's topics from recon.yml, drains what is there (availableNow) and stops.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import recon


def main(project_path: str, pipeline_name: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    project = recon.load_project(project_path)
    pipeline = project.find_pipeline(pipeline_name)
    events = recon.read_kafka(spark, project, pipeline_name, startingOffsets="earliest", maxOffsetsPerTrigger=10_000)
    query = (
        events.writeStream.foreachBatch(recon.foreach_batch(project, pipeline=pipeline_name))
        .option("checkpointLocation", project.resolve(pipeline.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:3])
