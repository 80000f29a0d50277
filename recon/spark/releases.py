"""What the releases of PySpark do in different ways, for all that recon supports."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


def try_cast(column: Column, to: DataType | str) -> Column:
    """The column as another type; NULL where a value is none of that type, whether the session is ANSI or not.

    Args:
        column: what to cast.
        to: the type, or its name in Spark's notation.
    """
    from pyspark.sql import Column as Class

    # A Column answers any name with a field of itself: only its class says what it can do.
    return column.try_cast(to) if hasattr(Class, "try_cast") else _try_cast_3_5(column, to)


def _try_cast_3_5(column: Column, to: DataType | str) -> Column:
    from pyspark import SparkContext
    from pyspark.sql import column as columns

    context, java, make_column = SparkContext._active_spark_context, cast("Any", column), cast("Any", columns).Column
    assert context is not None and context._jvm is not None
    scala, sql = context._jvm.scala, context._jvm.org.apache.spark.sql
    expressions = sql.catalyst.expressions
    kind = sql.types.DataType.fromJson((data_type(to) if isinstance(to, str) else to).json())
    # Without a time zone here the analyser takes the session's.
    casted = expressions.Cast(java._jc.expr(), kind, scala.Option.empty(), expressions.EvalMode.TRY())
    return cast("Column", make_column(sql.Column(casted)))


def parse(sql: str) -> bool:
    """Has the JVM parse an expression now; since 4.0 Spark parses it when the column is used.

    Returns:
        Whether it did: a session of Spark Connect has no JVM here, and some services do not give access to it.

    Raises:
        ParseException: it is no SQL.
    """
    from pyspark.sql import SparkSession

    try:
        parser = cast("Any", SparkSession.active())._jsparkSession.sessionState().sqlParser()
    except Exception:
        return False
    parser.parseExpression(sql)
    return True


def to_arrow(frame: DataFrame) -> pa.Table:
    """The rows of a frame, collected as an Arrow table."""
    if hasattr(type(frame), "toArrow"):
        return frame.toArrow()
    import pyarrow as pa

    schema, batches = arrow_schema(frame.schema), cast("Any", frame)._collect_as_arrow()
    # The batches have the session's time zone in their types; the instants are the same.
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def from_arrow(spark: SparkSession, table: pa.Table, schema: StructType | str) -> DataFrame:
    """A frame of an Arrow table; its plan contains the rows, but on 3.5, which has them in an RDD.

    Args:
        spark: the session.
        table: the rows; its types are those that Spark makes of the schema.
        schema: the frame's columns, or their DDL string.
    """
    if int(spark.version.split(".")[0]) >= 4:
        return spark.createDataFrame(table, schema)
    columns = (column.to_pylist(maps_as_pydicts="strict") for column in table.columns)
    return spark.createDataFrame([*zip(*columns, strict=True)], schema)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types of a frame's columns; those of timestamps are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    named = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}  # since 4.2
    return cast("Any", to_arrow_schema)(schema, **named)


def data_type(ddl: str) -> DataType:
    """The type that Spark's notation names: `decimal(10,2)`, or a struct: `id long, name string`.

    Raises:
        Exception: what Spark's parser says, of a text that names none.
    """
    from pyspark.sql import types

    if hasattr(types.DataType, "fromDDL"):
        return types.DataType.fromDDL(ddl)
    return types._parse_datatype_string(ddl)
