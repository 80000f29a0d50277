"""Spark's Python daemon with all that the children's tasks import: a start forks dozens of workers."""

import confluent_kafka
import pyarrow
from pyspark.daemon import manager

import recon.write.sinks.kafka.task
import tests.crash.child

__all__ = ["confluent_kafka", "pyarrow", "recon", "tests"]

if __name__ == "__main__":
    manager()
