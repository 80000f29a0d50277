"""Reads the `recon_ledger` table of a database: its own record of recon's writes.

Each row was committed in one transaction with the rows of its micro-batch. By the primary key (pipeline, sink, epoch,
batch_id) a micro-batch is committed once. By the unique key (pipeline, sink, write_number) only one of two drivers that
have read the same entries commits, whatever their epochs and batch ids are.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from recon.model import REMOVALS, ReconStamp, RecordCount, SinkCommit, SinkLog
from recon.model.wire.ledger_row import LEDGER_TABLE, JdbcEntry, ledger_key, parse_ledger_row

if TYPE_CHECKING:
    from sqlalchemy import Select, Table
    from sqlalchemy.engine import Connection, Engine


def ledger_table(schema: str | None) -> Table:
    """The table's definition for SQLAlchemy.

    Names are compared byte by byte, whatever the database's collation; times are UTC without a zone.
    """
    from sqlalchemy import BigInteger, Column, DateTime, MetaData, String, Table, Text, UniqueConstraint
    from sqlalchemy.dialects import mssql, mysql

    binary = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}

    def word(length: int) -> Any:
        exact = String(length).with_variant(mysql.VARCHAR(length, **binary), "mysql")
        return exact.with_variant(mssql.NVARCHAR(length, collation="Latin1_General_BIN2"), "mssql")

    text = Text().with_variant(mysql.LONGTEXT(**binary), "mysql").with_variant(mssql.NVARCHAR(None), "mssql")
    instant = DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql").with_variant(mssql.DATETIME2(6), "mssql")
    number = BigInteger()
    return Table(
        LEDGER_TABLE,
        MetaData(),
        Column("pipeline", word(200), primary_key=True),
        Column("sink", word(200), primary_key=True),
        Column("epoch", number, primary_key=True, autoincrement=False),
        Column("batch_id", number, primary_key=True, autoincrement=False),
        Column("write_number", number, nullable=False),
        Column("query_id", word(64), nullable=False),
        Column("run_id", word(64)),
        Column("target", word(400), nullable=False),
        Column("offsets", text, nullable=False),
        Column("prev_hash", word(64), nullable=False),
        Column("rows_given", number, nullable=False),
        Column("rows_written", number, nullable=False),
        Column("committed_at", instant, nullable=False),
        Column("recon_version", word(40), nullable=False),
        UniqueConstraint("pipeline", "sink", "write_number", name="recon_ledger_write"),
        schema=schema,
        mysql_engine="InnoDB",
    )


def find(connection: Connection, schema: str | None, stamp: ReconStamp) -> JdbcEntry | None:
    """The entry under this micro-batch's key; None when there is none. The table must exist."""
    from sqlalchemy import select

    table = ledger_table(schema)
    key = ledger_key(stamp)
    row = connection.execute(select(table).where(*(table.c[name] == value for name, value in key.items()))).first()
    return None if row is None else parse_ledger_row(row._asdict())


def numbered(connection: Connection, schema: str | None, stamp: ReconStamp) -> JdbcEntry | None:
    """The entry of the write with this number; None when there is none. The table must exist."""
    from sqlalchemy import select

    table = ledger_table(schema)
    key = {"pipeline": stamp.pipeline, "sink": stamp.sink, "write_number": stamp.number}
    row = connection.execute(select(table).where(*(table.c[name] == value for name, value in key.items()))).first()
    return None if row is None else parse_ledger_row(row._asdict())


def numbered_behind(
    connection: Connection, schema: str | None, pipeline: str, sink: str, number: int
) -> list[JdbcEntry]:
    """The writes of a pipeline's sink with a higher number than this. The table must exist."""
    from sqlalchemy import select

    table = ledger_table(schema)
    mine = (table.c.pipeline == pipeline, table.c.sink == sink, table.c.write_number > number)
    return [parse_ledger_row(row._asdict()) for row in connection.execute(select(table).where(*mine)).all()]


def newest_number(connection: Connection, schema: str | None, pipeline: str, sink: str) -> int:
    """The number of the newest write of a pipeline's sink, 0 before the first. The table must exist."""
    from sqlalchemy import func, select

    table = ledger_table(schema)
    newest = select(func.max(table.c.write_number)).where(table.c.pipeline == pipeline, table.c.sink == sink)
    return int(connection.execute(newest).scalar() or 0)


def read(
    engine: Engine,
    *,
    schema: str | None,
    target: str,
    pipeline: str,
    sink: str,
    since: datetime | None = None,
) -> SinkLog:
    """Every write of a pipeline's sink in the database's own record, oldest first.

    Args:
        engine: connects to the database.
        schema: the schema that holds the table; None for the connection's own.
        target: the table that was written to, as the sink names it.
        pipeline: the pipeline's name.
        sink: the sink's name.
        since: only what was committed after this instant.

    Raises:
        sqlalchemy.exc.SQLAlchemyError: the database or the table cannot be read.
    """
    import sqlalchemy
    from sqlalchemy import select

    table = ledger_table(schema)
    mine = select(table).where(table.c.pipeline == pipeline, table.c.sink == sink, table.c.target == target)
    wanted = _since(mine, table, since)
    with engine.connect() as connection:
        if not sqlalchemy.inspect(connection).has_table(LEDGER_TABLE, schema=schema):
            return SinkLog(location=target, exists=False)
        rows = connection.execute(wanted.order_by(table.c.epoch, table.c.batch_id)).all()
    entries = [parse_ledger_row(row._asdict()) for row in rows]
    return SinkLog(location=target, exists=True, commits=tuple(map(_commit, entries)))


def written(connection: Connection, schema: str | None, target: str) -> dict[tuple[str, str], tuple[int, int]]:
    """By pipeline and sink that wrote into a table: the rows it brought, and the doubled rows that its repairs removed.

    The table must exist.
    """
    from sqlalchemy import case, func, select

    table = ledger_table(schema)
    removal = table.c.epoch == REMOVALS
    brought = func.sum(case((removal, 0), else_=table.c.rows_written))
    removed = func.sum(case((removal, table.c.rows_written), else_=0))
    of_target = select(table.c.pipeline, table.c.sink, brought, removed).where(table.c.target == target)
    rows = connection.execute(of_target.group_by(table.c.pipeline, table.c.sink)).all()
    return {(pipeline, sink): (int(came), int(went)) for pipeline, sink, came, went in rows}


def counted(connection: Connection, schema: str | None, pipeline: str, sink: str, up_to: int) -> RecordCount:
    """The writes of a pipeline's sink into whatever table, and those of them up to a number. The table must exist."""
    from sqlalchemy import case, func, select

    table = ledger_table(schema)
    is_old = table.c.write_number <= up_to
    figures = select(
        func.max(table.c.write_number),
        func.count(),
        func.sum(table.c.rows_written),
        func.sum(case((is_old, 1), else_=0)),
        func.sum(case((is_old, table.c.rows_written), else_=0)),
    ).where(table.c.pipeline == pipeline, table.c.sink == sink)
    newest, writes, rows, old_writes, old_rows = (int(figure or 0) for figure in connection.execute(figures).one())
    return RecordCount(newest=newest, writes=writes, rows=rows, kept=(old_writes, old_rows))


def writes_behind(
    connection: Connection, schema: str | None, target: str, pipeline: str, sink: str, number: int, limit: int
) -> list[tuple[int, int]]:
    """(epoch, batch_id) of a sink's writes into a table behind a number, in order, at most so many.

    The table must exist.
    """
    from sqlalchemy import select

    table = ledger_table(schema)
    mine = (table.c.pipeline == pipeline, table.c.sink == sink, table.c.target == target)
    wanted = select(table.c.epoch, table.c.batch_id).where(*mine, table.c.write_number > number)
    rows = connection.execute(wanted.order_by(table.c.write_number).limit(limit)).all()
    return [(int(epoch), int(batch_id)) for epoch, batch_id in rows]


def of_others(
    connection: Connection, schema: str | None, target: str, pipeline: str, sink: str, since: datetime | None
) -> tuple[SinkCommit, ...]:
    """The writes into a table that are not of this pipeline's sink, oldest first. The table must exist.

    Args:
        connection: to the database.
        schema: the schema that holds the table; None for the connection's own.
        target: the table that was written to, as sinks name it.
        pipeline: the pipeline whose sink is left out.
        sink: that sink.
        since: only what was committed after this instant.

    Raises:
        EvidenceError: a row does not hold what recon writes there.
    """
    from sqlalchemy import not_, select

    table = ledger_table(schema)
    own = (table.c.pipeline == pipeline) & (table.c.sink == sink)
    wanted = _since(select(table).where(table.c.target == target, not_(own)), table, since)
    rows = connection.execute(wanted.order_by(table.c.committed_at)).all()
    return tuple(_commit(parse_ledger_row(row._asdict())) for row in rows)


def _since(wanted: Select[Any], table: Table, since: datetime | None) -> Select[Any]:
    if since is None:
        return wanted
    return wanted.where(table.c.committed_at > since.astimezone(UTC).replace(tzinfo=None))


def _commit(entry: JdbcEntry) -> SinkCommit:
    stamp, rows = replace(entry.stamp, given=entry.given), entry.rows
    if stamp.epoch == REMOVALS:  # it wrote no rows
        stamp, rows = replace(entry.stamp, held=entry.given, removed=entry.rows), 0
    return SinkCommit(version=None, stamp=stamp, rows=rows, at=entry.at)
