"""Which store a repair of a sink works on."""

from __future__ import annotations

from recon.project import Project, Sink
from recon.project.sinks import DeltaMergeSink, DeltaSink, FileSink, JdbcAppendSink, JdbcUpsertSink, KafkaSink
from recon.recovery.repair.in_database import DatabaseStore
from recon.recovery.repair.in_delta import DeltaStore, MergeStore
from recon.recovery.repair.in_files import FileStore
from recon.recovery.repair.in_kafka import KafkaStore
from recon.recovery.repair.store import RepairStore


def open_store(project: Project, pipeline: str, sink: Sink) -> RepairStore:
    """The store of a sink that can be repaired (`recon.recovery.repair.kinds`)."""
    if isinstance(sink, DeltaMergeSink):
        return MergeStore(project, pipeline, sink)
    if isinstance(sink, (JdbcAppendSink, JdbcUpsertSink)):
        return DatabaseStore(project, pipeline, sink)
    if isinstance(sink, FileSink):
        return FileStore(project, pipeline, sink)
    if isinstance(sink, KafkaSink):
        return KafkaStore(project, pipeline, sink)
    assert isinstance(sink, DeltaSink)
    return DeltaStore(project, pipeline, sink)
