"""An upsert into PostgreSQL: through recon's sink, by the common pattern, and what Spark's plain append costs.

Each round writes the same 200,000 rows of 8 columns and recon's four, half of whose keys the table has, into tables
that are filled alike before. Ours: `JdbcUpsert.write` and `confirm`. Floor: `foreachPartition` with psycopg's
executemany of `INSERT … ON CONFLICT DO UPDATE`, 5,000 rows at a time, a transaction per partition; it has no entry and
no guarantee, and rows pass through Python. As peers, against the same floor: Spark's plain JDBC append of the same rows
to an empty table with the same key, which updates nothing, and our sink with `stage_with: copy`. They take turns, in
another order each round. MariaDB's ratio, by PyMySQL's executemany of `ON DUPLICATE KEY UPDATE`, is printed beside it.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

ROWS = 200_000
TASKS = 4
ROUNDS = 5
WARM_UP = 1
COLUMNS = {
    "order_id": "bigint",
    "customer": "varchar(40)",
    "status": "varchar(20)",
    "amount": "decimal(12,2)",
    "quantity": "int",
    "country": "varchar(2)",
    "note": "varchar(100)",
    "updated_at": "timestamp",
    "_source_topic": "varchar(200)",
    "_source_partition": "int",
    "_source_offset": "bigint",
    "_batch_id": "bigint",
}


def run() -> dict[str, Any]:
    """Medians of the seconds that a write of all rows takes."""
    from recon.local.spark import spark_session
    from tests.support.drivers import JDBC_DRIVERS
    from tests.support.mariadb import LocalMariaDB, find_mariadb
    from tests.support.postgres import LocalPostgres

    find_mariadb()
    spark = spark_session("jdbc_upsert", extra_packages=JDBC_DRIVERS, conf={"spark.driver.memory": "3g"})
    try:
        frame = _rows(spark).cache()
        assert frame.count() == ROWS
        with LocalPostgres() as server:
            postgres_seconds = _rounds(frame, server, ("ours", "floor", "plain", "copy"), ROUNDS)
        with LocalMariaDB() as server:
            other = _rounds(frame, server, ("ours", "floor", "plain"), 3)
    finally:
        spark.stop()
    for name, seconds in (("PostgreSQL", postgres_seconds), ("MariaDB", other)):
        ratio = seconds["ours"] / seconds["floor"]
        medians = {contender: round(median, 2) for contender, median in seconds.items()}
        print(f"jdbc_upsert, {name}: {json.dumps(medians)}, {ratio:.3f}", file=sys.stderr)
    return {
        "name": "jdbc_upsert",
        "ours": postgres_seconds["ours"],
        "floor": postgres_seconds["floor"],
        "ratio": postgres_seconds["ours"] / postgres_seconds["floor"],
        "unit": "s",
        "peers": {
            "spark_jdbc_append": postgres_seconds["plain"] / postgres_seconds["floor"],
            "stage_with_copy": postgres_seconds["copy"] / postgres_seconds["floor"],
        },
    }


def _rows(spark: Any) -> Any:
    return spark.range(0, ROWS, 1, TASKS).selectExpr(
        "id AS order_id",
        "concat('customer-', id % 5000) AS customer",
        "element_at(array('new', 'paid', 'shipped'), cast(id % 3 AS int) + 1) AS status",
        "cast(id % 100000 / 7 AS decimal(12,2)) AS amount",
        "cast(id % 9 AS int) AS quantity",
        "element_at(array('de', 'fr', 'pl', 'it'), cast(id % 4 AS int) + 1) AS country",
        "repeat('x', cast(id % 60 AS int)) AS note",
        "timestamp_seconds(1780000000 + id) AS updated_at",
        "'orders' AS _source_topic",
        "cast(id % 8 AS int) AS _source_partition",
        "id AS _source_offset",
        "7L AS _batch_id",
    )


def _rounds(frame: Any, server: Any, names: tuple[str, ...], rounds: int) -> dict[str, float]:
    """Medians by contender, each round in another order."""
    postgres = "postgresql" in server.url
    columns = ", ".join(f"{name} {of}" for name, of in COLUMNS.items())
    columns = columns.replace(" timestamp", " timestamptz" if postgres else " datetime(6)")
    server.sql(f"CREATE TABLE orders ({columns}, PRIMARY KEY (order_id))", f"CREATE TABLE start ({columns})")
    writes: dict[str, Callable[[Any, int], None]] = {
        "ours": _ours(server, "jdbc"),
        "copy": _ours(server, "copy"),
        "floor": _executemany(server, postgres),
        "plain": _plain(server),
    }
    writes["plain"](frame, 0)
    half = f"INSERT INTO start SELECT * FROM orders WHERE order_id < {ROWS // 2}"
    server.sql(half)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(WARM_UP + rounds):
        for name in _in_turn(names, turn):
            server.sql("TRUNCATE orders", *([] if name == "plain" else ["INSERT INTO orders SELECT * FROM start"]))
            server.sql("VACUUM ANALYZE orders" if postgres else "ANALYZE TABLE orders")
            began = time.perf_counter()
            writes[name](frame, turn)
            taken[name].append(time.perf_counter() - began)
            assert server.sql("SELECT COUNT(*), MIN(_batch_id), MAX(_batch_id) FROM orders") == [(ROWS, 7, 7)], name
        last = {name: round(seconds[-1], 2) for name, seconds in taken.items()}
        print(f"jdbc_upsert: turn {turn}: {json.dumps(last)}", file=sys.stderr, flush=True)
    return {name: statistics.median(seconds[WARM_UP:]) for name, seconds in taken.items()}


def _in_turn(names: tuple[str, ...], turn: int) -> Iterator[str]:
    yield from names[turn % len(names) :] + names[: turn % len(names)]


def _ours(server: Any, stage_with: str) -> Callable[[Any, int], None]:
    from recon.model import ReconStamp
    from recon.project.sinks import JdbcUpsertSink
    from recon.write.sinks.jdbc.writers import JdbcUpsert

    # `copy` is not MariaDB's; it is never called there.
    how = stage_with if "postgresql" in server.url else "jdbc"
    options = {"name": f"orders_{stage_with}", "kind": "jdbc_upsert", "target": "orders", "keys": ["order_id"]}
    sink = JdbcUpsert(
        "bench", JdbcUpsertSink.model_validate({**options, "connection": server.connection, "stage_with": how})
    )

    def write(frame: Any, turn: int) -> None:
        stamp = ReconStamp(
            pipeline="bench",
            sink=sink.sink.name,
            epoch=0,
            batch_id=turn,
            query_id="q",
            run_id=None,
            prev_hash="",
            offsets_text=f'[[0,"orders",null,[0],[{turn}],[{turn + 1}]]]',
            number=turn + 1,
        )
        sink.write(frame, stamp)
        assert sink.confirm(stamp).rows == ROWS

    return write


def _plain(server: Any) -> Callable[[Any, int], None]:
    mariadb = "mariadb" in server.url
    options = {"user": server.user, "password": server.password, "dbtable": "orders", "batchsize": "10000"}
    if mariadb:
        options["url"] = server.url.replace("mariadb:", "mysql:") + "?permitMysqlScheme"
        options["driver"] = "org.mariadb.jdbc.Driver"
    else:
        options |= {"url": server.url, "driver": "org.postgresql.Driver", "reWriteBatchedInserts": "true"}

    def write(frame: Any, turn: int) -> None:
        frame.write.format("jdbc").mode("append").options(**options).save()

    return write


def _executemany(server: Any, postgres: bool) -> Callable[[Any, int], None]:
    names = list(COLUMNS)
    login = {"host": "127.0.0.1", "port": server.port, "user": server.user, "password": server.password}
    login["dbname" if postgres else "database"] = server.database
    values = ", ".join(["%s"] * len(names))
    if postgres:
        sets = ", ".join(f"{name} = EXCLUDED.{name}" for name in names[1:])
        statement = f"INSERT INTO orders VALUES ({values}) ON CONFLICT (order_id) DO UPDATE SET {sets}"
    else:
        sets = ", ".join(f"{name} = VALUES({name})" for name in names[1:])
        statement = f"INSERT INTO orders VALUES ({values}) ON DUPLICATE KEY UPDATE {sets}"

    def upsert(rows: Any) -> None:
        from itertools import islice

        if postgres:
            import psycopg as driver
        else:
            import pymysql as driver

        connection = driver.connect(**login)
        try:
            cursor = connection.cursor()
            while some := [tuple(row) for row in islice(rows, 5000)]:
                cursor.executemany(statement, some)
            connection.commit()
        finally:
            connection.close()

    def write(frame: Any, turn: int) -> None:
        frame.foreachPartition(upsert)

    return write
