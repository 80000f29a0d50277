"""Opens a sink's ledger for the hook, and repairs what a crash left: commits of the sink without a ledger entry."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from recon.hook.epochs import CLOCKS_APART, RECENT
from recon.ledger import Ledger, open_ledger
from recon.ledger.rebuild import quarantine_of, recorded, restore, unrecorded
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
    # A release may have written while the query was down: commits before it may still lack their entry.
    of_batches = [entry for entry in recent if not entry.is_release]
    versions = [entry.sink_version for entry in of_batches if entry.sink_version is not None]
    since = max((entry.committed_at for entry in of_batches), default=None)
    sink_log = writer.log(after=max(versions, default=None), since=None if since is None else since - CLOCKS_APART)
    known = {(entry.epoch, entry.batch_id) for entry in recent}
    if unrecorded(sink_log.commits, pipeline.name, sink.name, known):
        known |= recorded(ledger, pipeline.name, sink.name)  # a sink without versions gives older commits, too
    restored = restore(
        ledger,
        pipeline.name,
        sink,
        sink_log.commits,
        target=project.location(sink),
        known=known,
        quarantine=lambda: quarantine_of(project, pipeline.name, sink),
    )
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
