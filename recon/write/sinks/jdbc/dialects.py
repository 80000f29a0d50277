"""The SQL of each database: staging tables, the upsert, new tables. Text in, text out; every identifier is quoted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from recon.model.fingerprint import PRIME
from recon.model.wire.columns import BATCH_ID, SOURCE_COLUMNS
from recon.write.sinks.jdbc.database import Kind

if TYPE_CHECKING:
    from pyspark.sql.types import DataType
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
    utc_now: str  # the database's clock in UTC, without a zone
    deletes_by_range = False  # whether `delete_doubled` takes a range of offsets, and not one at a time
    counts_updates_once = True  # whether `rows affected` counts an updated row as one
    reads_snapshots = True  # whether a REPEATABLE READ transaction sees one moment, and blocks nobody
    _descending = "DESC"  # NULLs last

    def __init__(self) -> None:
        from sqlalchemy.dialects import registry

        self.sqlalchemy = registry.load(self.kind)()  # quotes names, and knows the names of types

    def quote(self, name: str) -> str:
        """A column's name, always quoted."""
        return str(self.sqlalchemy.identifier_preparer.quote_identifier(name))

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

    def _no_rows_of(self, target: TableName) -> str:
        # Columns of the inner side of an outer join allow NULL, and none is an identity.
        return f"FROM (SELECT 1 AS one) AS o LEFT JOIN {self.table(target)} AS t ON 1 = 0 WHERE 1 = 0"

    def drop(self, table: TableName) -> str:
        """Drops a table if it is there."""
        return f"DROP TABLE IF EXISTS {self.table(table)}"

    def insert(self, target: TableName, stage: TableName, columns: Sequence[str]) -> str:
        """Appends all rows of the stage."""
        names = self.quoted(columns)
        return f"INSERT INTO {self.table(target)} ({names}) SELECT {names} FROM {self.table(stage)}"

    @abstractmethod
    def upsert(self, upsert: Upsert) -> str:
        """Inserts new keys and updates those that are there, one row of the stage per key."""

    def reduced(self, upsert: Upsert) -> str:
        """One row of the stage per key, the latest, as a SELECT.

        The database decides which keys are equal (collations, `citext`, numbers of other scales): Spark would not.
        """
        names = self.quoted(upsert.columns)
        order = ", ".join(f"{self.quote(column)} {self._descending}" for column in upsert.latest or upsert.keys)
        number = f"ROW_NUMBER() OVER (PARTITION BY {self.quoted(upsert.keys)} ORDER BY {order}) AS recon_nth"
        inner = f"SELECT {names}, {number} FROM {self.table(upsert.stage)}"
        return f"SELECT {names} FROM ({inner}) AS recon_one WHERE recon_nth = 1"

    def count_written(self, upsert: Upsert, identity: Sequence[str]) -> str:
        """Counts the keys whose row in the target has the stage's values in the columns `identity`."""
        on = " AND ".join(f"t.{self.quote(c)} = s.{self.quote(c)}" for c in (*upsert.keys, *identity))
        return f"SELECT COUNT(*) FROM {self.table(upsert.target)} AS t JOIN ({self.reduced(upsert)}) AS s ON {on}"

    def count_keys(self, table: TableName, keys: Sequence[str]) -> str:
        """Counts the different keys of a table."""
        names = self.quoted(keys)
        return f"SELECT COUNT(*) FROM (SELECT {names} FROM {self.table(table)} GROUP BY {names}) AS recon_keys"

    def delete_older(self, upsert: Upsert) -> str:
        """Deletes the stage's rows that are no later than the target's row of their key.

        The later row has the greater `newer_wins`; NULL is the lowest. Where these are equal, or there is no
        `newer_wins`, it has the greater offset of the same topic partition.
        """
        topic, partition, offset = (self._sides(upsert, column) for column in SOURCE_COLUMNS)
        later = f"({topic[0]} = {topic[1]} AND {partition[0]} = {partition[1]} AND {offset[0]} > {offset[1]})"
        if upsert.newer_wins:
            mine, theirs = self._sides(upsert, upsert.newer_wins)
            newer = f"({mine} IS NOT NULL AND ({theirs} IS NULL OR {mine} > {theirs}))"
            later = f"({newer} OR ({self._equally_old(upsert)} AND {later}))"
        matches = self._row_of_its_key(upsert, f"CASE WHEN {later} THEN 1 ELSE 0 END = 0")
        return f"DELETE FROM {self.table(upsert.stage)} WHERE {matches}"

    def count_undecided(self, upsert: Upsert) -> str:
        """Counts the stage's rows of which `delete_older` cannot say whether they are later: of other partitions."""
        topic, partition, offset = (self._sides(upsert, column) for column in SOURCE_COLUMNS)
        comparable = f"{topic[0]} = {topic[1]} AND {partition[0]} = {partition[1]} AND {offset[1]} IS NOT NULL"
        undecided = f"CASE WHEN {comparable} THEN 0 ELSE 1 END = 1"
        if upsert.newer_wins:
            undecided = f"{self._equally_old(upsert)} AND {undecided}"
        return f"SELECT COUNT(*) FROM {self.table(upsert.stage)} WHERE {self._row_of_its_key(upsert, undecided)}"

    def _sides(self, upsert: Upsert, column: str) -> tuple[str, str]:
        """A column of the stage and of the target."""
        return f"{self.table(upsert.stage)}.{self.quote(column)}", f"recon_t.{self.quote(column)}"

    def _equally_old(self, upsert: Upsert) -> str:
        mine, theirs = self._sides(upsert, upsert.newer_wins or "")
        return f"({mine} = {theirs} OR ({mine} IS NULL AND {theirs} IS NULL))"

    def _row_of_its_key(self, upsert: Upsert, condition: str) -> str:
        """Whether the target has a row of a stage row's key that meets a condition."""
        keys = " AND ".join("{} = {}".format(*self._sides(upsert, key)) for key in upsert.keys)
        return f"EXISTS (SELECT 1 FROM {self.table(upsert.target)} AS recon_t WHERE {keys} AND {condition})"

    def count_rows(self, target: TableName, source: Sequence[str], batch: str | None) -> str:
        """Counts a table's rows by the topic that they were made of, NULL where one of `source` is.

        The third column has how many of them have a `_batch_id`.

        Args:
            target: the table.
            source: its columns with topic, partition and offset; none where it has no such columns.
            batch: its column `_batch_id`; None where it has none.
        """
        number = "NULL" if batch is None else self.quote(batch)
        if not source:
            numbered = "0" if batch is None else f"COUNT({number})"  # SQL Server counts no bare NULL
            return f"SELECT NULL, COUNT(*), {numbered} FROM {self.table(target)}"
        topic, *others = source
        missing = " OR ".join(f"{self.quote(column)} IS NULL" for column in others)
        named = f"CASE WHEN {missing} THEN NULL ELSE {self.exact(topic)} END AS topic"
        of_row = f"SELECT {named}, {number} AS batch FROM {self.table(target)}"
        return f"SELECT topic, COUNT(*), COUNT(batch) FROM ({of_row}) AS recon_rows GROUP BY topic"

    def count_repeated(self, target: TableName, source: Sequence[str], topics: Collection[str]) -> str:
        """Counts the rows of some topics that have the topic, partition and offset of another: all but one of each.

        The names of the topics are those that Kafka allows.
        """
        number, partition, offset = self._place(source, topics)
        several = (
            f"SELECT COUNT(*) AS n FROM (SELECT {number} AS topic, {partition} AS part, {offset} AS place "
            f"FROM {self.table(target)} WHERE {self._of_topics(source, topics)}) AS recon_rows "
            "GROUP BY topic, part, place HAVING COUNT(*) > 1"
        )
        return f"SELECT COALESCE(SUM(n - 1), 0) FROM ({several}) AS recon_several"

    def sum_offsets(self, target: TableName, source: Sequence[str], topics: Collection[str], batch: str) -> str:
        """Sums the offsets of rows of some topics that have a `_batch_id`, these squared, and cubed, modulo a prime.

        By the place of the topic among the names in order, and by partition. See `recon.model.fingerprint`.
        """
        number, partition, offset = self._place(source, topics)
        known = f"{self._of_topics(source, topics)} AND {self.quote(batch)} IS NOT NULL"
        reduced = self._bigint(self._modulo(self._bigint(offset)))  # some give a remainder the type of the divisor
        of_rows = (
            f"SELECT {number} AS topic, {partition} AS part, {reduced} AS o FROM {self.table(target)} WHERE {known}"
        )
        square = self._bigint(self._modulo("o * o"))
        squares = f"SELECT topic, part, o, {square} AS oo FROM ({of_rows}) AS recon_rows"
        sums = f"SUM(o), SUM(oo), SUM({self._modulo('o * oo')})"
        return f"SELECT topic, part, {sums} FROM ({squares}) AS recon_squares GROUP BY topic, part"

    def _bigint(self, column: str) -> str:
        return f"CAST({column} AS BIGINT)"

    def _modulo(self, number: str) -> str:
        return f"MOD({number}, {PRIME})"

    def _place(self, source: Sequence[str], topics: Collection[str]) -> tuple[str, str, str]:
        """A number for the topic, which is compared faster than its name, the partition and the offset."""
        topic, partition, offset = source
        numbers = " ".join(f"WHEN '{name}' THEN {number}" for number, name in enumerate(sorted(topics)))
        return f"CASE {self.exact(topic)} {numbers} END", self.quote(partition), self.quote(offset)

    def _of_topics(self, source: Sequence[str], topics: Collection[str]) -> str:
        topic, *others = source
        known = "".join(f" AND {self.quote(column)} IS NOT NULL" for column in others)
        names = ", ".join(f"'{name}'" for name in sorted(topics))
        return f"{self.exact(topic)} IN ({names}){known}"

    @abstractmethod
    def exact(self, topic: str) -> str:
        """A column with names of topics, compared byte by byte whatever its collation."""

    def limited(self, query: str, seconds: int, *, mariadb: bool = False) -> Sequence[str]:
        """Statements of which the last is a query that the database gives up after so many seconds, where it can."""
        return (query,)

    def doubled(self, target: TableName) -> str:
        """The offsets of a range of a topic partition that have several rows, and how many; binds `:low` and so on."""
        offset, rows = self.quote(SOURCE_COLUMNS[2]), f"FROM {self.table(target)} WHERE {self._in_range()}"
        return f"SELECT {offset}, COUNT(*) {rows} GROUP BY {offset} HAVING COUNT(*) > 1"

    def delete_doubled(self, target: TableName) -> str:
        """Deletes all rows but one of doubled offsets, one of `:owner` staying; `:rows` of one offset, or of a range.

        Raises:
            NotImplementedError: no statement is known for this database.
        """
        raise NotImplementedError(self.kind)

    def _in_range(self) -> str:
        topic, partition, offset = (self.quote(column) for column in SOURCE_COLUMNS)
        return f"{topic} = :topic AND {partition} = :partition AND {offset} >= :low AND {offset} < :high"

    def add_columns(self, table: TableName, columns: Mapping[str, TypeEngine[Any]]) -> str:
        """ALTER TABLE that adds columns."""
        return f"ALTER TABLE {self.table(table)} ADD COLUMN " + ", ADD COLUMN ".join(self._definitions(columns))

    def _definitions(self, columns: Mapping[str, TypeEngine[Any]]) -> list[str]:
        return [f"{self.quote(name)} {of.compile(dialect=self.sqlalchemy)}" for name, of in columns.items()]


class PostgreSQL(Dialect):
    """`INSERT … ON CONFLICT`."""

    kind = "postgresql"
    utc_now = "timezone('utc', clock_timestamp())"
    _descending = "DESC NULLS LAST"

    @override
    def create_stage(self, stage: TableName, target: TableName, columns: Sequence[str]) -> str:
        """Unlogged: a stage needs no recovery after a crash, which empties it."""
        return (
            f"CREATE UNLOGGED TABLE {self.table(stage)} WITH (autovacuum_enabled = false) AS "
            f"SELECT {self.quoted(columns)} FROM {self.table(target)} WITH NO DATA"
        )

    @override
    def upsert(self, upsert: Upsert) -> str:
        """ON CONFLICT changes a row of the target once only: hence one row per key."""
        sets = ", ".join(f"{self.quote(c)} = EXCLUDED.{self.quote(c)}" for c in upsert.update)
        where = ""
        if upsert.newer_wins:
            newer = self.quote(upsert.newer_wins)
            where = f" WHERE recon_t.{newer} IS NULL OR EXCLUDED.{newer} >= recon_t.{newer}"
        return (
            f"INSERT INTO {self.table(upsert.target)} AS recon_t ({self.quoted(upsert.columns)}) "
            f"{self.reduced(upsert)} ON CONFLICT ({self.quoted(upsert.keys)}) DO UPDATE SET {sets}{where}"
        )

    deletes_by_range = True

    @override
    def exact(self, topic: str) -> str:
        return f'CAST({self.quote(topic)} AS TEXT) COLLATE "C"'

    @override
    def limited(self, query: str, seconds: int, *, mariadb: bool = False) -> Sequence[str]:
        return (f"SET LOCAL statement_timeout = {seconds * 1000}", query)

    @override
    def delete_doubled(self, target: TableName) -> str:
        """Rows that differ in nothing have a place of their own, `ctid`; in a partitioned table, one in each part."""
        of_offset, table = self.quoted(SOURCE_COLUMNS), self.table(target)
        owner = f"CASE WHEN {self.quote(BATCH_ID)} = :owner THEN 0 ELSE 1 END"
        numbered = f"SELECT tableoid, ctid, ROW_NUMBER() OVER (PARTITION BY {of_offset} ORDER BY {owner}) AS recon_nth"
        rows = f"SELECT tableoid, ctid FROM ({numbered} FROM {table} WHERE {self._in_range()}) AS recon_rows"
        return f"DELETE FROM {table} WHERE (tableoid, ctid) IN ({rows} WHERE recon_nth > 1)"


class MySQL(Dialect):
    """`INSERT … ON DUPLICATE KEY UPDATE`, in MariaDB's syntax, which MySQL accepts too."""

    kind = "mysql"
    utc_now = "UTC_TIMESTAMP(6)"
    counts_updates_once = False  # an update counts as two, one that changes nothing as none

    @override
    def create_stage(self, stage: TableName, target: TableName, columns: Sequence[str]) -> str:
        select = f"SELECT {self.quoted(columns, 't.')} {self._no_rows_of(target)}"
        return f"CREATE TABLE {self.table(stage)} ENGINE=InnoDB AS {select}"

    @override
    def upsert(self, upsert: Upsert) -> str:
        """Assignments are done from left to right, so the column that decides comes last."""
        target = f"{self.quote(upsert.target.name)}."
        order = sorted(upsert.update, key=lambda column: column == upsert.newer_wins)
        sets = []
        for column in order:
            name, value = self.quote(column), f"VALUES({self.quote(column)})"
            if upsert.newer_wins:
                newer = self.quote(upsert.newer_wins)
                value = f"IF({target}{newer} IS NULL OR VALUES({newer}) >= {target}{newer}, {value}, {target}{name})"
            sets.append(f"{target}{name} = {value}")
        return (
            f"INSERT INTO {self.table(upsert.target)} ({self.quoted(upsert.columns)}) {self.reduced(upsert)} "
            f"ON DUPLICATE KEY UPDATE {', '.join(sets)}"
        )

    @override
    def exact(self, topic: str) -> str:
        return f"CAST({self.quote(topic)} AS CHAR(249) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin"

    @override
    def _bigint(self, column: str) -> str:
        return f"CAST({column} AS SIGNED)"

    @override
    def count_repeated(self, target: TableName, source: Sequence[str], topics: Collection[str]) -> str:
        """GROUP BY takes ten times as long in MariaDB, whose groups go through a table on disk."""
        distinct = f"COUNT(DISTINCT {', '.join(self._place(source, topics))})"
        return f"SELECT COUNT(*) - {distinct} FROM {self.table(target)} WHERE {self._of_topics(source, topics)}"

    @override
    def limited(self, query: str, seconds: int, *, mariadb: bool = False) -> Sequence[str]:
        if mariadb:
            return (f"SET STATEMENT max_statement_time = {seconds} FOR {query}",)
        return (query.replace("SELECT", f"SELECT /*+ MAX_EXECUTION_TIME({seconds * 1000}) */", 1),)

    @override
    def delete_doubled(self, target: TableName) -> str:
        """Which of rows that differ in nothing are deleted, does not matter."""
        owner = f"CASE WHEN {self.quote(BATCH_ID)} = :owner THEN 1 ELSE 0 END"
        return f"DELETE FROM {self.table(target)} WHERE {self._in_range()} ORDER BY {owner} LIMIT :rows"


class SQLServer(Dialect):
    """`MERGE … WITH (HOLDLOCK)`, for SQL Server and Azure SQL."""

    kind = "mssql"
    utc_now = "SYSUTCDATETIME()"
    reads_snapshots = False  # REPEATABLE READ locks the rows that it reads

    @override
    def exact(self, topic: str) -> str:
        return f"CAST({self.quote(topic)} AS NVARCHAR(249)) COLLATE Latin1_General_BIN2"

    @override
    def _modulo(self, number: str) -> str:
        return f"({number}) % {PRIME}"

    @override
    def create_stage(self, stage: TableName, target: TableName, columns: Sequence[str]) -> str:
        return f"SELECT {self.quoted(columns, 't.')} INTO {self.table(stage)} {self._no_rows_of(target)}"

    @override
    def upsert(self, upsert: Upsert) -> str:
        """HOLDLOCK locks the range of a missing key, so that no other transaction inserts it meanwhile."""
        on = " AND ".join(f"t.{self.quote(key)} = s.{self.quote(key)}" for key in upsert.keys)
        sets = ", ".join(f"{self.quote(c)} = s.{self.quote(c)}" for c in upsert.update)
        matched = ""
        if upsert.newer_wins:
            newer = self.quote(upsert.newer_wins)
            matched = f" AND (t.{newer} IS NULL OR s.{newer} >= t.{newer})"
        return (
            f"MERGE INTO {self.table(upsert.target)} WITH (HOLDLOCK) AS t "
            f"USING ({self.reduced(upsert)}) AS s ON ({on}) WHEN MATCHED{matched} THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED THEN INSERT ({self.quoted(upsert.columns)}) "
            f"VALUES ({self.quoted(upsert.columns, 's.')});"
        )

    @override
    def add_columns(self, table: TableName, columns: Mapping[str, TypeEngine[Any]]) -> str:
        return f"ALTER TABLE {self.table(table)} ADD " + ", ".join(self._definitions(columns))


def dialect_of(kind: Kind) -> Dialect:
    """The dialect of a kind of database; needs SQLAlchemy."""
    dialects: Mapping[Kind, type[Dialect]] = {"postgresql": PostgreSQL, "mysql": MySQL, "mssql": SQLServer}
    return dialects[kind]()


def column_type(data_type: DataType, kind: Kind, *, key: bool) -> TypeEngine[Any] | None:
    """The column type for a type of Spark's in a new table, a key's with the length it needs; None if there is none."""
    from pyspark.sql.types import DecimalType
    from sqlalchemy import types as s
    from sqlalchemy.dialects import mssql, mysql, postgresql

    if isinstance(data_type, DecimalType):
        return s.Numeric(data_type.precision, data_type.scale)
    of_all: dict[str, TypeEngine[Any]] = {
        "boolean": s.Boolean(),
        "byte": s.SmallInteger(),
        "short": s.SmallInteger(),
        "integer": s.Integer(),
        "long": s.BigInteger(),
        "float": s.REAL(),
        "double": s.Double(),
        "date": s.Date(),
    }
    own: dict[Kind, dict[str, TypeEngine[Any]]] = {
        "postgresql": {
            "string": postgresql.TEXT(),
            "binary": postgresql.BYTEA(),
            "timestamp": postgresql.TIMESTAMP(timezone=True),
            "timestamp_ntz": postgresql.TIMESTAMP(),
        },
        "mysql": {
            "string": mysql.VARCHAR(255) if key else mysql.LONGTEXT(),
            "float": mysql.FLOAT(),
            "binary": mysql.VARBINARY(255) if key else mysql.LONGBLOB(),
            "timestamp": mysql.DATETIME(fsp=6),
            "timestamp_ntz": mysql.DATETIME(fsp=6),
        },
        "mssql": {
            "string": mssql.NVARCHAR(450 if key else None),
            "binary": mssql.VARBINARY(900 if key else "max"),
            "timestamp": mssql.DATETIMEOFFSET(6),
            "timestamp_ntz": mssql.DATETIME2(6),
        },
    }
    return {**of_all, **own[kind]}.get(data_type.typeName())


__all__ = ["Dialect", "MySQL", "PostgreSQL", "SQLServer", "TableName", "Upsert", "column_type", "dialect_of"]
