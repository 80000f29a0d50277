"""A database that a sink writes to, from its JDBC URL: how Spark and Python's driver reach it. Shows no secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from recon.base.errors import ConfigError
from recon.base.requirements import how_to_install
from recon.project.jdbc import parse_url

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

Kind = Literal["postgresql", "mysql", "mssql"]


class Drivers(NamedTuple):
    """What reaches a product: its dialect, JDBC driver, Python driver, and the extra of recon that brings the latter.

    `maven` lacks the version.
    """

    kind: Kind
    java: str
    maven: str
    python: str
    extra: str


_DRIVERS: Mapping[str, Drivers] = {
    "postgresql": Drivers("postgresql", "org.postgresql.Driver", "org.postgresql:postgresql", "psycopg", "postgres"),
    "mysql": Drivers("mysql", "com.mysql.cj.jdbc.Driver", "com.mysql:mysql-connector-j", "pymysql", "mysql"),
    "mariadb": Drivers("mysql", "org.mariadb.jdbc.Driver", "org.mariadb.jdbc:mariadb-java-client", "pymysql", "mysql"),
    "sqlserver": Drivers(
        "mssql",
        "com.microsoft.sqlserver.jdbc.SQLServerDriver",
        "com.microsoft.sqlserver:mssql-jdbc",
        "pymssql",
        "sqlserver",
    ),
}
# PostgreSQL's client waits for a statement as long as the system keeps the connection: hours, where its server is gone
# without a word. A server that is there and computes may take its time.
_NOTICED = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
# Properties of PostgreSQL's JDBC URL, and libpq's names for them.
_LIBPQ: Mapping[str, str] = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "connecttimeout": "connect_timeout",
    "applicationname": "application_name",
}


@dataclass(frozen=True, kw_only=True)
class Database:
    """How to reach a database, for Spark's JDBC and for Python's driver.

    `product` is the JDBC URL's (`postgresql`, `mysql`, `mariadb`, `sqlserver`). `properties` are those of the URL;
    `driver_options` are passed to Python's driver as they are.
    """

    url: str = field(repr=False)
    product: str
    drivers: Drivers
    hosts: tuple[tuple[str, int], ...]
    name: str
    properties: Mapping[str, str] = field(repr=False)
    user: str | None
    password: str | None = field(repr=False)
    java_driver: str
    driver_options: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, connection: Mapping[str, str], driver_options: Mapping[str, Any] | None = None) -> Database:
        """The database that a sink's `connection` names."""
        url = parse_url(connection["url"])
        drivers = _DRIVERS[url.product]
        return cls(
            url=connection["url"],
            product=url.product,
            drivers=drivers,
            hosts=url.hosts,
            name=url.database,
            properties=url.properties,
            user=connection.get("user") or url.properties.get("user"),
            password=connection.get("password"),
            java_driver=connection.get("driver") or drivers.java,
            driver_options=driver_options or {},
        )

    @property
    def kind(self) -> Kind:
        """The SQL dialect."""
        return self.drivers.kind

    @property
    def label(self) -> str:
        """The database in messages: no URL, no user."""
        return f"{self.product} database {self.name}" if self.name else f"{self.product} database"

    def engine(self) -> Engine:
        """An engine of SQLAlchemy with a connection or two; nothing is connected yet.

        Raises:
            ConfigError: SQLAlchemy or the driver is not installed.
        """
        driver = self.drivers.python
        try:
            import sqlalchemy

            # Imported here first: statements fail while another thread is still importing it, as Iceberg's SQL catalog
            # does for another query.
            import sqlalchemy.orm

            __import__(driver)
        except ImportError as error:
            raise ConfigError(
                f"writing to a {self.product} database needs the Python packages sqlalchemy and {driver} on the "
                f"driver, and {error.name or driver} is not there; {how_to_install(self.drivers.extra)}"
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
        """The arguments of Python's driver's `connect`; secrets are among them."""
        arguments = {"postgresql": self._for_psycopg, "mysql": self._for_pymysql, "mssql": self._for_pymssql}
        login = {"user": self.user, "password": self.password}
        known = {key: value for key, value in login.items() if value is not None}
        return {**arguments[self.kind](), **known, **self.driver_options}

    def _for_psycopg(self) -> dict[str, Any]:
        properties = self.properties
        arguments = {
            "host": ",".join(host for host, _ in self.hosts),
            "port": ",".join(str(port) for _, port in self.hosts),
            "dbname": self.name,
            "connect_timeout": 10,
            **_NOTICED,
        }
        arguments |= {libpq: properties[jdbc] for jdbc, libpq in _LIBPQ.items() if jdbc in properties}
        if "currentschema" in properties:
            arguments["options"] = f"-csearch_path={properties['currentschema']}"
        if properties.get("targetservertype", "").lower() in ("primary", "master"):
            arguments["target_session_attrs"] = "read-write"
        return arguments

    def _for_pymysql(self) -> dict[str, Any]:
        host, port = self.hosts[0]
        # A value that does not fit is an error, whatever the server's default is.
        strict = "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')"
        arguments = {"host": host, "port": port, "connect_timeout": 10, "charset": "utf8mb4", "init_command": strict}
        if self.name:
            arguments["database"] = self.name
        # In the JDBC URL anything but `disable` encrypts, and `verify-…` also checks the certificate.
        mode = self.properties.get("sslmode", "disable").lower().replace("_", "-")
        if mode not in ("disable", "disabled", "false", "preferred"):
            arguments["ssl"] = {"check_hostname": False}
            arguments["ssl_verify_cert"] = mode.startswith("verify")
            arguments["ssl_verify_identity"] = mode in ("verify-full", "verify-identity")
            if certificate := self.properties.get("serversslcert"):
                arguments["ssl_ca"] = certificate
        return arguments

    def _for_pymssql(self) -> dict[str, Any]:
        host, port = self.hosts[0]
        unencrypted = self.properties.get("encrypt", "true").lower() in ("false", "no", "optional")
        arguments = {
            "server": host,
            "port": str(port),
            "login_timeout": 10,
            "encryption": "off" if unencrypted else "require",
        }
        return arguments | ({"database": self.name} if self.name else {})

    def mask(self, text: str) -> str:
        """The text without the password, and without the URL, which may come from the environment, too."""
        text = text.replace(self.password, "***") if self.password else text
        return re.sub(r"jdbc:\w+:\S+", "jdbc:***", text)


__all__ = ["Database", "Kind"]
