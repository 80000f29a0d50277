"""The sinks: one module or room per kind, behind one interface.

- `base` has the interface, `BatchSink`. `open_sink` makes the writer that a sink's config class names
  (`recon.project.sinks`).
- The kinds: `delta` and `files` (on `path`), `iceberg`, `jdbc`, `kafka`, `custom`.
- What kinds share: `adopt` adds recon's columns to a table, `reduce` makes one row per key before a MERGE, `newest` is
  the MERGE that keeps one row per key, `catalog` reads tables as DataFrames.
- `repair` is what a repair needs of a sink, and `repair` in a kind's room what that kind gives it.
- `failpoints` names the steps of a write at which crash tests end the process.

A sink writes a micro-batch, confirms it and keeps its own record of it. It never imports the ledger.
"""

from __future__ import annotations

from pkgutil import resolve_name

from recon.base.errors import ConfigError
from recon.project import Project, Sink
from recon.write.sinks.base import BatchSink, ConfirmedWrite
from recon.write.sinks.delta.append import DeltaAppend
from recon.write.sinks.failpoints import Failpoint, no_failpoint

__all__ = ["BatchSink", "ConfirmedWrite", "DeltaAppend", "Failpoint", "open_sink"]


def open_sink(project: Project, pipeline: str, sink: Sink, failpoint: Failpoint = no_failpoint) -> BatchSink:
    """The writer for a sink of recon.yml.

    Args:
        project: a loaded recon.yml.
        pipeline: the pipeline's name.
        sink: one of its sinks.
        failpoint: called at the sink's own moments of a write; see recon.write.sinks.failpoints.

    Raises:
        ConfigError: the writer cannot be imported, or something it needs (a driver, a variable) is missing.
    """
    try:
        writer_class: type[BatchSink] = resolve_name(sink.writer)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"pipeline {pipeline}, sink {sink.name}: the writer {sink.writer} of kind {sink.kind} cannot be imported "
            f"({error}); correct `writer` of {type(sink).__name__}, or install what it needs"
        ) from error
    writer = writer_class.of(project, pipeline, sink)
    writer.failpoint = failpoint
    return writer
