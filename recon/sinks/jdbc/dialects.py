"""The SQL of each database: staging tables, the upsert, new tables. Text in, text out; every identifier is quoted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from recon.sinks.jdbc.database import Kind

if TYPE_CHECKING:
    from pyspark.sql.types import DataType
    from sqlalchemy.engine import Dialect as Engines
    from sqlalchemy.types import TypeEngine


@dataclass(frozen=True)
class TableName:
    """A table's name with its schema (in MariaDB and MySQL: its database), None for the connection's own."""

    name: str
    schema: str | None = None

    @classmethod
    def parse(cls, text: str) -> TableName:
        """`table`, `schema.table`, or `database.schema.table`.

        >>> TableName.parse("shop.dbo.orders")
        TableName(name='orders', schema='shop.dbo')
        """
        schema, _, name = text.strip().rpartition(".")
        return cls(name, schema or None)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, kw_only=True)
class Upsert:
    """One upsert: `columns` of `stage` into `target`; rows with equal `keys` are the same row.

    `update` are the columns that an update sets. `latest` orders rows of one key within the stage, the greatest wins.
    `newer_wins`: a row of the target is only replaced by one that is not older by this column.
    """

    target: TableName
    stage: TableName
    columns: Sequence[str]
    keys: Sequence[str]
    update: Sequence[str]
    latest: Sequence[str] = ()
    newer_wins: str | None = None


class Dialect(ABC):
    """The SQL of one database."""

    kind: Kind

    def __init__(self) -> None:
        self._quote = self.engines().identifier_preparer.quote_identifier

    @abstractmethod
    def engines(self) -> Engines:
        """SQLAlchemy's dialect, for quoting and the names of types."""

    def quote(self, name: str) -> str:
        """A column's name, always quoted."""
        return self._quote(name)

    def quoted(self, names: Iterable[str], before: str = "") -> str:
        """Columns, separated by commas, each with a qualifier before it."""
        return ", ".join(f"{before}{self.quote(name)}" for name in names)

    def table(self, table: TableName) -> str:
        """A table's name, its parts quoted."""
        parts = [*(table.schema.split(".") if table.schema else ()), table.name]
        return ".".join(self.quote(part) for part in parts)

    @abstractmethod
    def create_stage(self, stage: TableName, target: TableName, columns: Sequence[str]) -> str:
        """Makes an empty table with columns of the target's types that all allow NULL."""

    def drop(self, table: TableName) -> str:
        """Drops a table if it is there."""
        return f"DROP TABLE IF EXISTS {self.table(table)}"

    def insert(self, target: TableName, stage: TableName, columns: Sequence[str]) -> str:
        """Appends all rows of the stage."""
        names = self.quoted(columns)
        return f"INSERT INTO {self.table(target)} ({names}) SELECT {names} FROM {self.table(stage)}"

    @abstractmethod
    def upsert(self, what: Upsert) -> str:
        """Inserts new keys and updates those that are there, one row of the stage per key."""

    def reduced(self, what: Upsert) -> str:
        """One row of the stage per key, the latest, as a SELECT.

        The database decides which keys are equal (collations, `citext`, numbers of other scales): Spark would not.
        """
        names, order = self.quoted(what.columns), self._latest_first(what.latest or what.keys)
        number = f"ROW_NUMBER() OVER (PARTITION BY {self.quoted(what.keys)} ORDER BY {order}) AS recon_nth"
        inner = f"SELECT {names}, {number} FROM {self.table(what.stage)}"
        return f"SELECT {names} FROM ({inner}) AS recon_one WHERE recon_nth = 1"

    def _latest_first(self, columns: Sequence[str]) -> str:
        return ", ".join(f"{self.quote(column)} DESC" for column in columns)

    def taken(self, what: Upsert, identity: Sequence[str]) -> str:
        """Counts the keys whose row in the target has the stage's values in the columns `identity`."""
        on = " AND ".join(f"t.{self.quote(c)} = s.{self.quote(c)}" for c in (*what.keys, *identity))
        return f"SELECT COUNT(*) FROM {self.table(what.target)} AS t JOIN ({self.reduced(what)}) AS s ON {on}"

    @property
    def counts_updates_once(self) -> bool:
        """Whether `rows affected` counts an updated row as one."""
        return True

    @abstractmethod
    def utc_now(self) -> str:
        """The database's clock in UTC, without a zone."""

    @abstractmethod
    def type_of(self, data_type: DataType, *, key: bool) -> TypeEngine[Any] | None:
        """The column type for a type of Spark's in a new table; None when there is none."""

    def add_columns(self, table: TableName, columns: Sequence[tuple[str, TypeEngine[Any]]]) -> str:
        """ALTER TABLE that adds columns."""
        added = (f"{self.quote(name)} {of.compile(dialect=self.engines())}" for name, of in columns)
        return f"ALTER TABLE {self.table(table)} ADD COLUMN " + ", ADD COLUMN ".join(added)

    def plain_type(self, data_type: DataType) -> TypeEngine[Any] | None:
        """The types that all databases have."""
        from pyspark.sql import types as t
        from sqlalchemy import types as s

        plain: dict[type[DataType], Any] = {
            t.BooleanType: s.Boolean(),
            t.ByteType: s.SmallInteger(),
            t.ShortType: s.SmallInteger(),
            t.IntegerType: s.Integer(),
            t.LongType: s.BigInteger(),
            t.FloatType: s.REAL(),
            t.DateType: s.Date(),
        }
        if isinstance(data_type, t.DecimalType):
            return s.Numeric(data_type.precision, data_type.scale)
        return plain.get(type(data_type))


class PostgreSQL(Dialect):
    """`INSERT … ON CONFLICT`."""

    kind = "postgresql"

    @override
    def engines(self) -> Engines:
        from sqlalchemy.dialects import postgresql

        return postgresql.dialect()

    @override
    def create_stage(self, stage: TableName, target: TableName, columns: Sequence[str]) -> str:
        """Unlogged: a stage needs no recovery after a crash, which empties it."""
        return (
            f"CREATE UNLOGGED TABLE {self.table(stage)} WITH (autovacuum_enabled = false) AS "
            f"SELECT {self.quoted(columns)} FROM {self.table(target)} WITH NO DATA"
        )

    @override
    def upsert(self, what: Upsert) -> str:
        """ON CONFLICT changes a row of the target once only: hence one row per key."""
        sets = ", ".join(f"{self.quote(c)} = EXCLUDED.{self.quote(c)}" for c in what.update)
        where = ""
        if what.newer_wins:
            newer = self.quote(what.newer_wins)
            where = f" WHERE recon_t.{newer} IS NULL OR EXCLUDED.{newer} >= recon_t.{newer}"
        return (
            f"INSERT INTO {self.table(what.target)} AS recon_t ({self.quoted(what.columns)}) {self.reduced(what)} "
            f"ON CONFLICT ({self.quoted(what.keys)}) DO UPDATE SET {sets}{where}"
        )

    @override
    def _latest_first(self, columns: Sequence[str]) -> str:
        return ", ".join(f"{self.quote(column)} DESC NULLS LAST" for column in columns)

    @override
    def utc_now(self) -> str:
        return "timezone('utc', clock_timestamp())"

    @override
    def type_of(self, data_type: DataType, *, key: bool) -> TypeEngine[Any] | None:
        """Texts without a length."""
        from pyspark.sql import types as t
        from sqlalchemy.dialects import postgresql as p

        own: dict[type[DataType], Any] = {
            t.StringType: p.TEXT(),
            t.DoubleType: p.DOUBLE_PRECISION(),
            t.BinaryType: p.BYTEA(),
            t.TimestampType: p.TIMESTAMP(timezone=True),
            t.TimestampNTZType: p.TIMESTAMP(),
        }
        return own.get(type(data_type)) or self.plain_type(data_type)


class MySQL(Dialect):
    """`INSERT … ON DUPLICATE KEY UPDATE`, in MariaDB's syntax, which MySQL accepts too."""

    kind = "mysql"

    @override
    def engines(self) -> Engines:
        from sqlalchemy.dialects import mysql

        return mysql.dialect()

    @override
    def create_stage(self, stage: TableName, target: TableName, columns: Sequence[str]) -> str:
        """Columns of the inner side of an outer join allow NULL."""
        return (
            f"CREATE TABLE {self.table(stage)} ENGINE=InnoDB AS SELECT {self.quoted(columns, 't.')} "
            f"FROM (SELECT 1 AS one) AS o LEFT JOIN {self.table(target)} AS t ON 1 = 0 WHERE 1 = 0"
        )

    @override
    def upsert(self, what: Upsert) -> str:
        """Assignments are done from left to right, so the column that decides comes last."""
        mine = f"{self.quote(what.target.name)}."
        order = sorted(what.update, key=lambda column: column == what.newer_wins)
        sets = []
        for column in order:
            name, value = self.quote(column), f"VALUES({self.quote(column)})"
            if what.newer_wins:
                newer = self.quote(what.newer_wins)
                value = f"IF({mine}{newer} IS NULL OR VALUES({newer}) >= {mine}{newer}, {value}, {mine}{name})"
            sets.append(f"{mine}{name} = {value}")
        return (
            f"INSERT INTO {self.table(what.target)} ({self.quoted(what.columns)}) {self.reduced(what)} "
            f"ON DUPLICATE KEY UPDATE {', '.join(sets)}"
        )

    @property
    def counts_updates_once(self) -> bool:
        """An update counts as two, one that changes nothing as none."""
        return False

    @override
    def utc_now(self) -> str:
        return "UTC_TIMESTAMP(6)"

    @override
    def type_of(self, data_type: DataType, *, key: bool) -> TypeEngine[Any] | None:
        """A key needs a length; DATETIME(6) and DOUBLE have Spark's precision."""
        from pyspark.sql import types as t
        from sqlalchemy.dialects import mysql as m

        own: dict[type[DataType], Any] = {
            t.StringType: m.VARCHAR(255) if key else m.LONGTEXT(),
            t.DoubleType: m.DOUBLE(),
            t.FloatType: m.FLOAT(),
            t.BinaryType: m.VARBINARY(255) if key else m.LONGBLOB(),
            t.TimestampType: m.DATETIME(fsp=6),
            t.TimestampNTZType: m.DATETIME(fsp=6),
        }
        return own.get(type(data_type)) or self.plain_type(data_type)


class SQLServer(Dialect):
    """`MERGE … WITH (HOLDLOCK)`, for SQL Server and Azure SQL."""

    kind = "mssql"

    @override
    def engines(self) -> Engines:
        from sqlalchemy.dialects import mssql

        return mssql.dialect()

    @override
    def create_stage(self, stage: TableName, target: TableName, columns: Sequence[str]) -> str:
        """Columns of the inner side of an outer join allow NULL, and none is an identity."""
        return (
            f"SELECT {self.quoted(columns, 't.')} INTO {self.table(stage)} FROM (SELECT 1 AS one) AS o "
            f"LEFT JOIN {self.table(target)} AS t ON 1 = 0 WHERE 1 = 0"
        )

    @override
    def upsert(self, what: Upsert) -> str:
        """HOLDLOCK locks the range of a missing key, so that no other transaction inserts it meanwhile."""
        on = " AND ".join(f"t.{self.quote(key)} = s.{self.quote(key)}" for key in what.keys)
        sets = ", ".join(f"{self.quote(c)} = s.{self.quote(c)}" for c in what.update)
        matched = ""
        if what.newer_wins:
            newer = self.quote(what.newer_wins)
            matched = f" AND (t.{newer} IS NULL OR s.{newer} >= t.{newer})"
        return (
            f"MERGE INTO {self.table(what.target)} WITH (HOLDLOCK) AS t USING ({self.reduced(what)}) AS s ON ({on}) "
            f"WHEN MATCHED{matched} THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED THEN INSERT ({self.quoted(what.columns)}) VALUES ({self.quoted(what.columns, 's.')});"
        )

    @override
    def utc_now(self) -> str:
        return "SYSUTCDATETIME()"

    @override
    def add_columns(self, table: TableName, columns: Sequence[tuple[str, TypeEngine[Any]]]) -> str:
        """Without the word COLUMN."""
        added = (f"{self.quote(name)} {of.compile(dialect=self.engines())}" for name, of in columns)
        return f"ALTER TABLE {self.table(table)} ADD " + ", ".join(added)

    @override
    def type_of(self, data_type: DataType, *, key: bool) -> TypeEngine[Any] | None:
        """Unicode texts; a key may have 450 characters."""
        from pyspark.sql import types as t
        from sqlalchemy.dialects import mssql as m

        own: dict[type[DataType], Any] = {
            t.StringType: m.NVARCHAR(450 if key else None),
            t.DoubleType: m.DOUBLE_PRECISION(),
            t.BinaryType: m.VARBINARY(900) if key else m.VARBINARY("max"),
            t.TimestampType: m.DATETIMEOFFSET(6),
            t.TimestampNTZType: m.DATETIME2(6),
        }
        return own.get(type(data_type)) or self.plain_type(data_type)


def dialect_of(kind: Kind) -> Dialect:
    """The dialect of a kind of database; needs SQLAlchemy."""
    dialects: Mapping[Kind, type[Dialect]] = {"postgresql": PostgreSQL, "mysql": MySQL, "mssql": SQLServer}
    return dialects[kind]()


__all__ = ["Dialect", "MySQL", "PostgreSQL", "SQLServer", "TableName", "Upsert", "dialect_of"]
