"""Runs as the results table beside the ledger has them, for a report of an earlier audit. No Spark."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

from recon.audits import summary
from recon.audits.incidents import incidents_of
from recon.audits.past import Row, past_audits, result_of
from recon.base.errors import ConfigError, LedgerError
from recon.model import (
    CheckResult,
    Code,
    Incident,
    NextStep,
    PipelineFacts,
    RunResult,
    Unavailable,
    Witnesses,
)
from recon.project import Pipeline, Project, as_project
from recon.write.ledger import arrow, open_ledger
from recon.write.ledger.results import RUN, is_sealed, record_of
from recon.write.ledger.store import Filter

_LACKS = (
    "this report is of the stored results of an earlier audit: counts of the ledger, the pictures of offsets and rows, "
    "lag, samples and who made a commit are not stored, and are not shown"
)
# Whether its heads were signed is not in the table; a report must not say that they were not.
_HEADS = "not stored; `recon ledger verify --heads` says what published heads cover"


def stored_run(project: str | Path | Project, invocation_id: str) -> RunResult:
    """The audit with an id, or with one that begins so, as its results were stored, with the month before it.

    Raises:
        ConfigError: there is no such audit, or several ids begin so.
        LedgerError: the table cannot be read, or was edited.
    """
    project = as_project(project)
    rows = _rows(project, None)
    ids = {row["invocation_id"] for row in rows if row["invocation_id"].startswith(invocation_id)}
    if len(ids) != 1 or not invocation_id:
        what = f"{len(ids)} audits have an id that begins with" if ids else "no stored audit has the id"
        raise ConfigError(f"{what} {invocation_id!r}; run_results.json and `recon report --last 30d` name the ids")
    (only,) = ids
    return _with_past(project, _run(project, [row for row in rows if row["invocation_id"] == only]), None)


def newest_run(project: str | Path | Project, since: datetime) -> RunResult:
    """The newest audit since an instant as its results were stored, with all audits since then.

    Raises:
        ConfigError: there was none.
        LedgerError: the table cannot be read, or was edited.
    """
    project = as_project(project)
    rows = _rows(project, since)
    if not rows:
        raise ConfigError(f"no audit was stored since {since:%Y-%m-%d %H:%M} UTC; give an earlier --last")
    newest = max(rows, key=lambda row: row["generated_at"])["invocation_id"]
    return _with_past(project, _run(project, [row for row in rows if row["invocation_id"] == newest]), since)


def _with_past(project: Project, run: RunResult, since: datetime | None) -> RunResult:
    return replace(run, past=past_audits(project, partial(open_ledger, project), run.generated_at, since=since))


def _rows(project: Project, since: datetime | None) -> Sequence[Row]:
    store = open_ledger(project).results
    if not store.exists():
        raise LedgerError(f"there is no table of results at {store.location}; run 'recon audit' first")
    return arrow.rows(store.read(Filter(from_=since)))


def _run(project: Project, rows: Sequence[Row]) -> RunResult:
    edited = [row["name"] for row in rows if not is_sealed(row)]
    if edited:
        raise LedgerError(
            f"the stored result {edited[0]} of audit {rows[0]['invocation_id']} was edited: no report is made of it"
        )
    results = tuple(result_of(row) for row in rows if row["kind"] != RUN)
    newest = max(rows, key=lambda row: row["generated_at"])
    parameters = record_of(rows)
    return RunResult(
        invocation_id=newest["invocation_id"],
        project=newest["project"],
        recon_version=newest["recon_version"],
        generated_at=newest["generated_at"],
        period_from=summary.earliest(row["period_from"] for row in rows),
        period_to=newest["period_to"],
        elapsed_time=sum(row["execution_time"] or 0.0 for row in rows),
        results=results,
        pipelines=tuple(
            facts for pipeline in project.pipelines if (facts := _facts(project, pipeline, results, newest)) is not None
        ),
        args=parameters.args,
        versions=parameters.versions,
        notes=(_LACKS,),
        heads=_HEADS,
        runbook_url=project.reports.runbook_url,
        record=parameters.record,
    )


def _facts(project: Project, pipeline: Pipeline, results: Sequence[CheckResult], newest: Row) -> PipelineFacts | None:
    """The answer that follows from the stored results of a pipeline; None where it has none."""
    mine = [result for result in results if result.pipeline == pipeline.name]
    if not mine:
        return None
    sinks = [sink.name for sink in pipeline.sinks]
    outcome, because = summary.answer(mine, sinks, speaks_of="what the audit judged", reads=pipeline.source.kind)
    not_stored = Unavailable("", "not stored")
    witnesses = Witnesses(
        pipeline=pipeline.name,
        sink=None,
        now=newest["generated_at"],
        isolation_level=pipeline.source.isolation_level,
        period_from=None,
        period_to=newest["period_to"],
        ledgers=not_stored,
        checkpoint=not_stored,
        kafka=not_stored,
        delta=not_stored,
        rows=not_stored,
    )
    accepted = {f.message for result in mine for f in result.findings if f.code is Code.ACCEPTED}
    return PipelineFacts(
        name=pipeline.name,
        answer=outcome,
        because=because,
        query_id=None,
        checkpoint=project.resolve(pipeline.checkpoint),
        topics=pipeline.source.names,
        isolation_level=pipeline.source.isolation_level if pipeline.of_kafka else None,
        accepted=tuple(sorted(accepted)),
        incidents=tuple(
            _as_stored(incident, pipeline.name) for incident in incidents_of(witnesses, mine, sinks, keeps=True)
        ),
    )


def _as_stored(incident: Incident, pipeline: str) -> Incident:
    """An incident of an earlier audit: what is open of it now, later audits know."""
    command = f"recon findings --pipeline {shlex.quote(pipeline)}"
    return replace(incident, steps=(NextStep(purpose="see what of it is open now", command=command),))


__all__ = ["newest_run", "stored_run"]
