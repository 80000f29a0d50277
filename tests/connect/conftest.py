"""One Connect server for the whole run, its session in this process, and a pipeline on it for each test.

A process has either sessions of Spark Connect or one with a JVM gateway: these tests run in a process of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import recon
from recon.model import LedgerEntry, RunResult
from recon.project import Project, as_project
from recon.write.ledger import open_ledger
from tests.support.connect import ConnectServer, new_session
from tests.support.kafka import LocalKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
EVIDENCE = ["offset_continuity", "kafka_end_offsets", "checkpoint_commits", "source_rows"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A server whose functions can import these tests."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        pytest.skip("this process has a session with a JVM gateway already; run `pytest -m connect` by itself")
    with ConnectServer(tmp_path_factory.mktemp("connect"), env={"PYTHONPATH": str(ROOT)}) as started:
        yield started
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)  # PySpark sets it with the first session


@pytest.fixture
def remote(server: ConnectServer) -> Iterator[SparkSession]:
    session = new_session(server.url)
    yield session
    session.stop()


@dataclass
class Stream:
    """Pipeline `p` with one sink `s`, or several, in a folder with a recon.yml."""

    path: Path
    kafka: LocalKafka
    spark: SparkSession
    topic: str
    sinks: list[dict[str, Any]]
    pipeline: Mapping[str, Any] = field(default_factory=dict)
    ledger: Any = "recon"

    def __post_init__(self) -> None:
        sinks = [{"name": "s", "data_tests": [*EVIDENCE, _record_of(sink)], **sink} for sink in self.sinks]
        pipeline = {"name": "p", "checkpoint": "checkpoint", "source": {"topics": [self.topic]}, "sinks": sinks}
        document = {
            "version": 2,
            "name": "lake",
            "ledger": self.ledger,
            "kafka": {"bootstrap.servers": self.kafka.bootstrap_servers},
            "pipelines": [{**pipeline, **self.pipeline}],
        }
        (self.path / "recon.yml").write_text(yaml.safe_dump(document))

    @property
    def project(self) -> Project:
        return as_project(self.path)

    def produce(self, *values: Any) -> None:
        self.kafka.produce(self.topic, [(str(value), str(value), 0) for value in values])

    def run(self, hook: Callable[..., None] | None = None, *, per_trigger: int = 10, **options: Any) -> None:
        """Drains the topic with availableNow, through recon's hook unless one is given."""
        query = self.start(hook or recon.foreach_batch(self.path, pipeline="p", **options), per_trigger=per_trigger)
        assert query.awaitTermination(180), "the stream did not drain in time"

    def start(self, hook: Callable[..., None], *, per_trigger: int = 10, checkpoint: str = "checkpoint") -> Any:
        stream = recon.read_kafka(
            self.spark, self.path, "p", startingOffsets="earliest", maxOffsetsPerTrigger=str(per_trigger)
        )
        writer = stream.writeStream.foreachBatch(hook).option("checkpointLocation", str(self.path / checkpoint))
        return writer.trigger(availableNow=True).start()

    def entries(self, sink: str = "s") -> list[LedgerEntry]:
        return open_ledger(self.project, self.spark).entries("p", sink)

    def audit(self) -> RunResult:
        return recon.audit(self.path, spark=self.spark)


def _record_of(sink: Mapping[str, Any]) -> str:
    """The check of the sink's own record of writes."""
    return "delta_history" if sink["kind"].startswith("delta") else "sink_commits"


@pytest.fixture
def stream(kafka: Any, remote: SparkSession, topic: Callable[..., str], tmp_path: Path) -> Callable[..., Stream]:
    def make(*sinks: dict[str, Any], ledger: Any = "recon", **pipeline: Any) -> Stream:
        return Stream(tmp_path, kafka, remote, topic("c"), list(sinks), pipeline, ledger)

    return make
