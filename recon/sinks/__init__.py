"""Write: one module per sink, one small interface. `open_sink` turns a recon.yml sink into one of them."""

from __future__ import annotations

from recon.project import Project, Sink
from recon.sinks.base import BatchSink, Landed
from recon.sinks.delta import DeltaAppend, app_id

__all__ = ["BatchSink", "DeltaAppend", "Landed", "app_id", "open_sink"]


def open_sink(project: Project, sink: Sink) -> BatchSink:
    """The writer for a sink of recon.yml."""
    return DeltaAppend(
        project.resolve(sink.target),
        storage_options=project.storage_options,
        partition_by=sink.partition_by,
        options=sink.options,
        txn_app_id=sink.txn_app_id,
    )
