"""Where the ledger's rows are stored: one interface, two writers.

`DeltalakeStore` needs no JVM and appends in milliseconds. `SparkStore` is for a catalog table, or for a store that
deltalake cannot reach. Both write the same schema and refuse to let two writers extend one chain behind the same entry:
an append carries a Delta `txn` of its chain, so the later of two concurrent appends fails, reads the end of the chain
again and retries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recon.errors import ConfigError
from recon.lazy import pa
from recon.ledger.store.base import ChainMoved, Filter, Store, one_line
from recon.ledger.store.delta_rs import DeltalakeStore
from recon.ledger.store.spark import SparkStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recon.project import Project


def open_store(
    project: Project, kind: str, schema: pa.Schema, time_column: str, spark: SparkSession | None = None
) -> Store:
    """One table of the project's ledger; nothing is created until the first append.

    Args:
        project: its `ledger` says where the ledger is and who writes it.
        kind: the table's name: `<location>/<kind>`, or `<table>_<kind>`, and for `ledger` the table itself.
        schema: its columns, with `date` as the last.
        time_column: the timestamp that `date` is derived from.
        spark: the session for `writer: spark`; the active one when None.

    Raises:
        ConfigError: `ledger` names neither a location nor a table.
    """
    config = project.ledger
    if config.table:
        table = config.table if kind == "ledger" else f"{config.table}_{kind}"
        return SparkStore(kind, schema, time_column, table=table, spark=spark)
    if not config.location:
        raise ConfigError("recon.yml has no place for the ledger; set `ledger: {location: lake/_recon}`")
    path = f"{project.resolve(config.location).rstrip('/')}/{kind}"
    if config.writer == "spark":
        return SparkStore(kind, schema, time_column, path=path, spark=spark)
    return DeltalakeStore(kind, schema, time_column, path, project.storage_options)


__all__ = ["ChainMoved", "DeltalakeStore", "Filter", "SparkStore", "Store", "one_line", "open_store"]
