"""A streaming job with the hook: Kafka → Delta, every micro-batch proved and recorded.

    spark-submit --packages … examples/stream.py recon.yml orders localhost:9092

Reads the pipeline's topics from recon.yml, drains what is there (availableNow) and stops.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import recon


def main(project_path: str, pipeline_name: str, bootstrap_servers: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    project = recon.load_project(project_path)
    pipeline = next(p for p in project.pipelines if p.name == pipeline_name)
    events = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.isolation.level", pipeline.source.isolation_level)
        .option("subscribe", ",".join(pipeline.source.topics))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 10_000)
        .load()
    )
    query = (
        events.writeStream.foreachBatch(recon.foreach_batch(project, pipeline=pipeline_name))
        .option("checkpointLocation", project.resolve(pipeline.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:4])
