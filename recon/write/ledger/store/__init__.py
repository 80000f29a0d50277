"""Where the ledger's rows are stored: one interface (`base`), two writers.

`DeltalakeStore` (`delta_rs`) needs no JVM and appends in milliseconds. `SparkStore` (`spark`) is for a catalog table,
or for a store that deltalake cannot reach. Both write the same schema.

Two writers cannot extend one chain behind the same entry: an append carries a Delta `txn` of its chain. The later of
two concurrent appends fails, reads the end of the chain again and retries. `contention` retries writes that others'
commits stop, and `append_lock` lets the writers of one host wait for each other. `merging` claims a merge of small
files, and `short_log` keeps the log folder small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recon.base.errors import ConfigError
from recon.write.ledger.store.base import (
    INT32,
    SEQUENCE,
    BeingMerged,
    ChainMoved,
    Filter,
    LedgerTable,
    Store,
    one_line,
)
from recon.write.ledger.store.contention import Contended, again, deadline
from recon.write.ledger.store.delta_rs import DeltalakeStore
from recon.write.ledger.store.housekeeping import USUAL, Housekeeping
from recon.write.ledger.store.spark import SparkStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recon.project import Project


def open_store(
    project: Project, table: LedgerTable, spark: SparkSession | None = None, housekeeping: Housekeeping = USUAL
) -> Store:
    """One table of the project's ledger; nothing is created until the first append.

    `spark` is the session for `writer: spark`; the active one when None.

    Raises:
        ConfigError: `ledger` names neither a location nor a table.
    """
    config = project.ledger
    if config.table:
        name = config.table if table.kind == "ledger" else f"{config.table}_{table.kind}"
        return SparkStore(table, name=name, spark=spark, housekeeping=housekeeping)
    if not config.location:
        raise ConfigError("recon.yml has no place for the ledger; set `ledger: {location: lake/_recon}`")
    path = f"{project.resolve(config.location).rstrip('/')}/{table.kind}"
    if config.writer == "spark":
        return SparkStore(table, path=path, spark=spark, housekeeping=housekeeping)
    return DeltalakeStore(table, path, project.storage_options, housekeeping)


__all__ = [
    "INT32",
    "SEQUENCE",
    "USUAL",
    "BeingMerged",
    "ChainMoved",
    "Contended",
    "DeltalakeStore",
    "Filter",
    "Housekeeping",
    "LedgerTable",
    "SparkStore",
    "Store",
    "again",
    "deadline",
    "one_line",
    "open_store",
]
