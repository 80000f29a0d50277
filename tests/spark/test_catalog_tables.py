"""Tables that recon.yml names by catalog: hook, audit and checks find them where Spark's catalog has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recon.base.errors import ConfigError
from recon.project import load
from recon.spark.catalog import require_located
from recon.write.hook import ForeachBatch, foreach_batch
from recon.write.sinks.catalog import ProjectTables

RECON = """\
version: 2
name: shop
ledger: _recon
tables: [{name: seen, target: shop.seen}]
pipelines:
  - name: orders
    checkpoint: cp
    sinks:
      - {name: two, target: shop.orders}
      - {name: three, target: spark_catalog.shop.orders}
      - {name: quoted, target: '`shop`.`orders`'}
      - {name: parquet, target: shop.files}
      - {name: missing, target: shop.missing}
"""


@pytest.fixture
def folder(spark: Any, tmp_path: Path) -> Iterator[Path]:
    spark.sql("CREATE DATABASE shop")
    spark.sql(f"CREATE TABLE shop.orders (id INT) USING delta LOCATION '{tmp_path}/lake/my orders'")
    spark.sql(f"CREATE TABLE shop.files (id INT) USING parquet LOCATION '{tmp_path}/lake/files'")
    spark.sql("INSERT INTO shop.orders VALUES (1), (2)")
    spark.sql("CREATE VIEW shop.seen AS SELECT * FROM shop.orders WHERE id = 2")
    (tmp_path / "recon.yml").write_text(RECON)
    yield tmp_path
    spark.sql("DROP DATABASE shop CASCADE")


def test_names_are_resolved_by_spark(spark: Any, folder: Path) -> None:
    project = load(folder)
    for sink in project.pipelines[0].sinks[:3]:
        hook = foreach_batch(project, pipeline="orders", sink=sink.name)
        assert isinstance(hook, ForeachBatch)
        assert project.location(sink) == hook.writer.target == f"{folder}/lake/my orders"  # type: ignore[attr-defined]
        assert hook.writer.log().exists
    tables = ProjectTables(project, spark)
    assert tables.open("ref('two')").count() == 2 and tables.open("ref('seen')").count() == 1
    for sink, told in zip(project.pipelines[0].sinks[3:], ("of format parquet", "shop.missing"), strict=True):
        with pytest.raises(ConfigError, match=told) as caught:
            require_located(project, [sink], spark)
        assert "\n" not in str(caught.value)
    assert sorted(file.name for file in folder.iterdir()) == ["lake", "recon.yml"]
