"""Convert a micro-batch's columns for a database: timestamps, and texts for COPY."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recon.spark.columns import quoted
from recon.spark.lazy import F
from recon.write.sinks.jdbc.database import Kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType
    from sqlalchemy.types import TypeEngine

# Types of Spark's that no column of a database holds as they are.
NESTED = {"array", "map", "struct", "variant"}


def instant(column: Column, data_type: DataType, to: TypeEngine[Any], kind: Kind) -> Column:
    """A timestamp for its column's type: an instant, or the wall clock in the session's time zone."""
    if data_type.typeName() != "timestamp":
        return column
    visit = str(getattr(to, "__visit_name__", "")).upper()
    if kind == "mysql" and visit == "TIMESTAMP":
        # An instant, in the connection's time zone, which is UTC. The driver sends wall clocks only.
        seconds = F.unix_micros(column).cast("decimal(24,6)") / F.lit(1_000_000)
        zero = F.lit(0)
        return F.lit("1970-01-01").cast("timestamp_ntz") + F.make_dt_interval(zero, zero, zero, seconds)
    with_zone = bool(getattr(to, "timezone", False)) or visit == "DATETIMEOFFSET"
    wall_clock = visit in ("TIMESTAMP", "DATETIME", "DATETIME2", "SMALLDATETIME")
    return column.cast("timestamp_ntz") if wall_clock and not with_zone else column


def as_texts(frame: DataFrame) -> DataFrame:
    """Columns as PostgreSQL reads them from CSV; numbers and booleans are read as they are."""
    out = []
    for field in frame.schema.fields:
        column, kind = F.col(quoted(field.name)), field.dataType.typeName()
        if kind == "timestamp":
            column = F.date_format(column, "yyyy-MM-dd HH:mm:ss.SSSSSSXXX")
        elif kind == "binary":
            column = F.concat(F.lit("\\x"), F.hex(column))
        elif kind not in ("boolean", "byte", "short", "integer", "long", "float", "double", "string"):
            column = column.cast("string")
        out.append(column.alias(field.name))
    return frame.select(*out)


def copier(arguments: Mapping[str, Any], statement: str) -> Any:
    """What each task runs. Made here so that it is pickled whole: the executors need psycopg, and not recon."""

    def copy(batches: Any) -> Any:
        import io

        import psycopg
        import pyarrow
        import pyarrow.csv

        rows = 0
        with psycopg.connect(**arguments) as connection, connection.cursor().copy(statement) as into:
            for batch in batches:
                if batch.num_rows:
                    lines = io.BytesIO()
                    pyarrow.csv.write_csv(batch, lines, pyarrow.csv.WriteOptions(include_header=False))
                    into.write(lines.getvalue())
                    rows += batch.num_rows
        yield pyarrow.RecordBatch.from_pydict({"rows": [rows]}, schema=pyarrow.schema([("rows", pyarrow.int64())]))

    return copy
