"""The SQL of each dialect: parsed by sqlglot, names quoted, and where the text itself matters, the text."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

import pytest
import sqlglot
from pyspark.sql import types as t
from sqlglot import exp

from recon.model.fingerprint import of_offsets, of_sums
from recon.model.wire.columns import SOURCE_COLUMNS
from recon.witness.jdbc_ledger import ledger_table
from recon.write.sinks.jdbc.database import Kind
from recon.write.sinks.jdbc.dialects import TableName, Upsert, column_type, dialect_of

KINDS: dict[Kind, str] = {"postgresql": "postgres", "mysql": "mysql", "mssql": "tsql"}
WHAT = Upsert(
    target=TableName("orders", "shop"),
    stage=TableName("recon_stage_1", "shop"),
    columns=("id", "select", "at", "_batch_id"),
    keys=("id",),
    update=("select", "at", "_batch_id"),
    latest=("at", "_source_offset"),
)
TOPICS = ("orders", "payments.eu-1")
EVIL = 'a"b`c]d; DROP TABLE x'


def one(sql: str, kind: Kind) -> Any:
    """The one statement that the text is."""
    found = sqlglot.parse(sql, read=KINDS[kind])
    assert len([statement for statement in found if statement is not None]) == 1
    return found[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("newer", [None, "at"])
def test_the_upsert_is_one_statement(kind: Kind, newer: str | None) -> None:
    dialect = dialect_of(kind)
    what = replace(WHAT, newer_wins=newer)
    statement = one(dialect.upsert(what), kind)
    assert isinstance(statement, exp.Merge if kind == "mssql" else exp.Insert)
    assert {table.name for table in statement.find_all(exp.Table)} >= {"orders", "recon_stage_1"}
    window = statement.find(exp.Window)
    assert window is not None and [c.name for c in window.args["partition_by"]] == ["id"]
    assert [o.this.name for o in window.args["order"].expressions] == ["at", "_source_offset"]
    assert all(o.args["desc"] for o in window.args["order"].expressions)
    assert (">=" in dialect.upsert(what)) == (newer is not None)
    for sql in (
        dialect.create_stage(what.stage, what.target, what.columns),
        dialect.insert(what.target, what.stage, what.columns),
        dialect.count_written(what, ["_batch_id"]),
        dialect.drop(what.stage),
        dialect.delete_older(what),
        dialect.count_undecided(what),
        dialect.doubled(what.target),
        dialect.count_rows(what.target, [], None),
        dialect.count_rows(what.target, SOURCE_COLUMNS, "_batch_id"),
        dialect.count_repeated(what.target, SOURCE_COLUMNS, TOPICS),
        dialect.sum_offsets(what.target, SOURCE_COLUMNS, TOPICS, "_batch_id"),
        dialect.limited(dialect.count_repeated(what.target, SOURCE_COLUMNS, TOPICS), 7)[-1],
        *([dialect.delete_doubled(what.target)] if kind != "mssql" else []),
    ):
        one(sql, kind)


# (at, topic, partition, offset) of a record that is read late, and of the row of its key: what becomes of the record.
LATE = [
    ((5, "t", 0, 1), (9, "t", 0, 7), "older", "older"),
    ((9, "t", 0, 1), (5, "t", 0, 7), "later", "older"),
    ((5, "t", 0, 9), (5, "t", 0, 7), "later", "later"),
    ((5, "t", 0, 7), (5, "t", 0, 7), "older", "older"),
    ((5, "t", 0, 1), (5, "t", 1, 7), "undecided", "undecided"),
    ((5, "t", 0, 1), (5, "u", 0, 7), "undecided", "undecided"),
    ((9, "t", 0, 1), (5, "t", 1, 7), "later", "undecided"),
    ((5, "t", 0, 1), (9, "t", 1, 7), "older", "undecided"),
    ((None, "t", 0, 1), (9, "t", 1, 7), "older", "undecided"),
    ((5, "t", 0, 1), (None, "t", 1, 7), "later", "undecided"),
    ((None, "t", 0, 9), (None, "t", 0, 7), "later", "later"),
    ((None, "t", 0, 9), (None, "t", 1, 7), "undecided", "undecided"),
    ((5, "t", 0, 1), (5, None, None, None), "undecided", "undecided"),
    ((9, "t", 0, 1), (5, None, None, None), "later", "undecided"),
    ((5, "t", 0, 1), None, "later", "later"),
]


@pytest.mark.parametrize("newer", ["at", None])
@pytest.mark.parametrize(("record", "row", "by_age", "by_offset"), LATE)
def test_which_record_is_the_later(
    record: tuple[Any, ...], row: tuple[Any, ...] | None, by_age: str, by_offset: str, newer: str | None
) -> None:
    dialect = dialect_of("postgresql")
    what = replace(WHAT, target=TableName("orders"), stage=TableName("stage"), newer_wins=newer)
    database = sqlite3.connect(":memory:")
    for table in ("orders", "stage"):
        columns = "id, at, _source_topic, _source_partition, _source_offset"
        database.execute(f"CREATE TABLE {table} ({columns})")
        database.execute(f"INSERT INTO {table} VALUES (2, 1, 't', 0, 3)")  # another key
    database.execute("DELETE FROM stage")
    database.execute("INSERT INTO stage VALUES (1, ?, ?, ?, ?)", record)
    if row is not None:
        database.execute("INSERT INTO orders VALUES (1, ?, ?, ?, ?)", row)
    undecided = database.execute(dialect.count_undecided(what)).fetchone()[0]
    database.execute(dialect.delete_older(what))
    left = database.execute("SELECT COUNT(*) FROM stage").fetchone()[0]
    became = "undecided" if undecided else "later" if left else "older"
    assert became == (by_age if newer else by_offset)


def test_rows_and_repeated_offsets_are_counted_by_topic() -> None:
    dialect, orders = dialect_of("postgresql"), TableName("orders")
    database = sqlite3.connect(":memory:")
    database.create_collation("C", lambda one, other: (one > other) - (one < other))
    columns = "_source_topic TEXT COLLATE NOCASE, _source_partition, _source_offset, _batch_id"
    database.execute(f"CREATE TABLE orders ({columns})")
    rows = [("t", 0, 1)] * 3 + [("t", 1, 1), ("T", 0, 1), ("t", 0, 2), ("u", 0, 2), ("u", 0, 2)]
    unknown = [(None, 0, 1)] * 2 + [("t", None, 1), ("t", 0, None), ("t", 0, None), (None, None, None)]
    database.executemany("INSERT INTO orders VALUES (?, ?, ?, 7)", [*rows, *unknown])
    database.execute("INSERT INTO orders VALUES ('u', 0, 9, NULL)")

    def counted(query: str) -> dict[str | None, tuple[int, int]]:
        return {topic: (held, numbered) for topic, held, numbered in database.execute(query)}

    by_topic = {"t": (5, 5), "T": (1, 1), "u": (3, 2), None: (6, 6)}
    assert counted(dialect.count_rows(orders, SOURCE_COLUMNS, "_batch_id")) == by_topic
    for topics, repeated in ((["t"], 2), (["u", "t"], 3), (["T"], 0), (["u"], 1), (["v"], 0)):
        query = dialect.count_repeated(orders, SOURCE_COLUMNS, topics)
        assert database.execute(query).fetchone() == (repeated,)
    # The fingerprint of rows with a _batch_id, also where an offset's cube has more than 64 bits.
    database.create_function("MOD", 2, lambda number, by: number % by, deterministic=True)
    database.execute("INSERT INTO orders VALUES ('t', 1, 4000000000000000000, 8)")
    sums = database.execute(dialect.sum_offsets(orders, SOURCE_COLUMNS, ["u", "t"], "_batch_id")).fetchall()
    found = {("tu"[number], partition): of_sums("tu"[number], partition, *of) for number, partition, *of in sums}
    assert found == {
        ("t", 0): of_offsets("t", 0, [1, 1, 1, 2]),
        ("t", 1): of_offsets("t", 1, [1, 4 * 10**18]),
        ("u", 0): of_offsets("u", 0, [2, 2]),
    }
    database.execute("DELETE FROM orders WHERE _batch_id = 8")
    assert counted(dialect.count_rows(orders, [], "_batch_id")) == {None: (15, 14)}
    assert counted(dialect.count_rows(orders, [], None)) == {None: (15, 0)}


def test_a_count_has_a_time_limit_of_the_database() -> None:
    query = dialect_of("mysql").count_repeated(WHAT.target, SOURCE_COLUMNS, TOPICS)
    assert (
        dialect_of("mysql").limited(query, 7)[0].startswith("SELECT /*+ MAX_EXECUTION_TIME(7000) */ COUNT(*) - COUNT(")
    )
    assert dialect_of("mysql").limited(query, 7, mariadb=True) == (f"SET STATEMENT max_statement_time = 7 FOR {query}",)
    assert dialect_of("postgresql").limited(query, 7) == ("SET LOCAL statement_timeout = 7000", query)


def test_tsql() -> None:
    dialect = dialect_of("mssql")
    columns, stage = "[id], [select], [at], [_batch_id]", "[shop].[recon_stage_1]"
    number = "ROW_NUMBER() OVER (PARTITION BY [id] ORDER BY [at] DESC, [_source_offset] DESC) AS recon_nth"
    one_per_key = f"SELECT {columns} FROM (SELECT {columns}, {number} FROM {stage}) AS recon_one WHERE recon_nth = 1"
    assert dialect.upsert(replace(WHAT, newer_wins="at")) == (
        f"MERGE INTO [shop].[orders] WITH (HOLDLOCK) AS t USING ({one_per_key}) AS s ON (t.[id] = s.[id]) WHEN MATCHED "
        "AND (t.[at] IS NULL OR s.[at] >= t.[at]) THEN UPDATE SET [select] = s.[select], [at] = s.[at], [_batch_id] = "
        f"s.[_batch_id] WHEN NOT MATCHED THEN INSERT ({columns}) VALUES (s.[id], s.[select], s.[at], s.[_batch_id]);"
    )
    made = dialect.create_stage(WHAT.stage, WHAT.target, ["id"])
    assert made.startswith(f"SELECT t.[id] INTO {stage} FROM")
    assert dialect.table(TableName.parse("db.dbo.orders")) == "[db].[dbo].[orders]"


def test_mysql_decides_before_it_overwrites_what_decides() -> None:
    sql = dialect_of("mysql").upsert(replace(WHAT, newer_wins="at"))
    assignments = sql.split("ON DUPLICATE KEY UPDATE ")[1]
    assert assignments.rindex("`orders`.`at` = IF(") > assignments.index("`orders`.`_batch_id` = IF(")
    newer = "`orders`.`at` IS NULL OR VALUES(`at`) >= `orders`.`at`"
    assert assignments.startswith(f"`orders`.`select` = IF({newer}, VALUES(`select`), `orders`.`select`)")


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_quoted_whatever_they_hold(kind: Kind) -> None:
    dialect = dialect_of(kind)
    target = TableName(EVIL.replace(".", ""))
    what = replace(WHAT, target=target, columns=(EVIL, "id"), update=(EVIL,), keys=("id",), latest=(EVIL,))
    for sql in (
        dialect.upsert(what),
        dialect.insert(target, what.stage, what.columns),
        dialect.create_stage(what.stage, target, what.columns),
        dialect.drop(target),
    ):
        statement = one(sql, kind)
        assert EVIL in {identifier.name for identifier in statement.find_all(exp.Identifier)}


@pytest.mark.parametrize("kind", KINDS)
def test_recon_ledger_is_made_and_keyed(kind: Kind) -> None:
    from sqlalchemy.schema import CreateTable

    sql = str(CreateTable(ledger_table("shop")).compile(dialect=dialect_of(kind).sqlalchemy))
    statement = one(sql, kind)
    key = statement.find(exp.PrimaryKey)
    assert [column.name for column in key.expressions] == ["pipeline", "sink", "epoch", "batch_id"]
    # Names that differ in case only are two.
    exact = {"postgresql": "VARCHAR(200)", "mysql": "COLLATE utf8mb4_bin", "mssql": "COLLATE Latin1_General_BIN2"}
    assert exact[kind] in sql and ("IDENTITY" in sql, "AUTO_INCREMENT" in sql) == (False, False)


@pytest.mark.parametrize("kind", KINDS)
def test_types_of_a_new_table(kind: Kind) -> None:
    dialect = dialect_of(kind)
    plain = [
        t.StringType(),
        t.LongType(),
        t.IntegerType(),
        t.ShortType(),
        t.ByteType(),
        t.BooleanType(),
        t.DoubleType(),
    ]
    plain += [
        t.FloatType(),
        t.DecimalType(20, 4),
        t.DateType(),
        t.TimestampType(),
        t.TimestampNTZType(),
        t.BinaryType(),
    ]
    types = {f"c{n}": column_type(of, kind, key=False) for n, of in enumerate(plain)}
    assert all(of is not None for of in types.values())
    one(dialect.add_columns(WHAT.target, types), kind)  # type: ignore[arg-type]
    nested = [t.ArrayType(t.LongType()), t.MapType(t.StringType(), t.LongType()), t.StructType(), t.NullType()]
    assert [column_type(of, kind, key=False) for of in nested] == [None] * 4


def test_names_of_tables() -> None:
    assert TableName.parse("orders") == TableName("orders") and str(TableName.parse("a.b")) == "a.b"
    assert dialect_of("postgresql").table(TableName.parse('we"ird.t')) == '"we""ird"."t"'
