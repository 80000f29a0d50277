"""`read_kafka`: opens the stream of a pipeline with every option of Spark's Kafka source that recon.yml names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.base.errors import ConfigError
from recon.model.wire import values
from recon.project import Pipeline, Project, as_project
from recon.spark.kafka import kafka_options, without_counterpart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SUBSCRIPTIONS = ("subscribe", "subscribepattern", "assign")
# What a message may show; other options may hold a secret.
_SHOWN = ("subscribe", "subscribepattern", "assign", "kafka.bootstrap.servers", "kafka.isolation.level")


def read_kafka(spark: SparkSession, project: str | Path | Project, pipeline: str, **options: Any) -> DataFrame:
    """The stream that a pipeline reads: Spark's Kafka source with every option that recon.yml names.

    These are the broker and its security settings (`kafka:`), the topics, the isolation level and `options` of the
    pipeline's source.

    Args:
        spark: the session.
        project: where recon.yml is, or a `Project`.
        pipeline: the pipeline's name.
        options: further options of Spark's Kafka source, such as `startingOffsets="earliest"`; with dots in the name,
            `**{"kafka.fetch.max.bytes": 1_000_000}`. `assign` may replace the topics by partitions of theirs.

    Raises:
        ConfigError: the pipeline is not usable, or an option contradicts recon.yml. Or Java's client has no setting of
            this name below `kafka:`, and an option has to say it.
    """
    project = as_project(project)
    settings = source_options(project, project.find_pipeline(pipeline), options)
    return spark.readStream.format("kafka").options(**settings).load()


def source_options(project: Project, pipeline: Pipeline, options: Mapping[str, Any]) -> dict[str, str]:
    """The options of Spark's Kafka source for a pipeline: recon.yml's, and `options`.

    Raises:
        ConfigError: as for `read_kafka`.
    """
    given = {name.lower(): (name, _text(value)) for name, value in options.items()}
    source = pipeline.source
    if not pipeline.of_kafka:
        raise ConfigError(
            f"pipeline {pipeline.name} reads {source.named} and no topic: open its stream with "
            f'spark.readStream.format("{source.format if source.delta is None else "delta"}")'
        )
    settings = {
        **kafka_options(project.kafka),
        "kafka.isolation.level": source.isolation_level,
        **source.options,
        **_subscription(pipeline, given),
    }
    for name, value in settings.items():
        asked = given.pop(name.lower(), (name, value))[1]
        if asked != value:
            shown = name.lower() in _SHOWN or name in source.options
            raise ConfigError(
                f"pipeline {pipeline.name}: option {name} "
                + (f"is {asked} here and {value} in recon.yml" if shown else "is another one in recon.yml")
                + "; leave it out here, or change recon.yml"
            )
    if "kafka.bootstrap.servers" not in settings and "kafka.bootstrap.servers" not in given:
        raise ConfigError("kafka has no bootstrap.servers: add it below `kafka:` in recon.yml")
    for setting, option in without_counterpart(project.kafka).items():
        if option not in given and option not in settings:
            raise ConfigError(
                f"pipeline {pipeline.name}: {setting} below `kafka:` in recon.yml has no counterpart in Spark's Kafka "
                f'client, which is Java\'s; give its own setting: read_kafka(…, **{{"{option}": …}})'
            )
    return settings | dict(given.values())


def _subscription(pipeline: Pipeline, given: dict[str, tuple[str, str]]) -> dict[str, str]:
    """What the stream subscribes to; takes what agrees with recon.yml out of `given`."""
    topics, by_hand = pipeline.source.topics, [name for name in _SUBSCRIPTIONS if name in given]
    if not topics:
        if not by_hand:
            raise ConfigError(
                f"pipeline {pipeline.name} names no topics: add source: {{topics: [...]}} in recon.yml, or give "
                "subscribe=, subscribePattern= or assign="
            )
        return {}
    for name in by_hand:
        option, value = given.pop(name)
        if _topics_of(name, value) != set(topics):
            raise ConfigError(
                f"pipeline {pipeline.name}: option {option} is {value} here and recon.yml names the topics "
                f"{', '.join(topics)}; leave it out here, or change recon.yml"
            )
        if name == "assign":
            return {option: value}
    return {"subscribe": ",".join(topics)}


def _topics_of(name: str, value: str) -> set[str] | None:
    """The topics that an option names; None where it does not name them."""
    if name == "subscribe":
        return {topic.strip() for topic in value.split(",")}
    if name == "subscribepattern":
        return None
    try:
        return set(values.mapping(values.loads(value)))
    except (ValueError, TypeError):
        return None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
