"""Small frames from values of the driver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from recon.spark.releases import arrow_schema, data_type, from_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def local_frame(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: StructType | str) -> DataFrame:
    """A frame of these rows, which the plan itself contains.

    Sent as Arrow: a list given to `createDataFrame` becomes an RDD that every job reads again through Python workers.
    Spark 3.5 takes no Arrow table, and gets such a list.

    Args:
        spark: the session.
        rows: one tuple per row, with a value per column of the schema.
        schema: a Spark schema, or its DDL string.
    """
    struct = cast("StructType", data_type(schema)) if isinstance(schema, str) else schema
    columns = list(zip(*rows, strict=True)) or [() for _ in struct]
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, arrow_schema(struct), strict=True)]
    return from_arrow(spark, pa.Table.from_arrays(arrays, names=struct.names), struct)
