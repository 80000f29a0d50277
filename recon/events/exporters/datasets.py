"""Names of datasets, as OpenLineage's naming conventions have them (https://openlineage.io/docs/spec/naming)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from recon.base.credentials import HIDDEN
from recon.model.positions import is_kafka
from recon.project import Pipeline, Project, Sink
from recon.project.jdbc import parse_url

# How the schemes of object stores begin (s3a://, abfs://), and how the conventions spell them.
_OBJECT_STORES = (("s3", "s3"), ("gs", "gs"), ("abfs", "abfss"), ("wasb", "wasbs"))
# A database's scheme there, and the schema of a table that is named without one; None where schemas are databases.
_DATABASES: Mapping[str, tuple[str, str | None]] = {
    "postgresql": ("postgres", "public"),
    "sqlserver": ("mssql", "dbo"),
    "mysql": ("mysql", None),
    "mariadb": ("mysql", None),
}
_QUOTES = str.maketrans("", "", '"`[]')


class Dataset(NamedTuple):
    """A dataset's namespace and its name there."""

    namespace: str
    name: str


def of_topic(kafka: Mapping[str, str], topic: str) -> Dataset | None:
    """A topic of the cluster that a Kafka client's settings name; None where they name none.

    >>> of_topic({"bootstrap.servers": "PLAINTEXT://broker-1:9092,broker-2:9092"}, "orders")
    Dataset(namespace='kafka://broker-1:9092', name='orders')
    """
    servers = kafka.get("bootstrap.servers", "")
    first = re.sub(r"^\w+://", "", servers.split(",")[0].strip())
    if not first:
        return None
    return Dataset(f"kafka://{first}" if re.search(r":\d+$", first) else f"kafka://{first}:9092", topic)


def of_source(project: Project, pipeline: Pipeline, topic: str) -> Dataset | None:
    """What a topic of a pipeline stands for: Kafka's, a table or a folder; None where that is not known."""
    if is_kafka(topic):
        return of_topic(project.kafka, topic)
    source = pipeline.source
    location = project.resolve(source.files) if source.files else project.table_location(source.delta or "")
    return None if project.why_unlocated(location) else of_files(project.mask(location))


def of_files(location: str) -> Dataset:
    """A table or folder at an absolute path or a URI, whose credentials are hidden: they are not of its name.

    >>> of_files("s3a://lake/orders/")
    Dataset(namespace='s3://lake', name='orders')
    >>> of_files("/srv/lake/orders")
    Dataset(namespace='file', name='/srv/lake/orders')
    >>> of_files("dbfs:/lake/orders")
    Dataset(namespace='dbfs://', name='/lake/orders')
    >>> of_files("s3://***@lake/orders")
    Dataset(namespace='s3://lake', name='orders')
    """
    location = location.replace(f"://{HIDDEN}@", "://")
    if "://" not in location and not location.startswith(("file:", "dbfs:")):
        return Dataset("file", location.rstrip("/") or "/")  # a path is no URI: it may hold '?' and '#'
    parts = urlsplit(location, allow_fragments=False)
    path = parts.path.rstrip("/") or "/"
    if parts.scheme == "file":
        return Dataset(f"file://{parts.netloc}" if parts.netloc else "file", path)
    for begins, scheme in _OBJECT_STORES:
        if parts.scheme.startswith(begins):
            return Dataset(f"{scheme}://{parts.netloc}", path.strip("/") or "/")  # a key has no leading slash
    return Dataset(f"{parts.scheme}://{parts.netloc}", path)


def of_database(url: str, table: str) -> Dataset:
    """A table of the database that a JDBC URL leads to.

    >>> of_database("jdbc:postgresql://db/shop", "orders")
    Dataset(namespace='postgres://db:5432', name='shop.public.orders')
    """
    parsed = parse_url(url)
    scheme, schema = _DATABASES[parsed.product]
    host, port = parsed.hosts[0]
    parts = table.translate(_QUOTES).split(".")
    if schema is None:
        qualified = parts if len(parts) > 1 else [parsed.database, *parts]
    else:
        qualified = [parsed.database, schema, parts[0]] if len(parts) == 1 else [parsed.database, *parts][-3:]
    return Dataset(f"{scheme}://{host}:{port}", ".".join(part for part in qualified if part))


def of_sink(project: Project, pipeline: Pipeline, sink: Sink, namespace: str) -> Dataset:
    """What a sink writes. One of a kind that the conventions do not name is called by its target in `namespace`."""
    if sink.jdbc_url is not None:
        return of_database(sink.jdbc_url, sink.target)
    client = sink.client_settings(project.kafka)
    if client is not None:
        return of_topic(client, sink.target) or Dataset(namespace, f"{pipeline.name}.{sink.name}")
    location = project.location(sink)
    if sink.in_files and sink.target and not project.why_unlocated(location):
        return of_files(project.mask(location))
    return Dataset(namespace, project.mask(sink.target) or f"{pipeline.name}.{sink.name}")
