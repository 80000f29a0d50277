"""Build the frame that tasks write from: key, value, headers, partition, source record and hashes of each row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from recon.base.errors import SinkError
from recon.model import ReconStamp
from recon.model.wire.columns import KAFKA_COLUMNS, SOURCE_COLUMNS, STAMPED_COLUMNS
from recon.project import KafkaSink
from recon.spark.columns import quoted
from recon.spark.lazy import F
from recon.write.sinks.kafka.columns import CONTENT, FROM, HEADERS, IDS, KEY, OFFSET, PARTITION, TOPIC, VALUE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

JSON_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}  # Spark's default keeps milliseconds only


def record_frame(frame: DataFrame, sink: KafkaSink, stamp: ReconStamp) -> DataFrame:
    """The rows as tasks read them.

    Raises:
        SinkError: the rows have no column for the key or the value.
    """
    types = dict(frame.dtypes)
    key = sink.key or "key"
    if sink.key is not None and key not in types:
        raise SinkError(
            f"{stamp.label}: the rows have no column {key}, which is the sink's key; they have {_listed(types)}; "
            "add it in the transform, or correct key"
        )
    columns: dict[str, Column] = {}
    if key in types:
        columns[KEY] = _binary(key, types[key])
    if sink.value_format == "json":
        names = written_schema(frame, sink).names
        columns[VALUE] = F.to_json(F.struct(*(F.col(quoted(n)) for n in names)), JSON_OPTIONS).cast("binary")
    elif "value" in types:
        columns[VALUE] = _binary("value", types["value"])
    else:
        raise SinkError(
            f"{stamp.label}: the rows have no column value to write (they have {_listed(types)}); name one "
            "`value` in the transform, or set value_format: json to write all columns"
        )
    if "headers" in types and types["headers"].startswith("array<struct<"):
        columns[HEADERS] = F.col("headers").cast("array<struct<key:string,value:binary>>")
    # `partition` beside topic and offset is the partition that a row was read from, not the one to write it to.
    if "partition" in types and not set(KAFKA_COLUMNS) <= set(types):
        columns[PARTITION] = F.col("partition").cast("int")
    source = zip(SOURCE_COLUMNS, (TOPIC, FROM, OFFSET), strict=True)
    columns |= {to: F.col(name) for name, to in source if name in types}
    if sink.transactional:
        columns[IDS] = F.xxhash64(*(F.col(name) for name in SOURCE_COLUMNS))
        columns[CONTENT] = F.xxhash64(*(columns[name] for name in (KEY, VALUE) if name in columns))
    return frame.select(*(column.alias(name) for name, column in columns.items()))


def written_schema(frame: DataFrame, sink: KafkaSink) -> StructType:
    """The columns that a reader of the topic gets back."""
    from pyspark.sql.types import StructField, StructType

    if sink.value_format == "columns":
        names = {sink.key or "key": "key", "value": "value"}
        return StructType([StructField(names[f.name], f.dataType) for f in frame.schema.fields if f.name in names])
    left_out = {*STAMPED_COLUMNS, "headers"}
    if set(KAFKA_COLUMNS) <= set(frame.columns):
        left_out |= set(KAFKA_COLUMNS)
    return StructType([field for field in frame.schema.fields if field.name not in left_out])


def _binary(name: str, data_type: str) -> Column:
    column = F.col(quoted(name))
    # Numbers are written as text: Spark's own sink refuses them, and their raw bytes are of no use to a consumer.
    return column if data_type == "binary" else column.cast("string").cast("binary")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
