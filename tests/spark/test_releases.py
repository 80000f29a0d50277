"""What PySpark's releases do in different ways gives the same on each of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from recon.spark.releases import arrow_schema, data_type, from_arrow, to_arrow, try_cast

DDL = (
    "n long, at timestamp, wall timestamp_ntz, day date, m decimal(12,3), raw binary, flag boolean,"
    "inside struct<a: int, at: timestamp>, many array<struct<x: string>>, tags map<string, int>"
)
AT = datetime(2026, 7, 1, 12, 30, tzinfo=UTC)
ROW = {
    "n": 2**62,
    "at": AT,
    "wall": datetime(2026, 7, 1, 12, 30),
    "day": date(2026, 7, 1),
    "m": Decimal("-1.500"),
    "raw": b"\x00\xff",
    "flag": False,
    "inside": {"a": 1, "at": AT},
    "many": [{"x": "y"}, {"x": None}],
    "tags": [("a", 1)],
}


@pytest.fixture(params=["UTC", "Etc/UTC", "America/New_York"])
def zone(spark: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def test_rows_come_back_as_they_were(spark: Any, zone: str) -> None:
    schema = data_type(DDL)
    table = pa.Table.from_pylist([ROW, dict.fromkeys(ROW)], schema=arrow_schema(schema))
    back = to_arrow(from_arrow(spark, table, schema))
    assert back.to_pylist() == [ROW, dict.fromkeys(ROW)]
    assert back.schema.types == table.schema.types


def test_no_rows_have_their_columns(spark: Any, zone: str) -> None:
    empty = to_arrow(spark.range(3).selectExpr("id", "timestamp'2026-01-01' AS at").where("id < 0"))
    assert (empty.num_rows, empty.schema.names) == (0, ["id", "at"])
    assert empty.schema.field("at").type == pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_value_that_is_none_of_the_type_is_null(spark: Any, ansi: str) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        values = spark.createDataFrame([("12", 2**40), ("x", 3), (None, None)], "s string, n long")
        found = values.select(
            try_cast(F.col("s"), "int"),
            try_cast(F.col("n"), "int"),
            try_cast(F.col("s"), data_type("decimal(3,1)")),
            try_cast(F.col("s"), "date"),
        ).collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert [tuple(row) for row in found][1:] == [(None, 3, None, None), (None, None, None, None)]
    assert tuple(found[0])[:3] == (12, None, Decimal("12.0"))
