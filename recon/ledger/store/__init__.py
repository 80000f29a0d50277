"""Where the ledger's rows are stored: one interface, two writers.

`DeltalakeStore` needs no JVM and appends in milliseconds. `SparkStore` is for a catalog table, or for a store that
deltalake cannot reach. Both write the same schema and refuse to let two writers extend one chain behind the same entry:
an append carries a Delta `txn` of its chain, so the later of two concurrent appends fails, reads the end of the chain
again and retries. While others write the table at the same moment, every write is tried again for a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recon.errors import ConfigError
from recon.ledger.store.base import (
    INT32,
    MANY_FILES,
    SEQUENCE,
    BeingMerged,
    ChainMoved,
    Filter,
    LedgerTable,
    Store,
    one_line,
)
from recon.ledger.store.contention import Contended, again, deadline
from recon.ledger.store.delta_rs import DeltalakeStore
from recon.ledger.store.spark import SparkStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recon.project import Project


def open_store(project: Project, table: LedgerTable, spark: SparkSession | None = None) -> Store:
    """One table of the project's ledger; nothing is created until the first append.

    `spark` is the session for `writer: spark`; the active one when None.

    Raises:
        ConfigError: `ledger` names neither a location nor a table.
    """
    config = project.ledger
    if config.table:
        name = config.table if table.kind == "ledger" else f"{config.table}_{table.kind}"
        return SparkStore(table, name=name, spark=spark)
    if not config.location:
        raise ConfigError("recon.yml has no place for the ledger; set `ledger: {location: lake/_recon}`")
    path = f"{project.resolve(config.location).rstrip('/')}/{table.kind}"
    if config.writer == "spark":
        return SparkStore(table, path=path, spark=spark)
    return DeltalakeStore(table, path, project.storage_options)


__all__ = [
    "INT32",
    "MANY_FILES",
    "SEQUENCE",
    "BeingMerged",
    "ChainMoved",
    "Contended",
    "DeltalakeStore",
    "Filter",
    "LedgerTable",
    "SparkStore",
    "Store",
    "again",
    "deadline",
    "one_line",
    "open_store",
]
