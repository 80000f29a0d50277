"""Write: one module or room per kind of sink, behind one interface.

`base` has the interface, `BatchSink`; `open_sink` makes the writer for a sink of recon.yml, whose config class in
`recon.project.sinks` names it. The kinds: `delta` and `files` (on `path`), `jdbc`, `kafka`, `custom`. `catalog` reads
tables as DataFrames; `failpoints` names the steps of a write at which crash tests end the process.

A sink writes a micro-batch, confirms it and keeps its own record of it. It never imports the ledger.
"""

from __future__ import annotations

from pkgutil import resolve_name

from recon.errors import ConfigError
from recon.project import Pipeline, Project, Sink
from recon.sinks.base import BatchSink, Landed
from recon.sinks.delta.append import DeltaAppend
from recon.sinks.failpoints import Failpoint, no_failpoint

__all__ = ["BatchSink", "DeltaAppend", "Failpoint", "Landed", "find_pipeline", "find_sink", "open_sink"]


def open_sink(project: Project, pipeline: str, sink: Sink, failpoint: Failpoint = no_failpoint) -> BatchSink:
    """The writer for a sink of recon.yml.

    Args:
        project: a loaded recon.yml.
        pipeline: the pipeline's name.
        sink: one of its sinks.
        failpoint: called at the sink's own moments of a write; see recon.sinks.failpoints.

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


def find_pipeline(project: Project, name: str) -> Pipeline:
    """A pipeline by name; raises ConfigError when there is none."""
    for pipe in project.pipelines:
        if pipe.name == name:
            return pipe
    known = ", ".join(sorted(pipe.name for pipe in project.pipelines))
    raise ConfigError(f"recon.yml has no pipeline {name!r}; it has {known}")


def find_sink(project: Project, pipeline: str, sink: str | None = None) -> tuple[Pipeline, Sink]:
    """A pipeline and its sink by name; the only sink when none is named.

    Raises:
        ConfigError: there is no such pipeline or sink, or the pipeline has several sinks and none was named.
    """
    pipe = find_pipeline(project, pipeline)
    outs = {out.name: out for out in pipe.sinks}
    if sink is None and len(outs) == 1:
        return pipe, pipe.sinks[0]
    if sink not in outs:
        problem = f"no sink {sink!r}" if sink else "several sinks and none was named"
        raise ConfigError(f"pipeline {pipeline} has {problem}; it has {', '.join(sorted(outs))}")
    return pipe, outs[sink]
