"""The table that rows are moved into: its columns and keys, what a sink requires of them, and making it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from recon.base.errors import SinkError
from recon.model import ReconStamp
from recon.project.sinks import JdbcUpsertSink
from recon.spark.columns import quoted
from recon.spark.lazy import F
from recon.write.sinks.jdbc.dialects import TableName, column_type
from recon.write.sinks.jdbc.rows import NESTED, instant
from recon.write.sinks.jdbc.table import JdbcWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField
    from sqlalchemy.engine import Inspector
    from sqlalchemy.types import TypeEngine

log = logging.getLogger("recon")


class Target:
    """The target of an append. What it refuses is a SinkError, before anything is written."""

    keys: tuple[str, ...] = ()

    def __init__(self, writer: JdbcWriter) -> None:
        self._writer, self._table = writer, writer.target
        self._columns: dict[str, TypeEngine[Any]] | None = None

    def fit(self, frame: DataFrame, stamp: ReconStamp) -> tuple[DataFrame, list[str]]:
        """The rows with the target's column names, and timestamps as its columns' types need them; and those names."""
        columns = self._described(frame, stamp)
        names: dict[str, str] = {}
        absent: list[StructField] = []
        for field in frame.schema.fields:
            kind = field.dataType.typeName()
            if kind in NESTED or "interval" in kind or kind == "void":
                raise self._no_type(field.name, field.dataType, stamp)
            alike = [name for name in columns if name.lower() == field.name.lower()]
            if field.name in columns:
                names[field.name] = field.name
            elif len(alike) == 1:
                names[field.name] = alike[0]
            else:
                absent.append(field)
        if absent:
            types = {field.name: self._type_of(field, stamp, key=False) for field in absent}
            raise self._writer.refused(
                stamp,
                f"the table has no column {', '.join(types)}",
                f"add it: {self._writer.dialect.add_columns(self._table, types)}",
            )
        self._require_columns(list(names.values()), frame, stamp)
        database = self._writer.database.kind
        out = [
            instant(F.col(quoted(old)), frame.schema[old].dataType, columns[new], database).alias(new)
            for old, new in names.items()
        ]
        return frame.select(*out), list(names.values())

    def _require_columns(self, names: Sequence[str], frame: DataFrame, stamp: ReconStamp) -> None:
        """Raises SinkError where the rows lack a column that the sink needs."""

    def _described(self, frame: DataFrame, stamp: ReconStamp) -> Mapping[str, TypeEngine[Any]]:
        """The types of the target's columns by name, read once; with `create_table` a missing table is made."""
        import sqlalchemy
        from sqlalchemy.exc import NoSuchTableError

        def described() -> dict[str, TypeEngine[Any]]:
            columns = sqlalchemy.inspect(self._writer.engine).get_columns(self._table.name, schema=self._table.schema)
            return {column["name"]: column["type"] for column in columns}

        if self._columns is None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of types that SQLAlchemy does not know
                    columns = described()
            except NoSuchTableError:
                if not self._writer.sink.create_table:
                    raise self._writer.refused(
                        stamp, "there is no such table", f"create {self._table}, or set create_table: true"
                    ) from None
                self._create(frame, stamp)
                columns = described()
            self._require_usable(columns, stamp)
            self._columns = columns
        return self._columns

    def _create(self, frame: DataFrame, stamp: ReconStamp) -> None:
        from sqlalchemy import Column, MetaData, Table
        from sqlalchemy.exc import SQLAlchemyError

        columns = []
        for field in frame.schema.fields:
            key = field.name in self.keys
            of = self._type_of(field, stamp, key=key)
            columns.append(Column(field.name, of, primary_key=key, autoincrement=False))
        self._require_keys(frame.columns, frame, stamp)
        table = Table(self._table.name, MetaData(), *columns, schema=self._table.schema, mysql_engine="InnoDB")
        try:
            table.create(self._writer.engine, checkfirst=True)
        except SQLAlchemyError as error:
            raise self._writer.failed(error, stamp) from None
        log.info("%s: made %s", stamp.label, self._writer.where)

    def _require_keys(self, names: Sequence[str], frame: DataFrame, stamp: ReconStamp) -> None:
        for key in self.keys:
            if key not in names:
                raise self._writer.refused(
                    stamp,
                    f"the rows have no column {key}, which is one of the keys; they have {', '.join(frame.columns)}",
                    "add it in the transform, or correct keys",
                )

    def _type_of(self, field: StructField, stamp: ReconStamp, *, key: bool) -> TypeEngine[Any]:
        of = column_type(field.dataType, self._writer.database.kind, key=key)
        if of is None:
            raise self._no_type(field.name, field.dataType, stamp)
        return of

    def _no_type(self, name: str, data_type: DataType, stamp: ReconStamp) -> SinkError:
        product = self._writer.database.product
        return self._writer.refused(
            stamp,
            f"column {name} is {data_type.simpleString()[:60]}, which a {product} column cannot hold",
            f"split it into columns or write it as text (to_json({name})) in the transform",
        )

    def _require_usable(self, columns: Mapping[str, Any], stamp: ReconStamp) -> None:
        """Raises SinkError for a table that this sink cannot write to."""
        from sqlalchemy import text

        if self._writer.database.kind != "mysql":
            return
        with self._writer.engine.connect() as connection:
            engine = connection.execute(
                text(
                    "SELECT t.ENGINE, e.TRANSACTIONS FROM information_schema.TABLES t "
                    "LEFT JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE "
                    "WHERE t.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND t.TABLE_NAME = :name"
                ),
                {"schema": self._table.schema, "name": self._table.name},
            ).first()
        if engine is not None and engine[1] == "NO":
            raise self._writer.refused(
                stamp,
                f"its storage engine is {engine[0]}, which has no transactions",
                f"make it one that has: ALTER TABLE {self._table} ENGINE=InnoDB",
            )


class UpsertTarget(Target):
    """The target of an upsert: it has a unique key on exactly the keys, and the rows have the columns that decide."""

    def __init__(self, writer: JdbcWriter, sink: JdbcUpsertSink) -> None:
        super().__init__(writer)
        self._sink, self.keys = sink, sink.keys
        self._other_keys: Sequence[Sequence[str]] = ()

    @override
    def _require_usable(self, columns: Mapping[str, Any], stamp: ReconStamp) -> None:
        import sqlalchemy

        super()._require_usable(columns, stamp)
        writer, dialect = self._writer, self._writer.dialect
        for key in self.keys:
            if key not in columns:
                raise writer.refused(
                    stamp,
                    f"it has no column {key}, which is one of the keys; it has {', '.join(columns)}",
                    "correct keys, whose names are the table's",
                )
        unique = list(unique_keys(sqlalchemy.inspect(writer.engine), self._table))
        if not any(set(names) == set(self.keys) for names in unique):
            name = dialect.quote(f"{self._table.name}_recon_key")
            raise writer.refused(
                stamp,
                f"it has no primary key or unique index on exactly {', '.join(self.keys)}",
                f"add one: CREATE UNIQUE INDEX {name} ON {dialect.table(self._table)} ({dialect.quoted(self.keys)})",
            )
        self._other_keys = [other for other in unique if set(other) != set(self.keys)]

    @override
    def _require_columns(self, names: Sequence[str], frame: DataFrame, stamp: ReconStamp) -> None:
        self._require_keys(names, frame, stamp)
        sink = self._sink
        newer_wins = [sink.newer_wins] if sink.newer_wins else []
        for option, columns in (("update", sink.update or ()), ("order_by", sink.order_by), ("newer_wins", newer_wins)):
            for column in columns:
                if column not in names:
                    raise self._writer.refused(
                        stamp,
                        f"the rows have no column {column}, which {option} names; they have {', '.join(names)}",
                        f"add it in the transform, or correct {option}",
                    )
        for other in self._other_keys:
            # ON DUPLICATE KEY means any key: it would update a row of other keys that has the same value there.
            if self._writer.database.kind == "mysql" and set(other) <= set(names):
                raise self._writer.refused(
                    stamp,
                    f"besides the keys it has a unique key on {', '.join(other)}, and ON DUPLICATE KEY UPDATE would "
                    "update whichever row has either",
                    "drop that key, or make it a plain index",
                )


def unique_keys(inspector: Inspector, table: TableName) -> Iterator[Sequence[str]]:
    """The columns of every unique key of a table that holds for all rows."""
    name, schema = table.name, table.schema
    if primary := inspector.get_pk_constraint(name, schema=schema)["constrained_columns"]:
        yield primary
    for index in inspector.get_indexes(name, schema=schema):
        options = index.get("dialect_options", {})
        partial = any(key.endswith(("_where", "_filter")) and value for key, value in options.items())
        columns = index["column_names"]
        if index["unique"] and not partial and None not in columns:
            yield [column for column in columns if column is not None]
    for constraint in inspector.get_unique_constraints(name, schema=schema):
        yield constraint["column_names"]
