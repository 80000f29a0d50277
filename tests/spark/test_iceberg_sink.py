"""Iceberg sinks on real Spark, with a catalog in PostgreSQL that pyiceberg reads."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from recon.base.errors import RefusedError, SinkError
from recon.model import ReconStamp
from recon.project import IcebergMergeSink, IcebergSink
from recon.testing import micro_batch
from recon.write.sinks import failpoints
from recon.write.sinks.iceberg.append import IcebergAppend
from recon.write.sinks.iceberg.merge import IcebergMerge
from tests.support.drivers import ICEBERG
from tests.support.iceberg import Lake, add_to, lake_of_postgres, spark_conf
from tests.support.messages import raises
from tests.support.postgres import LocalPostgres

pytestmark = pytest.mark.usefixtures("interpreted")

ROWS = [(1, 10), (2, 20), (3, 30)]
SCHEMA = "id int, amount int"


@pytest.fixture
def iceberg(spark: SparkSession, postgres: LocalPostgres, tmp_path: Path) -> Iterator[Lake]:
    if not ICEBERG:
        pytest.skip("Iceberg has no build for this Spark")
    lake = lake_of_postgres(f"lake_{uuid.uuid4().hex[:8]}", tmp_path, postgres)
    add_to(spark, spark_conf(lake, postgres))
    yield lake


def append(lake: Lake, **keys: object) -> IcebergSink:
    return IcebergSink.model_validate(
        {"kind": "iceberg", "name": "orders", "target": lake.target, "catalog": dict(lake.properties), **keys}
    )


def merge(lake: Lake, **keys: object) -> IcebergMergeSink:
    of = {"kind": "iceberg_merge", "name": "orders", "target": lake.target, "catalog": dict(lake.properties)}
    return IcebergMergeSink.model_validate({**of, "keys": ["id"], **keys})


def rows(spark: SparkSession, lake: Lake) -> list[tuple[int, int]]:
    spark.catalog.refreshTable(lake.target)
    return sorted(tuple(row) for row in spark.table(lake.target).select("id", "amount").collect())


def test_append_keeps_the_contract_of_a_sink(spark: SparkSession, iceberg: Lake) -> None:
    sink = append(iceberg, partition_by="bucket(2, id)", options={"target-file-size-bytes": "1000000"})
    first = micro_batch(spark, ROWS, SCHEMA)
    writer = IcebergAppend(sink)
    writer.write(first.frame, first.stamp)
    landed = writer.confirm(first.stamp)
    assert (landed.rows, landed.given, landed.computed_again) == (3, None, False)
    assert landed.size
    assert sorted(r.id for r in writer.rows_of(spark, landed, first.stamp).collect()) == [1, 2, 3]
    assert writer.newest_number("orders", "orders") == 1
    table = iceberg.table()
    assert set(table.metadata.refs) == {"main"}
    assert table.metadata.properties["recon.number.orders.orders"] == "1"
    # The same write again is refused: its number is taken.
    again = IcebergAppend(sink)
    with raises(RefusedError):
        again.write(first.frame, first.stamp)
    assert again.landed(first.stamp, landed.version) == landed
    second = micro_batch(spark, [(4, 40)], SCHEMA, batch_id=1, start_offset=3)
    again.write(second.frame, second.stamp)
    assert rows(spark, iceberg) == [*ROWS, (4, 40)]
    assert again.table(spark).count() == 4
    assert [commit.stamp.batch_id for commit in again.log().commits] == [0, 1]


def test_merge_keeps_one_row_per_key(spark: SparkSession, iceberg: Lake) -> None:
    sink = merge(iceberg, delete_when="amount < 0")
    first = micro_batch(spark, [*ROWS, (1, 11)], SCHEMA)
    writer = IcebergMerge(sink)
    writer.write(first.frame, first.stamp)
    landed = writer.confirm(first.stamp)
    assert (landed.rows, landed.given) == (3, 4)
    second = micro_batch(spark, [(2, -1), (3, 33), (4, 40)], SCHEMA, batch_id=1, start_offset=4)
    writer.write(second.frame, second.stamp)
    landed = writer.confirm(second.stamp)
    assert (landed.rows, landed.given) == (3, 3)
    assert rows(spark, iceberg) == [(1, 11), (3, 33), (4, 40)]
    assert sorted(r.id for r in writer.rows_of(spark, landed, second.stamp).collect()) == [3, 4]
    nothing = micro_batch(spark, [(9, 9)], SCHEMA, batch_id=2, start_offset=7)
    writer.write(nothing.frame.limit(0), nothing.stamp)
    assert (writer.confirm(nothing.stamp).rows, len(writer.log().commits)) == (0, 3)


def test_the_contract_of_recon_testing(spark: SparkSession, iceberg: Lake) -> None:
    first, second = micro_batch(spark, ROWS, SCHEMA), micro_batch(spark, ROWS, SCHEMA, batch_id=1)
    writer = IcebergAppend(append(iceberg))
    for batch in (first, second):
        writer.write(batch.frame, batch.stamp)
        landed = writer.confirm(batch.stamp)
        assert IcebergAppend(append(iceberg)).landed(batch.stamp, landed.version) == landed
    assert writer.table(spark).count() == 6


def test_a_stranger_commits_during_the_write(spark: SparkSession, iceberg: Lake) -> None:
    first = micro_batch(spark, ROWS, SCHEMA)
    writer = IcebergAppend(append(iceberg))
    written = 0

    def stranger(point: str, stamp: ReconStamp) -> None:
        nonlocal written
        if point == failpoints.BRANCH_WRITTEN and not written:
            written += 1
            spark.sql(f"INSERT INTO {iceberg.target} SELECT 9, 90, NULL, NULL, NULL, NULL")

    writer.failpoint = stranger
    writer.write(first.frame, first.stamp)
    landed = writer.confirm(first.stamp)
    assert (landed.rows, landed.computed_again) == (3, True)
    assert rows(spark, iceberg) == [*ROWS, (9, 90)]
    assert set(iceberg.table().metadata.refs) == {"main"}


def test_another_driver_publishes_during_the_write(spark: SparkSession, iceberg: Lake) -> None:
    """Both are refused nothing until one publishes; the other's branch is removed with it."""
    first = micro_batch(spark, ROWS, SCHEMA)
    for point in (failpoints.BRANCH_CREATED, failpoints.BRANCH_WRITTEN):
        lake_writer, other = IcebergMerge(merge(iceberg)), IcebergMerge(merge(iceberg))
        number = (lake_writer.newest_number("orders", "orders") or 0) + 1
        stamp = replace(first.stamp, number=number, batch_id=number)

        def meets(at: str, stamp: ReconStamp, point: str = point, other: IcebergMerge = other) -> None:
            if at == point:
                other.write(first.frame, stamp)

        lake_writer.failpoint = meets
        with pytest.raises(RefusedError):
            lake_writer.write(first.frame, stamp)
        assert (rows(spark, iceberg), other.newest_number("orders", "orders")) == (ROWS, number)


def test_a_table_that_was_written_without_recon(spark: SparkSession, iceberg: Lake) -> None:
    spark.sql(f"CREATE TABLE {iceberg.target} (id int, amount int) USING iceberg")
    batch = micro_batch(spark, ROWS, SCHEMA)
    writer = IcebergAppend(append(iceberg))
    writer.write(batch.frame, batch.stamp)
    assert writer.confirm(batch.stamp).rows == 3
    assert [field.name for field in iceberg.table().schema().fields][2:] == list(batch.frame.columns[2:])


def test_a_catalog_that_the_session_does_not_have(spark: SparkSession, iceberg: Lake) -> None:
    batch = micro_batch(spark, ROWS, SCHEMA)
    of = append(iceberg).model_copy(update={"target": "nowhere.sales.orders"})
    with raises(SinkError):
        IcebergAppend(of).write(batch.frame, batch.stamp)


def test_spark_and_pyiceberg_name_different_catalogs(spark: SparkSession, iceberg: Lake, tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/other.db", "warehouse": f"file://{tmp_path}/other"}
    other = load_catalog(iceberg.name, **properties)
    batch = micro_batch(spark, ROWS, SCHEMA)
    sink = append(iceberg, catalog=properties)
    with raises(SinkError):  # Spark has made the table
        IcebergAppend(sink).write(batch.frame, batch.stamp)
    other.create_namespace("sales")
    names = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}
    other.create_table("sales.orders", pa.schema([(name, names[kind]) for name, kind in batch.frame.dtypes]))
    with raises(SinkError):  # now both have one
        IcebergAppend(sink).write(batch.frame, batch.stamp)
    assert rows(spark, iceberg) == []


def test_conditions_of_a_merge(spark: SparkSession, iceberg: Lake) -> None:
    sink = merge(iceberg, newer_wins="amount", insert_when="s.amount < 1000")
    writer = IcebergMerge(sink)
    first = micro_batch(spark, [*ROWS, (9, 5000)], SCHEMA)
    writer.write(first.frame, first.stamp)
    second = micro_batch(spark, [(1, 5), (2, 25)], SCHEMA, batch_id=1, start_offset=4)
    writer.write(second.frame, second.stamp)
    assert rows(spark, iceberg) == [(1, 10), (2, 25), (3, 30)]
    nulls = micro_batch(spark, [(None, 5)], SCHEMA, batch_id=2, start_offset=6)
    with raises(SinkError):
        writer.write(nulls.frame, nulls.stamp)
    wider = micro_batch(spark, [(1, 50, "x")], f"{SCHEMA}, note string", batch_id=2, start_offset=6)
    with raises(SinkError):
        writer.write(wider.frame, wider.stamp)
    wrong = IcebergMerge(merge(iceberg, update_when="s.nothing > 1"))
    third = micro_batch(spark, [(1, 50)], SCHEMA, batch_id=2, start_offset=6)
    with raises(SinkError):
        wrong.write(third.frame, third.stamp)
    with raises(SinkError):
        IcebergMerge(merge(iceberg, update_when="s.amount >")).write(third.frame, third.stamp)
    assert rows(spark, iceberg) == [(1, 10), (2, 25), (3, 30)]
    commented = IcebergMerge(merge(iceberg, update_when="s.amount > 1 -- not a correction", insert_when="true -- all"))
    commented.write(third.frame, third.stamp)
    assert rows(spark, iceberg) == [(1, 50), (2, 25), (3, 30)]
