"""What the T-SQL of SQL Server's dialect does, executed by H2 in its MSSQLServer mode: no SQL Server can be had here.

H2 reads brackets, MERGE and window functions as SQL Server does. It does not know the table hint HOLDLOCK at that place
nor SELECT INTO: the hint is taken out for H2 alone, and the stage is made by H2's own statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from recon.model.fingerprint import of_offsets, of_sums
from recon.model.wire.columns import SOURCE_COLUMNS
from recon.write.sinks.jdbc.dialects import TableName, Upsert, dialect_of

COLUMNS = ("id", "name", "at", "_batch_id", "_source_offset")
WHAT = Upsert(
    target=TableName("orders"),
    stage=TableName("stage"),
    columns=COLUMNS,
    keys=("id",),
    update=("name", "at", "_batch_id", "_source_offset"),
    latest=("_source_offset",),
)
DIALECT = dialect_of("mssql")


class H2:
    """A database in memory, through Spark's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark._jvm
        assert jvm is not None
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        driver = loader.loadClass("org.h2.Driver").newInstance()
        url = "jdbc:h2:mem:;MODE=MSSQLServer;DATABASE_TO_UPPER=FALSE"
        self.connection = driver.connect(url, jvm.java.util.Properties())

    def sql(self, text: str) -> int:
        """Executes one statement; returns how many rows it touched."""
        statement = self.connection.createStatement()
        try:
            return int(statement.executeUpdate(text.replace(" WITH (HOLDLOCK)", "").rstrip(";")))
        finally:
            statement.close()

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        found = self.connection.createStatement().executeQuery(text)
        width = found.getMetaData().getColumnCount()
        rows = []
        while found.next():
            rows.append(tuple(found.getObject(n + 1) for n in range(width)))
        return rows


@pytest.fixture
def h2(spark: SparkSession) -> Iterator[H2]:
    database = H2(spark)
    columns = "[id] BIGINT{}, [name] NVARCHAR(20), [at] INT, [_batch_id] BIGINT, [_source_offset] BIGINT"
    database.sql(f"CREATE TABLE [orders] ({columns.format(' PRIMARY KEY')})")
    database.sql(f"CREATE TABLE [stage] ({columns.format('')})")
    database.sql("INSERT INTO [orders] VALUES (1, 'one', 10, 0, 0), (2, 'two', 10, 0, 1), (3, 'three', NULL, 0, 2)")
    yield database
    database.connection.close()


def staged(h2: H2, *rows: str) -> None:
    h2.sql("DELETE FROM [stage]")
    h2.sql(f"INSERT INTO [stage] VALUES {', '.join(rows)}")


def test_merge(h2: H2) -> None:
    staged(h2, "(2, 'TWO', 5, 1, 7)", "(2, 'older', 20, 1, 6)", "(4, 'four', 1, 1, 8)")
    assert h2.sql(DIALECT.upsert(WHAT)) == 2, "rows inserted and updated, one per key"
    assert h2.rows("SELECT [id], [name], [_batch_id] FROM [orders] ORDER BY 1") == [
        (1, "one", 0),
        (2, "TWO", 1),
        (3, "three", 0),
        (4, "four", 1),
    ]
    # Some columns only; the others stay.
    staged(h2, "(1, 'ONE', 99, 2, 9)")
    h2.sql(DIALECT.upsert(replace(WHAT, update=("_batch_id",))))
    assert h2.rows("SELECT [name], [at], [_batch_id] FROM [orders] WHERE [id] = 1") == [("one", 10, 2)]


def test_merge_of_newer_rows_only(h2: H2) -> None:
    what = replace(WHAT, newer_wins="at", latest=("at", "_source_offset"))
    rows = ("(1, 'older', 9, 1, 7)", "(2, 'same', 10, 1, 8)", "(3, 'any', 1, 1, 9)", "(1, 'null', NULL, 1, 10)")
    staged(h2, *rows, "(5, 'new', NULL, 1, 11)")
    assert h2.sql(DIALECT.upsert(what)) == 3
    found = h2.rows("SELECT [id], [name] FROM [orders] ORDER BY 1")
    assert found == [(1, "one"), (2, "same"), (3, "any"), (5, "new")]
    assert h2.rows(DIALECT.count_written(what, ["_batch_id", "_source_offset"])) == [(3,)]


def test_append_and_drop(h2: H2) -> None:
    staged(h2, "(8, 'x', 1, 1, 1)", "(9, NULL, 1, 1, 2)")
    assert h2.sql(DIALECT.insert(WHAT.target, WHAT.stage, COLUMNS)) == 2
    h2.sql(DIALECT.drop(WHAT.stage))
    h2.sql(DIALECT.drop(WHAT.stage))
    assert h2.rows("SELECT COUNT(*) FROM [orders]") == [(5,)]


def test_rows_and_repeated_offsets(h2: H2) -> None:
    """Without the collation, which H2 does not know."""
    columns = "[_source_topic] NVARCHAR(249), [_source_partition] INT, [_source_offset] BIGINT, [_batch_id] BIGINT"
    h2.sql(f"CREATE TABLE [lines] ({columns})")
    h2.sql(
        "INSERT INTO [lines] VALUES ('t', 0, 1, 7), ('t', 0, 1, 7), ('t', 0, 2, NULL), ('u', 0, 1, 7), "
        "(NULL, 0, 1, 7), ('t', 0, NULL, NULL)"
    )

    def plain(query: str) -> list[Any]:
        return h2.rows(query.replace(" COLLATE Latin1_General_BIN2", ""))

    def counted(query: str) -> dict[str | None, tuple[int, int]]:
        return {topic: (int(held), int(numbered)) for topic, held, numbered in plain(query)}

    lines = TableName("lines")
    by_topic = {"t": (3, 2), "u": (1, 1), None: (2, 1)}
    assert counted(DIALECT.count_rows(lines, SOURCE_COLUMNS, "_batch_id")) == by_topic
    assert counted(DIALECT.count_rows(lines, [], "_batch_id")) == {None: (6, 4)}
    assert counted(DIALECT.count_rows(lines, [], None)) == {None: (6, 0)}
    sums = DIALECT.sum_offsets(lines, SOURCE_COLUMNS, ["t", "u"], "_batch_id")
    h2.sql("INSERT INTO [lines] VALUES ('u', 0, 4000000000000000000, 7)")
    found = {(int(n), int(p)): of_sums("tu"[int(n)], int(p), *map(int, of)) for n, p, *of in plain(sums)}
    assert found == {(0, 0): of_offsets("t", 0, [1, 1]), (1, 0): of_offsets("u", 0, [1, 4 * 10**18])}
    h2.sql("DELETE FROM [lines] WHERE [_source_offset] > 2")
    query = DIALECT.count_repeated(lines, SOURCE_COLUMNS, ["t", "u"])
    assert plain(query)[0][0] == 1
