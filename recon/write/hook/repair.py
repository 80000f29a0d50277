"""Opens a sink's ledger for the hook, and repairs what a crash left: commits of the sink without a ledger entry."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from recon.base.errors import TableReplacedError
from recon.model import LedgerEntry
from recon.model.ledger import named
from recon.project import Pipeline, Project, Sink
from recon.write.hook.epochs import RECENT
from recon.write.ledger import Ledger, open_ledger
from recon.write.ledger.rebuild import missing, restore
from recon.write.sinks import BatchSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("recon")


def require_same_table(pipeline: Pipeline, sink: Sink, writer: BatchSink, entries: Sequence[LedgerEntry]) -> None:
    """Requires that the sink still is what the ledger's newest entry was written into.

    Raises:
        TableReplacedError: it is not, and `on_new_epoch` is `stop`.
        EvidenceError: the sink cannot be read.
    """
    reason = writer.replaced(entries[-1]) if entries else ""
    if not reason:
        return
    again = "read them again with `recon repair`"
    if not sink.is_delta:  # of tables with history, repairs write those of Delta
        again = (
            f"read what it names once more through the hook, with a checkpoint of its own (a repair writes no sinks of "
            f"kind {sink.kind})"
        )
    message = (
        f"pipeline {pipeline.name}, sink {sink.name}: {reason}; rows that the ledger has are gone: put the table back, "
        f"or go on without them with `on_new_epoch: warn`, run `recon audit`, and {again}"
    )
    if sink.on_new_epoch == "stop":
        raise TableReplacedError(message)
    log.warning(message)


def open_repaired(
    project: Project, pipeline: Pipeline, sink: Sink, writer: BatchSink, spark: SparkSession
) -> tuple[Ledger, Sequence[LedgerEntry]]:
    """The ledger and its newest entries of a sink, those included that were missing and are restored here.

    Raises:
        TableReplacedError: the sink's table is not the one of these entries.
    """
    ledger = open_ledger(project, spark)
    ledger.head_hash(pipeline.name, sink.name)  # read first, so that `others` notices what is appended while we read
    recent = ledger.last(pipeline.name, sink.name, RECENT)
    commits = missing(ledger, pipeline.name, sink.name, recent, writer.log)
    require_same_table(pipeline, sink, writer, recent)
    restored = restore(project, ledger, pipeline.name, sink, commits)
    for entry in restored:
        log.warning(
            "pipeline %s, sink %s: %s was committed%s and missing in the ledger; its entry was restored "
            "from the sink's own record",
            pipeline.name,
            sink.name,
            named(entry),
            "" if entry.sink_version is None else f" as version {entry.sink_version}",
        )
    return ledger, (*recent, *restored)
