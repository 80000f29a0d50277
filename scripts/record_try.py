"""Records the streams that `recon try` audits: scripts/record_try.py [--keep FOLDER].

A real broker, real Spark streams into Delta tables, and faults made for real. Checkpoints, Delta tables with their data
files, the ledger, and what Kafka says at the end go into recon/local/demo/recording.zip, which is part of the wheel.
Run it anew after a change to one of these formats; it needs Java and takes about two minutes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import recon
from recon.local.client import Record
from recon.local.demo.recorded import record
from recon.local.kafka import LocalKafka
from recon.local.spark import spark_session
from recon.model import ReconStamp
from recon.project import Project
from recon.write.sinks.failpoints import BEFORE_LEDGER

ROOT = Path(__file__).resolve().parents[1]
RECORDING = ROOT / "recon" / "local" / "demo" / "recording.zip"
# The ledger's entries have the path of each table: one that says nothing of the machine that recorded them.
FOLDER = Path(tempfile.gettempdir()) / "recon-try"
PARTITIONS = 2
ABORTED = 1  # of these transactions
EXPIRED = 25  # records of payments-1
_SAME_DATE = (2026, 1, 1, 0, 0, 0)  # in the archive, so that one recording is packed into the same bytes


class Stopped(Exception):
    """Ends a query between its Delta commit and its ledger entry."""


def records(first: int, count: int) -> Iterator[Record]:
    """Records with ascending ids, taking turns in the partitions."""
    for n in range(first, first + count):
        yield Record(str(n), json.dumps({"id": n, "amount": n % 90}), n % PARTITIONS)


def parsed(batch: DataFrame) -> DataFrame:
    """The record's fields, and where each row comes from."""
    event = F.from_json(F.col("value").cast("string"), "id long, amount int").alias("event")
    source = ("_source_topic", "_source_partition", "_source_offset")
    return batch.select(event, *source).select("event.*", *source)


def run(spark: SparkSession, project: Project, name: str, *, starting: str = "earliest", **options: Any) -> None:
    """Reads the topic to its present end."""
    stop_in = options.pop("stop_in", None)

    def stop(point: str, stamp: ReconStamp) -> None:
        if point == BEFORE_LEDGER and stamp.batch_id == stop_in:
            raise Stopped

    query = (
        recon.read_kafka(spark, project, name, startingOffsets=starting, **options)
        .writeStream.foreachBatch(recon.foreach_batch(project, pipeline=name, transform=parsed, failpoint=stop))
        .option("checkpointLocation", project.resolve(f"checkpoints/{name}"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException:
        if stop_in is None:
            raise


def orders(spark: SparkSession, project: Project, kafka: LocalKafka) -> None:
    """Transactions, one of them aborted and sent again; the query stops behind a commit and is started again."""
    producer = kafka.transactional("orders-producer")
    for number in range(4):
        if number == ABORTED:
            producer.send("orders", records(number * 60, 60), "abort")
        producer.send("orders", records(number * 60, 60))
    run(spark, project, "orders", maxOffsetsPerTrigger=110, stop_in=1)
    run(spark, project, "orders", maxOffsetsPerTrigger=110)


def payments(spark: SparkSession, project: Project, kafka: LocalKafka) -> None:
    """Kafka deletes records before they are read; a micro-batch is committed twice."""
    kafka.produce("payments", records(0, 120))
    run(spark, project, "payments", maxOffsetsPerTrigger=60)
    kafka.produce("payments", records(120, 120))
    read = kafka.offsets("payments")[1][1] - 60
    kafka.delete_records({("payments", 1): read + EXPIRED})
    run(spark, project, "payments", failOnDataLoss=False)
    table = project.resolve("lake/payments")
    stamp = json.loads((Path(table) / "_delta_log" / f"{1:020}.json").read_text().splitlines()[0])["commitInfo"]
    again = spark.read.format("delta").load(table).where("_batch_id = 1")
    again.write.format("delta").mode("append").option("userMetadata", stamp["userMetadata"]).save(table)


def clicks(spark: SparkSession, project: Project, kafka: LocalKafka) -> None:
    """The checkpoint is lost, and the new one begins at the end of the topic."""
    kafka.produce("clicks", records(0, 80))
    run(spark, project, "clicks")
    kafka.produce("clicks", records(80, 40))
    shutil.rmtree(project.resolve("checkpoints/clicks"))
    run(spark, project, "clicks", starting="latest")
    kafka.produce("clicks", records(120, 20))
    run(spark, project, "clicks")


def pack(folder: Path) -> None:
    """The folder as an archive, without the checksums that Hadoop writes beside local files."""
    with zipfile.ZipFile(RECORDING, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".crc"):
            entry = zipfile.ZipInfo(file.relative_to(folder).as_posix(), _SAME_DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())


def main() -> None:
    """Records everything anew."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.parse_args()
    if FOLDER.exists():
        sys.exit(f"{FOLDER} exists; remove it, and record again")
    FOLDER.mkdir()
    try:
        with tempfile.TemporaryDirectory() as data, LocalKafka(Path(data) / "kafka").start() as kafka:
            text = (ROOT / "recon" / "local" / "demo" / "templates" / "try.yml").read_text()
            (FOLDER / "recon.yml").write_text(text + f"\nkafka: {{bootstrap.servers: '{kafka.bootstrap_servers}'}}\n")
            project = recon.load_project(FOLDER)
            spark = spark_session("try", conf={"spark.databricks.delta.properties.defaults.checkpointInterval": "1000"})
            for name, stream in (("orders", orders), ("payments", payments), ("clicks", clicks)):
                kafka.create_topic(name, PARTITIONS)
                stream(spark, project, kafka)
            (FOLDER / "kafka.json").write_text(record(project.kafka, ["orders", "payments", "clicks"]))
            spark.stop()
        (FOLDER / "recon.yml").write_text(text)
        pack(FOLDER)
    finally:
        shutil.rmtree(FOLDER)
    print(f"{RECORDING.relative_to(ROOT)}: {RECORDING.stat().st_size:,} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
