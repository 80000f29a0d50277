"""recon debug: tries to reach everything that recon needs and prints a line for each."""

from __future__ import annotations

import platform
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import typer

from recon._version import __version__
from recon.cli.shared import Session
from recon.errors import ConfigError, EvidenceError, ReconError

if TYPE_CHECKING:
    from recon.project import Pipeline, Project, Sink

_SPARK = ("4.0", "4.1")  # the range of pyproject.toml


def debug(session: Session) -> None:
    """Show what recon can reach from here.

    Java, Spark, recon.yml, each checkpoint and table, Kafka and the ledger. Exit 1 when one cannot be reached.
    """
    probe = _Probe(session)
    probe("Python", lambda: f"{platform.python_version()}, recon {__version__}")
    probe("Java", _java)
    probe("Spark", lambda: _package("pyspark", _SPARK))
    probe("Delta", lambda: f"{_package('delta-spark', _SPARK)}, {_package('deltalake')}")
    probe("recon.yml", lambda: _config(session))
    if session.has_project:
        _witnesses(probe, session.project())
    typer.echo("All checks passed." if not probe.failed else f"{probe.failed} not OK.")
    raise typer.Exit(1 if probe.failed else 0)


class _Probe:
    """Runs one probe after the other and prints its result; an error of a probe does not end the command."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.failed = 0

    def __call__(self, what: str, probe: Callable[[], str]) -> None:
        try:
            answer, ok = probe(), True
        except ReconError as error:
            answer, ok = str(error), False
        except Exception as error:  # such as a broken installation, which this command is meant to show
            answer, ok = f"{type(error).__name__}: {error}", False
        self.failed += not ok
        line = " ".join(f"{what}: {'OK' if ok else 'not OK'}, {answer}".split())
        typer.echo(self.session.mask(line))


def _witnesses(probe: _Probe, project: Project) -> None:
    from recon.spark.catalog import ask_active

    ask_active(project)
    for pipeline in project.pipelines:
        probe(f"checkpoint of {pipeline.name}", partial(_checkpoint, project, pipeline))
        for sink in pipeline.sinks:
            probe(f"table of {pipeline.name}.{sink.name}", partial(_table, project, pipeline, sink))
        if pipeline.source.files is not None:
            probe(f"source of {pipeline.name}", partial(_source_files, project, pipeline))
        elif pipeline.source.delta is not None:
            probe(f"source of {pipeline.name}", partial(_source_table, project, pipeline.source.delta))
        else:
            probe(f"Kafka for {pipeline.name}", partial(_kafka, project, pipeline))
    probe("ledger", lambda: _ledger(project))


def _java() -> str:
    from recon.local.java import find_java, major_version

    java = find_java()
    return f"Java {major_version(java)} at {java}"


def _package(name: str, supported: tuple[str, ...] = ()) -> str:
    try:
        installed = version(name)
    except PackageNotFoundError:
        raise EvidenceError(f"{name} is not installed; pip install spark-recon brings it") from None
    if supported and ".".join(installed.split(".")[:2]) not in supported:
        raise EvidenceError(f"{name} {installed} is not supported; install {' or '.join(supported)}")
    return f"{name} {installed}"


def _config(session: Session) -> str:
    from recon.checks.binding import bind
    from recon.text import plural

    project = session.project()
    what = f"{plural(len(project.pipelines), 'pipeline')}, {plural(len(bind(project)), 'check')}"
    return f"project {project.name} in {project.project_dir}, {what}"


def _checkpoint(project: Project, pipeline: Pipeline) -> str:
    from recon.evidence import checkpoint
    from recon.storage import Storage

    where = Storage(project.resolve(pipeline.checkpoint), project.storage_options)
    witness = checkpoint.read(where, positions=not pipeline.of_kafka)
    last = "no micro-batch yet" if witness.last is None else f"last micro-batch {witness.last.batch_id}"
    return f"query_id {witness.query_id}, {last}"


def _table(project: Project, pipeline: Pipeline, sink: Sink) -> str:
    from recon.evidence import delta_log
    from recon.ledger.ledger import utc_now
    from recon.sinks import open_sink
    from recon.storage import Storage
    from recon.text import plural

    where = project.location(sink)
    if not sink.is_delta:
        record = open_sink(project, pipeline.name, sink).log(since=utc_now() - timedelta(days=1))
        if not record.recorded:
            return f"{where} ({sink.kind}) keeps no record of its own and was not read"
        if not record.exists:
            raise EvidenceError(f"nothing was written to {where} yet; the first micro-batch writes to it")
        return f"{record.location} ({sink.kind}) has {plural(len(record.commits), 'micro-batch')} of the last day"
    if reason := project.why_unlocated(where):
        raise EvidenceError(reason)
    latest = delta_log.latest_version(Storage(where, project.storage_options))
    if latest is None:
        raise EvidenceError(f"there is no Delta table at {where}; the first micro-batch creates it")
    return f"Delta table at version {latest}"


def _ledger(project: Project) -> str:
    from recon.ledger import open_ledger

    ledger = open_ledger(project)
    if not ledger.exists():
        raise EvidenceError(f"there is no ledger at {ledger.location} yet; the first micro-batch creates it")
    newest = ledger.entries(limit=1)
    return f"at {ledger.location}, " + (
        f"last entry {newest[0].committed_at:%Y-%m-%d %H:%M:%S} UTC" if newest else "empty"
    )


def _source_table(project: Project, table: str) -> str:
    from recon.evidence import delta_log
    from recon.storage import Storage

    where = project.table_location(table)
    if reason := project.why_unlocated(where):
        raise EvidenceError(reason)
    latest = delta_log.latest_version(Storage(where, project.storage_options))
    if latest is None:
        raise EvidenceError(f"there is no Delta table at {where}; correct the pipeline's source")
    return f"Delta table at version {latest}"


def _source_files(project: Project, pipeline: Pipeline) -> str:
    from recon.evidence import source_files
    from recon.storage import Storage
    from recon.text import plural

    source = pipeline.source
    state = Storage(project.resolve(pipeline.checkpoint), project.storage_options)
    folder = Storage(project.resolve(source.files or ""), project.storage_options)
    found = source_files.read(state, folder, (), project.listing(source))
    if not found.exists:
        raise EvidenceError(f"there is no folder at {folder.uri}; correct the pipeline's source (files)")
    return f"{plural(found.files, 'file')} read of {folder.uri}, {len(found.waiting):,} wait"


def _kafka(project: Project, pipeline: Pipeline) -> str:
    from recon.evidence import kafka

    if not project.kafka.get("bootstrap.servers"):
        raise ConfigError("kafka has no bootstrap.servers in recon.yml")
    topics = list(pipeline.source.topics)
    if not topics:
        raise ConfigError(f"source of pipeline '{pipeline.name}' lists no topics; add them under source: topics")
    witness = kafka.read(project.kafka, topics, isolation_level=pipeline.source.isolation_level)
    missing = [t for t in topics if not witness.topics[t].exists]
    if missing:
        raise EvidenceError(f"the broker does not know the topic {', '.join(missing)}")
    listed = (f"{t} ({len(witness.topics[t].partitions)} partitions)" for t in topics)
    return f"{witness.bootstrap_servers} has {', '.join(listed)}"
