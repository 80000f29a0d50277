"""recon.yml as typed values, and `load`, which reads it.

`templates` (Jinja, for recon.yml and SQL tests), `yaml` (a file that remembers its lines), `messages` (errors in one
sentence), `fields` (types of keys); then the parts: `checks`, `source`, `sinks`, `heads`, `model`, `sql_tests`; then
`load` and `guarantees`. dbt's keys mean what they mean in dbt, Kafka's are librdkafka's, Spark's are Spark's. Every
mistake becomes a ConfigError that names file, line and the nearest right key.

Secrets are inserted after parsing. Knows no check by name, and imports nothing of recon but `model`,
`errors` and `text`.
"""

from __future__ import annotations

from recon.project.checks import CheckConfig, CheckSpec, Column
from recon.project.heads import Heads, Place
from recon.project.load import FILE_NAME, as_project, find, load, without_yaml
from recon.project.model import LedgerConfig, Pipeline, Project, Routes, SparkConfig, Table
from recon.project.sinks import (
    CustomSink,
    DeltaMergeSink,
    DeltaSink,
    FileSink,
    Guarantee,
    IcebergMergeSink,
    IcebergSink,
    IcebergTableSink,
    JdbcAppendSink,
    JdbcUpsertSink,
    KafkaSink,
    QuarantineConfig,
    Sink,
    sink_class,
    sink_kinds,
)
from recon.project.source import Source

__all__ = [
    "FILE_NAME",
    "CheckConfig",
    "CheckSpec",
    "Column",
    "CustomSink",
    "DeltaMergeSink",
    "DeltaSink",
    "FileSink",
    "Guarantee",
    "Heads",
    "IcebergMergeSink",
    "IcebergSink",
    "IcebergTableSink",
    "JdbcAppendSink",
    "JdbcUpsertSink",
    "KafkaSink",
    "LedgerConfig",
    "Pipeline",
    "Place",
    "Project",
    "QuarantineConfig",
    "Routes",
    "Sink",
    "Source",
    "SparkConfig",
    "Table",
    "as_project",
    "find",
    "load",
    "sink_class",
    "sink_kinds",
    "without_yaml",
]
