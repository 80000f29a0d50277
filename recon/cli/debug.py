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
from recon.base.clock import utc_now
from recon.base.errors import ConfigError, EvidenceError, ReconError
from recon.base.requirements import requirements
from recon.cli.shared import Session

if TYPE_CHECKING:
    from recon.project import Pipeline, Project, Sink


class _NotYetError(EvidenceError):
    """What the first micro-batch makes is not there, and nothing says that there was a micro-batch."""


def debug(session: Session) -> None:
    """Show what recon can reach from here.

    Java, Spark, recon.yml, each checkpoint and table, Kafka and the ledger. "not yet" is said of what the first
    micro-batch makes. Exit 1 when something cannot be reached.
    """
    probe = _Probe(session)
    probe("Python", lambda: f"{platform.python_version()}, recon {__version__}")
    probe("Java", _java)
    probe("Spark", lambda: _package("pyspark"))
    probe("Delta", lambda: f"{_package('delta-spark')}, {_package('deltalake')}")
    probe("recon.yml", lambda: _config(session))
    if session.has_project:
        _witnesses(probe, session.project())
    counted = [f"{n} {word}" for word, n in (("not OK", probe.failed), ("not yet", probe.to_come)) if n]
    typer.echo(f"{', '.join(counted)}." if counted else "All checks passed.")
    raise typer.Exit(1 if probe.failed else 0)


class _Probe:
    """Runs one probe after the other and prints its result; an error of a probe does not end the command."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.failed = self.to_come = 0

    def __call__(self, what: str, probe: Callable[[], str]) -> None:
        try:
            answer, word = probe(), "OK"
        except _NotYetError as error:
            answer, word = str(error), "not yet"
        except ReconError as error:
            answer, word = str(error), "not OK"
        except Exception as error:  # such as a broken installation, which this command is meant to show
            answer, word = f"{type(error).__name__}: {error}", "not OK"
        self.failed += word == "not OK"
        self.to_come += word == "not yet"
        typer.echo(self.session.mask(" ".join(f"{what}: {word}, {answer}".split())))


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
    if project.pipelines:
        probe("ledger", lambda: _ledger(project))


def _java() -> str:
    from recon.local.java import find_java, major_version

    java = find_java()
    return f"Java {major_version(java)} at {java}"


def _package(name: str) -> str:
    supported = next((requirement for requirement in requirements() if requirement.name == name), None)
    try:
        installed = version(name)
    except PackageNotFoundError:
        raise EvidenceError(f"{name} is not installed; pip install '{supported or name}' brings it") from None
    if supported is None:  # recon itself is not installed: there is no metadata
        return f"{name} {installed}, not compared with what recon supports: recon is not installed here"
    if not supported.specifier.contains(installed, prereleases=True):
        raise EvidenceError(f"{name} {installed} is not supported; pip install '{supported}' brings one that is")
    return f"{name} {installed}"


def _config(session: Session) -> str:
    from recon.base.text import plural
    from recon.checks.binding import bind

    project = session.project()
    tables = sum(1 for table in project.tables if any(table.every_test()))
    what = [plural(len(project.pipelines), "pipeline")] if project.pipelines else []
    what += [plural(tables, "table")] if tables else []
    return f"project {project.name} in {project.project_dir}, {', '.join(what)}, {plural(len(bind(project)), 'check')}"


def _checkpoint(project: Project, pipeline: Pipeline) -> str:
    from recon.base.storage import Storage
    from recon.witness import checkpoint

    where = Storage(project.resolve(pipeline.checkpoint), project.storage_options)
    if not where.names():
        raise _missing(
            f"there is no checkpoint at {where.uri}",
            _entered(project, pipeline),
            "the query makes it when it first starts",
            "correct the pipeline's checkpoint, or give it back its folder",
        )
    witness = checkpoint.read(where, positions=not pipeline.of_kafka)
    if witness.last is None:
        raise _NotYetError(
            f"query_id {witness.query_id} has no micro-batch in {where.uri} yet; it starts with the first"
        )
    return f"query_id {witness.query_id}, last micro-batch {witness.last.batch_id}"


def _missing(what: str, known: str, made: str, correct: str) -> EvidenceError:
    """The error of a thing that the first micro-batch makes; `known` says which micro-batch there was, if any."""
    return EvidenceError(f"{what}, but {known}; {correct}") if known else _NotYetError(f"{what} yet; {made}")


def _entered(project: Project, pipeline: Pipeline, sink: str | None = None) -> str:
    """What the ledger has of a pipeline, or of one of its sinks; nothing where it has nothing."""
    from recon.write.ledger import open_ledger

    ledger = open_ledger(project)
    sinks = {of for name, of in ledger.chains() if name == pipeline.name} if ledger.exists() else set()
    if sinks if sink is None else sink in sinks:
        return "the ledger has micro-batches of it"
    return ""


def _committed(project: Project, pipeline: Pipeline) -> str:
    """Which micro-batch the checkpoint says was committed last; nothing where it has none."""
    from recon.base.storage import Storage
    from recon.witness import checkpoint

    where = Storage(project.resolve(pipeline.checkpoint), project.storage_options)
    batches = checkpoint.read(where, positions=not pipeline.of_kafka).batches if where.names() else ()
    committed = [batch.batch_id for batch in batches if batch.committed]
    return f"the checkpoint has committed micro-batch {committed[-1]}" if committed else ""


def _table(project: Project, pipeline: Pipeline, sink: Sink) -> str:
    from recon.base.storage import Storage
    from recon.base.text import plural
    from recon.witness import delta_log
    from recon.write.sinks import open_sink

    where = project.location(sink)
    if not sink.is_delta:
        record = open_sink(project, pipeline.name, sink).log(since=utc_now() - timedelta(days=1))
        if not record.recorded:
            return f"{where} ({sink.kind}) keeps no record of its own and was not read"
        if not record.exists:
            raise _unwritten(f"nothing was written to {where}", project, pipeline, sink)
        return f"{record.location} ({sink.kind}) has {plural(len(record.commits), 'micro-batch')} of the last day"
    if reason := project.why_unlocated(where):
        raise EvidenceError(reason)
    latest = delta_log.latest_version(Storage(where, project.storage_options))
    if latest is None:
        raise _unwritten(f"there is no Delta table at {where}", project, pipeline, sink)
    return f"Delta table at version {latest}"


def _unwritten(what: str, project: Project, pipeline: Pipeline, sink: Sink) -> EvidenceError:
    known = _entered(project, pipeline, sink.name)
    # A route gets its table with its first row: micro-batches of the pipeline's other sinks say nothing of it.
    if not known and not _entered(project, pipeline):
        known = _committed(project, pipeline)
    return _missing(
        what, known, "the first micro-batch makes it", "correct the sink's target, or restore what was there"
    )


def _ledger(project: Project) -> str:
    from recon.write.ledger import open_ledger

    ledger = open_ledger(project)
    if not ledger.exists():
        raise _NotYetError(f"there is no ledger at {ledger.location} yet; the first micro-batch or audit makes it")
    newest = ledger.entries(limit=1)
    return f"at {ledger.location}, " + (
        f"last entry {newest[0].committed_at:%Y-%m-%d %H:%M:%S} UTC" if newest else "empty"
    )


def _source_table(project: Project, table: str) -> str:
    from recon.base.storage import Storage
    from recon.witness import delta_log

    where = project.table_location(table)
    if reason := project.why_unlocated(where):
        raise EvidenceError(reason)
    latest = delta_log.latest_version(Storage(where, project.storage_options))
    if latest is None:
        raise EvidenceError(f"there is no Delta table at {where}; correct the pipeline's source")
    return f"Delta table at version {latest}"


def _source_files(project: Project, pipeline: Pipeline) -> str:
    from recon.base.storage import Storage
    from recon.base.text import plural
    from recon.witness import file_logs, source_files

    source = pipeline.source
    state = Storage(project.resolve(pipeline.checkpoint), project.storage_options)
    folder = Storage(project.resolve(source.files or ""), project.storage_options)
    # Before the query starts, nothing says which files were read.
    found = source_files.read(state, folder, (), project.listing(source)) if state.names() else None
    if not (file_logs.is_there(folder) if found is None else found.exists):
        raise EvidenceError(f"there is no folder at {folder.uri}; correct the pipeline's source (files)")
    if found is None:
        return f"{plural(len(folder.stored(links=True)), 'file')} in {folder.uri}, none read yet"
    return f"{plural(found.files, 'file')} read of {folder.uri}, {len(found.waiting):,} wait"


def _kafka(project: Project, pipeline: Pipeline) -> str:
    from recon.witness import kafka

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
