"""The sinks of recon.yml: one config class per kind, with its keys, its promise and its writer.

`base` has what all sinks share, `merging` what those share that merge; `delta`, `iceberg`, `jdbc`, `kafka`, `files` and
`custom` the kinds; `repairs` says what a repair can do for a sink; `kinds` lists the kinds, those of installed packages
(entry points `recon.sinks`) among them. Values only: the writers are in `recon.write.sinks`.
"""

from __future__ import annotations

from recon.project.sinks.base import Guarantee, QuarantineConfig, Sink, sink_class
from recon.project.sinks.custom import CustomSink
from recon.project.sinks.delta import DeltaMergeSink, DeltaSink, History, PruneBy
from recon.project.sinks.files import FileSink
from recon.project.sinks.iceberg import IcebergMergeSink, IcebergSink, IcebergTableSink
from recon.project.sinks.jdbc import JdbcAppendSink, JdbcSink, JdbcUpsertSink, Retry
from recon.project.sinks.kafka import KafkaSink
from recon.project.sinks.kinds import names as sink_kinds

__all__ = [
    "CustomSink",
    "DeltaMergeSink",
    "DeltaSink",
    "FileSink",
    "Guarantee",
    "History",
    "IcebergMergeSink",
    "IcebergSink",
    "IcebergTableSink",
    "JdbcAppendSink",
    "JdbcSink",
    "JdbcUpsertSink",
    "KafkaSink",
    "PruneBy",
    "QuarantineConfig",
    "Retry",
    "Sink",
    "sink_class",
    "sink_kinds",
]
