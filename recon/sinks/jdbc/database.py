"""A database that a sink writes to: its JDBC URL read for Python's driver, its errors sorted, no secret shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from recon.errors import ConfigError
from recon.project.jdbc import parse_url

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

Kind = Literal["postgresql", "mysql", "mssql"]
# What went wrong, as far as it decides what to do next. `again`: rolled back, the same may succeed now.
Trouble = Literal[
    "connection", "again", "login", "denied", "no_table", "null", "value", "unique", "arbiter", "jar", "python", "other"
]

_KINDS: Mapping[str, Kind] = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql", "sqlserver": "mssql"}
_EXTRAS: Mapping[Kind, tuple[str, str]] = {
    "postgresql": ("psycopg", "postgres"),
    "mysql": ("pymysql", "mysql"),
    "mssql": ("pymssql", "sqlserver"),
}
_JAVA: Mapping[str, tuple[str, str]] = {
    "postgresql": ("org.postgresql.Driver", "org.postgresql:postgresql"),
    "mysql": ("com.mysql.cj.jdbc.Driver", "com.mysql:mysql-connector-j"),
    "mariadb": ("org.mariadb.jdbc.Driver", "org.mariadb.jdbc:mariadb-java-client"),
    "sqlserver": ("com.microsoft.sqlserver.jdbc.SQLServerDriver", "com.microsoft.sqlserver:mssql-jdbc"),
}
# Properties of a JDBC URL that Python's driver knows by another name.
_SAME: Mapping[Kind, Mapping[str, str]] = {
    "postgresql": {
        "sslmode": "sslmode",
        "sslrootcert": "sslrootcert",
        "sslcert": "sslcert",
        "sslkey": "sslkey",
        "connecttimeout": "connect_timeout",
        "applicationname": "application_name",
    },
    "mysql": {},
    "mssql": {},
}


@dataclass(frozen=True, kw_only=True)
class Database:
    """How to reach a database, for Spark's JDBC and for Python's driver.

    `product` is the JDBC URL's (`postgresql`, `mysql`, `mariadb`, `sqlserver`), `kind` its dialect. `properties` are
    those of the URL; `driver_options` are given to Python's driver as they are.
    """

    url: str = field(repr=False)
    product: str
    kind: Kind
    hosts: tuple[tuple[str, int], ...]
    name: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    java_driver: str = ""
    driver_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, connection: Mapping[str, str], driver_options: Mapping[str, Any] | None = None) -> Database:
        """The database that a sink's `connection` names."""
        url = parse_url(connection["url"])
        return cls(
            url=connection["url"],
            product=url.product,
            kind=_KINDS[url.product],
            hosts=url.hosts,
            name=url.database,
            properties=url.properties,
            user=connection.get("user") or url.properties.get("user"),
            password=connection.get("password"),
            java_driver=connection.get("driver") or _JAVA[url.product][0],
            driver_options=dict(driver_options or {}),
        )

    @property
    def label(self) -> str:
        """The database in messages: no URL, no user."""
        return f"{self.product} database {self.name}" if self.name else f"{self.product} database"

    @property
    def maven(self) -> str:
        """The coordinates, but for the version, of the JDBC driver."""
        return _JAVA[self.product][1]

    @property
    def extra(self) -> str:
        """The extra of recon's distribution that brings Python's driver."""
        return _EXTRAS[self.kind][1]

    def engine(self) -> Engine:
        """An engine of SQLAlchemy with a connection or two; nothing is connected yet.

        Raises:
            ConfigError: SQLAlchemy or the driver is not installed.
        """
        driver, extra = _EXTRAS[self.kind]
        try:
            import sqlalchemy

            __import__(driver)
        except ImportError as error:
            raise ConfigError(
                f"writing to a {self.product} database needs the Python packages sqlalchemy and {driver} on the "
                f"driver, and {error.name or driver} is not there; pip install 'spark-recon[{extra}]'"
            ) from error
        return sqlalchemy.create_engine(
            f"{self.kind}+{driver}://",
            connect_args=self.arguments(),
            isolation_level="READ COMMITTED",
            pool_size=1,
            max_overflow=3,
            pool_pre_ping=True,
            pool_recycle=600,
        )

    def arguments(self) -> dict[str, Any]:
        """What Python's driver's `connect` is called with; secrets are among it."""
        known = self.properties
        given: dict[str, Any] = {new: known[old] for old, new in _SAME[self.kind].items() if old in known}
        login = {key: value for key, value in (("user", self.user), ("password", self.password)) if value is not None}
        (host, port), hosts = self.hosts[0], self.hosts
        if self.kind == "postgresql":
            if "currentschema" in known:
                given["options"] = f"-csearch_path={known['currentschema']}"
            several = {"host": ",".join(h for h, _ in hosts), "port": ",".join(str(p) for _, p in hosts)}
            if known.get("targetservertype", "").lower() in ("primary", "master"):
                given["target_session_attrs"] = "read-write"
            arguments = {"connect_timeout": 10, "dbname": self.name, **several, **given}
        elif self.kind == "mysql":
            # As JDBC's own word for it: anything but `disable` encrypts, `verify-…` also looks at the certificate.
            mode = known.get("sslmode", "disable").lower().replace("_", "-")
            if mode not in ("disable", "disabled", "false", "preferred"):
                given["ssl_ca"] = known.get("serversslcert", "")
                given["ssl_verify_cert"] = mode.startswith("verify")
                given["ssl_verify_identity"] = mode in ("verify-full", "verify-identity")
                given = {key: value for key, value in given.items() if value != ""} | {"ssl": {"check_hostname": False}}
            arguments = {"host": host, "port": port, "connect_timeout": 10, "charset": "utf8mb4", **given}
            # What does not fit is an error, whatever the server's default is.
            arguments["init_command"] = "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')"
            if self.name:
                arguments["database"] = self.name
        else:
            encrypt = known.get("encrypt", "true").lower()
            arguments = {"server": host, "port": str(port), "login_timeout": 10, **given}
            arguments["encryption"] = "off" if encrypt in ("false", "no", "optional") else "require"
            if self.name:
                arguments["database"] = self.name
        return {**arguments, **login, **self.driver_options}

    def mask(self, text: str) -> str:
        """The text without the password, and without the URL, which may come from the environment, too."""
        text = text.replace(self.password, "***") if self.password else text
        return re.sub(r"jdbc:\w+:\S+", "jdbc:***", text)

    def reason(self, error: BaseException) -> str:
        """What the database says, on one line, without the statement and without secrets."""
        found = _own_words(error)
        return self.mask(" ".join(found.split()))[:400].rstrip(" .;")


# --- what an error means -----------------------------------------------------------------------------------

_STATES: Mapping[str, Trouble] = {
    "40001": "again",
    "40P01": "again",
    "55P03": "again",
    "57014": "again",
    "57P01": "connection",
    "57P02": "connection",
    "57P03": "connection",
    "53300": "connection",
    "28P01": "login",
    "28000": "login",
    "3D000": "login",
    "42501": "denied",
    "42P01": "no_table",
    "3F000": "no_table",
    "23502": "null",
    "23505": "unique",
    "42P10": "arbiter",
    "55000": "arbiter",
}
_STATE_CLASSES: Mapping[str, Trouble] = {"08": "connection", "22": "value"}
_MYSQL: Mapping[int, Trouble] = {
    **dict.fromkeys((1213, 1205, 1020), "again"),
    **dict.fromkeys((1040, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1290, 1317, 1927), "connection"),
    **dict.fromkeys((2002, 2003, 2006, 2013, 2014, 2055, 4031, 0), "connection"),
    **dict.fromkeys((1044, 1045, 1049, 1698), "login"),
    **dict.fromkeys((1142, 1143, 1227, 1370, 1419), "denied"),
    **dict.fromkeys((1146, 1051), "no_table"),
    **dict.fromkeys((1048, 1364), "null"),
    **dict.fromkeys((1062, 1586), "unique"),
    **dict.fromkeys((1264, 1265, 1292, 1366, 1367, 1406, 1411, 4025, 3140), "value"),
}
_MSSQL: Mapping[int, Trouble] = {
    **dict.fromkeys((1205, 1222, 3960), "again"),
    **dict.fromkeys((20002, 20003, 20004, 20006, 20009, 20047, 10053, 10054, 10060, 233, 64), "connection"),
    **dict.fromkeys((40197, 40501, 40613, 49918, 49919, 49920, 4221, 10928, 10929), "connection"),  # Azure's
    **dict.fromkeys((18456, 4060, 4064), "login"),
    **dict.fromkeys((229, 230, 262, 297, 300, 2760), "denied"),
    **dict.fromkeys((208, 3701), "no_table"),
    515: "null",
    **dict.fromkeys((2601, 2627), "unique"),
    **dict.fromkeys((220, 241, 242, 245, 248, 8114, 8115, 8152, 2628), "value"),
}
# Errors of Spark's tasks arrive as text; so do those of a connection that was never made.
_WORDS: tuple[tuple[Trouble, str], ...] = (
    ("python", r"No module named '(psycopg|pyarrow)"),
    ("jar", r"ClassNotFoundException|No suitable driver"),
    ("login", r"authentication failed|Access denied for user|Login failed|role \"[^\"]*\" does not exist"),
    ("login", r"database \"[^\"]*\" does not exist|Unknown database|no pg_hba\.conf entry"),
    ("denied", r"permission denied|command denied|permission was denied"),
    ("again", r"deadlock|could not serialize|Lock wait timeout"),
    ("null", r"violates not-null|cannot be null|Cannot insert the value NULL"),
    ("no_table", r"relation \"[^\"]*\" does not exist|Table '[^']*' doesn't exist|Invalid object name"),
    ("value", r"value too long|Data too long|out of range|invalid input syntax|Incorrect \w+ value|would be truncated"),
    ("value", r"invalid byte sequence|\b0x00\b|numeric field overflow|Data truncat|is of type .* but expression"),
    ("connection", r"connection[^\n]{0,80}(refused|closed|reset|terminated|lost|timed out|unexpectedly|failed)"),
    ("connection", r"terminating connection|server closed the connection|Communications link failure|Broken pipe"),
    ("connection", r"the database system is |Server shutdown in progress|An I/O error occurred|Socket error"),
    ("connection", r"SQLNonTransientConnectionException|AdminShutdown|ConnectionTimeout|Can't connect to"),
)


def trouble(error: BaseException, kind: Kind) -> Trouble:
    """What an error of a driver, or of a Spark job that writes, means.

    Deadlocks and lost connections are told apart from what a retry cannot mend.
    """
    import sqlalchemy.exc

    if isinstance(error, sqlalchemy.exc.DBAPIError):
        found = _by_code(error.orig, kind)
        if found is not None:
            return found
        if error.connection_invalidated:
            return "connection"
        if isinstance(error, sqlalchemy.exc.DataError):
            return "value"
    words = _own_words(error)
    for meaning, pattern in _WORDS:
        if re.search(pattern, str(error) if meaning in ("python", "jar") else words, re.IGNORECASE):
            return meaning
    return "other"


def _by_code(error: BaseException | None, kind: Kind) -> Trouble | None:
    if kind == "postgresql":
        state = str(getattr(error, "sqlstate", None) or "")
        return _STATES.get(state) or _STATE_CLASSES.get(state[:2])
    number = error.args[0] if error is not None and error.args else None
    if isinstance(number, tuple):  # pymssql wraps it once more
        number = number[0] if number else None
    if not isinstance(number, int):
        return None
    return (_MYSQL if kind == "mysql" else _MSSQL).get(number)


def _own_words(error: BaseException) -> str:
    """The database's own sentence within an error of SQLAlchemy, of Spark's JVM, or of a Python task."""
    original = getattr(error, "orig", None)
    if original is not None:
        words = original.args[-1] if original.args else ""
        if isinstance(words, tuple):
            words = words[-1] if words else ""
        words = words.decode(errors="replace") if isinstance(words, bytes) else str(words or type(original).__name__)
        return words.split("\n")[0] if "COPY " not in words else words
    text = str(error)
    for pattern in (
        r"ERROR: [^\n]*",  # PostgreSQL's, inside a BatchUpdateException
        r"FATAL: [^\n]*",
        r"(?:psycopg\.[\w.]*|ModuleNotFoundError): [^\n]*(?:\nCONTEXT:[^\n]*)?",
        r"\((?:conn|conn_id)=\d+\) [^\n]*",  # MariaDB's
        r"java\.sql\.\w+Exception: [^\n]*",
        r"(?:PSQLException|SQLServerException): [^\n]*",
        r"Caused by: [^\n]*",
        r"java\.lang\.ClassNotFoundException: [^\n]*",
    ):
        if found := re.search(pattern, text):
            return found[0].split(" Call getNextException")[0]
    return text.split("\n")[0]


__all__ = ["Database", "Kind", "Trouble", "trouble"]
