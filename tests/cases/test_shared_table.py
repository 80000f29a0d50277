"""Two pipelines of one recon.yml write one table from two topics: a commit, a row and a finding are of one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from recon import foreach_batch
from recon.model import Code, Level
from recon.project import Project, load
from tests.support import fault_cases

CHECKS = "[ledger_integrity, offset_continuity, checkpoint_commits, kafka_end_offsets, delta_history, source_rows]"
NAMED = "source_columns: {topic: kafka_topic, partition: kafka_partition, offset: kafka_offset}, "
COLUMNS = (
    "CAST(value AS STRING) AS v",
    "topic AS kafka_topic",
    "partition AS kafka_partition",
    "offset AS kafka_offset",
)


@dataclass
class SharedTable:
    """`a` writes through the hook; `b` does, too, or Spark's own sink writes it."""

    path: Path
    kafka: Any
    spark: Any
    topics: dict[str, str]
    native: bool

    @property
    def project(self) -> Project:
        pipelines = ""
        for name, topic in self.topics.items():
            observed = self.native and name == "b"
            write, named = ("\n    write: native\n    rows: {filters: false}", NAMED) if observed else ("", "")
            pipelines += (
                f"  - name: {name}{write}\n    checkpoint: cp_{name}\n    source: {{topics: [{topic}]}}\n"
                f"    sinks: [{{name: s, target: table, {named}data_tests: {CHECKS}}}]\n"
            )
        kafka = f"kafka: {{bootstrap.servers: '{self.kafka.bootstrap_servers}'}}"
        (self.path / "recon.yml").write_text(f"name: lake\nledger: recon\n{kafka}\npipelines:\n{pipelines}")
        return load(self.path)

    def run(self, name: str, records: int = 10) -> None:
        topic = self.topics[name]
        self.kafka.produce(topic, [(f"k{i}", f"v{i}", 0) for i in range(records)])
        read = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.kafka.bootstrap_servers)
        frame = read.option("subscribe", topic).option("startingOffsets", "earliest").load()
        if self.native and name == "b":
            writer = frame.selectExpr(*COLUMNS).writeStream.format("delta").option("mergeSchema", "true")
        else:
            writer = frame.writeStream.foreachBatch(foreach_batch(self.project, pipeline=name))
        writer = writer.option("checkpointLocation", str(self.path / f"cp_{name}")).trigger(availableNow=True)
        query = writer.start(str(self.path / "table")) if self.native and name == "b" else writer.start()
        assert query.awaitTermination(180)

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(table=f"delta.`{self.path / 'table'}`"))

    def audit(self, **options: Any) -> dict[str, tuple[str, set[Code]]]:
        """The answer and the codes of each pipeline."""
        run = fault_cases.audit(self.project, spark=self.spark, **options)
        findings = [f for r in run.results for f in r.findings if f.level is not Level.INFO]
        return {of.name: (of.answer, {f.code for f in findings if f.pipeline == of.name}) for of in run.pipelines}


@pytest.fixture(params=[False, True], ids=["two hooks", "a hook and a native query"])
def shared(request: Any, kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> SharedTable:
    topics = {"a": topic("a"), "b": topic("b")}
    table = SharedTable(tmp_path, kafka, spark, topics, native=request.param)
    table.run("a")
    table.run("b")
    return table


WHOLE: tuple[str, set[Code]] = ("complete", set())


def test_a_deleted_row_is_a_loss_of_its_pipeline_alone(shared: SharedTable) -> None:
    assert shared.audit() == {"a": WHOLE, "b": WHOLE}
    of_b = "kafka_topic" if shared.native else "_source_topic"
    at = "kafka_offset" if shared.native else "_source_offset"
    shared.sql(f"DELETE FROM {{table}} WHERE {of_b} = '{shared.topics['b']}' AND {at} = 3")
    lost = ("not complete", {Code.MUTATED, Code.GAP})
    assert shared.audit(no_spark=True)["a"] == WHOLE
    assert shared.audit() == {"a": WHOLE, "b": lost}
    shared.run("a", 5)
    assert shared.audit(full=True) == {"a": WHOLE, "b": lost}


def test_whose_a_deleted_row_was_the_rows_tell_where_files_were_compacted(shared: SharedTable) -> None:
    shared.sql("OPTIMIZE {table}")
    shared.sql(f"DELETE FROM {{table}} WHERE _source_topic = '{shared.topics['a']}' AND _source_offset = 3")
    assert {answer for answer, _ in shared.audit(no_spark=True).values()} == {"could not be proved"}
    assert shared.audit() == {"a": ("not complete", {Code.MUTATED, Code.GAP}), "b": WHOLE}
