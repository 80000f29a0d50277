"""Errors of a database, or of a Spark job that writes to it: what caused them, whether to retry, and the next step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Any, Literal

from recon.base.requirements import how_to_install
from recon.write.sinks.jdbc.database import Database, Kind

# As far as it decides the next step. `conflict`: rolled back because of another transaction (a deadlock, a lock).
Cause = Literal[
    "connection", "conflict", "login", "denied", "no_table", "null", "value", "unique", "no_key", "jar", "python",
    "other",
]  # fmt: skip
# Causes after which a retry may succeed.
RETRIED: frozenset[Cause] = frozenset({"conflict", "connection"})

# PostgreSQL's SQLSTATEs and classes of them, and the error numbers of the others.
_CODES: Mapping[Kind, Mapping[Cause, Set[Any]]] = {
    "postgresql": {
        "conflict": {"40001", "40P01", "55P03", "57014"},
        "connection": {"08", "53300", "57P01", "57P02", "57P03"},
        "login": {"28000", "28P01", "3D000"},
        "denied": {"42501"},
        "no_table": {"42P01", "3F000"},
        "null": {"23502"},
        "unique": {"23505"},
        "no_key": {"42P10", "55000"},
        "value": {"22"},
    },
    "mysql": {
        "conflict": {1020, 1205, 1213},
        "connection": {
            *(0, 1040, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1290, 1317, 1927),
            *(2002, 2003, 2006, 2013, 2014, 2055, 4031),
        },
        "login": {1044, 1045, 1049, 1698},
        "denied": {1142, 1143, 1227, 1370, 1419},
        "no_table": {1051, 1146},
        "null": {1048, 1364},
        "unique": {1062, 1586},
        "value": {1264, 1265, 1292, 1366, 1367, 1406, 1411, 3140, 4025},
    },
    "mssql": {
        "conflict": {1205, 1222, 3960},
        "connection": {
            *(64, 233, 10053, 10054, 10060, 20002, 20003, 20004, 20006, 20009, 20047),
            *(4221, 10928, 10929, 40197, 40501, 40613, 49918, 49919, 49920),  # Azure's
        },
        "login": {4060, 4064, 18456},
        "denied": {229, 230, 262, 297, 300, 2760},
        "no_table": {208, 3701},
        "null": {515},
        "unique": {2601, 2627},
        "value": {220, 241, 242, 245, 248, 2628, 8114, 8115, 8152},
    },
}
# Errors of Spark's tasks arrive as text; so do those of a connection that was never made.
_PATTERNS: tuple[tuple[Cause, str], ...] = (
    ("python", r"No module named '(psycopg|pyarrow)"),
    ("jar", r"ClassNotFoundException|No suitable driver"),
    ("login", r"authentication failed|Access denied for user|Login failed|role \"[^\"]*\" does not exist"),
    ("login", r"database \"[^\"]*\" does not exist|Unknown database|no pg_hba\.conf entry"),
    ("denied", r"permission denied|command denied|permission was denied"),
    ("conflict", r"deadlock|could not serialize|Lock wait timeout"),
    ("null", r"violates not-null|cannot be null|Cannot insert the value NULL"),
    ("no_table", r"relation \"[^\"]*\" does not exist|Table '[^']*' doesn't exist|Invalid object name"),
    ("value", r"value too long|Data too long|out of range|invalid input syntax|Incorrect \w+ value|would be truncated"),
    ("value", r"invalid byte sequence|\b0x00\b|numeric field overflow|Data truncat|is of type .* but expression"),
    ("connection", r"connection[^\n]{0,80}(refused|closed|reset|terminated|lost|timed out|unexpectedly|failed)"),
    ("connection", r"terminating connection|server closed the connection|Communications link failure|Broken pipe"),
    ("connection", r"the database system is |Server shutdown in progress|An I/O error occurred|Socket error"),
    ("connection", r"SQLNonTransientConnectionException|AdminShutdown|ConnectionTimeout|Can't connect to"),
)
# Where the database's own message begins within the error of a Spark job.
_MESSAGES = (
    r"ERROR: [^\n]*",  # PostgreSQL's, inside a BatchUpdateException
    r"FATAL: [^\n]*",
    r"(?:psycopg\.[\w.]*|ModuleNotFoundError): [^\n]*(?:\nCONTEXT:[^\n]*)?",
    r"\((?:conn|conn_id)=\d+\) [^\n]*",  # MariaDB's
    r"java\.sql\.\w+Exception: [^\n]*",
    r"(?:PSQLException|SQLServerException): [^\n]*",
    r"Caused by: [^\n]*",
    r"java\.lang\.ClassNotFoundException: [^\n]*",
)


def cause_of(error: BaseException, kind: Kind) -> Cause:
    """The cause of an error of a driver, or of a Spark job that writes."""
    import sqlalchemy.exc

    if isinstance(error, sqlalchemy.exc.DBAPIError):
        cause = _cause_by_code(error.orig, kind)
        if cause is not None:
            return cause
        if error.connection_invalidated:
            return "connection"
        if isinstance(error, sqlalchemy.exc.DataError):
            return "value"
    message = _message(error)
    for cause, pattern in _PATTERNS:
        if re.search(pattern, str(error) if cause in ("python", "jar") else message, re.IGNORECASE):
            return cause
    return "other"


def _cause_by_code(error: BaseException | None, kind: Kind) -> Cause | None:
    if kind == "postgresql":
        state = str(getattr(error, "sqlstate", None) or "")
        codes: set[Any] = {state, state[:2]}
    else:
        number = error.args[0] if error is not None and error.args else None
        if isinstance(number, tuple):  # pymssql wraps it once more
            number = number[0] if number else None
        codes = {number} if isinstance(number, int) else set()
    return next((cause for cause, known in _CODES[kind].items() if codes & known), None)


def from_database(error: BaseException) -> bool:
    """Whether the error is one of the database, on the driver or in a task."""
    from sqlalchemy.exc import SQLAlchemyError

    words = ("java.sql.", "SQLException", "SQLServerException", "psycopg")
    return isinstance(error, SQLAlchemyError) or any(word in str(error) for word in words)


def reason(error: BaseException, database: Database) -> str:
    """The database's own message, on one line, without the statement and without secrets."""
    return database.mask(" ".join(_message(error).split()))[:400].rstrip(" .;")


def _message(error: BaseException) -> str:
    """The database's own message within an error of SQLAlchemy, of Spark's JVM, or of a Python task."""
    original = getattr(error, "orig", None)
    if original is not None:
        last = original.args[-1] if original.args else ""
        if isinstance(last, tuple):
            last = last[-1] if last else ""
        text = last.decode(errors="replace") if isinstance(last, bytes) else str(last or type(original).__name__)
        return text if "COPY " in text else text.split("\n")[0]
    text = str(error)
    for pattern in _MESSAGES:
        if match := re.search(pattern, text):
            return match[0].split(" Call getNextException")[0]
    return text.split("\n")[0]


def reason_and_step(error: BaseException, database: Database, target: str, work_schema: str | None) -> tuple[str, str]:
    """The reason of an error, and the next step; staging tables are made in `work_schema`."""
    why = reason(error, database)
    steps: Mapping[Cause, tuple[str, str]] = {
        "connection": (why, "make the database reachable (host, port, network, or wait until it is up)"),
        "conflict": (why, "look for other transactions that hold these rows"),
        "login": (why, "correct url, user or password of the sink's connection (in the environment)"),
        "denied": (
            f"permission denied: {why}",
            f"grant user {database.user} SELECT, INSERT and UPDATE on {target}, and the right to create tables in "
            f"{work_schema or 'its schema'} (or set work_schema)",
        ),
        "no_table": (why, f"create {target}, or set create_table: true"),
        "null": (why, "give the column a value in the transform, or a default in the table"),
        "value": (f"a value does not fit its column: {why}", "convert it in the transform, or widen the column"),
        "unique": (
            f"a unique key of the table is violated: {why}",
            "remove duplicates in the transform, or name the columns of that key as keys",
        ),
        "no_key": (
            f"the table has no unique key on exactly the keys: {why}",
            "add a unique index or primary key on them",
        ),
        "jar": (
            f"the Java class {database.java_driver} is not on Spark's class path",
            f"add {database.drivers.maven}:<version> to spark.jars.packages (spark: packages in recon.yml)",
        ),
        "python": (
            f"the executors' Python cannot load what COPY needs: {why}",
            f"{how_to_install(database.drivers.extra)} on the executors, or set stage_with: jdbc",
        ),
        "other": (why, "correct the cause that the database names"),
    }
    return steps[cause_of(error, database.kind)]
