"""`foreach_batch`: from a project, or from arguments alone, to the callable that Spark calls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recon.errors import ConfigError
from recon.hook.batch import ForeachBatch, Transform
from recon.project import LedgerConfig, Pipeline, Project, Source, load
from recon.sinks import find_sink


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
    **sink_options: Any,
) -> ForeachBatch:
    """The callable for `writeStream.foreachBatch` that writes, proves and records each micro-batch.

    Either name a project (a folder with recon.yml, the file, or a `Project`), or give `checkpoint`, `target`
    and `ledger` here and no YAML is needed.

    Args:
        project: where recon.yml is.
        pipeline: the pipeline's name.
        sink: the sink's name; may be left out when the pipeline has one.
        transform: your own function, called with the micro-batch (and its batch_id, if it takes two
            arguments) and returning what to write. The micro-batch it gets already carries
            `_source_topic, _source_partition, _source_offset`; keep them.
        checkpoint: the query's checkpointLocation.
        target: path or URI of the Delta table.
        ledger: folder of the ledger.
        kafka: librdkafka settings, at least `bootstrap.servers`.
        isolation_level: the stream's `kafka.isolation.level`.
        sink_options: further keys of a sink in recon.yml, such as `on_new_epoch="warn"`.

    Raises:
        ConfigError: the project, pipeline or sink is not usable, before any batch is written.
    """
    if project is None:
        if not (checkpoint and target and ledger):
            raise ConfigError(
                "foreach_batch needs a project (the folder of recon.yml), or checkpoint=, target= and ledger="
            )
        project = _project_of(pipeline, sink, checkpoint, target, ledger, kafka, isolation_level, sink_options)
    elif not isinstance(project, Project):
        project = load(project)
    pipe, out = find_sink(project, pipeline, sink)
    return ForeachBatch(project, pipe, out, transform)


def _project_of(
    pipeline: str,
    sink: str | None,
    checkpoint: str,
    target: str,
    ledger: str,
    kafka: Mapping[str, str] | None,
    isolation_level: str,
    sink_options: Mapping[str, Any],
) -> Project:
    from pydantic import ValidationError

    try:
        return Project(
            name=pipeline,
            ledger=LedgerConfig(location=ledger),
            kafka=dict(kafka or {}),
            pipelines=(
                Pipeline(
                    name=pipeline,
                    checkpoint=checkpoint,
                    source=Source.model_validate({"isolation_level": isolation_level}),
                    sinks=({"name": sink or pipeline, "target": target, **sink_options},),  # type: ignore[arg-type]
                ),
            ),
            project_dir=Path.cwd(),
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if not str(part).endswith("Sink"))
        raise ConfigError(f"foreach_batch: {where}: {first['msg']} (got {first['input']!r})") from error
