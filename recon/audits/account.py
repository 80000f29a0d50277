"""`recon.account`: what became of every offset, read for this purpose and stored nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from recon.audits.collect import Evidence, collect
from recon.audits.options import Options
from recon.audits.session import AuditSession
from recon.audits.sources import Brokers, Sources
from recon.base.clock import utc_now
from recon.base.errors import ConfigError, LedgerError
from recon.base.instants import instant
from recon.base.text import some
from recon.checks.binding import bind
from recon.checks.bound import Bound
from recon.checks.engine import runner
from recon.checks.evidence.offset_continuity import OffsetContinuity
from recon.checks.evidence.source_rows import SourceRows
from recon.judge.account.lines import account_of
from recon.model import Unavailable
from recon.model.account import SinkAccount
from recon.project import CheckConfig, Pipeline, Project, Sink, as_project
from recon.reports.account import OffsetAccount

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKS = (OffsetContinuity, SourceRows)  # they ask for the rows and for Kafka's records that the account needs


def account(
    project: str | Path | Project,
    *,
    pipeline: str | None = None,
    sink: str | None = None,
    from_: datetime | date | str | None = None,
    to: datetime | date | str | None = None,
    no_spark: bool = False,
    spark: SparkSession | None = None,
) -> OffsetAccount:
    """What became of every offset: in a row, filtered, a transaction marker, lost, and so on, each in one line.

    It reads the ledger, the sinks' own logs and Kafka, and rows where counts leave a question, as `run_audit` does. It
    stores nothing, and proves nothing anew: the answer is that of an audit.

    Args:
        project: where recon.yml is, or a `Project`.
        pipeline: only this one.
        sink: only the sinks of this name.
        from_: begin of the period: a datetime, a date, or a text as `--from` takes it; UTC where it has no time zone.
            From the ledger's first entry on by default.
        to: its end, excluded, but for a date, which includes that day; now by default.
        no_spark: read no rows: what only they tell is "not known".
        spark: the session for reading rows; the active one, or one built from `spark:`, by default.

    Raises:
        ConfigError: recon.yml has no such pipeline or sink; none of them reads Kafka, or has an entry of the period.
        LedgerError: the ledger cannot be read.
    """
    for name, value in (("pipeline", pipeline), ("sink", sink)):
        if not isinstance(value, (str, type(None))):
            raise ConfigError(f"{name} {value!r} is not a name; give it as a text")
    project = as_project(project)
    chosen = list(_chosen(project, pipeline, sink))
    options = Options(from_=instant("from_", from_), to=instant("to", to, ends=True), full=True, keep=False)
    now = utc_now()
    session, brokers = AuditSession(project, no_spark, spark), Brokers()
    session.locate()
    accounts: list[SinkAccount] = []
    empty: list[str] = []
    for of, sinks in chosen:
        bounds = [bound for of_sink in sinks for bound in _bounds(project, of, of_sink)]
        evidence = collect(Sources(project, of, session, brokers), bounds, options, now)
        for _ in runner.run_evidence(bounds, evidence.seen_by, utc_now):
            session.raise_refusal()
        for of_sink in sinks:
            found = account_of(evidence.of_sink(of_sink.name))
            if found is None:
                empty.append(f"pipeline {of.name}, sink {of_sink.name}")
                _require_readable(evidence)
            else:
                accounts.append(found)
    if not accounts:
        if options.from_ or options.to:
            raise ConfigError(f"the ledger has no entry of the period of {some(empty)}; choose another period")
        raise ConfigError(f"the ledger has no entry of {some(empty)}; let the query write one micro-batch")
    return OffsetAccount(
        project=project.name,
        period_from=options.from_,
        period_to=options.until(now) or now,
        sinks=tuple(accounts),
        without=tuple(empty),
    )


def _chosen(project: Project, pipeline: str | None, sink: str | None) -> Iterator[tuple[Pipeline, list[Sink]]]:
    """The pipelines that read Kafka, with those of their sinks that were asked for."""
    pipelines = [project.find_pipeline(pipeline)] if pipeline is not None else list(project.require_pipelines())
    if sink is not None:
        of_name = [candidate for candidate in pipelines if any(of.name == sink for of in candidate.sinks)]
        if not of_name:
            project.find_sink(pipelines[0].name, sink)  # it names the sinks that there are
        pipelines = of_name
    others = [candidate.name for candidate in pipelines if not candidate.of_kafka]
    if pipelines and len(others) == len(pipelines):
        raise ConfigError(
            f"pipeline {some(others)} reads no Kafka, and only Kafka's records have offsets; `recon audit` judges it"
        )
    for candidate in pipelines:
        if candidate.of_kafka:
            yield candidate, [of for of in candidate.sinks if sink in (None, of.name)]


def _bounds(project: Project, pipeline: Pipeline, sink: Sink) -> Iterator[Bound]:
    """The checks of a sink that look at rows and at Kafka's records, as recon.yml has them, or with their defaults."""
    of_sink = {
        bound.check.test: bound for bound in bind(project) if (bound.pipeline, bound.sink) == (pipeline.name, sink.name)
    }
    for check in _CHECKS:
        name = f"{check.test}_{sink.name}"
        default = Bound(
            check=check(), config=CheckConfig(), unique_id=name, name=name, pipeline=pipeline.name, sink=sink.name
        )
        yield of_sink.get(check.test, default)


def _require_readable(evidence: Evidence) -> None:
    """Raises where a sink has no account because the ledger could not be read."""
    ledgers = evidence.witnesses.ledgers
    if isinstance(ledgers, Unavailable):
        raise LedgerError(ledgers.reason)
