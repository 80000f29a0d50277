"""recon.yml as typed values, and `load`, which reads it.

In reading order:

- Reading: `templates` and `sandbox` (Jinja), `yaml` (a file that remembers its lines), `messages` (errors in one
  sentence), `fields` (types of keys), `locations` (paths, URIs, catalog tables), `jdbc` (URLs).
- The parts of the file: `checks`, `source`, `sinks`, `heads`, `alerts`, `catalogs`, `compliance`, `samples`,
  `telemetry`; `model` has the whole, and `sql_tests` the project's own SQL.
- `load` puts it together; `secrets` masks what no text may show; `guarantees` is the table of what sinks promise.

dbt's keys mean what they mean in dbt, Kafka's are librdkafka's, Spark's are Spark's. Every mistake becomes a
ConfigError that names file, line and the nearest right key. Secrets are inserted after parsing. Knows no check by name.
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
