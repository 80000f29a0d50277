"""The MERGE that keeps one row per key, in SQL, whatever the table's format; and the errors of a MERGE as sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from recon.base.errors import ConfigError, SinkError
from recon.spark.columns import expression, quoted
from recon.spark.errors import refusal, without_sqlstate
from recon.spark.merge import Clause
from recon.write.sinks.reduce import DELETED, MergeRows


def of(side: str, column: str) -> str:
    """A column of the target (`t`) or of the source (`s`)."""
    return f"{side}.{quoted(column)}"


def same_keys(rows: MergeRows) -> str:
    """Whether a row of the target has the keys of one of the source."""
    return " AND ".join(f"{of('t', key)} = {of('s', key)}" for key in rows.keys)


def newest_clauses(rows: MergeRows) -> list[Clause]:
    """The clauses that keep one row per key; the source has one row per key, reduced as `rows` do.

    Raises:
        ParseException: a condition of the sink is no SQL.
    """
    sink, deleted = rows.sink, of("s", DELETED)
    newer = "true"
    if sink.newer_wins is not None:
        column = rows.column(sink.newer_wins)
        newer = f"({of('s', column)} > {of('t', column)} OR {of('t', column)} IS NULL)"
    update, insert = f"{newer} AND NOT {deleted}", f"NOT {deleted}"
    if sink.update_when is not None:
        update = f"{update} AND {_condition(sink.update_when, 'update_when')}"
    if sink.insert_when is not None:
        insert = f"{insert} AND {_condition(sink.insert_when, 'insert_when')}"
    values = {quoted(column): of("s", column) for column in rows.frame.columns}
    clauses = [Clause(matched=True, condition=f"{deleted} AND {newer}")] if sink.delete_when is not None else []
    clauses.append(Clause(matched=True, condition=update, values=values))
    clauses.append(Clause(matched=False, condition=insert, values=values))
    return clauses


@contextmanager
def explained(rows: MergeRows, target: str) -> Iterator[None]:
    """Makes a SinkError of what Spark says of a MERGE that it cannot run; everything else is raised as it is."""
    from pyspark.errors import ParseException

    try:
        yield
    except SinkError:
        raise
    except (ParseException, ConfigError) as error:
        raise SinkError(f"{rows.name}: a condition of the sink is no SQL: {without_sqlstate(error)}") from error
    except Exception as error:
        reason = refusal(error)
        if reason is None:
            raise
        raise SinkError(
            f"{rows.name} cannot be merged into {target}: {reason}; nothing of it was written: "
            "correct the sink's conditions or the transform, then restart the query"
        ) from error


def _condition(sql: str, argument: str) -> str:
    """A condition of recon.yml as a part of a larger one, even where it ends with a comment."""
    expression(sql, argument)  # without a JVM gateway it is parsed with the statement
    return f"({sql}\n)"
