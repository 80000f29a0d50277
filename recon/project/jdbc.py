"""JDBC URLs: which database they name, and that they hold no password."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from recon.project.messages import Problem

PORTS: Mapping[str, int] = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306, "sqlserver": 1433}
_URL = re.compile(r"jdbc:(?P<product>[a-z]+)://(?P<hosts>[^/;?]+)(?:/(?P<name>[^?;]*))?(?P<rest>[?;].*)?", re.DOTALL)
_PASSWORDS = {"password", "pwd", "pass", "sslpassword", "passphrase", "accesstoken"}


@dataclass(frozen=True, kw_only=True)
class JdbcUrl:
    """What a JDBC URL says; `product` is its own word for the database, the keys of `properties` are in lower case."""

    product: str
    hosts: tuple[tuple[str, int], ...]
    database: str
    properties: Mapping[str, str]


def parse_url(url: str) -> JdbcUrl:
    """A JDBC URL, taken apart.

    Raises:
        Problem: it is not the JDBC URL of a database that recon knows, or it holds a password. It is not shown.

    >>> parse_url("jdbc:postgresql://db.example:5433/shop?sslmode=require").hosts
    (('db.example', 5433),)
    >>> parse_url("jdbc:sqlserver://db:1433;databaseName=shop;encrypt=true").database
    'shop'
    """
    found = _URL.fullmatch(url.strip())
    if found is None or found["product"] not in PORTS:
        raise Problem(
            "must be the JDBC URL of PostgreSQL, MariaDB, MySQL or SQL Server, such as "
            "jdbc:postgresql://host:5432/database"
        )
    words = [word.split("=", 1) for word in re.split(r"[?&;]", found["rest"] or "") if "=" in word]
    properties = {key.strip().lower(): value for key, value in words}
    if _PASSWORDS & set(properties) or "@" in found["hosts"]:
        raise Problem(
            "must not hold a password, which Spark would show in plans and logs; give it as "
            "password: \"{{ env_var('…') }}\" beside the url"
        )
    hosts = []
    for one in found["hosts"].split(","):
        host, _, port = one.partition(":")
        if port and not port.isdigit():
            raise Problem("must name each host as host or host:port, with a number for the port")
        hosts.append((host, int(port) if port else PORTS[found["product"]]))
    database = found["name"] or properties.get("databasename") or properties.get("database") or ""
    return JdbcUrl(product=found["product"], hosts=tuple(hosts), database=database, properties=properties)
