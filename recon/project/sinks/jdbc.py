"""The sinks of kind `jdbc_upsert` and `jdbc_append`: a table of a database."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from recon.base.text import did_you_mean
from recon.project.fields import Strict, Texts, one_tag
from recon.project.jdbc import parse_url
from recon.project.messages import BadValue
from recon.project.sinks.base import Guarantee, Sink
from recon.project.sinks.repairs import RepairAbility, of_replaced_rows, without_record


class Retry(Strict):
    """How often a database is tried again when it cannot be reached, or rolled back because of another transaction.

    `attempts` in all, with a pause of `pause` seconds that doubles each time, and not longer than `within` seconds.
    """

    attempts: int = Field(default=6, ge=1)
    pause: float = Field(default=0.5, ge=0)
    within: float = Field(default=120, ge=0)


class JdbcSink(Sink):
    """A table of a database: `target` is its name, `connection` how to reach it.

    `connection`: `url` (JDBC), `user`, `password`, and `driver`, the Java class, where it is not the usual one.
    `options`: options of Spark's JDBC writer and properties of the JDBC driver. `driver_options`: arguments for the
    Python driver (psycopg, PyMySQL, pymssql). `create_table`: make the target if it is missing. `work_schema`: where
    recon_ledger and the staging tables are, by default beside the target. `stage_with`: `jdbc`, or `copy` for
    PostgreSQL's COPY by psycopg on the executors. `retry`: see Retry.
    """

    in_files = False
    secrets_from_environment = True

    connection: Texts = Field(repr=False)
    options: Texts = Field(default_factory=dict, repr=False)
    driver_options: dict[str, Any] = Field(default_factory=dict, repr=False)
    create_table: bool = False
    work_schema: str | None = None
    stage_with: Literal["jdbc", "copy"] = "jdbc"
    retry: Retry = Retry()

    @property
    @override
    def jdbc_url(self) -> str:
        return self.connection["url"]

    @model_validator(mode="after")
    def _reachable(self) -> JdbcSink:
        known = ("url", "user", "password", "driver")
        for key in self.connection:
            if key not in known:
                raise BadValue(
                    f"connection of sink '{self.name}' has no key '{key}'{did_you_mean(key, known, 'known keys:')}; "
                    "properties of the driver belong in options",
                    "connection",
                    key,
                    whole=True,
                )
        if "url" not in self.connection:
            raise BadValue(f"connection of sink '{self.name}' needs a url", "connection", whole=True)
        try:
            url = parse_url(self.connection["url"])
        except BadValue as problem:
            raise BadValue(f"connection's url of sink '{self.name}' {problem}", "connection", whole=True) from None
        for key in self.options:
            if key.lower() in (*known, "dbtable", "query"):
                raise BadValue(
                    f"'{key}' in options of sink '{self.name}' belongs in connection; the table is target",
                    "options",
                    key,
                    whole=True,
                )
        if self.stage_with == "copy" and url.product != "postgresql":
            raise BadValue(f"is copy, which PostgreSQL has and {url.product} has not; use jdbc", "stage_with")
        return self


class JdbcUpsertSink(JdbcSink):
    """Inserts new keys into a database table and updates those it has.

    `keys`: columns with a unique key. `update`: columns that an update takes over, by default all but the keys.
    `newer_wins`: a column by which a row replaces only one that is not newer. `order_by`: columns that rank the
    rows of one key within a micro-batch after `newer_wins` and before the source offset; the greatest is kept.
    """

    writer = "recon.write.sinks.jdbc.writers:JdbcUpsert"
    repairs = "recon.write.sinks.jdbc.repair:DatabaseStore"
    rewrites = True

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
                raise BadValue(f"names '{key}', which is one of the keys; a key is never updated", "update")
        if self.newer_wins in self.keys:
            raise BadValue(f"is '{self.newer_wins}', one of the keys; it has to tell rows of a key apart", "newer_wins")
        return self

    @property
    @override
    def promise(self) -> Guarantee:
        return Guarantee(
            label="exactly-once",
            how="the upsert and a row of recon_ledger, keyed by micro-batch and number, are one transaction",
            needs="a unique key on the table, and the right to create tables beside it",
        )

    @property
    @override
    def repair_ability(self) -> RepairAbility:
        if self.update is not None:
            return of_replaced_rows("update")
        return of_replaced_rows("order_by" if self.order_by and self.newer_wins is None else None)


class JdbcAppendSink(JdbcSink):
    """Appends to a database table; with `guard`, in one transaction with an entry that a replay meets.

    `count_offsets`: an audit has the database compare its rows by their source offsets, all of the table.
    """

    writer = "recon.write.sinks.jdbc.writers:JdbcAppend"
    repairs = "recon.write.sinks.jdbc.repair:DatabaseStore"
    variants = ({}, {"guard": False})

    kind: Literal["jdbc_append"]
    guard: bool = True
    count_offsets: bool = True

    @property
    @override
    def promise(self) -> Guarantee:
        if not self.guard:
            return Guarantee(
                label="at-least-once",
                how="Spark's JDBC append; tasks commit one by one, and a retry writes their rows again",
                needs="nothing but the table",
            )
        return Guarantee(
            label="exactly-once",
            how="the insert and a row of recon_ledger, keyed by micro-batch and number, are one transaction",
            needs="the right to create tables beside the target",
        )

    @property
    @override
    def repair_ability(self) -> RepairAbility:
        if not self.guard:
            return without_record("guard: false", "the database keeps no record of")
        product = parse_url(self.connection["url"]).product
        if product in ("postgresql", "mariadb", "mysql"):
            return RepairAbility()
        return RepairAbility(
            no_removal=f"recon removes no rows of {product}: keep one row of each offset, that of the micro-batch "
            "whose entry accounts for it, and audit with --full"
        )
