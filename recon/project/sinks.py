"""Where a pipeline writes: one class per kind of sink, and the guarantee each can give.

A micro-batch is retried after a crash, and what a retry does depends on the sink. A class says so in `promise`, from
its keys alone; the ledger enters the label with every write, and audits hold the sink to it.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from recon.project.checks import CheckConfig, CheckSpec, Column, Tested
from recon.project.fields import Name, Strict, Texts, one_tag, refuse_doubles
from recon.project.jdbc import parse_url
from recon.project.messages import Problem
from recon.text import did_you_mean

Label = Literal["exactly-once", "exactly-once within one checkpoint", "at-least-once", "at-most-once", "of each route"]


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What a retried micro-batch does in a sink: the label, what makes it so, and what it needs to hold."""

    label: Label
    how: str
    needs: str


class QuarantineConfig(Strict):
    """Where rows go that fail a post-batch check with `on_failure: quarantine`, and how many may.

    `target`: the Delta table; by default one per sink in the ledger's folder. `stop_above`: the share of a
    micro-batch's rows, 0 to 1 or such as `1%`, above which nothing of it is written and the query stops.
    """

    target: str | None = None
    stop_above: float | None = None

    @field_validator("stop_above", mode="before")
    @classmethod
    def _percent(cls, value: Any) -> Any:
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value) if isinstance(value, str) else None
        share = float(found[1]) / 100 if found else value
        known = isinstance(share, (int, float)) and not isinstance(share, bool) and 0 <= share <= 1
        if value is not None and not known:
            raise Problem("must be a share of the rows, from 0 to 1 or such as 1%", found=True)
        return share


class Sink(Tested):
    """What every sink has; `kind` says which of the classes below it is.

    `stamp_source_offsets`: also stamp `_source_topic`, `_source_partition`, `_source_offset`.
    `on_new_epoch`: what a checkpoint that starts over does when its ranges overlap or miss the ledger's end.
    `trim_replayed_offsets`: drop rows whose (topic, partition, offset) the ledger already holds.
    """

    # Whether later micro-batches may replace the rows of earlier ones.
    rewrites: ClassVar[bool] = False
    # Whether `target` is a path or URI, relative to recon.yml.
    in_files: ClassVar[bool] = True
    # Whether the sink is a Delta table, whose log is a witness of its own.
    is_delta: ClassVar[bool] = False
    # Whether recon.yml must not hold the passwords of `settings`, but say which variables do.
    secrets_from_environment: ClassVar[bool] = False

    kind: str
    name: Name
    target: str
    description: str | None = None
    stamp_source_offsets: bool = True
    on_new_epoch: Literal["stop", "warn"] = "stop"
    trim_replayed_offsets: bool = False
    quarantine: QuarantineConfig = QuarantineConfig()
    defaults: CheckConfig = CheckConfig()
    columns: tuple[Column, ...] = ()
    post_batch: tuple[CheckSpec, ...] = ()

    @model_validator(mode="after")
    def _columns_differ(self) -> Sink:
        refuse_doubles("columns", f" of sink '{self.name}'", (c.name for c in self.columns))
        return self

    @property
    @abstractmethod
    def promise(self) -> Guarantee:
        """What a retried micro-batch does in this sink."""

    @property
    def guarantee(self) -> Label:
        """The promise's label, which the ledger records with every entry."""
        return self.promise.label

    def settings(self) -> Iterable[Mapping[str, str]]:
        """Mappings of the sink that may hold secrets."""
        return ()


class DeltaSink(Sink):
    """Appends to the Delta table at `target` (a path or URI).

    `txn_app_id`: a fixed Delta application id, for tables that already have one; recon's own is safer.
    `partition_by`, `options`: passed to Spark's writer.
    """

    is_delta: ClassVar[bool] = True

    kind: Literal["delta"] = "delta"
    txn_app_id: str | None = None
    partition_by: tuple[str, ...] = ()
    options: Texts = Field(default_factory=dict)

    @property
    def promise(self) -> Guarantee:
        """Delta's txn, one application id per epoch."""
        # A fixed app id cannot tell a new checkpoint's batch 0 from the old one's.
        return Guarantee(
            label="exactly-once" if self.txn_app_id is None else "exactly-once within one checkpoint",
            how="the commit carries a txn, so Delta drops a second write of the micro-batch",
            needs="a Delta table that only recon's app id writes with txn",
        )

    def settings(self) -> Iterable[Mapping[str, str]]:
        """The writer's options."""
        return (self.options,)


class PruneBy(Strict):
    """A column of the target whose values in a micro-batch tell a MERGE which files it may leave alone.

    `immutable`: every row of a key has the same value there, for ever; needed where the column is none of the keys.
    """

    column: str
    immutable: bool = False

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"column": value} if isinstance(value, str) else value


class History(Strict):
    """Keeps every version of a key (slowly changing dimension, type 2) instead of the newest alone.

    `effective`: the source column that says since when a version holds. `valid_from`, `valid_to`, `is_current`: the
    names of the target's columns; `valid_to` is NULL for the version that holds now.
    """

    effective: str
    valid_from: str = "valid_from"
    valid_to: str = "valid_to"
    is_current: str = "is_current"


class DeltaMergeSink(Sink):
    """Merges into the Delta table at `target`: one row per key, or with `scd2` one per version of a key.

    `keys`: the columns that tell rows apart; a NULL in one of them stops the micro-batch.
    `newer_wins`: a column by which a row replaces only an older one. `order_by`: SQL expressions that rank the rows of
    one key within a micro-batch after `newer_wins` and before the source offset; the greatest wins.
    `update_when`, `insert_when`: SQL conditions on the source row `s` and, for an update, the target row `t`.
    `delete_when`: an SQL condition on the source row that makes it a tombstone of its key.
    `scd2`: keep history, see History. `evolve_schema`: add columns that the table lacks.
    `prune_by`: columns by which the MERGE leaves out files, see PruneBy.
    `partition_by`, `options`: for the table that the first micro-batch makes, passed to Spark's writer.
    """

    rewrites: ClassVar[bool] = True
    is_delta: ClassVar[bool] = True

    kind: Literal["delta_merge"]
    keys: tuple[str, ...] = Field(min_length=1)
    newer_wins: str | None = None
    order_by: tuple[str, ...] = ()
    update_when: str | None = None
    insert_when: str | None = None
    delete_when: str | None = None
    scd2: History | None = None
    evolve_schema: bool = False
    prune_by: tuple[PruneBy, ...] = ()
    partition_by: tuple[str, ...] = ()
    options: Texts = Field(default_factory=dict)

    _one_column = field_validator("keys", "order_by", "prune_by", "partition_by", mode="before")(one_tag)

    @model_validator(mode="after")
    def _columns_fit(self) -> DeltaMergeSink:
        refuse_doubles("keys", f" of sink '{self.name}'", self.keys)
        if self.newer_wins in self.keys:
            raise Problem(f"is '{self.newer_wins}', one of the keys; it has to tell rows of a key apart", "newer_wins")
        for n, prune in enumerate(self.prune_by):
            if prune.column not in self.keys and not prune.immutable:
                raise Problem(
                    f"names '{prune.column}', which is none of the keys: where a key's value changes there, its old "
                    "row would not be found and stay beside the new one; make it a key, or declare that it never "
                    "changes: "
                    f"{{column: {prune.column}, immutable: true}}",
                    "prune_by",
                    n,
                )
        if not self.stamp_source_offsets and not (self.newer_wins or self.order_by):
            raise Problem(
                f"sink '{self.name}' needs newer_wins or order_by: without source offsets nothing says which of two "
                "rows of a key is the latest",
                "stamp_source_offsets",
                whole=True,
            )
        for key in ("newer_wins", "update_when", "insert_when"):
            if self.scd2 is not None and getattr(self, key) is not None:
                raise Problem(
                    f"cannot be combined with scd2, which keeps every version by its instant in {self.scd2.effective}; "
                    "filter rows in the transform",
                    key,
                )
        if self.scd2 is not None and self.scd2.effective in self.keys:
            raise Problem(f"is '{self.scd2.effective}', one of the keys; leave it out of them", "scd2", "effective")
        if self.scd2 is not None:
            made = (self.scd2.valid_from, self.scd2.valid_to, self.scd2.is_current)
            for n, name in enumerate(("valid_from", "valid_to", "is_current")):
                if made[n].lower() in {column.lower() for column in (*self.keys, *made[:n])}:
                    raise Problem(
                        f"is '{made[n]}', which is another column of the sink; name it otherwise", "scd2", name
                    )
        return self

    @property
    def promise(self) -> Guarantee:
        """Delta's txn, set for the one MERGE."""
        return Guarantee(
            label="exactly-once",
            how="the MERGE's commit carries a txn, so Delta drops a second one of the micro-batch",
            needs="a Delta table that only this sink writes, and keys that are never NULL",
        )

    def settings(self) -> Iterable[Mapping[str, str]]:
        """The writer's options."""
        return (self.options,)


class Retry(Strict):
    """How often a database is tried again when it cannot be reached, or gave way to another transaction.

    `attempts` in all, with a pause of `pause` seconds that doubles each time, and not longer than `within` seconds.
    """

    attempts: int = Field(default=6, ge=1)
    pause: float = Field(default=0.5, ge=0)
    within: float = Field(default=120, ge=0)


class _Jdbc(Sink):
    """A table of a database: `target` is its name, `connection` how to reach it.

    `connection`: `url` (JDBC), `user`, `password`, and `driver`, the Java class, where it is not the usual one.
    `options`: options of Spark's JDBC writer and properties of the JDBC driver. `driver_options`: arguments for the
    Python driver (psycopg, PyMySQL, pymssql). `create_table`: make the target if it is missing. `work_schema`: where
    recon_ledger and the staging tables are, by default beside the target. `stage_with`: `jdbc`, or `copy` for
    PostgreSQL's COPY by psycopg on the executors. `retry`: see Retry.
    """

    in_files: ClassVar[bool] = False
    secrets_from_environment: ClassVar[bool] = True

    connection: Texts = Field(repr=False)
    options: Texts = Field(default_factory=dict, repr=False)
    driver_options: dict[str, Any] = Field(default_factory=dict, repr=False)
    create_table: bool = False
    work_schema: str | None = None
    stage_with: Literal["jdbc", "copy"] = "jdbc"
    retry: Retry = Retry()

    @model_validator(mode="after")
    def _reachable(self) -> _Jdbc:
        known = ("url", "user", "password", "driver")
        for key in self.connection:
            if key not in known:
                raise Problem(
                    f"connection of sink '{self.name}' has no key '{key}'"
                    f"{did_you_mean(key, known, 'known keys:')}; properties of the driver "
                    "belong in options",
                    "connection",
                    key,
                    whole=True,
                )
        if "url" not in self.connection:
            raise Problem(f"connection of sink '{self.name}' needs a url", "connection", whole=True)
        try:
            url = parse_url(self.connection["url"])
        except Problem as problem:
            raise Problem(f"connection's url of sink '{self.name}' {problem}", "connection", whole=True) from None
        for key in self.options:
            if key.lower() in (*known, "dbtable", "query"):
                raise Problem(
                    f"'{key}' in options of sink '{self.name}' belongs in connection; the table is target",
                    "options",
                    key,
                    whole=True,
                )
        if self.stage_with == "copy" and url.product != "postgresql":
            raise Problem(f"is copy, which PostgreSQL has and {url.product} has not; use jdbc", "stage_with")
        return self

    def settings(self) -> Iterable[Mapping[str, str]]:
        """The connection, and the options of both drivers."""
        python = {key: value for key, value in self.driver_options.items() if isinstance(value, str)}
        return (self.connection, self.options, python)


class JdbcUpsertSink(_Jdbc):
    """Inserts new keys into a database table and updates those it has.

    `keys`: columns with a unique key. `update`: columns that an update takes over, by default all but the keys.
    `newer_wins`: a column by which a row replaces only one that is not newer. `order_by`: columns that tell the latest
    of several rows of one key within a micro-batch, before the source offset does.
    """

    rewrites: ClassVar[bool] = True

    kind: Literal["jdbc_upsert"]
    keys: tuple[str, ...] = Field(min_length=1)
    update: tuple[str, ...] | None = Field(default=None, min_length=1)
    newer_wins: str | None = None
    order_by: tuple[str, ...] = ()

    _one_column = field_validator("keys", "update", "order_by", mode="before")(one_tag)

    @model_validator(mode="after")
    def _columns_fit(self) -> JdbcUpsertSink:
        for key in self.keys:
            if self.update and key in self.update:
                raise Problem(f"names '{key}', which is one of the keys; a key is never updated", "update")
        if self.newer_wins in self.keys:
            raise Problem(f"is '{self.newer_wins}', one of the keys; it has to tell rows of a key apart", "newer_wins")
        return self

    @property
    def promise(self) -> Guarantee:
        """The upsert and its entry are one transaction."""
        return Guarantee(
            label="exactly-once",
            how="the upsert and a row of recon_ledger, whose key is the micro-batch, are one transaction",
            needs="a unique key on the table, and the right to create tables beside it",
        )


class JdbcAppendSink(_Jdbc):
    """Appends to a database table; with `guard`, in one transaction with an entry that a replay meets."""

    kind: Literal["jdbc_append"]
    guard: bool = True

    @property
    def promise(self) -> Guarantee:
        """One transaction with its entry, or Spark's plain append."""
        if not self.guard:
            return Guarantee(
                label="at-least-once",
                how="Spark's JDBC append; tasks commit one by one, and a retry writes their rows again",
                needs="nothing but the table",
            )
        return Guarantee(
            label="exactly-once",
            how="the insert and a row of recon_ledger, whose key is the micro-batch, are one transaction",
            needs="the right to create tables beside the target",
        )


class KafkaSink(Sink):
    """Writes rows as records of the topic `target`.

    `mode`: `transactional` writes a micro-batch's rows and markers of them in Kafka transactions; `at_least_once`
    writes plain records.
    `value_format`: `columns` takes the columns `key`, `value`, `headers` and `partition`, as Spark's own sink does;
    `json` writes all columns but recon's as one JSON object.
    `key`: the column that becomes the record's key; `key` by default, if there is one.
    `marker_topic`: a compacted topic for the markers, made if absent; `marker_replication_factor`: its replicas, the
    broker's default when None.
    `tasks`: how many tasks write at once, 8 by default; never more than the micro-batch has source partitions.
    `kafka`: librdkafka settings for this sink, over the project's.
    `options`: passed to Spark's Kafka reader where checks read the topic back.
    """

    in_files: ClassVar[bool] = False

    kind: Literal["kafka"]
    mode: Literal["transactional", "at_least_once"] = "transactional"
    value_format: Literal["columns", "json"] = "columns"
    key: str | None = None
    marker_topic: str = "_recon_markers"
    marker_replication_factor: int | None = Field(default=None, ge=1)
    tasks: int | None = Field(default=None, ge=1, le=1000)
    kafka: Texts = Field(default_factory=dict, repr=False)
    options: Texts = Field(default_factory=dict, repr=False)

    @model_validator(mode="after")
    def _claims_what_it_can(self) -> KafkaSink:
        if self.mode == "transactional" and "mode" in self.model_fields_set and not self.stamp_source_offsets:
            raise Problem(
                f"sink '{self.name}' cannot be exactly-once with stamp_source_offsets: false: without source "
                "coordinates nothing says which task had which row; stamp them, or set mode: at_least_once",
                "mode",
                whole=True,
            )
        if self.target == self.marker_topic:
            raise Problem("is the sink's target, too; give the markers a topic of their own", "marker_topic")
        weaker = {"enable.idempotence": ("false",), "acks": ("0", "1"), "request.required.acks": ("0", "1")}
        for name, refused in weaker.items():
            if self.kafka.get(name) in refused:
                raise Problem(f"cannot be {self.kafka[name]}: records could be lost or doubled", "kafka", name)
        for name in ("transactional.id", "isolation.level"):
            if name in self.kafka:
                raise Problem("is set by recon; leave it out", "kafka", name)
        return self

    @property
    def transactional(self) -> bool:
        """Whether rows are written in transactions with markers."""
        return self.mode == "transactional" and self.stamp_source_offsets

    @property
    def promise(self) -> Guarantee:
        """Transactions with markers, or plain records."""
        if not self.transactional:
            return Guarantee(
                label="at-least-once",
                how="an idempotent producer with acks=all; a retried micro-batch is written again",
                needs="consumers that can bear doubles",
            )
        return Guarantee(
            label="exactly-once",
            how="a task's records and its marker are one transaction; a retry skips tasks whose marker is there",
            needs="a compacted marker topic, consumers that read committed records only, a transform that keeps the "
            "same rows when it runs again, and recon and confluent-kafka on the executors",
        )

    def settings(self) -> Iterable[Mapping[str, str]]:
        """The producer's settings, and those of Spark's reader."""
        return (self.kafka, self.options)


class FileSink(Sink):
    """Writes Parquet, JSON or CSV files below `target`.

    `mode`: `replace` gives each micro-batch a folder of its own and a manifest, which is written last; `append` is
    Spark's append. `partition_by`, `options`: passed to Spark's writer.
    """

    kind: Literal["parquet", "json", "csv"]
    mode: Literal["replace", "append"] = "replace"
    partition_by: tuple[str, ...] = ()
    options: Texts = Field(default_factory=dict)

    @model_validator(mode="after")
    def _columns_of_recon(self) -> FileSink:
        for column in self.partition_by:
            if column in ("_batch_id", "_recon_epoch"):
                raise Problem(
                    f"names {column}, by which the sink's folders are divided anyway; remove it", "partition_by"
                )
        return self

    @property
    def promise(self) -> Guarantee:
        """The micro-batch's own folder and its manifest, or Spark's append."""
        if self.mode == "append":
            return Guarantee(
                label="at-least-once",
                how="Spark's append; a retry adds files beside those of the failed attempt",
                needs="nothing but the folder",
            )
        return Guarantee(
            label="exactly-once",
            how="a retry replaces the micro-batch's folder; its manifest is written last",
            needs="readers that honour manifests (recon.read_batches)",
        )

    def settings(self) -> Iterable[Mapping[str, str]]:
        """The writer's options."""
        return (self.options,)


class CustomSink(Sink):
    """Writes by your own function, `write(frame, batch)`.

    `write`, `confirm`, `read`: functions as `package.module:function`, or given to `foreach_batch`. `declares`: what
    you declare that a retry does; without `confirm` nobody can hold the sink to it. `target`: its name in reports.
    """

    in_files: ClassVar[bool] = False

    kind: Literal["custom"]
    target: str = ""
    declares: Literal["exactly-once", "exactly-once within one checkpoint", "at-least-once", "at-most-once"] = (
        "at-least-once"
    )
    write: str | Callable[..., Any] | None = None
    confirm: str | Callable[..., Any] | None = None
    read: str | Callable[..., Any] | None = None

    @field_validator("write", "confirm", "read")
    @classmethod
    def _function(cls, value: Any) -> Any:
        if isinstance(value, str) and not re.fullmatch(r"\w+(\.\w+)*:\w+(\.\w+)*", value):
            raise Problem("must name a function as package.module:function", found=True)
        return value

    @property
    def promise(self) -> Guarantee:
        """What was declared."""
        confirmed = "and confirmed by your function" if self.confirm else "not confirmed"
        return Guarantee(
            label=self.declares,
            how=f"declared by you, {confirmed}; recon skips what the ledger knows",
            needs="a function that keeps what is declared when it gets the same micro-batch again",
        )


_CLASSES = (DeltaSink, DeltaMergeSink, JdbcUpsertSink, JdbcAppendSink, KafkaSink, FileSink, CustomSink)
KINDS: Mapping[str, type[Sink]] = {
    kind: found for found in _CLASSES for kind in get_args(found.model_fields["kind"].annotation)
}


def _tag(value: Any) -> str:
    """The name of the class that a sink of recon.yml is read as."""
    if isinstance(value, Sink):
        return type(value).__name__
    kind = value.get("kind", "delta") if isinstance(value, Mapping) else "delta"
    return KINDS.get(kind, DeltaSink).__name__ if isinstance(kind, str) else DeltaSink.__name__


def refuse_unknown_kinds(sinks: Any) -> Any:
    """The sinks as they are written, none of a kind that nobody knows."""
    for n, item in enumerate(sinks if isinstance(sinks, (list, tuple)) else ()):
        kind = item.get("kind", "delta") if isinstance(item, Mapping) else "delta"
        if not isinstance(kind, str) or kind not in KINDS:
            known = " or ".join(f"'{name}'" for name in KINDS)
            nearest = did_you_mean(str(kind), list(KINDS), "")
            raise Problem(
                f"kind of sink {item.get('name', f'number {n + 1}')} must be {known}, found {kind!r}{nearest}",
                n,
                "kind",
                whole=True,
            )
    return sinks


AnySink = Annotated[
    Annotated[DeltaSink, Tag("DeltaSink")]
    | Annotated[DeltaMergeSink, Tag("DeltaMergeSink")]
    | Annotated[JdbcUpsertSink, Tag("JdbcUpsertSink")]
    | Annotated[JdbcAppendSink, Tag("JdbcAppendSink")]
    | Annotated[KafkaSink, Tag("KafkaSink")]
    | Annotated[FileSink, Tag("FileSink")]
    | Annotated[CustomSink, Tag("CustomSink")],
    Discriminator(_tag),
]
