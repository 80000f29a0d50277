"""Read the topic back: its committed records with their columns, and recon's headers as columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from recon.model.wire.columns import (
    BATCH_ID,
    EPOCH_HEADER,
    PIPELINE_HEADER,
    SINK_HEADER,
    SOURCE_OFFSET,
    SOURCE_PARTITION,
    SOURCE_TOPIC,
)
from recon.model.wire.markers import Owner
from recon.project import KafkaSink
from recon.spark.kafka import kafka_options
from recon.spark.lazy import F
from recon.spark.releases import try_cast
from recon.write.sinks.kafka.frame import JSON_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SAMPLE = 200
_STAMPS = {
    BATCH_ID: "bigint",
    EPOCH_HEADER: "int",
    SOURCE_TOPIC: "string",
    SOURCE_PARTITION: "int",
    SOURCE_OFFSET: "bigint",
}


def read_records(
    spark: SparkSession,
    sink: KafkaSink,
    owner: Owner,
    conf: Mapping[str, str],
    schema: StructType | None,
    starts: Mapping[int, int] | None,
) -> DataFrame:
    """The records of the sink's topic; those that another pipeline or sink of recon stamped are left out.

    Args:
        spark: the session that reads.
        sink: the sink.
        owner: the pipeline and sink whose stamp is wanted, beside records without a stamp.
        conf: librdkafka's settings.
        schema: the columns of the values; None where it is unknown, and then JSON's is inferred from a sample.
        starts: the first offset by partition, -2 for the beginning; None reads from the beginning.
    """
    begin = json.dumps({sink.target: {str(p): at for p, at in starts.items()}}) if starts else "earliest"
    options = {
        **kafka_options(conf),
        "subscribe": sink.target,
        "startingOffsets": begin,
        "endingOffsets": "latest",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed" if sink.transactional else "read_uncommitted",
        **sink.options,
    }
    records = spark.read.format("kafka").options(**options).load()
    stamps = {name: try_cast(_header(name), of) for name, of in _STAMPS.items()}
    mine = (_header(PIPELINE_HEADER) == owner.pipeline) & (_header(SINK_HEADER) == owner.sink)
    rows = records.filter(F.coalesce(mine, F.lit(True)))
    if sink.value_format == "json":
        return _json_columns(rows, _inferred(rows) if schema is None else schema, stamps)
    types = {} if schema is None else {field.name: field.dataType for field in schema.fields}
    return rows.select(
        F.col("key").cast(types.get("key", "string")).alias("key"),
        F.col("value").cast(types.get("value", "string")).alias("value"),
        "headers",
        "partition",
        "offset",
        "timestamp",
        *(column.alias(name) for name, column in stamps.items()),
    )


def _header(name: str) -> Column:
    # recon's headers were added last. A topic may hold records of other writers, whose headers are anything.
    of_name = F.filter("headers", lambda header: header["key"] == name)
    return F.try_element_at(of_name, F.lit(-1))["value"].cast("string")


def _json_columns(rows: DataFrame, schema: StructType, stamps: Mapping[str, Column]) -> DataFrame:
    parsed = F.from_json(F.col("value").cast("string"), schema, JSON_OPTIONS)
    values: list[Column] = [F.col("key").cast("string").alias("_key"), parsed.alias("_json")]
    return rows.select(*values, *(column.alias(name) for name, column in stamps.items())).select(
        *(F.col("_json")[field.name].alias(field.name) for field in schema.fields),
        *(["_key"] if "_key" not in schema.names else []),
        *(name for name in stamps if name not in schema.names),
    )


def _inferred(rows: DataFrame) -> StructType:
    """The columns of JSON values, from a sample of them."""
    from pyspark.sql.types import ArrayType, StructType

    sample = rows.select(F.col("value").cast("string").alias("value")).limit(_SAMPLE).collect()
    text = "[" + ",".join(row.value for row in sample if row.value) + "]"
    if text == "[]":
        return StructType()
    spark = rows.sparkSession
    ddl = spark.range(1).select(F.schema_of_json(F.lit(text))).collect()[0][0]
    array = spark.range(0).select(F.from_json(F.lit(text), ddl).alias("a")).schema["a"].dataType
    element = array.elementType if isinstance(array, ArrayType) else None
    return element if isinstance(element, StructType) else StructType()
