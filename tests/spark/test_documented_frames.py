"""The Python of compare.md, files_sink.md and progress.md, run as it stands there, on a real session and database."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import recon as library
from recon.spark.frames import local_frame
from recon.testing import micro_batch
from recon.write.sinks.files.replace import FileReplace
from tests.support import pages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.postgres import LocalPostgres

DOCS = pages.ROOT / "docs"


@pytest.fixture
def namespace(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    return {"spark": spark, "recon": library}


def test_two_tables_are_compared(
    namespace: dict[str, Any], postgres: LocalPostgres, spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "orders")  # the JVM's working directory is not that of the test
    postgres.sql(
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE orders (order_id int, line int, amount float8, updated_at timestamptz, weight float8)",
        "INSERT INTO orders SELECT o, l, a, '2026-11-20Z', 2 FROM (VALUES (1,1,10), (1,2,20), (2,1,5)) v (o, l, a)",
    )
    at = datetime(2026, 11, 20, tzinfo=UTC)
    rows = [
        (1, 1, 10.005, at + timedelta(seconds=4), 2.000001, 0, "orders", 0, 0),  # within the tolerances
        (1, 2, 21.0, at, 2.0, 0, "orders", 0, 1),
        (3, 1, 5.0, at, 2.0, 0, "orders", 0, 2),
    ]
    schema = "order_id int, line int, total double, updated_at timestamp, weight double, _batch_id bigint"
    stamps = "_source_topic string, _source_partition int, _source_offset bigint"
    local_frame(spark, rows, f"{schema}, {stamps}").write.format("delta").save(table)

    properties = {"user": postgres.user, "password": postgres.password, "driver": "org.postgresql.Driver"}
    namespace |= {"url": postgres.url, "connection": properties}
    pages.run(DOCS / "compare.md", namespace, replaced={"lake/orders": table})
    comparison = namespace["comparison"]
    assert (comparison.equal, comparison.missing, comparison.extra, comparison.changed) == (False, 1, 1, 1)


def test_files_are_read_by_micro_batch(namespace: dict[str, Any], spark: SparkSession, tmp_path: Path) -> None:
    sink = FileReplace(str(tmp_path / "events"), "parquet")
    for batch_id in range(2):
        batch = micro_batch(spark, [(batch_id, "a"), (batch_id, "b")], "id int, name string", batch_id=batch_id)
        sink.write(batch.frame, batch.stamp)
    namespace["yesterday"] = datetime.now(UTC) - timedelta(days=1)
    pages.run(DOCS / "files_sink.md", namespace, replaced={"s3a://bucket/events": str(tmp_path / "events")})
    assert namespace["rows"].count() == 4
    assert all(Path(path).is_file() for path in namespace["paths"]) and len(namespace["paths"]) >= 2


def test_the_listener_listens(namespace: dict[str, Any], spark: SparkSession, tmp_path: Path) -> None:
    sink = {"name": "orders", "target": "lake/orders"}
    pipelines = [{"name": "orders", "checkpoint": "checkpoints/orders", "sinks": [sink]}]
    (tmp_path / "recon.yml").write_text(json.dumps({"name": "lake", "ledger": "_recon", "pipelines": pipelines}))
    added: list[Any] = []

    def add(listener: Any) -> None:
        spark.streams.addListener(listener)
        added.append(listener)

    namespace["spark"] = SimpleNamespace(streams=SimpleNamespace(addListener=add))
    pages.run(DOCS / "progress.md", namespace)
    for listener in added:
        spark.streams.removeListener(listener)
    assert [type(listener) for listener in added] == [library.ProgressListener]
