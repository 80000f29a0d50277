"""What the crash kit needs to know of a sink kind: one entry of `KINDS` each.

An adapter says how the sink stands in recon.yml, how its rows are read back without recon, what its label is, and which
seams of its own it has. Nothing else in the kit knows a kind by name. A kind makes as many pipelines as a test wants,
each with a sink of its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
    """A pipeline of one sink kind; `name` is the pipeline, and the sink where `sinks` does not name several.

    `of`: the kind of which this is one pipeline of several; the name where it is the only one.
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
    of: str = ""

    @property
    def kind(self) -> str:
        """The entry of `KINDS` that it is one of."""
        return self.of or self.name

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


def delta(name: str, **config: Any) -> Adapter:
    """A Delta table that is appended to; `config` are further keys of the sink."""
    return Adapter(
        name=name,
        config=lambda world: {"kind": "delta", "target": name, **config},
        read=delta_rows(name),
        checks=("delta_history", "source_rows"),
    )


def delta_merge(name: str, *, deletes: bool = True) -> Adapter:
    """A Delta table that is merged into."""
    delete_when = {"delete_when": "op = 'd'"} if deletes else {}
    return Adapter(
        name=name,
        config=lambda world: {"kind": "delta_merge", "target": name, "keys": ["id"], **delete_when},
        read=delta_rows(name),
        rewrites=True,
        deletes=deletes,
        points=("reduced",),
        checks=("delta_history", "source_rows"),
    )


def routed(name: str, **config: Any) -> Adapter:
    """A pipeline with two Delta tables; `config` are further keys of both sinks."""
    thirds, others = f"{name}_thirds", f"{name}_others"
    return Adapter(
        name=name,
        routes={"by": "n % 3 = 0", "to": {"true": thirds}, "otherwise": others},
        sinks=(thirds, others),
        config=lambda world: {"kind": "delta", "target": "{sink}", **config},
        read=delta_rows(thirds, others),
        points=("first_route_before_write", "first_route_after_write", "first_route_after_ledger"),
        checks=("delta_history", "source_rows"),
        pipeline_checks=("atomicity",),
    )


# -- Iceberg ---------------------------------------------------------------------------------------


def iceberg(name: str, kind: str, **config: Any) -> Adapter:
    """A table in the kind's catalog in PostgreSQL, read back by pyiceberg; `config` are further keys of the sink."""
    merges = kind == "iceberg_merge"

    def lake(world: World) -> Lake:
        assert world.postgres is not None
        return lake_of_postgres(kind, world.folder / kind, world.postgres, world.tag)

    def keys(world: World) -> dict[str, Any]:
        catalog, server = dict(lake(world).properties), world.server("postgres")
        catalog["uri"] = catalog["uri"].replace(server.password, '{{ env_var("CRASH_POSTGRES_PASSWORD") }}')
        return {"kind": kind, "target": f"{kind}.sales.{name}", "catalog": catalog, **config}

    def conf(world: World) -> Mapping[str, str]:
        assert world.postgres is not None
        return spark_conf(lake(world), world.postgres, world.tag)

    def read(world: World) -> list[dict[str, Any]]:
        return list(lake(world).table(name).scan().to_arrow().to_pylist())

    return Adapter(
        name=name,
        config=keys,
        read=read,
        rewrites=merges,
        deletes=merges,
        points=(*(("reduced", "merged") if merges else ()), "branch_created", "branch_written", "published"),
        variant=not merges,  # all but one of its statements is of a MERGE, too
        checks=("iceberg_history", "source_rows"),
        packages=(*ICEBERG, POSTGRES_JDBC),
        needs=("postgres",),
        spark_conf=conf,
    )


# -- files -----------------------------------------------------------------------------------------


def files(name: str, kind: str = "parquet") -> Adapter:
    """Files with manifests; read back are those that the manifests name, JSON by Python and Parquet by pyarrow."""

    def read(world: World) -> list[dict[str, Any]]:
        import pyarrow.parquet as pq

        from recon.write.sinks.files.reading import batch_files

        found: list[dict[str, Any]] = []
        for file in batch_files(str(world.folder / name)):
            if kind == "parquet":
                found += pq.ParquetFile(file).read().to_pylist()
            else:
                found += [json.loads(line) for line in Path(file).read_text().splitlines()]
        return found

    return Adapter(
        name=name,
        config=lambda world: {"kind": kind, "target": name},
        read=read,
        points=("files_written", "manifest_written"),
        checks=("sink_commits", "source_rows"),
    )


# -- databases -------------------------------------------------------------------------------------

_COLUMNS = ("id", "n", "op", "_batch_id", "_source_topic", "_source_partition", "_source_offset")
_JDBC_POINTS = ("stage_created", "staged", "transaction_open", "before_commit", "committed")
_JDBC_DRIVERS = {"postgres": POSTGRES_JDBC, "mariadb": MARIADB_JDBC}


def jdbc(name: str, product: str, kind: str, **config: Any) -> Adapter:
    """A table of a database; `config` are further keys of the sink."""
    upserts, guarded = kind == "jdbc_upsert", config.get("guard", True)

    def keys(world: World) -> dict[str, Any]:
        server = world.server(product)
        password = f'{{{{ env_var("CRASH_{product.upper()}_PASSWORD") }}}}'
        connection = {"url": world.url(product), "user": server.user, "password": password}
        by_key = {"keys": ["id"]} if upserts else {}
        return {"kind": kind, "target": name, "connection": connection, **by_key, **config}

    def prepare(world: World) -> None:
        world.sql(
            product,
            f"CREATE TABLE {name} (id bigint {'PRIMARY KEY' if upserts else ''}, n bigint, op varchar(10), "
            "_batch_id bigint, _source_topic varchar(100), _source_partition int, _source_offset bigint)",
        )

    def read(world: World) -> list[dict[str, Any]]:
        found = world.sql(product, f"SELECT {', '.join(_COLUMNS)} FROM {name}")
        return [dict(zip(_COLUMNS, row, strict=True)) for row in found]

    return Adapter(
        name=name,
        config=keys,
        prepare=prepare,
        read=read,
        label="exactly-once" if guarded else "at-least-once",
        rewrites=upserts,
        points=_JDBC_POINTS if guarded else (),
        checks=("sink_commits", "source_rows"),
        packages=(_JDBC_DRIVERS[product],),
        needs=(product,),
        variant=(product, kind) != ("postgres", "jdbc_upsert"),
    )


# -- Kafka -----------------------------------------------------------------------------------------


def kafka(name: str, **config: Any) -> Adapter:
    """A sink that writes to a topic of its own; read back by a consumer that sees committed records only."""
    transactions = config.get("mode") != "at_least_once"

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

    return Adapter(
        name=name,
        config=lambda world: {
            "kind": "kafka",
            "target": f"{world.tag}_{name}",
            "marker_topic": f"{world.tag}_markers",
            "value_format": "json",
            "key": "id",
            **config,
        },
        prepare=prepare,
        read=read,
        label="exactly-once" if transactions else "at-least-once",
        points=("planned", "tasks_committed", "marked") if transactions else (),
        checks=("sink_commits", "source_rows"),
        variant=not transactions,
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


KINDS: Mapping[str, Callable[[str], Adapter]] = {
    "delta": delta,
    "delta_merge": delta_merge,
    "iceberg": lambda name: iceberg(name, "iceberg"),
    "iceberg_merge": lambda name: iceberg(name, "iceberg_merge", keys=["id"], delete_when="op = 'd'"),
    "parquet": files,
    "routed": routed,
    "postgres_upsert": lambda name: jdbc(name, "postgres", "jdbc_upsert"),
    "mariadb_upsert": lambda name: jdbc(name, "mariadb", "jdbc_upsert"),
    "postgres_append": lambda name: jdbc(name, "postgres", "jdbc_append"),
    "postgres_plain": lambda name: jdbc(name, "postgres", "jdbc_append", guard=False),
    "kafka": kafka,
    "kafka_plain": lambda name: kafka(name, mode="at_least_once"),
}
ADAPTERS: Mapping[str, Adapter] = {kind: make(kind) for kind, make in KINDS.items()}


def pipeline_of(kind: str, name: str) -> Adapter:
    """A further pipeline of a kind."""
    return replace(KINDS[kind](name), of=kind)
