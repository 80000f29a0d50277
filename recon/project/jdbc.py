"""Parses JDBC URLs and refuses those that hold a password."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from recon.base.credentials import has_user_info
from recon.project.messages import BadValue

PORTS: Mapping[str, int] = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306, "sqlserver": 1433}
_URL = re.compile(r"jdbc:(?P<product>[a-z]+)://(?P<hosts>[^/;?]+)(?:/(?P<name>[^?;]*))?(?P<rest>[?;].*)?", re.DOTALL)
_PASSWORDS = ("password", "pwd", "pass", "passphrase", "token", "secret")  # how names of credentials end


@dataclass(frozen=True, kw_only=True)
class JdbcUrl:
    """A parsed JDBC URL; `product` is its name for the database, the keys of `properties` are in lower case."""

    product: str
    hosts: tuple[tuple[str, int], ...]
    database: str
    properties: Mapping[str, str]


def parse_url(url: str) -> JdbcUrl:
    """The parts of a JDBC URL.

    Raises:
        BadValue: it is not the JDBC URL of a database that recon knows, or it holds a password; the message does
            not quote it.

    >>> parse_url("jdbc:postgresql://db.example:5433/shop?sslmode=require").hosts
    (('db.example', 5433),)
    >>> parse_url("jdbc:sqlserver://db:1433;databaseName=shop;encrypt=true").database
    'shop'
    """
    match = _URL.fullmatch(url.strip())
    if match is None or match["product"] not in PORTS:
        raise BadValue(
            "must be the JDBC URL of PostgreSQL, MariaDB, MySQL or SQL Server, such as "
            "jdbc:postgresql://host:5432/database"
        )
    assignments = [word.split("=", 1) for word in re.split(r"[?&;]", match["rest"] or "") if "=" in word]
    properties = {unquote(key).strip().lower(): value for key, value in assignments}
    if any(key.endswith(_PASSWORDS) for key in properties) or has_user_info(url) or "@" in match["hosts"]:
        raise BadValue(
            "must not hold a password, which Spark would show in plans and logs; give it as "
            "password: \"{{ env_var('…') }}\" beside the url"
        )
    hosts = []
    for address in match["hosts"].split(","):
        host, _, port = address.partition(":")
        if port and not port.isdigit():
            raise BadValue("must name each host as host or host:port, with a number for the port")
        hosts.append((host, int(port) if port else PORTS[match["product"]]))
    database = match["name"] or properties.get("databasename") or properties.get("database") or ""
    return JdbcUrl(product=match["product"], hosts=tuple(hosts), database=database, properties=properties)
