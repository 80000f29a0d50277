"""Two drivers of one sink, each with a checkpoint of its own, in the orders of moves that `tests/model` refutes.

One query has written micro-batch 0 and stamps micro-batch 1; another one starts on a fresh checkpoint where the ledger
ends, and stamps its first micro-batch, of the same records. Then both write, one after the other.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from recon.audits.run import run_audit
from recon.model import Level, ReconStamp
from recon.project import Project, without_yaml
from recon.recovery.starting_offsets import starting_offsets
from recon.write.hook import foreach_batch
from recon.write.ledger import open_ledger
from recon.write.sinks import open_sink
from recon.write.sinks.failpoints import BEFORE_WRITE
from tests.cases.lake import failing
from tests.support.drivers import ICEBERG
from tests.support.iceberg import add_to, lake_of_postgres, spark_conf
from tests.support.kafka import LocalKafka
from tests.support.marks import long

Config = Callable[[pytest.FixtureRequest, Path, str], Mapping[str, Any]]
SINKS: Mapping[str, Config] = {
    "delta": lambda request, folder, tag: {"kind": "delta", "target": str(folder / "table")},
    "delta_merge": lambda request, folder, tag: {
        "kind": "delta_merge",
        "target": str(folder / "table"),
        "keys": ["key"],
    },
    "iceberg": lambda request, folder, tag: _iceberg(request, folder, tag),
    "postgres": lambda request, folder, tag: _database(request.getfixturevalue("postgres"), tag),
    "mariadb": lambda request, folder, tag: _database(request.getfixturevalue("mariadb"), tag),
    "parquet": lambda request, folder, tag: {"kind": "parquet", "target": str(folder / "files")},
    "kafka": lambda request, folder, tag: {"kind": "kafka", "target": f"{tag}_out"},
}


def _database(server: Any, table: str) -> Mapping[str, Any]:
    connection = {"url": server.url, "user": server.user, "password": server.password}
    return {"kind": "jdbc_append", "target": table, "create_table": True, "connection": connection}


def _iceberg(request: pytest.FixtureRequest, folder: Path, name: str) -> Mapping[str, Any]:
    if not ICEBERG:
        pytest.skip("Iceberg has no build for this Spark")
    server = request.getfixturevalue("postgres")
    lake = lake_of_postgres(name, folder / "iceberg", server)
    add_to(request.getfixturevalue("spark"), spark_conf(lake, server))
    return {"kind": "iceberg", "target": lake.target, "catalog": dict(lake.properties)}


@dataclass
class Waits:
    """Stops a driver before it writes one of its micro-batches, until it may go on."""

    batch_id: int
    reached: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)

    def failpoint(self, point: str, stamp: ReconStamp) -> None:
        if point == BEFORE_WRITE and stamp.batch_id == self.batch_id:
            self.reached.set()
            assert self.goes_on.wait(120)


@dataclass
class Drivers:
    """One pipeline with one sink, and the queries that write it."""

    project: Callable[[str], Project]
    spark: SparkSession
    kafka: LocalKafka
    topic: str
    errors: dict[str, str] = field(default_factory=dict)

    def run(self, checkpoint: str, *, starting: str = "earliest", waits: Waits | None = None) -> None:
        """Drains the topic; what stopped the query is kept in `errors`."""
        project = self.project(checkpoint)
        more = {} if waits is None else {"failpoint": waits.failpoint}
        query = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.kafka.bootstrap_servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", starting)
            .load()
            .writeStream.foreachBatch(foreach_batch(project, pipeline="p", transform=_keyed, **more))
            .option("checkpointLocation", project.find_pipeline("p").checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination(180)
        except StreamingQueryException as error:
            self.errors[checkpoint] = str(error)
        assert not query.isActive

    def begin(self, checkpoint: str, waits: Waits, **options: Any) -> threading.Thread:
        """A query that waits before it writes."""
        thread = threading.Thread(target=self.run, args=(checkpoint,), kwargs={"waits": waits, **options})
        thread.start()
        assert waits.reached.wait(120), self.errors
        return thread

    def offsets(self) -> list[int]:
        """The source offset of every row in the sink, sorted."""
        project = self.project("any")
        pipeline, sink = project.find_sink("p")
        rows = open_sink(project, pipeline.name, sink).table(self.spark)
        return sorted(row["_source_offset"] for row in rows.select("_source_offset").collect())

    def produce(self, first: int, count: int) -> None:
        self.kafka.produce(self.topic, [(f"k{first + n}", f"v{first + n}", 0) for n in range(count)])


def _keyed(frame: Any) -> Any:
    return frame.selectExpr(
        "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value",
        "_source_topic", "_source_partition", "_source_offset",
    )  # fmt: skip


# Each numbers its writes as another one here does.
_VARIANTS = ("delta_merge", "iceberg", "mariadb")


@pytest.fixture(params=[*(name for name in SINKS if name not in _VARIANTS), *long(*_VARIANTS)])
def drivers(request: pytest.FixtureRequest, broker: LocalKafka, spark: SparkSession, tmp_path: Path) -> Drivers:
    tag = f"two_{uuid.uuid4().hex[:8]}"
    broker.create_topic(tag, 1)
    broker.create_topic(f"{tag}_out", 1)
    sink = {"name": tag, **SINKS[request.param](request, tmp_path, tag)}

    def project(checkpoint: str) -> Project:
        return without_yaml(
            "two checkpoints",
            ledger=str(tmp_path / "recon"),
            kafka={"bootstrap.servers": broker.bootstrap_servers},
            pipeline={
                "name": "p",
                "checkpoint": str(tmp_path / checkpoint),
                "source": {"topics": [tag]},
                "sinks": [{**sink, "data_tests": ["source_rows"]}],
                "data_tests": ["offset_continuity", "checkpoint_commits"],
            },
        )

    return Drivers(project, spark, broker, tag)


@pytest.mark.parametrize("first", ["older", *long("newer")])
def test_two_checkpoints_write_the_same_records(drivers: Drivers, first: str) -> None:
    drivers.produce(0, 10)
    drivers.run("older")
    drivers.produce(10, 10)
    waits = {"older": Waits(1), "newer": Waits(0)}
    threads = {"older": drivers.begin("older", waits["older"])}
    starting = starting_offsets(drivers.project("newer"), "p", drivers.topic)
    threads["newer"] = drivers.begin("newer", waits["newer"], starting=starting)
    for name in (first, *({"older", "newer"} - {first})):
        waits[name].goes_on.set()
        threads[name].join(180)
    print(drivers.errors)
    assert len(drivers.errors) == 1 and re.search(r"recon\.base\.errors\.(Sink|Refused)Error", str(drivers.errors))
    assert drivers.offsets() == list(range(20))
    # The one that stopped finds the other's entry, and stops again.
    (stopped,) = drivers.errors
    drivers.run(stopped)
    assert "recon.base.errors.NewEpochError" in drivers.errors[stopped]
    assert drivers.offsets() == list(range(20))
    ledger = open_ledger(drivers.project("any"))
    assert sorted(o for e in ledger.entries("p") for s in e.offsets for o in range(*s.span)) == list(range(20))
    assert [f for f in ledger.verify() if f.level is Level.FAIL] == []
    (winner,) = {"older", "newer"} - {stopped}
    assert failing(run_audit(drivers.project(winner), spark=drivers.spark)) == set()
