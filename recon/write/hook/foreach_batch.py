"""`foreach_batch`: from a project, or from arguments alone, to the callable that Spark calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recon.base.errors import ConfigError
from recon.project import Pipeline, Project, Sink, as_project, without_yaml
from recon.spark.catalog import active_session, require_located
from recon.spark.connect import connects, other_versions
from recon.witness.kafka_admin import require_usable
from recon.write.hook.prepare import Transform
from recon.write.hook.routes import RoutedForeachBatch
from recon.write.hook.writer import ForeachBatch
from recon.write.sinks.custom import CustomWriter
from recon.write.sinks.failpoints import Failpoint, no_failpoint

log = logging.getLogger("recon")


def foreach_batch(
    project: str | Path | Project | None = None,
    *,
    pipeline: str,
    sink: str | None = None,
    transform: Transform | None = None,
    checkpoint: str | None = None,
    target: str | None = None,
    ledger: str | None = None,
    kafka: Mapping[str, str] | None = None,
    isolation_level: str = "read_uncommitted",
    source_table: str | None = None,
    source_files: str | None = None,
    write: Callable[..., Any] | None = None,
    confirm: Callable[..., Any] | None = None,
    read: Callable[..., Any] | None = None,
    failpoint: Failpoint = no_failpoint,
    **sink_options: Any,
) -> ForeachBatch | RoutedForeachBatch:
    """The callable for `writeStream.foreachBatch` that writes, proves and records each micro-batch.

    Either name a project (a folder with recon.yml, the file, or a `Project`), or give `checkpoint`, `target`
    and `ledger` here and no YAML is needed.

    Args:
        project: where recon.yml is.
        pipeline: the pipeline's name.
        sink: the sink's name; may be left out when the pipeline has one, or `routes` between its sinks.
        transform: your own function, called with the micro-batch (and its batch_id, if it takes two
            arguments) and returning what to write. The micro-batch it gets already carries
            `_source_topic, _source_partition, _source_offset`; keep them.
        checkpoint: the query's checkpointLocation.
        target: path or URI of the Delta table, or its name in the catalog of the active Spark session.
        ledger: folder of the ledger.
        kafka: librdkafka settings, at least `bootstrap.servers`.
        isolation_level: the stream's `kafka.isolation.level`.
        source_table: the Delta table that the query reads instead of Kafka: its path, URI or name in the catalog.
        source_files: the folder that the query reads files of instead of Kafka: its path or URI.
        write: the function of a sink of kind custom, called as `write(frame, batch)`.
        confirm: its function that returns what landed, called as `confirm(batch)`.
        read: its function that gives the sink's rows, called as `read(spark)`.
        failpoint: for tests: called at each moment of a micro-batch that recon.write.sinks.failpoints names.
        sink_options: further keys of a sink in recon.yml, such as `on_new_epoch="warn"`.

    Raises:
        ConfigError: the project, pipeline, sink or a setting of Kafka's client is not usable, before any batch is
            written.
    """
    functions = {
        key: given for key, given in (("write", write), ("confirm", confirm), ("read", read)) if given is not None
    }
    if project is None:
        if sink_options.get("kind") == "custom":
            sink_options, target = {**sink_options, **functions}, target or ""
        if not (checkpoint and target is not None and ledger):
            raise ConfigError(
                "foreach_batch needs a project (the folder of recon.yml), or checkpoint=, target= and ledger="
            )
        project = without_yaml(
            "foreach_batch",
            ledger=ledger,
            kafka=dict(kafka or {}),
            pipeline={
                "name": pipeline,
                "checkpoint": checkpoint,
                "source": {
                    key: value
                    for key, value in (
                        ("isolation_level", isolation_level if source_table is source_files is None else None),
                        ("delta", source_table),
                        ("files", source_files),
                    )
                    if value is not None
                },
                "sinks": [{"name": sink or pipeline, "target": target, **sink_options}],
            },
        )
    project = as_project(project)
    routed = project.find_pipeline(pipeline)
    if routed.is_observed:
        raise ConfigError(
            f"pipeline {pipeline} has `write: {routed.write}` in recon.yml: it is written without recon, which "
            "observes it; take that key out to let recon write"
        )
    if routed.routes is not None and sink is None:
        for each in routed.sinks:
            _require_functions(project, pipeline, each, functions)
        _require_kafka(project, routed.sinks)
        require_located(project, routed.sinks)
        _look_at_connect(routed, routed.sinks)
        return RoutedForeachBatch(project, routed, routed.routes, transform, failpoint=failpoint)
    pipe, out = project.find_sink(pipeline, sink)
    if functions and out.takes_functions:
        out = out.model_copy(update=functions)
    _require_functions(project, pipeline, out, functions)
    _require_kafka(project, [out])
    require_located(project, [out])
    _look_at_connect(pipe, [out])
    return ForeachBatch(project, pipe, out, transform, failpoint=failpoint)


def _require_functions(project: Project, pipeline: str, sink: Sink, functions: Mapping[str, Any]) -> None:
    """A custom sink has its functions before the first micro-batch; no other sink takes any."""
    if sink.takes_functions:
        CustomWriter.of(project, pipeline, sink).require()
    elif functions:
        raise ConfigError(
            f"pipeline {pipeline}, sink {sink.name} is of kind {sink.kind}, which writes by itself: "
            f"{next(iter(functions))}= is for kind custom; of a routed pipeline, name the functions in recon.yml"
        )


def _look_at_connect(pipeline: Pipeline, sinks: Sequence[Sink]) -> None:
    """Says what a query would lack, where the active session is one of Spark Connect.

    Raises:
        ConfigError: its server is older than 4.0.
    """
    spark = active_session()
    if spark is None or not connects(spark):
        return
    versions = other_versions(spark)
    if spark.version < "4":
        raise ConfigError(
            f"pipeline {pipeline.name}: recon's hook runs through Spark Connect from Spark 4.0 on, and "
            f"{versions or f'the server has Spark {spark.version}'}; use a newer server, or a session without Connect"
        )
    if versions:
        log.warning(
            "pipeline %s: %s; if the query fails, install the server's version in the client (pyspark-client==%s)",
            pipeline.name,
            versions,
            spark.version,
        )
    if pipeline.of_kafka:
        log.warning(
            "pipeline %s: Spark Connect does not say with which isolation level a query reads Kafka, and the ledger "
            "does not have it: open the stream with recon.read_kafka, which reads as recon.yml says (%s)",
            pipeline.name,
            pipeline.source.isolation_level,
        )
    for sink in sinks:
        if sink.is_delta and sink.rewrites:
            log.warning(
                "pipeline %s, sink %s: over Spark Connect a MERGE is refused in a session that runs another query; "
                "open the stream in a session of its own, SparkSession.builder.remote(…).create()",
                pipeline.name,
                sink.name,
            )


def _require_kafka(project: Project, sinks: Sequence[Sink]) -> None:
    """Kafka's client accepts the settings: otherwise the first micro-batch, or an audit, would be the first to say."""
    for conf in (project.kafka, *(sink.client_settings(project.kafka) for sink in sinks)):
        if conf:
            require_usable(conf)
