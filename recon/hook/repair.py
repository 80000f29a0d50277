"""Opens a sink's ledger for the hook, and repairs what a crash left: commits of the sink without a ledger entry."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from recon.hook.epochs import RECENT
from recon.ledger import Ledger, open_ledger
from recon.ledger.rebuild import missing, restore
from recon.model import LedgerEntry
from recon.project import Pipeline, Project, Sink
from recon.sinks import BatchSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("recon")


def open_repaired(
    project: Project, pipeline: Pipeline, sink: Sink, writer: BatchSink, spark: SparkSession
) -> tuple[Ledger, Sequence[LedgerEntry]]:
    """The ledger and its newest entries of a sink, those included that were missing and are restored here."""
    ledger = open_ledger(project, spark)
    recent = ledger.last(pipeline.name, sink.name, RECENT)
    commits = missing(ledger, pipeline.name, sink.name, recent, writer.log)
    restored = restore(project, ledger, pipeline.name, sink, commits)
    for entry in restored:
        log.warning(
            "pipeline %s, sink %s: %s %d (epoch %d) was committed%s and missing in the ledger; its entry was restored "
            "from the sink's own record",
            pipeline.name,
            sink.name,
            "release" if entry.is_release else "micro-batch",
            entry.batch_id,
            entry.epoch,
            "" if entry.sink_version is None else f" as version {entry.sink_version}",
        )
    return ledger, (*recent, *restored)
