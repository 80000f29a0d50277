"""What the crash kit needs to know of a sink kind: one entry of `ADAPTERS` each.

An adapter says how the sink stands in recon.yml, how its rows are read back without recon, what its label is, and which
seams of its own it has. Nothing else in the kit knows a kind by name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.drivers import ICEBERG, MARIADB_JDBC, POSTGRES_JDBC
from tests.support.iceberg import Lake, lake_of_postgres, spark_conf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tests.support.kafka import LocalKafka
    from tests.support.mariadb import LocalMariaDB
    from tests.support.postgres import LocalPostgres

Where = tuple[int, int]  # partition, offset
State = dict[int, tuple[int, Where]]  # id → n, and the record it came from


@dataclass(frozen=True)
class World:
    """Where things are: what an adapter needs to write recon.yml, and to prepare and read its sink."""

    folder: Path
    kafka: LocalKafka
    postgres: LocalPostgres | None = None
    mariadb: LocalMariaDB | None = None

    @property
    def tag(self) -> str:
        """What keeps two worlds on one broker and one database server apart."""
        return f"crash_{self.folder.name}"

    def url(self, product: str) -> str:
        """The JDBC URL of this world's database."""
        server = self.server(product)
        return server.url.removesuffix(f"/{server.database}") + f"/{self.tag}"

    def server(self, product: str) -> LocalPostgres | LocalMariaDB:
        """The running server of a product."""
        server = self.postgres if product == "postgres" else self.mariadb
        assert server is not None, f"this world has no {product}"
        return server

    def sql(self, product: str, statement: str) -> list[tuple[Any, ...]]:
        """Runs a statement in this world's database and returns its rows."""
        named = {"dbname": self.tag} if product == "postgres" else {"database": self.tag}
        with self.server(product).connect(**named) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def make_databases(self) -> None:
        """A database of our own in each server."""
        for server in (self.postgres, self.mariadb):
            if server is not None:
                server.sql(f"CREATE DATABASE {self.tag}")

    @property
    def environment(self) -> dict[str, str]:
        """Variables that recon.yml asks for: passwords stand nowhere else."""
        servers = {"POSTGRES": self.postgres, "MARIADB": self.mariadb}
        return {f"CRASH_{name}_PASSWORD": server.password for name, server in servers.items() if server}


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """One sink kind of the kit; `name` is the pipeline, and the sink where `sinks` does not name several.

    `config`: the sink's mapping in recon.yml, without its name; `{sink}` in its target is the sink's name.
    `routes`: how rows are split between `sinks`; then points are those of the last one, and the first one's are
    called `first_route_…`.
    `read`: its rows as they stand now, as dicts with id, n, op, _batch_id, _source_partition, _source_offset.
    `rewrites`: rows are replaced by key; then `deletes` says whether op "d" removes the key.
    `prepare`: makes what the sink expects to be there. `needs`: the servers it writes to.
    `points`: seams of the sink itself, besides those of the hook.
    `spark_conf`: settings of every session that writes or reads the sink.
    `variant`: much like another one; `make test` kills it less often.
    """

    name: str
    config: Callable[[World], Mapping[str, Any]]
    read: Callable[[World], list[dict[str, Any]]]
    label: str = "exactly-once"
    routes: Mapping[str, Any] | None = None
    sinks: tuple[str, ...] = ()
    rewrites: bool = False
    deletes: bool = False
    points: tuple[str, ...] = ()
    variant: bool = False
    checks: tuple[str, ...] = ()
    pipeline_checks: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    prepare: Callable[[World], None] = lambda world: None
    spark_conf: Callable[[World], Mapping[str, str]] = lambda world: {}

    @property
    def entered(self) -> tuple[str, ...]:
        """The sinks that the ledger knows; the last one is the last to be written."""
        return self.sinks or (self.name,)

    def pipeline(self, world: World, topic: str) -> dict[str, Any]:
        """The pipeline in recon.yml."""
        sinks = []
        for name in self.entered:
            config = dict(self.config(world))
            config["target"] = config["target"].format(sink=name)
            sinks.append({"name": name, **config, "data_tests": list(self.checks)})
        return {
            "name": self.name,
            "checkpoint": f"checkpoints/{self.name}",
            "source": {"topics": [topic], "isolation_level": "read_committed"},
            "data_tests": ["offset_continuity", "kafka_end_offsets", "checkpoint_commits", *self.pipeline_checks],
            **({"routes": dict(self.routes)} if self.routes else {}),
            "sinks": sinks,
        }

    def rows(self, world: World) -> Counter[Where]:
        """(partition, offset) → how many rows carry it."""
        return Counter((row["_source_partition"], row["_source_offset"]) for row in self.read(world))

    def state(self, world: World) -> State:
        """The row that stands under each key."""
        found = self.read(world)
        state = {row["id"]: (row["n"], (row["_source_partition"], row["_source_offset"])) for row in found}
        assert len(state) == len(found), f"{self.name}: a key stands in two rows"
        return state


def parsed(frame: DataFrame) -> DataFrame:
    """The transform of every pipeline: the record's JSON as columns, its coordinates kept."""
    from pyspark.sql import functions as F

    fields = F.from_json(F.col("value").cast("string"), "id long, n long, op string").alias("r")
    source = ["_source_topic", "_source_partition", "_source_offset"]
    return frame.select(*source, fields).select("r.*", *source)


def record(number: int, keys: int, partitions: int) -> tuple[str, str, int]:
    """(key, value, partition) of the n-th record: a key always goes to the same partition, every 9th deletes."""
    key = number % keys
    value = {"id": key, "n": number, "op": "d" if number % 9 == 8 else "u"}
    return str(key), json.dumps(value), key % partitions


def expected(records: Mapping[Where, str], *, deletes: bool) -> State:
    """The state that a key's records leave, in plain Python: the last by offset wins."""
    state: State = {}
    for where, value in sorted(records.items()):
        fields = json.loads(value)
        if deletes and fields["op"] == "d":
            state.pop(fields["id"], None)
        else:
            state[fields["id"]] = (fields["n"], where)
    return state


# -- Delta -----------------------------------------------------------------------------------------


def delta_rows(*names: str) -> Callable[[World], list[dict[str, Any]]]:
    """Reads the rows of these Delta tables without recon."""

    def read(world: World) -> list[dict[str, Any]]:
        from deltalake import DeltaTable

        tables = [DeltaTable(str(world.folder / name)).to_pyarrow_table() for name in names]
        return [row for table in tables for row in table.to_pylist()]

    return read


DELTA = Adapter(
    name="delta",
    config=lambda world: {"kind": "delta", "target": "delta"},
    read=delta_rows("delta"),
    checks=("delta_history", "source_rows"),
)

DELTA_MERGE = Adapter(
    name="delta_merge",
    config=lambda world: {
        "kind": "delta_merge",
        "target": "delta_merge",
        "keys": ["id"],
        "delete_when": "op = 'd'",
    },
    read=delta_rows("delta_merge"),
    rewrites=True,
    deletes=True,
    points=("reduced",),
    checks=("delta_history", "source_rows"),
)

ROUTED = Adapter(
    name="routed",
    routes={"by": "n % 3 = 0", "to": {"true": "thirds"}, "otherwise": "others"},
    sinks=("thirds", "others"),
    config=lambda world: {"kind": "delta", "target": "routed/{sink}"},
    read=delta_rows("routed/thirds", "routed/others"),
    points=("first_route_before_write", "first_route_after_write", "first_route_after_ledger"),
    checks=("delta_history", "source_rows"),
    pipeline_checks=("atomicity",),
)


# -- Iceberg ---------------------------------------------------------------------------------------


def iceberg(name: str, **more: Any) -> Adapter:
    """A table of its own in a catalog of PostgreSQL, read back by pyiceberg."""
    target = f"{name}.sales.orders"

    def lake(world: World) -> Lake:
        assert world.postgres is not None
        return lake_of_postgres(name, world.folder / name, world.postgres, world.tag)

    def config(world: World) -> dict[str, Any]:
        catalog, server = dict(lake(world).properties), world.server("postgres")
        catalog["uri"] = catalog["uri"].replace(server.password, '{{ env_var("CRASH_POSTGRES_PASSWORD") }}')
        return {"kind": name, "target": target, "catalog": catalog, **more.get("config", {})}

    def conf(world: World) -> Mapping[str, str]:
        assert world.postgres is not None
        return spark_conf(lake(world), world.postgres, world.tag)

    def read(world: World) -> list[dict[str, Any]]:
        return list(lake(world).table().scan().to_arrow().to_pylist())

    return Adapter(
        name=name,
        config=config,
        read=read,
        rewrites=more.get("rewrites", False),
        deletes=more.get("rewrites", False),
        points=more["points"],
        variant=more.get("variant", False),
        checks=("iceberg_history", "source_rows"),
        packages=(*ICEBERG, POSTGRES_JDBC),
        needs=("postgres",),
        spark_conf=conf,
    )


_ICEBERG_POINTS = ("branch_created", "branch_written", "published")
ICEBERG_APPEND = iceberg("iceberg", points=_ICEBERG_POINTS, variant=True)  # all but one statement is of a MERGE, too
ICEBERG_MERGE = iceberg(
    "iceberg_merge",
    config={"keys": ["id"], "delete_when": "op = 'd'"},
    rewrites=True,
    points=("reduced", "merged", *_ICEBERG_POINTS),
)


# -- files -----------------------------------------------------------------------------------------


def _parquet_rows(world: World) -> list[dict[str, Any]]:
    """What the manifests name, read by pyarrow."""
    import pyarrow.parquet as pq

    from recon.sinks.files.reading import batch_files

    files = batch_files(str(world.folder / "parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


PARQUET = Adapter(
    name="parquet",
    config=lambda world: {"kind": "parquet", "target": "parquet"},
    read=_parquet_rows,
    points=("files_written", "manifest_written"),
    checks=("sink_commits", "source_rows"),
)


# -- databases -------------------------------------------------------------------------------------

_COLUMNS = ("id", "n", "op", "_batch_id", "_source_topic", "_source_partition", "_source_offset")
_JDBC_POINTS = ("stage_created", "staged", "transaction_open", "before_commit", "committed")


def jdbc(name: str, product: str, kind: str, *, key: bool, java: str, **more: Any) -> Adapter:
    def config(world: World) -> dict[str, Any]:
        server = world.server(product)
        password = f'{{{{ env_var("CRASH_{product.upper()}_PASSWORD") }}}}'
        connection = {"url": world.url(product), "user": server.user, "password": password}
        keys = {"keys": ["id"]} if key else {}
        return {"kind": kind, "target": name, "connection": connection, **keys, **more.get("config", {})}

    def prepare(world: World) -> None:
        world.sql(
            product,
            f"CREATE TABLE {name} (id bigint {'PRIMARY KEY' if key else ''}, n bigint, op varchar(10), "
            "_batch_id bigint, _source_topic varchar(100), _source_partition int, _source_offset bigint)",
        )

    def read(world: World) -> list[dict[str, Any]]:
        found = world.sql(product, f"SELECT {', '.join(_COLUMNS)} FROM {name}")
        return [dict(zip(_COLUMNS, row, strict=True)) for row in found]

    label = more.get("label", "exactly-once")
    return Adapter(
        name=name,
        config=config,
        prepare=prepare,
        read=read,
        label=label,
        rewrites=key,
        points=_JDBC_POINTS if label == "exactly-once" else (),
        checks=("sink_commits", "source_rows"),
        packages=(java,),
        needs=(product,),
        variant=(product, kind) != ("postgres", "jdbc_upsert"),
    )


POSTGRES_UPSERT = jdbc("postgres_upsert", "postgres", "jdbc_upsert", key=True, java=POSTGRES_JDBC)
MARIADB_UPSERT = jdbc("mariadb_upsert", "mariadb", "jdbc_upsert", key=True, java=MARIADB_JDBC)
POSTGRES_APPEND = jdbc("postgres_append", "postgres", "jdbc_append", key=False, java=POSTGRES_JDBC)
POSTGRES_PLAIN = jdbc(
    "postgres_plain", "postgres", "jdbc_append", key=False, java=POSTGRES_JDBC,
    config={"guard": False}, label="at-least-once",
)  # fmt: skip


# -- Kafka -----------------------------------------------------------------------------------------


def kafka(name: str, **more: Any) -> Adapter:
    """A sink that writes to a topic of its own; read back by a consumer that sees committed records only."""

    def prepare(world: World) -> None:
        world.kafka.create_topic(f"{world.tag}_{name}", 2)

    def read(world: World) -> list[dict[str, Any]]:
        return [
            {
                **json.loads(value),
                "_batch_id": int(headers["_batch_id"]),
                "_source_partition": int(headers["_source_partition"]),
                "_source_offset": int(headers["_source_offset"]),
            }
            for value, headers in committed_records(world.kafka, f"{world.tag}_{name}")
        ]

    label = more.pop("label", "exactly-once")
    return Adapter(
        name=name,
        config=lambda world: {
            "kind": "kafka",
            "target": f"{world.tag}_{name}",
            "marker_topic": f"{world.tag}_markers",
            "value_format": "json",
            "key": "id",
            **more,
        },
        prepare=prepare,
        read=read,
        label=label,
        points=("planned", "tasks_committed", "marked") if label == "exactly-once" else (),
        checks=("sink_commits", "source_rows"),
        variant=label != "exactly-once",
    )


def committed_records(kafka: LocalKafka, topic: str) -> list[tuple[bytes, dict[str, bytes]]]:
    """(value, headers) of every record that a read_committed consumer sees."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    conf = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": f"crash-{topic}",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(conf)
    found, left = [], set(kafka.offsets(topic))
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        while left:
            message: Any = consumer.poll(30.0)
            assert message is not None, f"partitions {sorted(left)} of {topic} could not be read to their end"
            if message.error() is None:
                found.append((message.value(), dict(message.headers() or ())))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                left.discard(message.partition())
    finally:
        consumer.close()
    return found


KAFKA = kafka("kafka")
KAFKA_PLAIN = kafka("kafka_plain", mode="at_least_once", label="at-least-once")

_ALL = (
    DELTA,
    DELTA_MERGE,
    ICEBERG_APPEND,
    ICEBERG_MERGE,
    PARQUET,
    ROUTED,
    POSTGRES_UPSERT,
    MARIADB_UPSERT,
    POSTGRES_APPEND,
    POSTGRES_PLAIN,
    KAFKA,
    KAFKA_PLAIN,
)
ADAPTERS: dict[str, Adapter] = {adapter.name: adapter for adapter in _ALL}
